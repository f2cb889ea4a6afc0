//! What a thread posts to another member, and what it waits for from there.

use mlx5_wqe::{Local, LocalKey, Remote, RemoteKey, Wqe};

use super::error::Verdict;
use super::open::CALL;
use super::{Error, Extent, Team, TeamHandle};
use warpbell::{Deadline, Exclusive, SendQueue, SendQueueHandle, Thread};

/// A queue in one thread's hands.
pub(crate) type OwnQueue<'a> = SendQueue<'a, Exclusive, Thread>;

/// Words of 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// The first one at this member.
    pub from: u64,
    /// The first one at the other member.
    pub to: u64,
    /// How many.
    pub words: u64,
}

impl Span {
    pub const NOTHING: Self = Self {
        from: 0,
        to: 0,
        words: 0,
    };
}

/// Most words of a write; more go in several.
const MOST: u64 = 1 << 16;

/// What goes to a member under one doorbell: words of this window, perhaps none, and behind them perhaps a word. Numbers
/// alone, because [`carry`] takes them in registers.
#[derive(Clone, Copy, Debug)]
struct Parcel {
    from: u64,
    bytes: u32,
    to: u64,
    /// Where the word goes; 0 for none.
    word: u64,
    value: u64,
}

impl<'a> TeamHandle<'a> {
    /// Writes words to a member through an open queue, and behind them a word, with one doorbell for the last piece and the
    /// word.
    #[inline(always)]
    pub(crate) fn write_and_tell(
        &self,
        queue: &mut OwnQueue<'a>,
        rank: u32,
        mut span: Span,
        told: (u64, u64),
        limit: Deadline,
    ) -> Verdict {
        loop {
            let (parcel, keys, rest) = match self.parcel(rank, span, told) {
                Ok(parcel) => parcel,
                Err(error) => return Verdict::bad(error),
            };
            let posted = put(queue, parcel, keys, limit);
            if posted.is_bad() || rest.words == 0 {
                return posted;
            }
            span = rest;
        }
    }

    /// The first parcel of a span, the keys of both windows, and what is left; the word goes with the last one.
    #[inline(always)]
    fn parcel(
        &self,
        rank: u32,
        span: Span,
        (word, value): (u64, u64),
    ) -> Result<(Parcel, (LocalKey, RemoteKey), Span), Error> {
        let words = if span.words < MOST { span.words } else { MOST };
        let rest = Span {
            from: span.from + words,
            to: span.to + words,
            words: span.words - words,
        };
        let from = self.local(span.from, words)?;
        let to = self.remote(rank, span.to)?;
        let told = self.remote(rank, word)?;
        let parcel = Parcel {
            from: from.address,
            bytes: from.length,
            to: to.address,
            word: if rest.words == 0 { told.address } else { 0 },
            value,
        };
        Ok((parcel, (from.key, to.key), rest))
    }

    /// The write of words, as many as a message has.
    #[inline(always)]
    pub(crate) fn write(&self, rank: u32, span: Span) -> Result<Wqe<1>, Error> {
        Ok(Wqe::write(
            self.local(span.from, span.words)?,
            self.remote(rank, span.to)?,
        ))
    }

    /// Words of this member's window, for a request.
    #[inline(always)]
    pub(crate) fn local(&self, word: u64, words: u64) -> Result<Local, Error> {
        let words = u32::try_from(words).unwrap_or(u32::MAX);
        let local = self.window.local(word, words);
        local.ok_or(Error::outside(8 * word))
    }
}

