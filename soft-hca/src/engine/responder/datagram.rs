//! The receiver of datagrams: what nobody waits for is dropped, the rest arrives behind its global route header.

use mlx5_wqe::decode::DataItem;
use mlx5_wqe::{CqeOpcode, Local, Syndrome, VendorCode};

use super::receive::Segments;
use crate::engine::command::{Access, ProtectionDomain, QueuePairState};
use crate::engine::memory::Memory;
use crate::engine::packet::{Header, Opcode, Packet, PacketFlags, Range};
use crate::engine::queue_pair::{Context, QueuePair};
use crate::engine::transfer::{ScatterError, scatter};
use crate::engine::wire::Wire;

/// Bytes of a global route header.
const ROUTE_HEADER: usize = 40;
/// In `flags_rqpn`: the receive begins with a global route header.
const HAS_ROUTE_HEADER: u32 = 1 << 28;
/// In `flags_rqpn`, two bits: the [`RouteHeader`](crate::engine::packet::RouteHeader), where InfiniBand has the service
/// level.
const ROUTE_HEADER_SHIFT: u32 = 24;

/// What the CQE of a message says of where it came from.
pub(super) fn source(header: &Header) -> u32 {
    match Opcode::from_number(header.opcode) {
        Some(Opcode::Datagram) => {
            let kind = u32::from(header.detail & 0x3) << ROUTE_HEADER_SHIFT;
            HAS_ROUTE_HEADER | kind | header.source_qp
        }
        _ => 0,
    }
}

/// The global route header that a datagram's header carries.
fn route_header(header: &Header) -> [u8; ROUTE_HEADER] {
    let mut bytes = [0; ROUTE_HEADER];
    let words = [header.address].into_iter().chain(header.operands);
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

impl QueuePair {
    /// Handles a datagram.
    #[inline(never)]
    pub(in crate::engine) fn handle_datagram<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        packet: &Packet,
    ) {
        let header = &packet.header;
        let ready = matches!(
            self.state,
            QueuePairState::ReadyToReceive | QueuePairState::ReadyToSend
        );
        let payload = packet.payload_length();
        let fits = payload <= u64::from(self.limits.mtu);
        if !ready || header.rkey != self.q_key || !fits || !self.take_receive(cx) {
            return;
        }
        let (segments, pd) = self.receive_segments(cx);
        let length = ROUTE_HEADER as u64 + payload;
        if segments.iter().copied().map(length_of).sum::<u64>() < length {
            // Nobody is told, and the receive is the next one's (9.8.3.2.2, 9.9.3).
            return;
        }
        let opcode = match header.flags().contains(PacketFlags::IMMEDIATE) {
            true => CqeOpcode::RESPONDER_SEND_IMMEDIATE,
            false => CqeOpcode::RESPONDER_SEND,
        };
        if store_datagram(cx, packet, &segments, pd).is_err() {
            self.fail_receive(cx, (Syndrome::LOCAL_PROTECTION, VendorCode::LOCAL_KEY));
            return;
        }
        // Where the completion queue is dead, this queue pair is in error by now, and nobody is told.
        let _ = self.complete_receive(cx, header, opcode, length as u32);
    }
}

/// Writes header and message into the segments of a receive WQE, in which there is room for both.
fn store_datagram<M: Memory, W: Wire>(
    cx: &Context<'_, '_, M, W>,
    packet: &Packet,
    segments: &Segments,
    pd: ProtectionDomain,
) -> Result<(), ScatterError> {
    let header = route_header(&packet.header);
    let mut left = &header[..];
    for local in segments {
        let length = length_of(*local);
        let (now, later) = left.split_at(left.len().min(length as usize));
        let target = Range {
            address: local.address,
            length,
        };
        if !now.is_empty() {
            cx.regions
                .check(pd, local.key.0, target, Access::LOCAL_WRITE)
                .map_err(|_| ScatterError::Denied)?;
            // SAFETY: the segment was just checked, and is at least as long.
            unsafe { cx.memory.write(local.address, now) };
        }
        left = later;
    }
    scatter(
        cx.memory,
        cx.regions,
        pd,
        segments.iter().copied(),
        ROUTE_HEADER as u64,
        &packet.payload,
    )
}

/// The bytes of a receive's segment.
fn length_of(local: Local) -> u64 {
    DataItem::Memory(local).length()
}
