//! The initiator's end of a lane.

use mlx5_wqe::{Local, Remote, RemoteKey, Wqe};
use warpbell_gpu::arch::{Reach, Word64, fence_acquire};

use super::error::Error;
use super::handle::End;
use super::reply::Reply;
use super::slot::{MARKS, SLOT_BYTES, first_word, item, item_word, top, top_word, writes};
use super::words::{ANSWER, Answer, MAX_ARGUMENTS, MAX_FUNCTION, PayloadWord, sequence};
use super::{Buffer, Function};
use crate::together::{Led, begin, by_leader};
use crate::words::{load_relaxed64, store_relaxed64};
use warpbell::Batch;
use warpbell::WaitError;
use warpbell::{Deadline, Exclusive, Scope, SendQueue, Thread};

/// Words of a lane's state at the initiator: index of the next message, index of the first one whose answer was not
/// taken, and how many answers were refusals.
const NEXT: usize = 0;
const ANSWERED: usize = 1;
const REFUSED: usize = 2;

/// Bytes of a payload at this end, and where they go at the target.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// The bytes: at least 1, in registered memory. They may be changed again once the message is answered.
    pub local: Local,
    /// The target's buffer.
    pub buffer: Buffer,
    /// Bytes from its beginning.
    pub offset: u32,
}

/// A message that was sent: [`Lane::wait`] waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "without it nobody learns what became of the message"]
pub struct Sent {
    index: u32,
}

/// A lane to a target, as this thread (or warp, or block) has it: [`InitiatorHandle::lane`].
///
/// Each call is made by all threads of the scope `C` together, at the same point and with the same arguments; one
/// message goes, and all get its result. What any of them stored before comes before the message.
///
/// [`InitiatorHandle::lane`]: super::InitiatorHandle::lane
pub struct Lane<'a, C: Scope> {
    end: End<'a>,
    max_payload: u32,
    /// Indices of the next message, and of the first whose answer was not taken. The leader's, as all that follow.
    next: u32,
    answered: u32,
    refused: u32,
    /// The answer that a wait took last: the one that it waited for.
    last: Answer,
    queue: Led<'a, Exclusive, C>,
}

impl<'a, C: Scope> Lane<'a, C> {
    #[inline(always)]
    pub(super) fn open(end: End<'a>, max_payload: u32) -> Result<Self, Error> {
        let mut lane = Self {
            max_payload,
            next: 0,
            answered: 0,
            refused: 0,
            last: Answer(0),
            queue: Led::open(end.queue)?,
            end,
        };
        if C::leads() {
            // Behind the queue's claim, which acquires what the one before stored.
            let load = |word| load_relaxed64(end.state_word(word), Reach::Gpu) as u32;
            (lane.next, lane.answered, lane.refused) = (load(NEXT), load(ANSWERED), load(REFUSED));
        }
        Ok(lane)
    }

    /// Sends a task: its function's number at the target, a value, and up to [`MAX_ARGUMENTS`](super::MAX_ARGUMENTS)
    /// arguments. Waits until the deadline for a slot. With no arguments the message is one write of 8 bytes, with one or
    /// two one of 24.
    ///
    /// # Errors
    /// [`Error::InvalidFunction`], [`Error::TooManyArguments`]; [`Error::Full`]; [`Error::TooShallow`]; the lane's queue
    /// has failed. Nothing was sent then.
    #[inline(always)]
    pub fn send<const N: usize>(
        &mut self,
        function: Function,
        value: u32,
        arguments: [u64; N],
        deadline: Deadline,
    ) -> Result<Sent, Error> {
        by_leader!(C, self.post(function, value, arguments, deadline)).map(|index| Sent { index })
    }

    /// Sends a task behind a payload, under one doorbell: when the task starts the payload is there.
    ///
    /// # Errors
    /// As for [`send`](Self::send); [`Error::InvalidBuffer`], [`Error::InvalidOffset`], [`Error::InvalidSize`].
    #[inline(always)]
    pub fn put<const N: usize>(
        &mut self,
        payload: Payload,
        function: Function,
        value: u32,
        arguments: [u64; N],
        deadline: Deadline,
    ) -> Result<Sent, Error> {
        by_leader!(
            C,
            self.post_behind(payload, function, value, arguments, deadline)
        )
        .map(|index| Sent { index })
    }

