//! An open card: what the libraries give, with owners and errors.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull, null_mut};
use std::sync::Arc;

use mlx5_wqe::AddressVector;
use mlx5_wqe::prm::{
    CapabilityQuery, Command, Done, HcaCapabilities, PrmError, QueryHcaCap, Record,
};

use super::bindings::{self, Functions, IbvContext, IbvDevice, IbvPd, Objects, values};
use super::error::{Mlx5Error, remedy};

/// A device opened with DEVX; it closes with the last of its objects.
#[derive(Debug)]
pub(super) struct Context {
    functions: Functions,
    raw: NonNull<IbvContext>,
    name: String,
}

// SAFETY: libibverbs and libmlx5 lock what their calls change.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

/// A failing call's error, whose number is in errno.
fn last() -> io::Error {
    io::Error::last_os_error()
}

/// The result of a call that returns 0, or an error number, or -1 with it in errno.
fn status(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        -1 => Err(last()),
        number => Err(io::Error::from_raw_os_error(number.abs())),
    }
}

/// Names the step that the system refused.
fn system(step: &'static str) -> impl Fn(io::Error) -> Mlx5Error {
    move |source| Mlx5Error::System {
        step,
        remedy: remedy(&source),
        source,
    }
}

impl Context {
    /// Opens the device of this name.
    pub fn open(name: &str) -> Result<Arc<Self>, Mlx5Error> {
        let functions = Functions::load()?;
        let mut count = 0;
        // SAFETY: the count is ours.
        let list = unsafe { (functions.ibv_get_device_list)(&raw mut count) };
        let Some(list) = NonNull::new(list) else {
            let error = last();
            // A kernel without RDMA, or none of its modules loaded.
            if error.raw_os_error() == Some(libc::ENOSYS) {
                let (name, found) = (name.into(), Vec::new());
                return Err(Mlx5Error::NoDevice { name, found });
            }
            return Err(system("list the RDMA devices")(error));
        };
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: the list has that many devices, and lives until it is freed below.
        let devices = unsafe { std::slice::from_raw_parts(list.as_ptr(), count) };
        let opened = Self::find(&functions, devices, name).map(|raw| (raw, name.to_owned()));
        // SAFETY: an open device outlives the list.
        unsafe { (functions.ibv_free_device_list)(list.as_ptr()) };
        let (raw, name) = opened?;
        Ok(Arc::new(Self {
            functions,
            raw,
            name,
        }))
    }

    fn find(
        functions: &Functions,
        devices: &[*mut IbvDevice],
        name: &str,
    ) -> Result<NonNull<IbvContext>, Mlx5Error> {
        // SAFETY: devices of the list live, and with them their names.
        let name_of = |device: &*mut IbvDevice| unsafe {
            let name = CStr::from_ptr((functions.ibv_get_device_name)(*device));
            name.to_string_lossy().into_owned()
        };
        let Some(device) = devices.iter().find(|device| name_of(device) == name) else {
            return Err(Mlx5Error::NoDevice {
                name: name.into(),
                found: devices.iter().map(name_of).collect(),
            });
        };
        // SAFETY: as above.
        if !unsafe { (functions.mlx5dv_is_supported)(*device) } {
            return Err(Mlx5Error::NotMlx5 { name: name.into() });
        }
        let mut attributes = bindings::ContextAttributes {
            flags: values::CONTEXT_DEVX,
            comp_mask: 0,
        };
        // SAFETY: as above; the attributes are only read.
        let raw = unsafe { (functions.mlx5dv_open_device)(*device, &raw mut attributes) };
        NonNull::new(raw).ok_or_else(|| system("open the device with DEVX")(last()))
    }

