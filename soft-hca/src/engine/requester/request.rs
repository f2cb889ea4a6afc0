//! The headers of requests: what IBTA volume 1 has in the base transport header (9.2) and the extended ones (9.3).

use mlx5_wqe::ControlFlags;
use mlx5_wqe::decode::{DecodedWqe, Extra, Operation};

use crate::engine::packet::{Header, Opcode, PacketFlags};
use crate::engine::psn;
use crate::engine::sending::{InFlight, Kind};

/// Packets between two that ask for an acknowledgement in the middle of a message.
const ACKNOWLEDGE_EVERY: u32 = 16;

/// The header of packet number `packet` of a message.
pub(super) fn request(
    template: &Header,
    wqe: &DecodedWqe<'_>,
    entry: &InFlight,
    packet: u32,
    mtu: u32,
) -> Header {
    let mut header = *template;
    header.psn = psn::add(entry.first_psn, packet);
    header.length = wqe.length;
    let mut flags = PacketFlags::ACKNOWLEDGE;
    let extra = match wqe.operation {
        Operation::Read(remote) => {
            // Asked again, a READ leaves out what has arrived.
            let done = packet * mtu;
            header.opcode = Opcode::ReadRequest as u8;
            header.address = remote.address.wrapping_add(u64::from(done));
            header.rkey = remote.key.0;
            header.length = wqe.length - done;
            Extra::None
        }
        Operation::Atomic(remote, atomic) => {
            header.opcode = Opcode::Atomic as u8;
            header.address = remote.address;
            header.rkey = remote.key.0;
            header.detail = atomic.kind as u8;
            header.width = atomic.width;
            header.operands = atomic.operands;
            Extra::None
        }
        Operation::Write(remote, extra) => {
            header.opcode = Opcode::Write as u8;
            header.address = remote.address;
            header.rkey = remote.key.0;
            extra
        }
        Operation::Send(extra) => extra,
        Operation::Nop | Operation::Queue(_) => Extra::None,
    };
    // The request for a READ is one packet, however many its answer has.
    let whole = entry.kind == Kind::Answered;
    let last = whole || packet + 1 == entry.packets;
    flags.set(PacketFlags::FIRST, whole || packet == 0);
    flags.set(PacketFlags::LAST, last);
    flags.set(
        PacketFlags::ACKNOWLEDGE,
        last || packet % ACKNOWLEDGE_EVERY == ACKNOWLEDGE_EVERY - 1,
    );
    flags.set(
        PacketFlags::SOLICITED,
        last && wqe.flags.contains(ControlFlags::SOLICITED),
    );
    match extra {
        Extra::Immediate(immediate) if last => {
            header.immediate = immediate.0;
            flags |= PacketFlags::IMMEDIATE;
        }
        Extra::Invalidate(key) if last => {
            header.immediate = key.0;
            flags |= PacketFlags::INVALIDATE;
        }
        _ => {}
    }
    header.flags = flags.bits();
    header
}
