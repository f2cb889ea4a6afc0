//! Two processes of one machine: how they find each other and what they tell.
//!
//! ```no_run
//! use std::path::Path;
//! use std::time::Duration;
//! use warpbell_host_init::{Node, Peer, QueuePairConfig};
//!
//! let domain = Node::cpu().domain()?;
//! let mut pair = domain.queue_pair(&QueuePairConfig::default())?;
//! // The other process calls `Peer::join` with the same path.
//! let mut peer = Peer::listen(domain.device(), Path::new("meet"), Duration::from_secs(30))?;
//! peer.connect(&mut pair)?;
//! # Ok::<(), warpbell_host_init::Error>(())
//! ```

mod listener;
mod socket;

use std::fmt;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::frame::{self, Kind};
use crate::state::{Endpoint, Gid};
use crate::{Device, Error, QueuePair};

pub use listener::Listener;

pub use crate::frame::{ExchangeError, LARGEST_MESSAGE};

use socket::{Peeked, check_user, own_user, peek, retried, socket_failed};

/// The users whose processes may be at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Users {
    /// The user of this process, as the system reports it (`SO_PEERCRED`).
    #[default]
    Same,
    /// Every user that may open the socket file. The other process reads and writes the memory of the wire: name it
    /// only where the folder of the socket keeps strangers out.
    Any,
}

/// Another process of this machine, and the wire between its device and ours.
///
/// One process calls [`listen`](Self::listen), the other [`join`](Self::join) with
/// the same path. From then on both call the same methods in the same order; each
/// call waits for the other side, at most for the timeout given at the start.
///
/// ```no_run
/// # use std::time::Duration;
/// # use warpbell_host_init::{Device, Error, MemoryRegion, Peer, QueuePair, RemoteMemory};
/// # fn start(device: Device, mut queue_pair: QueuePair, region: MemoryRegion) -> Result<(), Error> {
/// let mut peer = Peer::listen(&device, "/tmp/pair.sock".as_ref(), Duration::from_secs(10))?;
/// peer.connect(&mut queue_pair)?;
/// let theirs: RemoteMemory = peer.exchange(&region.remote())?;
/// peer.barrier("ready")?;
/// # Ok(())
/// # }
/// ```
pub struct Peer {
    socket: UnixStream,
    gid: Gid,
    timeout: Duration,
}

/// Who greets.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hello {
    gid: Gid,
}

/// Who came first.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Listener,
    Joiner,
}

impl Peer {
    /// Waits at `path` for the other process to [`join`](Self::join), at most
    /// `timeout`. The socket file is gone afterwards.
    ///
    /// # Errors
    /// [`Error::Exchange`] if the path cannot be used, nobody comes in time, or
    /// what comes is no Warpbell process of this version.
    pub fn listen(device: &Device, path: &Path, timeout: Duration) -> Result<Self, Error> {
        Self::listen_to(Users::Same, device, path, timeout)
    }

    /// [`listen`](Self::listen)s to these users. A process of another user is turned away, and the next one is served.
    ///
    /// # Errors
    /// As there; [`ExchangeError::OtherUser`] if only processes of other users have come.
    pub fn listen_to(
        users: Users,
        device: &Device,
        path: &Path,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let listener = Listener::bind_to(users, path)?;
        let mut stranger = None;
        let socket = retried(timeout, "join", || match listener.accept(timeout) {
            Err(error @ ExchangeError::OtherUser { .. }) => {
                stranger = Some(error);
                Ok(None)
            }
            result => result,
        });
        let socket = socket.map_err(|error| stranger.unwrap_or(error))?;
        Self::greet(device, socket, Role::Listener, timeout)
    }

    /// Joins the process that [`listen`](Self::listen)s at `path`, or will within
    /// `timeout`.
    ///
    /// # Errors
    /// As there; [`ExchangeError::OtherUser`] if a process of another user listens.
    pub fn join(device: &Device, path: &Path, timeout: Duration) -> Result<Self, Error> {
        Self::join_of(Users::Same, device, path, timeout)
    }

    /// [`join`](Self::join)s a process of one of these users.
    ///
    /// # Errors
    /// As there.
    pub fn join_of(
        users: Users,
        device: &Device,
        path: &Path,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let socket = retried(timeout, "listen", || match UnixStream::connect(path) {
            Ok(socket) => Ok(Some(socket)),
            // Not there yet; or a leftover, which somebody may still remove before a listener comes.
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::NotFound | ErrorKind::ConnectionRefused
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(socket_failed("connect", path)(error)),
        })?;
        check_user(users, own_user(), &socket, path)?;
        Self::greet(device, socket, Role::Joiner, timeout)
    }

