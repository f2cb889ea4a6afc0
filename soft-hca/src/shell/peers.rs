//! Links to the HCAs of other processes.
//!
//! Each process listens at an abstract socket that its user and its HCA's address name. Of two that want to reach each
//! other at the same moment, one has to make the link, and once: the process with the higher address joins, the one
//! with the lower address asks it to. So links are made in one place, the lower one's listener, one after the other,
//! and listeners wait for those of lower addresses only, never in a circle.
//!
//! ```text
//! hello, 16 bytes:  0 magic u32   4 version u32   8 wish u32   12 address u32, in the host's order
//! join: hello ->   <- shared memory (`offer`)   <- ready byte
//! come: hello ->   (the other joins)            <- ready byte
//! ```

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::prelude::v1::*;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use rustix::net::Shutdown;
use rustix::net::sockopt::socket_peercred;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::hca::SoftHca;
use super::shared_link::{accept, offer};
use crate::engine::WireAddress;

const MAGIC: u32 = u32::from_be_bytes(*b"WBhc");
const VERSION: u32 = 1;
const HELLO_BYTES: usize = size_of::<Hello>();
const READY: [u8; 1] = [1];
/// How long one answer of the other process may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same where the other has to ask back first.
const LONG_PATIENCE: Duration = Duration::from_secs(5);

/// What a process that says hello wants of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Wish {
    /// To make a link to the sender.
    Join = 1,
    /// To send a hello of its own, that it joins.
    Come = 2,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Hello {
    magic: u32,
    version: u32,
    wish: u32,
    address: u32,
}

/// The way from an HCA to those of other processes of the same user, and theirs to it, as long as this lives.
///
/// Which HCA is meant says its address, or the GID that tells it (see [`gid`](super::gid)).
pub struct Peers {
    hca: Arc<SoftHca>,
    /// Where others call, for the end of the thread that answers them.
    listener: UnixListener,
    /// Held by who joins another: two of this process would join twice.
    joining: Mutex<()>,
}

