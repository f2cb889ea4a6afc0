//! Two processes of one machine: how they find each other and what they tell.

use std::fmt;
use std::fs::{File, Metadata, TryLockError, symlink_metadata};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use warpbell_soft_hca::shell::{HcaError, SharedLink, accept, offer};

use crate::frame::{self, ExchangeError, Kind};
use crate::soft::{refused, wire_address};
use crate::{Device, Endpoint, Error, Gid, QueuePair};

/// How often a side that waits for the other one looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How long a listener waits while others replace stale sockets in the same folder.
const REPLACING: Duration = Duration::from_secs(1);

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

/// What comes next from the other process.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peeked {
    Nothing,
    Words,
    End,
}

#[derive(Clone, Copy)]
enum Role {
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
        let socket = retried(timeout, "join", || match listener.accept() {
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
        const STEP: &str = "link two processes";
        let mut peer = Self {
            socket,
            gid: device.gid(),
            timeout,
        };
        let hello: Hello = peer.swap(Kind::Hello, &Hello { gid: device.gid() })?;
        peer.gid = hello.gid;
        if device.is_card() {
            // The wire is there already; what kind of device the other one is, endpoints tell.
            peer.barrier("linked")?;
            return Ok(peer);
        }
        let unreachable = || Error::Unreachable { gid: hello.gid };
        let hca = device.provider().hca().ok_or_else(unreachable)?;
        let theirs = wire_address(hello.gid).ok_or_else(unreachable)?;
        let ours = hca.address();
        if ours == theirs {
            let (own, peer) = (ours.0, theirs.0);
            let source = HcaError::LinkedAlready { own, peer };
            return Err(refused(STEP)(source));
        }
        let link: SharedLink = match role {
            Role::Listener => offer(&peer.socket, ours, theirs),
            Role::Joiner => accept(&peer.socket, ours, theirs, timeout),
        }
        .map_err(|error| refused(STEP)(error.into()))?;
        hca.attach(link).map_err(refused(STEP))?;
        tracing::debug!(ours = %device.gid(), theirs = %hello.gid, "two processes are linked");
        // Neither goes on before the other one's wire is open.
        peer.barrier("linked")?;
        Ok(peer)
    }

    /// Whether the other process has ended, or has closed its device and the connection. Waits for nothing, and takes
    /// nothing of what it has said.
    pub fn has_gone(&self) -> bool {
        self.peek() == Peeked::End
    }

    /// Whether the other process has said something that was not taken yet, or has gone: then the next step with it is not
    /// kept waiting for the first word. Waits for nothing.
    pub fn has_spoken(&self) -> bool {
        self.peek() != Peeked::Nothing
    }

    fn peek(&self) -> Peeked {
        let mut byte = 0u8;
        let (socket, flags) = (self.socket.as_raw_fd(), libc::MSG_PEEK | libc::MSG_DONTWAIT);
        // SAFETY: the socket is open, and there is room for the one byte that is asked for.
        match unsafe { libc::recv(socket, (&raw mut byte).cast(), 1, flags) } {
            0 => Peeked::End,
            1.. => Peeked::Words,
            _ => match io::Error::last_os_error().kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Peeked::Nothing,
                _ => Peeked::End,
            },
        }
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
    /// [`LARGEST_MESSAGE`](crate::LARGEST_MESSAGE) bytes as JSON.
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

/// A path at which other processes [`join`](Peer::join), one after the other. Who comes while nobody is taken waits,
/// as long as its timeout lasts. The socket file is gone once this is dropped; a file that somebody else has put at the
/// path since stays.
///
/// ```no_run
/// # use std::time::Duration;
/// # use warpbell_host_init::{Device, Error, Listener};
/// # fn serve(device: Device) -> Result<(), Error> {
/// let listener = Listener::bind("/tmp/service.sock".as_ref())?;
/// loop {
///     match listener.take(&device, Duration::from_secs(10))? {
///         Some(mut peer) => peer.barrier("served")?,
///         None => std::thread::sleep(Duration::from_millis(10)),
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of our socket file.
    file: (u64, u64),
    users: Users,
    /// The user that [`Users::Same`] means.
    own: u32,
}

impl Listener {
    /// Listens at a path from now on, to processes of the same user. Replaces the socket that a listener has left
    /// without removing it.
    ///
    /// # Errors
    /// [`Error::Exchange`] if the path cannot be used, for example because another process listens there.
    pub fn bind(path: &Path) -> Result<Self, Error> {
        Self::bind_to(Users::Same, path)
    }