    /// Learns who is there, and makes the wire.
    fn greet(
        device: &Device,
        socket: UnixStream,
        role: Role,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let mut peer = Self {
            socket,
            gid: device.gid(),
            timeout,
        };
        let hello: Hello = peer.swap(Kind::Hello, &Hello { gid: device.gid() })?;
        peer.gid = hello.gid;
        let provider = device.provider();
        provider.link_over(&peer.socket, hello.gid, role, timeout)?;
        tracing::debug!(ours = %device.gid(), theirs = %hello.gid, "two processes are linked");
        // Neither goes on before the other one's wire is open.
        peer.barrier("linked")?;
        Ok(peer)
    }

    /// Whether the other process has ended, or has closed its device and the connection. Waits for nothing, and takes
    /// nothing of what it has said.
    pub fn has_gone(&self) -> bool {
        peek(&self.socket) == Peeked::End
    }

    /// Whether the other process has said something that was not taken yet, or has gone: then the next step with it is not
    /// kept waiting for the first word. Waits for nothing.
    pub fn has_spoken(&self) -> bool {
        peek(&self.socket) != Peeked::Nothing
    }

    /// The other process's device.
    pub fn gid(&self) -> Gid {
        self.gid
    }

    /// Connects a queue pair with the one that the other side passes to the same
    /// call: both go from RESET (or INIT) to RTS.
    ///
    /// # Errors
    /// [`Error::Exchange`] if the other side does not take part; those of
    /// [`QueuePair::connect`].
    pub fn connect(&mut self, queue_pair: &mut QueuePair) -> Result<(), Error> {
        let theirs: Endpoint = self.swap(Kind::Endpoint, &queue_pair.endpoint())?;
        if theirs.gid != self.gid {
            return Err(Error::Unreachable { gid: theirs.gid });
        }
        queue_pair.connect(&theirs)?;
        // Neither sends before the other one answers.
        self.barrier("connected")
    }

    /// Gives the other side a value, and takes the one that it gives: for example
    /// the [`RemoteMemory`](crate::RemoteMemory) of regions. At most
    /// [`LARGEST_MESSAGE`] bytes as JSON.
    ///
    /// # Errors
    /// [`Error::Exchange`] if the other side does not take part, or gives
    /// something else than a `T`.
    pub fn exchange<T: Serialize + DeserializeOwned>(&mut self, ours: &T) -> Result<T, Error> {
        self.swap(Kind::Data, ours)
    }

    /// Waits until the other side is at the barrier of the same name.
    ///
    /// # Errors
    /// [`Error::Exchange`] if it does not come in time, or comes to another one.
    pub fn barrier(&mut self, name: &str) -> Result<(), Error> {
        let ours = String::from(name);
        let theirs: String = self.swap(Kind::Barrier, &ours)?;
        if ours == theirs {
            Ok(())
        } else {
            Err(ExchangeError::OtherBarrier { ours, theirs }.into())
        }
    }

