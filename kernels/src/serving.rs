//! Pictures that come over the network, are made larger, and go back: a server that drives the network itself, and stays or is
//! launched for each; the network's computation alone for a host that drives; and the client of all. From a paper on
//! GPU-driven RDMA for inference serving, section 5.2.

use core::sync::atomic::Ordering;

use warpbell::wqe::Wqe;
use warpbell::{
    Block, Deadline, Exclusive, Stop, Thread, WaitError, block, kernel, shared_array, thread,
};

use crate::distribution::bucket;
use crate::meeting::{meet, met_before};
use crate::network::Network;
use crate::outcome::{Failure, Numbers, Outcome};
use crate::path::Path;
use crate::posting::Place;

/// What a signal says behind the last request.
pub const END: u64 = u64::MAX;
/// Nothing has come yet.
const NOTHING: u64 = 0;
/// Nothing came for too long.
const LATE: u64 = END - 1;
/// Nanoseconds for which a server's first block looks for a request before all meet again: a meeting's wait has an end.
const LOOK_NS: u64 = 20_000_000;
/// Between two looks of a client at the clock, while no request is due.
const NAP_NS: u32 = 1_000;

/// A message in parts, which have a queue each, in pieces of one work request each.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Message {
    /// Bytes of it: at least 8 for each part.
    pub bytes: u32,
    /// Bytes of a piece at most.
    pub piece: u32,
}

impl Message {
    /// Bytes of each part but the last one, a multiple of 8.
    pub const fn part(&self, parts: u32) -> u32 {
        self.bytes.div_ceil(at_least_one(8 * parts)) * 8
    }

    /// Pieces of a part, the largest one.
    pub const fn pieces(&self, parts: u32) -> u32 {
        self.part(parts).div_ceil(at_least_one(self.piece))
    }

    /// First byte and bytes of piece number `piece` of a part; no bytes where the part is over.
    #[inline(always)]
    const fn span(&self, parts: u32, part: u32, piece: u32) -> (u32, u32) {
        let first = part * self.part(parts);
        let left = self.bytes.saturating_sub(first);
        let part = if left < self.part(parts) {
            left
        } else {
            self.part(parts)
        };
        let start = piece.saturating_mul(self.piece);
        let left = part.saturating_sub(start);
        let bytes = if left < self.piece { left } else { self.piece };
        (first.saturating_add(start), bytes)
    }

    /// Piece number `piece` of a part, of message number `from` at this end; none where the part is over.
    #[inline(always)]
    pub fn write(&self, path: &Path<'_>, part: u32, from: u32, piece: u32) -> Option<Wqe<1>> {
        let (start, bytes) = self.span(path.parts, part, piece);
        let source = u64::from(from) * u64::from(self.bytes) + u64::from(start);
        (bytes > 0).then(|| path.write(source, start.into(), bytes))
    }
}

/// The same, but for 0, by which nobody divides.
const fn at_least_one(number: u32) -> u32 {
    if number == 0 { 1 } else { number }
}

/// The network alone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Inference<'a> {
    /// What computes.
    pub network: Network,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Makes a picture larger.
#[kernel]
pub fn serving_inference(p: Inference<'_>) {
    p.outcome.record(|| {
        let mut met = met_before(p.network.arrivals);
        Ok(p.network.run(&mut met, Deadline::after_us(p.limit_us))?)
    });
}

/// The server: its first blocks have a queue each. It stays; or it looks for one request and ends, and what launches it again
/// is a graph that launches itself.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ServingServer<'a> {
    /// What computes.
    pub network: Network,
    /// From the client and back; answers are its messages.
    pub path: Path<'a>,
    /// An answer.
    pub answer: Message,
    /// Where picture and answer lie for the NIC, if the network has its own in memory of the kernels': then they are copied.
    pub copied: Copied,
    /// [`Self::STATE`] words of the kernels' own, 0 before the first launch: by them the first block tells the others what has
    /// come, and a launch goes on where the one before it has ended. Among them are [`Self::SERVED`] and the others.
    pub state: Place,
    /// How often a launch looks for a request, whether one comes or not.
    pub looks: u64,
    /// Microseconds without a request after which it ends with an error.
    pub patience_us: u64,
    /// Ends it between two requests; once it is not to be launched again, it asks for that itself.
    pub stop: Stop<'a>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// A picture and its answer in memory that the NIC reaches.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Copied {
    /// Whether the network has them elsewhere.
    pub wanted: bool,
    /// Where the picture comes.
    pub picture: Place,
    /// Where the answer is to be.
    pub answer: Place,
}

