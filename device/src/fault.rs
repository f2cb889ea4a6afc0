//! What a proxy tells kernels besides what the NIC does.

use mlx5_wqe::{Side, Syndrome};

use crate::error::{Cause, QueueError};

/// Why a proxy carries out no more of a queue's requests. It is the queue's error from then on; all requests before
/// the one that the error names are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Fault {
    /// The proxy was stopped, or gave the queue back. It has carried out all that was handed to it until then.
    #[error("the proxy was stopped; have another one serve the queue")]
    Stopped = 0xe1,
    /// The proxy's thread died while it asked its owner about this request. That was not carried out, nor is anything
    /// behind it. If it died elsewhere, and no other one came, what was handed to it last may have been carried out or
    /// not.
    #[error("the proxy's thread died at the request; reset the queue, and have it served anew")]
    Died = 0xe2,
    /// The proxy's owner does not allow this request. It was not carried out, nor is anything behind it.
    #[error("the proxy does not allow the request; reset the queue")]
    Refused = 0xe3,
    /// No WQE of this queue lies where the doorbell says, or the doorbell tells of more than the ring holds.
    #[error("the proxy found no WQE of this queue there; reset the queue")]
    Damaged = 0xe4,
    /// The proxy's owner was asked about this request and does not answer. It was not carried out, nor is anything
    /// behind it.
    #[error("the proxy's owner does not say whether it allows the request; reset the queue")]
    Hung = 0xe5,
}

impl Fault {
    const ALL: [Self; 5] = [
        Self::Stopped,
        Self::Died,
        Self::Refused,
        Self::Damaged,
        Self::Hung,
    ];

    /// The syndrome that stands for it: one that no card gives.
    pub const fn syndrome(self) -> Syndrome {
        Syndrome(self as u8)
    }

    /// The proxy's fault behind an error, if it is one.
    pub fn of(error: QueueError) -> Option<Self> {
        let Cause::Completion(error) = error.cause() else {
            return None;
        };
        let is_cause = |fault: &Self| fault.syndrome() == error.syndrome;
        let found = Self::ALL.into_iter().find(is_cause);
        found.filter(|_| error.side == Side::Requester)
    }
}

#[cfg(test)]
mod tests {
    use mlx5_wqe::{CqeErrorWord, CqeOpcode, CqeTail, Opcode, QpNumber, VendorCode};

    use super::*;

    #[test]
    fn a_fault_survives_its_cqe_and_no_card_gives_one() {
        let error = |opcode, syndrome| {
            let word = CqeErrorWord::new(syndrome, VendorCode::NONE);
            let tail = CqeTail::new(opcode, false, Opcode::NOP, QpNumber::MAX, 7);
            QueueError::of_cqe(word, tail)
        };
        for fault in Fault::ALL {
            let told = error(CqeOpcode::REQUESTER_ERROR, fault.syndrome());
            assert_eq!(Fault::of(told), Some(fault));
            let received = error(CqeOpcode::RESPONDER_ERROR, fault.syndrome());
            assert_eq!(Fault::of(received), None);
            assert_eq!(fault.syndrome().describe(), None);
        }
        for syndrome in Syndrome::KNOWN {
            let told = error(CqeOpcode::REQUESTER_ERROR, *syndrome);
            assert_eq!(Fault::of(told), None);
        }
    }
}
