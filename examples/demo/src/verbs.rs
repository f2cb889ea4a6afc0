//! Every verb, in both directions, against a model of what it is to do.

use std::sync::atomic::Ordering;

use serde_json::json;
use warpbell::Slice;
use warpbell::wqe::{Local, Remote};
use warpbell_host_init::{Entry, entry};
use warpbell_kernels::demo::{
    self as kernels, Atomic, INLINE_BYTES, Inline, PIECES, Pieces, Receive, Transfer,
};
use warpbell_stage::Error;
use warpbell_stage::launch::{Job, LIMIT_US, run, run_together};
use warpbell_stage::memory::Memory;
use warpbell_stage::random::Random;
use warpbell_stage::setup::End;

use crate::Demo;
use crate::parties::Parties;
use crate::passage::transfer;

/// What a verb does.
#[derive(Clone, Copy)]
enum Verb {
    /// Moves bytes to the other end, or from there: one piece of memory here and one there.
    Move(Entry<fn(Transfer<'_>)>, Direction),
    /// The same with several pieces here.
    MovePieces(Entry<fn(Pieces<'_>)>, Direction),
    Inline,
    /// Tells a receiver, which gets this number for the way in which the message came.
    Message(Entry<fn(Transfer<'_>)>, u64, Buffer),
    /// Changes so many bytes.
    Atomic(Entry<fn(Atomic<'_>)>, usize, Compare, Model),
    Nop,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    There,
    Here,
}

/// How a receive names its buffer.
#[derive(Clone, Copy, PartialEq)]
enum Buffer {
    Whole,
    InPieces,
}

/// Whether the comparison of an atomic holds.
#[derive(Clone, Copy)]
enum Compare {
    Holds,
    Fails,
}

/// The new value of an old one.
type Model = fn(u64, &Atomic<'_>) -> u64;

/// The messages that a kernel reports by these numbers.
const WRITE_IMMEDIATE: u64 = 1;
const SEND: u64 = 2;
const SEND_IMMEDIATE: u64 = 3;
const SEND_INVALIDATE: u64 = 4;

#[rustfmt::skip]
const VERBS: [(&str, Verb); 18] = {
    use {Buffer::*, Compare::*, Direction::*, Verb::*};
    [
        ("RDMA write", Move(entry!(kernels::write), There)),
        ("RDMA write with immediate", Message(entry!(kernels::write_immediate), WRITE_IMMEDIATE, Whole)),
        ("RDMA write, inline", Inline),
        ("RDMA write, gathered from 4 pieces", MovePieces(entry!(kernels::write_gather), There)),
        ("RDMA read", Move(entry!(kernels::read), Here)),
        ("RDMA read, scattered to 4 pieces", MovePieces(entry!(kernels::read_scatter), Here)),
        ("send, receive", Message(entry!(kernels::send), SEND, Whole)),
        ("send with immediate, receive", Message(entry!(kernels::send_immediate), SEND_IMMEDIATE, Whole)),
        ("send with invalidate, receive", Message(entry!(kernels::send_invalidate), SEND_INVALIDATE, Whole)),
        ("send, receive in 4 pieces", Message(entry!(kernels::send), SEND, InPieces)),
        ("fetch-and-add", Atomic(entry!(kernels::fetch_add), 8, Holds, |old, by| old.wrapping_add(by.value))),
        ("compare-and-swap that swaps", Atomic(entry!(kernels::compare_swap), 8, Holds, |_, by| by.value)),
        ("compare-and-swap that does not", Atomic(entry!(kernels::compare_swap), 8, Fails, |old, _| old)),
        ("masked fetch-and-add, 4 bytes", Atomic(entry!(kernels::masked_fetch_add_u32), 4, Holds, |old, by| masked_add(old, by.value, by.value_mask, 32))),
        ("masked fetch-and-add, 8 bytes", Atomic(entry!(kernels::masked_fetch_add_u64), 8, Holds, |old, by| masked_add(old, by.value, by.value_mask, 64))),
        ("masked compare-and-swap, 4 bytes", Atomic(entry!(kernels::masked_compare_swap_u32), 4, Holds, |old, by| old & !by.value_mask | by.value & by.value_mask)),
        ("masked compare-and-swap, 8 bytes", Atomic(entry!(kernels::masked_compare_swap_u64), 8, Holds, |old, by| old & !by.value_mask | by.value & by.value_mask)),
        ("NOP", Nop),
    ]
};

/// Runs every verb in both directions.
pub fn all(demo: &mut Demo, parties: &mut Parties<'_>) -> Result<(), Error> {
    demo.screen
        .heading("Every verb, in both directions; all memory of both ends compared after each");
    let header = format!("  {:<36} {:>9}   A to B   B to A", "", "bytes");
    demo.screen.line(header);
    let masked = parties.masked_atomics();
    let verbs = VERBS.into_iter();
    for (name, verb) in verbs.filter(|(name, _)| masked || !name.starts_with("masked")) {
        let (mut marks, mut bytes, mut complaints) = (String::new(), 0, Vec::new());
        for (requester, from) in ["A", "B"].into_iter().enumerate() {
            let size = demo.arguments.size as usize;
            let mut bench = Bench::new(name, size, parties, requester, &mut demo.random)?;
            bytes = bench.carry_out(verb)?;
            // Nobody compares before the other end is done.
            parties.exchange(())?;
            let all = parties.exchange(bench.wrong())?;
            let wrong = all.into_iter().flatten().next();
            let verified = wrong.is_none();
            // The colour's characters take no room.
            let room = if verified { 7 } else { 4 };
            marks += &format!("{}{:room$}", demo.screen.mark(verified), "");
            complaints.extend(
                wrong
                    .iter()
                    .map(|wrong| format!("      from {from}: {wrong}")),
            );
            let check = json!({ "verb": name, "from": from, "bytes": bytes, "wrong": wrong });
            demo.record("verbs", verified, check);
        }
        let marks = marks.trim_end();
        demo.screen
            .line(format_args!("  {name:<36} {bytes:>9}   {marks}"));
        complaints
            .iter()
            .for_each(|complaint| demo.screen.line(complaint));
    }
    Ok(())
}

/// Offset and length of a piece of memory.
type Piece = (usize, usize);

/// One end, its memory, and the model of that memory.
struct Side<'b> {
    end: &'b End,
    /// Else this end is the other one, in whose place that of another rank is.
    here: bool,
    memory: Memory,
    /// Where the memory begins.
    there: Remote,
    model: Vec<u8>,
}

impl<'b> Side<'b> {
    fn new(end: &'b End, here: bool, model: Vec<u8>) -> Result<Self, Error> {
        let memory = end.memory_of(&model)?;
        let there = memory.remote(0);
        Ok(Self {
            end,
            here,
            memory,
            there,
            model,
        })
    }

    fn local(&self, (offset, length): Piece) -> Local {
        self.memory.local(offset, length)
    }

    /// Puts bytes into pieces of the model, one after the other.
    fn expect(&mut self, pieces: &[Piece], mut bytes: &[u8]) {
        for &(offset, length) in pieces {
            let (piece, rest) = bytes.split_at(length);
            self.model[offset..offset + length].copy_from_slice(piece);
            bytes = rest;
        }
    }

    fn bytes(&self, pieces: &[Piece]) -> Vec<u8> {
        let piece = |&(offset, length): &Piece| &self.model[offset..offset + length];
        pieces.iter().flat_map(piece).copied().collect()
    }
}

/// What one verb needs: the two ends, in its direction.
struct Bench<'b> {
    name: &'static str,
    size: usize,
    from: Side<'b>,
    to: Side<'b>,
    /// Memory of the second one, whose key a send takes away.
    #[expect(dead_code, reason = "it is only there")]
    lent: Memory,
    lent_key: u32,
    random: &'b mut Random,
    /// What the receiver was told is not what it should have been told.
    wrong_message: Option<String>,
}

impl<'b> Bench<'b> {
    fn new<'e: 'b>(
        name: &'static str,
        size: usize,
        parties: &mut Parties<'e>,
        requester: usize,
        random: &'b mut Random,
    ) -> Result<Self, Error> {
        let [from, to] = [requester, 1 - requester];
        let mut side = |at: usize| {
            let (end, here) = parties.end(at);
            Side::new(end, here, random.bytes(2 * size))
        };
        let (mut sides, lent) = ([side(0)?, side(1)?], parties.end(to).0.memory(64)?);
        let ours = sides.each_ref().map(|side| side.memory.shared());
        let shared = parties.exchange((ours, lent.shared().rkey))?;
        for (at, side) in sides.iter_mut().enumerate() {
            side.there = shared[at % shared.len()].0[at].at(0, 0)?;
        }
        let lent_key = shared[to % shared.len()].1;
        if from == 1 {
            sides.reverse();
        }
        let [from, to] = sides;
        Ok(Self {
            name,
            size,
            from,
            to,
            lent,
            lent_key,
            random,
            wrong_message: None,
        })
    }

    /// What is not as it should be.
    fn wrong(&self) -> Option<String> {
        let at = |end: &'static str, side: &Side<'_>| {
            let checked = side.here.then(|| side.memory.check(&side.model))?;
            checked.err().map(|wrong| format!("{end}: {wrong}"))
        };
        let message = self.wrong_message.clone();
        let from = message.or_else(|| at("requester", &self.from));
        from.or_else(|| at("responder", &self.to))
    }

    /// So many bytes anywhere in a memory.
    fn place(&mut self, bytes: usize) -> Piece {
        (self.random.below(2 * self.size - bytes + 1), bytes)
    }

    /// So many bytes at a multiple of their number.
    fn aligned(&mut self, bytes: usize) -> Piece {
        (self.random.below(2 * self.size / bytes) * bytes, bytes)
    }

    /// Pieces that are apart in one memory and make up `size` bytes.
    fn pieces(&mut self) -> [Piece; PIECES] {
        let (room, share) = (2 * self.size / PIECES, self.size / PIECES);
        let lengths = [share - 1, share + 1, share, self.size - 3 * share];
        [0, 1, 2, 3].map(|piece| {
            let length = lengths[piece];
            (piece * room + self.random.below(room - length + 1), length)
        })
    }

    /// Launches the kernels of a verb, and does the same to the model. Gives the bytes moved.
    fn carry_out(&mut self, verb: Verb) -> Result<usize, Error> {
        let (size, one) = (self.size, self.from.end);
        let (from, to) = (self.place(size), self.place(size));
        let outcome = one.outcome()?;
        let (local, remote) = (self.from.local(from), self.to.there.at(to.0 as u64));
        let transfer = transfer(one, local, remote, &outcome)?;
        let queue = transfer.queue;
        match verb {
            Verb::Move(kernel, direction) => {
                self.run(Job::new(kernel, transfer, &outcome))?;
                self.moved(&[from], to, direction);
            }
            Verb::MovePieces(kernel, direction) => {
                let pieces = self.pieces();
                let parameters = Pieces {
                    queue,
                    pieces: pieces.map(|piece| self.from.local(piece)),
                    remote: transfer.remote,
                    limit_us: LIMIT_US,
                    outcome: &outcome,
                };
                self.run(Job::new(kernel, parameters, &outcome))?;
                self.moved(&pieces, to, direction);
            }
            Verb::Inline => {
                let place = self.place(INLINE_BYTES);
                let bytes = self.random.bytes(INLINE_BYTES);
                let inline = Inline {
                    queue,
                    bytes: bytes.clone().try_into().expect("as many bytes"),
                    remote: self.to.there.at(place.0 as u64),
                    limit_us: LIMIT_US,
                    outcome: &outcome,
                };
                self.run(Job::new(entry!(kernels::write_inline), inline, &outcome))?;
                self.to.expect(&[place], &bytes);
                return Ok(INLINE_BYTES);
            }
            Verb::Message(kernel, arrival, buffer) => {
                let buffer = match buffer {
                    Buffer::Whole => vec![self.place(size)],
                    Buffer::InPieces => self.pieces().to_vec(),
                };
                let beside = match arrival {
                    SEND => 0,
                    SEND_INVALIDATE => self.lent_key,
                    _ => self.random.number() as u32,
                };
                let send = Transfer { beside, ..transfer };
                self.message(
                    Job::new(kernel, send, &outcome),
                    &buffer,
                    [arrival, beside.into()],
                )?;
                let bytes = self.from.bytes(&[from]);
                match arrival {
                    // The bytes go where the write says; the receive's buffer stays as it was.
                    WRITE_IMMEDIATE => self.to.expect(&[to], &bytes),
                    _ => self.to.expect(&buffer, &bytes),
                }
            }
            Verb::Atomic(kernel, bytes, compare, model) => {
                let (from, to) = (self.aligned(bytes), self.aligned(bytes));
                let mut word = self.to.bytes(&[to]);
                word.resize(8, 0);
                let old = u64::from_le_bytes(word.clone().try_into().expect("eight bytes"));
                let atomic = Atomic {
                    queue,
                    local: self.from.local(from),
                    remote: self.to.there.at(to.0 as u64),
                    value: self.random.number(),
                    value_mask: self.random.number(),
                    compare: match compare {
                        Compare::Holds => old,
                        Compare::Fails => old ^ 1 << self.random.below(64),
                    },
                    compare_mask: self.random.number(),
                    limit_us: LIMIT_US,
                    outcome: &outcome,
                };
                self.run(Job::new(kernel, atomic, &outcome))?;
                self.to.expect(&[to], &model(old, &atomic).to_le_bytes());
                self.from.expect(&[from], &word);
                return Ok(bytes);
            }
            Verb::Nop => {
                self.run(Job::new(entry!(kernels::nop), transfer, &outcome))?;
                return Ok(0);
            }
        }
        Ok(size)
    }

    fn run(&self, job: Job<'_>) -> Result<(), Error> {
        match self.from.here {
            true => run(self.name, job, self.from.end),
            false => Ok(()),
        }
    }

    fn moved(&mut self, here: &[Piece], there: Piece, direction: Direction) {
        match direction {
            Direction::There => self.to.expect(&[there], &self.from.bytes(here)),
            Direction::Here => self.from.expect(here, &self.to.bytes(&[there])),
        }
    }

    /// Runs a requester's kernel and at the same time the receiver's. Compares what the receiver learns.
    fn message(
        &mut self,
        sender: Job<'_>,
        buffer: &[Piece],
        [arrival, beside]: [u64; 2],
    ) -> Result<(), Error> {
        let mut pieces = [Local::default(); PIECES];
        for (piece, &place) in pieces.iter_mut().zip(buffer) {
            *piece = self.to.local(place);
        }
        let end = self.to.end;
        let (message, outcome) = (end.node.words(3)?, end.outcome()?);
        let receive = Receive {
            queue: end.pair.receive_queue()?,
            pieces,
            limit_us: LIMIT_US,
            message: Slice::new(&message),
            outcome: &outcome,
        };
        let receiver = Job::new(entry!(kernels::receive), receive, &outcome);
        let mut jobs = Vec::new();
        jobs.extend(self.from.here.then_some(sender));
        jobs.extend(self.to.here.then_some(receiver));
        run_together(self.name, jobs, &[self.from.end, end])?;
        let words = message.iter().map(|word| word.load(Ordering::Relaxed));
        let (found, expected) = (
            words.collect::<Vec<_>>(),
            [arrival, self.size as u64, beside],
        );
        if self.to.here && found != expected {
            self.wrong_message = Some(format!(
                "the receiver learnt of {found:?} instead of {expected:?} (kind, bytes, immediate or key)"
            ));
        }
        Ok(())
    }
}

/// Adds field by field: the carry does not leave a bit whose mask is 1.
fn masked_add(old: u64, value: u64, mask: u64, bits: u32) -> u64 {
    let (mut sum, mut carry) = (0, 0);
    for bit in 0..bits {
        let digits = (old >> bit & 1) + (value >> bit & 1) + carry;
        sum |= (digits & 1) << bit;
        carry = match mask >> bit & 1 {
            1 => 0,
            _ => digits >> 1,
        };
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell_host_init::Node;
    use warpbell_stage::setup::{Ends, config};

    /// What the checker says of a write after which something else happens.
    fn wrong_after(accident: impl FnOnce(&Bench<'_>)) -> Option<String> {
        let ends = Ends::new(&Node::cpu(), &config(16)).unwrap();
        let mut random = Random::new(7);
        let mut parties = Parties::Here(&ends);
        let mut bench = Bench::new("a write", 256, &mut parties, 0, &mut random).unwrap();
        bench.carry_out(VERBS[0].1).unwrap();
        accident(&bench);
        bench.wrong()
    }

    #[test]
    fn one_wrong_byte_anywhere_is_seen() {
        assert_eq!(wrong_after(|_| {}), None);
        for offset in [0, 255, 511] {
            let flip = |memory: &Memory| memory.write(offset, &[!memory.read(offset, 1)[0]]);
            let wrong = wrong_after(|bench| flip(&bench.to.memory)).unwrap();
            let start = format!("responder: byte {offset} of the memory is");
            assert!(wrong.starts_with(&start), "{wrong}");
            let wrong = wrong_after(|bench| flip(&bench.from.memory)).unwrap();
            assert!(wrong.starts_with("requester: byte"), "{wrong}");
        }
    }

    /// By hand, for fields of 4 bits: carries stay inside their field.
    #[test]
    fn the_model_of_masked_additions_keeps_carries_in_their_field() {
        assert_eq!(masked_add(0xf1, 0x1f, 0x88, 8), 0x00);
        assert_eq!(masked_add(0xf1, 0x1f, 0, 8), 0x10);
        assert_eq!(masked_add(0x01, 0x1f, 0, 8), 0x20);
    }
}
