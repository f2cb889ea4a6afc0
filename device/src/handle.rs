//! What a kernel receives: the addresses and sizes of one queue.
//!
//! The host makes a handle once the queue is ready, and passes it to the
//! kernel by value. It is the ABI between the two: `repr(C)`, 64-bit addresses,
//! with a magic number, a version and its own size in front. `open` checks
//! these and the reach once. `docs/abi.md` lists every field.

use core::marker::PhantomData;

use mlx5_wqe::CqeTail;
use warpbell_gpu::arch::{Reach, RingBlock, RingSegment, Word32, Word64};

use crate::error::OpenError;
use crate::processor::Processor;
use crate::queue::completion;
use crate::queue::{CompletionMember, ReceiveQueue, Scope, SendQueue, Sharing, Thread};
use crate::state::{CompletionQueueState, QueueState};
use crate::thread;
use crate::words::store_relaxed64;

/// Version of the handles' layouts, of all that they lead to but the NIC's own, and of [`QueueState`]'s: all change
/// together.
pub const ABI_VERSION: u16 = 6;

/// Largest depth of a ring: the NIC counts blocks modulo 2^16, and a poller
/// can only tell old from new within half of that.
pub const MAX_DEPTH: u32 = 32_768;

/// One 64-byte slot of a completion ring, as eight words that the NIC writes.
#[repr(C, align(64))]
pub struct CompletionSlot {
    pub(crate) words: [Word64; 8],
}

impl CompletionSlot {
    /// A slot that the NIC has not written yet: `op_own = 0xf0`, the rest 0. The host makes it: a slot on a GPU thread's
    /// stack would have no global address.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn invalid() -> Self {
        let slot = Self {
            words: core::array::from_fn(|_| Word64::new(0)),
        };
        slot.invalidate();
        slot
    }

    /// Makes the slot as good as new, while no queue uses it.
    pub fn invalidate(&self) {
        store_relaxed64(&self.words[7], u64::from_be(0xf0), Reach::System);
    }

    /// The slot's words in memory order, for whoever plays the NIC.
    pub const fn words(&self) -> &[Word64; 8] {
        &self.words
    }
}

/// How completions reach the kernel.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// Every CQE overwrites entry 0 (`cc = 1`); its WQE counter says how far
    /// the queue has come. One load a poll. Send queues only.
    Collapsed = 0,
    /// A ring of CQEs with owner parity and a consumer index that the NIC reads.
    Ordinary = 1,
}

/// How far the fences of a queue reach: as far away as its NIC is.
///
/// It is a fact about the NIC and about where the queue lies, which the host knows.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FenceReach {
    /// To all who share the memory: a card, a CPU, other GPUs. Right for every NIC.
    #[default]
    System = 0,
    /// To the threads of the GPU that the queue's users run on, because the NIC
    /// is a kernel there. It makes a fence about twice as quick.
    Gpu = 1,
}

impl FenceReach {
    /// The reach of a fence that orders what the NIC brings.
    #[inline(always)]
    pub const fn reach(self) -> Reach {
        Self::of(self as u8)
    }

    /// Refuses a handle's number that is none of these.
    #[inline(always)]
    const fn check(number: u8) -> Result<(), OpenError> {
        if number > Self::Gpu as u8 {
            return Err(OpenError::Reach { found: number });
        }
        Ok(())
    }

    /// The reach of a number that was checked.
    #[inline(always)]
    const fn of(number: u8) -> Reach {
        if number == Self::Gpu as u8 {
            Reach::Gpu
        } else {
            Reach::System
        }
    }
}

/// Where the NIC takes a send queue's producer index from.
///
/// It is a fact about the queue pair, chosen when it is made: kernels post to either kind alike.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendDoorbell {
    /// The doorbell record, which it reads when the doorbell rings. Every NIC can.
    #[default]
    WithRecord = 0,
    /// The doorbell itself: no record is written, which spares a post one of its two fences.
    WithoutRecord = 1,
}

impl SendDoorbell {
    /// Refuses a handle's number that is none of these.
    #[inline(always)]
    const fn check(number: u8) -> Result<(), OpenError> {
        if number > Self::WithoutRecord as u8 {
            return Err(OpenError::SendDoorbell { found: number });
        }
        Ok(())
    }
}