    /// Waits until there is a slot for the next message. The message before in it is answered then, so that what it was
    /// sent from may be changed.
    ///
    /// # Errors
    /// [`Error::Full`]; the lane's queue has failed.
    #[inline(always)]
    pub fn await_room(&mut self, deadline: Deadline) -> Result<(), Error> {
        by_leader!(C, self.make_room(deadline).map(|()| 0)).map(drop)
    }

    /// Waits for the answer to a message, and gives the task's value. What the target wrote before it answered may be
    /// read then. All messages before it are answered, too.
    ///
    /// # Errors
    /// What the target answered: [`Error::NotRegistered`], [`Error::WrongArguments`], [`Error::InvalidPayload`],
    /// [`Error::Task`]. [`Error::Timeout`]; [`Error::Forgotten`]; the lane's queue has failed.
    #[inline(always)]
    pub fn wait(&mut self, sent: Sent, deadline: Deadline) -> Result<u32, Error> {
        by_leader!(C, self.result(sent, deadline))
    }

    /// Waits like [`wait`](Self::wait), and gives with the task's value the bytes of its result, if it answered with
    /// some: [`Server::answer_with`](super::Server::answer_with). They lie in the message's slot until the slot's next
    /// message is sent, for which nobody has the lane while the reply is read.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait); [`Error::Forgotten`] once as many messages were sent after this one as there are
    /// slots, answered or not.
    #[inline(always)]
    pub fn wait_reply(&mut self, sent: Sent, deadline: Deadline) -> Result<Reply<'_>, Error> {
        let (mut found, mut word) = (Answer(0), 0);
        if begin::<C>() {
            match self.reply(sent, deadline) {
                Ok(answer) => found = answer,
                Err(error) => word = error.to_bits(),
            }
        }
        // No answer is 0.
        let answer = Answer(C::broadcast(found.0));
        // The leader's fence before the others' reading; a warp's shuffle orders no memory.
        C::sync();
        if answer.0 == 0 {
            let word = C::broadcast(word);
            return Err(Error::from_bits(word).unwrap_or(Error::Timeout));
        }
        let at = self.end.result_at(self.end.slot(sent.index)) as usize / 8;
        // SAFETY: each slot has room for a result behind the answers (the promise of `InitiatorHandle::new`).
        let first = unsafe { self.end.words.add(at) };
        // No target answers with more; what does, ends here.
        let length = answer.length().min(self.end.max_result);
        Ok(Reply::new(answer.value(), first, length))
    }

    /// Waits until all messages are answered; gives how many refusals this lane ever had, which tells of those whose
    /// answers nobody waited for.
    ///
    /// # Errors
    /// [`Error::Timeout`]; the lane's queue has failed.
    #[inline(always)]
    pub fn wait_all(&mut self, deadline: Deadline) -> Result<u32, Error> {
        by_leader!(C, self.take(self.next, deadline).map(|()| self.refused))
    }

    #[inline(always)]
    fn post<const N: usize>(
        &mut self,
        function: Function,
        value: u32,
        arguments: [u64; N],
        deadline: Deadline,
    ) -> Result<u32, Error> {
        check::<N>(function)?;
        self.make_room(deadline)?;
        let index = self.next;
        let (slot, marks) = (self.slot(index), self.end.marks(index));
        // A batch for one write, too: where a kernel posts in several places, the closure of `post` is not inlined, and
        // the queue would lie in a GPU's local memory.
        let mut message = self.queue.batch(writes(N), deadline)?;
        fill::<N, false>(&mut message, slot, (function, value, marks), 0, arguments)?;
        drop(message);
        self.next = index.wrapping_add(1);
        Ok(index)
    }

    #[inline(always)]
    fn post_behind<const N: usize>(
        &mut self,
        payload: Payload,
        function: Function,
        value: u32,
        arguments: [u64; N],
        deadline: Deadline,
    ) -> Result<u32, Error> {
        check::<N>(function)?;
        let Payload {
            local,
            buffer,
            offset,
        } = payload;
        let limit = self.max_payload;
        // One comparison for "none" and "too many".
        if local.length.wrapping_sub(1) >= limit {
            return Err(Error::InvalidSize { limit });
        }
        if buffer >= self.end.buffers.count {
            return Err(Error::InvalidBuffer { buffer });
        }
        let entry = self.end.buffers.get(buffer);
        if !entry.has(offset, local.length) {
            return Err(Error::InvalidOffset { buffer });
        }
        let remote = Remote {
            address: entry.address + u64::from(offset),
            key: RemoteKey(entry.remote_key),
        };
        self.make_room(deadline)?;
        let index = self.next;
        let (slot, marks) = (self.slot(index), self.end.marks(index));
        let place = PayloadWord::new(buffer, offset, local.length);
        // Room for all of it or nothing. Behind it nothing is refused any more, so that no message goes in part.
        let mut message = self.queue.batch(1 + writes(1 + N), deadline)?;
        let _ = message.post(Wqe::write(local, remote))?;
        fill::<N, true>(
            &mut message,
            slot,
            (function, value, marks),
            place.0,
            arguments,
        )?;
        drop(message);
        self.next = index.wrapping_add(1);
        Ok(index)
    }

    /// Waits for the answer to the message whose slot is the next one's.
    #[inline(always)]
    fn make_room(&mut self, deadline: Deadline) -> Result<(), Error> {
        if self.next.wrapping_sub(self.answered) < 1 << self.end.slots_log2 {
            return Ok(());
        }
        match self.take(self.answered.wrapping_add(1), deadline) {
            Err(Error::Timeout) => Err(Error::Full),
            result => result,
        }
    }

    #[inline(always)]
    fn result(&mut self, sent: Sent, deadline: Deadline) -> Result<u32, Error> {
        self.taken(sent, deadline)?.result()
    }

    /// The answer to a message in whose slot nothing else is under way, if it is no refusal.
    #[inline(always)]
    fn reply(&mut self, sent: Sent, deadline: Deadline) -> Result<Answer, Error> {
        // The next message's result overwrites this one's ahead of its answer.
        if self.next.wrapping_sub(sent.index) > 1 << self.end.slots_log2 {
            return Err(Error::Forgotten);
        }
        let answer = self.taken(sent, deadline)?;
        answer.result().map(|_| answer)
    }

    /// Takes all answers up to that to a message, which it gives.
    #[inline(always)]
    fn taken(&mut self, sent: Sent, deadline: Deadline) -> Result<Answer, Error> {
        self.last = Answer(0);
        self.take(sent.index.wrapping_add(1), deadline)?;
        // The one that was taken just now is not loaded once more; one that was taken before may be overwritten.
        let answer = match self.last.is_of(sent.index) {
            true => self.last,
            false => self.answer(sent.index),
        };
        // So far back that sequence numbers tell nothing, or overwritten by a later message's.
        let kept = self.answered.wrapping_sub(sent.index) <= 1 << self.end.slots_log2;
        if !(kept & answer.is_of(sent.index)) {
            return Err(Error::Forgotten);
        }
        Ok(answer)
    }

    /// Takes the answers to all messages before index `end`, in their order.
    #[inline(always)]
    fn take(&mut self, end: u32, deadline: Deadline) -> Result<(), Error> {
        if self.take_what_came(end) {
            return Ok(());
        }
        // Once it is known to have failed, there is nothing to wait for.
        if let Some(error) = self.queue.known_error() {
            return Err(Error::Failed(error));
        }
        let mut wait = deadline.wait();
        loop {
            let late = wait.expired();
            if self.take_what_came(end) {
                return Ok(());
            }
            if late {
                return Err(why_late(&mut self.queue));
            }
        }
    }

    /// Whether all answers to messages before index `end` came.
    #[inline(always)]
    fn take_what_came(&mut self, end: u32) -> bool {
        let before = self.answered;
        // Not more than there are slots: the answers behind those come when more was sent.
        while (end.wrapping_sub(self.answered) as i32) > 0 {
            let answer = self.answer(self.answered);
            if !answer.is_of(self.answered) {
                break;
            }
            self.last = answer;
            self.refused = self.refused.wrapping_add(u32::from(answer.is_refusal()));
            self.answered = self.answered.wrapping_add(1);
        }
        // Those too behind which one is missing: nobody looks at them again.
        if self.answered != before {
            // The answer before what the target wrote ahead of it; and before the slot and the payload's bytes are
            // stored to again, which the target has read.
            fence_acquire(self.end.queue.reach());
        }
        end.wrapping_sub(self.answered) as i32 <= 0
    }

    /// The word for the answer to the message with this index.
    #[inline(always)]
    fn answer(&self, index: u32) -> Answer {
        // SAFETY: there is a word for each slot (the promise of `InitiatorHandle::new`).
        let word: &Word64 = unsafe { &*self.end.words.add(self.end.slot(index) as usize) };
        Answer(load_relaxed64(word, Reach::System))
    }

    /// The slot of the message with this index, at the target.
    #[inline(always)]
    fn slot(&self, index: u32) -> Remote {
        Remote {
            address: self.end.remote_address + SLOT_BYTES * u64::from(self.end.slot(index)),
            key: RemoteKey(self.end.remote_key),
        }
    }
}

