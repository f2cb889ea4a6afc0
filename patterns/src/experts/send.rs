//! A block's requests to the other members: each warp has queues of its own, and up to 32 requests under one doorbell.

use super::open::{blocks, warp, warps};
use super::post::Request;
use super::word::Count;
use super::{Experts, layout::HEADER};
use warpbell::{Deadline, block, thread, warp as lanes};

/// What a half of a round sends, for one expert after the other.
pub(super) trait Half {
    /// How many requests one expert's tokens of one member take.
    fn items(experts: &Experts<'_>, rank: u32, local: u32) -> u32;

    /// Request number `item` of so many.
    fn request(experts: &Experts<'_>, part: Part, item: u32, items: u32) -> Request;
}

/// Which tokens a request is for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The member that gets it.
    pub rank: u32,
    /// The number of the expert among those of its member.
    pub local: u32,
}

impl Experts<'_> {
    /// Sends a half of the round to all members that are not masked. One to which not all could be posted is masked.
    ///
    /// Expert number `local` of each member is served by block `local` modulo the blocks, so that all about one expert goes
    /// through one queue, in order.
    #[inline(always)]
    pub(super) fn send<H: Half>(&self, limit: Deadline) {
        let mut next = 1 + warp();
        while next < self.shape().ranks {
            let rank = self.behind(next);
            // The lanes of a warp decide alike, while others may be masking the member.
            if !lanes::any(self.is_masked(rank)) && !self.send_to::<H>(rank, limit) {
                self.team.set_mask(rank, true);
            }
            next += warps();
        }
    }

    /// Sends it to one member, as a warp; whether all of it was posted.
    #[inline(always)]
    fn send_to<H: Half>(&self, rank: u32, limit: Deadline) -> bool {
        let (lane, lanes) = (lanes::lane_id(), thread::warp_size());
        // Each lane has the numbers of an expert, 32 at a time.
        let mut first = block::index();
        while first < self.shape().local {
            let own = first + lane * blocks();
            let mut items = 0;
            if own < self.shape().local {
                items = H::items(self, rank, own);
            }
            let end = sum_up_to_here(items);
            let all = of_lane(end, lanes - 1);
            let mut group = 0;
            while group < all {
                let item = group + lane;
                let expert = lane_of(end, item);
                let (items, end) = (of_lane(items, expert), of_lane(end, expert));
                let local = first + expert * blocks();
                let mut request = Request::NOTHING;
                if item < all {
                    request = H::request(self, Part { rank, local }, item - (end - items), items);
                }
                // SAFETY: all lanes of the warp come here with the same member, and leave together.
                if !unsafe { self.post(rank, request, limit) } {
                    return false;
                }
                group += lanes;
            }
            first += lanes * blocks();
        }
        true
    }
}

/// A dispatch: a row for each token, and behind them their count.
pub(super) enum Dispatch {}

impl Half for Dispatch {
    #[inline(always)]
    fn items(experts: &Experts<'_>, rank: u32, local: u32) -> u32 {
        let shape = experts.shape();
        experts
            .sends(rank * shape.local + local)
            .sent(shape.capacity)
            + 1
    }

    #[inline(always)]
    fn request(experts: &Experts<'_>, part: Part, item: u32, items: u32) -> Request {
        let (layout, round, own) = (&experts.layout, experts.round, experts.rank());
        let Part { rank, local } = part;
        let expert = rank * layout.shape.local + local;
        if item + 1 == items {
            let Count(count) = experts.sends(expert);
            return Request::value(count, layout.count(round, local, own));
        }
        let listed = experts.load(layout.listed(expert, item));
        let (token, pair) = ((listed >> 32) as u32, listed as u32);
        let header = (layout.header(pair), HEADER as u32);
        let row = (layout.travelling(token), layout.shape.row_words());
        Request::gather(header, row, layout.received(round, local, own, item))
    }
}

/// A combine: all rows of an expert at once, and behind them its flag; nothing where it got no token.
pub(super) enum Combine {}

impl Half for Combine {
    #[inline(always)]
    fn items(experts: &Experts<'_>, rank: u32, local: u32) -> u32 {
        match experts.count(local, rank).sent(experts.shape().capacity) {
            0 => 0,
            _ => 2,
        }
    }

    #[inline(always)]
    fn request(experts: &Experts<'_>, part: Part, item: u32, _: u32) -> Request {
        let layout = &experts.layout;
        let Part { rank, local } = part;
        let expert = experts.rank() * layout.shape.local + local;
        if item == 1 {
            return Request::value(experts.round, layout.flag(expert));
        }
        let rows = experts.count(local, rank).sent(layout.shape.capacity);
        let outputs = (
            layout.output(local, rank, 0),
            rows * layout.shape.hidden_words(),
        );
        Request::write(outputs, layout.landing(expert, 0))
    }
}

/// The sum of the values of this lane and all lower ones, for a warp.
#[inline(always)]
pub(super) fn sum_up_to_here(value: u32) -> u32 {
    let (lane, mut sum, mut below) = (lanes::lane_id(), value, 1);
    while below < thread::warp_size() {
        // SAFETY: blocks are whole warps, all of whose lanes come here.
        let (other, _) = unsafe { lanes::warp_shuffle_up(u32::MAX, sum, below, 32) };
        if lane >= below {
            sum += other;
        }
        below *= 2;
    }
    sum
}

/// The value of a lane.
#[inline(always)]
pub(super) fn of_lane(value: u32, lane: u32) -> u32 {
    // SAFETY: blocks are whole warps, all of whose lanes come here.
    unsafe { lanes::warp_shuffle_idx(u32::MAX, value, lane, 32).0 }
}

/// The lane whose items the one of that number is among, where each lane says behind which its own end; the last lane, if
/// there are fewer.
#[inline(always)]
fn lane_of(end: u32, item: u32) -> u32 {
    let (mut lane, mut step) = (0, thread::warp_size() / 2);
    while step > 0 {
        if of_lane(end, lane + step - 1) <= item {
            lane += step;
        }
        step /= 2;
    }
    lane
}
