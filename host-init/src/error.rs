//! What can go wrong at start-up, and what the user can do about it.

use std::fmt;

use warpbell_cpu_grid::LaunchError;
#[cfg(feature = "soft")]
use warpbell_soft_hca::shell::HcaError;

#[cfg(feature = "clap")]
use crate::args::NodeError;
#[cfg(feature = "mlx5")]
use crate::mlx5::Mlx5Error;
use crate::peer::ExchangeError;
use crate::state::Gid;
#[cfg(feature = "ranks")]
use crate::world::WorldError;
use crate::{Access, GpuError, Placement, State};

/// Why a step of start-up failed. Nothing of the step has taken effect, unless
/// the variant says otherwise, or the error [is uncertain](Error::is_uncertain).
///
/// `Debug` gives the same words as `Display`, for programs whose `main` returns the error.
///
/// ```
/// use warpbell_host_init::{Error, Node, QueuePairConfig};
///
/// let config = QueuePairConfig { send_depth: 100, ..QueuePairConfig::default() };
/// let error = Node::cpu().domain()?.queue_pair(&config).unwrap_err();
/// assert!(matches!(error, Error::DepthNotPowerOfTwo { depth: 100, .. }));
/// assert_eq!(error.to_string(), "send queue depth 100 is no power of two; use 64 or 128");
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A ring depth that is no power of two.
    #[error("{what} depth {depth} is no power of two; use {}", near(*depth))]
    DepthNotPowerOfTwo {
        /// Which ring.
        what: &'static str,
        /// The depth asked for.
        depth: u32,
    },
    /// A ring depth of zero or above the device's limit.
    #[error("{what} depth {depth} is outside 1 to {limit}; choose a power of two between them")]
    DepthOutOfRange {
        /// Which ring.
        what: &'static str,
        /// The depth asked for.
        depth: u32,
        /// The largest depth.
        limit: u32,
    },
    /// A completion queue that its queue can overrun.
    #[error(
        "the {what} completion queue has {depth} entries, and its queue needs {needed}; write `Completions::ORDINARY`, which takes as many as the queue is deep, or `Completions::Ordinary {{ depth: Some({needed}) }}`"
    )]
    CompletionQueueTooSmall {
        /// Whose completion queue.
        what: &'static str,
        /// Entries asked for.
        depth: u32,
        /// Entries needed.
        needed: u32,
    },
    /// Collapsed completions for receives, which would overwrite each other.
    #[error("receive completions cannot be collapsed; use `Completions::ORDINARY`")]
    CollapsedReceive,
    /// Collapsed completions for many send queues in common, which would overwrite each other.
    #[error(
        "send queues with a common completion queue cannot have collapsed completions; use `Completions::ORDINARY`"
    )]
    CollapsedCommon,
    /// A reset of a queue pair that has its completion queue in common with others: CQEs of the old one would stay there.
    #[error(
        "queue pair {qpn:#x} has its completion queue in common with others, and is not reset alone; make all of them anew"
    )]
    CommonReset {
        /// Which queue pair.
        qpn: u32,
    },
    /// Queue pairs that are not just those of a completion queue.
    #[error(
        "completion queue {cqn:#x} has {wanted} queue pairs, and {found} of those given are its own; give all that were made with it, and no others"
    )]
    NotItsQueuePairs {
        /// The completion queue's number.
        cqn: u32,
        /// How many it has.
        wanted: usize,
        /// How many of those were given.
        found: usize,
    },
    /// A queue pair without a doorbell record, which the device cannot have.
    #[error(
        "the device takes producer indices only from doorbell records; use `SendDoorbell::WithRecord`, or a ConnectX-8 or later"
    )]
    NeedsDoorbellRecord,
    /// A queue pair that waits for others or is started by them, which the device cannot have.
    #[error(
        "the device has no cross-channel queues (its capability `cd`); leave `cross_channel` and `managed_send` off"
    )]
    NeedsCrossChannel,
    /// A managed send queue, which nobody can post to.
    #[error(
        "the send queue of queue pair {qpn:#x} is managed: other queues start it; make it without `managed_send` to post to it"
    )]
    Managed {
        /// The queue pair.
        qpn: u32,
    },
    /// A receive WQE with no or too many scatter entries.
    #[error("{segments} scatter entries in a receive WQE; choose a power of two from 1 to {limit}")]
    BadSegments {
        /// Entries asked for.
        segments: u32,
        /// Most entries.
        limit: u32,
    },
    /// A longest message of zero or above the device's limit.
    #[error(
        "a longest message of {bytes} bytes is outside 1 to {limit}; send longer data in pieces"
    )]
    BadMaxMessage {
        /// Bytes asked for.
        bytes: u32,
        /// The device's maximum.
        limit: u32,
    },
    /// A counter or timer that its field cannot hold.
    #[error("{what} is {value}, but at most {limit} fits; choose less")]
    BadTimer {
        /// Which one.
        what: &'static str,
        /// The value asked for.
        value: u8,
        /// The largest value.
        limit: u8,
    },
    /// A size that cannot be allocated or registered.
    #[error(
        "{bytes} bytes is not a size for {what}; it must be positive and fit the address space"
    )]
    BadSize {
        /// What was to be made.
        what: &'static str,
        /// The size asked for.
        bytes: usize,
    },
    /// The system has no memory left.
    #[error("no memory for {bytes} bytes; use smaller or fewer buffers and rings")]
    OutOfMemory {
        /// The size asked for.
        bytes: usize,
    },
    /// Memory that whoever is to use it does not reach.
    #[error("{what} cannot be in {placement}, which is out of reach; place it elsewhere")]
    OutOfReach {
        /// What was to lie there.
        what: &'static str,
        /// Where.
        placement: Placement,
    },
    /// A card would write data to the GPU's memory, and the completions that tell of them to host memory.
    #[error(
        "completions in host memory may reach a GPU before the data that they announce in its own memory; place both there (`QueuePairConfig::placement`, `completion_placement`), or use two protection domains"
    )]
    TwoPaths,
    /// A branch that a round of kernels has chosen, and that is none.
    #[error(
        "the kernels chose branch {branch}, which has no kernels; give it some, or choose another one"
    )]
    NoBranch {
        /// Its number.
        branch: u32,
    },
    /// The GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Options of a command line that choose no node.
    #[cfg(feature = "clap")]
    #[error(transparent)]
    Options(#[from] NodeError),
    /// A range outside a buffer or a region.
    #[error("{bytes} bytes at offset {offset} do not fit into {len} bytes; choose a range inside")]
    OutOfRange {
        /// First byte asked for.
        offset: usize,
        /// Bytes asked for.
        bytes: usize,
        /// Bytes there are.
        len: usize,
    },
    /// Memory without whole words.
    #[error("the memory starts at {address:#x}; words of 8 bytes start at a multiple of 8")]
    Unaligned {
        /// Its first byte.
        address: u64,
    },
    /// Access flags that contradict each other.
    #[error("access {access} is refused: remote write or atomic needs LOCAL_WRITE too; add it")]
    BadAccess {
        /// The flags asked for.
        access: Access,
    },
    /// A flush of memory that the NIC may not read for a peer, as which it flushes.
    #[error("a flush reads the memory, which was registered with {access}; add REMOTE_READ")]
    NotReadable {
        /// The region's flags.
        access: Access,
    },
    /// A write to memory that its owner registered for reading only.
    #[error(
        "the memory was registered with {access}, for reading only; register it with LOCAL_WRITE"
    )]
    ReadOnly {
        /// What may be done with it.
        access: Access,
    },
    /// A region of one protection domain used with a queue of another.
    #[error(
        "the region belongs to protection domain {region:#x}, the queue pair to {queue_pair:#x}; register the memory in the queue pair's domain"
    )]
    ForeignDomain {
        /// The region's domain.
        region: u32,
        /// The queue pair's domain.
        queue_pair: u32,
    },
    /// A transition that the state machine does not have.
    #[error("queue pair {qpn:#x} cannot go from {from} to {to}; {}", remedy(*from, *to))]
    WrongState {
        /// Which queue pair.
        qpn: u32,
        /// Its state.
        from: State,
        /// The state asked for.
        to: State,
    },
    /// A handle was asked for before the queue pair can use it.
    #[error("queue pair {qpn:#x} is in {state}, its {queue} queue needs {needed}; {}", if *state == State::Error { "call `reset` and connect again" } else { "connect it first" })]
    NotReady {
        /// Which queue pair.
        qpn: u32,
        /// Its state.
        state: State,
        /// Which of its queues.
        queue: &'static str,
        /// The earliest state that will do.
        needed: State,
    },
    /// The queue pair has no receive queue.
    #[error(
        "queue pair {qpn:#x} was made without a receive queue; set `receive_depth` in its configuration"
    )]
    NoReceiveQueue {
        /// Which queue pair.
        qpn: u32,
    },
    /// No wire leads to the other end's device.
    #[error(
        "no wire leads to device {gid}; use `connect` inside one process, `Peer` between two, `World` among more"
    )]
    Unreachable {
        /// The other device.
        gid: Gid,
    },
    /// Another end that cannot be: hostile or damaged.
    #[error(
        "the other end's {what} is {value:#x}, which is invalid; get the endpoint from `QueuePair::endpoint`"
    )]
    BadEndpoint {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The two processes could not talk to each other.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The ranks of a job could not start together.
    #[cfg(feature = "ranks")]
    #[error(transparent)]
    World(Box<WorldError>),
    /// The software HCA refused a step.
    #[cfg(feature = "soft")]
    #[error("the software HCA refused to {step}: {source}")]
    Soft {
        /// What was tried.
        step: &'static str,
        /// Its reason.
        source: HcaError,
    },
    /// Kernels on CPU threads did not end well.
    #[error("a kernel did not end well: {0}")]
    Launch(#[from] LaunchError),
    /// Steps of a stream, where kernels run on CPU threads.
    #[error("no streams on a CPU; run the kernels on a GPU, or let the host or a kernel post")]
    NoStream,
    /// Kernels on CPU threads and on a GPU were to run together.
    #[error("some of these nodes run kernels on a GPU, and others on CPU threads; choose one")]
    MixedNodes,
    /// A GPU was asked for its time, for a trace, and did not answer.
    #[error(
        "the GPU does not tell its time, which a trace needs; end kernels that fill the GPU first"
    )]
    NoClock,
    /// The card, or the way to it.
    #[cfg(feature = "mlx5")]
    #[error(transparent)]
    Mlx5(Box<Mlx5Error>),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(feature = "ranks")]