/// What kind of memory has a send queue's doorbell register.
///
/// It is a fact about the page as a CPU has mapped it. A GPU reaches a card's registers through a mapping of its own,
/// which is never write-combining, and does not look here.
#[repr(u8)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoorbellPage {
    /// Ordinary memory, where a software HCA looks at it.
    #[default]
    Memory = 0,
    /// A card's register: each store leaves the CPU by itself, and in order.
    Uncached = 1,
    /// A card's register on a write-combining page (BlueFlame): a store stays in the CPU until something flushes it, and
    /// may leave before older stores.
    WriteCombining = 2,
}

impl DoorbellPage {
    /// The kind of a number that was checked.
    #[inline(always)]
    pub(crate) const fn of(number: u8) -> Self {
        match number {
            0 => Self::Memory,
            1 => Self::Uncached,
            _ => Self::WriteCombining,
        }
    }

    /// Refuses a handle's number that is none of these.
    #[inline(always)]
    const fn check(number: u8) -> Result<(), OpenError> {
        if number > Self::WriteCombining as u8 {
            return Err(OpenError::DoorbellPage { found: number });
        }
        Ok(())
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    magic: u32,
    version: u16,
    size: u16,
}

impl Header {
    const fn of<T>(magic: u32) -> Self {
        Self {
            magic,
            version: ABI_VERSION,
            size: size_of::<T>() as u16,
        }
    }

    #[inline(always)]
    fn check<T>(self, magic: u32) -> Result<(), OpenError> {
        let wanted = Self::of::<T>(magic);
        if self.magic != wanted.magic {
            return Err(OpenError::NotAHandle { magic: self.magic });
        }
        if self.version != wanted.version {
            return Err(OpenError::Version {
                found: self.version,
                wanted: wanted.version,
            });
        }
        if self.size != wanted.size {
            return Err(OpenError::Size {
                found: self.size,
                wanted: wanted.size,
            });
        }
        Ok(())
    }
}

/// Where a queue's completions lie.
#[derive(Clone, Copy, Debug)]
pub struct CompletionParts {
    /// Ring of `1 << depth_log2` CQEs, every one with `op_own = 0xf0` at first.
    pub ring: *const CompletionSlot,
    /// Doorbell record of the completion queue; word 0 takes the consumer index.
    pub record: *const Word32,
    /// Base-2 logarithm of the number of CQEs.
    pub depth_log2: u8,
    /// Collapsed or ordinary.
    pub kind: CompletionKind,
}

/// [`CompletionParts`] inside a handle. The kind is a number, because a handle
/// of another version may hold anything until `open` has checked it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completions {
    pub(crate) ring: *const CompletionSlot,
    pub(crate) record: *const Word32,
    pub(crate) depth_log2: u8,
    kind: u8,
}

impl Completions {
    pub(crate) const fn new(parts: CompletionParts) -> Self {
        Self {
            ring: parts.ring,
            record: parts.record,
            depth_log2: parts.depth_log2,
            kind: parts.kind as u8,
        }
    }

    const fn parts(&self) -> CompletionParts {
        CompletionParts {
            ring: self.ring,
            record: self.record,
            depth_log2: self.depth_log2,
            kind: match self.is_collapsed() {
                true => CompletionKind::Collapsed,
                false => CompletionKind::Ordinary,
            },
        }
    }

    /// Whether every CQE lands in entry 0.
    #[inline(always)]
    pub(crate) const fn is_collapsed(&self) -> bool {
        self.kind == CompletionKind::Collapsed as u8
    }
}

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

/// Where a receive queue lies.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveParts {
    /// Ring of `1 << depth_log2` receive WQEs of `16 << stride_log2` bytes.
    pub ring: *mut RingSegment,
    /// Word 0 of the queue pair's doorbell record (the receive queue's).
    pub record: *const Word32,
    /// The completion queue that belongs to this receive queue alone; ordinary.
    pub completions: CompletionParts,
    /// The queue's device-side state, cleared.
    pub state: *const QueueState,
    /// Number of the queue pair.
    pub qpn: u32,
    /// Longest message in bytes that the card takes.
    pub max_message: u32,
    /// Base-2 logarithm of the number of receive WQEs.
    pub depth_log2: u8,
    /// Base-2 logarithm of the data segments in a receive WQE.
    pub stride_log2: u8,
    /// How far the queue's fences reach.
    pub reach: FenceReach,
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

/// What a kernel needs to know of one receive queue.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ReceiveQueueHandle<'a> {
    header: Header,
    pub(crate) qpn: u32,
    pub(crate) max_message: u32,
    pub(crate) ring: *mut RingSegment,
    pub(crate) record: *const Word32,
    pub(crate) state: *const QueueState,
    pub(crate) completions: Completions,
    pub(crate) depth_log2: u8,
    pub(crate) stride_log2: u8,
    reach: u8,
    unused: u8,
    pub(crate) processor: Processor,
    _lifetime: PhantomData<&'a QueueState>,
}

