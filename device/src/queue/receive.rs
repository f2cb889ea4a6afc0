//! The receive queue that a kernel uses.

use core::slice;

use mlx5_wqe::segment::Data;
use mlx5_wqe::{Arrival, CqeOpcode, CqeTail, Immediate, Local, RemoteKey, WqeIndex};
use warpbell_gpu::arch::{fence_acquire, store_segment};

use crate::Deadline;
use crate::error::{OpenError, PostError, QueueError, WaitError};
use crate::handle::ReceiveQueueHandle;
use crate::queue::completion;
use crate::queue::doorbell::publish_receives;
use crate::queue::lanes::Lanes;
use crate::queue::producer::{Poll, Producer};
use crate::queue::{Scope, Sharing};

/// A receive queue, as this thread (or warp, or block) sees it.
///
/// Buffers are filled in the order in which they were posted. With a scope
/// wider than a thread, all its threads make every call together: each posts a
/// buffer of its own, and all get the same message from a wait.
pub struct ReceiveQueue<'a, S: Sharing, C: Scope> {
    pub(super) handle: ReceiveQueueHandle<'a>,
    pub(super) producer: Producer<'a, S, C>,
}

/// A message that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// How it came, and what came with it.
    pub kind: Arrival,
    /// Bytes written: to the receive's buffer, or by the RDMA write.
    pub bytes: u32,
    /// Which receive it used up, counted as they were posted, modulo 2^16.
    pub index: WqeIndex,
}

impl<'a, S: Sharing, C: Scope> ReceiveQueue<'a, S, C> {
    #[inline(always)]
    pub(crate) fn open(handle: ReceiveQueueHandle<'a>) -> Result<Self, OpenError> {
        // SAFETY: the handle's pointers are valid for 'a, by the promise of its `new`.
        let state = unsafe { &*handle.state };
        Ok(Self {
            producer: Producer::open(state, handle.depth_log2, handle.processor)?,
            handle,
        })
    }

    /// Posts a buffer; answers at once with the number of its receive, which
    /// [`Received::index`] names when a message has filled it.
    ///
    /// # Errors
    /// `NoRoom`, `TooManyBlocks` (a scope of more threads than half the ring),
    /// `TooLong`, `Empty`, `Failed`. Nothing was posted then.
    #[inline(always)]
    pub fn try_post(&mut self, local: Local) -> Result<WqeIndex, PostError> {
        self.try_post_scatter(&[local])
    }

    /// Posts a buffer in several pieces, at most the queue's
    /// [`max_segments`](Self::max_segments); answers as
    /// [`try_post`](Self::try_post) does.
    ///
    /// # Errors
    /// As there; `TooManyBlocks` counts pieces, too.
    #[inline(always)]
    pub fn try_post_scatter(&mut self, locals: &[Local]) -> Result<WqeIndex, PostError> {
        let (start, rank) = self.submit(true, locals)?;
        Ok(self.number(start, rank))
    }

    /// Posts the buffers of those threads of the scope that have one; each gets
    /// the number of its receive.
    ///
    /// # Errors
    /// As for [`try_post`](Self::try_post); a thread whose own buffer is
    /// refused gets its error alone.
    #[inline(always)]
    pub fn try_post_if(&mut self, local: Option<Local>) -> Result<Option<WqeIndex>, PostError> {
        let piece = local.unwrap_or_default();
        let (start, rank) = self.submit(local.is_some(), slice::from_ref(&piece))?;
        Ok(local.map(|_| self.number(start, rank)))
    }

    /// Takes the next message, if one has arrived.
    ///
    /// # Errors
    /// The queue's first error.
    #[inline(always)]
    pub fn try_receive(&mut self) -> Result<Option<Received>, QueueError> {
        match self.receive(Deadline::PASSED) {
            Ok(received) => Ok(Some(received)),
            Err(WaitError::Failed(error)) => Err(error),
            Err(_) => Ok(None),
        }
    }

    /// Waits for the next message. What it brought may be read then.
    ///
    /// # Errors
    /// The deadline passed; the queue has failed.
    #[inline(always)]
    pub fn receive(&mut self, deadline: Deadline) -> Result<Received, WaitError> {
        let mut found = Taken::NONE;
        if C::leads() {
            found = self.take();
            if found == Taken::NONE {
                let mut wait = deadline.wait();
                while found == Taken::NONE && !wait.expired() {
                    found = self.take();
                }
            }
        }
        let found = Taken {
            tail: C::broadcast(found.tail),
            lengths: C::broadcast(found.lengths),
            immediate: C::broadcast(found.immediate),
        };
        match decode(found) {
            Some(received) => {
                // The leader's acquire fence before the others' reading.
                C::sync();
                Ok(received)
            }
            None => Err(match QueueError::from_bits(found.lengths) {
                Some(error) => WaitError::Failed(error),
                None => WaitError::Deadline,
            }),
        }
    }

    /// Most pieces of one buffer.
    pub fn max_segments(&self) -> u32 {
        1 << self.handle.stride_log2
    }

    /// Number of receive WQEs in the ring.
    pub fn depth(&self) -> u32 {
        self.producer.ring.depth()
    }

    /// The number of the receive at a rank of a group.
    #[inline(always)]
    fn number(&self, start: u64, rank: u32) -> WqeIndex {
        self.producer.ring.index(start + rank as u64)
    }

