//! WQEs of a send queue: one, several, or a whole ring.

use mlx5_wqe::decode::{BLOCK, DecodeError, Transport, decode_for};
use mlx5_wqe::segment::{Control, RemoteAddress, Wait};
use mlx5_wqe::umr::{Klm, MkeyContext, UmrControl};
use mlx5_wqe::{AddressVector, Octoword, Opcode, QpNumber, WqeIndex, opcode::modifier, signature};

use super::fields::{Reader, is_zero, torn, undescribed};
use super::segments::{self, Listed, OCTOWORD, read};
use super::{Context, Structure};

/// Where the walk over a queue's bytes is.
struct Walk<'a> {
    /// The queue's bytes; of a whole ring twice, so that a WQE which wraps is in one piece.
    bytes: &'a [u8],
    /// The queue's bytes, once.
    len: usize,
    /// The bytes are a whole ring of so many blocks.
    ring: Option<usize>,
    /// The index that the next WQE should have, and why.
    expected: Option<u16>,
    qpn: Option<QpNumber>,
    context: &'a Context,
}

/// The WQEs in these bytes.
pub(super) fn queue(bytes: &[u8], context: &Context) -> Vec<Structure> {
    let blocks = context.log_size.map(|log| 1_usize << log);
    let ring = blocks.filter(|blocks| blocks * BLOCK == bytes.len());
    let doubled = ring.map(|_| [bytes, bytes].concat());
    let mut walk = Walk {
        bytes: doubled.as_deref().unwrap_or(bytes),
        len: bytes.len(),
        ring,
        expected: context
            .index
            .filter(|_| ring.is_none())
            .map(|index| index as u16),
        qpn: context.qpn.map(QpNumber::from_low_bits),
        context,
    };
    let start = walk.wrapped();
    let mut at = start * BLOCK;
    let mut found = Vec::new();
    // What a WQE at the end takes of the ring's beginning is its own.
    let end = walk.len + at;
    while at < walk.len {
        let structure = walk.next(at, end);
        at += match structure.bytes.next_multiple_of(BLOCK) {
            0 => BLOCK,
            taken => taken,
        };
        found.push(structure);
    }
    found
}

