//! ComP-Net's host half: a PE's queues in a proxy's hands, and its part of the symmetric heap.

mod error;

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::Error;
use crate::cpnet::{CpnetHandle, Pe, Symmetric};
use crate::proxy::host::{ProxiedQueue, Proxy};
use warpbell::wqe::Remote;
use warpbell::{QueueError, SendQueueHandle, Slice};
#[cfg(feature = "ranks")]
use warpbell_host_init::World;
use warpbell_host_init::{
    Access, Error as StartError, MemoryRegion, ProtectionDomain, QueuePair, QueuePairConfig, Shared,
};

pub use error::CpnetError;

/// The most work-groups of a PE: as many as fill the GPU in ComP-Net's slides.
pub const MAX_GROUPS: usize = 4096;
/// The most PEs of a job.
pub const MAX_PES: usize = 1024;

/// Allocations begin at multiples of this many bytes, a word.
const ALIGNMENT: usize = size_of::<u64>();

/// How ComP-Net is set up. Change what matters, take the rest from `default()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpnetConfig {
    /// Bytes of the symmetric heap at each PE.
    pub heap_bytes: usize,
    /// How the queue pairs are made. They lie where a proxy reaches them, and have no receive queue, whatever stands
    /// there.
    pub queue_pair: QueuePairConfig,
}

impl Default for CpnetConfig {
    /// A heap of 1 MiB, and queues of 128 blocks.
    fn default() -> Self {
        Self {
            heap_bytes: 1 << 20,
            queue_pair: QueuePairConfig::default(),
        }
    }
}

impl CpnetConfig {
    fn queue_pair(&self, domain: &ProtectionDomain) -> QueuePairConfig {
        let config = self.queue_pair;
        QueuePairConfig {
            receive_depth: 0,
            access: config.access | Access::REMOTE_WRITE,
            placement: Some(config.placement_in(domain).of_host()),
            ..config
        }
    }
}

