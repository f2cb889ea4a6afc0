//! The receiver's side, whoever drives its network.

use warpbell::SendQueueHandle;
use warpbell::wqe::Remote;
use warpbell_bench::run::memory::Memory;
use warpbell_host_init::{Grid, Launch, Node, QueuePair, Shared, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::daq::{DaqReceiver, PRIMITIVE_BYTES, daq_receiver};
use warpbell_paper_kernels::path::Path;

use super::{Case, WARP};
use crate::Error;
use crate::rig::{Driver, End};

/// The receiver of a case.
pub(super) struct Receiver<'r> {
    pub(super) case: &'r Case,
    pub(super) node: &'r Node,
    pub(super) end: &'r End,
    handles: Shared<[SendQueueHandle<'r>]>,
    /// The receive ring.
    pub(super) ring: Memory,
    /// Primitives that it sends.
    pub(super) primitives: Memory,
    pub(super) outcome: Shared<Outcome>,
}

impl<'r> Receiver<'r> {
    /// Prepares it at this end.
    pub(super) fn new(case: &'r Case, node: &'r Node, end: &'r End) -> Result<Self, Error> {
        Ok(Self {
            case,
            node,
            end,
            handles: end.handles(node)?,
            ring: end.memory(node, case.ring_bytes() as usize)?,
            primitives: end.memory(node, case.primitive_bytes() as usize)?,
            outcome: node.shared(Outcome::new())?,
        })
    }

    /// Takes events until the detector says that there is no more, where its primitives and signals begin there. The detector is
    /// a kernel beside it, or a rank of its own. Calls `ready` before the first event may come.
    pub(super) fn receive(
        &self,
        driver: Driver,
        there: [Remote; 2],
        detector: Option<Launch<'_>>,
        pairs: &[&QueuePair],
        ready: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = self
            .end
            .path_to(&self.handles, &self.primitives, there, PRIMITIVE_BYTES);
        match driver {
            Driver::Host => self.by_host(path, detector, pairs, ready),
            Driver::Kernel | Driver::Triggered | Driver::Proxy => {
                ready()?;
                self.by_kernel(path, detector, pairs)
            }
        }
    }

    fn by_kernel(
        &self,
        path: Path<'_>,
        detector: Option<Launch<'_>>,
        pairs: &[&QueuePair],
    ) -> Result<(), Error> {
        let receiver = DaqReceiver {
            path,
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            events: unsafe { self.ring.place() },
            slots: self.case.slots,
            at_least_ns: self.case.at_least_ns(),
            outcome: &self.outcome,
        };
        let grid = Grid::new(self.case.ways, WARP);
        let receiver = Launch::new(entry!(daq_receiver), grid, receiver);
        let both: Vec<_> = [receiver].into_iter().chain(detector).collect();
        Ok(self.node.run_for(&both, pairs, self.case.limit)?)
    }

    /// Whether nothing beside its memory was touched.
    pub(super) fn guarded(&self) -> bool {
        let all = [&self.ring, &self.primitives];
        all.iter().all(|memory| memory.check_guards().is_ok())
    }
}
