//! What the libraries give for an open card: domains, registered memory, UARs, each with an owner and errors.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use mlx5_wqe::{AddressVector, UarPage};
use warpbell::{DoorbellPage, SendDoorbell};

use super::bindings::{self, IbvPd, Objects, values};
use super::context::{Context, last, status, system};
use super::error::{Mlx5Error, remedy};

/// A thing of the libraries' with an owner and a way to end it.
macro_rules! owned {
    ($($(#[$doc:meta])* $name:ident($raw:ty) ends by $end:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name {
            context: Arc<Context>,
            raw: NonNull<$raw>,
        }

        // SAFETY: it is not tied to a thread.
        unsafe impl Send for $name {}
        // SAFETY: the libraries lock what their calls change.
        unsafe impl Sync for $name {}

        impl $name {
            fn new(context: &Arc<Context>, raw: *mut $raw) -> io::Result<Self> {
                let raw = NonNull::new(raw).ok_or_else(last)?;
                Ok(Self { context: context.clone(), raw })
            }

            /// Ends it.
            pub fn end(self) -> io::Result<()> {
                // SAFETY: it lives, and ends here.
                status(unsafe { (self.context.functions.$end)(self.raw.as_ptr()) })
            }
        }
    )*};
}

owned! {
    /// A protection domain. It has to be ended; dropped, it stays.
    Domain(IbvPd) ends by ibv_dealloc_pd;
    /// Registered memory. It has to be ended; dropped, it stays.
    Region(bindings::MemoryRegion) ends by ibv_dereg_mr;
    /// Memory for queues. It has to be ended; dropped, it stays.
    Umem(bindings::Umem) ends by mlx5dv_devx_umem_dereg;
}

/// Where memory is, for who registers it.
#[derive(Debug)]
pub(super) struct Memory {
    pub address: u64,
    pub bytes: u64,
    /// The GPU's memory has a dmabuf, or a reason why it has none.
    pub dmabuf: Option<Result<Dmabuf, String>>,
}

/// A file that stands for memory of another device.
#[derive(Debug)]
pub(super) struct Dmabuf {
    pub file: OwnedFd,
    /// Where in it the memory begins.
    pub offset: u64,
}

impl Memory {
    fn pointer(&self) -> *mut c_void {
        ptr::with_exposed_provenance_mut(self.address as usize)
    }

    /// Registers host memory by its address, the GPU's by its dmabuf first, and by its address where that fails.
    fn register<R>(
        &self,
        step: &'static str,
        by_dmabuf: impl FnOnce(&Dmabuf) -> io::Result<R>,
        by_address: impl FnOnce() -> io::Result<R>,
    ) -> Result<R, Mlx5Error> {
        let why_not = match &self.dmabuf {
            None => return by_address().map_err(system(step)),
            Some(Err(why)) => why.clone(),
            Some(Ok(dmabuf)) => match by_dmabuf(dmabuf) {
                Ok(registered) => return Ok(registered),
                Err(error) => error.to_string(),
            },
        };
        by_address().map_err(|peermem| Mlx5Error::GpuMemory {
            step,
            dmabuf: why_not,
            peermem,
        })
    }
}

impl Domain {
    /// A new one.
    pub fn allocate(context: &Arc<Context>) -> Result<Self, Mlx5Error> {
        // SAFETY: the device is open.
        let raw = unsafe { (context.functions.ibv_alloc_pd)(context.raw()) };
        Self::new(context, raw).map_err(system("make a protection domain"))
    }

    /// Its number, for commands.
    pub fn number(&self) -> Result<u32, Mlx5Error> {
        let mut found = bindings::Domain {
            pdn: 0,
            comp_mask: 0,
        };
        let mut objects = Objects::NONE;
        objects.pd.input = self.raw.as_ptr().cast();
        objects.pd.output = (&raw mut found).cast();
        // SAFETY: the domain lives, and the structure is filled.
        let looked = status(unsafe {
            (self.context.functions.mlx5dv_init_obj)(&raw mut objects, values::OBJECT_PD)
        });
        looked.map_err(system("look into a protection domain"))?;
        Ok(found.pdn)
    }