/// Posts a parcel.
#[inline(always)]
fn put(
    queue: &mut OwnQueue<'_>,
    parcel: Parcel,
    (local, remote): (LocalKey, RemoteKey),
    limit: Deadline,
) -> Verdict {
    let there = |address| Remote {
        address,
        key: remote,
    };
    let from = Local {
        address: parcel.from,
        length: parcel.bytes,
        key: local,
    };
    // A write of no bytes would be refused.
    let (writes, tells) = (parcel.bytes > 0, parcel.word != 0);
    match queue.batch(u32::from(writes) + u32::from(tells), limit) {
        // The last one is signalled, because `await_all` hears of no other.
        Ok(mut both) => {
            if writes {
                let write = Wqe::write(from, there(parcel.to));
                let write = if tells { write } else { write.signalled() };
                // A write that is longer than the queue takes is refused. No word says then that it came.
                if let Err(error) = both.post(write) {
                    return Verdict::bad(error);
                }
            }
            if tells {
                let told = Wqe::write_value(parcel.value, there(parcel.word));
                // 8 bytes in a block that is reserved: nothing to refuse.
                let _ = both.post(told.signalled());
            }
            Verdict::GOOD
        }
        Err(error) => Verdict::bad(error),
    }
}

/// Opens a queue for this thread, posts a parcel, and closes the queue.
///
/// A function of its own on a GPU, too: a call of a team posts in several places, and where each of them had the post in it,
/// the queues would lie in local memory, and 255 registers were not enough. It takes numbers alone, because anything else
/// would come through local memory.
#[inline(never)]
#[expect(clippy::too_many_arguments, reason = "the fields of a parcel")]
fn carry(
    queue: &SendQueueHandle<'_>,
    from: u64,
    bytes: u32,
    to: u64,
    word: u64,
    value: u64,
    local: LocalKey,
    remote: RemoteKey,
    limit: Deadline,
) -> Verdict {
    let parcel = Parcel {
        from,
        bytes,
        to,
        word,
        value,
    };
    match queue.open::<Exclusive>() {
        Ok(mut queue) => put(&mut queue, parcel, (local, remote), limit),
        Err(error) => Verdict::bad(error),
    }
}

/// Opens a queue for this thread, waits until all is complete that was posted to it, and closes it. A function of its own for
/// the reason of [`carry`].
#[inline(never)]
fn await_all(queue: &SendQueueHandle<'_>, limit: Deadline) -> Verdict {
    match queue.open::<Exclusive>() {
        Ok(mut queue) => match queue.wait_all(limit) {
            Ok(()) => Verdict::GOOD,
            Err(error) => Verdict::bad(error),
        },
        Err(error) => Verdict::bad(error),
    }
}

impl<'a, X: Extent> Team<'a, X> {
    /// Writes words to a member, as one thread, and behind them a word.
    #[inline(always)]
    pub(super) fn post(
        &self,
        rank: u32,
        mut span: Span,
        told: (u64, u64),
        limit: Deadline,
    ) -> Verdict {
        let queue = match self.handle.queue(self.channel, rank) {
            Ok(queue) => queue,
            Err(error) => return Verdict::bad(error),
        };
        loop {
            let (parcel, keys, rest) = match self.handle.parcel(rank, span, told) {
                Ok(parcel) => parcel,
                Err(error) => return Verdict::bad(error),
            };
            let Parcel {
                from,
                bytes,
                to,
                word,
                value,
            } = parcel;
            let posted = carry(queue, from, bytes, to, word, value, keys.0, keys.1, limit);
            if posted.is_bad() || rest.words == 0 {
                return posted;
            }
            span = rest;
        }
    }

    /// Stores a word at a member, as one thread, behind all that this unit has written there.
    #[inline(always)]
    pub(super) fn tell(&self, rank: u32, told: (u64, u64), limit: Deadline) -> Verdict {
        self.post(rank, Span::NOTHING, told, limit)
    }

    /// What a signal says in this call, by its low bits.
    #[inline(always)]
    pub(super) const fn said(&self, low: u64) -> u64 {
        self.calls << CALL | low & ((1 << CALL) - 1)
    }

