//! One kernel for each verb, and one that fills a queue. A grid of one thread runs each.

use warpbell::wqe::{Arrival, Immediate, Local, Masked, Remote, RemoteKey, Wqe};
use warpbell::{
    Deadline, Exclusive, PostError, ReceiveQueueHandle, SendQueueHandle, Slice, Word64, kernel,
};

use crate::outcome::{Failure, Outcome};

/// Pieces that the gathering and scattering kernels work with.
pub const PIECES: usize = 4;

/// Bytes that [`write_inline`] carries in its WQE.
pub const INLINE_BYTES: usize = 24;

/// What moves bytes between one piece of memory here and one there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Transfer<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// Memory of this end.
    pub local: Local,
    /// Memory of the other end.
    pub remote: Remote,
    /// What travels beside the bytes: the immediate, or the key to invalidate.
    pub beside: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// What moves bytes between several pieces of memory here and one there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pieces<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// Memory of this end.
    pub pieces: [Local; PIECES],
    /// Memory of the other end.
    pub remote: Remote,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// What changes a few bytes of the other end, which come with the WQE.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Inline<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// The bytes.
    pub bytes: [u8; INLINE_BYTES],
    /// Memory of the other end.
    pub remote: Remote,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// An atomic operation on 8 bytes of the other end, or on 4 where the kernel's name says so.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Atomic<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// Where the old value goes; as long as the operation.
    pub local: Local,
    /// Memory of the other end.
    pub remote: Remote,
    /// What is added, or swapped in.
    pub value: u64,
    /// Which bits of it are swapped in; or, for an addition, the highest bit of each field.
    pub value_mask: u64,
    /// What the old value must be for a swap.
    pub compare: u64,
    /// Which of its bits count.
    pub compare_mask: u64,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// One message to receive.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Receive<'a> {
    /// Where to post the buffer.
    pub queue: ReceiveQueueHandle<'a>,
    /// The buffer, in pieces; those of length 0 at the end do not count.
    pub pieces: [Local; PIECES],
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes three numbers: how the message came ([`arrival_number`]), its bytes, and what travelled
    /// beside them.
    pub message: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Posts one WQE, rings the doorbell, and waits until it is done.
#[inline(always)]
fn post<const B: usize>(
    queue: SendQueueHandle<'_>,
    wqe: Wqe<B>,
    limit_us: u64,
) -> Result<(), Failure> {
    let limit = Deadline::after_us(limit_us);
    let mut queue = queue.open::<Exclusive>()?;
    let ticket = queue.post(wqe.signalled(), limit)?;
    queue.wait(ticket, limit)?;
    Ok(())
}

/// Writes `local` to `remote`.
#[kernel]
pub fn write(p: Transfer<'_>) {
    let wqe = Wqe::write(p.local, p.remote);
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// What writes data, and a flag behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Flagged<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// The data at this end.
    pub local: Local,
    /// Where it goes.
    pub remote: Remote,
    /// The flag's 8 bytes.
    pub value: u64,
    /// Where they go.
    pub flag: Remote,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Writes `local` to `remote`, which asks for no completion, then the flag, which does, and waits for that one.
#[kernel]
pub fn write_flagged(p: Flagged<'_>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut queue = p.queue.open::<Exclusive>()?;
        let mut batch = queue.batch(2, limit)?;
        let _ = batch.post(Wqe::write(p.local, p.remote))?;
        let flag = batch.post(Wqe::write_value(p.value, p.flag).signalled())?;
        drop(batch);
        queue.wait_outbound(flag, limit)?;
        Ok(())
    });
}

