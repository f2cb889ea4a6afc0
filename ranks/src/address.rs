//! Where rank 0 listens, and how the others get there.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::time::{Duration, Instant};

use rustix::io::ioctl_fionbio;
use rustix::net::sockopt::{set_tcp_nodelay, socket_peercred};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, connect as connect_socket,
    listen, socket_with,
};
use rustix::process::geteuid;

use crate::{PmiFd, RanksError};

/// Connections that may wait to be accepted: more than ranks come at once.
const BACKLOG: i32 = 4096;

/// How long one attempt to connect may take. A lost packet costs one attempt.
const ATTEMPT: Duration = Duration::from_secs(3);

/// How the ranks find rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Root {
    /// Not at all: there is one rank.
    Alone,
    /// At a TCP port. `Display` gives `host:port` or `[::1]:port`.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
    },
    /// At a socket in Linux's abstract namespace that processes of one user and one host share.
    Local(String),
    /// Through the launcher's process manager, in which rank 0 leaves its address and a random secret.
    Pmi {
        /// The connection to it.
        fd: PmiFd,
        /// Whether all ranks are on this host.
        one_host: bool,
    },
}

impl Root {
    /// Reads `host:port`; nothing if it is something else, or the port is 0.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?,
            None if host.contains(':') => return None,
            None => host,
        };
        let plain = |letter: char| letter.is_ascii_graphic() && !"[],/".contains(letter);
        let host = (!host.is_empty() && host.chars().all(plain)).then(|| host.into())?;
        Some(Self::Tcp { host, port })
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("no network"),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Local(name) => write!(f, "@{name}"),
            Self::Pmi { one_host, .. } => f.write_str(if *one_host {
                "by PMI on this host"
            } else {
                "by PMI"
            }),
        }
    }
}

pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.parse::<IpAddr>();
    address.map_or(host == "localhost", |ip| ip.is_loopback())
}

/// What is wrong with a root that is no address.
fn no_address() -> RanksError {
    RanksError::NoRoot("a root in `Config`")
}

/// Rank 0's listener.
pub(crate) struct Door {
    pub socket: OwnedFd,
    local: bool,
}

impl Door {
    /// Listens for a root that the others know. A name is no address to listen at: a host's own name often leads to
    /// loopback there. So rank 0 listens at all addresses then, unless it is told another one.
    pub(crate) fn at(root: &Root, bind: Option<SocketAddr>) -> Result<Self, RanksError> {
        match root {
            Root::Local(name) => {
                Self::local(name).map_err(|error| RanksError::Bind(root.to_string(), error))
            }
            Root::Tcp { host, port } => {
                let localhost = is_loopback(host).then_some(Ipv4Addr::LOCALHOST.into());
                let ip = host.parse().ok().or(localhost);
                let ip = bind.map(|bind| bind.ip()).or(ip);
                let told = bind.map(|bind| bind.port()).filter(|port| *port != 0);
                Ok(Self::tcp(ip, told.unwrap_or(*port))?.0)
            }
            Root::Alone | Root::Pmi { .. } => Err(no_address()),
        }
    }

    /// Listens at one address, or at all of them; returns the port, too, which the system chooses for 0.
    pub(crate) fn tcp(ip: Option<IpAddr>, port: u16) -> Result<(Self, u16), RanksError> {
        let listen = |ip: IpAddr| {
            let listener = TcpListener::bind((ip, port))?;
            let port = listener.local_addr()?.port();
            Ok((Self::new(listener.into(), false)?, port))
        };
        // Linux gives a listener at `[::]` the callers of IPv4, too.
        let all = Ipv6Addr::UNSPECIFIED.into();
        let opened = match ip {
            Some(ip) => listen(ip),
            None => listen(all).or_else(|_| listen(Ipv4Addr::UNSPECIFIED.into())),
        };
        opened.map_err(|source| {
            let address = SocketAddr::new(ip.unwrap_or(all), port);
            RanksError::Bind(address.to_string(), source)
        })
    }