/// Where a completion queue lies that many send queues have in common.
#[derive(Clone, Copy, Debug)]
pub struct CompletionQueueParts {
    /// Ring of `1 << depth_log2` CQEs, every one with `op_own = 0xf0` at first; the NIC ignores overruns.
    pub ring: *const CompletionSlot,
    /// Base-2 logarithm of the number of CQEs.
    pub depth_log2: u8,
    /// Table of `1 << members_log2` places, as [`CompletionMember::enter`] filled it.
    pub members: *const CompletionMember,
    /// Base-2 logarithm of the table's places, at least 1.
    pub members_log2: u8,
    /// The completion queue's device-side state, zeroed.
    pub state: *const CompletionQueueState,
    /// How far the fences of its queues reach.
    pub reach: FenceReach,
}

/// What a kernel needs to know of a completion queue that many send queues have in common.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CompletionQueueHandle<'a> {
    header: Header,
    pub(crate) completions: Completions,
    pub(crate) members: *const CompletionMember,
    pub(crate) state: *const CompletionQueueState,
    pub(crate) members_log2: u8,
    reach: u8,
    unused: u16,
    pub(crate) processor: Processor,
    _lifetime: PhantomData<&'a CompletionQueueState>,
}

/// "WBSQ", "WBRQ" and "WBCQ", as they read in memory on a little-endian machine.
const SEND_MAGIC: u32 = u32::from_le_bytes(*b"WBSQ");
const RECEIVE_MAGIC: u32 = u32::from_le_bytes(*b"WBRQ");
const COMPLETION_MAGIC: u32 = u32::from_le_bytes(*b"WBCQ");

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<CompletionSlot>() == 64);
    assert!(size_of::<Completions>() == 24);
    assert!(core::mem::offset_of!(Completions, record) == 8);
    assert!(core::mem::offset_of!(Completions, depth_log2) == 16);
    assert!(core::mem::offset_of!(Completions, kind) == 17);
    assert!(size_of::<SendQueueHandle>() == 80);
    assert!(size_of::<ReceiveQueueHandle>() == 72);
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
    assert!(core::mem::offset_of!(ReceiveQueueHandle, qpn) == 8);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, max_message) == 12);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, ring) == 16);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, record) == 24);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, state) == 32);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, completions) == 40);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, depth_log2) == 64);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, stride_log2) == 65);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, reach) == 66);
    assert!(core::mem::offset_of!(ReceiveQueueHandle, processor) == 68);
    assert!(size_of::<CompletionQueueHandle>() == 56);
    assert!(core::mem::offset_of!(CompletionQueueHandle, completions) == 8);
    assert!(core::mem::offset_of!(CompletionQueueHandle, members) == 32);
    assert!(core::mem::offset_of!(CompletionQueueHandle, state) == 40);
    assert!(core::mem::offset_of!(CompletionQueueHandle, members_log2) == 48);
    assert!(core::mem::offset_of!(CompletionQueueHandle, reach) == 49);
    assert!(core::mem::offset_of!(CompletionQueueHandle, processor) == 52);
};

// SAFETY: a handle is a set of addresses whose memory every thread of a grid
// may use (the promise of `new`); what is behind them is only touched through
// atomic words, or through ring slots that the queue's protocol hands to one
// thread at a time.
unsafe impl Send for SendQueueHandle<'_> {}
// SAFETY: as for `Send`; the handle itself is never written.
unsafe impl Sync for SendQueueHandle<'_> {}
// SAFETY: as for `SendQueueHandle`.
unsafe impl Send for ReceiveQueueHandle<'_> {}
// SAFETY: as for `SendQueueHandle`.
unsafe impl Sync for ReceiveQueueHandle<'_> {}
// SAFETY: as for `SendQueueHandle`.
unsafe impl Send for CompletionQueueHandle<'_> {}
// SAFETY: as for `SendQueueHandle`.
unsafe impl Sync for CompletionQueueHandle<'_> {}

