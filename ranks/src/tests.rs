//! Ranks as threads, and strangers among them.

mod faults;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use zerocopy::IntoBytes;

use crate::address::{Attempt, connect};
use crate::link::Link;
use crate::message::{ToRank, ToRoot};
use crate::wire::{Challenge, Hello};
use crate::{
    Bootstrap, Collective, Config, FailedRank, Launcher, MOST_RANKS, RanksError, Rendezvous, Root,
    Secret,
};

const PATIENCE: Duration = Duration::from_secs(300);
const SOON: Duration = Duration::from_millis(50);

/// A loopback address that no other test has, in this process or another.
fn address() -> Root {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    let [a, b, c, d] = std::process::id().to_be_bytes();
    Root::Tcp {
        host: format!("127.{}.{c}.{d}", 64 + (a << 4 | b & 15) % 64),
        port: NEXT.fetch_add(1, Ordering::Relaxed),
    }
}

fn local_address(name: &str) -> Root {
    Root::Local(format!("warpbell-{name}-{}", std::process::id()))
}

fn of_listener(listener: &TcpListener) -> Root {
    let address = listener.local_addr().unwrap();
    Root::parse(&address.to_string()).unwrap()
}

pub(crate) fn config(address: &Root, rank: u32, size: u32) -> Config {
    Config {
        launcher: Launcher::Hand,
        rank,
        size,
        local_rank: None,
        root: address.clone(),
        bind: None,
        secret: Some(Secret::new("a long and random secret").unwrap()),
    }
}

fn join(address: &Root, rank: u32, size: u32) -> Rendezvous {
    Rendezvous::join(&config(address, rank, size), PATIENCE).unwrap()
}

/// What each of the ranks comes to, on a thread of its own.
fn run<T: Send>(size: u32, part: impl Fn(Rendezvous) -> T + Sync) -> Vec<T> {
    let address = address();
    on_threads(size, |rank| part(join(&address, rank, size)))
}

