//! What can go wrong with a card, and what the user can do about it.

use std::fmt;
use std::io;
use std::net::IpAddr;

use mlx5_wqe::prm::{CommandStatus, PrmError, Refusal};

use super::bindings::{LIBIBVERBS, LoadError};
use crate::state::GidType;

/// Why a card, or the way to it, did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Mlx5Error {
    /// A library is not there.
    #[error(
        "{library} cannot be loaded ({source}); install rdma-core: {}",
        package(library)
    )]
    NoLibrary {
        /// Which one.
        library: &'static str,
        /// What the loader says.
        source: libloading::Error,
    },
    /// A library lacks a function.
    #[error("{library} has no {function}; install rdma-core 43 or later")]
    OldLibrary {
        /// Which library.
        library: &'static str,
        /// The function that is missing.
        function: &'static str,
    },
    /// No device has this name.
    #[error("there is no RDMA device {name}; {}", devices(found))]
    NoDevice {
        /// The name asked for.
        name: String,
        /// The devices that there are.
        found: Vec<String>,
    },
    /// The device is no mlx5 card.
    #[error("{name} is not an mlx5 device; choose a ConnectX-5 or later")]
    NotMlx5 {
        /// Its name.
        name: String,
    },
    /// The port is not there, or not up.
    #[error("port {port} of {name} is {state}; {remedy}")]
    Port {
        /// The device.
        name: String,
        /// Which port.
        port: u8,
        /// How it is.
        state: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The port has no GID as it was asked for.
    #[error("port {port} of {name} has no GID {}; {}", wanted(*kind, *address, *index), gids(found))]
    NoGid {
        /// The device.
        name: String,
        /// Which port.
        port: u8,
        /// The type asked for.
        kind: Option<GidType>,
        /// The address asked for.
        address: Option<IpAddr>,
        /// The index asked for.
        index: Option<u8>,
        /// Those that there are, in words.
        found: Vec<String>,
    },
    /// The port has no partition key at that index.
    #[error(
        "port {port} of {name} has no partition key at index {index}; choose one of `/sys/class/infiniband/{name}/ports/{port}/pkeys` that is not 0x0000"
    )]
    NoPartitionKey {
        /// The device.
        name: String,
        /// Which port.
        port: u8,
        /// The index asked for.
        index: u16,
    },
    /// The two ends are not members of one partition.
    #[error(
        "the other end has partition key {theirs:#06x}, this one {ours:#06x}; use the same key, of which one end at least is a full member (0x8000)"
    )]
    OtherPartition {
        /// The key here.
        ours: u16,
        /// The key there.
        theirs: u16,
    },
    /// The other end is in another InfiniBand subnet, and nobody said where the router is.
    #[error(
        "the other end {gid} is in another subnet than this port; set `Mlx5Options::router_lid` to the local identifier of this subnet's router (`ibrouters`)"
    )]
    NoRouter {
        /// The other end.
        gid: crate::state::Gid,
    },
    /// No kind of page with doorbells is to be had.
    #[error(
        "could not allocate a page of doorbells (UAR): {}; {remedy}",
        tried(attempts)
    )]
    NoUar {
        /// What was tried, and why it failed.
        attempts: Vec<(&'static str, io::Error)>,
        /// What to do.
        remedy: &'static str,
    },
    /// The card lacks something.
    #[error("{name} has no {what}; {remedy}")]
    Lacks {
        /// The device.
        name: String,
        /// What it has not.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// The other end is no card's port, or one of another kind.
    #[error(
        "the other end is {what}, and this one a port of {link}; connect ports of the same fabric"
    )]
    OtherFabric {
        /// What it is.
        what: &'static str,
        /// What this port speaks.
        link: Link,
    },
    /// A queue pair whose reset destroyed it and could not make it again.
    #[error("queue pair {qpn:#x} is gone, because its reset failed; drop it, and make another")]
    Gone {
        /// Its number.
        qpn: u32,
    },
    /// The card refused a command.
    #[error("could not {step}: {refusal}; {}", refused(refusal))]
    Refused {
        /// What was tried.
        step: &'static str,
        /// The card's status and syndrome.
        refusal: Refusal,
    },
    /// A number does not fit a command.
    #[error("could not {step}: {source}; choose a smaller one")]
    Command {
        /// What was tried.
        step: &'static str,
        /// Which number.
        source: PrmError,
    },
    /// The system refused a step, before the card or after it.
    #[error("could not {step}: {source}; {remedy}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The system's reason.
        source: io::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// Neither way to the GPU's memory is there.
    #[error(
        "could not {step} in GPU memory: by dmabuf: {dmabuf}; by nvidia_peermem: {peermem}; use the open kernel modules of the NVIDIA driver (dmabuf), or `modprobe nvidia_peermem`"
    )]
    GpuMemory {
        /// What was tried.
        step: &'static str,
        /// Why not by dmabuf.
        dmabuf: String,
        /// Why not by nvidia_peermem.
        peermem: io::Error,
    },
    /// What was made before a failing step would not go away again: the card may still use its memory.
    #[error("{first}; then {second}, so that memory stays with the card until the process ends")]
    Stuck {
        /// What failed.
        first: Box<crate::Error>,
        /// What failed then.
        second: Box<Mlx5Error>,
    },
}

