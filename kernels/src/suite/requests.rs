//! A kernel that posts a list of work requests and says how each ended.

use warpbell::wqe::{BuildError, Immediate, Local, LocalKey, Masked, Remote, RemoteKey, Wqe};
use warpbell::{
    Deadline, PostError, Scope, SendQueue, SendQueueHandle, Sharing, Slice, Ticket, kernel, thread,
};

use super::arguments::{Kernel, Output};
use super::ending::{Ending, EndingWords};
use super::mode::{DoorbellKind, Mode, by_mode};
use crate::outcome::Failure;

/// Local pieces of a request at most.
pub const MAX_PIECES: usize = 3;
/// Inline bytes of a request at most: what two blocks hold beside a remote address.
pub const MAX_INLINE: usize = Wqe::<2>::MAX_RDMA_INLINE;
/// Requests of a thread at most that are waited for [`Waiting::AfterAll`].
pub const MAX_TICKETS: usize = 64;

/// What a [`Request`] asks for. The values of an atomic are in [`Request::values`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// RDMA write of one piece.
    Write,
    /// RDMA write of several pieces.
    WriteGather,
    /// RDMA write with immediate.
    WriteImmediate,
    /// Immediate data alone.
    WriteImmediateOnly,
    /// RDMA write of `values[0]`, inline.
    WriteValue,
    /// RDMA write of the inline bytes.
    WriteInline,
    /// RDMA read into one piece.
    Read,
    /// RDMA read into several pieces.
    ReadScatter,
    /// Send of one piece.
    Send,
    /// Send of several pieces.
    SendGather,
    /// Send with immediate.
    SendImmediate,
    /// Send of the inline bytes.
    SendInline,
    /// Send with invalidate of the key in `immediate`.
    SendInvalidate,
    /// Send of nothing.
    SendEmpty,
    /// Adds `values[0]`.
    FetchAdd,
    /// Compares with `values[0]`, swaps in `values[1]`.
    CompareSwap,
    /// 4 bytes: adds `values[0]`, with field boundaries `values[1]`.
    MaskedFetchAdd4,
    /// 8 bytes: adds `values[0]`, with field boundaries `values[1]`.
    MaskedFetchAdd8,
    /// 4 bytes: compare, swap, and the mask of each.
    MaskedCompareSwap4,
    /// 8 bytes: compare, swap, and the mask of each.
    MaskedCompareSwap8,
    /// Nothing.
    Nop,
}

impl Verb {
    /// All of them.
    pub const ALL: [Self; 21] = [
        Self::Write,
        Self::WriteGather,
        Self::WriteImmediate,
        Self::WriteImmediateOnly,
        Self::WriteValue,
        Self::WriteInline,
        Self::Read,
        Self::ReadScatter,
        Self::Send,
        Self::SendGather,
        Self::SendImmediate,
        Self::SendInline,
        Self::SendInvalidate,
        Self::SendEmpty,
        Self::FetchAdd,
        Self::CompareSwap,
        Self::MaskedFetchAdd4,
        Self::MaskedFetchAdd8,
        Self::MaskedCompareSwap4,
        Self::MaskedCompareSwap8,
        Self::Nop,
    ];
}

/// One work request, in plain data.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// What to do.
    pub verb: Verb,
    /// Whether the thread has a request here; if not, it takes part without one.
    pub present: bool,
    /// Whether it asks for a completion.
    pub signalled: bool,
    /// How many of `pieces` count.
    pub piece_count: u8,
    /// Immediate data, or the key to invalidate.
    pub immediate: u32,
    /// Local memory.
    pub pieces: [Local; MAX_PIECES],
    /// Remote memory.
    pub remote: Remote,
    /// How many of `inline` count.
    pub inline_length: u32,
    /// What an atomic works with.
    pub values: [u64; 4],
    /// Data that travel in the request itself.
    pub inline: [u8; MAX_INLINE],
}

impl Request {
    /// A signalled request without memory or values.
    pub const fn new(verb: Verb) -> Self {
        const NONE: Local = Local {
            address: 0,
            length: 0,
            key: LocalKey(0),
        };
        Self {
            verb,
            present: true,
            signalled: true,
            piece_count: 0,
            immediate: 0,
            pieces: [NONE; MAX_PIECES],
            remote: Remote {
                address: 0,
                key: RemoteKey(0),
            },
            inline_length: 0,
            values: [0; 4],
            inline: [0; MAX_INLINE],
        }
    }

    /// With this local memory; pieces over [`MAX_PIECES`] are left out.
    pub fn local(mut self, pieces: &[Local]) -> Self {
        let count = pieces.len().min(MAX_PIECES);
        for (slot, piece) in self.pieces.iter_mut().zip(pieces) {
            *slot = *piece;
        }
        self.piece_count = count as u8;
        self
    }

