//! WAIT and SEND_EN in the send queue: other queues decide whether they start.

use crate::engine::sending::{BAD_GATE, Gate, InFlight, Kind, Requester};

impl Requester {
    /// The WAIT or SEND_EN that is the next to start, if [`send_requests`](crate::engine::queue_pair::QueuePair::send_requests) came to one.
    pub(in crate::engine) const fn take_gate(&mut self) -> Option<Gate> {
        self.gate.take()
    }

    /// Whether all that is left to do is behind a WAIT.
    pub(in crate::engine) fn is_held(&self) -> bool {
        self.waits && self.in_flight.is_empty()
    }

    /// Whether the next WQE is to fail by command.
    pub(super) const fn is_to_fail(&self) -> bool {
        matches!(self.fault, Some((0, _)))
    }

    /// Lets a WAIT or SEND_EN start, which is done with those before it, or fails it: it is the next to be sent.
    pub(in crate::engine) fn start_gate(&mut self, gate: &Gate, passes: bool, now: u64) {
        if !passes {
            self.inject(0, BAD_GATE);
            return;
        }
        // It counts for a failure by command, and is not the one that was to fail, which is no gate.
        let _ = self.take_fault();
        let entry = InFlight {
            wqe: gate.wqe,
            first_psn: self.next_psn,
            packets: 0,
            kind: Kind::Acknowledged,
        };
        self.push(entry, now);
    }
}
