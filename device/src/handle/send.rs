//! The handle of a send queue.

use core::marker::PhantomData;

use mlx5_wqe::CqeTail;
use warpbell_gpu::arch::{Reach, RingBlock, Word32, Word64};

use super::{
    CompletionKind, CompletionParts, CompletionSlot, Completions, DoorbellPage, FenceReach, Header,
    SendDoorbell,
};
use crate::error::OpenError;
use crate::processor::Processor;
use crate::queue::completion;
use crate::queue::{Scope, SendQueue, Sharing, Thread};
use crate::state::QueueState;
use crate::thread;

/// "WBSQ", as it reads in memory on a little-endian machine.
const SEND_MAGIC: u32 = u32::from_le_bytes(*b"WBSQ");

/// Where a send queue lies.
#[derive(Clone, Copy, Debug)]
pub struct SendParts {
    /// Ring of `1 << depth_log2` basic blocks of 64 bytes.
    pub ring: *mut RingBlock,
    /// Word 1 of the queue pair's doorbell record (the send queue's). Never touched without a record.
    pub record: *const Word32,
    /// The doorbell register of the UAR page (offset 0x800, or 0x600 without a record).
    pub doorbell: *const Word64,
    /// The completion queue that belongs to this send queue alone, or the entry that a
    /// [`CompletionQueue`](crate::CompletionQueue) fills, of kind `Collapsed`.
    pub completions: CompletionParts,
    /// The queue's device-side state, cleared.
    pub state: *const QueueState,
    /// Number of the queue pair.
    pub qpn: u32,
    /// Longest message in bytes that the card takes.
    pub max_message: u32,
    /// Base-2 logarithm of the number of basic blocks.
    pub depth_log2: u8,
    /// How far the queue's fences reach.
    pub reach: FenceReach,
    /// Where the NIC takes the producer index from.
    pub send_doorbell: SendDoorbell,
    /// What kind of memory has the doorbell register.
    pub doorbell_page: DoorbellPage,
}

/// What a kernel needs to know of one send queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SendQueueHandle<'a> {
    header: Header,
    pub(crate) qpn: u32,
    pub(crate) max_message: u32,
    pub(crate) ring: *mut RingBlock,
    pub(crate) record: *const Word32,
    pub(crate) doorbell: *const Word64,
    pub(crate) state: *const QueueState,
    pub(crate) completions: Completions,
    pub(crate) depth_log2: u8,
    reach: u8,
    send_doorbell: u8,
    pub(crate) doorbell_page: u8,
    pub(crate) processor: Processor,
    _lifetime: PhantomData<&'a QueueState>,
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<SendQueueHandle>() == 80);
    assert!(core::mem::offset_of!(SendQueueHandle, qpn) == 8);
    assert!(core::mem::offset_of!(SendQueueHandle, max_message) == 12);
    assert!(core::mem::offset_of!(SendQueueHandle, ring) == 16);
    assert!(core::mem::offset_of!(SendQueueHandle, record) == 24);
    assert!(core::mem::offset_of!(SendQueueHandle, doorbell) == 32);
    assert!(core::mem::offset_of!(SendQueueHandle, state) == 40);
    assert!(core::mem::offset_of!(SendQueueHandle, completions) == 48);
    assert!(core::mem::offset_of!(SendQueueHandle, depth_log2) == 72);
    assert!(core::mem::offset_of!(SendQueueHandle, reach) == 73);
    assert!(core::mem::offset_of!(SendQueueHandle, send_doorbell) == 74);
    assert!(core::mem::offset_of!(SendQueueHandle, doorbell_page) == 75);
    assert!(core::mem::offset_of!(SendQueueHandle, processor) == 76);
};

// SAFETY: a handle is a set of addresses whose memory every thread of a grid
// may use (the promise of `new`); what is behind them is only touched through
// atomic words, or through ring slots that the queue's protocol hands to one
// thread at a time.
unsafe impl Send for SendQueueHandle<'_> {}
// SAFETY: as for `Send`; the handle itself is never written.
unsafe impl Sync for SendQueueHandle<'_> {}

