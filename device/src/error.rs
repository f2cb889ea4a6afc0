//! What can go wrong on the device, as small values.

use core::fmt;
use core::num::NonZeroU64;

use mlx5_wqe::{
    CompletionError, CqeErrorWord, CqeOpcode, CqeTail, Opcode, QpNumber, Side, Syndrome,
    VendorCode, WqeIndex,
};

use crate::fault::Fault;

/// Why a queue can no longer be used; it stays so until the host resets it.
///
/// One word that is never 0, so that it travels in a register and lies as it is
/// in [`QueueState`](crate::QueueState); [`cause`](Self::cause) unpacks it.
/// Bits 63:62 say whose error it is (1 requester, 2 responder, 3 this library).
/// Of an error CQE: opcode 61:56 (all opcodes are below 64), QPN 55:32, WQE
/// index 31:16, vendor code 15:8, syndrome 7:0; all but the last two lie where
/// the CQE's last eight bytes have them.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct QueueError(NonZeroU64);

/// What a [`QueueError`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The NIC completed a work request with an error.
    Completion(CompletionError),
    /// A thread reserved slots and did not publish them in time, so that the
    /// slots behind them can never be published.
    Stalled {
        /// The first WQE that was reserved and never published.
        wqe: WqeIndex,
    },
    /// The NIC wrote a CQE that a queue of this kind never gets.
    UnexpectedCompletion {
        /// The CQE's `op_own` byte.
        op_own: u8,
    },
}

const REQUESTER: u64 = 1;
const RESPONDER: u64 = 2;
/// Of this library; bit 61 tells an unexpected completion from a stall.
const STALLED: NonZeroU64 = NonZeroU64::new(3 << 62).unwrap();
const UNEXPECTED: NonZeroU64 = NonZeroU64::new(7 << 61).unwrap();

impl QueueError {
    /// The error of a cause.
    #[inline(always)]
    pub const fn new(cause: Cause) -> Self {
        match cause {
            Cause::Completion(error) => {
                let side = match error.side {
                    Side::Requester => REQUESTER,
                    Side::Responder => RESPONDER,
                };
                let details = ((error.opcode.0 & 0x3f) as u64) << 56
                    | (error.qpn.get() as u64) << 32
                    | (error.wqe_index.0 as u64) << 16
                    | (error.vendor.0 as u64) << 8
                    | error.syndrome.0 as u64;
                match NonZeroU64::new(side << 62 | details) {
                    Some(bits) => Self(bits),
                    None => Self(UNEXPECTED),
                }
            }
            Cause::Stalled { wqe } => Self(or(STALLED, (wqe.0 as u64) << 16)),
            Cause::UnexpectedCompletion { op_own } => Self(or(UNEXPECTED, op_own as u64)),
        }
    }

    /// What the error says.
    pub const fn cause(self) -> Cause {
        let bits = self.0.get();
        let wqe_index = WqeIndex((bits >> 16) as u16);
        let side = match bits >> 62 {
            REQUESTER => Side::Requester,
            RESPONDER => Side::Responder,
            _ if bits >> 61 & 1 != 0 => {
                return Cause::UnexpectedCompletion { op_own: bits as u8 };
            }
            _ => return Cause::Stalled { wqe: wqe_index },
        };
        Cause::Completion(CompletionError {
            side,
            syndrome: Syndrome(bits as u8),
            vendor: VendorCode((bits >> 8) as u8),
            wqe_index,
            opcode: Opcode((bits >> 56) as u8 & 0x3f),
            qpn: QpNumber::from_low_bits((bits >> 32) as u32),
        })
    }

