//! What a post costs on a CPU, by `warpbell` and by libmlx5: `cargo xtask bench libmlx5`.
//!
//! Each way has a queue pair that libmlx5 made, with its ring, its doorbell record and its send register, on a device
//! without an engine; the benchmark plays the NIC between the timed stretches.
//!
//! The register is plain memory here. libmlx5 takes it for a write-combining one, and puts a store fence before and
//! after each doorbell, which is most of what its post costs on x86; `warpbell` on a CPU rings a software HCA in
//! plain memory, and needs none. So ours is measured a second time with the two fences that a card's register
//! would want.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(rdma_core_headers)]
    return posting::main();
    #[cfg(not(rdma_core_headers))]
    {
        eprintln!("libibverbs-dev is not installed");
        ExitCode::FAILURE
    }
}

#[cfg(rdma_core_headers)]
mod posting {
    use std::process::ExitCode;

    use clap::Parser;
    use mlx5_wqe::{
        Completion, DoorbellRecord, Local, LocalKey, Opcode, QpNumber, Remote, RemoteKey,
        Requester, Wqe, WqeIndex,
    };
    use warpbell::{Exclusive, SendQueue, Thread};
    use warpbell_bench::Error;
    use warpbell_bench::samples::{Goal, Row, SampleArguments, Samples, timed};
    use warpbell_proofs::ours::Ours;
    use warpbell_proofs::preloaded::{self, Engine};
    use warpbell_proofs::verbs::{Options, Segment, Verbs};

    /// Posts between two completions.
    const GROUP: u32 = 256;
    /// Such laps in a repetition.
    const LAPS: u32 = 512;
    /// What is written, and where to.
    const LOCAL: Local = Local {
        address: 0x10_0000,
        length: 64,
        key: LocalKey(0x1000),
    };
    const REMOTE: Remote = Remote {
        address: 0x20_0000,
        key: RemoteKey(0x2000),
    };

    /// Measures a signalled 64-byte write, posted by warpbell and by libmlx5.
    #[derive(Parser)]
    struct Arguments {
        #[command(flatten)]
        samples: SampleArguments,
        /// Cargo says so of itself
        #[arg(long, hide = true)]
        bench: bool,
    }