impl<'a> SendQueueHandle<'a> {
    /// Makes the handle of a send queue.
    ///
    /// # Safety
    /// For the lifetime `'a`, every pointer of `parts` is valid for the sizes
    /// that `parts` gives, aligned to its type, and reachable by every thread
    /// that gets the handle; nothing but `warpbell` and the NIC writes there; threads of several processors (two GPUs, a GPU
    /// and the CPU) never open the queue at the same time, which [`on`](Self::on) has `open` check; `depth_log2` is at most 15; the completion queue serves this queue alone
    /// and, if it is ordinary, has at least as many entries as the ring has blocks; the NIC takes the producer index
    /// from where `send_doorbell` says; the doorbell's page is of the kind `doorbell_page`, where a CPU rings. With [`FenceReach::Gpu`], the NIC is a kernel of the GPU whose
    /// threads open the queue; all that `parts` points to, and all memory that
    /// requests name, lies in that GPU's memory; and what the NIC wrote there is
    /// read by threads of that GPU only, or by whom one of them told after its
    /// own `wait` or `receive`, with system scope or by its kernel's end.
    pub const unsafe fn new(parts: SendParts) -> Self {
        Self {
            header: Header::of::<Self>(SEND_MAGIC),
            qpn: parts.qpn,
            max_message: parts.max_message,
            ring: parts.ring,
            record: parts.record,
            doorbell: parts.doorbell,
            state: parts.state,
            completions: Completions::new(parts.completions),
            depth_log2: parts.depth_log2,
            reach: parts.reach as u8,
            send_doorbell: parts.send_doorbell as u8,
            doorbell_page: parts.doorbell_page as u8,
            processor: Processor::UNKNOWN,
            _lifetime: PhantomData,
        }
    }

    /// The handle for kernels of one processor: elsewhere `open` refuses it.
    ///
    /// # Safety
    /// No thread of another processor opens the queue through another handle at the same time.
    pub const unsafe fn on(self, processor: Processor) -> Self {
        Self { processor, ..self }
    }

    /// No queue, where a table of handles has none: `open` refuses it as no handle.
    pub const fn none() -> Self {
        Self {
            header: Header {
                magic: 0,
                version: 0,
                size: 0,
            },
            qpn: 0,
            max_message: 0,
            ring: core::ptr::null_mut(),
            record: core::ptr::null(),
            doorbell: core::ptr::null(),
            state: core::ptr::null(),
            completions: Completions::new(CompletionParts {
                ring: core::ptr::null(),
                record: core::ptr::null(),
                depth_log2: 0,
                kind: CompletionKind::Collapsed,
            }),
            depth_log2: 0,
            reach: FenceReach::System as u8,
            send_doorbell: SendDoorbell::WithRecord as u8,
            doorbell_page: DoorbellPage::Memory as u8,
            processor: Processor::UNKNOWN,
            _lifetime: PhantomData,
        }
    }