/// Serves until the client or the host says that there is no more, or has looked often enough.
#[kernel]
pub fn serving_server(p: ServingServer<'_>) {
    p.outcome.record(|| {
        let result = p.serve();
        if result.is_err() {
            // A launch behind this one would wait for who has failed.
            p.stop.request();
        }
        result
    });
}

impl ServingServer<'_> {
    /// Words of its state.
    pub const STATE: u32 = 10;
    /// Of these: answers of which all parts are complete.
    pub const SERVED: u32 = 2;
    /// Nanoseconds from where requests were there until they were where the network has them, of all together.
    pub const COPIED_IN: u32 = 3;
    /// From there until their answers were.
    pub const COMPUTED: u32 = 4;
    /// From there until those were where the NIC has them.
    pub const COPIED_OUT: u32 = 5;
    /// From there until the first part was posted.
    pub const SENT: u32 = 6;
    /// The number of the request that was answered last.
    const LAST: u32 = 7;
    /// When that was, or the first launch began.
    const SINCE: u32 = 8;
    /// Answers of which the first block's part is complete.
    const ANSWERED: u32 = 9;

    #[inline(always)]
    fn serve(&self) -> Result<(), Failure> {
        let (path, part) = (&self.path, block::index());
        let leads = thread::first();
        // From the launch before; what this one stores there it stores behind a meeting, or the first block alone reads it.
        let mut met = met_before(self.network.arrivals);
        let mut last = self.kept(Self::LAST);
        if leads & (self.kept(Self::SINCE) == 0) {
            self.keep(Self::SINCE, thread::clock_ns());
        }
        let (mut turn, mut looks) = (0, 0);
        while looks < self.looks {
            looks += 1;
            // Two words take turns: nobody comes to the next meeting but one before all have read.
            let decision = self.state.word(turn);
            turn = 1 - turn;
            if leads {
                // Its patience alone counts: all break on one word, and no lane leaves its warp at a barrier.
                decision.store(self.decide(last), Ordering::Relaxed);
            }
            // The decision before the others read it, and the request before they compute.
            self.meet(&mut met)?;
            if leads {
                // All have come here, and nobody does whose part is not complete.
                self.keep(Self::SERVED, self.kept(Self::ANSWERED));
            }
            match decision.load(Ordering::Relaxed) {
                NOTHING => continue,
                LATE => return Err(WaitError::Deadline.into()),
                END => {
                    if leads {
                        self.stop.request();
                    }
                    break;
                }
                number => last = number,
            }
            let came = thread::clock_ns();
            let mut began = came;
            if self.copied.wanted {
                let values = self.network.width * self.network.height;
                self.copy(self.copied.picture, self.network.input, values);
                self.meet(&mut met)?;
                began = thread::clock_ns();
            }
            self.network.run(&mut met, path.limit())?;
            self.meet(&mut met)?;
            let done = thread::clock_ns();
            let mut ready = done;
            if self.copied.wanted {
                let values = self.answer.bytes / size_of::<f32>() as u32;
                self.copy(self.network.output, self.copied.answer, values);
                self.meet(&mut met)?;
                ready = thread::clock_ns();
            }
            let posted = self.send(part, last)?;
            if leads {
                self.add(Self::ANSWERED, 1);
                self.add(Self::COPIED_IN, began - came);
                self.add(Self::COMPUTED, done - began);
                self.add(Self::COPIED_OUT, ready - done);
                self.add(Self::SENT, posted.saturating_sub(ready));
                self.keep(Self::LAST, last);
                self.keep(Self::SINCE, thread::clock_ns());
            }
        }
        Ok(())
    }

    /// Copies so many values of 4 bytes, with all threads of all blocks: those of a warp beside each other.
    #[inline(always)]
    fn copy(&self, from: Place, to: Place, values: u32) {
        let mut index = thread::index();
        while index < values {
            let value = from.value(index).load(Ordering::Relaxed);
            to.value(index).store(value, Ordering::Relaxed);
            index += self.network.blocks * block::size();
        }
    }

    /// All blocks meet; `met` counts.
    #[inline(always)]
    fn meet(&self, met: &mut u64) -> Result<(), WaitError> {
        *met += 1;
        let Network {
            arrivals, blocks, ..
        } = self.network;
        meet(arrivals, blocks, *met, self.path.limit())
    }

    #[inline(always)]
    fn kept(&self, word: u32) -> u64 {
        self.state.word(word).load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn keep(&self, word: u32, value: u64) {
        self.state.word(word).store(value, Ordering::Relaxed);
    }

    #[inline(always)]
    fn add(&self, word: u32, more: u64) {
        self.keep(word, self.kept(word) + more);
    }

    /// What the first block tells the others, behind request number `last`.
    #[inline(always)]
    fn decide(&self, last: u64) -> u64 {
        let came = self.await_request(last);
        // Asked behind each look: requests may follow one another without a pause.
        if self.stop.requested() {
            return END;
        }
        if came != NOTHING {
            return came;
        }
        let waited = thread::clock_ns().saturating_sub(self.kept(Self::SINCE));
        match waited > self.patience_us.saturating_mul(1_000) {
            true => LATE,
            false => NOTHING,
        }
    }

    /// Waits a little for all parts of a request behind number `last`, and gives its number.
    #[inline(always)]
    fn await_request(&self, last: u64) -> u64 {
        let look = Deadline::after_ns(LOOK_NS).fixed();
        let mut newest = END;
        for part in 0..self.path.parts {
            match self.path.signal(part).wait(last + 1, look) {
                Ok(number) => newest = newest.min(number),
                Err(_) => return NOTHING,
            }
        }
        newest
    }

    /// Sends the block's part of an answer, if it has one, and waits until it is complete. Gives when it was posted.
    #[inline(always)]
    fn send(&self, part: u32, number: u64) -> Result<u64, Failure> {
        let path = &self.path;
        let mut posted = 0;
        // Opened anew each time, so that nothing of it is kept while the block computes.
        if let Some(queue) = path.queues.get(part) {
            let mut queue = queue.open::<Exclusive, Block>()?;
            let own = block::thread_index();
            let pieces = self.answer.pieces(path.parts);
            let mut all = queue.batch(pieces + 1, path.limit())?;
            let _ = all.post_if(self.answer.write(path, part, 0, own))?;
            // Its completion tells of all before it.
            let tell = path.tell(part, number).signalled();
            let told = all.post_if((own == 0).then_some(tell))?;
            drop(all);
            posted = thread::clock_ns();
            queue.wait_outbound(told, path.limit())?;
        }
        Ok(posted)
    }
}

