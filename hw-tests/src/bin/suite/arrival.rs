//! Shows by which ways a reader may know that data is there: all of them where memory shows writes in the NIC's order;
//! where it does not, those that rely on no order and those that flush. The others must be seen to fail there.

use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warpbell::{Slice, Word64};
use warpbell_host_init::{Buffer, Grid, Kernels, MemoryRegion, Placement, QueuePairConfig, Shared};
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::post::ample;
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::say::say;
use warpbell_hw_tests::sides::{ALL_ACCESS, Pair, Side, Sides};
use warpbell_kernels::inbound::{Inbound, Way};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::place::Place;
use warpbell_kernels::suite::ScopeKind;
use warpbell_patterns::inbound::host::{Flush, Flushing};
use warpbell_soft_hca::shell::LateStores;

/// The longest message.
const LONGEST: u32 = 65_536;
/// Ways that go by the order of writes.
const ORDERED: [Way; 4] = [Way::Send, Way::WriteImmediate, Way::Flag, Way::Counter];
/// Ways whose data tell for themselves.
const TELLING: [Way; 3] = [Way::Words, Way::Lines, Way::Checksums];
/// Lengths, and how many messages of each.
const LENGTHS: [(u32, u32); 6] = [
    (1, 40),
    (8, 40),
    (61, 40),
    (1000, 24),
    (4096, 24),
    (LONGEST, 4),
];

/// Times that all lengths are tried until something stale is seen.
const ATTEMPTS: u32 = 10;

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        progress.step("writes in their order: every way holds");
        let stage = Stage::new(Sides::chosen());
        for way in Way::ALL {
            for scope in ScopeKind::ALL {
                stage.expect_none(way, scope, false);
            }
        }
        for (way, scope) in ORDERED
            .into_iter()
            .zip([ScopeKind::ALL, ScopeKind::ALL].concat())
        {
            stage.expect_none(way, scope, true);
        }
        drop(stage);
        // Long enough for a reader to come in time, even one that has to wait for a core.
        progress.step_with_orders(
            "64 bytes at a time late: no order holds, a flush does",
            || {
                let stage = Stage::new(Sides::unlucky(late(64, Duration::from_millis(2))));
                for way in ORDERED {
                    stage.expect_some(way);
                    for scope in ScopeKind::ALL {
                        stage.expect_none(way, scope, true);
                    }
                }
            },
        );
        progress.step_with_orders("the same: data that tell for themselves hold", || {
            let stage = Stage::new(Sides::unlucky(late(64, Duration::from_micros(100))));
            for way in TELLING {
                for scope in ScopeKind::ALL {
                    stage.expect_none(way, scope, false);
                }
            }
        });
        progress.step_with_orders(
            "8 bytes at a time late: a line's number does not hold, a flush does",
            || {
                let stage = Stage::new(Sides::unlucky(late(8, Duration::from_millis(1))));
                stage.expect_some(Way::Lines);
                for way in ORDERED {
                    stage.expect_none(way, ScopeKind::Thread, true);
                }
            },
        );
        progress.step_with_orders("the same: numbers in words and checksums hold", || {
            let stage = Stage::new(Sides::unlucky(late(8, Duration::from_micros(100))));
            for way in [Way::Words, Way::Checksums] {
                for scope in ScopeKind::ALL {
                    stage.expect_none(way, scope, false);
                }
            }
        });
    })
}

/// Pieces of so many bytes, of which three in ten are late, for so long at most.
fn late(piece: u64, longest: Duration) -> LateStores {
    LateStores {
        seed: piece,
        piece,
        late: 300,
        longest_ns: longest.as_nanos() as u64,
    }
}

/// Two ends, and memory at both.
struct Stage {
    pair: Pair,
    sides: Sides,
    source: MemoryRegion,
    target: MemoryRegion,
    /// Where an addition brings what it found, and the word behind the data.
    words: [MemoryRegion; 2],
    flushes: [Flush; 2],
}

fn region(side: &Side, bytes: u32) -> MemoryRegion {
    let region = side.domain.allocate(bytes as usize, ALL_ACCESS);
    region.expect("a region")
}