    /// The error that a CQE's last 16 bytes tell: that of an error CQE, or that
    /// it is no CQE for this queue.
    #[inline(always)]
    pub(crate) const fn of_cqe(word: CqeErrorWord, tail: CqeTail) -> Self {
        let side = match tail.cqe_opcode() {
            CqeOpcode::REQUESTER_ERROR => REQUESTER << 62,
            CqeOpcode::RESPONDER_ERROR => RESPONDER << 62,
            _ => {
                return Self(or(UNEXPECTED, tail.op_own() as u64));
            }
        };
        let details = u64::from_be(tail.0) & 0x3fff_ffff_ffff_0000;
        let codes = u64::from_be(word.0) & 0xffff;
        match NonZeroU64::new(side | details | codes) {
            Some(bits) => Self(bits),
            None => Self(UNEXPECTED),
        }
    }

    /// The index of the failed WQE, if the error says that all before it is
    /// complete: a flushed request's does not, where its cause was overwritten.
    #[inline(always)]
    pub(crate) const fn complete_before(self) -> Option<WqeIndex> {
        let bits = self.0.get();
        if bits >> 62 < 3 && !self.is_flush() {
            Some(WqeIndex((bits >> 16) as u16))
        } else {
            None
        }
    }

    /// The word, for a kernel that hands the error to its host.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The error in a word of [`to_bits`](Self::to_bits); 0 is none.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        match NonZeroU64::new(bits) {
            Some(bits) => Some(Self(bits)),
            None => None,
        }
    }

    /// Whether the request was only flushed, because one before it had failed.
    #[inline(always)]
    pub const fn is_flush(self) -> bool {
        let bits = self.0.get();
        bits >> 62 < 3 && bits as u8 == Syndrome::FLUSHED.0
    }
}

/// `a | b`, of which `a` is not 0.
#[inline(always)]
const fn or(a: NonZeroU64, b: u64) -> NonZeroU64 {
    match NonZeroU64::new(a.get() | b) {
        Some(bits) => bits,
        None => a,
    }
}

impl fmt::Debug for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause().fmt(f)
    }
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cause() {
            Cause::Completion(error) => match Fault::of(*self) {
                Some(fault) => write!(f, "WQE {}: {fault}", error.wqe_index),
                None => write!(f, "{error}"),
            },
            Cause::Stalled { wqe } => write!(
                f,
                "a thread reserved WQE {wqe} and never published it; reset the queue"
            ),
            Cause::UnexpectedCompletion { op_own } => {
                write!(f, "unexpected completion, op_own {op_own:#04x}")
            }
        }
    }
}

impl core::error::Error for QueueError {}

/// Why a queue could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The magic number is wrong: this is no handle of this kind.
    #[error("not a queue handle of this kind (magic {magic:#010x})")]
    NotAHandle {
        /// What stands where the magic number should.
        magic: u32,
    },
    /// Host and kernel were built from different versions.
    #[error("handle version {found}, this kernel knows {wanted}: build host and kernel together")]
    Version {
        /// The handle's version.
        found: u16,
        /// The kernel's version.
        wanted: u16,
    },
    /// Host and kernel disagree on the handle's size in bytes.
    #[error("handle of {found} bytes, this kernel knows {wanted}")]
    Size {
        /// The handle's size.
        found: u16,
        /// The kernel's size.
        wanted: u16,
    },
    /// The handle gives a [reach of fences](crate::FenceReach) that this kernel does not know.
    #[error("the handle's reach of fences is {found}, which this kernel does not know")]
    Reach {
        /// Its number.
        found: u8,
    },
    /// The handle gives a [kind of doorbell](crate::SendDoorbell) that this kernel does not know.
    #[error("the handle's kind of doorbell is {found}, which this kernel does not know")]
    SendDoorbell {
        /// Its number.
        found: u8,
    },
    /// The handle gives a [kind of doorbell page](crate::DoorbellPage) that this kernel does not know.
    #[error("the handle's kind of doorbell page is {found}, which this kernel does not know")]
    DoorbellPage {
        /// Its number.
        found: u8,
    },
    /// The queue is for kernels of another [`Processor`](crate::Processor): another GPU, or the CPU.
    #[error("the queue is for kernels on another GPU, or on the CPU")]
    Elsewhere,
    /// Somebody has the queue open: exclusively, while one of the two wants it exclusively, or as another block or grid.
    #[error("the queue is open elsewhere")]
    InUse,
    /// The threads of a warp or block that opened it together brought different queues.
    #[error("threads that open a queue together brought different queues")]
    Apart,
    /// The queue has failed and was not reset since.
    #[error("the queue has failed and wants a reset: {0}")]
    Failed(QueueError),
}