impl From<WorldError> for Error {
    fn from(error: WorldError) -> Self {
        Self::World(Box::new(error))
    }
}

#[cfg(feature = "mlx5")]
impl From<Mlx5Error> for Error {
    fn from(error: Mlx5Error) -> Self {
        Self::Mlx5(Box::new(error))
    }
}

impl Error {
    /// Whether the device gave no answer, and may still do what it was asked to. Memory that it was to use must
    /// stay then: buffers and queues are leaked.
    pub fn is_uncertain(&self) -> bool {
        match self {
            #[cfg(feature = "soft")]
            Self::Soft {
                source: HcaError::Resident(_),
                ..
            } => true,
            #[cfg(feature = "mlx5")]
            Self::Mlx5(error) => matches!(**error, Mlx5Error::Stuck { .. }),
            _ => false,
        }
    }
}

/// The powers of two around a depth, in words.
fn near(depth: u32) -> String {
    match depth.checked_next_power_of_two() {
        Some(above) if above > 1 => format!("{} or {above}", above / 2),
        _ => String::from("one from 1 to 32768"),
    }
}

fn remedy(from: State, to: State) -> &'static str {
    match (from, to) {
        (State::Error, _) => "call `reset` first",
        (_, State::Init) => "call `reset` first",
        (State::Reset, _) => "call `to_init` first, or `connect` for all steps",
        (State::Init, _) => "call `to_ready_to_receive` first, or `connect` for all steps",
        _ => "it is there already, or past it: call `reset` to begin again",
    }
}
