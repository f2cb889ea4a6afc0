//! Every verb, in both directions, against a model of what it is to do.

use std::sync::atomic::Ordering;
use warpbell::Slice;

use rand::Rng;
use rand::rngs::SmallRng;
use serde::Serialize;
use warpbell::wqe::Local;
use warpbell_host_init::{Entry, RemoteMemory, entry};
use warpbell_kernels::demo::{
    self as kernels, Atomic, INLINE_BYTES, Inline, PIECES, Pieces, Receive, Transfer,
};
use warpbell_kernels::outcome::Outcome;

use crate::Error;
use crate::demo::Options;
use crate::launch::{Job, LIMIT_US, run, run_together};
use crate::memory::{Difference, Memory};
use crate::screen::Screen;
use crate::setup::{End, Ends};

/// One verb in one direction.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// The verb.
    pub verb: &'static str,
    /// Which end requested it.
    pub from: &'static str,
    /// Bytes moved.
    pub bytes: usize,
    /// Every byte of both ends is what it should be, and so is what the receiver learnt.
    pub verified: bool,
    /// What is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wrong: Option<String>,
}

/// A verb's name, and what carries it out: it launches the kernels, does the same to the model, and gives
/// the bytes moved.
type Verb = (&'static str, fn(&mut Bench<'_>) -> Result<usize, Error>);

const VERBS: [Verb; COUNT] = [
    ("RDMA write", |bench| bench.write()),
    ("RDMA write with immediate", |bench| bench.write_immediate()),
    ("RDMA write, inline", |bench| bench.write_inline()),
    ("RDMA write, gathered from 4 pieces", |bench| {
        bench.write_gather()
    }),
    ("RDMA read", |bench| bench.read()),
    ("RDMA read, scattered to 4 pieces", |bench| {
        bench.read_scatter()
    }),
    ("send, receive", |bench| bench.send()),
    ("send with immediate, receive", |bench| {
        bench.send_immediate()
    }),
    ("send with invalidate, receive", |bench| {
        bench.send_invalidate()
    }),
    ("send, receive in 4 pieces", |bench| bench.send_scatter()),
    ("fetch-and-add", |bench| bench.fetch_add()),
    ("compare-and-swap that swaps", |bench| bench.compare_swap()),
    ("compare-and-swap that does not", |bench| {
        bench.compare_no_swap()
    }),
    ("masked fetch-and-add, 4 bytes", |bench| {
        bench.masked_fetch_add_u32()
    }),
    ("masked fetch-and-add, 8 bytes", |bench| {
        bench.masked_fetch_add_u64()
    }),
    ("masked compare-and-swap, 4 bytes", |bench| {
        bench.masked_compare_swap_u32()
    }),
    ("masked compare-and-swap, 8 bytes", |bench| {
        bench.masked_compare_swap_u64()
    }),
    ("NOP", |bench| bench.nop()),
];

/// How many verbs there are.
pub(super) const COUNT: usize = 18;

/// Runs every verb in both directions.
pub(super) fn run_all(
    ends: &Ends,
    options: &Options,
    screen: &Screen,
    random: &mut SmallRng,
    checks: &mut Vec<Check>,
) -> Result<(), Error> {
    screen.heading("Every verb, in both directions; all memory of both ends compared after each");
    screen.line(format_args!(
        "  {:<36} {:>9}   A to B   B to A",
        "", "bytes"
    ));
    let len = 2 * options.size as usize;
    let (ours, theirs) = (ends.one.memory(len)?, ends.other.memory(len)?);
    for (name, verb) in VERBS {
        let mut marks = String::new();
        for (from, one, other) in [
            ("A", (&ends.one, &ours), (&ends.other, &theirs)),
            ("B", (&ends.other, &theirs), (&ends.one, &ours)),
        ] {
            screen.step(name);
            let mut bench = Bench::new(name, options.size as usize, one, other, random);
            let bytes = verb(&mut bench)?;
            let wrong = bench.wrong();
            let verified = wrong.is_none();
            // The colour's characters take no room.
            let word = if verified { "ok" } else { "WRONG" };
            let room = 9 - word.len();
            marks += &format!("{}{:room$}", screen.mark(verified), "");
            checks.push(Check {
                verb: name,
                from,
                bytes,
                verified,
                wrong,
            });
        }
        let bytes = checks.last().map_or(0, |check| check.bytes);
        screen.line(format_args!(
            "  {name:<36} {bytes:>9}   {}",
            marks.trim_end()
        ));
        for check in checks.iter().rev().take(2).rev() {
            if let Some(wrong) = &check.wrong {
                screen.line(format_args!("      from {}: {wrong}", check.from));
            }
        }
    }
    Ok(())
}

