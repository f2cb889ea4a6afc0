//! Up to 32 requests of a warp, under one doorbell.

use mlx5_wqe::{Local, LocalKey, Remote, RemoteKey, Wqe};

use super::{Experts, Way};
use warpbell::{Deadline, Exclusive, SendQueueHandle, Warp, block, warp as lanes};

/// A lane's request: words of this member's window to those of another one, or a value to a word of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    /// The first word of what is written, and how many; none for a value.
    from: u64,
    words: u32,
    /// The same of what is written behind it.
    more: u64,
    more_words: u32,
    /// Where it goes.
    to: u64,
    value: u64,
}

impl Request {
    /// A lane without any.
    pub const NOTHING: Self = Self {
        from: 0,
        words: 0,
        more: 0,
        more_words: 0,
        to: u64::MAX,
        value: 0,
    };

    /// A value to a word; it is signalled.
    #[inline(always)]
    pub const fn value(value: u64, to: u64) -> Self {
        Self {
            to,
            value,
            ..Self::NOTHING
        }
    }

    /// Words to others; nothing for none.
    #[inline(always)]
    pub const fn write((from, words): (u64, u32), to: u64) -> Self {
        Self {
            from,
            words,
            to: if words == 0 { Self::NOTHING.to } else { to },
            ..Self::NOTHING
        }
    }

    /// Words, and more behind them, to others.
    #[inline(always)]
    pub const fn gather(
        (from, words): (u64, u32),
        (more, more_words): (u64, u32),
        to: u64,
    ) -> Self {
        Self {
            from,
            words,
            more,
            more_words,
            to,
            value: 0,
        }
    }
}

impl<M: Way> Experts<'_, M> {
    /// Posts the requests of a warp's lanes to a member, on this block's queue; whether all were posted. The lanes' stores come
    /// before them.
    ///
    /// # Safety
    /// All lanes of the warp come here together, with the same member.
    #[inline(always)]
    pub(super) unsafe fn post(&self, rank: u32, request: Request, limit: Deadline) -> bool {
        let (team, words) = (self.team, self.words);
        let Ok(queue) = team.queue(block::index(), rank) else {
            return false;
        };
        let (key, there) = (words.local(0, 0), team.remote(rank, 0));
        let (Some(Local { key, .. }), Ok(Remote { key: there, .. })) = (key, there) else {
            return false;
        };
        let nothing = request.to == Request::NOTHING.to;
        let from = words.local(request.from, request.words);
        let more = words.local(request.more, request.more_words);
        let to = team.remote(rank, if nothing { 0 } else { request.to });
        // All is there by the layout. A lane for which it is not goes on with the others, and says so behind them.
        let (from, more, to, missing) = match (from, more, to) {
            (Some(from), Some(more), Ok(to)) => {
                let to = if nothing { 0 } else { to.address };
                (
                    (from.address, from.length),
                    (more.address, more.length),
                    to,
                    false,
                )
            }
            _ => ((0, 0), (0, 0), 0, true),
        };
        // SAFETY: the caller's promise.
        let posted =
            unsafe { post_together(queue, from, more, to, request.value, key, there, limit) };
        !lanes::any(missing || !posted)
    }
}

/// Opens a queue for a warp, posts its lanes' requests, and closes the queue; whether all were posted. A lane whose request
/// goes to address 0 has none.
///
/// A function of its own on a GPU, too, which takes numbers alone: where the halves of a round had the post in them, a loop
/// over rounds had its queues in local memory.
///
/// # Safety
/// All lanes of the warp come here together, with the same queue.
#[inline(never)]
#[expect(clippy::too_many_arguments, reason = "numbers alone")]
unsafe fn post_together(
    queue: &SendQueueHandle<'_>,
    (from, bytes): (u64, u32),
    (more, more_bytes): (u64, u32),
    to: u64,
    value: u64,
    key: LocalKey,
    there: RemoteKey,
    limit: Deadline,
) -> bool {
    let (_, count) = lanes::rank_and_count(to != 0);
    if count == 0 {
        return true;
    }
    let remote = Remote {
        address: to,
        key: there,
    };
    let span = |address, length| Local {
        address,
        length,
        key,
    };
    let mut request = None;
    if to != 0 {
        request = match (bytes, more_bytes) {
            (0, _) => Some(Wqe::write_value(value, remote).signalled()),
            (_, 0) => Some(Wqe::write(span(from, bytes), remote)),
            _ => Wqe::write_gather(&[span(from, bytes), span(more, more_bytes)], remote).ok(),
        };
    }
    let missing = request.is_none() && to != 0;
    // SAFETY: the caller's promise; they post by one call, and leave together.
    let Ok(mut queue) = (unsafe { queue.open_together::<Exclusive, Warp>() }) else {
        return false;
    };
    let posted = match queue.batch(count, limit) {
        Ok(mut batch) => batch.post_if(request).is_ok(),
        Err(_) => false,
    };
    !lanes::any(missing || !posted)
}
