//! What a CQE says, as a value; and the CQE that says it.

use core::fmt;

use zerocopy::big_endian::U32;

use crate::cqe::{Cqe64, CqeErrorWord, CqeFormat, CqeTail};
use crate::opcode::{CqeOpcode, Opcode};
use crate::syndrome::{Syndrome, VendorCode};
use crate::units::{Immediate, QpNumber, RemoteKey, WqeIndex};

/// A completion: what became of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// A WQE of the send queue is done, and with it every earlier one of the queue.
    Requester(Requester),
    /// A message arrived and took a receive.
    Responder(Responder),
    /// A work request failed, and the queue pair with it.
    Error(CompletionError),
}

/// A WQE of the send queue that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The queue pair.
    pub qpn: QpNumber,
    /// First block of the WQE.
    pub wqe_index: WqeIndex,
    /// What the WQE asked for.
    pub opcode: Opcode,
    /// Bytes that came back (reads and atomics); of no meaning otherwise.
    pub byte_count: u32,
}

/// A message that took a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Responder {
    /// The queue pair.
    pub qpn: QpNumber,
    /// Number of the receive WQE, modulo 2^16; with an SRQ, its index there.
    pub wqe_counter: u16,
    /// Bytes that arrived.
    pub byte_count: u32,
    /// How they came.
    pub kind: Arrival,
}

/// How a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// By a write, which also brought these 32 bits.
    WriteImmediate(Immediate),
    /// By a send.
    Send,
    /// By a send, which also brought these 32 bits.
    SendImmediate(Immediate),
    /// By a send, which invalidated this key.
    SendInvalidate(RemoteKey),
}

impl Arrival {
    /// The 32 bits that came with the message, if any did.
    #[inline(always)]
    pub const fn immediate(self) -> Option<Immediate> {
        match self {
            Self::WriteImmediate(immediate) | Self::SendImmediate(immediate) => Some(immediate),
            Self::Send | Self::SendInvalidate(_) => None,
        }
    }
}

/// Which queue of a queue pair an error belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The send queue.
    Requester,
    /// The receive queue.
    Responder,
}

/// A work request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionError {
    /// Which of the queue pair's queues.
    pub side: Side,
    /// What went wrong.
    pub syndrome: Syndrome,
    /// The vendor's code.
    pub vendor: VendorCode,
    /// First block of the WQE (send side), or the receive's number.
    pub wqe_index: WqeIndex,
    /// What the WQE asked for; of no meaning on the receive side.
    pub opcode: Opcode,
    /// The queue pair.
    pub qpn: QpNumber,
}

impl CompletionError {
    /// From the two words of an error CQE; `None` when the tail reports no error.
    #[inline]
    pub const fn from_words(word: CqeErrorWord, tail: CqeTail) -> Option<Self> {
        let side = match tail.cqe_opcode() {
            CqeOpcode::REQUESTER_ERROR => Side::Requester,
            CqeOpcode::RESPONDER_ERROR => Side::Responder,
            _ => return None,
        };
        Some(Self {
            side,
            syndrome: word.syndrome(),
            vendor: word.vendor(),
            wqe_index: tail.wqe_index(),
            opcode: tail.opcode(),
            qpn: tail.qpn(),
        })
    }
}

impl fmt::Display for CompletionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}: ", self.syndrome, self.vendor)?;
        match self.side {
            Side::Requester => write!(f, "{} in send WQE {}", self.opcode, self.wqe_index)?,
            Side::Responder => write!(f, "receive WQE {}", self.wqe_index)?,
        }
        write!(f, " of QP {}", self.qpn)
    }
}

impl core::error::Error for CompletionError {}

/// Why a CQE is not a [`Completion`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CqeError {
    /// The entry was not written yet.
    #[error("the CQE was not written yet")]
    Invalid,
    /// The entry belongs to a compressed session: keep `cqe_comp_en` at 0, or decode [`MiniCqe`]s.
    ///
    /// [`MiniCqe`]: crate::MiniCqe
    #[error("the CQE is compressed")]
    Compressed,
    /// An opcode that is no completion of a work request (resize, tag matching, data signatures) or
    /// that this crate does not know.
    #[error("the CQE reports {0}")]
    Unsupported(CqeOpcode),
}

