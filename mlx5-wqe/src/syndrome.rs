//! Why a work request failed, in words.

use core::fmt;

use crate::codes::codes;

/// A syndrome in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name, in lower case.
    pub name: &'static str,
    /// What happened, one sentence.
    pub meaning: &'static str,
    /// What to look at first, one sentence.
    pub look_at: &'static str,
}

/// Declares the syndromes, and documents each with its description.
macro_rules! syndromes {
    ($($constant:ident = $value:literal, $name:literal, $meaning:literal, $look_at:literal;)*) => {
        codes! {
            /// What went wrong with a work request: byte 55 of an error CQE.
            ///
            /// Source: `MLX5_CQE_SYNDROME_*` in mlx5dv.h.
            Syndrome(u8).describe: Description {
                $(
                    #[doc = concat!("The ", $name, ". ", $meaning)]
                    $constant = $value,
                        Description { name: $name, meaning: $meaning, look_at: $look_at };
                )*
            }
        }
    };
}

syndromes! {
    LOCAL_LENGTH = 0x01, "local length error",
        "The message did not fit: a receive was too small, or a WQE's length is not allowed.",
        "Compare the size of the posted receive with the message, and the message with the \
         port's maximum.";
    LOCAL_QP_OPERATION = 0x02, "local QP operation error",
        "The card could not make sense of the WQE, or the queue pair may not do what it asks.",
        "Look at the WQE's index, QPN, ds and opcode, and at the queue pair's type and \
         capabilities.";
    LOCAL_PROTECTION = 0x04, "local protection error",
        "A local key is wrong, of another protection domain, out of range, or lacks local write \
         access.",
        "Compare lkey, address and length of each data segment with the memory region.";
    FLUSHED = 0x05, "work request flushed",
        "The queue pair was in error already, so the card did not carry the work request out.",
        "Look for the first error of the same queue; this one only follows from it.";
    MEMORY_WINDOW_BIND = 0x06, "memory window bind error",
        "A memory window could not be bound, or a send could not take a key away.",
        "Look at the window's type, its key, and the bind access of the region beneath.";
    BAD_RESPONSE = 0x10, "bad response error",
        "The other end answered with something that does not fit the request.",
        "Check that both ends are connected to each other and agree on the packet sequence \
         numbers.";
    LOCAL_ACCESS = 0x11, "local access error",
        "Arriving data hit local memory that may not be written so.",
        "Look at the access rights of the region that the data were for.";
    REMOTE_INVALID_REQUEST = 0x12, "remote invalid request error",
        "The other end refused the request: its receive is too small, an atomic is misaligned, \
         or the operation is not enabled there.",
        "Look at the receive's size, the remote address's alignment, and the other queue pair's \
         remote access flags.";
    REMOTE_ACCESS = 0x13, "remote access error",
        "The remote key is wrong, out of range, or lacks the access that the operation needs.",
        "Compare rkey, remote address and length with the other end's memory region and its \
         access rights.";
    REMOTE_OPERATION = 0x14, "remote operation error",
        "The other end failed while it carried the request out.",
        "Look at the other end's completion queue: its own error says why.";
    TRANSPORT_RETRY = 0x15, "transport retry counter exceeded",
        "The other end did not acknowledge in time, however often the card tried.",
        "Check that the peer lives, is in RTR or RTS, that QPN, address and MTU agree, and that \
         the link is up.";
    RNR_RETRY = 0x16, "RNR retry counter exceeded",
        "The other end had no receive posted, however often the card tried.",
        "Post receives sooner or more of them, or raise rnr_retry (7 tries for ever).";
    REMOTE_ABORTED = 0x22, "remote aborted error",
        "The other end gave the operation up.",
        "Look at the state of the other end's queue pair.";
}

impl Syndrome {
    /// The name, or "unknown syndrome".
    pub const fn name(self) -> &'static str {
        match self.describe() {
            Some(description) => description.name,
            None => "unknown syndrome",
        }
    }
}

impl fmt::Display for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (syndrome 0x{:02x})", self.name(), self.0)
    }
}

/// How a vendor code came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A CQE with it was dumped on a real card.
    Card,
    /// Somebody reported it in a public thread.
    Thread,
    /// A public header names it.
    Header,
}

/// A vendor code in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VendorDescription {
    /// The syndrome that it came with; `None` where the source does not say.
    pub syndrome: Option<Syndrome>,
    /// What it stands for.
    pub meaning: &'static str,
    /// How it is known.
    pub evidence: Evidence,
}

/// Why a vendor code is listed, with the syndrome that it came with.
const fn seen(
    evidence: Evidence,
    syndrome: Option<Syndrome>,
    meaning: &'static str,
) -> VendorDescription {
    VendorDescription {
        syndrome,
        meaning,
        evidence,
    }
}

codes! {
    /// The vendor's own code beside a syndrome: byte 54 of an error CQE. There is no public list.
    VendorCode(u8).describe: VendorDescription {
        /// A local key that does not fit; dumped on a card.
        LOCAL_KEY = 0x53, seen(
            Evidence::Card,
            Some(Syndrome::LOCAL_PROTECTION),
            "a local key does not fit the access",
        );
        /// No acknowledgement; reported in a thread.
        NO_ACKNOWLEDGEMENT = 0x81, seen(
            Evidence::Thread,
            Some(Syndrome::TRANSPORT_RETRY),
            "no acknowledgement from the other end",
        );
        /// No receive at the other end; dumped on a card.
        RECEIVER_NOT_READY = 0x87, seen(
            Evidence::Card,
            Some(Syndrome::RNR_RETRY),
            "the other end kept answering that it has no receive",
        );
        /// Access refused by the other end; dumped on a card.
        REMOTE_ACCESS = 0x88, seen(
            Evidence::Card,
            Some(Syndrome::REMOTE_ACCESS),
            "the other end refused access to its memory",
        );
        /// Request refused by the other end; reported in a thread.
        REMOTE_REQUEST = 0x8a, seen(
            Evidence::Thread,
            Some(Syndrome::REMOTE_INVALID_REQUEST),
            "the other end refused the request",
        );
        /// A page fault on demand-paged memory; named in mlx5dv.h.
        PAGE_FAULT = 0x93, seen(Evidence::Header, None, "page fault on demand-paged memory");
        /// Flushed after an earlier error; reported in a thread.
        FLUSHED = 0xf9, seen(
            Evidence::Thread,
            Some(Syndrome::FLUSHED),
            "flushed after an earlier error",
        );
    }
}

impl VendorCode {
    /// No code.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for VendorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vendor code 0x{:02x}", self.0)
    }
}