fn on_threads<T: Send>(size: u32, part: impl Fn(u32) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let part = &part;
        let threads: Vec<_> = (0..size)
            .map(|rank| scope.spawn(move || part(rank)))
            .collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

/// The rank with which a job's failure began, and why.
fn failure(error: RanksError) -> (u32, FailedRank) {
    match error {
        RanksError::Failed(failure) => (failure.rank, failure.why),
        other => panic!("{other}"),
    }
}

/// The failure that each rank meets, now and later.
fn failures(
    size: u32,
    part: impl Fn(&mut Rendezvous) -> Result<(), RanksError> + Sync,
) -> Vec<(u32, FailedRank)> {
    run(size, |mut ranks| {
        let first = failure(part(&mut ranks).unwrap_err());
        assert_eq!(failure(ranks.barrier(PATIENCE).unwrap_err()), first);
        first
    })
}

/// A rank that does by hand what it likes, once all have joined.
fn by_hand(address: &Root, rank: u32, size: u32) -> Link {
    let until = Instant::now() + PATIENCE;
    let mut link = Link::join(&config(address, rank, size), until, PATIENCE).unwrap();
    link.send(&allgather(), &[], until);
    assert_matches!(link.receive(until) => Ok((ToRank::Done, _)));
    link
}

fn allgather() -> ToRoot {
    ToRoot::Call(Collective::Allgather, PATIENCE)
}

/// What all ranks do together that are well.
fn exchange(mut ranks: Rendezvous) -> u32 {
    let (rank, size) = (ranks.rank() as usize, ranks.size() as usize);
    for round in 0..3 {
        let brought = |rank: usize| vec![rank as u8; (rank + round) % 5];
        let all = ranks.allgather(&brought(rank), PATIENCE).unwrap();
        assert!(all.into_iter().eq((0..size).map(brought)));
        ranks.barrier(PATIENCE).unwrap();
    }
    ranks.local_rank()
}

#[test]
fn one_rank_needs_nobody() {
    let alone = Config {
        root: Root::Alone,
        ..config(&address(), 0, 1)
    };
    let mut ranks = Rendezvous::join(&alone, Duration::ZERO).unwrap();
    assert_eq!(ranks.allgather(b"one", Duration::ZERO).unwrap(), [b"one"]);
    ranks.barrier(Duration::ZERO).unwrap();
    ranks.abort("enough");
    let failed = failure(ranks.barrier(Duration::ZERO).unwrap_err());
    assert_eq!(failed, (0, FailedRank::Aborted("enough".into())));
}

#[test]
fn ranks_find_each_other() {
    for size in [2, 3, 64] {
        // All are on this host.
        assert!(run(size, exchange).into_iter().eq(0..size));
    }
}

#[test]
fn ranks_of_one_host_meet_at_a_local_socket_and_count_from_the_launcher() {
    let address = local_address("meet");
    let all = on_threads(3, |rank| {
        let config = Config {
            local_rank: Some(rank + 10),
            secret: None,
            ..config(&address, rank, 3)
        };
        exchange(Rendezvous::join(&config, PATIENCE).unwrap())
    });
    assert_eq!(all, [10, 11, 12]);
}

#[test]
fn the_root_may_start_later_and_bind_elsewhere() {
    let address = address();
    on_threads(2, |rank| {
        let mut config = config(&address, rank, 2);
        if rank == 0 {
            std::thread::sleep(SOON);
            config.bind = Some("0.0.0.0:0".parse().unwrap());
        }
        exchange(Rendezvous::join(&config, PATIENCE).unwrap())
    });
}

#[test]
fn ranks_that_do_not_belong_are_refused_by_name() {
    let (address, outside) = (address(), address());
    let zero = || join(&address, 0, 2);
    std::thread::scope(|scope| {
        let zero = scope.spawn(zero);
        let refused = |change: &dyn Fn(&mut Config)| {
            let mut config = config(&address, 1, 2);
            change(&mut config);
            Rendezvous::join(&config, PATIENCE).unwrap_err()
        };
        let other = Secret::new("another random secret").unwrap();
        let error = refused(&|bad| bad.size = 3);
        assert_matches!(error => RanksError::OtherSize { root: 2, ours: 3 });
        let error = refused(&|bad| (bad.rank, bad.size) = (7, 9));
        assert_matches!(error => RanksError::OtherSize { root: 2, ours: 9 });
        let error = refused(&|bad| bad.secret = Some(other.clone()));
        assert!(!error.to_string().contains("another random"));
        assert_matches!(error => RanksError::WrongSecret(_));
        let error = refused(&|bad| bad.secret = None);
        assert_matches!(error => RanksError::WrongSecret(_));
        let error = refused(&|bad| bad.root = Root::Alone);
        assert_matches!(error => RanksError::NoRoot(_));
        let error = Rendezvous::join(&config(&outside, 2, 2), PATIENCE).unwrap_err();
        assert_matches!(error => RanksError::RankOutOfRange { rank: 2, size: 2 });
        // A second process of one rank, while the first is there and after it has left.
        let again = || {
            let error = Rendezvous::join(&config(&address, 1, 2), PATIENCE).unwrap_err();
            assert_matches!(error => RanksError::Duplicate(1));
        };
        let mut one = by_hand(&address, 1, 2);
        again();
        let zero = zero.join().unwrap();
        one.send(&ToRoot::Bye, &[], Instant::now() + PATIENCE);
        drop(one);
        again();
        drop(zero);
    });
}

#[test]
fn strangers_do_not_keep_ranks_out() {
    let address = address();
    std::thread::scope(|scope| {
        let zero = scope.spawn(|| exchange(join(&address, 0, 2)));
        let call = || loop {
            match connect(&address, Instant::now() + PATIENCE) {
                Ok(socket) => return TcpStream::from(socket),
                Err(Attempt::Again(_)) => std::thread::yield_now(),
                Err(Attempt::Refused(error)) => panic!("{error}"),
            }
        };
        let silent: Vec<_> = (0..200).map(|_| call()).collect();
        let hello = Hello::new(1, 2, [0; 32]);
        for (said, closed) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], true),
            (&[0; 1000], true),
            (b"WBRK\x03\0\0\0", true),
            (b"WBRK", false),
            // A rank without its proof, and with a wrong one.
            (hello.as_bytes(), false),
            (&[hello.as_bytes(), &[1; 32]].concat(), true),
        ] {
            let mut stranger = call();
            // It may be gone before it has said all.
            let _ = stranger.write_all(said);
            if closed {
                let mut answer = Vec::new();
                let _ = stranger.read_to_end(&mut answer);
                assert!(answer.len() <= size_of::<Challenge>());
                if said.starts_with(b"WBRK\x03") {
                    assert_eq!(answer, Challenge::VERSION_ALONE.as_bytes());
                }
            }
        }
        let one = exchange(join(&address, 1, 2));
        assert_eq!((zero.join().unwrap(), one), (0, 1));
        drop(silent);
    });
}