    /// The handle in words, in the order of its bytes on a little-endian machine: for a table in memory that a host writes
    /// and does not reach.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn to_words(&self) -> [u64; 10] {
        let halves = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
        let Header {
            magic,
            version,
            size,
        } = self.header;
        let kinds = [
            self.depth_log2,
            self.reach,
            self.send_doorbell,
            self.doorbell_page,
        ];
        let [ring, record, completions] = self.completions.to_words();
        [
            halves(magic, u32::from(size) << 16 | u32::from(version)),
            halves(self.qpn, self.max_message),
            self.ring.expose_provenance() as u64,
            self.record.expose_provenance() as u64,
            self.doorbell.expose_provenance() as u64,
            self.state.expose_provenance() as u64,
            ring,
            record,
            completions,
            halves(u32::from_le_bytes(kinds), self.processor.number()),
        ]
    }

    /// Checks magic, version, size, the reach of fences, and where the producer index goes.
    #[inline(always)]
    pub fn check(&self) -> Result<(), OpenError> {
        self.header.check::<Self>(SEND_MAGIC)?;
        FenceReach::check(self.reach)?;
        SendDoorbell::check(self.send_doorbell)?;
        // A GPU never looks at it.
        match cfg!(target_arch = "nvptx64") {
            true => Ok(()),
            false => DoorbellPage::check(self.doorbell_page),
        }
    }

    /// Where the queue lies: what [`new`](Self::new) got. A number that `check` refuses reads as the default of its kind.
    #[inline(always)]
    pub const fn parts(&self) -> SendParts {
        SendParts {
            ring: self.ring,
            record: self.record,
            doorbell: self.doorbell,
            completions: self.completions.parts(),
            state: self.state,
            qpn: self.qpn,
            max_message: self.max_message,
            depth_log2: self.depth_log2,
            reach: match self.reach() {
                Reach::Gpu => FenceReach::Gpu,
                _ => FenceReach::System,
            },
            send_doorbell: match self.has_record() {
                true => SendDoorbell::WithRecord,
                false => SendDoorbell::WithoutRecord,
            },
            doorbell_page: DoorbellPage::of(self.doorbell_page),
        }
    }

    /// Completion number `number` of the queue, once the NIC has written it: its entry, and its tail. The read orders
    /// nothing: whoever reads what the completion vouches for needs an acquire fence in between.
    ///
    /// For code that takes a queue's completions without a view of it, such as a proxy.
    ///
    /// # Safety
    /// [`check`](Self::check) has accepted the handle.
    #[inline(always)]
    pub unsafe fn completion(&self, number: u32) -> Option<(&'a CompletionSlot, CqeTail)> {
        let tail = completion::tail(&self.completions, number);
        completion::is_new(&self.completions, tail, number)
            .then(|| (completion::slot(&self.completions, number), tail))
    }

    /// The entry that completion number `number` goes to, for whoever plays the NIC.
    ///
    /// # Safety
    /// As for [`completion`](Self::completion).
    #[inline(always)]
    pub unsafe fn completion_slot(&self, number: u32) -> &'a CompletionSlot {
        completion::slot(&self.completions, number)
    }

    /// Whether the NIC reads a doorbell record.
    #[inline(always)]
    pub const fn has_record(&self) -> bool {
        self.send_doorbell == SendDoorbell::WithRecord as u8
    }

    /// How far what the NIC must see in order, or shows in order, is ordered.
    #[inline(always)]
    pub const fn reach(&self) -> Reach {
        FenceReach::of(self.reach)
    }

    /// The handle, with the completions' address [kept](crate::thread::kept) in a register, so that no poll of a handle
    /// among a kernel's parameters loads it first.
    #[inline(always)]
    pub fn kept(mut self) -> Self {
        let ring = &mut self.completions.ring;
        *ring = ring.map_addr(|address| thread::kept(address as u64) as usize);
        self
    }

    /// Opens the queue for this thread, with sharing `S`.
    ///
    /// # Errors
    /// A handle of another version, for another processor, or with a reach or a kind of doorbell that this one does not know;
    /// a queue that somebody else has open, unless
    /// both share it alike (the GPU, or the same block); a queue that has failed
    /// and was not reset since.
    #[inline(always)]
    pub fn open<S: Sharing>(self) -> Result<SendQueue<'a, S, Thread>, OpenError> {
        // SAFETY: a thread makes its calls together with itself.
        unsafe { self.open_together() }
    }

    /// Opens the queue for all threads of a scope `C` (a warp or a block) together, with sharing `S`.
    ///
    /// # Safety
    /// All threads of the scope call this together with the same handle. From then on they make every call on the
    /// queue together, the drop included: one call on this queue, in the same place of the program, by each of them.
    /// No call checks that, because a warp's vote on it takes longer than what the vote would protect
    /// (`docs/memory-model.md`). If some threads stay away or call on another queue, the leader
    /// publishes slots that nobody filled.
    ///
    /// # Errors
    /// As [`open`](Self::open); on a CPU [`OpenError::Apart`] if the threads bring different queues. All threads get the
    /// same answer.
    #[inline(always)]
    pub unsafe fn open_together<S: Sharing, C: Scope>(
        self,
    ) -> Result<SendQueue<'a, S, C>, OpenError> {
        self.check()?;
        SendQueue::open(self)
    }
}