    fn raw(&self) -> *mut IbvContext {
        self.raw.as_ptr()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the card can do.
    pub fn capabilities(&self) -> Result<HcaCapabilities, Mlx5Error> {
        let query = QueryHcaCap {
            op_mod: CapabilityQuery::GENERAL_CURRENT,
            ..QueryHcaCap::default()
        };
        let answer = command("ask what the card can do", &query, |input, output| {
            // SAFETY: `command` gives bytes to read and bytes to write.
            status(unsafe {
                (self.functions.mlx5dv_devx_general_cmd)(
                    self.raw(),
                    input.as_ptr().cast(),
                    input.len(),
                    output.as_mut_ptr().cast(),
                    output.len(),
                )
            })
        })?;
        Ok(answer.cmd_hca_cap)
    }

    /// A port, counted from 1.
    pub fn port(&self, port: u8) -> io::Result<bindings::PortAttributes> {
        // SAFETY: the structure is numbers, of which 0 is one.
        let mut attributes: bindings::PortAttributes = unsafe { std::mem::zeroed() };
        // SAFETY: the function fills the structure.
        status(unsafe { (self.functions.ibv_query_port)(self.raw(), port, &raw mut attributes) })?;
        Ok(attributes)
    }

    /// An entry of a port's table of GIDs; none if it is empty.
    pub fn gid(&self, port: u8, index: u32) -> Option<bindings::GidEntry> {
        // SAFETY: the structure is numbers, of which 0 is one.
        let mut entry: bindings::GidEntry = unsafe { std::mem::zeroed() };
        let bytes = size_of::<bindings::GidEntry>();
        // SAFETY: the function fills the structure, whose size it is told.
        let found = status(unsafe {
            let query = self.functions.ibv_query_gid_ex;
            query(self.raw(), port.into(), index, &raw mut entry, 0, bytes)
        });
        (found.is_ok() && entry.gid != [0, 0]).then_some(entry)
    }

    /// The event queue of completion vector 0.
    pub fn event_queue(&self) -> Result<u32, Mlx5Error> {
        let mut number = 0;
        // SAFETY: the function sets the number.
        let asked = status(unsafe {
            (self.functions.mlx5dv_devx_query_eqn)(self.raw(), 0, &raw mut number)
        });
        asked.map_err(system("ask for the event queue"))?;
        Ok(number)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: each object of the device keeps it, so that none is left.
        let closed = status(unsafe { (self.functions.ibv_close_device)(self.raw()) });
        if let Err(error) = closed {
            tracing::error!(device = self.name, %error, "the device stays open");
        }
    }
}

/// Writes a command, lets `give` carry it, and reads the answer.
fn command<C: Command>(
    step: &'static str,
    command: &C,
    give: impl FnOnce(&[u8], &mut [u8]) -> io::Result<()>,
) -> Result<C::Answer, Mlx5Error> {
    let unfit = |source| Mlx5Error::Command { step, source };
    let mut input = vec![0; C::BYTES];
    command.write(&mut input).map_err(unfit)?;
    let mut output = vec![0; <C::Answer as Record>::BYTES];
    let given = give(&input, &mut output);
    // Where the card refused, the call fails, and the answer says why.
    if let Err(PrmError::Refused(refusal)) = Done::read(&output) {
        return Err(Mlx5Error::Refused { step, refusal });
    }
    given.map_err(system(step))?;
    C::Answer::read(&output).map_err(unfit)
}

/// An object that a command has made. It has to be [destroyed](Self::destroy); dropped, it stays.
#[derive(Debug)]
pub(super) struct Object {
    context: Arc<Context>,
    raw: NonNull<bindings::DevxObject>,
}

// SAFETY: the object is not tied to a thread; libmlx5 changes nothing in it.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// Gives a command that makes an object.
    ///
    /// # Safety
    /// Memory that the command names stays until the object is destroyed.
    pub unsafe fn create<C: Command>(
        context: &Arc<Context>,
        step: &'static str,
        create: &C,
    ) -> Result<(Self, C::Answer), Mlx5Error> {
        let mut raw = null_mut();
        let answer = command(step, create, |input, output| {
            // SAFETY: `command` gives bytes to read and bytes to write.
            raw = unsafe {
                (context.functions.mlx5dv_devx_obj_create)(
                    context.raw(),
                    input.as_ptr().cast(),
                    input.len(),
                    output.as_mut_ptr().cast(),
                    output.len(),
                )
            };
            match raw.is_null() {
                true => Err(last()),
                false => Ok(()),
            }
        })?;
        let raw = NonNull::new(raw).expect("a command that made nothing has failed");
        let context = context.clone();
        Ok((Self { context, raw }, answer))
    }

    /// Gives a command that changes the object.
    pub fn modify<C: Command>(
        &self,
        step: &'static str,
        modify: &C,
    ) -> Result<C::Answer, Mlx5Error> {
        let function = self.context.functions.mlx5dv_devx_obj_modify;
        self.talk(step, modify, function)
    }

