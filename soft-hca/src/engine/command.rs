//! What the commands take and give: attributes, handles, states, named errors.

use mlx5_wqe::{CqNumber, LocalKey, QpNumber, RemoteKey};

use super::packet::WireAddress;

pub use mlx5_wqe::decode::{MAX_MESSAGE_LENGTH, Transport};

bitflags::bitflags! {
    /// What may be done with a registered range. Local reads are always allowed.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Receives, answers to READs and results of atomics may be written here.
        const LOCAL_WRITE = 1 << 0;
        /// Peers may write here. Needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 1 << 1;
        /// Peers may read here.
        const REMOTE_READ = 1 << 2;
        /// Peers may run atomics here. Needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 1 << 3;
    }
}

bitflags::bitflags! {
    /// What a queue pair has to do with the queues of others, without which it waits for none and is its doorbell's
    /// alone (cross-channel, CORE-Direct).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CrossChannel: u8 {
        /// It may post WAIT and SEND_EN (`cd_master`).
        const MASTER = 1 << 0;
        /// Its send queue runs up to where a SEND_EN has enabled it; neither record nor doorbell is looked at
        /// (`cd_slave_send`).
        const MANAGED_SEND = 1 << 1;
    }
}

/// A protection domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProtectionDomain(pub(super) u32);

impl ProtectionDomain {
    /// The domain with this number, if the engine has given it away. An engine refuses any other.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// The keys of a registered range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// For data segments.
    pub local: LocalKey,
    /// For remote address segments of peers.
    pub remote: RemoteKey,
}

/// What a completion queue is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionQueueAttributes {
    /// Address of the ring: `64 << log_depth` bytes ([`CqeSize`] has the other size), aligned to an entry's size, every
    /// entry with `op_own = 0xf0`. A collapsed queue uses the first entry only.
    pub ring: u64,
    /// Log₂ of the entries, at most [`MAX_LOG_CQ_DEPTH`].
    pub log_depth: u8,
    /// Address of the doorbell record: 8 bytes, aligned to 8, zero.
    pub record: u64,
    /// The UAR page whose register at 0x20 arms the queue: 4 KiB, aligned to 4 KiB. None for a
    /// queue that is never armed.
    pub uar: Option<u64>,
    /// Every CQE goes to entry 0 (`cc`).
    pub collapsed: bool,
    /// The consumer index in the record is not looked at: CQEs may overwrite others (`oi`). A
    /// collapsed queue whose user never writes the record needs it.
    pub ignore_overrun: bool,
}

/// The bytes of a completion queue's entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CqeSize {
    /// A CQE each.
    #[default]
    Bytes64,
    /// A CQE in the second half of each; the first half, which is for data that arrive, stays as it is.
    Bytes128,
}

impl CqeSize {
    /// Log₂ of the bytes.
    pub const fn log_bytes(self) -> u8 {
        match self {
            Self::Bytes64 => 6,
            Self::Bytes128 => 7,
        }
    }
}

/// What a queue pair (RC) is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairAttributes {
    /// The protection domain of its local keys, and of the remote keys that peers name.
    pub protection_domain: ProtectionDomain,
    /// Address of the send ring: `64 << log_send_depth` bytes, aligned to 64.
    pub send_ring: u64,
    /// Log₂ of the send ring's 64-byte blocks, at most [`MAX_LOG_QUEUE_DEPTH`].
    pub log_send_depth: u8,
    /// The receive ring; none for a queue pair that receives neither SEND nor immediate data.
    pub receive: Option<ReceiveRing>,
    /// Address of the doorbell record: 8 bytes, aligned to 8, zero.
    pub record: u64,
    /// Where the producer index of the send queue comes from.
    pub send_doorbell: SendDoorbell,
    /// The UAR page whose register at 0x800, or 0x600 without a record, is the doorbell: 4 KiB, aligned to 4 KiB.
    pub uar: u64,
    /// Where send completions go.
    pub send_cq: CqNumber,
    /// Where receive completions go.
    pub receive_cq: CqNumber,
    /// What it has to do with the queues of others.
    pub cross_channel: CrossChannel,
}

/// Where the producer index of a send queue comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SendDoorbell {
    /// The doorbell record. What the doorbell carries is a hint.
    #[default]
    WithRecord,
    /// The doorbell, as [`producer`](mlx5_wqe::Doorbell::producer) has it; the record is not read. An index that is
    /// not ahead of the newest one, by a ring at most, tells nothing.
    ///
    /// The register keeps the newest doorbell alone, so that it is one queue pair's: the page has no other without a
    /// record.
    WithoutRecord,
}

