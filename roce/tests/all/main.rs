//! Packets of Linux's soft-RoCE and of scapy, and any others, by the crate's interface alone.

mod frames;
mod packets;
mod rxe;
mod scapy;
mod syndromes;

use warpbell_roce::{Headers, Icrc, MAX_HEADERS, Packet, UdpIp};

/// The packet of these headers and this payload, as a sender builds it.
fn build(headers: &Headers, payload: &[u8], udp: &UdpIp) -> Vec<u8> {
    let mut scratch = [0xee; MAX_HEADERS];
    let headers = headers.write(&mut scratch);
    let mut icrc = Icrc::new(udp);
    icrc.update(headers);
    icrc.update(payload);
    [headers, payload, &icrc.trailer(payload.len())].concat()
}

/// The bytes of a parsed packet, put together again.
fn bytes_of(packet: &Packet<'_>) -> Vec<u8> {
    let mut scratch = [0xee; MAX_HEADERS];
    let headers = packet.headers.write(&mut scratch);
    [headers, packet.payload, &packet.trailer].concat()
}
