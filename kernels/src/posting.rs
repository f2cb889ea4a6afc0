//! What posting and polling cost by themselves: on queues whose completions are written ahead, without a NIC.

use warpbell::trace::Buffer;
use warpbell::wqe::{
    CqeOpcode, CqeTail, Local, LocalKey, Opcode, QpNumber, Remote, RemoteKey, Wqe,
};
use warpbell::{
    Block, BlockShared, Deadline, Exclusive, GpuShared, Scope, SendQueue, SendQueueHandle, Sharing,
    Slice, Thread, Ticket, Traced, WaitError, Warp, Word64, WordExt, kernel, thread,
};

use crate::outcome::{Failure, Outcome};
use crate::place::Place;

/// When each thread of a grid began and ended. They begin together, as far as a block's barrier goes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    /// By the clock of the whole GPU, in nanoseconds, and not by the SM's cycles.
    pub global: bool,
    /// Takes when each thread began.
    pub begin: Slice<'a, Word64>,
    /// Takes when it ended.
    pub end: Slice<'a, Word64>,
}

impl Span<'_> {
    #[inline(always)]
    fn now(&self) -> u64 {
        match self.global {
            true => thread::clock_ns(),
            false => thread::cycles(),
        }
    }

    /// The block's threads begin.
    #[inline(always)]
    pub(crate) fn start(&self) -> u64 {
        thread::sync_threads();
        self.now()
    }

    /// The thread ends, which began then.
    #[inline(always)]
    pub(crate) fn stop(&self, began: u64) {
        let ended = self.now();
        let index = u64::from(thread::index());
        self.begin.store(index, began);
        self.end.store(index, ended);
    }
}

/// What is written, again and again, to addresses that follow each other.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// What is written.
    pub local: Local,
    /// Where the first write goes.
    pub remote: Remote,
}

impl Write {
    /// The same, kept in registers.
    #[inline(always)]
    pub(crate) fn kept(self) -> Self {
        let half = |word| thread::kept(u64::from(word)) as u32;
        Self {
            local: Local {
                address: thread::kept(self.local.address),
                length: half(self.local.length),
                key: LocalKey(half(self.local.key.0)),
            },
            remote: Remote {
                address: thread::kept(self.remote.address),
                key: RemoteKey(half(self.remote.key.0)),
            },
        }
    }

    /// The same, with the address that it goes to kept in a register.
    #[inline(always)]
    pub(crate) fn with_kept_target(self) -> Self {
        let address = thread::kept(self.remote.address);
        let remote = Remote {
            address,
            ..self.remote
        };
        Self { remote, ..self }
    }

    /// The request number `number`.
    #[inline(always)]
    pub(crate) fn wqe(&self, number: u32) -> Wqe<1> {
        let address = self.remote.address + 64 * u64::from(number);
        let remote = Remote {
            address,
            ..self.remote
        };
        Wqe::write(self.local, remote)
    }
}

/// Completions that are written ahead, a stretch at a time, by who posts: so that the credit check has to look at the
/// CQE again and again, as beside a NIC.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Ahead<'a> {
    /// The last word of each queue's CQE.
    pub completions: Slice<'a, Place>,
    /// Base-2 logarithm of the doorbells of a stretch.
    pub stretch_log2: u32,
    /// WQEs of a stretch in a queue; 0 if nothing is written.
    pub blocks: u32,
    /// The WQE behind which the first stretch begins.
    pub newest: u16,
    /// Number of the queue pairs.
    pub qpn: u32,
}

impl Ahead<'_> {
    /// Where the stretch ends that begins with doorbell number `number`.
    #[inline(always)]
    fn end(&self, number: u32) -> u32 {
        number + (1 << self.stretch_log2)
    }

    /// Doorbell number `number` of a queue is about to be rung, the first of a stretch: all of it has room.
    #[inline(always)]
    fn write(&self, queue: u32, number: u32, leads: bool) {
        if leads
            && self.blocks != 0
            && let Some(completion) = self.completions.get(queue.into())
        {
            let blocks = ((number >> self.stretch_log2) + 1) * self.blocks;
            let newest = self.newest.wrapping_add(blocks as u16);
            let qpn = QpNumber::from_low_bits(self.qpn);
            let opcode = CqeOpcode::REQUESTER;
            let tail = CqeTail::new(opcode, false, Opcode::RDMA_WRITE, qpn, newest);
            completion.store(0, tail.0);
        }
    }
}

