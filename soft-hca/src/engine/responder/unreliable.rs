//! The responder of an unreliable connection: executes what comes whole, and tells nobody of what does not.

use super::{Reject, psn};
use crate::engine::command::QueuePairState;
use crate::engine::memory::Memory;
use crate::engine::packet::{Opcode, Packet, PacketFlags, Refusal};
use crate::engine::queue_pair::{Context, QueuePair};
use crate::engine::wire::Wire;

impl QueuePair {
    /// Handles what the peer's requester sent.
    #[inline(never)]
    pub(in crate::engine) fn handle_unreliable<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        opcode: Opcode,
        packet: &Packet,
    ) {
        let header = &packet.header;
        let ready = matches!(
            self.state,
            QueuePairState::ReadyToReceive | QueuePairState::ReadyToSend
        );
        if !ready || header.psn > psn::MASK {
            return;
        }
        // A message of which a packet is missing is lost, and so is one that another interrupts; what follows of it
        // finds no message to belong to. The receive that it had taken is the next one's.
        if header.psn != self.responder.expected || header.flags().contains(PacketFlags::FIRST) {
            self.responder.message = None;
        }
        self.responder.expected = psn::add(header.psn, 1);
        let executed = match opcode {
            Opcode::Write => self.execute_write(cx, packet),
            Opcode::Send => self.execute_send(cx, packet),
            _ => return,
        };
        match executed {
            Ok(_) | Err(Reject::Gone) => {}
            // What the receive cannot hold is lost, too, and the receive is the next one's (9.9.3).
            Err(
                Reject::NotReady | Reject::Refuse(_) | Reject::Receive(Refusal::InvalidRequest, _),
            ) => self.responder.message = None,
            Err(Reject::Receive(_, failure) | Reject::Silent(failure)) => {
                self.fail_receive(cx, failure);
            }
        }
    }
}
