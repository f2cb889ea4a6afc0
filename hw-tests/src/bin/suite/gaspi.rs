//! Proves that GASPI's calls do what the specification says, from a thread, a warp and a block, in every sharing:
//! bytes arrive where they should and nowhere else, before their notification; many ranks reach each other; bad
//! arguments are refused by name and change nothing; time-outs end calls; and of notifications for which several
//! blocks wait none is lost and none is taken twice.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use warpbell::Word64;
use warpbell::{SendDoorbell, Slice};
use warpbell_cpu_grid::Grid;
use warpbell_host_init::{Kernels, QueuePairConfig, Shared};
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::post::{ALONE, ample, endings, expect_done};
use warpbell_hw_tests::run::run;
use warpbell_hw_tests::sides::Sides;
use warpbell_kernels::outcome::Failure;
use warpbell_kernels::suite::{
    Caught, Ending, GASPI_MODES, GaspiCall, GaspiCalls, GaspiStorm, GaspiVerb, Mode, Output,
    Returned, ScopeKind, SharingKind,
};
use warpbell_patterns::gaspi::Error;
use warpbell_patterns::gaspi::host::{Gaspi, GaspiConfig};

/// Bytes of segment 0 in most steps.
const BYTES: usize = 1024;
const NOTIFICATIONS: u32 = 64;
const MAX_MESSAGE: u32 = 4096;

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        for kernels in here::in_each_order() {
            progress.step(format!("every call in every scope, {kernels}"));
            for mode in GASPI_MODES {
                every_call(kernels, mode);
            }
        }
        progress.step("bad input");
        bad_input();
        beyond_the_segment();
        progress.step("time-outs");
        time_outs();
        progress.step("many ranks");
        many_ranks();
        for kernels in here::in_each_order() {
            progress.step(format!("several blocks wait for one range, {kernels}"));
            for storm in storms(kernels) {
                storm.rage(kernels);
            }
        }
    })
}

fn config() -> GaspiConfig {
    GaspiConfig {
        queues: 2,
        segments: 4,
        notifications: NOTIFICATIONS,
        block_limit: ample(),
        queue_pair: QueuePairConfig {
            send_depth: 64,
            max_message: MAX_MESSAGE,
            ..QueuePairConfig::default()
        },
        ..GaspiConfig::default()
    }
}

/// A grid of one scope.
const fn one_scope(mode: Mode) -> Grid {
    match mode.scope {
        ScopeKind::Thread => Grid::new(1, 1),
        ScopeKind::Warp => Grid::new(1, 32),
        ScopeKind::Block => Grid::new(1, 77),
    }
}

/// Makes calls with the kernel of a rank; every thread gets the same results, which it gives.
fn call(
    kernels: Kernels,
    gaspi: &Gaspi,
    rank: u32,
    mode: Mode,
    calls: &[GaspiCall],
) -> Vec<Result<u32, Error>> {
    let grid = one_scope(mode);
    let threads = grid.threads_per_block as usize;
    let rows = here::shared(calls.len(), |row| calls[row]);
    let mut returned = here::values(threads * calls.len(), Returned::default());
    let kernel = GaspiCalls {
        gaspi: gaspi.handle(rank).expect("a rank"),
        mode,
        calls: Slice::new(&rows),
        returned: Output::new(&mut returned),
    };
    here::launch(kernels, grid, &kernel);
    let result = |word: &Returned| word.result().expect("a call that was made");
    let results: Vec<_> = returned.iter().map(result).collect();
    let (first, rest) = results.split_at(calls.len());
    for (thread, others) in rest.chunks(calls.len()).enumerate() {
        assert_eq!(others, first, "{mode:?}, thread {}", thread + 1);
    }
    first.to_vec()
}

fn to(rank: u32, verb: GaspiVerb) -> GaspiCall {
    GaspiCall {
        rank,
        ..GaspiCall::new(verb)
    }
}

/// Bytes that tell where they come from.
fn pattern(rank: u32, segment: u32) -> Vec<u8> {
    let seed = rank as usize * 7 + segment as usize * 3;
    (0..BYTES)
        .map(|at| (at * 13 + at / 256 + seed) as u8)
        .collect()
}

