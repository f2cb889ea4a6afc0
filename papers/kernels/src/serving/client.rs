//! The client: it sends pictures, and compares each answer with what it should be.

use warpbell::{Exclusive, Slice, Stop, Word64, block, kernel, shared_array, thread};

use super::{END, Message};
use crate::distribution::{BUCKETS, bucket};
use crate::path::Path;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;

/// Between two looks of a client at the clock, while no request is due.
const NAP_NS: u32 = 1_000;

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
    pub numbers: Slice<'a, Word64>,
    /// [`BUCKETS`](crate::distribution::BUCKETS) words of the kernel's own, 0 at first: how many requests took how
    /// long.
    pub histogram: Place,
    /// [`Self::MOMENT`] words of the kernel's own for each span of time, 0 at first: requests that ended in it,
    /// nanoseconds of all of them together, and of the longest. What comes behind the last span is not kept.
    pub over_time: Place,
    /// Nanoseconds of a span.
    pub span: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Sends requests until there were enough, or time is over.
#[kernel]
pub fn serving_client(p: ServingClient<'_>) {
    let (own, first) = (block::thread_index(), thread::warp_size());
    // Whole warps part here, never the lanes of one: each may come to a barrier of its own.
    p.outcome.record(|| {
        p.fits()?;
        if own < first {
            return p.drive(own);
        }
        p.compare(own - first, block::size() - first);
        Ok(())
    });
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
    /// Words of a span of time.
    pub const MOMENT: u32 = 3;
    /// Where the threads' counts begin.
    pub const WRONG: u64 = 5;

    /// Whether there is room for all answers, and for the histogram.
    #[inline(always)]
    fn fits(&self) -> Result<(), Failure> {
        let values = u64::from(self.values);
        let pictures = u64::from(self.pictures.max(1));
        self.answer.holds(values.div_ceil(2))?;
        self.kept.holds(values.div_ceil(2))?;
        self.expected.holds((pictures * values).div_ceil(2))?;
        self.histogram.holds(BUCKETS.into())
    }

    /// Sends part after part and waits for the answer's.
    #[inline(always)]
    fn drive(&self, part: u32) -> Result<(), Failure> {
        let path = &self.path;
        let Some(queue) = path.queues.get(part.into()) else {
            return Ok(());
        };
        let mut queue = queue.open::<Exclusive>()?;
        let signal = path.signal(part)?;
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
                    // This thread's alone.
                    let counted = bucket(took);
                    let before = self.histogram.load(counted);
                    self.histogram.store(counted, before + 1);
                    self.keep_in_time(ended - began, took);
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

    /// Keeps a request that took so long in the span in which it ended, nanoseconds after the first one began.
    #[inline(always)]
    fn keep_in_time(&self, ended: u64, took: u64) {
        let span = ended / self.span.max(1);
        let last = u64::from(u32::MAX / Self::MOMENT - 1);
        let first = Self::MOMENT * (if span < last { span } else { last }) as u32;
        let places = self.over_time;
        places.store(first, places.load(first) + 1);
        places.store(first + 1, places.load(first + 1) + took);
        let longest = places.load(first + 2);
        places.store(first + 2, if took > longest { took } else { longest });
    }

    /// Compares each answer with what it should be, as one of `threads` threads. A sender that fails is missed here:
    /// then all end.
    #[inline(always)]
    fn compare(&self, thread: u32, threads: u32) {
        let (mut picture, mut wrong) = (0, 0);
        loop {
            let all = thread::sync_threads_count(0);
            let mut index = thread;
            while index < self.values {
                let value = |place: Place, index| f32::from_bits(place.load_value(index));
                let came = value(self.answer, index);
                let should = value(self.expected, picture * self.values + index);
                wrong += u64::from(!is_near(came, should));
                if picture == 0 {
                    self.kept.store_value(index, came.to_bits());
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
}
