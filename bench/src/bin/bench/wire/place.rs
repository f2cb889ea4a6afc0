//! Where an end of the wire is.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::{AddrParseError, IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::str::FromStr;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// An address, perhaps one of another network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    namespace: Option<String>,
    address: IpAddr,
}

impl FromStr for Place {
    type Err = AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (namespace, address) = match text.split_once('/') {
            Some((namespace, address)) => (Some(namespace.to_owned()), address),
            None => (None, text),
        };
        Ok(Self {
            namespace,
            address: address.parse()?,
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        self.address.fmt(f)
    }
}

impl Place {
    /// The address, at a port that the system chooses.
    pub const fn address(&self) -> SocketAddr {
        SocketAddr::new(self.address, 0)
    }

    /// A socket there.
    pub fn socket(&self) -> io::Result<UdpSocket> {
        self.inside(|| UdpSocket::bind(self.address()))?
    }

    /// Does something there. A socket belongs to the namespace in which it was opened, whoever uses it.
    pub fn inside<R>(&self, act: impl FnOnce() -> R) -> io::Result<R> {
        let Some(name) = &self.namespace else {
            return Ok(act());
        };
        let file = |path: &Path| {
            let named = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            };
            File::open(path).map_err(named)
        };
        let here = file(Path::new("/proc/thread-self/ns/net"))?;
        let there = file(&Path::new("/run/netns").join(name))?;
        enter(there)?;
        let result = act();
        enter(here)?;
        Ok(result)
    }
}

fn enter(namespace: impl AsFd) -> io::Result<()> {
    let network = Some(LinkNameSpaceType::Network);
    Ok(move_into_link_name_space(namespace.as_fd(), network)?)
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn a_place_is_read_as_it_is_shown() {
        for text in ["127.0.0.2", "one/10.79.0.1", "two/fd79::2"] {
            let place: Place = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
            assert!(text.ends_with(&place.address().ip().to_string()));
        }
        for text in ["", "one/", "one", "one/two/10.79.0.1", "10.79.0.1:4791"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_namespace_that_is_not_there_is_named() {
        let place: Place = "no-such-namespace/127.0.0.1".parse().unwrap();
        let error = place.socket().unwrap_err().to_string();
        assert!(
            error.starts_with("/run/netns/no-such-namespace: "),
            "{error}"
        );
    }
}