fn fill(gaspi: &Gaspi) {
    for rank in 0..gaspi.ranks() {
        for segment in [0, 2] {
            let bytes = pattern(rank, segment);
            gaspi
                .segment_write(rank, segment, 0, &bytes)
                .expect("bytes");
        }
    }
}

#[track_caller]
fn check(gaspi: &Gaspi, rank: u32, segment: u32, expected: &[u8], what: &str) {
    let mut found = vec![0; expected.len()];
    gaspi
        .segment_read(rank, segment, 0, &mut found)
        .expect("bytes");
    let wrong = (0..expected.len()).find(|&at| found[at] != expected[at]);
    assert_eq!(wrong, None, "{what}: rank {rank}, segment {segment}, byte");
}

fn program(sides: &Sides, count: usize, config: &GaspiConfig) -> Gaspi {
    let mut gaspi = Gaspi::new(&sides.domains(count), config).expect("a program");
    for segment in [0, 2] {
        gaspi.segment_create(segment, BYTES).expect("a segment");
    }
    fill(&gaspi);
    gaspi
}

/// One rank writes, reads and notifies; the other one waits and takes.
fn every_call(kernels: Kernels, mode: Mode) {
    let what = format!("{kernels}, {mode:?}");
    let sides = Sides::chosen();
    let mut config = config();
    if mode.sharing == SharingKind::BlockShared && sides.ours.device().limits().without_record {
        config.queue_pair.send_doorbell = SendDoorbell::WithoutRecord;
    }
    let gaspi = program(&sides, 2, &config);
    let results = call(
        kernels,
        &gaspi,
        0,
        mode,
        &[
            GaspiCall {
                offset_local: 10,
                offset_remote: 20,
                size: 30,
                ..to(1, GaspiVerb::Write)
            },
            GaspiCall {
                segment_local: 2,
                segment_remote: 0,
                offset_local: 500,
                offset_remote: BYTES as u64 - 256,
                size: 256,
                ..to(1, GaspiVerb::Read)
            },
            to(1, GaspiVerb::Wait),
            GaspiCall {
                queue: 1,
                segment_remote: 2,
                offset_remote: 64,
                size: 64,
                notification: 5,
                value: u32::MAX,
                ..to(1, GaspiVerb::WriteNotify)
            },
            GaspiCall {
                queue: 1,
                segment_remote: 2,
                notification: NOTIFICATIONS - 1,
                value: 1,
                ..to(1, GaspiVerb::Notify)
            },
            GaspiCall {
                queue: 1,
                ..to(1, GaspiVerb::WaitAll)
            },
        ],
    );
    assert_eq!(results, [Ok(0); 6], "{what}");
    let own = pattern(0, 0);
    let mut first = pattern(1, 0);
    first[20..50].copy_from_slice(&own[10..40]);
    let mut second = pattern(1, 2);
    second[64..128].copy_from_slice(&own[..64]);
    let mut read = pattern(0, 2);
    read[500..756].copy_from_slice(&pattern(1, 0)[BYTES - 256..]);
    check(&gaspi, 0, 0, &own, &what);
    check(&gaspi, 0, 2, &read, &what);
    check(&gaspi, 1, 0, &first, &what);
    check(&gaspi, 1, 2, &second, &what);

    let range = |begin, value| GaspiCall {
        segment_remote: 2,
        notification: begin,
        value,
        timeout: 1,
        ..GaspiCall::new(GaspiVerb::NotifyWaitsome)
    };
    let take = |notification| GaspiCall {
        segment_remote: 2,
        notification,
        ..GaspiCall::new(GaspiVerb::NotifyReset)
    };
    let other_segment = GaspiCall {
        segment_remote: 0,
        ..range(0, NOTIFICATIONS)
    };
    let calls = [
        range(0, NOTIFICATIONS),
        range(6, NOTIFICATIONS - 6),
        range(6, NOTIFICATIONS - 7),
        range(0, 0),
        other_segment,
        take(5),
        take(5),
        range(0, NOTIFICATIONS),
        take(NOTIFICATIONS - 1),
        range(0, NOTIFICATIONS),
    ];
    let expected = [
        Ok(5),
        Ok(NOTIFICATIONS - 1),
        Err(Error::Timeout),
        Ok(0),
        Err(Error::Timeout),
        Ok(u32::MAX),
        Ok(0),
        Ok(NOTIFICATIONS - 1),
        Ok(1),
        Err(Error::Timeout),
    ];
    assert_eq!(call(kernels, &gaspi, 1, mode, &calls), expected, "{what}");
}