#[test]
fn strangers_at_the_root_are_named() {
    let meet = |answer: &[u8], timeout| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut socket, _) = listener.accept().unwrap();
                socket.write_all(answer).unwrap();
                let _ = socket.read_to_end(&mut Vec::new());
            });
            Rendezvous::join(&config(&of_listener(&listener), 1, 2), timeout).unwrap_err()
        })
    };
    assert_matches!(meet(b"HTTP/1.1 400 Bad Request", PATIENCE) => RanksError::NotOurs(_));
    assert_matches!(meet(b"WBRK\x03\0\0\0", PATIENCE) => RanksError::Version(3));
    assert_matches!(meet(b"", SOON) => RanksError::Unreachable { last, .. } if last == "no answer in time");
    let nobody = Rendezvous::join(&config(&address(), 1, 2), SOON).unwrap_err();
    assert_matches!(nobody => RanksError::Unreachable { last, .. } if last.contains("refused"));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = Rendezvous::join(&config(&of_listener(&taken), 0, 2), PATIENCE).unwrap_err();
    assert_matches!(taken => RanksError::Bind(..));
}

#[test]
fn a_rank_that_is_missing_is_named() {
    let address = address();
    let all = on_threads(3, |rank| {
        let timeout = match rank {
            0 => Duration::from_millis(500),
            // It does not come at all.
            1 => return None,
            _ => PATIENCE,
        };
        Rendezvous::join(&config(&address, rank, 3), timeout).err()
    });
    for error in all.into_iter().flatten() {
        // One came when all was over.
        if !matches!(error, RanksError::Unreachable { .. }) {
            assert_matches!(failure(error) =>
                (0, FailedRank::TimedOut { missing, .. }) if missing.contains(&1));
        }
    }
    for failure in failures(4, |ranks| match ranks.rank() {
        // It comes too late, and hears of it.
        2 => {
            std::thread::sleep(Duration::from_millis(300));
            ranks.barrier(PATIENCE)
        }
        3 => ranks.barrier(SOON),
        _ => ranks.barrier(PATIENCE),
    }) {
        assert_matches!(failure => (3, FailedRank::TimedOut { call: Collective::Barrier, timeout: SOON, missing })
            if missing.contains(&2));
    }
}

#[test]
fn an_abort_reaches_all() {
    for aborting in [0, 2] {
        let failed = failures(3, |ranks| {
            if ranks.rank() == aborting {
                ranks.abort(&"é".repeat(600));
            }
            ranks.allgather(b"", PATIENCE).map(drop)
        });
        let expected = (aborting, FailedRank::Aborted("é".repeat(512)));
        assert!(failed.into_iter().all(|failure| failure == expected));
    }
}

#[test]
fn ranks_that_make_different_calls_are_told_so() {
    for failure in failures(3, |ranks| match ranks.rank() {
        1 => ranks.barrier(PATIENCE),
        _ => ranks.allgather(b"x", PATIENCE).map(drop),
    }) {
        assert_matches!(failure => (rank, FailedRank::OutOfStep { call, other, other_call })
            if call != other_call && (rank == 1) != (other == 1));
    }
}

#[test]
fn a_contribution_that_is_too_long_stays_here() {
    run(2, |mut ranks| {
        let long = ranks.allgather(&[0; 65_537], PATIENCE);
        assert_matches!(long => Err(RanksError::TooLong(65_537)));
        let ours = [ranks.rank() as u8; 65_536];
        let all = ranks.allgather(&ours, PATIENCE).unwrap();
        assert!(all == [[0; 65_536], [1; 65_536]]);
    });
}

#[test]
fn a_rank_that_leaves_or_dies_is_named() {
    for (goodbye, expected) in [(true, FailedRank::Left), (false, FailedRank::Lost)] {
        let (address, ready) = (address(), Barrier::new(3));
        let all = on_threads(3, |rank| {
            if rank != 1 {
                let mut ranks = join(&address, rank, 3);
                ready.wait();
                return Some(ranks.allgather(b"part", PATIENCE).unwrap_err());
            }
            let mut link = by_hand(&address, rank, 3);
            if goodbye {
                link.send(&ToRoot::Bye, &[], Instant::now() + PATIENCE);
                // Rank 0 takes it before it hears a caller.
                let again = Rendezvous::join(&config(&address, 1, 3), PATIENCE);
                assert_matches!(again => Err(RanksError::Duplicate(1)));
            }
            ready.wait();
            None
        });
        let failed: Vec<_> = all.into_iter().flatten().map(failure).collect();
        assert_eq!(failed, vec![(1, expected); 2]);
    }
    // Rank 0 leaves while the others wait.
    let all = run(3, |mut ranks| {
        (ranks.rank() != 0).then(|| ranks.barrier(PATIENCE).unwrap_err())
    });
    let failed: Vec<_> = all.into_iter().flatten().map(failure).collect();
    assert_eq!(failed, [(0, FailedRank::Left), (0, FailedRank::Left)]);
}

