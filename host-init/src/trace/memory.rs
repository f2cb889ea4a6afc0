//! Memory for events.

use warpbell::Word64;
use warpbell::trace::{self, CHUNK, Chunk, Event};

use crate::{Buffer, Error, Placement};

/// Memory that kernels record their events in.
#[derive(Debug)]
pub struct TraceMemory {
    buffer: Buffer,
    chunks: usize,
}

/// Where the chunks begin; the count of chunks is at 0.
const CHUNKS: usize = size_of::<Chunk>();

impl TraceMemory {
    /// Room for at least so many events of one writer. Each further writer takes up to [`CHUNK`] places of its own.
    ///
    /// # Errors
    /// As [`Buffer::placed`].
    pub fn new(placement: Placement, events: usize) -> Result<Self, Error> {
        let chunks = events.div_ceil(CHUNK);
        let bytes = chunks.saturating_mul(size_of::<Chunk>());
        Ok(Self {
            buffer: Buffer::placed(placement, bytes.saturating_add(CHUNKS))?,
            chunks,
        })
    }

    /// What kernels get.
    pub fn buffer(&self) -> trace::Buffer<'_> {
        // SAFETY: the buffer has room for the count and the chunks, is zeroed, aligned to a page, and global memory of the
        // processor that its placement belongs to. Nobody else writes there.
        unsafe { trace::Buffer::from_raw(self.asked(), self.first_chunk(), self.chunks as u64) }
    }

    fn asked(&self) -> *const Word64 {
        self.buffer.as_ptr().cast()
    }

    fn first_chunk(&self) -> *const Chunk {
        // SAFETY: inside the buffer.
        unsafe { self.buffer.as_ptr().add(CHUNKS) }.cast()
    }

    /// Forgets all events. Nobody records now.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the memory cannot be written.
    pub fn clear(&mut self) -> Result<(), Error> {
        let taken = self.chunks_asked()?.min(self.chunks as u64) as usize;
        self.buffer.write(0, &[0; 8])?;
        let zeros = vec![0; taken * size_of::<Chunk>()];
        self.buffer.write(CHUNKS, &zeros)
    }

    /// The events so far, by their writers' chunks. What a GPU writes is complete when its kernels have ended.
    ///
    /// # Errors
    /// [`Error::Gpu`] if they cannot be read.
    pub fn events(&self) -> Result<Vec<Event>, Error> {
        let taken = self.chunks_asked()?.min(self.chunks as u64) as usize;
        if self.buffer.placement().is_host() {
            // SAFETY: there are so many, made of atomics, which others may write meanwhile.
            let chunks = unsafe { std::slice::from_raw_parts(self.first_chunk(), taken) };
            return Ok(chunks.iter().flat_map(Chunk::events).collect());
        }
        let mut bytes = vec![0; taken * size_of::<Chunk>()];
        self.buffer.read(CHUNKS, &mut bytes)?;
        let chunks = bytes.chunks_exact(size_of::<Chunk>());
        Ok(chunks.flat_map(events_of_bytes).collect())
    }

    /// Events that found no room so far.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the count cannot be read.
    pub fn lost(&self) -> Result<u64, Error> {
        let asked = self.chunks_asked()?;
        Ok(asked.saturating_sub(self.chunks as u64))
    }

    /// Chunks that writers asked for.
    fn chunks_asked(&self) -> Result<u64, Error> {
        let mut bytes = [0; 8];
        self.buffer.read(0, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// The events in a copy of a chunk.
fn events_of_bytes(chunk: &[u8]) -> impl Iterator<Item = Event> + '_ {
    let (slots, _) = chunk.as_chunks::<16>();
    slots.iter().map_while(|slot| {
        let word = |half: &[u8]| u64::from_ne_bytes(half.try_into().expect("8 bytes"));
        Event::from_words([word(&slot[..8]), word(&slot[8..])])
    })
}

#[cfg(test)]
mod tests {
    use warpbell::trace::{Kind, Trace};
    use warpbell::wqe::QpNumber;

    use super::*;

    #[test]
    fn memory_gives_what_was_recorded_and_counts_the_rest() {
        let mut memory = TraceMemory::new(Placement::Host, CHUNK + 1).unwrap();
        let writer = memory.buffer().writer();
        let recorded = 2 * CHUNK as u32 + 7;
        for value in 0..recorded {
            writer.record(Kind::Publish, QpNumber::MAX, value);
        }
        let events = memory.events().unwrap();
        let values = events.iter().map(|event| event.value());
        assert!(values.eq(0..2 * CHUNK as u32));
        assert_eq!(memory.lost().unwrap(), 7);

        // A GPU's memory is read as bytes.
        let mut bytes = vec![0; size_of::<Chunk>()];
        memory.buffer.read(CHUNKS, &mut bytes).unwrap();
        assert!(events_of_bytes(&bytes).eq(events[..CHUNK].iter().copied()));
        let (full, empty) = bytes.split_at_mut(48);
        empty.fill(0);
        assert_eq!(full.len() / 16, events_of_bytes(&bytes).count());

        memory.clear().unwrap();
        assert_eq!(
            (memory.events().unwrap(), memory.lost().unwrap()),
            (vec![], 0)
        );
        memory.buffer().writer().record(Kind::Cqe, QpNumber::MAX, 5);
        assert_eq!(memory.events().unwrap().len(), 1);
    }
}