/// In every mode, bad arguments are refused by name and change nothing. The queue stays usable.
fn bad_input() {
    let sides = Sides::chosen();
    let gaspi = program(&sides, 2, &config());
    let good = GaspiCall {
        size: 8,
        value: 1,
        ..to(1, GaspiVerb::WriteNotify)
    };
    let local = Error::InvalidLocalOffset { segment: 0 };
    let remote = Error::InvalidRemoteOffset { segment: 2 };
    let size = Error::InvalidSize { limit: MAX_MESSAGE };
    let id = Error::InvalidNotification {
        notification: NOTIFICATIONS,
    };
    let segment = |segment| Error::InvalidSegment { segment };
    type Spoil = fn(&mut GaspiCall);
    let spoilt: [(Error, Spoil); 16] = [
        (Error::InvalidRank { rank: 2 }, |call| call.rank = 2),
        (Error::NotConnected { rank: 0 }, |call| call.rank = 0),
        (Error::InvalidQueue { queue: 2 }, |call| call.queue = 2),
        (segment(1), |call| call.segment_local = 1),
        (segment(3), |call| call.segment_remote = 3),
        (segment(4), |call| call.segment_remote = 4),
        (segment(u32::MAX), |call| call.segment_local = u32::MAX),
        (local, |call| call.offset_local = BYTES as u64 - 7),
        (local, |call| call.offset_local = u64::MAX),
        (remote, |call| {
            call.segment_remote = 2;
            call.offset_remote = BYTES as u64 - 7;
        }),
        (local, |call| call.size = BYTES as u64 + 1),
        (size, |call| call.size = 0),
        (size, |call| call.size = u64::from(MAX_MESSAGE) + 1),
        (id, |call| call.notification = NOTIFICATIONS),
        (Error::InvalidNotificationValue, |call| call.value = 0),
        (local, |call| {
            call.verb = GaspiVerb::Read;
            call.offset_local = BYTES as u64;
        }),
    ];
    let mut calls: Vec<_> = spoilt
        .into_iter()
        .map(|(error, spoil)| {
            let mut call = good;
            spoil(&mut call);
            (error, call)
        })
        .collect();
    let range = |begin, value| GaspiCall {
        notification: begin,
        value,
        timeout: 0,
        ..GaspiCall::new(GaspiVerb::NotifyWaitsome)
    };
    calls.push((id, range(NOTIFICATIONS, 1)));
    let whole = Error::InvalidNotification { notification: 0 };
    calls.push((whole, range(0, NOTIFICATIONS + 1)));
    let reset = GaspiCall {
        notification: NOTIFICATIONS,
        ..GaspiCall::new(GaspiVerb::NotifyReset)
    };
    calls.push((id, reset));
    let wait = GaspiCall {
        queue: 7,
        ..GaspiCall::new(GaspiVerb::WaitAll)
    };
    calls.push((Error::InvalidQueue { queue: 7 }, wait));
    let (expected, calls): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
    for mode in GASPI_MODES {
        let found = call(here::kernels(), &gaspi, 0, mode, &calls);
        for (number, (found, expected)) in found.into_iter().zip(&expected).enumerate() {
            assert_eq!(found, Err(*expected), "{mode:?}, call {number}");
        }
    }
    for pair in gaspi.queue_pairs(0).expect("a rank") {
        assert_eq!(pair.send_progress().published, 0, "something was posted");
    }
    let results = call(
        here::kernels(),
        &gaspi,
        0,
        ALONE,
        &[good, to(1, GaspiVerb::Wait)],
    );
    assert_eq!(results, [Ok(0); 2], "after all refusals");
    let mut written = pattern(1, 0);
    written[..8].copy_from_slice(&pattern(0, 0)[..8]);
    check(&gaspi, 1, 0, &written, "bad input");
    check(&gaspi, 1, 2, &pattern(1, 2), "bad input");
    let found = call(
        here::kernels(),
        &gaspi,
        1,
        ALONE,
        &[range(0, NOTIFICATIONS)],
    );
    assert_eq!(found, [Ok(0)], "only the good call's");
}