/// Answers that fill the buffers of a rank which takes nothing.
#[test]
fn a_rank_that_takes_no_answer_does_not_hold_rank_0() {
    let address = local_address("slow");
    let (done, all_are_done) = channel::<()>();
    std::thread::scope(|scope| {
        let slow = scope.spawn(|| {
            let mut link = by_hand(&address, 7, 8);
            link.send(&allgather(), &[7; 65_536], Instant::now() + PATIENCE);
            // Until the other ends are dropped.
            let _ = { all_are_done }.recv();
        });
        let others: Vec<_> = (0..7)
            .map(|rank| {
                let (address, done) = (&address, done.clone());
                scope.spawn(move || {
                    let mut ranks = join(address, rank, 8);
                    let all = ranks.allgather(&[7; 65_536], PATIENCE).unwrap();
                    drop(done);
                    all.len()
                })
            })
            .collect();
        drop(done);
        assert!(others.into_iter().all(|one| one.join().unwrap() == 8));
        slow.join().unwrap();
    });
}

#[test]
fn too_few_files_are_named_at_the_start() {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit > u64::from(2 * MOST_RANKS) {
        println!("skipped: this process may open {limit} files");
        return;
    }
    let error = Rendezvous::join(&config(&address(), 0, MOST_RANKS), PATIENCE).unwrap_err();
    assert_matches!(error => RanksError::TooFewFiles { .. });
}

/// What rank 0 and rank 1 come to if a relay between them changes one byte of what one of them says.
fn relayed(change: Option<(bool, usize)>, timeout: Duration) -> [Result<(), RanksError>; 2] {
    let (address, relay) = (address(), TcpListener::bind("127.0.0.1:0").unwrap());
    std::thread::scope(|scope| {
        let [zero, one] = [(&address, 0), (&of_listener(&relay), 1)].map(|(address, rank)| {
            let config = config(address, rank, 2);
            scope.spawn(move || Rendezvous::join(&config, timeout)?.barrier(timeout))
        });
        let (theirs, _) = relay.accept().unwrap();
        // No later attempt gets through.
        drop(relay);
        while !zero.is_finished() {
            let Ok(ours) = connect(&address, Instant::now() + PATIENCE).map(TcpStream::from) else {
                continue;
            };
            let change = |from_root| change.filter(|one| one.0 == from_root).map(|one| one.1);
            std::thread::scope(|scope| {
                scope.spawn(|| pass(&theirs, &ours, change(false)));
                pass(&ours, &theirs, change(true));
            });
            break;
        }
        drop(theirs);
        [zero, one].map(|rank| rank.join().unwrap())
    })
}

/// Carries bytes until the end of one of the two, and changes one byte.
fn pass(mut from: &TcpStream, mut to: &TcpStream, change: Option<usize>) {
    let (mut passed, mut bytes) = (0, [0; 256]);
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        if let Some(at) = change.filter(|at| (passed..passed + count).contains(at)) {
            bytes[at - passed] ^= 0x10;
        }
        passed += count;
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}

#[test]
fn a_byte_changed_on_the_way_ends_in_an_error() {
    let whole = relayed(None, PATIENCE);
    assert!(whole.iter().all(Result::is_ok), "{whole:?}");
    // In each message and each of its fields. A rank that waits for bytes that never come waits until its deadline.
    let from_rank = [10, 20, 50, 84, 90, 130].map(|at| (false, at));
    let from_root = [0, 7, 20, 50, 72, 80, 112, 160].map(|at| (true, at));
    for change in from_rank.into_iter().chain(from_root) {
        let changed = relayed(Some(change), Duration::from_millis(500));
        let failed = changed.iter().all(Result::is_err);
        assert!(failed, "{change:?}: {changed:?}");
    }
}