/// The client: one block. The first lanes of its first warp send a part of each request each, and wait for that of the
/// answer; the other warps compare each answer with what it should be, before the next request goes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ServingClient<'a> {
    /// To the server and back; requests are its messages.
    pub path: Path<'a>,
    /// A request.
    pub request: Message,
    /// How many pictures lie at the source, which are sent in turn.
    pub pictures: u32,
    /// Where answers come.
    pub answer: Place,
    /// The answers of all pictures, as they should be.
    pub expected: Place,
    /// Takes the first picture's newest answer, over which no other one comes.
    pub kept: Place,
    /// Values of 4 bytes of an answer.
    pub values: u32,
    /// Requests before those that count.
    pub warm_up: u32,
    /// The most requests that count, at least 1.
    pub rounds: u32,
    /// Nanoseconds after which no request begins.
    pub nanoseconds: u64,
    /// Nanoseconds from one request to the next; 0 for each as soon as the one before is answered.
    pub interval: u64,
    /// Ends it before.
    pub stop: Stop<'a>,
    /// Takes [`Self::ROUNDS`] and the others, then how many values each thread found wrong.
    pub numbers: Numbers<'a>,
    /// [`BUCKETS`](crate::distribution::BUCKETS) words of the kernel's own, 0 at first: how many requests took how long.
    pub histogram: Place,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Sends requests until there were enough, or time is over.