impl Peers {
    /// Listens at an address that no HCA of this user has: the one for the HCA that [`serve`](Self::serve) is given.
    ///
    /// # Errors
    /// The system gives no socket.
    pub fn listen() -> io::Result<(WireAddress, UnixListener)> {
        for _ in 0..16 {
            let address = SoftHca::fresh_address();
            match UnixListener::bind_addr(&name(address)?) {
                Ok(listener) => return Ok((address, listener)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    /// Answers, on a thread, those who want to reach this HCA.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn serve(hca: Arc<SoftHca>, listener: UnixListener) -> io::Result<Arc<Self>> {
        let calls = listener.try_clone()?;
        let peers = Arc::new(Self {
            hca,
            listener,
            joining: Mutex::new(()),
        });
        let served = Arc::downgrade(&peers);
        let thread = thread::Builder::new().name("warpbell-peers".into());
        thread.spawn(move || answer_all(&calls, &served))?;
        Ok(peers)
    }

    /// Makes sure that there is a link to that HCA.
    ///
    /// # Errors
    /// No process of this user has it, or that one does not answer as it should in time.
    pub fn reach(&self, peer: WireAddress) -> io::Result<()> {
        if self.is_linked(peer)? {
            return Ok(());
        }
        if self.hca.address().0 > peer.0 {
            return self.join(peer);
        }
        let mut socket = self.call(peer, Wish::Come)?;
        wait_until_ready(&mut socket, LONG_PATIENCE)
    }

    fn is_linked(&self, peer: WireAddress) -> io::Result<bool> {
        let mtu = self.hca.path_mtu(peer).map_err(io::Error::other)?;
        Ok(mtu.is_some())
    }

    fn join(&self, peer: WireAddress) -> io::Result<()> {
        let _alone = self.joining.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_linked(peer)? {
            return Ok(());
        }
        let mut socket = self.call(peer, Wish::Join)?;
        let link = accept(&socket, self.hca.address(), peer, PATIENCE).map_err(io::Error::other)?;
        wait_until_ready(&mut socket, PATIENCE)?;
        self.hca.attach(link).map_err(io::Error::other)
    }

    /// Connects, and says hello.
    fn call(&self, peer: WireAddress, wish: Wish) -> io::Result<UnixStream> {
        let mut socket = UnixStream::connect_addr(&name(peer)?)?;
        check_user(&socket)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let hello = Hello {
            magic: MAGIC,
            version: VERSION,
            wish: wish as u32,
            address: self.hca.address().0,
        };
        socket.write_all(hello.as_bytes())?;
        Ok(socket)
    }

    fn answer(&self, mut socket: UnixStream) -> io::Result<()> {
        check_user(&socket)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut hello = [0; HELLO_BYTES];
        socket.read_exact(&mut hello)?;
        let own = self.hca.address();
        let (wish, peer) = understand(own, hello)?;
        match wish {
            Wish::Join => {
                let link = offer(&socket, own, peer).map_err(io::Error::other)?;
                self.hca.attach(link).map_err(io::Error::other)?;
            }
            Wish::Come => self.join(peer)?,
        }
        socket.write_all(&READY)
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        // Ends the thread's waiting. A socket that listens can be shut down.
        let _ = rustix::net::shutdown(&self.listener, Shutdown::Both);
    }
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers")
            .field("hca", &self.hca)
            .finish_non_exhaustive()
    }
}

/// Answers those who call, until nobody has the peers any more.
fn answer_all(calls: &UnixListener, peers: &Weak<Peers>) {
    loop {
        let call = calls.accept();
        let Some(peers) = peers.upgrade() else {
            return;
        };
        match call {
            // A hello that cannot be ends its own connection, and the other end hears that.
            Ok((socket, _)) => drop(peers.answer(socket)),
            // Too many open files: some may be closed later.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// What a hello wishes, and who says it.
///
/// # Errors
/// `InvalidData` for one that nobody of this version would say to the HCA with the address `own`.
pub fn understand(own: WireAddress, hello: [u8; HELLO_BYTES]) -> io::Result<(Wish, WireAddress)> {
    let hello: Hello = zerocopy::transmute!(hello);
    let known = hello.magic == MAGIC && hello.version == VERSION;
    let mut wishes = [Wish::Join, Wish::Come].into_iter();
    let wish = wishes.find(|wish| *wish as u32 == hello.wish);
    let peer = WireAddress(hello.address);
    let fits = match wish {
        Some(Wish::Join) => peer.0 > own.0,
        Some(Wish::Come) => peer.0 < own.0,
        None => false,
    };
    match wish {
        Some(wish) if known && fits => Ok((wish, peer)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn wait_until_ready(socket: &mut UnixStream, patience: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(patience))?;
    let mut byte = [0];
    socket.read_exact(&mut byte)?;
    if byte == READY {
        Ok(())
    } else {
        Err(io::ErrorKind::InvalidData.into())
    }
}

/// Where the HCA of this user with that address listens. Abstract: the name goes when the process does.
fn name(address: WireAddress) -> io::Result<SocketAddr> {
    let user = rustix::process::geteuid().as_raw();
    SocketAddr::from_abstract_name(format!("warpbell-hca-{user}-{:08x}", address.0))
}

/// Abstract names are everybody's, so the other end may be somebody else's process.
fn check_user(socket: &UnixStream) -> io::Result<()> {
    let user = socket_peercred(socket)?.uid;
    if user == rustix::process::geteuid() {
        Ok(())
    } else {
        Err(io::ErrorKind::PermissionDenied.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::HcaOptions;
    use rustix::process::Uid;
    use std::time::Instant;

    fn served() -> Arc<Peers> {
        let (address, listener) = Peers::listen().unwrap();
        let hca = SoftHca::new(HcaOptions {
            address: Some(address),
            ..HcaOptions::default()
        });
        Peers::serve(Arc::new(hca), listener).unwrap()
    }

    /// Four words of 32 bits in the host's order: who joins has the higher address, who asks for it the lower one.
    #[test]
    fn a_hello_is_understood_if_all_of_it_fits() {
        let own = WireAddress(0x100);
        let magic = u32::from_be_bytes(*b"WBhc");
        let hear = |words: [u32; 4]| understand(own, zerocopy::transmute!(words)).ok();
        let (join, come) = (Some(Wish::Join), Some(Wish::Come));
        for (wish, address, understood) in [
            (1, 0x101, join),
            (1, u32::MAX, join),
            (1, 0x100, None),
            (1, 0x0ff, None),
            (1, 0, None),
            (2, 0x0ff, come),
            (2, 0, come),
            (2, 0x100, None),
            (2, 0x101, None),
            (0, 0x101, None),
            (0, 0x0ff, None),
            (3, 0x101, None),
            (3, 0x0ff, None),
        ] {
            let expected = understood.map(|wish| (wish, WireAddress(address)));
            assert_eq!(hear([magic, VERSION, wish, address]), expected);
            assert_eq!(hear([magic, VERSION + 1, wish, address]), None);
            assert_eq!(hear([magic.swap_bytes(), VERSION, wish, address]), None);
            assert_eq!(hear([0, 0, wish, address]), None);
        }
    }

    #[test]
    fn both_reach_each_other_at_the_same_moment() {
        for _ in 0..20 {
            let (first, second) = (served(), served());
            let addresses = [first.hca.address(), second.hca.address()];
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| first.reach(addresses[1]).unwrap());
                    scope.spawn(|| second.reach(addresses[0]).unwrap());
                }
            });
            for (peers, other) in [(&first, addresses[1]), (&second, addresses[0])] {
                assert!(peers.is_linked(other).unwrap());
            }
        }
    }

    /// Does something on a thread of the user `nobody`, which the system takes for another process's.
    fn as_nobody<R: Send + 'static>(act: impl FnOnce() -> R + Send + 'static) -> R {
        let thread = thread::spawn(|| {
            rustix::thread::set_thread_uid(Uid::from_raw(65_534)).unwrap();
            act()
        });
        thread.join().unwrap()
    }

    /// Names are for everybody to see, and to take: the next one must not follow from those before.
    #[test]
    fn who_knows_one_name_cannot_take_those_that_come() {
        let (known, _listener) = Peers::listen().unwrap();
        let taken: Vec<_> = (1..=64)
            .filter_map(|step| {
                let next = WireAddress(known.0.wrapping_add(step));
                UnixListener::bind_addr(&name(next).unwrap()).ok()
            })
            .collect();
        assert!(taken.len() > 32, "a squatter gets its names");
        for _ in 0..16 {
            Peers::listen().unwrap();
        }
    }

    #[test]
    #[ignore = "needs root, to be another user"]
    fn a_name_that_another_user_has_taken_is_not_believed() {
        let peers = served();
        for peer in [1, u32::MAX].map(WireAddress) {
            let name = name(peer).unwrap();
            let squatter = as_nobody(move || UnixListener::bind_addr(&name).unwrap());
            let error = peers.reach(peer).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            let (mut caller, _) = squatter.accept().unwrap();
            let mut words = Vec::new();
            caller.read_to_end(&mut words).unwrap();
            assert!(words.is_empty(), "it was told something");
        }
    }

    #[test]
    #[ignore = "needs root, to be another user"]
    fn another_user_gets_no_link() {
        let peers = served();
        let name = name(peers.hca.address()).unwrap();
        let hello = Hello {
            magic: MAGIC,
            version: VERSION,
            wish: Wish::Join as u32,
            address: peers.hca.address().0.saturating_add(1),
        };
        let words = as_nobody(move || {
            let mut socket = UnixStream::connect_addr(&name).unwrap();
            // The other end may be closed by now.
            let _ = socket.write_all(hello.as_bytes());
            let mut words = Vec::new();
            let _ = socket.read_to_end(&mut words);
            words
        });
        assert!(words.is_empty());
    }

    #[test]
    fn an_address_that_nobody_has_is_refused_at_once() {
        let peers = served();
        let nobody = SoftHca::fresh_address();
        let error = peers.reach(nobody).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    }

    /// The thread lets go of the HCA, and the address is free again.
    #[test]
    fn nobody_answers_for_peers_that_are_gone() {
        let peers = served();
        let (hca, address) = (Arc::downgrade(&peers.hca), peers.hca.address());
        drop(peers);
        let deadline = Instant::now() + Duration::from_secs(300);
        while hca.strong_count() > 0 || UnixListener::bind_addr(&name(address).unwrap()).is_err() {
            assert!(Instant::now() < deadline, "the thread keeps it");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn a_hello_that_cannot_be_ends_its_connection_alone() {
        let (peers, other) = (served(), served());
        let own = peers.hca.address();
        let good = |wish, address| Hello {
            magic: MAGIC,
            version: VERSION,
            wish,
            address,
        };
        let higher = own.0.wrapping_add(1).max(1);
        let wrong = [
            Hello {
                magic: 0,
                ..good(Wish::Join as u32, higher)
            },
            Hello {
                version: 2,
                ..good(Wish::Join as u32, higher)
            },
            good(0, higher),
            good(Wish::Join as u32, own.0),
            good(Wish::Come as u32, own.0),
        ];
        for hello in wrong {
            let mut socket = UnixStream::connect_addr(&name(own).unwrap()).unwrap();
            socket.write_all(hello.as_bytes()).unwrap();
            let error = wait_until_ready(&mut socket, PATIENCE).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        }
        peers.reach(other.hca.address()).unwrap();
    }
}