/// Calls end when their time is up, and not before. A call that never ends is the watchdog's.
fn time_outs() {
    let limit = Duration::from_millis(30);
    let config = GaspiConfig {
        block_limit: limit,
        ..config()
    };
    let sides = Sides::chosen();
    let gaspi = program(&sides, 2, &config);
    let waitsome = |timeout| GaspiCall {
        value: NOTIFICATIONS,
        timeout,
        ..GaspiCall::new(GaspiVerb::NotifyWaitsome)
    };
    for mode in GASPI_MODES {
        for (timeout, least) in [(0, 0), (20, 20), (GaspiCall::BLOCK, 30)] {
            let started = Instant::now();
            let found = call(here::kernels(), &gaspi, 1, mode, &[waitsome(timeout)]);
            let took = started.elapsed();
            assert_eq!(found, [Err(Error::Timeout)], "{mode:?}");
            let least = Duration::from_millis(least);
            // The GPU's timer may step by a microsecond.
            assert!(
                took + Duration::from_micros(2) >= least,
                "{mode:?}: {took:?}"
            );
        }
    }
}

/// Every rank writes to every rank through one queue and waits once for all.
fn many_ranks() {
    // With 20 queue pairs, of which a NIC among the kernels has room for 32.
    const RANKS: u32 = 4;
    let config = GaspiConfig {
        queues: 1,
        to_self: true,
        ..config()
    };
    let sides = Sides::chosen();
    let gaspi = program(&sides, RANKS as usize, &config);
    for rank in 0..RANKS {
        let mode = GASPI_MODES[rank as usize % 3];
        let mut calls: Vec<_> = (0..RANKS)
            .map(|other| GaspiCall {
                segment_remote: 2,
                offset_local: 8 * u64::from(other),
                offset_remote: 32 * u64::from(rank),
                size: 32,
                notification: rank,
                value: 100 + rank,
                ..to(other, GaspiVerb::WriteNotify)
            })
            .collect();
        calls.push(GaspiCall::new(GaspiVerb::WaitAll));
        let results = call(here::kernels(), &gaspi, rank, mode, &calls);
        assert_eq!(results, vec![Ok(0); calls.len()], "rank {rank}");
    }
    for rank in 0..RANKS {
        let mut expected = pattern(rank, 2);
        for from in 0..RANKS as usize {
            let sent = &pattern(from as u32, 0)[8 * rank as usize..][..32];
            expected[32 * from..][..32].copy_from_slice(sent);
        }
        check(&gaspi, rank, 2, &expected, "many ranks");
        check(&gaspi, rank, 0, &pattern(rank, 0), "many ranks");
        let calls: Vec<_> = (0..RANKS)
            .map(|from| GaspiCall {
                segment_remote: 2,
                notification: from,
                ..GaspiCall::new(GaspiVerb::NotifyReset)
            })
            .collect();
        let expected: Vec<_> = (0..RANKS).map(|from| Ok(100 + from)).collect();
        let found = call(here::kernels(), &gaspi, rank, ALONE, &calls);
        assert_eq!(found, expected, "rank {rank}");
    }
}

/// Blocks of one rank against blocks of the other.
struct Storm {
    mode: Mode,
    grid: Grid,
    slots: u32,
    rounds: u32,
}

fn storms(kernels: Kernels) -> Vec<Storm> {
    let storm = |sharing, scope, grid, slots, rounds| Storm {
        mode: Mode { sharing, scope },
        grid,
        slots,
        rounds,
    };
    use ScopeKind::{Block, Thread, Warp};
    use SharingKind::{BlockShared, Exclusive, GpuShared};
    let mut storms = vec![
        storm(Exclusive, Thread, Grid::new(4, 1), 3, 300),
        storm(GpuShared, Thread, Grid::new(4, 1), 2, 200),
        storm(Exclusive, Warp, Grid::new(3, 32), 2, 60),
        storm(BlockShared, Block, Grid::new(3, 50), 4, 60),
    ];
    if let Kernels::Gpu(_) = kernels {
        // A block for each multiprocessor of an H200, and a million notifications; fewer where each look at one
        // crosses a bus.
        let rounds = if here::takes_orders() { 76 } else { 7576 };
        storms.push(storm(GpuShared, Thread, Grid::new(132, 1), 4, rounds));
    }
    storms
}