    /// With this remote memory.
    pub const fn remote(mut self, remote: Remote) -> Self {
        self.remote = remote;
        self
    }

    /// With these values.
    pub const fn values(mut self, values: [u64; 4]) -> Self {
        self.values = values;
        self
    }

    /// With this immediate data, or key to invalidate.
    pub const fn immediate(mut self, immediate: u32) -> Self {
        self.immediate = immediate;
        self
    }

    /// With these bytes inline; bytes over [`MAX_INLINE`] are left out.
    pub fn inline(mut self, bytes: &[u8]) -> Self {
        let count = bytes.len().min(MAX_INLINE);
        self.inline[..count].copy_from_slice(&bytes[..count]);
        self.inline_length = count as u32;
        self
    }

    /// Without a completion.
    pub const fn unsignalled(mut self) -> Self {
        self.signalled = false;
        self
    }

    /// As one that the thread does not have: it only takes part.
    pub const fn absent(mut self) -> Self {
        self.present = false;
        self
    }
}

/// When a thread waits for what it posted.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// After each request.
    Each,
    /// For each request in turn, once all (at most [`MAX_TICKETS`]) are posted.
    AfterAll,
    /// For the last one, which must be there.
    Last,
    /// Not at all.
    Never,
}

/// Posts a list of requests for each thread of the grid, and says how each ended.
///
/// Thread number t has the entries from t · rows on. Threads of one scope have the same verb in the same row,
/// and wait alike; a thread whose own request is refused must not wait for it while others do.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Requests<'a> {
    /// Where to post.
    pub queue: SendQueueHandle<'a>,
    /// How to open it.
    pub mode: Mode,
    /// When to ring.
    pub doorbell: DoorbellKind,
    /// When to wait.
    pub waiting: Waiting,
    /// Requests of each thread.
    pub rows: u32,
    /// How long each post and each wait may take, in nanoseconds; 0 asks once, with
    /// [`SendQueue::try_post`] where nobody is absent.
    pub patience_ns: u64,
    /// The requests, `rows` for each thread.
    pub requests: Slice<'a, Request>,
    /// How each ended, in the same places.
    pub endings: Output<'a, EndingWords>,
}

impl Kernel for Requests<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_requests::ENTRY;

    fn run(&self) {
        by_mode!(self.mode, run(self));
    }
}

/// Runs [`Requests`].
#[kernel]
pub fn suite_requests(kernel: Requests<'_>) {
    kernel.run();
}

fn run<S: Sharing, C: Scope>(kernel: &Requests<'_>) {
    // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
    let mut queue = match unsafe { kernel.queue.open_together::<S, C>() } {
        Ok(queue) => queue,
        Err(error) => {
            for row in 0..kernel.rows {
                kernel.note(row, Ending::Failed(error.into()));
            }
            return;
        }
    };
    let mut tickets = [None; MAX_TICKETS];
    for row in 0..kernel.rows {
        let Some(request) = kernel.requests.get(kernel.place(row)) else {
            return;
        };
        let waits = match kernel.waiting {
            Waiting::Each => true,
            Waiting::Last => row + 1 == kernel.rows,
            Waiting::AfterAll | Waiting::Never => false,
        };
        match kernel.post(&mut queue, request) {
            Ok(ticket) if waits => {
                kernel.note(row, queue.wait(ticket, kernel.patience()).into());
            }
            Ok(ticket) => {
                if let Some(slot) = tickets.get_mut(row as usize) {
                    *slot = Some(ticket);
                }
                kernel.note(row, Ending::Done);
            }
            Err(failure) => kernel.note(row, Ending::Failed(failure)),
        }
    }
    if kernel.waiting == Waiting::AfterAll {
        for (row, ticket) in (0..kernel.rows).zip(tickets) {
            if let Some(ticket) = ticket {
                kernel.note(row, queue.wait(ticket, kernel.patience()).into());
            }
        }
    }
}

