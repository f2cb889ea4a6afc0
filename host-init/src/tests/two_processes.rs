//! Two processes: each of these tests runs the test binary again as the other one.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mlx5_wqe::{Completion, Syndrome, Wqe};

use super::hand::{Hand, wait};
use super::{ALL, PATIENT, bytes_of, region, threaded};
use crate::peer::ExchangeError;
use crate::{
    Device, Error, MemoryRegion, Peer, ProtectionDomain, QueuePair, QueuePairConfig, RemoteMemory,
    State, Timers, connect,
};

const SOCKET: &str = "WARPBELL_TEST_SOCKET";
const PART: &str = "WARPBELL_TEST_PART";
const PATIENCE: Duration = Duration::from_secs(300);
const BYTES: usize = 100_000;

/// The other process; killed when the test ends, however it ends.
pub(super) struct Other(pub(super) Child);

impl Other {
    fn start(socket: &PathBuf, part: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "tests::two_processes::the_other_process",
                "--nocapture",
            ])
            .env(SOCKET, socket)
            .env(PART, part)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Waits for its end, which must be a good one.
    pub(super) fn finish(mut self) {
        let status = wait("the other process", || (), || self.0.try_wait().unwrap());
        assert!(status.success(), "the other process failed: {status}");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("warpbell-{name}-{}.sock", std::process::id()))
}

fn config(timers: Timers) -> QueuePairConfig {
    QueuePairConfig {
        timers,
        ..QueuePairConfig::granting(ALL)
    }
}

/// One process's queue pair, connected to the other's; this one's memory, and the other's.
struct End {
    domain: ProtectionDomain,
    memory: MemoryRegion,
    pair: QueuePair,
    peer: Peer,
    theirs: RemoteMemory,
}

impl End {
    fn meet(timers: Timers, fill: u8, meet: impl FnOnce(&Device) -> Result<Peer, Error>) -> Self {
        let device = threaded();
        let domain = device.protection_domain().unwrap();
        let memory = region(&domain, BYTES, fill, ALL);
        let mut pair = domain.queue_pair(&config(timers)).unwrap();
        let mut peer = meet(&device).unwrap();
        peer.connect(&mut pair).unwrap();
        let theirs = peer.exchange(&memory.remote()).unwrap();
        Self {
            domain,
            memory,
            pair,
            peer,
            theirs,
        }
    }
}

/// The second process. It is no test of its own: without its variables it does nothing.
#[test]
fn the_other_process() {
    let (Some(socket), Ok(part)) = (std::env::var_os(SOCKET), std::env::var(PART)) else {
        return;
    };
    let join = |device: &Device| Peer::join(device, socket.as_ref(), PATIENCE);
    let mut end = End::meet(PATIENT, 2, join);
    if part == "wait for the end" {
        // The kill comes from the other side.
        std::thread::sleep(PATIENCE);
        panic!("nobody killed this process");
    }
    end.peer.barrier("written").unwrap();
    assert!(bytes_of(&end.memory).iter().all(|byte| *byte == 1));
    end.peer.barrier("checked").unwrap();
}

#[test]
fn bytes_cross_to_another_process_and_back() {
    let socket = socket("cross");
    let other = Other::start(&socket, "check");
    let listen = |device: &Device| Peer::listen(device, &socket, PATIENCE);
    let mut end = End::meet(PATIENT, 1, listen);
    assert!(!socket.exists(), "the socket file is gone");
    let (memory, back) = (&end.memory, region(&end.domain, BYTES, 0, ALL));
    let remote = end.theirs.at(0, BYTES as u32).unwrap();
    let mut hand = Hand::new(&end.pair);
    for wqe in [
        Wqe::write(memory.local(0, BYTES as u32).unwrap(), remote),
        Wqe::read(back.local(0, BYTES as u32).unwrap(), remote),
    ] {
        hand.post(wqe.signalled());
        let completion = wait("a completion", || (), || hand.poll());
        assert_matches!(completion => Completion::Requester(_));
    }
    assert!(bytes_of(&back) == bytes_of(memory));
    end.peer.barrier("written").unwrap();
    end.peer.barrier("checked").unwrap();
    other.finish();
}