#[kernel]
pub fn serving_client(p: ServingClient<'_>) {
    let (own, first) = (block::thread_index(), thread::warp_size());
    // Whole warps part here, never the lanes of one: each may come to a barrier of its own.
    if own < first {
        p.outcome.record(|| p.drive(own));
    } else {
        p.compare(own - first, block::size() - first);
    }
}

impl ServingClient<'_> {
    /// Requests that counted.
    pub const ROUNDS: u64 = 0;
    /// Nanoseconds from the first of them to the end of the last.
    pub const NANOSECONDS: u64 = 1;
    /// Nanoseconds from post to answer, of all of them together.
    pub const TOTAL: u64 = 2;
    /// The longest of those.
    pub const LONGEST: u64 = 3;
    /// Requests that were never sent, because another one was due before they could be.
    pub const DROPPED: u64 = 4;
    /// Where the threads' counts begin.
    pub const WRONG: u64 = 5;

    /// Sends part after part and waits for the answer's.
    #[inline(always)]
    fn drive(&self, part: u32) -> Result<(), Failure> {
        let path = &self.path;
        let Some(queue) = path.queues.get(part) else {
            return Ok(());
        };
        let mut queue = queue.open::<Exclusive, Thread>()?;
        let signal = path.signal(part);
        let pieces = self.request.pieces(path.parts);
        let leads = part == 0;
        let due = shared_array![u64; 1];
        let end = self.warm_up.saturating_add(self.rounds);
        let (mut round, mut picture) = (0, 0);
        let (mut began, mut ended, mut next) = (0, 0, 0);
        let (mut total, mut longest, mut dropped) = (0, 0, 0);
        loop {
            let sent = thread::clock_ns();
            if round == self.warm_up {
                (began, next) = (sent, sent);
            }
            let mut all = queue.batch(pieces + 1, path.limit())?;
            for piece in 0..pieces {
                if let Some(piece) = self.request.write(path, part, picture, piece) {
                    let _ = all.post(piece)?;
                }
            }
            let _ = all.post(path.tell(part, u64::from(round) + 1))?;
            drop(all);
            signal.wait(u64::from(round) + 1, path.limit())?;
            round += 1;
            picture = if picture + 1 < self.pictures {
                picture + 1
            } else {
                0
            };
            let late = thread::clock_ns() - began >= self.nanoseconds;
            let counted = round > self.warm_up;
            let last = (counted & late) | (round >= end);
            let goes_on = !(leads & (last | self.stop.requested()));
            // All parts of the answer are there before anybody compares them.
            let all = thread::sync_threads_count(goes_on.into());
            if leads {
                ended = thread::clock_ns();
                if counted {
                    let took = ended - sent;
                    let counted = self.histogram.word(bucket(took));
                    // This thread's alone.
                    counted.store(counted.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                    total += took;
                    longest = if took > longest { took } else { longest };
                }
                if counted & (self.interval > 0) {
                    next += self.interval;
                    let missed = ended.saturating_sub(next) / self.interval.max(1);
                    dropped += missed;
                    next += missed * self.interval;
                }
                // SAFETY: the array's one word, which the others read behind the barrier.
                unsafe { *due = next };
            }
            if all != path.parts {
                break;
            }
            // All have compared before the next answer comes.
            thread::sync_threads();
            // SAFETY: as above; the next store is behind a barrier.
            let due = unsafe { *due };
            while thread::clock_ns() < due {
                thread::nanosleep(NAP_NS);
            }
        }
        let _ = queue.post(path.tell(part, END), path.limit())?;
        if leads {
            let counted = round.saturating_sub(self.warm_up);
            self.numbers.store(Self::ROUNDS, counted.into());
            self.numbers.store(Self::NANOSECONDS, ended - began);
            self.numbers.store(Self::TOTAL, total);
            self.numbers.store(Self::LONGEST, longest);
            self.numbers.store(Self::DROPPED, dropped);
        }
        Ok(queue.drain(path.limit())?)
    }

    /// Compares each answer with what it should be, as one of `threads` threads. A sender that fails is missed here: then
    /// all end.
    #[inline(always)]
    fn compare(&self, thread: u32, threads: u32) {
        let (mut picture, mut wrong) = (0, 0);
        loop {
            let all = thread::sync_threads_count(0);
            let mut index = thread;
            while index < self.values {
                let value = |place: Place, index: u32| {
                    f32::from_bits(place.value(index).load(Ordering::Relaxed))
                };
                let came = value(self.answer, index);
                let should = value(self.expected, picture * self.values + index);
                wrong += u64::from(!is_near(came, should));
                if picture == 0 {
                    let kept = self.kept.value(index);
                    kept.store(came.to_bits(), Ordering::Relaxed);
                }
                index += threads;
            }
            if all != self.path.parts {
                break;
            }
            // All have compared before the next answer comes.
            thread::sync_threads();
            picture = if picture + 1 < self.pictures {
                picture + 1
            } else {
                0
            };
        }
        self.numbers.store(Self::WRONG + u64::from(thread), wrong);
    }
}