    /// [`bind`](Self::bind)s for these users.
    ///
    /// # Errors
    /// As there.
    pub fn bind_to(users: Users, path: &Path) -> Result<Self, Error> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => replace_stale(path)?,
            bound => bound.map_err(socket_failed("bind", path))?,
        };
        let file = symlink_metadata(path).map_err(socket_failed("stat", path))?;
        let waits_not = listener.set_nonblocking(true);
        waits_not.map_err(socket_failed("set_nonblocking", path))?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            file: identity(&file),
            users,
            own: own_user(),
        })
    }

    /// Takes the process that has come first, if one has, and makes the wire to it. That, and each later step with it,
    /// waits for at most `timeout`.
    ///
    /// # Errors
    /// [`Error::Exchange`] if what comes is no Warpbell process of this version, belongs to another user, or does not go
    /// on; others may still join.
    pub fn take(&self, device: &Device, timeout: Duration) -> Result<Option<Peer>, Error> {
        let socket = self.accept()?;
        let greet = |socket| Peer::greet(device, socket, Role::Listener, timeout);
        socket.map(greet).transpose()
    }

    fn accept(&self) -> Result<Option<UnixStream>, ExchangeError> {
        let failed = |step| socket_failed(step, &self.path);
        let socket = match self.listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(failed("accept")(error)),
        };
        check_user(self.users, self.own, &socket, &self.path)?;
        let waits = socket.set_nonblocking(false);
        waits.map_err(failed("set_nonblocking"))?;
        Ok(Some(socket))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Nobody replaces the socket of a living listener, and ours lives until this ends: the file cannot change
        // between this look and the removal, but by a hand that removes files.
        if !symlink_metadata(&self.path).is_ok_and(|file| identity(&file) == self.file) {
            return;
        }
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "the socket file stays");
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn check_user(
    users: Users,
    own: u32,
    socket: &UnixStream,
    path: &Path,
) -> Result<(), ExchangeError> {
    let other = socket_peercred(socket)
        .map_err(io::Error::from)
        .map_err(socket_failed("SO_PEERCRED", path))?;
    let found = other.uid.as_raw();
    if users == Users::Any || found == own {
        Ok(())
    } else {
        Err(ExchangeError::OtherUser {
            found,
            expected: own,
        })
    }
}

/// Listens at a path where a socket lies that nobody listens at any more.
fn replace_stale(path: &Path) -> Result<UnixListener, ExchangeError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let folder = File::open(folder).map_err(socket_failed("open the folder", path))?;
    // Of two that replace one stale socket, the second must see the socket of the first. The lock ends with `folder`.
    retried(REPLACING, "replace its socket", || {
        match folder.try_lock() {
            Ok(()) => Ok(Some(())),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(socket_failed("lock the folder", path)(error)),
        }
    })?;
    match is_stale(path) {
        Ok(true) => std::fs::remove_file(path).map_err(socket_failed("remove", path))?,
        Ok(false) => {}
        // Its listener has just ended, and has removed it.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(socket_failed("look at", path)(error)),
    }
    UnixListener::bind(path).map_err(socket_failed("bind", path))
}

/// Whether a socket lies there that no process has open. A listener does not notice the question: Linux refuses a
/// datagram socket for its type (EPROTOTYPE) where a listener lives, and for want of a process where none does.
fn is_stale(path: &Path) -> io::Result<bool> {
    if !symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let asked = UnixDatagram::unbound()?.connect(path);
    Ok(asked.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused))
}