#[test]
fn a_process_that_is_killed_ends_in_a_retry_error() {
    let socket = socket("killed");
    let other = Other::start(&socket, "wait for the end");
    // A peer that is gone is noticed after 0.6 s.
    let timers = Timers::default();
    let listen = |device: &Device| Peer::listen(device, &socket, PATIENCE);
    let End {
        domain,
        memory,
        mut pair,
        mut peer,
        theirs,
    } = End::meet(timers, 1, listen);
    drop(other);

    let mut hand = Hand::new(&pair);
    let (local, remote) = (memory.local(0, 8).unwrap(), theirs.at(0, 8).unwrap());
    hand.post(Wqe::write(local, remote).signalled());
    match wait("a completion", || (), || hand.poll()) {
        Completion::Error(error) => assert_eq!(error.syndrome, Syndrome::TRANSPORT_RETRY),
        other => panic!("expected an error, got {other:?}"),
    }
    assert_eq!(pair.state().unwrap(), State::Error);
    // The exchange says so too, and the device still works with others.
    let error = peer.barrier("never").unwrap_err();
    assert_matches!(error => Error::Exchange(_));
    let mut second = domain.queue_pair(&config(timers)).unwrap();
    pair.reset().unwrap();
    connect(&mut pair, &mut second).unwrap();
}

#[test]
fn nobody_comes() {
    const SOON: Duration = Duration::from_millis(30);
    let device = threaded();
    let socket = socket("nobody");
    for error in [
        Peer::listen(&device, &socket, SOON).unwrap_err(),
        Peer::join(&device, &socket, SOON).unwrap_err(),
    ] {
        assert_matches!(error => Error::Exchange(ExchangeError::TimedOut { .. }));
    }
    let nowhere = Peer::listen(&device, "/nowhere/at/all".as_ref(), SOON).unwrap_err();
    assert_matches!(nowhere => Error::Exchange(ExchangeError::Socket { step: "bind", .. }));
}

/// What `Peer::listen` makes of a stranger at the socket.
fn greeted(name: &str, patience: Duration, stranger: impl FnOnce(UnixStream) + Send) -> Error {
    let device = threaded();
    let socket = socket(name);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                if let Ok(stream) = UnixStream::connect(&socket) {
                    return stranger(stream);
                }
                std::thread::yield_now();
            }
        });
        let error = Peer::listen(&device, &socket, patience).unwrap_err();
        over.store(true, Ordering::Relaxed);
        error
    })
}

#[test]
fn strangers_are_named() {
    use std::io::{Read, Write};
    let error = greeted("http", PATIENCE, |mut socket| {
        socket.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    assert_matches!(error => Error::Exchange(ExchangeError::NotOurs { .. }));
    let error = greeted("silent", Duration::from_secs(1), |mut socket| {
        // Stays until the other side gives up.
        let _ = socket.read_to_end(&mut Vec::new());
    });
    assert_matches!(error => Error::Exchange(ExchangeError::TimedOut { .. }));
    let error = greeted("gone", PATIENCE, drop);
    assert_matches!(error => Error::Exchange(ExchangeError::Closed { .. }));
    // A good frame around a device that no software wire can reach.
    let error = greeted("card", PATIENCE, |mut socket| {
        let body = br#"{"gid":[254,128,0,0,0,0,0,0,1,2,3,4,5,6,7,8]}"#;
        let mut message = b"WBEX\x01\0\x01\0".to_vec();
        message.extend_from_slice(&(body.len() as u32).to_le_bytes());
        message.extend_from_slice(body);
        socket.write_all(&message).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    });
    assert_matches!(error => Error::Unreachable { .. });
}