/// Why a work request was not posted. Nothing of it has reached the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PostError {
    /// The ring is full; poll, or wait for an earlier request.
    #[error("no room in the queue; poll or wait for earlier requests")]
    NoRoom,
    /// The ring stayed full until the deadline.
    #[error("the queue stayed full until the deadline")]
    Deadline,
    /// More blocks than this queue takes in one WQE or under one doorbell.
    #[error("{asked} blocks of 64 bytes, the queue takes {limit}: make it deeper")]
    TooManyBlocks {
        /// Blocks asked for.
        asked: u32,
        /// The queue's limit, from its depth.
        limit: u32,
    },
    /// A message longer than the card's maximum, in bytes.
    #[error("a message of {bytes} bytes, the card takes {limit}")]
    TooLong {
        /// Bytes asked for.
        bytes: u64,
        /// The card's maximum.
        limit: u32,
    },
    /// A message of no bytes in a form that carries data (the card would read
    /// a byte count of 0 as 2 GiB); the `_only` forms carry none.
    #[error("a message of no bytes; use a form without data")]
    Empty,
    /// An atomic whose remote or local address is not a multiple of its size.
    #[error("an atomic at {address:#x}, which is not aligned to its size")]
    Misaligned {
        /// The address.
        address: u64,
    },
    /// The queue has failed.
    #[error("the queue has failed: {0}")]
    Failed(QueueError),
}

/// Why a wait ended without what it waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
// A GPU asks in one step whether it is there, and in two if that is said by 64 bits.
#[repr(u32)]
pub enum WaitError {
    /// The deadline passed; the request is still under way.
    #[error("the deadline passed")]
    Deadline,
    /// Neither the request nor one posted after it through this view asked for
    /// a completion, so nothing would ever report it.
    #[error("the request is not signalled, nor is a later one; signal it")]
    NotSignalled,
    /// The queue has failed.
    #[error("the queue has failed: {0}")]
    Failed(QueueError),
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec;

    use super::*;

    #[test]
    fn causes_survive_their_word() {
        let mut causes = vec![
            Cause::Stalled { wqe: WqeIndex(0) },
            Cause::Stalled {
                wqe: WqeIndex(u16::MAX),
            },
            Cause::UnexpectedCompletion { op_own: 0 },
            Cause::UnexpectedCompletion { op_own: 0xff },
        ];
        for side in [Side::Requester, Side::Responder] {
            for bits in [0, 1, 0x0f, u32::MAX] {
                causes.push(Cause::Completion(CompletionError {
                    side,
                    syndrome: Syndrome(bits as u8),
                    vendor: VendorCode(bits as u8),
                    wqe_index: WqeIndex(bits as u16),
                    opcode: Opcode(bits as u8 & 0x3f),
                    qpn: QpNumber::from_low_bits(bits),
                }));
            }
        }
        for cause in causes {
            let error = QueueError::new(cause);
            if let Cause::Completion(of) = cause {
                let opcode = match of.side {
                    Side::Requester => CqeOpcode::REQUESTER_ERROR,
                    Side::Responder => CqeOpcode::RESPONDER_ERROR,
                };
                let tail = CqeTail::new(opcode, true, of.opcode, of.qpn, of.wqe_index.0);
                let word = CqeErrorWord::new(of.syndrome, of.vendor);
                assert_eq!(QueueError::of_cqe(word, tail), error);
            }
            assert_eq!(error.cause(), cause);
            assert_eq!(QueueError::from_bits(error.to_bits()), Some(error));
        }
        assert_eq!(QueueError::from_bits(0), None);
    }
}