fn socket_failed(step: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> ExchangeError {
    let path = path.display().to_string();
    move |source| ExchangeError::Socket { step, path, source }
}

/// Tries until something comes, at most `timeout`.
fn retried<T>(
    timeout: Duration,
    what: &'static str,
    mut attempt: impl FnMut() -> Result<Option<T>, ExchangeError>,
) -> Result<T, ExchangeError> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(result) = attempt()? {
            return Ok(result);
        }
        if Instant::now() >= deadline {
            return Err(ExchangeError::TimedOut { what, timeout });
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Nic, QueuePairConfig, RemoteMemory, SoftOptions, State};

    const PATIENCE: Duration = Duration::from_secs(10);

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
        let endpoint = |peer: &Peer, endpoint: &Endpoint| {
            frame::send(&peer.socket, Kind::Endpoint, endpoint, PATIENCE).unwrap();
        };
        // An endpoint on a device of somebody else: here, on ours.
        let error = said("gid", connect, |_, peer| {
            endpoint(
                peer,
                &Endpoint {
                    gid: peer.gid,
                    qpn: 1,
                    psn: 1,
                    card: None,
                },
            );
        });
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        let error = said("qpn", connect, |device, peer| {
            endpoint(
                peer,
                &Endpoint {
                    gid: device.gid(),
                    qpn: 1 << 24,
                    psn: 1,
                    card: None,
                },
            );
        });
        assert!(matches!(error, Error::BadEndpoint { .. }), "{error}");

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
        assert!(
            matches!(error, Error::Exchange(ExchangeError::Malformed { .. })),
            "{error}"
        );
        let error = said("step", exchange, send(Kind::Barrier, "ready"));
        assert!(
            matches!(error, Error::Exchange(ExchangeError::OutOfStep { .. })),
            "{error}"
        );
        let barrier = |_: &Device, peer: &mut Peer| peer.barrier("here");
        let error = said("barrier", barrier, send(Kind::Barrier, "there"));
        assert!(
            matches!(error, Error::Exchange(ExchangeError::OtherBarrier { .. })),
            "{error}"
        );
        let error = said("gone", barrier, |_, peer| {
            peer.socket.shutdown(std::net::Shutdown::Both).unwrap();
        });
        assert!(
            matches!(error, Error::Exchange(ExchangeError::Closed { .. })),
            "{error}"
        );
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

    fn fresh_path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("warpbell-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_living_one_stays() {
        let path = fresh_path("stale");
        // std leaves the file where it is.
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let living = Listener::bind(&path).unwrap();
        let error = Listener::bind(&path).unwrap_err();
        assert!(
            matches!(&error, Error::Exchange(ExchangeError::Socket { step: "bind", source, .. })
                if source.kind() == ErrorKind::AddrInUse),
            "{error}"
        );
        // The refused one has neither disturbed the living one nor removed its file.
        assert!(living.accept().unwrap().is_none());
        UnixStream::connect(&path).unwrap();
        drop(living);
        assert!(!path.exists());
    }

    #[test]
    fn of_many_that_replace_one_stale_socket_one_listens() {
        let path = fresh_path("race");
        for _ in 0..50 {
            drop(UnixListener::bind(&path).unwrap());
            let all: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4)
                    .map(|_| scope.spawn(|| Listener::bind(&path)))
                    .collect();
                threads.into_iter().map(|one| one.join().unwrap()).collect()
            });
            assert_eq!(all.iter().filter(|bound| bound.is_ok()).count(), 1);
            UnixStream::connect(&path).unwrap();
        }
    }

    #[test]
    fn no_file_but_a_socket_is_replaced() {
        let path = fresh_path("file");
        std::fs::write(&path, "kept").unwrap();
        assert!(Listener::bind(&path).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_listener_removes_its_own_socket_alone() {
        let path = fresh_path("own");
        let first = Listener::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = Listener::bind(&path).unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    /// The system reports the caller's user truly; for the listener, its own user is another one.
    #[test]
    fn a_process_of_another_user_is_turned_away() {
        let path = fresh_path("user");
        let mut listener = Listener::bind(&path).unwrap();
        let ours = own_user();
        listener.own = ours + 1;
        let _caller = UnixStream::connect(&path).unwrap();
        let error = listener.accept().unwrap_err();
        let (found, expected) = (ours, ours + 1);
        assert!(
            matches!(error, ExchangeError::OtherUser { found: f, expected: e } if (f, e) == (found, expected)),
            "{error}"
        );
        // Who comes next is served, and everybody is where that was asked for.
        listener.own = ours;
        let _next = UnixStream::connect(&path).unwrap();
        assert!(listener.accept().unwrap().is_some());
        (listener.users, listener.own) = (Users::Any, ours + 1);
        let _any = UnixStream::connect(&path).unwrap();
        assert!(listener.accept().unwrap().is_some());
    }

    /// A listener that ends takes its socket along, perhaps just before another one looks at it.
    #[test]
    fn a_socket_that_has_gone_meanwhile_is_no_error() {
        let path = std::env::temp_dir().join(format!("warpbell-gone-{}", std::process::id()));
        drop(replace_stale(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_device_does_not_join_itself() {
        let path = std::env::temp_dir().join(format!("warpbell-self-{}", std::process::id()));
        let device = Device::open(Nic::Soft(SoftOptions::default())).unwrap();
        std::thread::scope(|scope| {
            let joiner = scope.spawn(|| Peer::join(&device, &path, PATIENCE).unwrap_err());
            let listener = Peer::listen(&device, &path, PATIENCE).unwrap_err();
            for error in [listener, joiner.join().unwrap()] {
                assert!(matches!(error, Error::Soft { .. }), "{error}");
            }
        });
    }
}