/// Kernels that are told of more than their segment has room for touch none of it.
fn beyond_the_segment() {
    let kernels = here::kernels();
    let sides = Sides::chosen();
    let config = GaspiConfig {
        segments: 1,
        ..config()
    };
    let mut gaspi = Gaspi::new(&sides.domains(2), &config).expect("a program");
    gaspi.segment_create(0, 64).expect("a segment");
    for slots in [9, u32::MAX] {
        let storm = Storm {
            mode: GASPI_MODES[0],
            grid: Grid::ONE_THREAD,
            slots,
            rounds: 1,
        };
        let (_, ended) = storm.run(kernels, &gaspi, 1);
        let beyond = Failure::Outside {
            wanted: slots.into(),
            there: 8,
        };
        assert_eq!(ended, [0, 1].map(|_| vec![Ending::Failed(beyond)]));
    }
    for rank in 0..2 {
        let mut found = [0xaa; 64];
        gaspi.segment_read(rank, 0, 0, &mut found).expect("bytes");
        assert_eq!(found, [0; 64]);
    }
}

impl Storm {
    /// Both ranks' kernels at the same time: what each of their threads has caught, and how it has ended.
    fn run(
        &self,
        kernels: Kernels,
        gaspi: &Gaspi,
        patience: u32,
    ) -> ([Shared<[Caught]>; 2], [Vec<Ending>; 2]) {
        let grid = self.grid;
        let count = (grid.blocks * grid.threads_per_block) as usize;
        let done = here::shared(grid.blocks as usize, |_| Word64::new(0));
        let mut caught = [0, 1].map(|_| here::values(count, Caught::default()));
        let mut ended = [0, 1].map(|_| here::outcomes(count));
        let [sender_caught, receiver_caught] = &mut caught;
        let [sender_ended, receiver_ended] = &mut ended;
        let side = |rank, caught, ended| GaspiStorm {
            gaspi: gaspi.handle(rank).expect("a rank"),
            mode: self.mode,
            slots: self.slots,
            rounds: self.rounds,
            patience,
            done: Slice::new(&done),
            caught: Output::new(caught),
            endings: Output::new(ended),
        };
        let sender = side(0, sender_caught, sender_ended);
        let receiver = side(1, receiver_caught, receiver_ended);
        here::launch_both(kernels, (grid, &sender), (grid, &receiver));
        (caught, ended.map(|ended| endings(&ended)))
    }

    fn rage(&self, kernels: Kernels) {
        let Self {
            mode,
            grid,
            slots,
            rounds,
        } = *self;
        let what = format!("{kernels}, {mode:?}, {grid:?}");
        let (blocks, threads) = (grid.blocks, grid.threads_per_block);
        let config = GaspiConfig {
            // Each block has its own, or all have one.
            queues: match mode.sharing {
                SharingKind::GpuShared => 1,
                _ => blocks,
            },
            notifications: blocks * slots,
            segments: 1,
            ..config()
        };
        let sides = Sides::chosen();
        let mut gaspi = Gaspi::new(&sides.domains(2), &config).expect("a program");
        let words = blocks * slots * threads;
        gaspi
            .segment_create(0, 8 * words as usize)
            .expect("a segment");

        let (caught, ended) = self.run(kernels, &gaspi, 10_000);
        for (side, ended) in ["senders", "receivers"].iter().zip(&ended) {
            expect_done(ended, &format!("{what}: {side}"));
        }
        let sum = (0..blocks)
            .flat_map(|block| (0..rounds).map(move |round| (block, round)))
            .map(|(block, round)| Caught::mixed(GaspiStorm::value(block, round, rounds)))
            .fold(0, u64::wrapping_add);
        for (side, caught) in ["answers", "notifications"].iter().zip(&caught) {
            let wrong: u64 = caught.iter().map(|caught| caught.wrong).sum();
            assert_eq!(wrong, 0, "{what}: wrong {side}");
            // All threads of a block have caught the same.
            let (mut total, mut found) = (0, 0u64);
            for (block, all) in caught.chunks(threads as usize).enumerate() {
                let same = all.iter().all(|one| *one == all[0]);
                assert!(same, "{what}: block {block}");
                total += all[0].count;
                found = found.wrapping_add(all[0].sum);
            }
            assert_eq!(total, u64::from(blocks * rounds), "{what}: {side}");
            assert_eq!(found, sum, "{what}: {side} lost and doubled");
        }
    }
}