    fn swap<T: Serialize + DeserializeOwned>(&mut self, kind: Kind, ours: &T) -> Result<T, Error> {
        frame::send(&self.socket, kind, ours, self.timeout)?;
        Ok(frame::receive(&self.socket, kind, self.timeout)?)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("gid", &self.gid)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soft::SoftOptions;
    use crate::{Nic, QueuePairConfig, RemoteMemory, State};

    const PATIENCE: Duration = Duration::from_secs(300);

    /// Both sides of one exchange, in one process.
    fn pair(name: &str) -> [(Device, Peer); 2] {
        let path = std::env::temp_dir().join(format!("warpbell-{name}-{}", std::process::id()));
        let open = || Device::open(Nic::Soft(SoftOptions::default())).unwrap();
        let (ours, theirs) = (open(), open());
        std::thread::scope(|scope| {
            let joiner = scope.spawn(|| Peer::join(&theirs, &path, PATIENCE).unwrap());
            let listener = Peer::listen(&ours, &path, PATIENCE).unwrap();
            let joiner = joiner.join().unwrap();
            [(ours.clone(), listener), (theirs.clone(), joiner)]
        })
    }

    /// What `ours` makes of what the other side sends after the greeting.
    fn said<R>(
        name: &str,
        ours: impl FnOnce(&Device, &mut Peer) -> Result<R, Error>,
        theirs: impl FnOnce(&Device, &Peer),
    ) -> Error {
        let [(our_device, mut our_peer), (their_device, their_peer)] = pair(name);
        theirs(&their_device, &their_peer);
        let Err(error) = ours(&our_device, &mut our_peer) else {
            panic!("it was believed");
        };
        error
    }

    #[test]
    fn what_the_other_side_says_is_checked() {
        let connect = |device: &Device, peer: &mut Peer| {
            let domain = device.protection_domain()?;
            let mut pair = domain.queue_pair(&QueuePairConfig::granting(crate::Access::all()))?;
            let result = peer.connect(&mut pair);
            assert_ne!(pair.state()?, State::ReadyToReceive);
            result
        };
        let endpoint = |peer: &Peer, gid, qpn| {
            let endpoint = Endpoint {
                gid,
                qpn,
                psn: 1,
                card: None,
            };
            frame::send(&peer.socket, Kind::Endpoint, &endpoint, PATIENCE).unwrap();
        };
        // An endpoint on a device of somebody else: here, on ours.
        let error = said("gid", connect, |_, peer| endpoint(peer, peer.gid, 1));
        assert_matches!(error => Error::Unreachable { .. });
        let error = said("qpn", connect, |device, peer| {
            endpoint(peer, device.gid(), 1 << 24);
        });
        assert_matches!(error => Error::BadEndpoint { .. });

        let send = |kind, body: &'static str| {
            move |_: &Device, peer: &Peer| frame::send(&peer.socket, kind, &body, PATIENCE).unwrap()
        };
        let exchange = |_: &Device, peer: &mut Peer| {
            peer.exchange(&RemoteMemory {
                address: 0,
                len: 0,
                rkey: 0,
            })
        };
        let error = said("type", exchange, send(Kind::Data, "no memory"));
        assert_matches!(error => Error::Exchange(ExchangeError::Malformed { .. }));
        let error = said("step", exchange, send(Kind::Barrier, "ready"));
        assert_matches!(error => Error::Exchange(ExchangeError::OutOfStep { .. }));
        let barrier = |_: &Device, peer: &mut Peer| peer.barrier("here");
        let error = said("barrier", barrier, send(Kind::Barrier, "there"));
        assert_matches!(error => Error::Exchange(ExchangeError::OtherBarrier { .. }));
        let error = said("gone", barrier, |_, peer| {
            peer.socket.shutdown(std::net::Shutdown::Both).unwrap();
        });
        assert_matches!(error => Error::Exchange(ExchangeError::Closed { .. }));
    }

    #[test]
    fn one_process_after_the_other_is_taken_and_seen_to_go() {
        let path = std::env::temp_dir().join(format!("warpbell-many-{}", std::process::id()));
        let open = || Device::open(Nic::Soft(SoftOptions::default())).unwrap();
        let ours = open();
        let listener = Listener::bind(&path).unwrap();
        assert!(listener.take(&ours, PATIENCE).unwrap().is_none());
        for leaves_some_unread in [false, true] {
            let (theirs, at) = (open(), path.clone());
            let joiner = std::thread::spawn(move || {
                let joined = Peer::join(&theirs, &at, PATIENCE).unwrap();
                (theirs, joined)
            });
            let taken = || {
                let taken = listener.take(&ours, PATIENCE);
                taken.map_err(|error| panic!("{error}"))
            };
            let mut peer = retried(PATIENCE, "join", taken).unwrap();
            let (theirs, mut joined) = joiner.join().unwrap();
            assert!(!peer.has_gone() && !joined.has_gone());
            // What it says before it goes is not lost by the look.
            frame::send(&joined.socket, Kind::Barrier, &"bye", PATIENCE).unwrap();
            assert!(!peer.has_gone());
            peer.barrier("bye").unwrap();
            joined.swap::<String>(Kind::Barrier, &"end".into()).unwrap();
            peer.barrier("end").unwrap();
            if !leaves_some_unread {
                let end: String = frame::receive(&joined.socket, Kind::Barrier, PATIENCE).unwrap();
                assert_eq!(end, "end");
            }
            drop((joined, theirs));
            assert!(peer.has_gone());
        }
        assert!(path.exists());
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_device_does_not_join_itself() {
        let path = std::env::temp_dir().join(format!("warpbell-self-{}", std::process::id()));
        let device = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
        std::thread::scope(|scope| {
            let joiner = scope.spawn(|| Peer::join(&device, &path, PATIENCE).unwrap_err());
            let listener = Peer::listen(&device, &path, PATIENCE).unwrap_err();
            for error in [listener, joiner.join().unwrap()] {
                assert_matches!(error => Error::Soft { .. });
            }
        });
    }
}
