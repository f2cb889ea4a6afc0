//! What HCAs did, and when: memory for the events that their engines record.

use std::fmt;
use std::prelude::v1::*;
use std::sync::Arc;

use warpbell_gpu::arch::Word64;
use warpbell_gpu::trace::{Buffer, CHUNK, Chunk, Event, On};

/// Memory for the events of HCAs on a host: doorbells, WQEs read, packets and CQEs, each with a time stamp of
/// [`warpbell_gpu::trace::ticks`].
///
/// Several HCAs may share one. An HCA records in it as long as it lives, and stops when the memory is full.
pub struct HcaTrace {
    asked: Word64,
    chunks: Box<[Chunk]>,
}

impl HcaTrace {
    /// Room for at least so many events of one HCA. Each further HCA takes up to [`CHUNK`] places of its own.
    pub fn new(events: usize) -> Arc<Self> {
        Arc::new(Self {
            asked: Word64::new(0),
            chunks: (0..events.div_ceil(CHUNK))
                .map(|_| Chunk::empty())
                .collect(),
        })
    }

    fn buffer(&self) -> Buffer<'_> {
        Buffer::new(&self.asked, &self.chunks)
    }

    /// The events so far; those of one HCA in their order.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.chunks.iter().flat_map(Chunk::events)
    }

    /// How many events found no room.
    pub fn lost(&self) -> u64 {
        self.buffer().lost()
    }
}

impl fmt::Debug for HcaTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HcaTrace")
            .field("capacity", &self.buffer().capacity())
            .field("lost", &self.lost())
            .finish()
    }
}

/// One HCA's writer, with the memory that it writes to.
#[derive(Debug)]
pub(super) struct Recorder {
    writer: On<'static>,
    _memory: Arc<HcaTrace>,
}

impl Recorder {
    pub fn new(memory: Arc<HcaTrace>) -> Self {
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