impl Walk<'_> {
    fn control(&self, at: usize) -> Option<Control> {
        let bytes = self.bytes.get(at..at + OCTOWORD)?;
        (!is_zero(bytes)).then(|| read(&Reader::new(bytes, 0), 0))
    }

    /// Whether a WQE of the ring begins in a slot: its index belongs there, it has a size, and it is of the queue pair, if
    /// that is known. Data may look like a WQE.
    fn begins(&self, slot: usize, ring: usize) -> Option<Control> {
        let control = self.control(slot * BLOCK)?;
        let is_here = usize::from(control.index().0) % ring == slot && control.ds() > 0;
        let is_ours = self.qpn.is_none_or(|qpn| control.qpn() == qpn);
        (is_here && is_ours).then_some(control)
    }

    /// Blocks at the ring's beginning that belong to a WQE at its end.
    fn wrapped(&self) -> usize {
        let Some(ring) = self.ring else { return 0 };
        if self.begins(0, ring).is_some() {
            return 0;
        }
        let mut last = (1..ring)
            .rev()
            .take(usize::from(mlx5_wqe::MAX_WQE_BLOCKS as u16));
        let blocks = last.find_map(|slot| {
            let control = self.begins(slot, ring)?;
            Some((slot + usize::from(control.blocks())).saturating_sub(ring))
        });
        blocks.unwrap_or(0).min(ring - 1)
    }

    fn next(&mut self, at: usize, end: usize) -> Structure {
        let here = &self.bytes[at..self.len];
        if here.len() < OCTOWORD {
            return torn("control segment", OCTOWORD, here, at);
        }
        let unused = here
            .chunks(BLOCK)
            .take_while(|block| is_zero(block))
            .count();
        if unused > 0 {
            let bytes = &here[..here.len().min(unused * BLOCK)];
            self.expected = self.expected.map(|index| index.wrapping_add(unused as u16));
            let title = match unused {
                1 => "unused block".to_string(),
                _ => format!("{unused} unused blocks"),
            };
            let mut reader = Reader::new(bytes, at);
            reader.field(0, bytes.len(), None, "zeros", "never posted, or cleared");
            return reader.finish(title, bytes.len());
        }
        if let Some(ring) = self.ring
            && self.begins(at / BLOCK, ring).is_none()
            && self
                .control(at)
                .is_none_or(|control| usize::from(control.index().0) % ring != at / BLOCK)
        {
            return self.no_beginning(at, ring);
        }
        self.wqe(at, end)
    }

    /// A block of a ring in which no WQE begins.
    fn no_beginning(&self, at: usize, ring: usize) -> Structure {
        let bytes = &self.bytes[at..(at + BLOCK).min(self.len)];
        let mut found = undescribed("block in which no WQE begins", bytes, at);
        let index = self.control(at).map_or(0, |control| control.index().0);
        let mut reader = Reader::new(bytes, at);
        reader.warning(
            0,
            format!(
                "as a WQE it would have index {index:#06x}, which belongs in slot {} of {ring}, but this is slot {}: \
                 it is the rest of an older WQE that was overwritten in part, or stray data",
                usize::from(index) % ring,
                at / BLOCK,
            ),
        );
        found.findings = reader.finish("", 0).findings;
        found
    }

    fn wqe(&mut self, at: usize, end: usize) -> Structure {
        let left = end.min(self.bytes.len()) - at;
        let control: Control = read(&Reader::new(&self.bytes[at..], 0), 0);
        let whole = usize::from(control.ds().max(1)) * OCTOWORD;
        let taken = whole.next_multiple_of(BLOCK).min(left);
        let bytes = &self.bytes[at..at + taken];
        let mut reader = match self.ring {
            Some(_) => Reader::in_ring(bytes, at, self.len),
            None => Reader::new(bytes, at),
        };
        segments::control(&mut reader, control);
        self.judge(&mut reader, at, control, left);
        let wqe_end = whole.min(taken);
        if control.ds() > 0 {
            let missing = self.body(&mut reader, control, wqe_end);
            self.judge_whole(&mut reader, control, wqe_end, missing);
        }
        let behind = wqe_end;
        let (name, words) = match control.ds() {
            0 => ("bytes", "not described, because ds is 0"),
            _ => ("padding", "behind the WQE, up to a whole block: not read"),
        };
        reader.field(behind, taken - behind, None, name, words);
        self.expected = Some(control.index().advance(control.blocks().max(1).into()).0);
        let blocks = match control.blocks() {
            1 => "1 block".to_string(),
            blocks => format!("{blocks} blocks"),
        };
        let title = format!(
            "send WQE {}: {} of queue pair {}, {blocks}",
            control.index(),
            control.opcode(),
            control.qpn(),
        );
        reader.finish(title, taken)
    }

    /// What the control segment says that does not fit the queue.
    fn judge(&mut self, reader: &mut Reader<'_>, at: usize, control: Control, left: usize) {
        let ds = control.ds();
        let whole = usize::from(ds) * OCTOWORD;
        if ds == 0 {
            reader.error(
                4,
                "ds is 0, but a WQE has at least its control segment, which counts 1",
            );
        } else if whole > left {
            reader.error(
                4,
                format!(
                    "ds is {ds}: the WQE has {whole} bytes in {} blocks, but there {} {} of room here",
                    control.blocks(),
                    if left <= BLOCK { "is" } else { "are" },
                    match left.div_ceil(BLOCK) {
                        1 => "1 block".to_string(),
                        blocks => format!("{blocks} blocks"),
                    },
                ),
            );
        }
        let found = control.index().0;
        if let Some(ring) = self.ring {
            // Between two WQEs of a whole ring the lap may change.
            if let Some(expected) = self.expected
                && expected != found
                && usize::from(expected) % ring == at / BLOCK
            {
                let lap = expected.wrapping_sub(found) as usize / ring;
                reader.note(
                    1,
                    format!(
                        "the index is of {}: the newest WQE of the ring ends right before",
                        match lap {
                            1 => "the lap before".to_string(),
                            _ => format!("another lap ({lap} before)"),
                        }
                    ),
                );
            }
        } else if let Some(expected) = self.expected
            && expected != found
        {
            let depth = self.context.log_size.map(|log| 1_u32 << log);
            let apart = u32::from(expected.wrapping_sub(found));
            let text = match depth.filter(|depth| apart.is_multiple_of(*depth)) {
                Some(depth) => format!(
                    "the index is {found:#06x}, not {expected:#06x}: this WQE is {} laps older than the slot's, so it \
                     was not overwritten yet",
                    apart / depth
                ),
                None => format!(
                    "the index is {found:#06x}, but the blocks before end at {expected:#06x}: a card refuses a WQE \
                     whose index is not its slot's"
                ),
            };
            match self.context.index {
                Some(_) => reader.error(1, text),
                None => reader.warning(1, text),
            }
        }
        match self.qpn {
            None => self.qpn = Some(control.qpn()),
            Some(qpn) if qpn == control.qpn() => {}
            Some(qpn) => {
                let text = format!("the QPN is {}, but the queue's is {qpn}", control.qpn());
                match self.context.qpn {
                    Some(_) => reader.error(4, text),
                    None => reader.warning(4, text),
                }
            }
        }
    }

    /// The segments behind the control segment. False if one reaches past the end.
    fn body(&self, reader: &mut Reader<'_>, control: Control, end: usize) -> bool {
        let opcode = control.opcode();
        let mut at = OCTOWORD;
        // Takes bytes for a segment, if ds has room for them.
        let room = |reader: &mut Reader<'_>, at: &mut usize, what: &str, len: usize| {
            if *at + len <= end {
                return true;
            }
            reader.error(
                *at,
                format!(
                    "{what} has {len} bytes, but ds leaves room for {}",
                    end.saturating_sub(*at)
                ),
            );
            reader.field(
                *at,
                end - *at,
                None,
                "bytes",
                format!("the beginning of {what}"),
            );
            *at = end;
            false
        };
        let sends_nothing = matches!(
            opcode,
            Opcode::NOP | Opcode::WAIT | Opcode::SEND_ENABLE | Opcode::RECEIVE_ENABLE | Opcode::UMR
        );
        if self.context.transport == Transport::Datagram && !sends_nothing {
            let len = size_of::<AddressVector>();
            if !room(reader, &mut at, "an address vector", len) {
                return false;
            }
            segments::address_vector(reader, at);
            at += len;
        }
        match opcode {
            Opcode::NOP => {}
            Opcode::WAIT | Opcode::SEND_ENABLE | Opcode::RECEIVE_ENABLE => {
                if !room(reader, &mut at, "a wait segment", size_of::<Wait>()) {
                    return false;
                }
                segments::wait(reader, at, opcode);
                at += size_of::<Wait>();
            }
            Opcode::UMR => {
                let len = size_of::<UmrControl>() + size_of::<MkeyContext>();
                if !room(reader, &mut at, "a UMR's control and context", len) {
                    return false;
                }
                segments::umr(reader, at);
                at += len;
                while at + size_of::<Klm>() <= end {
                    segments::klm(reader, at);
                    at += size_of::<Klm>();
                }
            }
            Opcode::SEND | Opcode::SEND_IMMEDIATE | Opcode::SEND_INVALIDATE => {
                self.data(reader, control, at, end);
                return true;
            }
            Opcode::RDMA_WRITE | Opcode::RDMA_WRITE_IMMEDIATE | Opcode::RDMA_READ => {
                if !room(
                    reader,
                    &mut at,
                    "a remote address segment",
                    size_of::<RemoteAddress>(),
                ) {
                    return false;
                }
                segments::remote_address(reader, at);
                self.data(reader, control, at + OCTOWORD, end);
                return true;
            }
            Opcode::ATOMIC_COMPARE_SWAP
            | Opcode::ATOMIC_FETCH_ADD
            | Opcode::MASKED_COMPARE_SWAP
            | Opcode::MASKED_FETCH_ADD => {
                let width = match control.modifier() {
                    modifier::ATOMIC_4_BYTES => 4,
                    _ => 8,
                };
                let operands = match (opcode, width) {
                    (Opcode::MASKED_COMPARE_SWAP, 8) => 2 * OCTOWORD,
                    _ => OCTOWORD,
                };
                if !room(reader, &mut at, "an atomic's segments", OCTOWORD + operands) {
                    return false;
                }
                segments::remote_address(reader, at);
                let remote: RemoteAddress = read(reader, at);
                if !remote.address.get().is_multiple_of(width.into()) {
                    reader.error(
                        at,
                        format!("an atomic's remote address has to be a multiple of {width}"),
                    );
                }
                at += OCTOWORD;
                at += segments::atomic(reader, at, opcode, width);
                self.data(reader, control, at, end);
                return true;
            }
            _ => {
                reader.field(
                    at,
                    end - at,
                    None,
                    "segments",
                    "not described for this opcode",
                );
                let text = match opcode.name() {
                    Some(name) => format!("the segments of {name} are not described here"),
                    None => format!("there is no opcode {:#04x}", opcode.0),
                };
                match opcode.name() {
                    Some(_) => reader.note(OCTOWORD.min(end), text),
                    None => reader.error(3, text),
                }
                return true;
            }
        }
        reader.field(at, end - at, None, "bytes", "not used by this opcode");
        if at < end {
            reader.warning(at, "ds counts more segments than the opcode has");
        }
        true
    }

    fn data(&self, reader: &mut Reader<'_>, control: Control, mut at: usize, end: usize) {
        let opcode = control.opcode();
        let is_atomic = matches!(
            opcode,
            Opcode::ATOMIC_COMPARE_SWAP
                | Opcode::ATOMIC_FETCH_ADD
                | Opcode::MASKED_COMPARE_SWAP
                | Opcode::MASKED_FETCH_ADD
        );
        let (mut segments, mut length) = (0, 0_u64);
        while at < end {
            if end - at < OCTOWORD {
                reader.field(
                    at,
                    end - at,
                    None,
                    "bytes",
                    "the beginning of a data segment",
                );
                break;
            }
            let (listed, next) = segments::data(reader, at, end);
            match listed {
                Listed::Memory(bytes) => length += bytes,
                Listed::Inline(bytes) => {
                    length += bytes;
                    if is_atomic || opcode == Opcode::RDMA_READ {
                        reader.error(
                            at,
                            "inline data where the card has to write what it fetched",
                        );
                    }
                }
                Listed::End => {
                    length += 1 << 31;
                    reader.warning(at, "the end of a receive list in a send WQE");
                }
            }
            segments += 1;
            at = next;
        }
        if is_atomic && segments != 1 {
            reader.error(
                OCTOWORD,
                format!(
                    "an atomic has one data segment for its result, but this one has {segments}"
                ),
            );
        }
        if length > mlx5_wqe::decode::MAX_MESSAGE_LENGTH.into() {
            reader.error(
                OCTOWORD,
                format!("the message has {length} bytes, but a message has at most 1 GiB"),
            );
        }
    }

    /// What is wrong with a WQE as a whole.
    fn judge_whole(&self, reader: &mut Reader<'_>, control: Control, end: usize, complete: bool) {
        let bytes = &reader.bytes[..end];
        if control.signature != 0 {
            let (octowords, _) = bytes.as_chunks::<OCTOWORD>();
            let octowords: Vec<_> = octowords
                .iter()
                .map(|bytes| Octoword::from_bytes(*bytes))
                .collect();
            match signature::of_send(&octowords) {
                0 => reader.note(8, "the signature fits the WQE's bytes"),
                _ => reader.warning(8, "the signature does not fit the WQE's bytes"),
            }
        }
        let decoded = decode_for(
            self.context.transport,
            bytes,
            control.index(),
            control.qpn(),
        );
        match decoded {
            Ok(_) => {}
            Err(DecodeError::UnsupportedOpcode) if control.opcode().name().is_some() => reader
                .note(
                    3,
                    format!(
                        "Warpbell's software NIC does not execute {} here",
                        control.opcode()
                    ),
                ),
            Err(error) if complete && !reader.has_errors() => reader.error(0, error.to_string()),
            Err(_) => {}
        }
    }
}

/// Whether bytes begin like a WQE: for a guess.
pub(super) fn looks_like(bytes: &[u8]) -> bool {
    let control: Control = read(&Reader::new(bytes, 0), 0);
    let WqeIndex(_) = control.index();
    bytes.len() >= OCTOWORD
        && control.opcode().name().is_some()
        && control.ds() > 0
        && control.qpn_ds.get() & 0xc0 == 0
        && control.fm_ce_se.bits() & 0x11 == 0
        && control.fm_ce_se.fence().is_some()
        && control.qpn().get() != 0
}
