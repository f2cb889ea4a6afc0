//! WAIT and SEND_EN in the send queue: other queues decide whether they start.

use mlx5_wqe::{Syndrome, VendorCode};

use super::{Cursor, InFlight, Kind, Requester};
use crate::engine::decode::Operation;
use crate::engine::memory::Memory;
use crate::engine::queue_pair::{Context, Failure, QueuePair, SendWqe};
use crate::engine::wire::Wire;

/// What a WAIT or SEND_EN ends with that cannot be carried out.
pub(super) const BAD_GATE: Failure = (Syndrome::LOCAL_QP_OPERATION, VendorCode::NONE);

/// A WAIT or a SEND_EN that is the next to start.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Gate {
    pub(in crate::engine) wqe: SendWqe,
    pub(in crate::engine) operation: Operation,
}

impl Requester {
    /// The WAIT or SEND_EN that is the next to start, if [`send_requests`](QueuePair::send_requests) came to one.
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
}

impl QueuePair {
    /// Starts a WAIT or SEND_EN that other queues let start: it is done with those before it.
    pub(in crate::engine) fn pass<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        gate: &Gate,
    ) {
        // It counts, and does not fail: one that was to fail is no gate.
        let _ = self.requester.take_fault();
        let entry = InFlight {
            wqe: gate.wqe,
            first_psn: self.requester.next_psn,
            packets: 0,
            kind: Kind::Acknowledged,
        };
        self.requester.push(entry, cx.now);
        self.requester.cursor = Cursor {
            entry: self.requester.cursor.entry + 1,
            packet: 0,
        };
        self.settle(cx);
    }

    /// Fails one that asks for what cannot be.
    pub(in crate::engine) fn fail_gate<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        gate: &Gate,
    ) {
        self.requester.fail(gate.wqe, BAD_GATE);
        self.settle(cx);
    }
}