/// One end's queues, its memory, and the model of that memory.
struct Side<'b> {
    end: &'b End,
    memory: &'b Memory,
    model: Vec<u8>,
}

impl Side<'_> {
    /// Puts bytes into the model.
    fn expect(&mut self, offset: usize, bytes: &[u8]) {
        self.model[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// What the model holds.
    fn bytes(&self, offset: usize, bytes: usize) -> Vec<u8> {
        self.model[offset..offset + bytes].to_vec()
    }
}

/// What one verb needs: the two ends, in its direction.
struct Bench<'b> {
    name: &'static str,
    size: usize,
    from: Side<'b>,
    to: Side<'b>,
    random: &'b mut SmallRng,
    /// What the receiver was told is not what it should have been told.
    wrong_message: Option<String>,
}

impl<'b> Bench<'b> {
    fn new(
        name: &'static str,
        size: usize,
        from: (&'b End, &'b Memory),
        to: (&'b End, &'b Memory),
        random: &'b mut SmallRng,
    ) -> Self {
        let mut side = |(end, memory): (&'b End, &'b Memory)| {
            let mut model = vec![0; memory.len()];
            random.fill(&mut model[..]);
            memory.write(0, &model);
            Side { end, memory, model }
        };
        let (from, to) = (side(from), side(to));
        Self {
            name,
            size,
            from,
            to,
            random,
            wrong_message: None,
        }
    }

    /// What is not as it should be.
    fn wrong(self) -> Option<String> {
        let at = |end: &'static str| move |difference: Difference| format!("{end}: {difference}");
        let from = self.from.memory.check(&self.from.model);
        let to = self.to.memory.check(&self.to.model);
        let memory = from
            .map_err(at("requester"))
            .and(to.map_err(at("responder")));
        self.wrong_message.or(memory.err())
    }

    /// A place for so many bytes, anywhere in a memory.
    fn place(&mut self, bytes: usize) -> usize {
        self.random.random_range(0..=2 * self.size - bytes)
    }

    /// A place at a multiple of so many bytes.
    fn aligned(&mut self, bytes: usize) -> usize {
        self.random.random_range(0..2 * self.size / bytes) * bytes
    }

    /// Pieces that lie apart in one memory and make up `size` bytes: offsets and lengths.
    fn pieces(&mut self) -> [(usize, usize); PIECES] {
        let (room, share) = (2 * self.size / PIECES, self.size / PIECES);
        let lengths = [share - 1, share + 1, share, self.size - 3 * share];
        let mut begin = 0;
        lengths.map(|length| {
            let offset = begin + self.random.random_range(0..=room - length);
            begin += room;
            (offset, length)
        })
    }