/// How much a value may be beside what it should be, of itself.
pub const TOLERANCE: f32 = 1e-3;
/// A grey level, where 1 is white. What is darker may be as much beside as this.
pub const GREY_LEVEL: f32 = 1.0 / 255.0;

/// Whether a value is what it should be: two orders of summing differ in the last bits.
#[inline(always)]
pub fn is_near(came: f32, should: f32) -> bool {
    let size = if should < 0.0 { -should } else { should };
    let size = if size > GREY_LEVEL { size } else { GREY_LEVEL };
    let beside = if came < should {
        should - came
    } else {
        came - should
    };
    // What is no number is not near.
    beside <= TOLERANCE * size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_near_up_to_a_thousandth_of_itself_or_of_a_grey_level() {
        for (came, should, near) in [
            (1.0009, 1.0, true),
            (0.9991, 1.0, true),
            (1.0011, 1.0, false),
            (-1.0009, -1.0, true),
            (1.0, -1.0, false),
            (3.9e-6, 0.0, true),
            (-4.0e-6, 0.0, false),
            (f32::NAN, 1.0, false),
            (f32::INFINITY, 1.0, false),
        ] {
            assert_eq!(is_near(came, should), near, "{came} for {should}");
        }
    }

    #[test]
    fn the_pieces_of_all_parts_are_the_message_and_each_byte_lies_in_one() {
        for (bytes, piece, parts) in [
            (8, 8, 1),
            (1000, 64, 3),
            (4096, 4096, 4),
            (200_704, 65_536, 8),
            (136, 8, 4),
        ] {
            let message = Message { bytes, piece };
            let mut next = 0;
            for part in 0..parts {
                assert_eq!(part * message.part(parts), next, "{message:?}");
                for number in 0..message.pieces(parts) {
                    let (start, bytes) = message.span(parts, part, number);
                    assert!(bytes <= piece && (bytes == 0 || start == next));
                    next += bytes;
                }
                assert_eq!(message.span(parts, part, message.pieces(parts)).1, 0);
            }
            assert_eq!(next, bytes, "{message:?}");
        }
        assert_eq!(message_of(64).span(1, 0, u32::MAX).1, 0);
    }

    fn message_of(bytes: u32) -> Message {
        Message { bytes, piece: 8 }
    }
}