impl Requests<'_> {
    fn patience(&self) -> Deadline {
        Deadline::after_ns(self.patience_ns)
    }

    /// Where row `row` of this thread lies.
    fn place(&self, row: u32) -> u64 {
        u64::from(thread::index()) * u64::from(self.rows) + u64::from(row)
    }

    fn note(&self, row: u32, ending: Ending) {
        // SAFETY: each thread has places of its own.
        unsafe { self.endings.write(self.place(row), ending.into()) };
    }

    /// Builds a request and posts it.
    fn post<S: Sharing, C: Scope>(
        &self,
        queue: &mut SendQueue<'_, S, C>,
        request: &Request,
    ) -> Result<Ticket, Failure> {
        match build(request) {
            Built::One(wqe) => self.submit(queue, request, Ok(wqe)),
            Built::Two(built) => self.submit(queue, request, built),
        }
    }

    /// Posts what was built, by itself or in a batch, as is asked for.
    fn submit<S: Sharing, C: Scope, const B: usize>(
        &self,
        queue: &mut SendQueue<'_, S, C>,
        request: &Request,
        built: Result<Wqe<B>, BuildError>,
    ) -> Result<Ticket, Failure> {
        let refusal = built.as_ref().err().copied();
        let wqe = built.ok().filter(|_| request.present).map(|wqe| {
            if request.signalled {
                wqe.signalled()
            } else {
                wqe
            }
        });
        let posted = match wqe {
            _ if self.doorbell == DoorbellKind::Batch => self.submit_batch::<S, C, B>(queue, wqe),
            Some(wqe) if self.patience_ns == 0 => queue.try_post(wqe),
            _ => queue.post_if(wqe, self.patience()),
        };
        match refusal {
            Some(error) => Err(error.into()),
            None => Ok(posted?),
        }
    }

    fn submit_batch<S: Sharing, C: Scope, const B: usize>(
        &self,
        queue: &mut SendQueue<'_, S, C>,
        wqe: Option<Wqe<B>>,
    ) -> Result<Ticket, PostError> {
        let (_, threads) = C::rank_and_count(true);
        let mut batch = queue.batch(threads * B as u32, self.patience())?;
        batch.post_if(wqe)
    }
}

/// What a request's verb builds: always the same kind for the same verb.
enum Built {
    One(Wqe<1>),
    Two(Result<Wqe<2>, BuildError>),
}

/// Builds a request. One copy serves all modes.
#[inline(never)]
fn build(request: &Request) -> Built {
    let pieces = &request.pieces;
    let list = pieces.get(..request.piece_count.into()).unwrap_or(pieces);
    let [local, ..] = *pieces;
    let remote = request.remote;
    let immediate = Immediate(request.immediate);
    let inline = request.inline.get(..request.inline_length as usize);
    let inline = inline.unwrap_or(&request.inline);
    let [a, b, c, d] = request.values;
    match request.verb {
        Verb::Write => Built::One(Wqe::write(local, remote)),
        Verb::WriteGather => Built::Two(Wqe::write_gather(list, remote)),
        Verb::WriteImmediate => Built::One(Wqe::write_immediate(local, remote, immediate)),
        Verb::WriteImmediateOnly => Built::One(Wqe::write_immediate_only(remote, immediate)),
        Verb::WriteValue => Built::One(Wqe::write_value(a, remote)),
        Verb::WriteInline => Built::Two(Wqe::write_inline(inline, remote)),
        Verb::Read => Built::One(Wqe::read(local, remote)),
        Verb::ReadScatter => Built::Two(Wqe::read_scatter(list, remote)),
        Verb::Send => Built::One(Wqe::send(local)),
        Verb::SendGather => Built::Two(Wqe::send_gather(list)),
        Verb::SendImmediate => Built::One(Wqe::send_immediate(local, immediate)),
        Verb::SendInline => Built::Two(Wqe::send_inline(inline)),
        Verb::SendInvalidate => {
            Built::One(Wqe::send_invalidate(local, RemoteKey(request.immediate)))
        }
        Verb::SendEmpty => Built::One(Wqe::send_empty()),
        Verb::FetchAdd => Built::One(Wqe::fetch_add(local, remote, a)),
        Verb::CompareSwap => Built::One(Wqe::compare_swap(local, remote, a, b)),
        Verb::MaskedFetchAdd4 => {
            Built::One(Wqe::masked_fetch_add_u32(local, remote, a as u32, b as u32))
        }
        Verb::MaskedFetchAdd8 => Built::One(Wqe::masked_fetch_add_u64(local, remote, a, b)),
        Verb::MaskedCompareSwap4 => {
            let masked = |value, mask| Masked {
                value: value as u32,
                mask: mask as u32,
            };
            let (compare, swap) = (masked(a, c), masked(b, d));
            Built::One(Wqe::masked_compare_swap_u32(local, remote, compare, swap))
        }
        Verb::MaskedCompareSwap8 => {
            let masked = |value, mask| Masked { value, mask };
            let (compare, swap) = (masked(a, c), masked(b, d));
            Built::Two(Ok(Wqe::masked_compare_swap_u64(
                local, remote, compare, swap,
            )))
        }
        Verb::Nop => Built::One(Wqe::nop()),
    }
}