    /// Registers memory with the rights of `ibv_access_flags`.
    ///
    /// # Safety
    /// The memory stays until the region is ended.
    pub unsafe fn register(&self, memory: &Memory, access: u32) -> Result<Region, Mlx5Error> {
        let (functions, pd) = (&self.context.functions, self.raw.as_ptr());
        let bytes = memory.bytes as usize;
        memory.register(
            "register memory",
            |dmabuf| {
                let Dmabuf { file, offset } = dmabuf;
                // SAFETY: the file is open; the caller answers for the memory.
                let raw = unsafe {
                    let register = functions.ibv_reg_dmabuf_mr;
                    let file = file.as_raw_fd();
                    register(pd, *offset, bytes, memory.address, file, access as c_int)
                };
                Region::new(&self.context, raw)
            },
            || {
                // SAFETY: as above.
                let raw =
                    unsafe { (functions.ibv_reg_mr)(pd, memory.pointer(), bytes, access as c_int) };
                Region::new(&self.context, raw)
            },
        )
    }

    /// The way to another port, as the system resolves it.
    pub fn resolve(&self, mut to: bindings::AddressAttributes) -> Result<AddressVector, Mlx5Error> {
        let functions = &self.context.functions;
        // SAFETY: the domain lives; the attributes are only read.
        let handle = unsafe { (functions.ibv_create_ah)(self.raw.as_ptr(), &raw mut to) };
        if handle.is_null() {
            return Err(system("resolve the way to the other end")(last()));
        }
        let mut found = bindings::AddressHandle {
            av: ptr::null(),
            comp_mask: 0,
        };
        let mut objects = Objects::NONE;
        objects.ah.input = handle.cast();
        objects.ah.output = (&raw mut found).cast();
        // SAFETY: the handle lives, and the structure is filled.
        let looked =
            status(unsafe { (functions.mlx5dv_init_obj)(&raw mut objects, values::OBJECT_AH) });
        // SAFETY: the vector is the handle's, which lives until the next line.
        let vector = unsafe { found.av.as_ref() }.copied();
        // SAFETY: the handle lives, and ends here.
        let ended = status(unsafe { (functions.ibv_destroy_ah)(handle) });
        looked
            .and(ended)
            .map_err(system("look into an address handle"))?;
        Ok(vector.unwrap_or_default())
    }
}

impl Region {
    /// Local and remote key.
    pub fn keys(&self) -> (u32, u32) {
        // SAFETY: the region lives, and its keys do not change.
        let region = unsafe { self.raw.as_ref() };
        (region.lkey, region.rkey)
    }
}

/// The one size that pages of queues have for the card: 4,096 bytes, or the system's if that is more, because the kernel
/// takes no smaller ones. With a choice the kernel takes the largest that fits; the card then takes a ring's offset in
/// parts of a 64th of a page, and refuses rings that begin elsewhere.
fn page_size() -> u64 {
    // SAFETY: the call has no preconditions.
    let system = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(system).map_or(4096, |system| system.max(4096))
}

impl Umem {
    /// Registers memory for queues.
    ///
    /// # Safety
    /// The memory stays until the umem is ended.
    pub unsafe fn register(context: &Arc<Context>, memory: &Memory) -> Result<Self, Mlx5Error> {
        let register = |addr, comp_mask, dmabuf_fd| {
            let mut attributes = bindings::UmemAttributes {
                addr,
                size: memory.bytes as usize,
                access: values::LOCAL_WRITE,
                pgsz_bitmap: page_size(),
                comp_mask,
                dmabuf_fd,
            };
            // SAFETY: the attributes are only read; the caller answers for the memory.
            let raw = unsafe {
                let register = context.functions.mlx5dv_devx_umem_reg_ex;
                register(context.raw(), &raw mut attributes)
            };
            Self::new(context, raw)
        };
        memory.register(
            "register the memory of queues",
            |dmabuf| {
                // Within the file.
                let start = ptr::without_provenance_mut(dmabuf.offset as usize);
                register(start, values::UMEM_DMABUF, dmabuf.file.as_raw_fd())
            },
            || register(memory.pointer(), 0, 0),
        )
    }