impl<'a> CompletionQueueHandle<'a> {
    /// Makes the handle of a completion queue that many send queues have in common.
    ///
    /// # Safety
    /// For the lifetime `'a`, every pointer of `parts` is valid for the sizes that `parts` gives, aligned to its type,
    /// and reachable by every thread that gets the handle; so is each entry that the table leads to, which is the one
    /// entry of the completions of that queue's handle. Nothing but `warpbell` and the NIC writes there, and nobody
    /// writes the table. Every queue pair whose send completions go to the ring is in the table. The ring has at least
    /// as many entries as all their send rings have blocks together, and 32 where warps poll. The reach is that of
    /// these queues' handles, and what [`SendQueueHandle::new`] asks for it holds; threads of several processors never
    /// open it at the same time, which [`on`](Self::on) has `open` check.
    pub const unsafe fn new(parts: CompletionQueueParts) -> Self {
        Self {
            header: Header::of::<Self>(COMPLETION_MAGIC),
            completions: Completions::new(CompletionParts {
                ring: parts.ring,
                // Nobody writes a consumer index, because the NIC ignores overruns.
                record: core::ptr::null(),
                depth_log2: parts.depth_log2,
                kind: CompletionKind::Ordinary,
            }),
            members: parts.members,
            state: parts.state,
            members_log2: parts.members_log2,
            reach: parts.reach as u8,
            unused: 0,
            processor: Processor::UNKNOWN,
            _lifetime: PhantomData,
        }
    }

    /// The handle for kernels of one processor, as [`SendQueueHandle::on`].
    ///
    /// # Safety
    /// As there.
    pub const unsafe fn on(self, processor: Processor) -> Self {
        Self { processor, ..self }
    }

    /// Checks magic, version, size and the reach of fences.
    #[inline(always)]
    pub fn check(&self) -> Result<(), OpenError> {
        self.header.check::<Self>(COMPLETION_MAGIC)?;
        FenceReach::check(self.reach)
    }

    /// The entry that CQE number `number` goes to, and its owner bit, for whoever plays the NIC.
    ///
    /// # Safety
    /// [`check`](Self::check) has accepted the handle.
    #[inline(always)]
    pub unsafe fn completion_slot(&self, number: u32) -> (&'a CompletionSlot, bool) {
        let owner = number >> self.completions.depth_log2 & 1 == 1;
        (completion::slot(&self.completions, number), owner)
    }

    /// As [`SendQueueHandle::reach`].
    #[inline(always)]
    pub(crate) const fn reach(&self) -> Reach {
        FenceReach::of(self.reach)
    }
}

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

impl<'a> ReceiveQueueHandle<'a> {
    /// Makes the handle of a receive queue.
    ///
    /// # Safety
    /// As for [`SendQueueHandle::new`]; the completion queue is ordinary and
    /// has at least as many entries as the ring has receive WQEs.
    pub const unsafe fn new(parts: ReceiveParts) -> Self {
        Self {
            header: Header::of::<Self>(RECEIVE_MAGIC),
            qpn: parts.qpn,
            max_message: parts.max_message,
            ring: parts.ring,
            record: parts.record,
            state: parts.state,
            completions: Completions::new(parts.completions),
            depth_log2: parts.depth_log2,
            stride_log2: parts.stride_log2,
            reach: parts.reach as u8,
            unused: 0,
            processor: Processor::UNKNOWN,
            _lifetime: PhantomData,
        }
    }

    /// The handle for kernels of one processor, as [`SendQueueHandle::on`].
    ///
    /// # Safety
    /// As there.
    pub const unsafe fn on(self, processor: Processor) -> Self {
        Self { processor, ..self }
    }

    /// Checks magic, version, size and the reach of fences.
    #[inline(always)]
    pub fn check(&self) -> Result<(), OpenError> {
        self.header.check::<Self>(RECEIVE_MAGIC)?;
        FenceReach::check(self.reach)
    }

    /// As [`SendQueueHandle::reach`].
    #[inline(always)]
    pub(crate) const fn reach(&self) -> Reach {
        FenceReach::of(self.reach)
    }

    /// Opens the queue for this thread, as [`SendQueueHandle::open`] does.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub fn open<S: Sharing>(self) -> Result<ReceiveQueue<'a, S, Thread>, OpenError> {
        // SAFETY: a thread makes its calls together with itself.
        unsafe { self.open_together() }
    }

    /// Opens the queue for all threads of a scope, as [`SendQueueHandle::open_together`] does.
    ///
    /// # Safety
    /// As there.
    ///
    /// # Errors
    /// As there.
    #[inline(always)]
    pub unsafe fn open_together<S: Sharing, C: Scope>(
        self,
    ) -> Result<ReceiveQueue<'a, S, C>, OpenError> {
        self.check()?;
        ReceiveQueue::open(self)
    }
}
