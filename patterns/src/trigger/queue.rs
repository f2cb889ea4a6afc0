//! Where the queue of a tag lies.

use core::marker::PhantomData;

use warpbell_gpu::arch::{RingBlock, Word32, Word64};

use warpbell::{
    CompletionKind, CompletionParts, CompletionSlot, DoorbellPage, FenceReach, QueueState,
    SendDoorbell, SendParts, SendQueueHandle,
};

/// A tag's queue, 64 bytes, in the kernels' own memory. Nothing of it changes while kernels run.
#[repr(C)]
#[derive(Debug)]
pub struct TagQueue<'a> {
    ring: *mut RingBlock,
    record: *const Word32,
    doorbell: *const Word64,
    completion: *const CompletionSlot,
    completion_record: *const Word32,
    state: *const QueueState,
    max_message: u32,
    qpn: u32,
    depth_log2: u8,
    /// [`FenceReach`] as a number.
    reach: u8,
    /// [`SendDoorbell`] as a number.
    send_doorbell: u8,
    /// 1 if another queue starts this one, and nobody rings it.
    managed: u8,
    /// [`DoorbellPage`] as a number.
    doorbell_page: u8,
    unused: [u8; 3],
    _queue: PhantomData<&'a QueueState>,
}

const _: () = {
    assert!(size_of::<TagQueue>() == 64);
    assert!(core::mem::offset_of!(TagQueue, state) == 40);
    assert!(core::mem::offset_of!(TagQueue, max_message) == 48);
    assert!(core::mem::offset_of!(TagQueue, depth_log2) == 56);
    assert!(core::mem::offset_of!(TagQueue, managed) == 59);
};

// SAFETY: the pointers lead to what a `SendQueueHandle` may be used for from any thread; it was made from one.
unsafe impl Send for TagQueue<'_> {}
// SAFETY: as for `Send`; nothing of it changes.
unsafe impl Sync for TagQueue<'_> {}

impl<'a> TagQueue<'a> {
    /// Of a queue that triggers ring, whose completions are a ring of as many entries as it has blocks.
    pub fn new(queue: SendQueueHandle<'a>) -> Self {
        let parts = queue.parts();
        Self {
            ring: parts.ring,
            record: parts.record,
            doorbell: parts.doorbell,
            completion: parts.completions.ring,
            completion_record: parts.completions.record,
            state: parts.state,
            max_message: parts.max_message,
            qpn: parts.qpn,
            depth_log2: parts.depth_log2,
            reach: parts.reach as u8,
            send_doorbell: parts.send_doorbell as u8,
            managed: 0,
            doorbell_page: parts.doorbell_page as u8,
            unused: [0; 3],
            _queue: PhantomData,
        }
    }

    /// The same for a queue that another one starts.
    pub(super) fn managed(self) -> Self {
        Self { managed: 1, ..self }
    }

    #[inline(always)]
    pub(super) fn is_managed(&self) -> bool {
        self.managed != 0
    }

    /// Its words, in the order of its bytes on a little-endian machine.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn to_words(&self) -> [u64; 8] {
        let numbers = [
            self.depth_log2,
            self.reach,
            self.send_doorbell,
            self.managed,
            self.doorbell_page,
        ];
        let [depth_log2, reach, send_doorbell, managed, page] = numbers.map(u64::from);
        [
            self.ring.expose_provenance() as u64,
            self.record.expose_provenance() as u64,
            self.doorbell.expose_provenance() as u64,
            self.completion.expose_provenance() as u64,
            self.completion_record.expose_provenance() as u64,
            self.state.expose_provenance() as u64,
            u64::from(self.qpn) << 32 | u64::from(self.max_message),
            page << 32 | managed << 24 | send_doorbell << 16 | reach << 8 | depth_log2,
        ]
    }

    #[inline(always)]
    pub(super) fn handle(&self) -> SendQueueHandle<'a> {
        let parts = SendParts {
            ring: self.ring,
            record: self.record,
            doorbell: self.doorbell,
            completions: CompletionParts {
                ring: self.completion,
                record: self.completion_record,
                depth_log2: self.depth_log2,
                kind: CompletionKind::Ordinary,
            },
            state: self.state,
            qpn: self.qpn,
            max_message: self.max_message,
            depth_log2: self.depth_log2,
            reach: match self.reach == FenceReach::Gpu as u8 {
                true => FenceReach::Gpu,
                false => FenceReach::System,
            },
            send_doorbell: match self.send_doorbell == SendDoorbell::WithoutRecord as u8 {
                true => SendDoorbell::WithoutRecord,
                false => SendDoorbell::WithRecord,
            },
            doorbell_page: match self.doorbell_page {
                page if page == DoorbellPage::Memory as u8 => DoorbellPage::Memory,
                page if page == DoorbellPage::Uncached as u8 => DoorbellPage::Uncached,
                _ => DoorbellPage::WriteCombining,
            },
        };
        // SAFETY: the parts of the handle that it was made from.
        unsafe { SendQueueHandle::new(parts) }
    }
}