    /// Its number, for commands.
    pub fn number(&self) -> u32 {
        // SAFETY: the umem lives, and its number does not change.
        unsafe { self.raw.as_ref() }.umem_id
    }
}

/// What kind of page has a doorbell register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PageKind {
    /// Not cached, and nobody else's.
    Dedicated,
    /// Not cached, and one for all queues of the open device, libmlx5's own among them.
    Shared,
    /// Write-combining (BlueFlame). Its registers are each one queue's.
    BlueFlame,
}

impl PageKind {
    /// The page as a handle tells of it.
    pub fn doorbell(self) -> DoorbellPage {
        match self {
            Self::Dedicated | Self::Shared => DoorbellPage::Uncached,
            Self::BlueFlame => DoorbellPage::WriteCombining,
        }
    }

    fn flag(self) -> u32 {
        match self {
            Self::Dedicated => bindings::UAR_DEDICATED,
            Self::Shared => values::UAR_NON_CACHED,
            Self::BlueFlame => values::UAR_BLUEFLAME,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Dedicated => "dedicated",
            Self::Shared => "non-cached",
            Self::BlueFlame => "BlueFlame",
        }
    }

    /// The kinds to try, the best one first. A page that others ring, too, is not for a GPU: its threads store without
    /// libmlx5's locks. Nor is it for a queue pair without a record, whose register has to be its own.
    fn to_try(shared: bool) -> &'static [Self] {
        match shared {
            true => &[Self::Dedicated, Self::Shared, Self::BlueFlame],
            false => &[Self::Dedicated, Self::BlueFlame],
        }
    }
}

/// Tries one kind after the other; all have failed for the reasons that are given.
fn first_of<R>(
    kinds: &[PageKind],
    mut allocate: impl FnMut(PageKind) -> io::Result<R>,
) -> Result<(R, PageKind), Mlx5Error> {
    let mut attempts = Vec::new();
    for kind in kinds {
        match allocate(*kind) {
            Ok(page) => return Ok((page, *kind)),
            Err(error) => attempts.push((kind.name(), error)),
        }
    }
    let last = attempts.last();
    let remedy = last.map_or("look at `dmesg`", |(_, error)| remedy(error));
    Err(Mlx5Error::NoUar { attempts, remedy })
}

/// A UAR. It has to be ended; dropped, it stays.
#[derive(Debug)]
pub(super) struct Uar {
    context: Arc<Context>,
    raw: NonNull<bindings::Uar>,
    kind: PageKind,
}

// SAFETY: it is not tied to a thread.
unsafe impl Send for Uar {}
// SAFETY: libmlx5 changes nothing in it.
unsafe impl Sync for Uar {}

impl Uar {
    /// A page that is not cached and nobody else's, where rdma-core gives one; else, if it may be `shared`, one that all
    /// queues of the device ring on; else a BlueFlame register.
    pub fn allocate(context: &Arc<Context>, shared: bool) -> Result<Self, Mlx5Error> {
        let (raw, kind) = first_of(PageKind::to_try(shared), |kind| {
            // SAFETY: the device is open.
            let raw =
                unsafe { (context.functions.mlx5dv_devx_alloc_uar)(context.raw(), kind.flag()) };
            NonNull::new(raw).ok_or_else(last)
        })?;
        let context = context.clone();
        Ok(Self { context, raw, kind })
    }

    /// What kind of page it is.
    pub fn kind(&self) -> PageKind {
        self.kind
    }

    /// The card's number of the page.
    pub fn page(&self) -> u32 {
        // SAFETY: the UAR lives, and its numbers do not change.
        unsafe { self.raw.as_ref() }.page_id
    }