    pub fn main() -> ExitCode {
        let arguments = Arguments::parse();
        if preloaded::is_inside() {
            return match measure(&arguments.samples) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("{error}");
                    ExitCode::FAILURE
                }
            };
        }
        let ended = preloaded::again(Engine::Off)
            .and_then(|mut again| again.args(std::env::args_os().skip(1)).status());
        match ended {
            Ok(status) if status.success() => ExitCode::SUCCESS,
            Ok(_) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("cannot run with the device: {error}");
                ExitCode::FAILURE
            }
        }
    }

    fn open() -> Verbs {
        let options = Options {
            sends: 2 * GROUP,
            send_segments: 1,
            ..Options::default()
        };
        Verbs::open(&options).expect("the device opens")
    }

    /// Nanoseconds of a post: the median of the laps.
    fn repetition(mut lap: impl FnMut() -> f64) -> f64 {
        let mut times = Samples::default();
        for _ in 0..LAPS {
            times.push(lap());
        }
        times.median() * 1e9 / f64::from(GROUP)
    }

    /// libmlx5's way.
    struct Theirs {
        verbs: Verbs,
        extended: bool,
        posted: u32,
        consumed: u32,
    }

    impl Theirs {
        fn new(extended: bool) -> Self {
            Self {
                verbs: open(),
                extended,
                posted: 0,
                consumed: 0,
            }
        }

        fn lap(&mut self) -> f64 {
            let segment = Segment {
                address: LOCAL.address,
                length: LOCAL.length,
                key: LOCAL.key.0,
            };
            let remote = (REMOTE.address, REMOTE.key.0);
            let (posted, seconds) =
                timed(|| self.verbs.write_many(segment, remote, GROUP, self.extended));
            assert_eq!(posted, Ok(()));
            self.posted += GROUP;
            self.complete();
            seconds
        }

        /// The NIC's part: all that was posted is done.
        fn complete(&mut self) {
            let newest = self.posted.wrapping_sub(1) as u16;
            let qpn = QpNumber::from_low_bits(self.verbs.qpn());
            let done = Completion::Requester(Requester {
                qpn,
                wqe_index: WqeIndex(newest),
                opcode: Opcode::RDMA_WRITE,
                byte_count: 0,
            });
            let ring = self.verbs.completion_ring();
            let depth = ring.len() as u32;
            ring[(self.consumed % depth) as usize] = done.encode((self.consumed / depth) & 1 == 1);
            self.consumed += 1;
            assert!(matches!(self.verbs.poll(), Ok(Some(_))));
        }
    }

    /// Our way, on memory that libmlx5 made: nanoseconds of a lap. `fence` comes before and after each post.
    #[inline(always)]
    fn our_lap(
        ours: &Ours,
        queue: &mut SendQueue<'_, Exclusive, Thread>,
        posted: &mut u32,
        fence: impl Fn(),
    ) -> f64 {
        let (accepted, seconds) = timed(|| {
            let mut accepted = true;
            for number in 0..GROUP {
                let remote = Remote {
                    address: REMOTE.address + u64::from(number) * u64::from(LOCAL.length),
                    ..REMOTE
                };
                fence();
                accepted &= queue
                    .try_post(Wqe::write(LOCAL, remote).signalled())
                    .is_ok();
                fence();
            }
            accepted
        });
        assert!(accepted, "a full queue");
        *posted += GROUP;
        ours.complete(WqeIndex(posted.wrapping_sub(1) as u16));
        seconds
    }

    /// A store fence, where the processor has one.
    #[inline(always)]
    fn store_fence() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: every x86-64 has it.
        unsafe {
            core::arch::x86_64::_mm_sfence();
        }
        #[cfg(not(target_arch = "x86_64"))]
        std::sync::atomic::fence(std::sync::atomic::Ordering::Release);
    }

    fn measure(arguments: &SampleArguments) -> Result<(), Error> {
        let (mut plain, mut extended) = (Theirs::new(false), Theirs::new(true));
        let (ours, fenced) = (Ours::new(open()), Ours::new(open()));
        let mut queue = ours.handle().open().expect("an open queue");
        let mut fenced_queue = fenced.handle().open().expect("an open queue");
        let (mut posted, mut fenced_posted) = (0, 0);
        let mut samples = [0; 4].map(|_| Samples::default());
        for round in 0..=arguments.repetitions {
            let figures = [
                repetition(|| plain.lap()),
                repetition(|| extended.lap()),
                repetition(|| our_lap(&ours, &mut queue, &mut posted, || {})),
                repetition(|| our_lap(&fenced, &mut fenced_queue, &mut fenced_posted, store_fence)),
            ];
            // The first round warms up.
            if round > 0 {
                for (samples, figure) in samples.iter_mut().zip(figures) {
                    samples.push(figure);
                }
            }
        }
        // Each way did post, and told the card so.
        let laps = (arguments.repetitions + 1) * LAPS * GROUP;
        let told = [
            plain.verbs.record(),
            extended.verbs.record(),
            ours.record(),
            fenced.record(),
        ];
        let told = told.map(|[_, send]| send);
        assert_eq!(told, [DoorbellRecord::word(laps as u16); 4]);
        let [plain, extended, ours, fenced] = &samples;
        let ratio = |name, ours: &Samples, theirs: &Samples, goal| {
            Row::new(name, "x", &ours.over(theirs)).goal(Goal::AtMost(goal))
        };
        let rows = [
            Row::new("post: libmlx5, ibv_post_send", "ns", plain),
            Row::new("post: libmlx5, ibv_wr_*", "ns", extended),
            Row::new("post: warpbell, Exclusive, Thread", "ns", ours),
            Row::new("post: warpbell, and two store fences", "ns", fenced),
            ratio("post: warpbell / ibv_post_send", ours, plain, 0.7),
            ratio("post: warpbell / ibv_wr_*", ours, extended, 0.9),
            ratio("post: warpbell, fences / ibv_post_send", fenced, plain, 0.7),
            ratio("post: warpbell, fences / ibv_wr_*", fenced, extended, 0.9),
        ];
        let wanted = |row: &Row| arguments.filter.wants(&row.name);
        let rows = rows.into_iter().filter(wanted).collect();
        arguments.print(rows, "one core is used")
    }
}
