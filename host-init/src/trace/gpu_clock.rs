//! A GPU's clock, read by a thread that the host asks for the time.

use std::sync::atomic::Ordering;

use warpbell::{Entry, Word64};

use super::clock::{CpuClock, Reading};
use crate::cuda::{Module, Ptx};
use crate::{Error, Gpu, Grid, Launch, Placement, Shared};

/// The thread's kernel.
const PTX: &str = include_str!("clock.ptx");
/// Its name there.
const ENTRY: &str = "warpbell_clock";
/// How often it is asked. The quickest answer counts.
const QUESTIONS: u64 = 1000;
/// How long it waits for a question, in nanoseconds.
const LIMIT_NS: u64 = 2_000_000_000;
/// Looks at an answer between two looks at the kernel.
const LOOKS: u32 = 10_000;

/// The kernel's parameters.
#[repr(C)]
#[derive(Clone, Copy)]
struct Parameters {
    /// The address of `words`.
    words: u64,
    questions: u64,
    limit_ns: u64,
}

/// A kernel that tells a GPU's time, loaded.
#[derive(Debug)]
pub(super) struct GpuClock {
    module: Module,
    /// The number of the question, the time, the number of the answer.
    words: Shared<[Word64]>,
}

impl GpuClock {
    pub fn load(gpu: Gpu) -> Result<Self, Error> {
        // SAFETY: no entry there is named like a kernel's of a crate.
        let ptx = unsafe { Ptx::from_text(PTX) }?;
        Ok(Self {
            module: Module::load(gpu, &[ptx])?,
            words: Shared::slice(Placement::Pinned(gpu), 3, |_| Word64::new(0))?,
        })
    }

    /// The best of many readings.
    pub fn read(&self, host: &CpuClock) -> Result<Reading, Error> {
        /// What a CPU would run. It never does.
        fn nothing(_: Parameters) {}
        let [asked, time, answered] = &self.words[..] else {
            unreachable!("three words");
        };
        for word in [asked, time, answered] {
            word.store(0, Ordering::Relaxed);
        }
        let parameters = Parameters {
            words: self.words.as_ptr().expose_provenance() as u64,
            questions: QUESTIONS,
            limit_ns: LIMIT_NS,
        };
        // SAFETY: the entry takes these parameters, and writes the three words alone.
        let entry: Entry<fn(Parameters)> = unsafe { Entry::foreign(ENTRY, nothing) };
        let launch = Launch::new(entry, Grid::ONE_THREAD, parameters);
        let mut running = self.module.start(&launch)?;
        let mut best: Option<Reading> = None;
        'questions: for number in 1..=QUESTIONS {
            let before = host.now_ns();
            asked.store(number, Ordering::Release);
            let mut looks = 0;
            // The number before the time, which was stored first.
            while answered.load(Ordering::Acquire) != number {
                looks += 1;
                // It ends by itself if it hears nothing for long.
                if looks % LOOKS == 0 && running.has_ended()? {
                    break 'questions;
                }
            }
            let reading = Reading::between(before, time.load(Ordering::Relaxed), host.now_ns());
            if best.is_none_or(|best| reading.error_ns < best.error_ns) {
                best = Some(reading);
            }
        }
        while !running.has_ended()? {
            std::hint::spin_loop();
        }
        best.ok_or(Error::NoClock)
    }
}
