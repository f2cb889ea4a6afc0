//! A path at which other processes join, one after the other.

use std::collections::VecDeque;
use std::fs::{File, Metadata, TryLockError, symlink_metadata};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::socket::{Peeked, check_user, own_user, peek, retried, socket_failed};
use super::{Peer, Role, Users};
use crate::frame::ExchangeError;
use crate::{Device, Error};

/// How long a listener waits while others replace stale sockets in the same folder.
const REPLACING: Duration = Duration::from_secs(1);

/// How many callers may be silent at once; one more ends the connection of the first.
const MOST_SILENT: usize = 64;

/// A path at which other processes [`join`](Peer::join), one after the other. Who comes while nobody is taken waits,
/// as long as its timeout lasts. The socket file is gone once this is dropped; a file that somebody else has put at the
/// path since stays.
///
/// ```no_run
/// # use std::time::Duration;
/// # use warpbell_host_init::peer::Listener;
/// # use warpbell_host_init::{Device, Error};
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
    /// Those who have called and were not taken, in their order.
    callers: Mutex<VecDeque<Caller>>,
}

/// Somebody who has called.
#[derive(Debug)]
struct Caller {
    socket: UnixStream,
    since: Instant,
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
            callers: Mutex::default(),
        })
    }

    /// Takes the process that has spoken first, if one has, and makes the wire to it. That, and each later step with it,
    /// waits for at most `timeout`. Processes that have called and are silent keep nobody waiting.
    ///
    /// # Errors
    /// [`Error::Exchange`] if what comes is no Warpbell process of this version, belongs to another user, does not go on,
    /// or has been silent for `timeout`; others may still join.
    pub fn take(&self, device: &Device, timeout: Duration) -> Result<Option<Peer>, Error> {
        let socket = self.accept(timeout)?;
        let greet = |socket| Peer::greet(device, socket, Role::Listener, timeout);
        socket.map(greet).transpose()
    }

    /// The caller that has spoken first, or has gone, if one has.
    pub(super) fn accept(&self, patience: Duration) -> Result<Option<UnixStream>, ExchangeError> {
        let failed = |step| socket_failed(step, &self.path);
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(failed("accept")(error)),
            };
            check_user(self.users, self.own, &socket, &self.path)?;
            let since = Instant::now();
            if callers.len() == MOST_SILENT {
                callers.pop_front();
            }
            callers.push_back(Caller { socket, since });
        }
        // One that has gone keeps nobody waiting, either.
        let ready = |caller: &Caller| peek(&caller.socket) != Peeked::Nothing;
        if let Some(caller) = callers
            .iter()
            .position(ready)
            .and_then(|at| callers.remove(at))
        {
            let waits = caller.socket.set_nonblocking(false);
            waits.map_err(failed("set_nonblocking"))?;
            return Ok(Some(caller.socket));
        }
        match callers.pop_front_if(|caller| caller.since.elapsed() > patience) {
            None => Ok(None),
            Some(_) => Err(ExchangeError::TimedOut {
                what: "say who it is",
                timeout: patience,
            }),
        }
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::Nic;
    use crate::soft::SoftOptions;

    const PATIENCE: Duration = Duration::from_secs(300);

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
        assert!(living.accept(PATIENCE).unwrap().is_none());
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
        let error = listener.accept(PATIENCE).unwrap_err();
        let (found, expected) = (ours, ours + 1);
        assert_matches!(
            error =>
                ExchangeError::OtherUser { found: f, expected: e } if (f, e) == (found, expected)
        );
        // Who comes next is served, and everybody is where that was asked for.
        listener.own = ours;
        let mut next = UnixStream::connect(&path).unwrap();
        next.write_all(b"x").unwrap();
        assert!(listener.accept(PATIENCE).unwrap().is_some());
        (listener.users, listener.own) = (Users::Any, ours + 1);
        let mut any = UnixStream::connect(&path).unwrap();
        any.write_all(b"x").unwrap();
        assert!(listener.accept(PATIENCE).unwrap().is_some());
    }

    /// A listener that ends takes its socket along, perhaps just before another one looks at it.
    #[test]
    fn a_socket_that_has_gone_meanwhile_is_no_error() {
        let path = std::env::temp_dir().join(format!("warpbell-gone-{}", std::process::id()));
        drop(replace_stale(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
    }

    /// Those that have called before and say nothing, or have gone, keep nobody waiting; at the end of its patience the
    /// listener gives them up one by one.
    #[test]
    fn silent_callers_keep_nobody_waiting() {
        let path = fresh_path("silent");
        let open = || Device::open(Nic::Soft(SoftOptions::default())).unwrap();
        let (ours, theirs) = (open(), open());
        let listener = Listener::bind(&path).unwrap();
        let silent: Vec<_> = (0..MOST_SILENT + 3)
            .map(|_| {
                let caller = UnixStream::connect(&path).unwrap();
                // More than the listener's own room for callers are taken one after the other.
                assert!(listener.accept(PATIENCE).unwrap().is_none());
                caller
            })
            .collect();
        drop(UnixStream::connect(&path).unwrap());
        let gone = listener.take(&ours, PATIENCE);
        let error = gone.map(|taken| taken.is_some()).unwrap_err();
        assert_matches!(error => Error::Exchange(ExchangeError::Closed { .. }));
        let at = path.clone();
        let joiner = std::thread::spawn(move || Peer::join(&theirs, &at, PATIENCE).map(drop));
        let took = retried(PATIENCE, "join", || {
            let taken = listener.take(&ours, PATIENCE);
            taken.map_err(|error| panic!("{error}"))
        });
        drop(took.unwrap());
        joiner.join().unwrap().unwrap();
        let given_up = listener.take(&ours, Duration::ZERO);
        let error = given_up.map(|taken| taken.is_some()).unwrap_err();
        assert_matches!(error => Error::Exchange(ExchangeError::TimedOut { .. }));
        assert!(listener.take(&ours, PATIENCE).unwrap().is_none());
        drop(silent);
    }
}