/// What else a queue pair may have.
///
/// What is not reliable is copied by the wire: it needs one that does
/// ([`send_copy`](super::Wire::send_copy)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuePairOptions {
    /// What it promises.
    pub transport: Transport,
    /// How its user calls it: 24 bits, in each of its CQEs (`srqn_uidx`).
    pub user_index: u32,
    /// How many send registers of the page are doorbells, at most [`MAX_SEND_REGISTERS`]: the one at 0x800, and
    /// those that follow it 0x100 apart. 0 means one. Drivers that push WQEs (BlueFlame) take turns with two;
    /// libmlx5 has two such pairs in a page.
    pub send_registers: u8,
    /// Where its receives come from, in place of a ring of its own.
    pub shared_receive_queue: Option<SharedReceiveQueue>,
}

/// The ring of receive WQEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRing {
    /// Its address: `16 << (log_depth + log_stride)` bytes, aligned to 16.
    pub ring: u64,
    /// Log₂ of the WQEs, at most [`MAX_LOG_QUEUE_DEPTH`].
    pub log_depth: u8,
    /// Log₂ of the 16-byte data segments in a WQE, at most [`MAX_LOG_RECEIVE_STRIDE`].
    pub log_stride: u8,
}

impl ReceiveRing {
    /// The place of a WQE, by an index that counts past the ring.
    pub(super) const fn slot(&self, index: u16) -> u16 {
        index & ((1 << self.log_depth) - 1)
    }
}

/// A shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveQueue(pub(super) u32);

impl SharedReceiveQueue {
    /// Its number, of 24 bits.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What a shared receive queue is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedReceiveAttributes {
    /// The protection domain of its segments' keys.
    pub protection_domain: ProtectionDomain,
    /// Its ring. A WQE's first 16 bytes are its link, so that its stride is 32 bytes at least.
    pub ring: ReceiveRing,
    /// Address of the doorbell record: 8 bytes, aligned to 8, zero. Its first half counts what was posted.
    pub record: u64,
    /// How its WQEs follow one another.
    pub topology: Topology,
}

/// How the WQEs of a shared receive queue follow one another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Topology {
    /// Each names the next one.
    #[default]
    LinkedList,
    /// By their places in the ring.
    Cyclic,
}

/// Log₂ of the most blocks in a send ring, and WQEs in a receive ring: 32,768.
pub const MAX_LOG_QUEUE_DEPTH: u8 = 15;
/// Log₂ of the most CQEs in a completion queue: 2²².
pub const MAX_LOG_CQ_DEPTH: u8 = 22;
/// Log₂ of the most data segments in a receive WQE: 32 (512 bytes).
pub const MAX_LOG_RECEIVE_STRIDE: u8 = 5;
/// The most send registers of a page: 0x800 to 0xf00.
pub const MAX_SEND_REGISTERS: u8 = 8;
/// The READs and atomics that a queue pair has under way at most, in each direction.
pub const MAX_READS: usize = 16;

/// The states of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueuePairState {
    /// Does nothing; doorbells are ignored.
    #[default]
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive: answers requests.
    ReadyToReceive,
    /// Ready to send: executes send WQEs too.
    ReadyToSend,
    /// Flushes every WQE with syndrome 0x05.
    Error,
}

/// A step from one state to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// RESET or INIT → INIT.
    Init {
        /// What peers may do through this queue pair; `LOCAL_WRITE` means nothing here.
        access: Access,
    },
    /// INIT → RTR.
    ReadyToReceive(ReadyToReceive),
    /// RTR → RTS.
    ReadyToSend(ReadyToSend),
    /// Any but RESET → ERR.
    Error,
    /// Any → RESET. Indices start from 0 again, and so must the doorbell record, which the owner
    /// zeroes first; keeps nothing of the connection.
    Reset,
}

/// What INIT → RTR carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToReceive {
    /// The HCA of the peer, perhaps this one.
    pub remote_address: WireAddress,
    /// The queue pair of the peer.
    pub remote_qp: QpNumber,
    /// The PSN of the first packet that the peer sends, below 2²⁴.
    pub receive_psn: u32,
    /// The bytes in a packet: a power of two from 256 to the wire's
    /// [`mtu`](super::wire::Limits::mtu); the same at both ends.
    pub path_mtu: u32,
    /// How long the peer is to wait after an RNR NAK, in nanoseconds; see [`rnr_timer_ns`].
    pub min_rnr_timer_ns: u32,
}

