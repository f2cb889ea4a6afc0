#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

mod extended;
mod headers;
mod icrc;
mod ip;
mod opcode;
mod packet;
mod syndrome;
mod units;

pub use extended::{Extended, Form};
pub use headers::{Aeth, AtomicAckEth, AtomicEth, Bth, BthFlags, CnpBody, Deth, Ieth, ImmDt, Reth};
pub use icrc::Icrc;
pub use ip::{DONT_FRAGMENT, FrameError, Ip, UDP_PORT, UdpIp, from_ethernet, from_ip};
pub use opcode::{BthOpcode, Kind, Position, Shape, Transport};
pub use packet::{BuildError, Headers, MAX_HEADERS, MAX_TRAILER, Packet, ParseError, Trailer};
pub use syndrome::{AethSyndrome, Credits, NakCode, Response, RnrTimer};
pub use units::{Msn, Psn, Qpn};
