//! Packets in a file, as tshark and wireshark read them.
//!
//! The file is pcapng: a section, one interface whose packets begin with the IP header, and an enhanced packet block for
//! each packet. All blocks are in this machine's byte order, which the section's magic number shows.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::prelude::v1::*;
use std::time::SystemTime;

use warpbell_roce::{Ip, UdpIp};

use super::route_header::{UDP, checksum, ip_header};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const MAGIC: u32 = 0x1a2b_3c4d;
/// `LINKTYPE_RAW`: packets begin with an IP header.
const RAW_IP: u16 = 101;

/// A file that packets are written to.
pub(super) struct Capture {
    /// None once it could not be written.
    file: Option<BufWriter<File>>,
}

impl Capture {
    /// Makes the file, and empties one that is there.
    pub fn create(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        let version = [1u16, 0].map(u16::to_ne_bytes);
        // Of a length that is not known.
        let length = u64::MAX.to_ne_bytes();
        let section = [&MAGIC.to_ne_bytes(), version.as_flattened(), &length].concat();
        block(&mut file, SECTION, &section)?;
        let link = [RAW_IP, 0].map(u16::to_ne_bytes);
        let any_length = 0u32.to_ne_bytes();
        // The option for times: code 9, one byte, 10^-9 s; and the end of the options.
        let times = [9u16, 1].map(u16::to_ne_bytes);
        let options = [times.as_flattened(), &[9, 0, 0, 0], &[0; 4]].concat();
        let interface = [link.as_flattened(), &any_length, &options].concat();
        block(&mut file, INTERFACE, &interface)?;
        file.flush()?;
        Ok(Self { file: Some(file) })
    }

    /// Writes a packet, which is these bytes behind these headers.
    pub fn packet(&mut self, front: &UdpIp, bytes: &[u8]) {
        let ip = ip_header(front, 0);
        let ports = [front.source_port, front.destination_port];
        let mut udp = [ports[0], ports[1], front.udp_length, 0].map(u16::to_be_bytes);
        if let Ip::V6 { .. } = front.ip {
            // Over IPv6 it may not be left out (RFC 8200, 8.1).
            udp[3] = udp_checksum(&ip, udp.as_flattened(), bytes).to_be_bytes();
        }
        let length = (ip.len() + size_of_val(&udp) + bytes.len()) as u32;
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let time = time.map_or(0, |time| time.as_nanos() as u64);
        let words = [0, (time >> 32) as u32, time as u32, length, length].map(u32::to_ne_bytes);
        let packet = [words.as_flattened(), &ip, udp.as_flattened(), bytes].concat();
        self.with(|file| block(file, ENHANCED_PACKET, &packet));
    }

    /// Sees that what was written is in the file.
    pub fn flush(&mut self) {
        // Without packets this is no system call.
        self.with(Write::flush);
    }

    fn with(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        let Some(Err(error)) = self.file.as_mut().map(write) else {
            return;
        };
        tracing::warn!(%error, "the capture ends");
        self.file = None;
    }
}

/// The checksum of a UDP datagram behind this IPv6 header, which has the addresses behind its first 8 bytes.
fn udp_checksum(ip: &[u8], udp: &[u8], bytes: &[u8]) -> u16 {
    let length = ((udp.len() + bytes.len()) as u32).to_be_bytes();
    match checksum(&[&ip[8..], &length, &[0, 0, 0, UDP], udp, bytes]) {
        // Zero says that there is none (RFC 768).
        0 => u16::MAX,
        sum => sum,
    }
}

/// Writes a block: its type, its length, what is in it up to a multiple of 4 bytes, and its length again.
fn block(file: &mut impl Write, kind: u32, content: &[u8]) -> io::Result<()> {
    let padded = content.len().next_multiple_of(4);
    let length = (padded as u32 + 12).to_ne_bytes();
    file.write_all(&kind.to_ne_bytes())?;
    file.write_all(&length)?;
    file.write_all(content)?;
    file.write_all(&[0; 3][..padded - content.len()])?;
    file.write_all(&length)
}
