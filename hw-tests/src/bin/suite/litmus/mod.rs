//! Proves on the machine, as far as looking can, that no doorbell, record or CQE overtakes what it tells of: blocks
//! that post through the library and wait, against a block on another multiprocessor that plays the NIC and reads, as
//! soon as it sees a new index, the WQE that it names (`docs/memory-model.md`).
//!
//! Every doorbell policy, with a record and without; who calls together; fences for the GPU and for the system; rings,
//! record, doorbell, CQE and data each in the GPU's memory or in pinned memory of the host. Every other launch makes
//! noise beside it: stores all over the GPU's memory.
//!
//! Twins show that the test can fail: what is stored in the wrong order must be found. What is stored without a fence
//! may be found, and the test says whether it was: where it was not, the zeros of that place prove the less.

mod cases;
mod rig;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use self::cases::{Case, Twin};
use self::rig::{Counts, Rig};
use warpbell_host_init::Kernels;
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::run::{Progress, run};
use warpbell_hw_tests::say::say;

/// How much is looked at.
struct Effort {
    /// Queues at the same time.
    pairs: u32,
    /// Of a launch.
    posting: Duration,
    /// Times that the NIC finds something new, of each case at least.
    looks: u64,
    /// In which it must have found them.
    limit: Duration,
}

impl Effort {
    fn here() -> Self {
        match here::kernels() {
            // Two cores will do.
            Kernels::Cpu(_) => Self {
                pairs: 1,
                posting: Duration::from_millis(2),
                looks: 300,
                limit: Duration::from_secs(240),
            },
            // A multiprocessor for each block, of 132.
            Kernels::Gpu(_) => Self {
                pairs: 40,
                posting: Duration::from_millis(15),
                looks: 200_000,
                limit: here::patient(Duration::from_secs(60)),
            },
        }
    }

    /// Launches a case until there were enough looks, in silence and with noise in turns.
    fn look(&self, case: &Case) -> Counts {
        let rig = Rig::new(case, self.pairs).expect("memory");
        let mut counts = Counts::default();
        let began = Instant::now();
        for launch in 0.. {
            let noise = launch % 2 == 1;
            counts += rig.run(case, self.posting, noise);
            if counts.looks >= self.looks && noise {
                break;
            }
            assert!(
                began.elapsed() < self.limit,
                "{case}: {counts}, of {} wanted",
                self.looks
            );
        }
        counts
    }
}

fn look(progress: &Progress) {
    let effort = Effort::here();
    // All of them before the verdict: where one is wrong, the others tell more.
    let mut wrong = Vec::new();
    let mut all = Counts::default();
    for (way, cases) in cases::of_the_library() {
        progress.step(way.as_str());
        for case in cases {
            let counts = effort.look(&case);
            say(format_args!("         {case}: {counts}"));
            if counts.faults() > 0 {
                wrong.push(format!("{way}: {case}: {counts}"));
            }
            all += counts;
        }
    }
    say(format_args!("         the library, all together: {all}"));
    for (twin, name, cases) in cases::twins() {
        progress.step(name);
        for case in cases {
            let counts = effort.look(&case);
            say(format_args!("         {case}: {counts}"));
            let right = match twin {
                Twin::Sound => counts.faults() == 0,
                Twin::Faulty => counts.faults() > 0,
                Twin::Unfenced => true,
            };
            if !right {
                wrong.push(format!("{name}: {case}: {counts}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), look)
}