impl Stage {
    fn new(sides: Sides) -> Self {
        let most = Way::ALL.map(|way| way.bytes(LONGEST)).into_iter().max();
        let bytes = most.expect("some ways");
        let target = region(&sides.theirs, bytes);
        Self {
            pair: sides.pair(&QueuePairConfig {
                send_depth: 16,
                receive_depth: 4,
                ..QueuePairConfig::default()
            }),
            source: region(&sides.ours, bytes),
            words: [region(&sides.ours, 8), region(&sides.theirs, 8)],
            flushes: [Flushing::Never, Flushing::Always]
                .map(|flushing| Flush::new(&target, flushing).expect("a flush")),
            target,
            sides,
        }
    }

    /// Fails the test if any message of any length is stale.
    fn expect_none(&self, way: Way, scope: ScopeKind, flush: bool) {
        for (bytes, rounds) in LENGTHS {
            let stale = self.stale(way, scope, flush, bytes, rounds);
            assert_eq!(
                stale, 0,
                "{way:?}, {scope:?}, flush {flush}, {bytes} bytes: stale of {rounds}"
            );
        }
    }

    /// Fails the test unless some messages are stale. A reader may be slow a few times in a row.
    fn expect_some(&self, way: Way) {
        let mut stale = 0;
        for _ in 0..ATTEMPTS {
            for (bytes, rounds) in LENGTHS {
                stale += self.stale(way, ScopeKind::Thread, false, bytes, rounds);
            }
            if stale > 0 {
                break;
            }
        }
        say(format_args!(
            "         {way:?} alone: {stale} messages stale"
        ));
        assert!(stale > 0, "{way:?}: nothing stale was seen");
    }

    /// Sends messages; gives how many were stale when they were read.
    fn stale(&self, way: Way, scope: ScopeKind, flush: bool, bytes: u32, rounds: u32) -> u64 {
        let kernels = here::kernels();
        let [found, signal] = &self.words;
        signal.write(0, &[0; 8]).expect("inside");
        let own = match kernels {
            Kernels::Cpu(_) => Placement::Host,
            Kernels::Gpu(module) => Placement::Gpu(module.gpu()),
        };
        let between = Buffer::placed(own, 24).expect("memory");
        let words =
            |count| Shared::slice(kernels.placement(), count, |_| Word64::new(0)).expect("memory");
        let (samples, stale) = (words(rounds as usize), words(1));
        let outcome = Shared::new(kernels.placement(), Outcome::new());
        let outcome = outcome.expect("memory");
        // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
        let place = |words: *mut u8, bytes| unsafe { Place::new(words.cast(), bytes as u64 / 8) };
        let place_of = |region: &MemoryRegion| place(region.as_ptr(), region.len());
        let sent = way.bytes(bytes);
        let kernel = Inbound {
            way,
            scope,
            settled: false,
            reach: self.sides.theirs.device().fence_reach(),
            send: self.pair.ours.send_queue().expect("a send queue"),
            receive: self.pair.theirs.receive_queue().expect("a receive queue"),
            flush: self.flushes[usize::from(flush)].handle().expect("a queue"),
            source: self.source.local(0, sent).expect("inside"),
            source_words: place_of(&self.source),
            target: self.target.remote().at(0, sent).expect("inside"),
            buffer: self.target.local(0, sent).expect("inside"),
            target_words: place_of(&self.target),
            signal: signal.remote().at(0, 8).expect("inside"),
            signal_word: place_of(signal),
            found: found.local(0, 8).expect("inside"),
            between: place(between.as_ptr(), between.len()),
            bytes,
            rounds,
            warm_up: 0,
            limit_us: ample().as_micros() as u64,
            samples: Slice::new(&samples),
            stale: Slice::new(&stale),
            outcome: &outcome,
        };
        let threads = match scope {
            ScopeKind::Thread => 1,
            ScopeKind::Warp => 32,
            ScopeKind::Block => 96,
        };
        here::launch(kernels, Grid::new(2, threads), &kernel);
        let what = format!("{way:?}, {scope:?}, flush {flush}, {bytes} bytes");
        assert_eq!(outcome.result(), Ok(()), "{what}");
        stale[0].load(Ordering::Relaxed)
    }
}
