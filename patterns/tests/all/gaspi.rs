//! GASPI's calls, with the test in the place of the NIC and of the other ranks.
#![cfg(not(any(loom, miri)))]

use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use warpbell::wqe::{Opcode, Syndrome};
use warpbell::{
    Block, BlockShared, Cause, Exclusive, GpuShared, Scope, Sharing, Thread, Warp, block,
};
use warpbell_cpu_grid::{Grid, Options, launch};
use warpbell_patterns::gaspi::{Error, GASPI_BLOCK, GASPI_TEST, Gaspi, Queue, Timeout};

use crate::common::program::{
    BYTES, LOCAL_ADDRESS, LOCAL_KEY, MAX_TRANSFER, NOTIFICATIONS, Program, notifications_of,
    segment_of,
};
use crate::common::{QPN, Rig};

/// What a WQE of three segments moves.
#[derive(Debug, PartialEq, Eq)]
struct Moved {
    opcode: Opcode,
    signalled: bool,
    remote: (u64, u32),
    /// Address, key and length; or the value.
    local: Result<(u64, u32, u32), u64>,
}

fn moved(rig: &Rig, place: usize) -> Moved {
    let word = |index| u64::from_be(rig.ring_word(place, index));
    let (index, opcode) = rig.control(place);
    assert_eq!(index as usize, place);
    let inline = word(4) >> 63 == 1;
    Moved {
        opcode,
        signalled: rig.signalled(place),
        remote: (word(2), (word(3) >> 32) as u32),
        local: match inline {
            false => Ok((word(5), word(4) as u32, (word(4) >> 32) as u32)),
            true => {
                assert_eq!(word(4) >> 32, 1 << 31 | 8, "eight bytes inline");
                let low = (word(4) as u32).to_be_bytes();
                let high = ((word(5) >> 32) as u32).to_be_bytes();
                Err(u64::from_le_bytes([low, high].concat().try_into().unwrap()))
            }
        },
    }
}

fn one<'p>(gaspi: &Gaspi<'p>) -> Queue<'p, Exclusive, Thread> {
    gaspi.queue(0, 1).unwrap()
}

#[test]
fn each_call_is_what_it_says() {
    let program = Program::new(3, 2, 4);
    let tables = program.tables();
    let gaspi = tables.handle().open().unwrap();
    assert_eq!((gaspi.proc_rank(), gaspi.proc_num()), (0, 3));
    assert_eq!((gaspi.queue_num(), gaspi.notification_num()), (2, 10));
    assert_eq!(gaspi.segment_ptr(0).unwrap() as u64, LOCAL_ADDRESS);
    assert_eq!(gaspi.segment_size(0, 2), Ok(BYTES + 128));
    let rank = 2;
    let mut queue = gaspi.queue::<Exclusive, Thread>(1, rank).unwrap();
    assert_eq!(queue.rank(), rank);
    queue.write(0, 8, 0, 16, 24, GASPI_TEST).unwrap();
    queue.read(0, 32, 0, 40, 48, GASPI_TEST).unwrap();
    queue.notify(0, 9, 0xabcd_ef01, GASPI_TEST).unwrap();
    queue
        .write_notify(0, 0, 0, 200, 128, 3, 5, GASPI_TEST)
        .unwrap();
    queue.notify(63, 2, 1, GASPI_TEST).unwrap();
    let theirs = segment_of(rank);
    let told_at = notifications_of(rank);
    let rig = &program.rigs[5];
    let bytes = |opcode, signalled, offset, from, length| Moved {
        opcode,
        signalled,
        remote: (theirs.address + offset, theirs.remote_key),
        local: Ok((LOCAL_ADDRESS + from, LOCAL_KEY, length)),
    };
    let told = |id: u64, value| Moved {
        opcode: Opcode::RDMA_WRITE,
        signalled: true,
        remote: (told_at.address + 8 * id, told_at.remote_key),
        local: Err(value),
    };
    assert_eq!(moved(rig, 0), bytes(Opcode::RDMA_WRITE, true, 16, 8, 24));
    assert_eq!(moved(rig, 1), bytes(Opcode::RDMA_READ, true, 40, 32, 48));
    assert_eq!(moved(rig, 2), told(9, 0xabcd_ef01));
    // The bytes first, because the notification says that they are there.
    assert_eq!(moved(rig, 3), bytes(Opcode::RDMA_WRITE, false, 200, 0, 128));
    assert_eq!(moved(rig, 4), told(3, 5));
    assert_eq!(moved(rig, 5), told(63 * 10 + 2, 1));
    assert_eq!((rig.producer_index(), rig.doorbell_index()), (6, Some(6)));
    let others = program.rigs.iter().enumerate().filter(|&(at, _)| at != 5);
    assert!(
        others
            .into_iter()
            .all(|(_, rig)| rig.doorbell_index().is_none())
    );
}

