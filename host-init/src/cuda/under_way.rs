//! What comes behind kernels under way on a GPU, and what waits until none is.

use super::driver::check;
use super::gpu::Handle;
use super::sys::{self, CUevent, CUgraphExec, CUresult};
use super::{Gpu, GpuError};

/// What there is for kernels under way, and of those that were.
#[derive(Default)]
pub(super) struct UnderWay {
    /// Events that nobody waits for.
    idle: Vec<Handle<CUevent>>,
    /// How many others there are: each comes behind a kernel that nobody has seen end.
    taken: usize,
    /// Those among them that nobody will ask for.
    left: Vec<Handle<CUevent>>,
    /// Graphs that have ended.
    graphs: Vec<Handle<CUgraphExec>>,
}

impl UnderWay {
    /// Takes back the events that nobody asks for, whose kernels have ended.
    fn see_ends(&mut self) {
        let ended = self.left.extract_if(.., |event| {
            // SAFETY: the event lives until the process ends.
            unsafe { sys::cuEventQuery(event.0) == CUresult::CUDA_SUCCESS }
        });
        let idle = self.idle.len();
        self.idle.extend(ended);
        self.taken -= self.idle.len() - idle;
    }
}

impl Gpu {
    /// An event to come behind a kernel, taken before that starts, to be given back with
    /// [`give_event`](Self::give_event) once it has ended.
    pub(super) fn take_event(self) -> Result<Handle<CUevent>, GpuError> {
        let mut under_way = self.under_way();
        let event = match under_way.idle.pop() {
            Some(event) => event,
            None => event()?,
        };
        under_way.taken += 1;
        Ok(event)
    }

    /// Gives an event back that nobody waits for.
    pub(super) fn give_event(self, event: Handle<CUevent>) {
        let mut under_way = self.under_way();
        under_way.idle.push(event);
        under_way.taken -= 1;
        self.destroy_graphs(&mut under_way);
    }

    /// Gives an event back whose kernel may still run, and nobody will ask for its end.
    pub(super) fn leave_event(self, event: Handle<CUevent>) {
        let mut under_way = self.under_way();
        under_way.left.push(event);
        self.destroy_graphs(&mut under_way);
    }

    /// Gives a graph back that has ended.
    pub(super) fn give_graph(self, graph: Handle<CUgraphExec>) {
        let mut under_way = self.under_way();
        under_way.graphs.push(graph);
        self.destroy_graphs(&mut under_way);
    }

    /// Destroys graphs that have ended if no kernel is under way: the driver waits in that call until the GPU runs
    /// nothing, which is never beside a NIC's engine. Nobody starts a kernel through this crate meanwhile, who would need
    /// an event. Kernels that others start, as cust's `launch!` does, are not counted: the driver waits for them, and with
    /// it whoever needs an event.
    fn destroy_graphs(self, under_way: &mut UnderWay) {
        under_way.see_ends();
        if under_way.taken > 0 || self.is_lost() {
            return;
        }
        for graph in under_way.graphs.drain(..) {
            let destroyed = self.enter().and_then(|()| {
                // SAFETY: no launch of it is under way, and nobody else has it.
                check("cuGraphExecDestroy", unsafe {
                    sys::cuGraphExecDestroy(graph.0)
                })
            });
            if let Err(error) = destroyed {
                tracing::error!(%error, "a graph that has ended stays");
            }
        }
    }
}

/// An event of the calling thread's context, which takes no time.
fn event() -> Result<Handle<CUevent>, GpuError> {
    let mut event = std::ptr::null_mut();
    let flags = sys::CU_EVENT_DISABLE_TIMING;
    // SAFETY: the driver writes one pointer.
    check("cuEventCreate", unsafe {
        sys::cuEventCreate(&raw mut event, flags)
    })?;
    Ok(Handle(event))
}