    fn local(name: &str) -> io::Result<Self> {
        let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(name)?)?;
        Self::new(listener.into(), true)
    }

    fn new(socket: OwnedFd, local: bool) -> io::Result<Self> {
        ioctl_fionbio(&socket, true)?;
        // The standard library leaves room for 128 callers only.
        listen(&socket, BACKLOG)?;
        Ok(Self { socket, local })
    }

    /// The next caller; nothing for a local one of another user, who is turned away.
    pub(crate) fn accept(&self) -> rustix::io::Result<Option<OwnedFd>> {
        let socket = accept_with(&self.socket, SocketFlags::CLOEXEC)?;
        if self.local {
            let ours = socket_peercred(&socket)?.uid == geteuid();
            return Ok(ours.then_some(socket));
        }
        set_tcp_nodelay(&socket, true)?;
        Ok(Some(socket))
    }
}

/// Why an attempt to join failed.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Another one may succeed.
    Again(String),
    Refused(RanksError),
}

impl<E: Into<io::Error>> From<E> for Attempt {
    fn from(error: E) -> Self {
        Self::Again(error.into().to_string())
    }
}

/// One attempt to reach rank 0.
pub(crate) fn connect(root: &Root, until: Instant) -> Result<OwnedFd, Attempt> {
    let name = match root {
        Root::Local(name) => name,
        Root::Tcp { host, port } => return Ok(connect_tcp(host, *port, until)?),
        Root::Alone | Root::Pmi { .. } => return Err(Attempt::Refused(no_address())),
    };
    // It does not wait for room in the listener's queue: anybody on the host may listen there, and accept nobody.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect_socket(
        &socket,
        &SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    )?;
    if socket_peercred(&socket)?.uid == geteuid() {
        return Ok(socket);
    }
    Err(Attempt::Refused(RanksError::OtherUser(root.to_string())))
}

fn connect_tcp(host: &str, port: u16, until: Instant) -> io::Result<OwnedFd> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    // A name is looked up for each attempt: that of a container may come late.
    for address in (host, port).to_socket_addrs()? {
        let left = until.saturating_duration_since(Instant::now());
        let left = left.clamp(Duration::from_millis(1), ATTEMPT);
        match TcpStream::connect_timeout(&address, left) {
            // Where nobody listens at a port, Linux may choose it for the caller, who then is connected to himself.
            Ok(socket) if socket.local_addr()? == socket.peer_addr()? => {
                last = ErrorKind::ConnectionRefused.into();
            }
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket.into());
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_root_that_accepts_nobody_does_not_hold_the_callers() {
        let name = format!("warpbell-full-{}", std::process::id());
        let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(&name).unwrap());
        let listener = listener.unwrap();
        listen(&listener, 0).unwrap();
        let address = Root::Local(name);
        // Linux queues one caller more than the backlog.
        let _waiting = connect(&address, Instant::now()).unwrap();
        assert_matches!(
            connect(&address, Instant::now()) =>
                Err(Attempt::Again(why)) if why.contains("temporarily unavailable")
        );
    }

    #[test]
    fn a_root_is_a_host_and_a_port() {
        for (text, host, port) in [
            ("node7:5000", "node7", 5000),
            ("10.0.0.1:1", "10.0.0.1", 1),
            ("[fe80::1%eth0]:65535", "fe80::1%eth0", 65535),
        ] {
            let expected = Root::Tcp {
                host: host.into(),
                port,
            };
            assert_eq!(Root::parse(text), Some(expected.clone()));
            assert_eq!(expected.to_string(), text);
        }
        let missing = ["", "node7", "node7:", ":5000", "node7:0", "node7:65536"];
        for text in missing.into_iter().chain(["::1:5", "[::1:5", "a b:1"]) {
            assert_eq!(Root::parse(text), None, "{text}");
        }
    }
}