/// Writes `local` to `remote`, and tells the other end.
#[kernel]
pub fn write_immediate(p: Transfer<'_>) {
    let wqe = Wqe::write_immediate(p.local, p.remote, Immediate(p.beside));
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Writes bytes that the WQE itself carries, so that they need no registered memory.
#[kernel]
pub fn write_inline(p: Inline<'_>) {
    let wqe = Wqe::write_value(p.bytes, p.remote);
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Writes all pieces to `remote`, one after the other.
#[kernel]
pub fn write_gather(p: Pieces<'_>) {
    p.outcome.record(|| {
        let wqe = Wqe::<2>::write_gather(&p.pieces, p.remote)?;
        post(p.queue, wqe, p.limit_us)
    });
}

/// Reads `remote` into `local`.
#[kernel]
pub fn read(p: Transfer<'_>) {
    let wqe = Wqe::read(p.local, p.remote);
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Reads `remote` into the pieces, one after the other.
#[kernel]
pub fn read_scatter(p: Pieces<'_>) {
    p.outcome.record(|| {
        let wqe = Wqe::<2>::read_scatter(&p.pieces, p.remote)?;
        post(p.queue, wqe, p.limit_us)
    });
}

/// Sends `local`.
#[kernel]
pub fn send(p: Transfer<'_>) {
    let wqe = Wqe::send(p.local);
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Sends `local` and an immediate.
#[kernel]
pub fn send_immediate(p: Transfer<'_>) {
    let wqe = Wqe::send_immediate(p.local, Immediate(p.beside));
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Sends `local` and takes a key of the other end away.
#[kernel]
pub fn send_invalidate(p: Transfer<'_>) {
    let wqe = Wqe::send_invalidate(p.local, RemoteKey(p.beside));
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Posts a buffer and waits for the message that fills it.
#[kernel]
pub fn receive(p: Receive<'_>) {
    p.outcome.record(|| {
        let mut queue = p.queue.open::<Exclusive>()?;
        let [first, rest @ ..] = &p.pieces;
        if rest.iter().all(|piece| piece.length == 0) {
            queue.try_post(*first)?;
        } else {
            queue.try_post_scatter(&p.pieces)?;
        }
        let received = queue.receive(Deadline::after_us(p.limit_us))?;
        p.message.store(0, arrival_number(received.kind));
        p.message.store(1, u64::from(received.bytes));
        p.message.store(2, beside(received.kind));
        Ok(())
    });
}

/// How a message came, as a number: 1 write with immediate, 2 send, 3 send with immediate, 4 send with
/// invalidate.
pub const fn arrival_number(kind: Arrival) -> u64 {
    match kind {
        Arrival::WriteImmediate(_) => 1,
        Arrival::Send => 2,
        Arrival::SendImmediate(_) => 3,
        Arrival::SendInvalidate(_) => 4,
    }
}

/// What travelled beside a message's bytes.
const fn beside(kind: Arrival) -> u64 {
    match kind {
        Arrival::WriteImmediate(immediate) | Arrival::SendImmediate(immediate) => {
            immediate.0 as u64
        }
        Arrival::Send => 0,
        Arrival::SendInvalidate(key) => key.0 as u64,
    }
}

/// Adds `value` to 8 bytes of the other end.
#[kernel]
pub fn fetch_add(p: Atomic<'_>) {
    let wqe = Wqe::fetch_add(p.local, p.remote, p.value);
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Swaps `value` into 8 bytes of the other end if they are `compare`.
#[kernel]
pub fn compare_swap(p: Atomic<'_>) {
    let wqe = Wqe::compare_swap(p.local, p.remote, p.compare, p.value);
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Adds each field of `value` to the same field of 4 bytes of the other end.
#[kernel]
pub fn masked_fetch_add_u32(p: Atomic<'_>) {
    let (add, boundary) = (p.value as u32, p.value_mask as u32);
    let wqe = Wqe::masked_fetch_add_u32(p.local, p.remote, add, boundary);
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Adds each field of `value` to the same field of 8 bytes of the other end.
#[kernel]
pub fn masked_fetch_add_u64(p: Atomic<'_>) {
    let wqe = Wqe::masked_fetch_add_u64(p.local, p.remote, p.value, p.value_mask);
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Swaps some bits of `value` into 4 bytes of the other end if some bits of them are those of `compare`.
#[kernel]
pub fn masked_compare_swap_u32(p: Atomic<'_>) {
    let compare = Masked {
        value: p.compare as u32,
        mask: p.compare_mask as u32,
    };
    let swap = Masked {
        value: p.value as u32,
        mask: p.value_mask as u32,
    };
    let wqe = Wqe::masked_compare_swap_u32(p.local, p.remote, compare, swap);
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Swaps some bits of `value` into 8 bytes of the other end if some bits of them are those of `compare`.
#[kernel]
pub fn masked_compare_swap_u64(p: Atomic<'_>) {
    let compare = Masked {
        value: p.compare,
        mask: p.compare_mask,
    };
    let swap = Masked {
        value: p.value,
        mask: p.value_mask,
    };
    let wqe = Wqe::masked_compare_swap_u64(p.local, p.remote, compare, swap);
    p.outcome.record(|| post(p.queue, wqe, p.limit_us));
}

/// Does nothing and waits until that is done, and with it all that was posted before.
#[kernel]
pub fn nop(p: Transfer<'_>) {
    p.outcome.record(|| post(p.queue, Wqe::nop(), p.limit_us));
}

/// What fills a queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Fill<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// What is sent each time.
    pub local: Local,
    /// Takes the number of sends.
    pub sent: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Sends `local` again and again, without waiting, until the queue has no room; at most 65,536 times.
#[kernel]
pub fn fill(p: Fill<'_>) {
    p.outcome.record(|| {
        let mut queue = p.queue.open::<Exclusive>()?;
        for count in 0..=1 << 16 {
            match queue.try_post(Wqe::send(p.local).signalled()) {
                Ok(_) => {
                    p.sent.store(0, count + 1);
                }
                Err(PostError::NoRoom) => return Ok(()),
                Err(other) => return Err(other.into()),
            }
        }
        Ok(())
    });
}