    /// Address of the doorbell register.
    pub fn register(&self, doorbell: SendDoorbell) -> u64 {
        // SAFETY: as above.
        let raw = unsafe { self.raw.as_ref() };
        match doorbell {
            SendDoorbell::WithRecord => raw.reg_addr.expose_provenance() as u64,
            SendDoorbell::WithoutRecord => {
                let page = raw.base_addr.expose_provenance() as u64;
                page + UarPage::DOORBELL_WITHOUT_RECORD as u64
            }
        }
    }

    /// Frees it.
    pub fn end(self) {
        // SAFETY: it lives, and ends here.
        unsafe { (self.context.functions.mlx5dv_devx_free_uar)(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(dmabuf: Option<Result<(), &str>>) -> Memory {
        let file = || std::fs::File::open("/dev/null").unwrap().into();
        Memory {
            address: 4096,
            bytes: 4096,
            dmabuf: dmabuf.map(|dmabuf| match dmabuf {
                Ok(()) => Ok(Dmabuf {
                    file: file(),
                    offset: 0,
                }),
                Err(why) => Err(why.into()),
            }),
        }
    }

    /// A page of its own comes first; one that others ring on is for a CPU alone; and if none is to be had, each reason
    /// is told.
    #[test]
    fn kinds_of_pages_in_turn() {
        use PageKind::{BlueFlame, Dedicated, Shared};
        let found = |shared, there: &[PageKind]| {
            let allocate = |kind| match there.contains(&kind) {
                true => Ok(()),
                false => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            };
            let found = first_of(PageKind::to_try(shared), allocate);
            found.map(|((), kind)| kind)
        };
        let all = [BlueFlame, Shared, Dedicated];
        assert_eq!(found(true, &all).unwrap(), Dedicated);
        assert_eq!(found(true, &all[..2]).unwrap(), Shared);
        assert_eq!(found(false, &all[..2]).unwrap(), BlueFlame);
        assert_eq!(found(true, &all[..1]).unwrap(), BlueFlame);
        assert_eq!(BlueFlame.doorbell(), DoorbellPage::WriteCombining);
        let text = found(true, &[]).unwrap_err().to_string();
        let kinds = ["dedicated: ", "non-cached: ", "BlueFlame: "];
        assert!(kinds.iter().all(|kind| text.contains(kind)), "{text}");
    }

    fn refused(number: c_int) -> io::Result<&'static str> {
        Err(io::Error::from_raw_os_error(number))
    }

    /// A dmabuf comes first, the address second, and where neither will do, both reasons are told.
    #[test]
    fn two_ways_to_the_gpus_memory() {
        let by = |memory: &Memory, dmabuf, address| {
            let registered = memory.register("try", |_| dmabuf, || address);
            registered.map_err(|error| error.to_string())
        };
        let (file, address) = (|| Ok("dmabuf"), || Ok("address"));
        assert_eq!(by(&memory(Some(Ok(()))), file(), address()), Ok("dmabuf"));
        let unsupported = || refused(libc::EOPNOTSUPP);
        let second = by(&memory(Some(Ok(()))), unsupported(), address());
        assert_eq!(second, Ok("address"));
        let none = memory(Some(Err("CUDA_ERROR_NOT_SUPPORTED")));
        assert_eq!(by(&none, file(), address()), Ok("address"));
        assert_eq!(by(&memory(None), file(), address()), Ok("address"));

        let fault = || refused(libc::EFAULT);
        assert_eq!(
            by(&none, file(), fault()).unwrap_err(),
            "could not try in GPU memory: by dmabuf: CUDA_ERROR_NOT_SUPPORTED; by nvidia_peermem: \
             Bad address (os error 14); use the open kernel modules of the NVIDIA driver (dmabuf), \
             or `modprobe nvidia_peermem`"
        );
        let host = by(&memory(None), file(), refused(libc::ENOMEM)).unwrap_err();
        assert!(host.contains("`ulimit -l unlimited`"), "{host}");
    }
}