/// A bad argument, and what it is called.
type Refused = (
    Error,
    fn(&mut Queue<'_, Exclusive, Thread>) -> Result<(), Error>,
);

#[test]
fn bad_input_is_refused_by_name() {
    let program = Program::new(2, 1, 4);
    let tables = program.tables();
    let gaspi = tables.handle().open().unwrap();
    let unknown = |rank| Err(Error::InvalidRank { rank });
    assert_eq!(gaspi.queue::<Exclusive, Thread>(0, 2).map(drop), unknown(2));
    assert_eq!(
        gaspi.segment_size(0, u32::MAX),
        Err(Error::InvalidRank { rank: u32::MAX })
    );
    let queue = gaspi.queue::<Exclusive, Thread>(1, 1).map(drop);
    assert_eq!(queue, Err(Error::InvalidQueue { queue: 1 }));
    let own = gaspi.queue::<Exclusive, Thread>(0, 0).map(drop);
    assert_eq!(own, Err(Error::NotConnected { rank: 0 }));
    assert_eq!(
        gaspi.segment_ptr(2),
        Err(Error::InvalidSegment { segment: 2 })
    );

    let mut queue = one(&gaspi);
    assert_eq!(
        gaspi.queue::<Exclusive, Thread>(0, 1).map(drop),
        Err(Error::InUse)
    );
    let segment = |segment| Error::InvalidSegment { segment };
    let local = Error::InvalidLocalOffset { segment: 0 };
    let remote = Error::InvalidRemoteOffset { segment: 0 };
    let size = Error::InvalidSize {
        limit: MAX_TRANSFER,
    };
    let id = Error::InvalidNotification {
        notification: NOTIFICATIONS,
    };
    let value = Error::InvalidNotificationValue;
    let refused: [Refused; 23] = [
        (segment(2), |queue| queue.write(2, 0, 0, 0, 8, GASPI_TEST)),
        (segment(3), |queue| queue.write(3, 0, 0, 0, 8, GASPI_TEST)),
        (segment(1), |queue| queue.write(0, 0, 1, 0, 8, GASPI_TEST)),
        (segment(64), |queue| queue.write(0, 0, 64, 0, 8, GASPI_TEST)),
        (segment(u32::MAX), |queue| {
            queue.write(0, 0, u32::MAX, 0, 8, GASPI_TEST)
        }),
        (local, |queue| {
            queue.write(0, BYTES - 7, 0, 0, 8, GASPI_TEST)
        }),
        (local, |queue| queue.write(0, u64::MAX, 0, 0, 8, GASPI_TEST)),
        (remote, |queue| {
            queue.write(0, 0, 0, BYTES + 57, 8, GASPI_TEST)
        }),
        (remote, |queue| {
            queue.write(0, 0, 0, u64::MAX - 3, 8, GASPI_TEST)
        }),
        (size, |queue| queue.write(0, 0, 0, 0, 0, GASPI_TEST)),
        (size, |queue| queue.write(0, 0, 0, 0, 129, GASPI_TEST)),
        (size, |queue| {
            queue.write(0, 0, 0, 0, 1 << 32 | 8, GASPI_TEST)
        }),
        (local, |queue| queue.read(0, BYTES - 7, 0, 0, 8, GASPI_TEST)),
        (remote, |queue| {
            queue.read(0, 0, 0, BYTES + 57, 8, GASPI_TEST)
        }),
        (size, |queue| queue.read(0, 0, 0, 0, 0, GASPI_TEST)),
        (segment(1), |queue| queue.notify(1, 0, 1, GASPI_TEST)),
        (id, |queue| queue.notify(0, NOTIFICATIONS, 1, GASPI_TEST)),
        (value, |queue| queue.notify(0, 0, 0, GASPI_TEST)),
        (local, |queue| {
            queue.write_notify(0, BYTES, 0, 0, 1, 0, 1, GASPI_TEST)
        }),
        (remote, |queue| {
            queue.write_notify(0, 0, 0, BYTES + 64, 1, 0, 1, GASPI_TEST)
        }),
        (size, |queue| {
            queue.write_notify(0, 0, 0, 0, 129, 0, 1, GASPI_TEST)
        }),
        (id, |queue| {
            queue.write_notify(0, 0, 0, 0, 8, NOTIFICATIONS, 1, GASPI_TEST)
        }),
        (value, |queue| {
            queue.write_notify(0, 0, 0, 0, 8, 0, 0, GASPI_TEST)
        }),
    ];
    for (number, (error, call)) in refused.into_iter().enumerate() {
        assert_eq!(call(&mut queue), Err(error), "number {number}");
    }
    assert_eq!(
        program.rigs[1].doorbell_index(),
        None,
        "something was posted"
    );
    // The last bytes there are, and the longest transfer.
    queue
        .write(0, BYTES - 8, 0, BYTES + 56, 8, GASPI_TEST)
        .unwrap();
    queue.write(0, 0, 0, 0, 128, GASPI_TEST).unwrap();

    let wait = |begin, num| gaspi.notify_waitsome::<Thread>(0, begin, num, GASPI_TEST);
    let notification = |notification| Err(Error::InvalidNotification { notification });
    assert_eq!(wait(0, 11), notification(0));
    assert_eq!(wait(10, 1), notification(10));
    assert_eq!(wait(u32::MAX, 2), notification(u32::MAX));
    assert_eq!(wait(0, 10), Err(Error::Timeout));
    let reset = |segment, id| gaspi.notify_reset::<Thread>(segment, id);
    assert_eq!(reset(0, 10), notification(10));
    assert_eq!(reset(2, 0), Err(Error::InvalidSegment { segment: 2 }));
    let waited = gaspi.notify_waitsome::<Thread>(2, 0, 1, GASPI_TEST);
    assert_eq!(waited, Err(Error::InvalidSegment { segment: 2 }));
}

#[test]
fn a_handle_of_another_version_is_none() {
    let program = Program::new(2, 1, 4);
    let tables = program.tables();
    let handle = tables.handle();
    // Magic, version, size, and the reach of fences.
    for (byte, value) in [(0, 0), (4, 0xff), (6, 56), (20, 9)] {
        let mut other = handle;
        // SAFETY: these are bytes of numbers, of which any is a value.
        unsafe { (&raw mut other).cast::<u8>().add(byte).write(value) };
        assert_eq!(other.open().map(drop), Err(Error::Handle), "byte {byte}");
    }
    assert!(handle.open().is_ok());
}

#[test]
fn a_full_queue_says_so_and_goes_on() {
    let program = Program::new(2, 1, 2);
    let tables = program.tables();
    let gaspi = tables.handle().open().unwrap();
    let rig = &program.rigs[1];
    let mut queue = one(&gaspi);
    for _ in 0..3 {
        queue.notify(0, 0, 1, GASPI_TEST).unwrap();
    }
    // There is room for one of the two, and neither is posted.
    let both = queue.write_notify(0, 0, 0, 0, 8, 0, 1, Timeout::ms(1));
    assert_eq!(both, Err(Error::QueueFull));
    queue.notify(0, 0, 1, GASPI_TEST).unwrap();
    assert_eq!(queue.notify(0, 0, 1, GASPI_TEST), Err(Error::QueueFull));
    assert_eq!(queue.wait(GASPI_TEST), Err(Error::Timeout));
    assert_eq!(rig.producer_index(), 4);
    rig.complete(0, 1);
    queue.write_notify(0, 0, 0, 0, 8, 0, 1, GASPI_TEST).unwrap();
    rig.complete(1, 5);
    assert_eq!(queue.wait(GASPI_TEST), Ok(()));

    let shallow = Program::new(2, 1, 1);
    let tables = shallow.tables();
    let gaspi = tables.handle().open().unwrap();
    let both = one(&gaspi).write_notify(0, 0, 0, 0, 8, 0, 1, GASPI_TEST);
    assert_eq!(both, Err(Error::TooShallow));
}

/// Requests of one view, waited for by another.
fn waits_for_others<S: Sharing>() {
    let program = Program::new(3, 1, 4);
    let tables = program.tables();
    let gaspi = tables.handle().open().unwrap();
    for rank in [1, 2] {
        let mut queue = gaspi.queue::<S, Thread>(0, rank).unwrap();
        queue.notify(0, 0, 1, GASPI_TEST).unwrap();
        queue.write_notify(0, 0, 0, 0, 8, 0, 1, GASPI_TEST).unwrap();
    }
    assert_eq!(
        gaspi.wait::<S, Thread>(1, GASPI_TEST),
        Err(Error::InvalidQueue { queue: 1 })
    );
    assert_eq!(gaspi.wait::<S, Thread>(0, GASPI_TEST), Err(Error::Timeout));
    program.rigs[2].complete(0, 2);
    let mut queue = gaspi.queue::<S, Thread>(0, 2).unwrap();
    assert_eq!(queue.wait(GASPI_BLOCK), Ok(()));
    drop(queue);
    program.rigs[1].complete(0, 0);
    // The clock goes on with each look, so that blocking ends.
    assert_eq!(gaspi.wait::<S, Thread>(0, GASPI_BLOCK), Err(Error::Timeout));
    program.rigs[1].complete(1, 2);
    assert_eq!(gaspi.wait::<S, Thread>(0, GASPI_BLOCK), Ok(()));
}

#[test]
fn a_wait_covers_what_others_posted() {
    waits_for_others::<Exclusive>();
    waits_for_others::<GpuShared>();
}

#[test]
fn a_failed_queue_is_named() {
    let program = Program::new(3, 1, 4);
    let tables = program.tables();
    let gaspi = tables.handle().open().unwrap();
    let mut queue = one(&gaspi);
    queue.notify(0, 0, 1, GASPI_TEST).unwrap();
    program.rigs[1].fail(0, 0, Syndrome::REMOTE_ACCESS, 0x88);
    let failed = queue.wait(GASPI_BLOCK).unwrap_err();
    let Error::Failed(error) = failed else {
        panic!("{failed}");
    };
    let Cause::Completion(cause) = error.cause() else {
        panic!("{error}");
    };
    assert_eq!(
        (cause.syndrome, cause.qpn.get()),
        (Syndrome::REMOTE_ACCESS, QPN)
    );
    assert_eq!(queue.write(0, 0, 0, 0, 8, GASPI_TEST), Err(failed));
    drop(queue);
    assert_eq!(
        gaspi.queue::<Exclusive, Thread>(0, 1).map(drop),
        Err(failed)
    );
    assert_eq!(gaspi.wait::<Exclusive, Thread>(0, GASPI_TEST), Err(failed));
    // The other rank's part is as good as ever.
    let mut other = gaspi.queue::<Exclusive, Thread>(0, 2).unwrap();
    other.notify(0, 0, 1, GASPI_TEST).unwrap();
}

#[test]
fn the_first_notification_of_a_range_is_found_and_taken_once() {
    let program = Program::new(2, 1, 4);
    let tables = program.tables();
    let gaspi = tables.handle().open().unwrap();
    let wait = |begin, num| gaspi.notify_waitsome::<Thread>(0, begin, num, GASPI_TEST);
    let words = &program.words;
    for there in 0..1 << NOTIFICATIONS {
        for (id, word) in words[..10].iter().enumerate() {
            word.store(there >> id & 1, Ordering::Relaxed);
        }
        for begin in 0..NOTIFICATIONS {
            for num in 1..=NOTIFICATIONS - begin {
                let first = (begin..begin + num).find(|id| there >> id & 1 == 1);
                assert_eq!(wait(begin, num), first.ok_or(Error::Timeout));
            }
        }
    }
    assert_eq!(wait(10, 0), Ok(10));
    words[4].store(0xffff_fff0, Ordering::Relaxed);
    assert_eq!(gaspi.notify_reset::<Thread>(0, 4), Ok(0xffff_fff0));
    assert_eq!(gaspi.notify_reset::<Thread>(0, 4), Ok(0));
    words[639].store(9, Ordering::Relaxed);
    let other = gaspi.notify_waitsome::<Thread>(63, 5, 5, GASPI_TEST);
    assert_eq!(other, Ok(9));
    assert_eq!(gaspi.notify_reset::<Thread>(63, 9), Ok(9));
    let left: Vec<_> = words[..10]
        .iter()
        .map(|word| word.load(Ordering::Relaxed))
        .collect();
    assert_eq!(left, [1, 1, 1, 1, 0, 1, 1, 1, 1, 1]);
}

/// Every thread of the scope calls, one request is made, and all get its result.
fn scope<S: Sharing, C: Scope>(threads: u32, scopes: usize) {
    let program = Program::new(2, 1, 6);
    let tables = program.tables();
    program.words[6].store(42, Ordering::Relaxed);
    let results = Mutex::new(Vec::new());
    let dim = Grid::new(1, threads);
    let options = Options {
        deadline: Some(Duration::from_secs(300)),
        ..Options::default()
    };
    let kernel = || {
        let gaspi = tables.handle().open().unwrap();
        let mut queue = gaspi.queue::<S, C>(0, 1).unwrap();
        queue
            .write_notify(0, 0, 0, 0, 8, 1, 7, GASPI_BLOCK)
            .unwrap();
        let refused = queue.write(0, BYTES, 0, 0, 8, GASPI_BLOCK);
        assert_eq!(refused, Err(Error::InvalidLocalOffset { segment: 0 }));
        assert_eq!(queue.wait(GASPI_TEST), Err(Error::Timeout));
        block::sync();
        if block::thread_index() == 0 {
            program.rigs[1].complete(0, 2 * scopes as u16 - 1);
        }
        block::sync();
        queue.wait(GASPI_BLOCK).unwrap();
        let first = gaspi.notify_waitsome::<C>(0, 0, 10, GASPI_BLOCK);
        // All scopes have seen it before one takes it.
        block::sync();
        let value = gaspi.notify_reset::<C>(0, 6);
        let none = gaspi.notify_waitsome::<C>(0, 0, 10, GASPI_TEST);
        drop(queue);
        gaspi.wait::<S, C>(0, GASPI_BLOCK).unwrap();
        let mut results = results.lock().unwrap();
        results.push((first, none, value.unwrap()));
    };
    launch(dim, options, kernel).unwrap();
    let rig = &program.rigs[1];
    assert_eq!(rig.producer_index() as usize, 2 * scopes);
    let results = results.into_inner().unwrap();
    assert_eq!(results.len(), threads as usize);
    let values: u32 = results.iter().map(|result| result.2).sum();
    assert_eq!(
        values,
        42 * threads / scopes as u32,
        "all of one scope have it"
    );
    assert!(results.iter().all(|(first, ..)| *first == Ok(6)));
    assert!(
        results
            .iter()
            .all(|(_, none, _)| *none == Err(Error::Timeout))
    );
}

#[test]
fn a_scope_makes_one_request() {
    scope::<Exclusive, Thread>(1, 1);
    scope::<GpuShared, Thread>(4, 4);
    scope::<Exclusive, Warp>(32, 1);
    scope::<Exclusive, Warp>(13, 1);
    scope::<BlockShared, Warp>(96, 3);
    scope::<Exclusive, Block>(50, 1);
    scope::<GpuShared, Block>(64, 1);
}
