//! Flushes of inbound writes, for kernels that use [`crate::inbound`].

use crate::inbound::FlushHandle;
use warpbell::wqe::{Local, Remote};

use warpbell_host_init::{
    Access, Buffer, Error, MemoryRegion, Placement, QueuePair, QueuePairConfig,
};

/// Whether a [`Flush`] does something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flushing {
    /// Where the memory needs it: a card's writes into the memory of a GPU that reports
    /// [no order](warpbell_host_init::cuda::InboundOrder::Unordered) of its own.
    #[default]
    AsReported,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Flushing {
    fn is_needed(self, region: &MemoryRegion) -> bool {
        match (self, region.placement()) {
            (Self::Always, _) => true,
            (Self::Never, _) => false,
            // Software writes as threads do, which order their stores.
            (Self::AsReported, Placement::Gpu(gpu)) => {
                region.domain().device().is_card() && gpu.inbound_order().needs_flush()
            }
            // Host memory shows a card's writes in their order.
            (Self::AsReported, Placement::Host | Placement::Pinned(_)) => false,
        }
    }
}

/// Bytes that a flush reads.
const READ: u32 = 1;

/// A queue pair that is connected with itself, through which a kernel has the NIC read what peers have written.
///
/// ```
/// use warpbell::{Deadline, Exclusive, Thread};
/// use warpbell_patterns::inbound::host::{Flush, Flushing};
/// use warpbell_host_init::soft::SoftOptions;
/// use warpbell_host_init::{Access, Buffer, Device, Error, Nic};
///
/// fn main() -> Result<(), Error> {
///     let device = Device::open(Nic::Soft(SoftOptions::default()))?;
///     let domain = device.protection_domain()?;
///     let target = domain.register(Buffer::new(4096)?, Access::all())?;
///     let flush = Flush::new(&target, Flushing::Always)?;
///
///     // What a kernel does, once it has seen a flag behind the data in `target`:
///     let mut flush = flush.handle()?.open::<Exclusive>().expect("a good handle");
///     flush.flush(Deadline::after_ms(5000)).expect("a READ that is done");
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Flush {
    pair: QueuePair,
    into: MemoryRegion,
    from: Remote,
    needed: bool,
}

impl Flush {
    /// Makes a flush of what peers write to a region: it reads the region's last byte.
    ///
    /// # Errors
    /// [`Error::NotReadable`] for a region without `REMOTE_READ`, unless the flush is not needed; those of
    /// [`ProtectionDomain::queue_pair`](warpbell_host_init::ProtectionDomain::queue_pair) and of a registration.
    pub fn new(region: &MemoryRegion, flushing: Flushing) -> Result<Self, Error> {
        let needed = flushing.is_needed(region);
        let access = region.access();
        if needed && !access.contains(Access::REMOTE_READ) {
            return Err(Error::NotReadable { access });
        }
        let domain = region.domain();
        let mut pair = domain.queue_pair(&QueuePairConfig {
            send_depth: 4,
            receive_depth: 0,
            access: Access::REMOTE_READ,
            max_message: READ,
            placement: Some(region.placement()),
            ..QueuePairConfig::default()
        })?;
        let itself = pair.endpoint();
        pair.connect(&itself)?;
        let into = Buffer::placed(region.placement(), 64)?;
        Ok(Self {
            pair,
            into: domain.register(into, Access::LOCAL_WRITE)?,
            from: region.remote().at(region.len() - 1, READ)?,
            needed,
        })
    }

    /// Whether it does something.
    pub fn is_needed(&self) -> bool {
        self.needed
    }

    /// What kernels get. It borrows the flush, which therefore outlives them.
    ///
    /// # Errors
    /// As [`QueuePair::send_queue`].
    pub fn handle(&self) -> Result<FlushHandle<'_>, Error> {
        let into: Local = self.into.local(0, READ)?;
        Ok(FlushHandle::new(
            self.pair.send_queue()?,
            into,
            self.from,
            self.needed,
        ))
    }

    /// Its queue pair, for a watchdog.
    pub fn queue_pair(&self) -> &QueuePair {
        &self.pair
    }
}