/// One PE: its part of the symmetric heap, and a queue of each work-group to each PE, to itself too.
///
/// All PEs make the same calls in the same order.
///
/// ```
/// use warpbell_host_init::Node;
/// use warpbell_patterns::Error;
/// use warpbell_patterns::cpnet::host::{CpnetConfig, cpnet_init_all, cpnet_shmalloc};
/// use warpbell_patterns::proxy::host::Proxy;
///
/// fn main() -> Result<(), Error> {
///     let proxy = Proxy::start(1)?;
///     let groups = 4;
///     let domains = Node::cpu().domains(2)?;
///     let pes = cpnet_init_all(&proxy, &domains, groups, &CpnetConfig::default())?;
///     for cpnet in &pes {
///         let wg_buffer = cpnet_shmalloc(cpnet, groups)?;
///         // For the kernels of this PE:
///         let parameters = (cpnet.handle(), wg_buffer);
///         # let _ = parameters;
///     }
///     Ok(())
/// }
/// ```
pub struct Cpnet {
    pe: Pe,
    /// At `group * pes + pe`.
    queues: Vec<ProxiedQueue>,
    /// What `queues` are to kernels; read when a work-group opens one.
    handles: Shared<[SendQueueHandle<'static>]>,
    /// Where each PE's heap begins.
    heaps: Shared<[Remote]>,
    heap: MemoryRegion,
    /// Bytes of it that are taken.
    taken: AtomicUsize,
    /// The other ends of this PE's queues to itself.
    _far_ends: Vec<QueuePair>,
    /// Behind the queue pairs, which end before their device does.
    #[cfg(feature = "ranks")]
    world: Option<World>,
}

/// Sets up a PE for each domain, all in this process, with queues for so many work-groups each.
///
/// # Errors
/// [`CpnetError::Number`]; those of [`ProtectionDomain::connected`], [`ProtectionDomain::allocate`] and
/// [`Proxy::serve`].
pub fn cpnet_init_all(
    proxy: &Proxy,
    domains: &[ProtectionDomain],
    groups: usize,
    config: &CpnetConfig,
) -> Result<Vec<Cpnet>, Error> {
    check(domains.len(), groups)?;
    let mut parts = domains
        .iter()
        .map(|domain| Part::new(domain, domains.len(), groups, config))
        .collect::<Result<Vec<_>, Error>>()?;
    for group in 0..groups {
        for own in 0..domains.len() {
            parts[own].connect_to_self(group, own, config)?;
            for other in own + 1..domains.len() {
                let queue_pair = config.queue_pair(&domains[own]);
                let (ours, theirs) = domains[own].connected(&domains[other], &queue_pair)?;
                parts[own].put(group, other, ours);
                parts[other].put(group, own, theirs);
            }
        }
    }
    let heaps: Vec<_> = parts.iter().map(Part::heap).collect();
    (0..)
        .zip(parts)
        .map(|(pe, part)| part.serve(proxy, pe, &heaps))
        .collect()
}

/// Sets up this process's PE, whose number is its rank, with queues for so many work-groups.
///
/// # Errors
/// As [`cpnet_init_all`]; those of [`World::connect`] and [`World::exchange`].
#[cfg(feature = "ranks")]
pub fn cpnet_init(
    proxy: &Proxy,
    mut world: World,
    groups: usize,
    config: &CpnetConfig,
) -> Result<Cpnet, Error> {
    use crate::gaspi::host::told;
    use warpbell::wqe::RemoteKey;

    let (own, pes) = (world.rank() as usize, world.size() as usize);
    let made = check(pes, groups).map_err(Error::from);
    let made = made.and_then(|()| Part::new(world.domain(), pes, groups, config));
    let mut part = told(&mut world, made)?;
    for group in 0..groups {
        let queue_pair = config.queue_pair(world.domain());
        let others = world.others();
        for (other, pair) in world.connect(others, &queue_pair)? {
            part.put(group, other as usize, pair);
        }
        let connected = part.connect_to_self(group, own, config);
        told(&mut world, connected)?;
    }
    let Remote { address, key } = part.heap();
    let heaps: Vec<(u64, u32)> = world.exchange(&(address, key.0))?;
    let heap = |(address, key)| Remote {
        address,
        key: RemoteKey(key),
    };
    let heaps: Vec<_> = heaps.into_iter().map(heap).collect();
    let served = part.serve(proxy, own as Pe, &heaps);
    let mut cpnet = told(&mut world, served)?;
    // No rank puts before all have come so far.
    world.barrier()?;
    cpnet.world = Some(world);
    Ok(cpnet)
}

/// Takes bytes of the symmetric heap, all zero at first: `cpnet_shmalloc`. They have the same offset at all PEs if all
/// have made the same calls before. They are given back with the heap.
///
/// # Errors
/// [`CpnetError::Empty`], [`CpnetError::HeapFull`].
pub fn cpnet_shmalloc(cpnet: &Cpnet, bytes: usize) -> Result<Symmetric<'_>, Error> {
    if bytes == 0 {
        return Err(CpnetError::Empty.into());
    }
    let len = cpnet.heap.len();
    let end = |offset: usize| {
        let end = offset.checked_add(bytes.checked_next_multiple_of(ALIGNMENT)?)?;
        (end <= len).then_some(end)
    };
    // Relaxed, because it orders no other memory.
    let taken = &cpnet.taken;
    let offset = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end);
    let offset = offset.map_err(|taken| CpnetError::HeapFull {
        bytes,
        left: len - taken,
    })?;
    let words = bytes.div_ceil(ALIGNMENT) as u64;
    let words = cpnet.heap.words()?.part((offset / ALIGNMENT) as u64, words);
    let words = words.expect("just taken, inside the heap");
    Ok(Symmetric::new(words, offset as u64, bytes as u64))
}

impl Cpnet {
    /// What the kernels of this PE get. It borrows the PE, which therefore outlives them.
    pub fn handle(&self) -> CpnetHandle<'_> {
        let queues = Slice::new(&self.handles[..]);
        let heaps = Slice::new(&self.heaps[..]);
        CpnetHandle::new(self.pe, queues, heaps)
    }

    /// The number of this PE (`cpnet_handle->pe`).
    pub fn pe(&self) -> Pe {
        self.pe
    }

    /// Copies bytes of this PE's part of an allocation out, from its beginning.
    ///
    /// # Errors
    /// As [`MemoryRegion::read`], for bytes outside of the allocation too.
    pub fn read(&self, from: Symmetric<'_>, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.heap.read(place(from, into.len())?, into)?)
    }

    /// Copies bytes into this PE's part of an allocation, from its beginning.
    ///
    /// # Errors
    /// As [`MemoryRegion::write`], for bytes outside of the allocation too.
    pub fn write(&self, to: Symmetric<'_>, from: &[u8]) -> Result<(), Error> {
        Ok(self.heap.write(place(to, from.len())?, from)?)
    }

    /// Its queues, at `group * pes + pe`: what the proxy has done for each.
    pub fn queues(&self) -> &[ProxiedQueue] {
        &self.queues
    }

    /// The first error of a queue of this PE.
    pub fn first_error(&self) -> Option<QueueError> {
        self.queues.iter().find_map(ProxiedQueue::first_error)
    }

    /// The ranks of the job, for a PE that [`cpnet_init`] has set up.
    #[cfg(feature = "ranks")]
    pub fn world(&mut self) -> Option<&mut World> {
        self.world.as_mut()
    }
}

