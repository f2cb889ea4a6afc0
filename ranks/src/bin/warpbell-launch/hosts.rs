//! The hosts of a job, and which ranks each has.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::net::IpAddr;
use std::ops::Range;

use thiserror::Error;

/// A machine, and its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// As ssh takes it: a name or an address, perhaps with a user before an `@`.
    pub name: String,
    pub ranks: Range<u32>,
}

/// Why a list of hosts is none.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum HostsError {
    #[error("--hosts {0}: a host has no name")]
    Unnamed(String),
    #[error("--hosts: {0} begins with a dash, so it cannot be a host")]
    Dash(String),
    #[error("--hosts: {host} has {slots:?} slots; it must be a whole number from 1")]
    Slots { host: String, slots: String },
    #[error("--hosts: {0} is there twice; name each host once, with its slots (host:slots)")]
    Twice(String),
    #[error(
        "--hosts: {0} and {1} are both this machine; name it once, with its slots (host:slots)"
    )]
    Same(String, String),
    #[error("{ranks} ranks, but {list} has only {slots} slots; name more (host:slots)")]
    TooFew {
        ranks: u32,
        list: String,
        slots: u64,
    },
    #[error(
        "{0} is each machine's own name for itself; give --address, where the other hosts reach rank 0"
    )]
    Own(String),
}

impl Host {
    /// Whether it is this machine, so that nothing needs to carry commands there.
    pub fn is_here(&self) -> bool {
        is_here(&self.name)
    }

    /// Its name for other programs than ssh.
    pub fn address(&self) -> &str {
        self.name.rsplit('@').next().unwrap_or(&self.name)
    }
}

/// Such as `node1 (ranks 0 to 3)`.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.ranks;
        write!(f, "{} (ranks {start} to {})", self.name, end - 1)
    }
}

fn is_here(name: &str) -> bool {
    let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    is_loopback(name) || name == own.trim()
}

/// Whether each machine calls itself so.
fn is_loopback(name: &str) -> bool {
    let address = name.parse::<IpAddr>();
    address.map_or(name == "localhost", |ip| ip.is_loopback())
}

/// Gives each host of a list such as `a:2,user@b,[fd00::1]:4` a block of ranks, up to its slots. Hosts that get none are
/// left out.
pub fn share_out(list: &str, ranks: u32) -> Result<Vec<Host>, HostsError> {
    let mut hosts = Vec::new();
    let mut names = BTreeSet::new();
    let mut here: Option<&str> = None;
    let (mut next, mut all) = (0, 0);
    for word in list.split(',') {
        let (name, slots) = split(word);
        if name.is_empty() {
            return Err(HostsError::Unnamed(list.into()));
        }
        // ssh would take it for an option.
        if name.starts_with('-') {
            return Err(HostsError::Dash(name.into()));
        }
        if !names.insert(name) {
            return Err(HostsError::Twice(name.into()));
        }
        if is_here(name)
            && let Some(other) = here.replace(name)
        {
            return Err(HostsError::Same(other.into(), name.into()));
        }
        let slots = match slots.map(|slots| (slots, slots.parse())) {
            None => 1,
            Some((_, Ok(number))) if number > 0 => number,
            Some((slots, _)) => {
                let (host, slots) = (name.into(), slots.into());
                return Err(HostsError::Slots { host, slots });
            }
        };
        let after = ranks.min(next + slots.min(ranks - next));
        if after > next {
            let (name, ranks) = (name.into(), next..after);
            hosts.push(Host { name, ranks });
        }
        next = after;
        all += u64::from(slots);
    }
    if next < ranks {
        let (list, slots) = (list.into(), all);
        return Err(HostsError::TooFew { ranks, list, slots });
    }
    Ok(hosts)
}

/// Where rank 0 is: the address without a port, and the port if it is given.
///
/// # Errors
/// [`HostsError::Own`] if the others would look for rank 0 on their own machine.
pub fn root<'a>(
    address: Option<&'a str>,
    hosts: &'a [Host],
) -> Result<(&'a str, Option<&'a str>), HostsError> {
    if let Some(address) = address {
        return Ok(split(address));
    }
    let first = hosts[0].address();
    if is_loopback(first) && hosts.len() > 1 {
        return Err(HostsError::Own(first.into()));
    }
    Ok((first, None))
}

/// A name, and the number behind the colon. An IPv6 address with a number stands in brackets.
fn split(word: &str) -> (&str, Option<&str>) {
    if let Some((name, rest)) = word.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return (name, rest.strip_prefix(':'));
    }
    match word.split_once(':') {
        Some((name, number)) if !number.contains(':') => (name, Some(number)),
        _ => (word, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(name: &str, ranks: Range<u32>) -> Host {
        let name = name.into();
        Host { name, ranks }
    }

    #[test]
    fn hosts_get_blocks_of_ranks_up_to_their_slots() {
        let shared = |list, ranks| share_out(list, ranks).unwrap();
        let both = [host("a", 0..2), host("me@b", 2..4)];
        assert_eq!(shared("a:2,me@b:2", 4), both);
        assert_eq!(shared("a:2,b:2", 2), [host("a", 0..2)]);
        assert_eq!(shared("a,b", 2), [host("a", 0..1), host("b", 1..2)]);
        let six = [host("fd00::1", 0..3), host("fd00::2", 3..4)];
        assert_eq!(shared("[fd00::1]:3,fd00::2", 4), six);
        assert_eq!(shared("a:4294967295,b:4294967295", 7), [host("a", 0..7)]);
    }

    #[test]
    fn a_wrong_list_is_an_error_that_names_the_host() {
        let own = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let own = own.trim();
        for (list, words) in [
            ("", "has no name"),
            ("a,,b", "has no name"),
            (":2", "has no name"),
            (
                "a:2,-oProxyCommand=x",
                "-oProxyCommand=x begins with a dash",
            ),
            ("a:0", r#"a has "0" slots"#),
            ("a:many", r#"a has "many" slots"#),
            ("a:", r#"a has "" slots"#),
            ("a:2,b,a:2", "a is there twice"),
            (
                "localhost:2,a,127.0.0.1:2",
                "localhost and 127.0.0.1 are both this machine",
            ),
            ("127.0.0.2,[::1]:3", "127.0.0.2 and ::1 are both"),
            (&*format!("{own}:2,127.0.0.1:2"), "and 127.0.0.1 are both"),
            ("a,b:2", "4 ranks, but a,b:2 has only 3 slots"),
        ] {
            let error = share_out(list, 4).unwrap_err().to_string();
            assert!(error.contains(words), "{list}: {error}");
        }
    }

    #[test]
    fn rank_0_is_at_the_first_host_or_where_the_user_says() {
        let hosts = [host("me@a", 0..1), host("b", 1..2)];
        assert_eq!(root(None, &hosts), Ok(("a", None)));
        for (address, expected) in [
            ("10.0.0.1", ("10.0.0.1", None)),
            ("10.0.0.1:77", ("10.0.0.1", Some("77"))),
            ("fd00::1", ("fd00::1", None)),
            ("[fd00::1]:77", ("fd00::1", Some("77"))),
        ] {
            assert_eq!(root(Some(address), &hosts), Ok(expected));
        }
        for name in ["localhost", "127.0.0.1", "127.9.9.9", "::1", "me@::1"] {
            let own = [host(name, 0..1), host("b", 1..2)];
            let address = own[0].address();
            assert_eq!(root(None, &own), Err(HostsError::Own(address.into())));
            assert_eq!(root(Some("c"), &own), Ok(("c", None)));
            assert_eq!(root(None, &own[..1]), Ok((address, None)));
        }
    }
}