impl Cqe64 {
    /// What the CQE says. Takes any 64 bytes; whether the entry is new is [`CqeTail::is_new`]'s
    /// question.
    ///
    /// ```
    /// use mlx5_wqe::{Completion, Cqe64, Opcode, Syndrome};
    ///
    /// let mut bytes = [0; 64];
    /// bytes[54..].copy_from_slice(&[0x88, 0x13, 0x10, 0x01, 0x2a, 0xbe, 0x0d, 0xd0, 0xc1, 0xd3]);
    /// let Ok(Completion::Error(error)) = Cqe64::from_bytes(bytes).decode() else { panic!() };
    /// assert_eq!(error.syndrome, Syndrome::REMOTE_ACCESS);
    /// assert_eq!(error.opcode, Opcode::RDMA_READ);
    /// assert_eq!(
    ///     error.to_string(),
    ///     "remote access error (syndrome 0x13), vendor code 0x88: \
    ///      RDMA_READ in send WQE 0x0dd0 of QP 0x012abe",
    /// );
    /// ```
    #[inline]
    pub const fn decode(self) -> Result<Completion, CqeError> {
        let tail = self.tail();
        // Errors come first, whatever their format bits say, so that none is taken for data.
        if let Some(error) = CompletionError::from_words(self.error_word(), tail) {
            return Ok(Completion::Error(error));
        }
        if tail.cqe_opcode().0 == CqeOpcode::INVALID.0 {
            return Err(CqeError::Invalid);
        }
        if matches!(tail.format(), CqeFormat::Compressed) {
            return Err(CqeError::Compressed);
        }
        let kind = match tail.cqe_opcode() {
            CqeOpcode::REQUESTER => {
                return Ok(Completion::Requester(Requester {
                    qpn: tail.qpn(),
                    wqe_index: tail.wqe_index(),
                    opcode: tail.opcode(),
                    byte_count: self.byte_count.get(),
                }));
            }
            CqeOpcode::RESPONDER_WRITE_IMMEDIATE => {
                Arrival::WriteImmediate(Immediate(self.immediate.get()))
            }
            CqeOpcode::RESPONDER_SEND => Arrival::Send,
            CqeOpcode::RESPONDER_SEND_IMMEDIATE => {
                Arrival::SendImmediate(Immediate(self.immediate.get()))
            }
            CqeOpcode::RESPONDER_SEND_INVALIDATE => {
                Arrival::SendInvalidate(RemoteKey(self.immediate.get()))
            }
            other => return Err(CqeError::Unsupported(other)),
        };
        Ok(Completion::Responder(Responder {
            qpn: tail.qpn(),
            wqe_counter: tail.wqe_counter(),
            byte_count: self.byte_count.get(),
            kind,
        }))
    }

    /// The same CQE with its solicited bit set.
    #[inline]
    pub const fn solicited(mut self) -> Self {
        self.op_own |= 2;
        self
    }
}

impl Completion {
    /// The CQE that says this, for whoever writes CQEs. Fields that a completion does not have are
    /// zero; set them afterwards (user index, timestamp, source QPN).
    ///
    /// Whoever writes the entry to a queue writes byte 63 last, because a poll goes by it.
    ///
    /// ```
    /// use mlx5_wqe::{Completion, Opcode, QpNumber, Requester, WqeIndex};
    ///
    /// let done = Completion::Requester(Requester {
    ///     qpn: QpNumber::new(0x1234).unwrap(),
    ///     wqe_index: WqeIndex(7),
    ///     opcode: Opcode::RDMA_WRITE,
    ///     byte_count: 0,
    /// });
    /// let cqe = done.encode(true);
    /// assert!(cqe.tail().is_new(true));
    /// assert_eq!(cqe.decode(), Ok(done));
    /// ```
    #[inline]
    pub const fn encode(self, owner: bool) -> Cqe64 {
        match self {
            Self::Requester(Requester {
                qpn,
                wqe_index,
                opcode,
                byte_count,
            }) => {
                let tail = CqeTail::new(CqeOpcode::REQUESTER, owner, opcode, qpn, wqe_index.0);
                let mut cqe = Cqe64::from_words([0, 0, 0, 0, 0, 0, 0, tail.0]);
                cqe.byte_count = U32::new(byte_count);
                cqe
            }
            Self::Responder(Responder {
                qpn,
                wqe_counter,
                byte_count,
                kind,
            }) => {
                let (opcode, immediate) = match kind {
                    Arrival::WriteImmediate(value) => {
                        (CqeOpcode::RESPONDER_WRITE_IMMEDIATE, value.0)
                    }
                    Arrival::Send => (CqeOpcode::RESPONDER_SEND, 0),
                    Arrival::SendImmediate(value) => (CqeOpcode::RESPONDER_SEND_IMMEDIATE, value.0),
                    Arrival::SendInvalidate(key) => (CqeOpcode::RESPONDER_SEND_INVALIDATE, key.0),
                };
                let tail = CqeTail::new(opcode, owner, Opcode(0), qpn, wqe_counter);
                let mut cqe = Cqe64::from_words([0, 0, 0, 0, 0, 0, 0, tail.0]);
                cqe.byte_count = U32::new(byte_count);
                cqe.immediate = U32::new(immediate);
                cqe
            }
            Self::Error(error) => {
                let opcode = match error.side {
                    Side::Requester => CqeOpcode::REQUESTER_ERROR,
                    Side::Responder => CqeOpcode::RESPONDER_ERROR,
                };
                let tail = CqeTail::new(opcode, owner, error.opcode, error.qpn, error.wqe_index.0);
                let word = CqeErrorWord::new(error.syndrome, error.vendor);
                Cqe64::from_words([0, 0, 0, 0, 0, 0, word.0, tail.0])
            }
        }
    }
}