/// Writes that are posted and not waited for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Posting<'a> {
    /// The queues.
    pub queues: Slice<'a, SendQueueHandle<'a>>,
    /// How many threads in a row use one queue.
    pub threads_per_queue: u32,
    /// Doorbells of each thread, or of each group of threads that posts together. A queue's ring holds the WQEs of all.
    pub posts: u32,
    /// WQEs that a thread posts under one doorbell.
    pub batch: u32,
    /// What completes meanwhile.
    pub ahead: Ahead<'a>,
    /// What is written.
    pub write: Write,
    /// Microseconds that a post may wait for room.
    pub limit_us: u64,
    /// How long it takes.
    pub span: Span<'a>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl<'a> Posting<'a> {
    /// The number of the thread's queue.
    #[inline(always)]
    fn index(&self) -> u32 {
        thread::index() / self.threads_per_queue.max(1)
    }

    /// Posts by `ring`, a doorbell each time: a stretch of them in a loop that does nothing else, and what completes
    /// meanwhile is written before each stretch.
    #[inline(always)]
    fn run<S: Sharing, C: Scope>(
        &self,
        ring: impl Fn(&mut SendQueue<'a, S, C>, &Write, u32, Deadline) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.run_opened(|_| {}, ring)
    }

    /// The same, and each queue goes through `opened` first.
    #[inline(always)]
    fn run_opened<S: Sharing, C: Scope>(
        &self,
        opened: impl Fn(&mut SendQueue<'a, S, C>),
        ring: impl Fn(&mut SendQueue<'a, S, C>, &Write, u32, Deadline) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        // A group needs its registers for other things, and its lanes share the instructions.
        let write = match C::COLLECTIVE {
            true => self.write.with_kept_target(),
            false => self.write.kept(),
        };
        let index = self.index();
        let Some(queue) = self.queues.get(index.into()).copied() else {
            return Ok(());
        };
        let limit = Deadline::after_us(self.limit_us);
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { queue.open_together::<S, C>() }?;
        opened(&mut queue);
        let began = self.span.start();
        let mut number = 0;
        while number < self.posts {
            self.ahead.write(index, number, C::leads());
            let end = self.ahead.end(number).min(self.posts);
            while number < end {
                ring(&mut queue, &write, number, limit)?;
                number += 1;
            }
        }
        self.span.stop(began);
        Ok(())
    }

    /// One WQE of each thread under a doorbell.
    #[inline(always)]
    fn post<S: Sharing, C: Scope>(&self) -> Result<(), Failure> {
        self.run::<S, C>(|queue, write, number, limit| {
            let _ = queue.post(write.wqe(number), limit)?;
            Ok(())
        })
    }

    /// The same without a look at the credit.
    #[inline(always)]
    fn post_unchecked<S: Sharing, C: Scope>(&self) -> Result<(), Failure> {
        self.run::<S, C>(|queue, write, number, _| {
            // SAFETY: a ring holds all that is posted to it, by the promise of `posts`. There is no NIC that could read
            // an overwritten WQE, or write a CQE; and nobody waits.
            let _ = unsafe { queue.post_unchecked(write.wqe(number)) }?;
            Ok(())
        })
    }

    /// Several WQEs of one thread under a doorbell.
    #[inline(always)]
    fn post_batches<S: Sharing>(&self) -> Result<(), Failure> {
        self.run::<S, Thread>(|queue, write, post, limit| {
            let mut batch = queue.batch(self.batch, limit)?;
            for number in 0..self.batch {
                let _ = batch.post(write.wqe(post + number))?;
            }
            Ok(())
        })
    }

    /// A write, and a value behind it that tells of it, under a doorbell.
    #[inline(always)]
    fn post_signals<S: Sharing>(&self) -> Result<(), Failure> {
        self.run::<S, Thread>(|queue, write, number, limit| {
            let mut batch = queue.batch(2, limit)?;
            let _ = batch.post(write.wqe(number))?;
            let signal = Wqe::write_value(u64::from(number), write.remote);
            let _ = batch.post(signal)?;
            Ok(())
        })
    }

    /// A value of 8 bytes in each WQE.
    #[inline(always)]
    fn post_inline<S: Sharing>(&self) -> Result<(), Failure> {
        self.run::<S, Thread>(|queue, write, number, limit| {
            let wqe = Wqe::write_value(u64::from(number), write.remote);
            let _ = queue.post(wqe, limit)?;
            Ok(())
        })
    }
}

/// Writes that are posted with a trace, and not waited for.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TracedPosting<'a> {
    /// What is posted.
    pub posting: Posting<'a>,
    /// Takes the queues' events.
    pub trace: Buffer<'a>,
}

impl TracedPosting<'_> {
    /// One WQE of each thread under a doorbell.
    #[inline(always)]
    fn post<S: Sharing, C: Scope>(&self) -> Result<(), Failure> {
        self.posting.run_opened::<Traced<'_, S>, C>(
            |queue| queue.trace_into(self.trace),
            |queue, write, number, limit| {
                let _ = queue.post(write.wqe(number), limit)?;
                Ok(())
            },
        )
    }
}

