//! Where a datagram goes, and the global route header that it arrives with.

use mlx5_wqe::AddressVector;

use crate::engine::gid;
use crate::engine::packet::{Header, Opcode, PacketFlags, WireAddress};

/// In a Q_Key: the queue pair's own is meant.
const OWN_KEY: u32 = 1 << 31;
/// Bytes of UDP, base transport and datagram headers and of the checksum, which a route header counts.
const HEADERS: u32 = 8 + 12 + 8 + 4;
/// Bytes of immediate data.
const IMMEDIATE: u32 = 4;
/// The protocol that follows the route header: UDP, as in RoCE v2.
const NEXT_HEADER: u8 = 17;

/// Makes a request's header a datagram's: to where the vector says, which is the HCA `to`, from the HCA that `header`
/// comes from.
pub(super) fn address(header: &mut Header, vector: &AddressVector, to: WireAddress, own_key: u32) {
    let from = gid::of(WireAddress(header.source));
    header.opcode = Opcode::Datagram as u8;
    header.destination = to.0;
    header.destination_qp = vector.qpn().get();
    header.rkey = match vector.qkey() {
        key if key & OWN_KEY != 0 => own_key,
        key => key,
    };
    let extra = match header.flags().contains(PacketFlags::IMMEDIATE) {
        true => IMMEDIATE,
        false => 0,
    };
    let length = header.length.next_multiple_of(4) + HEADERS + extra;
    // Longer ones than a card's packets are possible within a machine.
    let length = length.min(u16::MAX.into());
    let flow = vector.grh_gid_fl.get() & 0x000f_ffff;
    let first = 6 << 28 | u32::from(vector.tclass) << 20 | flow;
    let start = u64::from(first) << 32
        | u64::from(length) << 16
        | u64::from(NEXT_HEADER) << 8
        | u64::from(vector.hop_limit);
    header.address = start.to_be();
    for (word, bytes) in header
        .operands
        .iter_mut()
        .zip(from.chunks_exact(8).chain(vector.rgid.chunks_exact(8)))
    {
        let mut eight = [0; 8];
        eight.copy_from_slice(bytes);
        *word = u64::from_ne_bytes(eight);
    }
}
