//! What HCAs did, and when: memory for the events that their engines record.

use std::fmt;
use std::prelude::v1::*;
use std::sync::{Arc, Mutex, PoisonError};

use warpbell_gpu::arch::Word64;
use warpbell_gpu::trace::{Buffer, CHUNK, Chunk, Event, On};

/// Memory for the events of HCAs on a host: doorbells, WQEs read, packets and CQEs, each with a time stamp of
/// [`warpbell_gpu::trace::ticks`].
///
/// Several HCAs may share one. Each has memory of its own in it, because numbers of queue pairs repeat among them. An HCA
/// records as long as it lives, and stops when its memory is full.
pub struct HcaTrace {
    events: usize,
    hcas: Mutex<Vec<Arc<HcaEvents>>>,
}

impl HcaTrace {
    /// Room for at least so many events of each HCA.
    pub fn new(events: usize) -> Arc<Self> {
        Arc::new(Self {
            events,
            hcas: Mutex::default(),
        })
    }

    /// Each HCA's events, in the order in which the HCAs were opened.
    pub fn hcas(&self) -> Vec<Arc<HcaEvents>> {
        let hcas = self.hcas.lock();
        hcas.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Memory for one more.
    fn open(&self) -> Arc<HcaEvents> {
        let chunks = self.events.div_ceil(CHUNK);
        let events = Arc::new(HcaEvents {
            asked: Word64::new(0),
            chunks: (0..chunks).map(|_| Chunk::empty()).collect(),
        });
        let mut hcas = self.hcas.lock().unwrap_or_else(PoisonError::into_inner);
        hcas.push(Arc::clone(&events));
        events
    }
}

impl fmt::Debug for HcaTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.hcas()).finish()
    }
}

/// The events of one HCA.
pub struct HcaEvents {
    asked: Word64,
    chunks: Box<[Chunk]>,
}

impl HcaEvents {
    fn buffer(&self) -> Buffer<'_> {
        Buffer::new(&self.asked, &self.chunks)
    }

    /// The events so far, in their order.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.chunks.iter().flat_map(Chunk::events)
    }

    /// How many events found no room.
    pub fn lost(&self) -> u64 {
        self.buffer().lost()
    }
}

impl fmt::Debug for HcaEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HcaEvents")
            .field("capacity", &self.buffer().capacity())
            .field("lost", &self.lost())
            .finish()
    }
}

/// One HCA's writer, with the memory that it writes to.
#[derive(Debug)]
pub(super) struct Recorder {
    writer: On<'static>,
    _memory: Arc<HcaEvents>,
}

impl Recorder {
    pub fn new(trace: &HcaTrace) -> Self {
        let memory = trace.open();
        let chunks = &memory.chunks;
        // SAFETY: word and chunks are valid and zeroed at first, and neither moves nor goes as long as `_memory` is
        // held, which is as long as the writer is. All threads run on this CPU.
        let buffer = unsafe {
            Buffer::from_raw(
                &raw const memory.asked,
                chunks.as_ptr(),
                chunks.len() as u64,
            )
        };
        Self {
            writer: buffer.writer(),
            _memory: memory,
        }
    }

    pub const fn writer(&self) -> &On<'static> {
        &self.writer
    }
}