/// A kernel for each way, which keeps what becomes of it.
macro_rules! kernels {
    ($places:ident: $($(#[doc = $words:literal])* $name:ident => $run:ident::<$($kind:ident),*>;)*) => {
        $(
            $(#[doc = $words])*
            ///
            /// # Safety
            #[doc = concat!("The places that [`", stringify!($places), "`] names are there, for as long as the kernel")]
            /// runs, as its fields say.
            #[kernel]
            pub unsafe fn $name(p: $places<'_>) {
                p.outcome.record(|| p.$run::<$($kind),*>());
            }
        )*
    };
}

kernels! {
    Posting:
    /// Each thread posts to a queue of its own.
    posting_exclusive_thread => post::<Exclusive, Thread>;
    /// Each warp posts to a queue of its own, 32 WQEs under a doorbell.
    posting_exclusive_warp => post::<Exclusive, Warp>;
    /// Each block posts to a queue of its own, a WQE of each thread under a doorbell.
    posting_exclusive_block => post::<Exclusive, Block>;
    /// The threads of a block share a queue, and post each for itself.
    posting_block_thread => post::<BlockShared, Thread>;
    /// The warps of a block share a queue, and post 32 WQEs under a doorbell.
    posting_block_warp => post::<BlockShared, Warp>;
    /// All threads share a queue, and post each for itself.
    posting_gpu_thread => post::<GpuShared, Thread>;
    /// All warps share a queue, and post 32 WQEs under a doorbell.
    posting_gpu_warp => post::<GpuShared, Warp>;
    /// Each thread posts batches to a queue of its own.
    posting_exclusive_batch => post_batches::<Exclusive>;
    /// Each thread posts values to a queue of its own.
    posting_exclusive_inline => post_inline::<Exclusive>;
    /// Each thread posts writes with a signal behind each to a queue of its own.
    posting_exclusive_signal => post_signals::<Exclusive>;
    /// All threads share a queue, and post values, each for itself.
    posting_gpu_inline => post_inline::<GpuShared>;
    /// All threads share a queue, and post writes with a signal behind each, each for itself.
    posting_gpu_signal => post_signals::<GpuShared>;
    /// Each thread posts to a queue of its own, without a look at the credit.
    posting_unchecked_thread => post_unchecked::<Exclusive, Thread>;
    /// Each block posts to a queue of its own, a WQE of each thread under a doorbell, without a look at the credit.
    posting_unchecked_block => post_unchecked::<Exclusive, Block>;
}

/// A kernel for each way that is traced.
macro_rules! traced_kernels {
    ($($(#[doc = $words:literal])* $name:ident => $sharing:ident, $scope:ident;)*) => {
        $(
            $(#[doc = $words])*
            ///
            /// # Safety
            /// As for [`posting_exclusive_thread`]; all threads run on the processor that the trace's memory belongs to.
            #[kernel]
            pub unsafe fn $name(p: TracedPosting<'_>) {
                p.posting.outcome.record(|| p.post::<$sharing, $scope>());
            }
        )*
    };
}

traced_kernels! {
    /// Each thread posts to a queue of its own, which is traced.
    posting_traced_thread => Exclusive, Thread;
    /// Each warp posts to a queue of its own, which is traced, 32 WQEs under a doorbell.
    posting_traced_warp => Exclusive, Warp;
    /// All threads share a queue, which is traced, and post each for itself.
    posting_traced_gpu_thread => GpuShared, Thread;
}

/// Polls of one thread.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Polling<'a> {
    /// The queue.
    pub queue: SendQueueHandle<'a>,
    /// The last word of its first CQE. The kernel writes CQEs as a NIC does: all are valid for as long as it runs.
    pub completion: *const Word64,
    /// Base-2 logarithm of its CQEs; 0 if they are collapsed.
    pub completions_log2: u32,
    /// Its number.
    pub qpn: u32,
    /// How many polls.
    pub polls: u32,
    /// Whether data is to be read that a completion told of.
    pub inbound: bool,
    /// What is written.
    pub write: Write,
    /// Microseconds that a wait may take.
    pub limit_us: u64,
    /// Takes the cycles of all.
    pub cycles: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

// SAFETY: it only names a place beside what is shared anyway.
unsafe impl Send for Polling<'_> {}
// SAFETY: as above.
unsafe impl Sync for Polling<'_> {}

impl Polling<'_> {
    /// The last word of the CQE of the WQE number `number`.
    #[inline(always)]
    fn completion(&self, number: u32) -> &Word64 {
        let entry = number & ((1 << self.completions_log2) - 1);
        // SAFETY: the host promises so many CQEs, which lie 64 bytes apart.
        unsafe { &*self.completion.add(8 * entry as usize) }
    }

    /// Writes the CQE of the WQE number `number`, and lets all see it.
    #[inline(always)]
    fn complete(&self, number: u32) -> u64 {
        let qpn = QpNumber::from_low_bits(self.qpn);
        let (opcode, index) = (CqeOpcode::REQUESTER, number as u16);
        let owner = number >> self.completions_log2 & 1 == 1;
        let tail = CqeTail::new(opcode, owner, Opcode::RDMA_WRITE, qpn, index);
        self.completion(number).store_relaxed(tail.0);
        // The CQE, and all before it, before the poll that is timed: nothing is left to wait for.
        thread::system_fence();
        tail.0
    }

    /// Each poll finds a CQE that was not there before.
    #[inline(always)]
    fn ready<S: Sharing>(&self) -> Result<(), Failure> {
        // A loop of its own for each kind of wait: no branch between is timed.
        match self.inbound {
            true => self.wait_each::<S>(|queue, ticket, limit| queue.wait(ticket, limit)),
            false => self.wait_each::<S>(|queue, ticket, limit| queue.wait_outbound(ticket, limit)),
        }
    }

    #[inline(always)]
    fn wait_each<S: Sharing>(
        &self,
        wait: impl Fn(&mut SendQueue<'_, S, Thread>, Ticket, Deadline) -> Result<(), WaitError>,
    ) -> Result<(), Failure> {
        let limit = Deadline::after_us(self.limit_us);
        let mut queue = self.queue.kept().open::<S>()?;
        let mut cycles = 0;
        for number in 0..self.polls {
            let wqe = self.write.wqe(number).signalled();
            let ticket = queue.post(wqe, limit)?;
            self.complete(number);
            let began = thread::cycles();
            wait(&mut queue, ticket, limit)?;
            cycles += thread::cycles() - began;
        }
        self.cycles.store(0, cycles);
        Ok(())
    }

    /// No poll finds anything.
    #[inline(always)]
    fn empty<S: Sharing>(&self) -> Result<(), Failure> {
        let limit = Deadline::after_us(self.limit_us);
        let mut queue = self.queue.kept().open::<S>()?;
        let ticket = queue.post(self.write.wqe(0).signalled(), limit)?;
        let mut done = 0;
        let began = thread::cycles();
        for _ in 0..self.polls {
            done += u64::from(queue.is_done(ticket).unwrap_or(true));
        }
        self.cycles.store(0, thread::cycles() - began);
        self.cycles.store(1, done);
        Ok(())
    }
}

kernels! {
    Polling:
    /// An exclusive queue's polls that find a CQE.
    polling_ready_exclusive => ready::<Exclusive>;
    /// Polls of a queue that the GPU shares, which find a CQE.
    polling_ready_gpu => ready::<GpuShared>;
    /// An exclusive queue's polls that find nothing.
    polling_empty_exclusive => empty::<Exclusive>;
    /// Polls of a queue that the GPU shares, which find nothing.
    polling_empty_gpu => empty::<GpuShared>;
}

/// The floor of a poll: loads of a word that has just been stored, each of which is waited for.
///
/// # Safety
/// The places that [`Polling`] names are there, for as long as the kernel runs, as its fields say.
#[kernel]
pub unsafe fn polling_bare(p: Polling<'_>) {
    let mut cycles = 0;
    for number in 0..p.polls {
        let expected = p.complete(number);
        let word = p.completion(number);
        let began = thread::cycles();
        // The branch makes the clock wait for the load.
        while word.load_relaxed() != expected {}
        cycles += thread::cycles() - began;
    }
    p.cycles.store(0, cycles);
}

/// How many cycles an SM has in a stretch of the GPU's clock.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ClockRate<'a> {
    /// How long, in nanoseconds.
    pub nanoseconds: u64,
    /// Takes the cycles, then the nanoseconds that it was.
    pub found: Slice<'a, Word64>,
}

/// Measures the rate of the SM's clock.
#[kernel]
pub fn posting_clock_rate(p: ClockRate<'_>) {
    let (began, cycles) = (thread::clock_ns(), thread::cycles());
    let mut now = began;
    while now - began < p.nanoseconds {
        now = thread::clock_ns();
    }
    p.found.store(0, thread::cycles() - cycles);
    p.found.store(1, now - began);
}