/// What a port speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet, for RoCE.
    Ethernet,
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
        })
    }
}

impl From<LoadError> for Mlx5Error {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Library { name, source } => Self::NoLibrary {
                library: name,
                source,
            },
            LoadError::Function { library, name } => Self::OldLibrary {
                library,
                function: name,
            },
        }
    }
}

/// The package of a library.
fn package(library: &str) -> &'static str {
    match library {
        LIBIBVERBS => "apt-get install libibverbs1",
        _ => "apt-get install ibverbs-providers",
    }
}

fn devices(found: &[String]) -> String {
    match found {
        [] => String::from("there is none at all: `cargo xtask doctor` says what is missing"),
        found => format!("choose one of {}", found.join(", ")),
    }
}

fn gids(found: &[String]) -> String {
    match found {
        [] => String::from("it has none at all: give its interface an address, and bring it up"),
        found => format!("it has {}", found.join(", ")),
    }
}

/// What was tried, in words.
fn tried(attempts: &[(&str, io::Error)]) -> String {
    let words = attempts.iter().map(|(kind, why)| format!("{kind}: {why}"));
    words.collect::<Vec<_>>().join(", ")
}

/// What was asked for, in words.
fn wanted(kind: Option<GidType>, address: Option<IpAddr>, index: Option<u8>) -> String {
    let words = [
        index.map(|index| format!("at index {index}")),
        kind.map(|kind| format!("of type {kind}")),
        address.map(|address| format!("with address {address}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// What to do about a refusal.
fn refused(refusal: &Refusal) -> &'static str {
    match refusal.status {
        CommandStatus::BAD_OPCODE => {
            "update the card's firmware; a virtual function must be trusted by its host"
        }
        CommandStatus::NO_RESOURCES | CommandStatus::LIMIT => {
            "use fewer or shallower queues, or end other users of the card"
        }
        CommandStatus::BAD_QP_STATE | CommandStatus::BAD_RESOURCE_STATE => {
            "call `reset` and connect again"
        }
        CommandStatus::BAD_RESOURCE => {
            "something that the queue needs is gone: open the device again"
        }
        CommandStatus::INTERNAL | CommandStatus::BAD_SYSTEM_STATE => {
            "look at the card's health in `dmesg`"
        }
        _ => {
            "check the configuration against the card's limits; the vendor's support knows the syndrome"
        }
    }
}

/// What to do about an error number of a call that gives the card a command.
pub(super) fn remedy(source: &io::Error) -> &'static str {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root, or with CAP_NET_RAW",
        Some(libc::EOPNOTSUPP | libc::EPROTONOSUPPORT | libc::ENOSYS | libc::ENOTTY) => {
            "the mlx5_ib kernel module has no DEVX here: use Linux 5.3 or later with CONFIG_INFINIBAND_USER_ACCESS, or update rdma-core"
        }
        Some(libc::ENOMEM | libc::EAGAIN) => {
            "raise the limit of locked memory: `ulimit -l unlimited`"
        }
        Some(libc::EFAULT) => "the memory cannot be pinned: check its address and length",
        Some(libc::EHOSTUNREACH | libc::ENETUNREACH | libc::ETIMEDOUT) => {
            "check the address of the other end and the route to it"
        }
        Some(libc::EBUSY) => "something else still uses it",
        Some(libc::ENODEV | libc::EIO) => "look at the card's health in `dmesg`",
        _ => "look at `dmesg`",
    }
}