impl fmt::Debug for Cpnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cpnet")
            .field("pe", &self.pe)
            .field("pes", &self.heaps.len())
            .field("queues", &self.queues.len())
            .finish_non_exhaustive()
    }
}

/// Where so many bytes of an allocation begin in the heap.
fn place(of: Symmetric<'_>, bytes: usize) -> Result<usize, Error> {
    let len = of.bytes() as usize;
    match bytes <= len {
        true => Ok(of.offset() as usize),
        false => Err(StartError::OutOfRange {
            offset: 0,
            bytes,
            len,
        }
        .into()),
    }
}

/// Refuses numbers of PEs and work-groups.
fn check(pes: usize, groups: usize) -> Result<(), CpnetError> {
    for (what, value, limit) in [
        ("PEs of a job", pes, MAX_PES),
        ("work-groups of a PE", groups, MAX_GROUPS),
    ] {
        if value == 0 || value > limit {
            return Err(CpnetError::Number { what, value, limit });
        }
    }
    Ok(())
}

/// A PE that no proxy serves yet.
struct Part {
    domain: ProtectionDomain,
    pes: usize,
    /// At `group * pes + pe`.
    pairs: Vec<Option<QueuePair>>,
    far_ends: Vec<QueuePair>,
    heap: MemoryRegion,
}

impl Part {
    fn new(
        domain: &ProtectionDomain,
        pes: usize,
        groups: usize,
        config: &CpnetConfig,
    ) -> Result<Self, Error> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(Self {
            domain: domain.clone(),
            pes,
            pairs: (0..groups * pes).map(|_| None).collect(),
            far_ends: Vec::new(),
            heap: domain.allocate(config.heap_bytes, access)?,
        })
    }

    /// Where this PE's heap begins, for all PEs.
    fn heap(&self) -> Remote {
        Remote {
            address: self.heap.address(),
            key: self.heap.rkey(),
        }
    }

    /// Takes the queue pair of a work-group to a PE.
    fn put(&mut self, group: usize, pe: usize, pair: QueuePair) {
        self.pairs[group * self.pes + pe] = Some(pair);
    }

    fn connect_to_self(
        &mut self,
        group: usize,
        own: usize,
        config: &CpnetConfig,
    ) -> Result<(), Error> {
        let queue_pair = config.queue_pair(&self.domain);
        let (near, far) = self.domain.connected(&self.domain, &queue_pair)?;
        self.put(group, own, near);
        self.far_ends.push(far);
        Ok(())
    }

    /// Hands all queue pairs to a proxy. The heaps are those of all PEs.
    fn serve(self, proxy: &Proxy, pe: Pe, heaps: &[Remote]) -> Result<Cpnet, Error> {
        let kernels = self.heap.placement().of_host();
        let pairs = self.pairs.into_iter();
        let serve = |pair: Option<QueuePair>| proxy.serve(pair.expect("connected"), kernels);
        let queues = pairs.map(serve).collect::<Result<Vec<_>, Error>>()?;
        let handle = |place: usize| {
            let handle = queues[place].send_queue();
            // SAFETY: only the lifetime changes. The handle leaves the PE inside a `CpnetHandle` alone, which borrows
            // the PE, and with it the queue.
            unsafe { mem::transmute::<SendQueueHandle<'_>, SendQueueHandle<'static>>(handle) }
        };
        Ok(Cpnet {
            pe,
            handles: Shared::slice(kernels, queues.len(), handle)?,
            heaps: Shared::slice(kernels, heaps.len(), |pe| heaps[pe])?,
            queues,
            heap: self.heap,
            taken: AtomicUsize::new(0),
            _far_ends: self.far_ends,
            #[cfg(feature = "ranks")]
            world: None,
        })
    }
}