/// What RTR → RTS carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToSend {
    /// The PSN of the first packet that this end sends, below 2²⁴.
    pub send_psn: u32,
    /// How often the same packet is repeated, without an answer or because the peer missed one, before error 0x15, 0 to 7.
    pub retry_count: u8,
    /// How often the same packet is repeated after RNR NAKs before error 0x16; 7 is for ever (IBTA volume 1, C9-132).
    pub rnr_retry: u8,
    /// How long to wait for an answer, in nanoseconds, 0 for ever; see [`ack_timeout_ns`].
    pub ack_timeout_ns: u64,
}

/// The acknowledgement timeout of an InfiniBand code (0 to 31): 4.096 µs · 2^code, 0 for ever (IBTA volume 1, 9.7.6.1.3,
/// C9-140).
pub const fn ack_timeout_ns(code: u8) -> u64 {
    match code & 0x1f {
        0 => 0,
        code => 4096 << code,
    }
}

/// The RNR timer of an InfiniBand code (0 to 31), 10 µs to 655.36 ms (IBTA volume 1, 9.7.5.2.8).
pub const fn rnr_timer_ns(code: u8) -> u32 {
    /// In units of 10 µs.
    const UNITS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
        1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];
    UNITS[(code & 0x1f) as usize] * 10_000
}

/// What a queue pair has done since it left RESET. Other processes read it word by word, so its layout is fixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Counters {
    /// Send WQEs that completed well.
    pub completed: u64,
    /// Receive WQEs that completed well.
    pub received: u64,
    /// WQEs that ended in error or were flushed.
    pub errors: u64,
    /// Times that the requester went back to an earlier packet.
    pub retries: u64,
    /// RNR NAKs that came in.
    pub receiver_not_ready: u64,
    /// Packets that came twice.
    pub duplicates: u64,
}

/// The first error of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FirstError {
    /// The syndrome.
    pub syndrome: mlx5_wqe::Syndrome,
    /// The vendor's code.
    pub vendor: mlx5_wqe::VendorCode,
    /// Where it struck.
    pub place: ErrorPlace,
}

/// Where the first error of a queue pair struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorPlace {
    /// At this WQE of the send queue.
    Send(mlx5_wqe::WqeIndex),
    /// At this WQE of the receive queue.
    Receive(mlx5_wqe::WqeIndex),
    /// At a completion queue of the queue pair: it overran and is dead.
    CompletionQueue,
    /// At the peer, whose request could not be carried out, or by a command.
    Elsewhere,
}

/// What [`query_queue_pair`](super::Engine::query_queue_pair) gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairStatus {
    /// The state.
    pub state: QueuePairState,
    /// What it has done.
    pub counters: Counters,
    /// Its first error since it left RESET.
    pub first_error: Option<FirstError>,
    /// The next send WQE that will complete, an index of blocks.
    pub send_index: u16,
    /// The next receive WQE that will complete.
    pub receive_index: u16,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The table that the engine was given for such objects is full.
    #[error("no free entry in the engine's table")]
    TableFull,
    /// There is no such protection domain.
    #[error("there is no such protection domain")]
    NoProtectionDomain,
    /// There is no such completion queue.
    #[error("there is no such completion queue")]
    NoCompletionQueue,
    /// There is no such queue pair.
    #[error("there is no such queue pair")]
    NoQueuePair,
    /// There is no registered memory with this key.
    #[error("there is no registered memory with this key")]
    NoRegion,
    /// Other objects still use this one.
    #[error("other objects still use this one")]
    InUse,
    /// An address is not aligned as its structure needs it.
    #[error("an address is not aligned as its structure needs it")]
    Misaligned,
    /// A range is empty or reaches past the end of the address space.
    #[error("a range is empty or reaches past the end of the address space")]
    BadRange,
    /// A ring's depth or stride is over the maximum.
    #[error("a ring's depth or stride is over the maximum")]
    TooDeep,
    /// Remote write or remote atomic access needs local write access.
    #[error("remote write or atomic access needs local write access")]
    BadAccess,
    /// The queue pair's state does not allow this transition.
    #[error("a queue pair in {from:?} cannot take this transition")]
    IllegalTransition {
        /// The state that it is in.
        from: QueuePairState,
    },
    /// A PSN of 2²⁴ or more.
    #[error("a PSN has 24 bits")]
    BadPsn,
    /// A path MTU that is no power of two, below 256 or above the wire's.
    #[error("a path MTU is a power of two from 256 to the wire's MTU")]
    BadMtu,
    /// A retry count above 7.
    #[error("a retry count is at most 7")]
    BadRetryCount,
    /// There is no such shared receive queue.
    #[error("there is no such shared receive queue")]
    NoSharedReceiveQueue,
    /// The page's doorbell without a record is another queue pair's.
    #[error("another queue pair without a doorbell record has the UAR page")]
    DoorbellTaken,
}
