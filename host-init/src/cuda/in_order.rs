//! Steps of a stream: kernels, and words that the stream itself writes and waits for.

use super::driver::check;
use super::gpu::Handle;
use super::run::{launch, prepare_all};
use super::sys::{self, CUstream};
use super::{GpuError, Module, Watch};
use crate::stream::{HeldSend, Step};

impl Module {
    /// Runs steps in one stream, each behind the one before, and returns when all have ended. The host hands all of
    /// them to the driver at the beginning, and has no part in them afterwards.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`GpuError::NoStreamWords`]; nothing has run if a kernel cannot be prepared.
    /// [`GpuError::Hangs`] for a step that waits for a completion that does not come.
    pub fn run_in_order(&self, steps: &[Step<'_>], watch: &Watch<'_>) -> Result<(), GpuError> {
        let gpu = self.gpu();
        let launches = steps.iter().filter_map(|step| match step {
            Step::Run(launch) => Some((self, *launch)),
            Step::Send(_) | Step::Await(_) => None,
        });
        let kernels = prepare_all(launches)?;
        if kernels.len() < steps.len() {
            gpu.check_stream_words()?;
        }
        let name = kernels
            .last()
            .map_or("the stream", |kernel| kernel.launch.name());
        gpu.enter()?;
        let stream = gpu.take_stream()?;
        let end = gpu.take_event().inspect_err(|_| gpu.give_stream(stream))?;
        let mut kernels = kernels.into_iter();
        let begun = steps.iter().try_for_each(|step| match step {
            // SAFETY: what the launch borrows outlives this call, which returns only when all that is in the stream has
            // ended, or the GPU is lost and keeps all memory that it reaches.
            Step::Run(_) => kernels
                .next()
                .map_or(Ok(()), |kernel| unsafe { launch(kernel, stream) }),
            Step::Send(send) => publish(send, stream),
            Step::Await(send) => wait_for(send, stream),
        });
        // Also behind a step that could not begin, because those before it run.
        let running = self.up_to(end, name, stream)?.owning(stream);
        let ended = running.wait(watch);
        begun.and(ended)
    }
}

/// Writes record and doorbell in a stream.
///
/// Each write comes behind a fence of the system (no `CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER`). What kernels stored
/// before the record, or before the doorbell where there is no record, because the NIC fetches WQEs and data up to its
/// index. The record before the doorbell, because the NIC reads the record when the doorbell rings.
fn publish(send: &HeldSend<'_>, stream: Handle<CUstream>) -> Result<(), GpuError> {
    let flags = sys::CU_STREAM_WRITE_VALUE_DEFAULT;
    if let Some((address, word)) = send.record {
        // SAFETY: the record of a queue that the step borrows; its owner promised that only the stream publishes.
        let result = unsafe { sys::cuStreamWriteValue32_v2(stream.0, address, word, flags) };
        check("cuStreamWriteValue32", result)?;
    }
    let (address, word) = send.doorbell;
    // SAFETY: as above, of the doorbell.
    let result = unsafe { sys::cuStreamWriteValue64_v2(stream.0, address, word, flags) };
    check("cuStreamWriteValue64", result)
}

/// Waits in a stream until the CQE's owner bit is that of its lap.
fn wait_for(send: &HeldSend<'_>, stream: Handle<CUstream>) -> Result<(), GpuError> {
    let (value, flags) = match send.owner {
        true => (HeldSend::OWNER, sys::CU_STREAM_WAIT_VALUE_AND),
        // Until a bit is 0 that is 0 in this value: the owner's.
        false => (!HeldSend::OWNER, sys::CU_STREAM_WAIT_VALUE_NOR),
    };
    // SAFETY: the word of a ring of completions that the step borrows.
    let result = unsafe { sys::cuStreamWaitValue64_v2(stream.0, send.tail, value, flags) };
    check("cuStreamWaitValue64", result)
}