    /// Says to a member, as one thread, that this one has come to the call, whose shape is so.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn announce(&self, rank: u32, shape: u64, limit: Deadline) -> Verdict {
        let layout = self.handle.layout;
        let word = layout.ready(self.channel, self.calls, self.rank());
        self.tell(rank, (word, self.said(shape)), limit)
    }

    /// Waits, as one thread, until a member has come to the call, which must have the same shape there.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn hear(&self, rank: u32, shape: u64, limit: Deadline) -> Verdict {
        let word = self.handle.layout.ready(self.channel, self.calls, rank);
        match self.signalled(word, self.said(0), limit) {
            0 => Verdict::bad(Error::Late { rank }),
            said if said == self.said(shape) => Verdict::GOOD,
            _ => Verdict::bad(Error::Disagrees { rank }),
        }
    }

    /// Waits, as one thread, until a member has sent so much of what it sends in this call.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn arrived(&self, rank: u32, step: u64, limit: Deadline) -> Verdict {
        let word = self.handle.layout.arrived(self.channel, rank);
        match self.signalled(word, self.said(step), limit) {
            0 => Verdict::bad(Error::Late { rank }),
            _ => Verdict::GOOD,
        }
    }

    /// Waits until a word of the window is at least so much, and gives it; 0 if that takes too long.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn signalled(&self, word: u64, least: u64, limit: Deadline) -> u64 {
        match self.handle.window.signal(word) {
            Some(signal) => signal.wait(least, limit).unwrap_or(0),
            None => 0,
        }
    }

    /// Comes to the call with all other members that are not masked: each thread says so to those that it serves, and then
    /// hears from them. A member that does not come is masked, if it `masks`.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn assemble(&self, shape: u64, masks: bool, limit: Deadline) -> Verdict {
        let mut verdict = self.announce_all(shape, limit);
        for rank in self.others() {
            if self.handle.is_masked(rank) {
                continue;
            }
            let heard = self.hear(rank, shape, limit);
            if masks {
                let _ = self.or_masked(rank, heard);
            }
            verdict = verdict.and(heard);
        }
        verdict
    }

    /// Says to the members that this thread serves that this one has come. All say so before anybody waits: two that wait
    /// for each other first would do so for ever.
    #[cfg_attr(target_arch = "nvptx64", inline(always))]
    pub(super) fn announce_all(&self, shape: u64, limit: Deadline) -> Verdict {
        let mut verdict = Verdict::GOOD;
        for rank in self.others() {
            if self.handle.is_masked(rank) {
                continue;
            }
            let said = self.announce(rank, shape, limit);
            verdict = verdict.and(self.or_masked(rank, said));
        }
        verdict
    }

    /// Waits, as one thread, until all is complete that this unit has posted to a member.
    #[inline(always)]
    pub(super) fn complete(&self, rank: u32, limit: Deadline) -> Verdict {
        match self.handle.queue(self.channel, rank) {
            Ok(queue) => await_all(queue, limit).late(rank),
            Err(error) => Verdict::bad(error),
        }
    }

    /// Masks a member of which a verdict says that it is not there.
    #[inline(always)]
    pub(super) fn or_masked(&self, rank: u32, verdict: Verdict) -> Verdict {
        if verdict.is_gone() {
            self.handle.set_mask(rank, true);
        }
        verdict
    }
}

/// A number of a call's shape: which call it is, and its numbers. Members compare it.
#[inline(always)]
pub(super) const fn shape(call: Call, numbers: [u64; 3]) -> u64 {
    let [one, two, three] = numbers;
    let mut mixed = call as u64;
    mixed = mix(mixed ^ one);
    mixed = mix(mixed ^ two);
    mixed = mix(mixed ^ three);
    mixed & ((1 << CALL) - 1)
}

/// A bijection that spreads each bit (its constants are those of splitmix64).
#[inline(always)]
const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The calls that members compare.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum Call {
    /// [`Team::barrier`].
    Barrier = 1,
    /// [`Team::broadcast`].
    Broadcast,
    /// [`Team::all_gather`].
    AllGather,
    /// [`Team::all_to_all`].
    AllToAll,
    /// [`Team::all_to_all_v`].
    AllToAllV,
    /// [`Team::all_reduce`].
    AllReduce,
    /// [`Team::reduce_scatter`].
    ReduceScatter,
}