impl<C: Scope> Drop for Lane<'_, C> {
    #[inline(always)]
    fn drop(&mut self) {
        if C::leads() {
            // One by one: an array that is gone through would lie in a GPU's local memory.
            let store = |word, value: u32| {
                store_relaxed64(self.end.state_word(word), value.into(), Reach::Gpu);
            };
            store(NEXT, self.next);
            store(ANSWERED, self.answered);
            store(REFUSED, self.refused);
            // They come before the claim's end, because the queue, which is dropped behind this, releases them.
        }
    }
}

/// Refuses what no target takes.
#[inline(always)]
fn check<const N: usize>(function: Function) -> Result<(), Error> {
    if N > MAX_ARGUMENTS {
        return Err(Error::TooManyArguments { given: N as u32 });
    }
    if function > MAX_FUNCTION {
        return Err(Error::InvalidFunction { function });
    }
    Ok(())
}

/// Adds a message's words to a batch that has room for them: what does not fit beside the header, then the header's
/// write, which is the last because the receiver's NIC brings it behind the payload.
#[inline(always)]
fn fill<const N: usize, const HAS_PAYLOAD: bool>(
    message: &mut Batch<'_, '_, Exclusive, Thread>,
    slot: Remote,
    (function, value, marks): (Function, u32, u64),
    payload: u64,
    arguments: [u64; N],
) -> Result<(), Error> {
    let before = HAS_PAYLOAD as usize;
    let value_of = |number: usize| match number < before {
        true => payload,
        false => arguments.get(number - before).copied().unwrap_or(0),
    };
    let tops = |first: usize| top(first, value_of(first)) | top(first + 1, value_of(first + 1));
    let [a, b, c, d, e, f] = [0, 1, 2, 3, 4, 5].map(|number| item(value_of(number)));
    let at = |word: usize| slot.at(8 * word as u64);
    let items = before + N;
    if writes(items) > 2 {
        let _ = message.post(Wqe::write_value([e, f], at(item_word(4))))?;
    }
    if writes(items) > 1 {
        let second = MARKS | tops(2) | tops(4);
        let _ = message.post(Wqe::write_value([second, c, d], at(top_word(2))))?;
    }
    let first = marks | first_word(function, value, N as u32, HAS_PAYLOAD, tops(0));
    let _ = match items {
        0 => message.post(Wqe::write_value(first, slot))?,
        _ => message.post(Wqe::write_value([first, a, b], slot))?,
    };
    Ok(())
}

const _: () = {
    assert!(ANSWER == 8);
    // Three words, as `fill` writes them.
    assert!(item_word(1) == 2 && top_word(2) == 3 && item_word(2) == 4 && item_word(4) == 6);
    assert!(sequence(0) == 1);
};

/// Why nothing came from the other end: the queue to it has failed, as a look at it tells, or it is late.
#[inline(always)]
pub(super) fn why_late(queue: &mut SendQueue<'_, Exclusive, Thread>) -> Error {
    match queue.wait_all(Deadline::PASSED) {
        Err(WaitError::Failed(error)) => Error::Failed(error),
        _ => Error::Timeout,
    }
}