    /// Posts the buffers of those threads of a group that have one; gives where it starts, and this thread's rank.
    ///
    /// The pieces are there either way: a pointer that may be null keeps a compiler from holding a piece in registers.
    #[inline(always)]
    fn submit(&mut self, has_one: bool, locals: &[Local]) -> Result<(u64, u32), PostError> {
        let refusal = match has_one {
            true => self.check(locals).err(),
            false => None,
        };
        let posts = has_one && refusal.is_none();
        let (rank, count) = C::rank_and_count(posts);
        if count == 0 {
            return refusal.map_or(Ok((0, 0)), Err);
        }
        // Receives are freed as their messages are taken, never by a post.
        let alone = Lanes::alone();
        let refresh = Poll {
            handle: &(),
            take: refresh,
        };
        let start = match self.producer.reserve_at_hand(count) {
            Some(start) => start,
            None => match self.producer.reserve(alone, count, None, refresh) {
                Ok(start) => start,
                Err(refusal) => {
                    let limit = self.producer.ring.group_limit();
                    return Err(refusal.of_post(count, limit, None));
                }
            },
        };
        if posts {
            self.store(start + rank as u64, locals);
        }
        let handle = &self.handle;
        C::sync();
        let end = start + count as u64;
        self.producer.publish(Some(start), end, C::leads(), |end| {
            publish_receives(handle, end);
        });
        refusal.map_or(Ok((start, rank)), Err)
    }

    #[inline(always)]
    fn check(&self, locals: &[Local]) -> Result<(), PostError> {
        if locals.len() as u64 > self.max_segments() as u64 {
            return Err(PostError::TooManyBlocks {
                asked: locals.len() as u32,
                limit: self.max_segments(),
            });
        }
        let mut bytes = 0u64;
        for local in locals {
            if local.length == 0 {
                return Err(PostError::Empty);
            }
            bytes += local.length as u64;
        }
        let limit = self.handle.max_message;
        if bytes > limit as u64 {
            return Err(PostError::TooLong { bytes, limit });
        }
        Ok(())
    }

    /// Stores receive WQE number `number`: its pieces, and the list's end.
    #[inline(always)]
    fn store(&self, number: u64, locals: &[Local]) {
        let first = self.producer.ring.slot(number) << self.handle.stride_log2;
        let store = |offset: usize, piece: Data| {
            // SAFETY: the handle's `new` promises `depth << stride_log2`
            // segments for 'a; `first` is below that, and `offset` below the
            // segments of a WQE. The WQE is reserved and not yet published, so
            // that neither the NIC nor another thread touches it.
            unsafe { store_segment(self.handle.ring.add(first + offset), piece.to_octoword()) };
        };
        // No more pieces than segments: `check` has seen to that.
        for (offset, local) in locals.iter().enumerate() {
            store(offset, Data::new(*local));
        }
        if (locals.len() as u32) < self.max_segments() {
            store(locals.len(), Data::LIST_END);
        }
    }

    /// Takes one CQE off the completion ring, or tells of the queue's failure
    /// once all that arrived before is taken. The leader's job.
    #[inline(always)]
    fn take(&mut self) -> Taken {
        let producer = &mut self.producer;
        let parts = &self.handle.completions;
        let reach = self.handle.reach();
        let mut found = Taken::NONE;
        if let Some(taken) = producer.ledger.start_taking(producer.state) {
            let number = taken as u32;
            let tail = completion::tail(parts, number);
            if completion::is_new(parts, tail, number) {
                // The tail before the rest of the CQE and before the data,
                // because the NIC writes it last.
                fence_acquire(reach);
                let slot = completion::slot(parts, number);
                found = Taken {
                    tail: tail.0,
                    lengths: completion::word(slot, 5),
                    immediate: completion::word(slot, 4),
                };
                if decode(found).is_none() {
                    producer.fail(completion::decode_error(slot, tail, reach));
                    found = Taken::NONE;
                }
                let now_taken = taken + 1;
                completion::free_entries(parts, now_taken as u32, reach);
                // A receive queue completes in order, one CQE a receive.
                producer
                    .ledger
                    .end_taking(producer.state, now_taken, now_taken, None);
            } else {
                let consumed = producer.ledger.consumed();
                producer
                    .ledger
                    .end_taking(producer.state, consumed, taken, None);
            }
        }
        if found == Taken::NONE && producer.has_failed() {
            found = Taken::failed(producer.first_error());
        }
        found
    }
}

/// Learns what others, or earlier calls, have found.
#[inline(always)]
fn refresh<S: Sharing, C: Scope>(_: &(), producer: &mut Producer<'_, S, C>) {
    producer.ledger.refresh(producer.state);
}

/// The three words of a CQE that tell what arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Taken {
    /// Bytes 56 to 63.
    tail: u64,
    /// Bytes 40 to 47; the byte count is the second half.
    lengths: u64,
    /// Bytes 32 to 39; the immediate or key is the second half.
    immediate: u64,
}

impl Taken {
    /// No CQE looks like this: its tail has opcode 15.
    const NONE: Self = Self::failed(0);

    /// Nor like this: a queue's first error as bits.
    const fn failed(error: u64) -> Self {
        Self {
            tail: u64::MAX,
            lengths: error,
            immediate: 0,
        }
    }
}

fn decode(taken: Taken) -> Option<Received> {
    let tail = CqeTail(taken.tail);
    let immediate = u64::from_be(taken.immediate) as u32;
    let kind = match tail.cqe_opcode() {
        CqeOpcode::RESPONDER_SEND => Arrival::Send,
        CqeOpcode::RESPONDER_SEND_IMMEDIATE => Arrival::SendImmediate(Immediate(immediate)),
        CqeOpcode::RESPONDER_SEND_INVALIDATE => Arrival::SendInvalidate(RemoteKey(immediate)),
        CqeOpcode::RESPONDER_WRITE_IMMEDIATE => Arrival::WriteImmediate(Immediate(immediate)),
        _ => return None,
    };
    Some(Received {
        kind,
        bytes: u64::from_be(taken.lengths) as u32,
        index: tail.wqe_index(),
    })
}