    /// Gives a command that asks about the object.
    pub fn query<C: Command>(&self, step: &'static str, query: &C) -> Result<C::Answer, Mlx5Error> {
        let function = self.context.functions.mlx5dv_devx_obj_query;
        self.talk(step, query, function)
    }

    fn talk<C: Command>(
        &self,
        step: &'static str,
        talk: &C,
        function: unsafe extern "C" fn(
            *mut bindings::DevxObject,
            *const c_void,
            usize,
            *mut c_void,
            usize,
        ) -> c_int,
    ) -> Result<C::Answer, Mlx5Error> {
        command(step, talk, |input, output| {
            // SAFETY: the object lives; `command` gives bytes to read and bytes to write.
            status(unsafe {
                function(
                    self.raw.as_ptr(),
                    input.as_ptr().cast(),
                    input.len(),
                    output.as_mut_ptr().cast(),
                    output.len(),
                )
            })
        })
    }

    /// Destroys it. When this succeeds, the card uses its memory no longer.
    pub fn destroy(self, step: &'static str) -> Result<(), Mlx5Error> {
        // SAFETY: the object lives, and ends here.
        let destroyed =
            status(unsafe { (self.context.functions.mlx5dv_devx_obj_destroy)(self.raw.as_ptr()) });
        destroyed.map_err(system(step))
    }
}

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

impl Umem {
    /// Registers memory for queues.
    ///
    /// # Safety
    /// The memory stays until the umem is ended.
    pub unsafe fn register(context: &Arc<Context>, memory: &Memory) -> Result<Self, Mlx5Error> {
        /// Any page size of 4,096 bytes or more.
        const PAGES: u64 = !0xfff;
        let functions = &context.functions;
        memory.register(
            "register the memory of queues",
            |dmabuf| {
                let mut attributes = bindings::UmemAttributes {
                    // Within the file.
                    addr: ptr::without_provenance_mut(dmabuf.offset as usize),
                    size: memory.bytes as usize,
                    access: values::LOCAL_WRITE,
                    pgsz_bitmap: PAGES,
                    comp_mask: values::UMEM_DMABUF,
                    dmabuf_fd: dmabuf.file.as_raw_fd(),
                };
                // SAFETY: the attributes are only read; the caller answers for the memory.
                let raw = unsafe {
                    (functions.mlx5dv_devx_umem_reg_ex)(context.raw(), &raw mut attributes)
                };
                Self::new(context, raw)
            },
            || {
                let bytes = memory.bytes as usize;
                // SAFETY: the caller answers for the memory.
                let raw = unsafe {
                    let register = functions.mlx5dv_devx_umem_reg;
                    register(context.raw(), memory.pointer(), bytes, values::LOCAL_WRITE)
                };
                Self::new(context, raw)
            },
        )
    }

    /// Its number, for commands.
    pub fn number(&self) -> u32 {
        // SAFETY: the umem lives, and its number does not change.
        unsafe { self.raw.as_ref() }.umem_id
    }
}

/// A UAR. It has to be ended; dropped, it stays.
#[derive(Debug)]
pub(super) struct Uar {
    context: Arc<Context>,
    raw: NonNull<bindings::Uar>,
}

// SAFETY: it is not tied to a thread.
unsafe impl Send for Uar {}
// SAFETY: libmlx5 changes nothing in it.
unsafe impl Sync for Uar {}

impl Uar {
    /// A page that is not cached and nobody else's, where rdma-core gives one, else a BlueFlame register.
    pub fn allocate(context: &Arc<Context>) -> Result<Self, Mlx5Error> {
        let allocate = |kind| {
            // SAFETY: the device is open.
            let raw = unsafe { (context.functions.mlx5dv_devx_alloc_uar)(context.raw(), kind) };
            NonNull::new(raw).ok_or_else(last)
        };
        let raw = allocate(bindings::UAR_DEDICATED).or_else(|_| allocate(values::UAR_BLUEFLAME));
        let raw = raw.map_err(system("allocate a page of doorbells (UAR)"))?;
        let context = context.clone();
        Ok(Self { context, raw })
    }

    /// The card's number of the page.
    pub fn page(&self) -> u32 {
        // SAFETY: the UAR lives, and its numbers do not change.
        unsafe { self.raw.as_ref() }.page_id
    }

    /// Address of the doorbell register.
    pub fn register(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.raw.as_ref() }.reg_addr.expose_provenance() as u64
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