    /// Runs the requester's kernel alone.
    fn run(
        &self,
        kernel: Entry<fn(Transfer<'_>)>,
        local: Local,
        offset: usize,
    ) -> Result<(), Error> {
        let outcome = self.from.end.node.shared(Outcome::new())?;
        let transfer = Transfer {
            queue: self.from.end.pair.send_queue()?,
            local,
            remote: self.to.memory.remote(offset),
            beside: 0,
            limit_us: LIMIT_US,
            outcome: &outcome,
        };
        self.run_alone(Job::new(kernel, transfer, &outcome))
    }

    fn run_alone(&self, job: Job<'_>) -> Result<(), Error> {
        run(self.name, job, self.from.end)
    }

    fn write(&mut self) -> Result<usize, Error> {
        let (from, to) = (self.place(self.size), self.place(self.size));
        let local = self.from.memory.local(from, self.size);
        self.run(entry!(kernels::write), local, to)?;
        self.to.expect(to, &self.from.bytes(from, self.size));
        Ok(self.size)
    }

    fn read(&mut self) -> Result<usize, Error> {
        let (from, to) = (self.place(self.size), self.place(self.size));
        let local = self.from.memory.local(from, self.size);
        self.run(entry!(kernels::read), local, to)?;
        self.from.expect(from, &self.to.bytes(to, self.size));
        Ok(self.size)
    }

    fn nop(&mut self) -> Result<usize, Error> {
        let local = self.from.memory.local(0, self.size);
        self.run(entry!(kernels::nop), local, 0)?;
        Ok(0)
    }

    fn write_inline(&mut self) -> Result<usize, Error> {
        let offset = self.place(INLINE_BYTES);
        let bytes: [u8; INLINE_BYTES] = self.random.random();
        let outcome = self.from.end.node.shared(Outcome::new())?;
        let inline = Inline {
            queue: self.from.end.pair.send_queue()?,
            bytes,
            remote: self.to.memory.remote(offset),
            limit_us: LIMIT_US,
            outcome: &outcome,
        };
        self.run_alone(Job::new(entry!(kernels::write_inline), inline, &outcome))?;
        self.to.expect(offset, &bytes);
        Ok(INLINE_BYTES)
    }

    /// Runs a requester's kernel that works with several pieces.
    fn run_pieces(
        &self,
        kernel: Entry<fn(Pieces<'_>)>,
        pieces: [(usize, usize); PIECES],
        offset: usize,
    ) -> Result<(), Error> {
        let outcome = self.from.end.node.shared(Outcome::new())?;
        let pieces = Pieces {
            queue: self.from.end.pair.send_queue()?,
            pieces: pieces.map(|(offset, length)| self.from.memory.local(offset, length)),
            remote: self.to.memory.remote(offset),
            limit_us: LIMIT_US,
            outcome: &outcome,
        };
        self.run_alone(Job::new(kernel, pieces, &outcome))
    }

    fn write_gather(&mut self) -> Result<usize, Error> {
        let (pieces, to) = (self.pieces(), self.place(self.size));
        self.run_pieces(entry!(kernels::write_gather), pieces, to)?;
        let bytes = pieces.map(|(offset, length)| self.from.bytes(offset, length));
        self.to.expect(to, &bytes.concat());
        Ok(self.size)
    }

    fn read_scatter(&mut self) -> Result<usize, Error> {
        let (pieces, to) = (self.pieces(), self.place(self.size));
        self.run_pieces(entry!(kernels::read_scatter), pieces, to)?;
        scatter(&mut self.from, &pieces, &self.to.bytes(to, self.size));
        Ok(self.size)
    }

    /// Runs a requester's kernel and at the same time the receiver's; compares what that one learns.
    fn run_message(
        &mut self,
        kernel: Entry<fn(Transfer<'_>)>,
        source: usize,
        target: usize,
        buffer: &[(usize, usize)],
        arrival: u64,
        beside: u32,
    ) -> Result<(), Error> {
        let mut pieces = [Local::default(); PIECES];
        for (piece, &(offset, length)) in pieces.iter_mut().zip(buffer) {
            *piece = self.to.memory.local(offset, length);
        }
        let (from, to) = (self.from.end, self.to.end);
        let message = to.node.words(3)?;
        let (sent, received) = (
            from.node.shared(Outcome::new())?,
            to.node.shared(Outcome::new())?,
        );
        let transfer = Transfer {
            queue: from.pair.send_queue()?,
            local: self.from.memory.local(source, self.size),
            remote: self.to.memory.remote(target),
            beside,
            limit_us: LIMIT_US,
            outcome: &sent,
        };
        let receive = Receive {
            queue: to.pair.receive_queue()?,
            pieces,
            limit_us: LIMIT_US,
            message: Slice::new(&message),
            outcome: &received,
        };
        let jobs = vec![
            Job::new(kernel, transfer, &sent),
            Job::new(entry!(kernels::receive), receive, &received),
        ];
        run_together(self.name, jobs, &[from, to])?;
        let found: Vec<_> = message
            .iter()
            .map(|word| word.load(Ordering::Relaxed))
            .collect();
        let expected = [arrival, self.size as u64, beside.into()];
        if found != expected {
            self.wrong_message = Some(format!(
                "the receiver learnt of {found:?} instead of {expected:?} (kind, bytes, immediate or key)"
            ));
        }
        Ok(())
    }

    fn write_immediate(&mut self) -> Result<usize, Error> {
        let (from, to) = (self.place(self.size), self.place(self.size));
        let (buffer, immediate) = (self.place(self.size), self.random.random());
        self.run_message(
            entry!(kernels::write_immediate),
            from,
            to,
            &[(buffer, self.size)],
            1,
            immediate,
        )?;
        // The bytes go where the write says; the receive's buffer stays as it was.
        self.to.expect(to, &self.from.bytes(from, self.size));
        Ok(self.size)
    }

    /// A send into one buffer.
    fn message(
        &mut self,
        kernel: Entry<fn(Transfer<'_>)>,
        arrival: u64,
        beside: u32,
    ) -> Result<usize, Error> {
        let (from, buffer) = (self.place(self.size), self.place(self.size));
        self.run_message(kernel, from, 0, &[(buffer, self.size)], arrival, beside)?;
        self.to.expect(buffer, &self.from.bytes(from, self.size));
        Ok(self.size)
    }

    fn send(&mut self) -> Result<usize, Error> {
        self.message(entry!(kernels::send), 2, 0)
    }

    fn send_immediate(&mut self) -> Result<usize, Error> {
        let immediate = self.random.random();
        self.message(entry!(kernels::send_immediate), 3, immediate)
    }

    fn send_invalidate(&mut self) -> Result<usize, Error> {
        // Memory of its own, whose key the send takes away.
        let lent = self.to.end.memory(64)?;
        let RemoteMemory { rkey, .. } = lent.shared();
        self.message(entry!(kernels::send_invalidate), 4, rkey)
    }

    fn send_scatter(&mut self) -> Result<usize, Error> {
        let (from, pieces) = (self.place(self.size), self.pieces());
        self.run_message(entry!(kernels::send), from, 0, &pieces, 2, 0)?;
        scatter(&mut self.to, &pieces, &self.from.bytes(from, self.size));
        Ok(self.size)
    }

    /// An atomic on `bytes` bytes. `operation` is the model: it makes the new value of the old one and
    /// the operands, which it may choose by the old one.
    fn atomic(
        &mut self,
        kernel: Entry<fn(Atomic<'_>)>,
        bytes: usize,
        operands: impl FnOnce(u64, &mut SmallRng) -> Operands,
        operation: impl FnOnce(u64, Operands) -> u64,
    ) -> Result<usize, Error> {
        let (from, to) = (self.aligned(bytes), self.aligned(bytes));
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&self.to.bytes(to, bytes));
        let old = u64::from_le_bytes(word);
        let chosen = operands(old, self.random);
        let outcome = self.from.end.node.shared(Outcome::new())?;
        let atomic = Atomic {
            queue: self.from.end.pair.send_queue()?,
            local: self.from.memory.local(from, bytes),
            remote: self.to.memory.remote(to),
            value: chosen.value,
            value_mask: chosen.value_mask,
            compare: chosen.compare,
            compare_mask: chosen.compare_mask,
            limit_us: LIMIT_US,
            outcome: &outcome,
        };
        self.run_alone(Job::new(kernel, atomic, &outcome))?;
        let new = operation(old, chosen);
        self.to.expect(to, &new.to_le_bytes()[..bytes]);
        self.from.expect(from, &word[..bytes]);
        Ok(bytes)
    }

    fn fetch_add(&mut self) -> Result<usize, Error> {
        let add = |old: u64, by: Operands| old.wrapping_add(by.value);
        self.atomic(entry!(kernels::fetch_add), 8, Operands::any, add)
    }

    fn compare_swap(&mut self) -> Result<usize, Error> {
        self.atomic(
            entry!(kernels::compare_swap),
            8,
            Operands::matching,
            |_, by| by.value,
        )
    }

    fn compare_no_swap(&mut self) -> Result<usize, Error> {
        self.atomic(
            entry!(kernels::compare_swap),
            8,
            Operands::missing,
            |old, _| old,
        )
    }

    fn masked_fetch_add_u32(&mut self) -> Result<usize, Error> {
        let add = |old, by| masked_add(old, by, 32);
        self.atomic(entry!(kernels::masked_fetch_add_u32), 4, Operands::any, add)
    }

    fn masked_fetch_add_u64(&mut self) -> Result<usize, Error> {
        let add = |old, by| masked_add(old, by, 64);
        self.atomic(entry!(kernels::masked_fetch_add_u64), 8, Operands::any, add)
    }

    fn masked_compare_swap_u32(&mut self) -> Result<usize, Error> {
        self.atomic(
            entry!(kernels::masked_compare_swap_u32),
            4,
            Operands::matching,
            masked_swap,
        )
    }

    fn masked_compare_swap_u64(&mut self) -> Result<usize, Error> {
        self.atomic(
            entry!(kernels::masked_compare_swap_u64),
            8,
            Operands::matching,
            masked_swap,
        )
    }
}

/// Puts bytes into the pieces of a model, one after the other.
fn scatter(side: &mut Side<'_>, pieces: &[(usize, usize)], mut bytes: &[u8]) {
    for &(offset, length) in pieces {
        side.expect(offset, &bytes[..length]);
        bytes = &bytes[length..];
    }
}

/// What an atomic works with, as [`Atomic`] has it.
#[derive(Clone, Copy)]
struct Operands {
    value: u64,
    value_mask: u64,
    compare: u64,
    compare_mask: u64,
}

impl Operands {
    /// Any.
    fn any(_: u64, random: &mut SmallRng) -> Self {
        Self {
            value: random.random(),
            value_mask: random.random(),
            compare: random.random(),
            compare_mask: random.random(),
        }
    }

    /// Such that the comparison holds, in all bits or in those of the mask; the others are any.
    fn matching(old: u64, random: &mut SmallRng) -> Self {
        Self {
            compare: old,
            ..Self::any(old, random)
        }
    }

    /// Such that it does not.
    fn missing(old: u64, random: &mut SmallRng) -> Self {
        Self {
            compare: old ^ 1 << random.random_range(0..64),
            ..Self::any(old, random)
        }
    }
}

/// Adds field by field: the carry does not leave a bit whose mask is 1.
fn masked_add(old: u64, by: Operands, bits: u32) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..bits {
        let digits = (old >> bit & 1) + (by.value >> bit & 1) + carry;
        sum |= (digits & 1) << bit;
        carry = match by.value_mask >> bit & 1 {
            1 => 0,
            _ => digits >> 1,
        };
    }
    sum
}

/// Swaps the bits of the mask.
fn masked_swap(old: u64, by: Operands) -> u64 {
    old & !by.value_mask | by.value & by.value_mask
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::config;
    use rand::SeedableRng;
    use warpbell_host_init::Node;

    /// What the checker says of a write after which something else happens.
    fn wrong_after(accident: impl FnOnce(&Bench<'_>)) -> Option<String> {
        let node = Node::cpu();
        let ends = Ends::new(&node, &config(16)).unwrap();
        let memory = |end: &End| end.memory(512).unwrap();
        let (ours, theirs) = (memory(&ends.one), memory(&ends.other));
        let mut random = SmallRng::seed_from_u64(7);
        let (from, to) = ((&ends.one, &ours), (&ends.other, &theirs));
        let mut bench = Bench::new("a write", 256, from, to, &mut random);
        bench.write().unwrap();
        accident(&bench);
        bench.wrong()
    }

    #[test]
    fn one_wrong_byte_anywhere_is_seen() {
        assert_eq!(wrong_after(|_| {}), None);
        for offset in [0, 255, 511] {
            let flip = |side: &Side<'_>| {
                let byte = side.memory.read(offset, 1)[0];
                side.memory.write(offset, &[byte ^ 1]);
            };
            let wrong = wrong_after(|bench| flip(&bench.to)).unwrap();
            assert!(wrong.starts_with("responder: byte"), "{wrong}");
            let wrong = wrong_after(|bench| flip(&bench.from)).unwrap();
            assert!(wrong.starts_with("requester: byte"), "{wrong}");
        }
    }

    /// By hand, for fields of 4 bits: carries stay inside their field.
    #[test]
    fn the_model_of_masked_additions_keeps_carries_in_their_field() {
        let by = Operands {
            value: 0x1f,
            value_mask: 0x88,
            compare: 0,
            compare_mask: 0,
        };
        assert_eq!(masked_add(0xf1, by, 8), 0x00);
        let plain = Operands {
            value_mask: 0,
            ..by
        };
        assert_eq!(masked_add(0xf1, plain, 8), 0x10);
        assert_eq!(masked_add(0x01, plain, 8), 0x20);
    }
}
