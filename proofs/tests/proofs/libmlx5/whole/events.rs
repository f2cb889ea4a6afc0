//! What `ibv_get_async_event` tells.

use std::time::Duration;

use warpbell_proofs::facts::Facts;
use warpbell_proofs::verbs::{Options, Verbs, values};

use super::{Buffer, PATIENCE, connect, expect, pair, request};
use crate::libmlx5::device::with_engine;

/// ETIMEDOUT on Linux.
const NONE: Result<u32, i32> = Err(110);
/// How long an event is waited for that must not come.
const QUIET: Duration = Duration::from_millis(200);

#[track_caller]
fn told(values: &Facts, verbs: &mut Verbs, kind: &str) {
    assert_eq!(verbs.event(PATIENCE), Ok(values[kind] as u32), "{kind}");
}

/// Writes with a key that the other end has not given.
fn write_wrongly(values: &Facts, pair: &mut [Verbs; 2], source: &Buffer, target: &Buffer) {
    let list = [source.segment()];
    let mut wrong = request(values, "IBV_WR_RDMA_WRITE", &list, Some(target));
    wrong.remote_key ^= 0x100;
    pair[0].post(&wrong).unwrap();
    expect(values, &mut pair[0], "IBV_WC_REM_ACCESS_ERR");
}

/// Whose request was wrong learns it from a completion, the other end from an event; as often as it happens.
#[test]
fn a_peer_without_rights() {
    with_engine("libmlx5::whole::events::a_peer_without_rights", || {
        let values = values();
        let mut pair = pair();
        let source = Buffer::of(&mut pair[0], &[7; 64]);
        let target = Buffer::of(&mut pair[1], &[0; 64]);
        for _ in 0..2 {
            write_wrongly(&values, &mut pair, &source, &target);
            told(&values, &mut pair[1], "IBV_EVENT_QP_ACCESS_ERR");
            for verbs in &mut pair {
                assert_eq!(verbs.event(QUIET), NONE);
                verbs.stop(false).unwrap();
            }
            connect(&mut pair);
        }
        // An error by command is none to tell.
        pair[1].stop(true).unwrap();
        assert_eq!(pair[1].event(QUIET), NONE);
        for verbs in pair {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}

/// More completions than their queue has room for: it is dead, and the queue pair with it.
#[test]
fn an_overrun() {
    with_engine("libmlx5::whole::events::an_overrun", || {
        let values = values();
        let options = Options {
            unconnected: true,
            completions: 1,
            ..Options::default()
        };
        let mut pair = [0, 1].map(|_| Verbs::open(&options).unwrap());
        connect(&mut pair);
        let source = Buffer::of(&mut pair[0], &[7; 64]);
        let target = Buffer::of(&mut pair[1], &[0; 64]);
        let list = [source.segment()];
        for _ in 0..options.sends {
            let post = request(&values, "IBV_WR_RDMA_WRITE", &list, Some(&target));
            pair[0].post(&post).unwrap();
        }
        told(&values, &mut pair[0], "IBV_EVENT_CQ_ERR");
        told(&values, &mut pair[0], "IBV_EVENT_QP_FATAL");
        assert_eq!(pair[0].event(QUIET), NONE);
        for verbs in pair {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}

/// `ibv_destroy_qp` waits until what was read has been acknowledged: not for what nobody has read.
#[test]
fn nobody_reads() {
    with_engine("libmlx5::whole::events::nobody_reads", || {
        let values = values();
        let mut pair = pair();
        let source = Buffer::of(&mut pair[0], &[7; 64]);
        let target = Buffer::of(&mut pair[1], &[0; 64]);
        write_wrongly(&values, &mut pair, &source, &target);
        std::thread::sleep(QUIET);
        // Ends a process that waits for ever.
        // SAFETY: the call has no requirements.
        unsafe { libc::alarm(PATIENCE.as_secs() as u32) };
        for verbs in pair {
            assert_eq!(verbs.close(), Ok(()));
        }
    });
}
