//! Values that a host writes and kernels read, in the kernels' own memory.

use std::marker::PhantomData;

use crate::Error;
use warpbell::SendQueueHandle;
use warpbell::wqe::Remote;
use warpbell_host_init::{Buffer, Placement};

/// A value in words, in the order of its bytes on a little-endian machine.
pub(crate) trait InWords: Copy {
    fn to_words(self) -> impl AsRef<[u64]>;
}

impl InWords for SendQueueHandle<'_> {
    fn to_words(self) -> impl AsRef<[u64]> {
        Self::to_words(&self)
    }
}

impl InWords for Remote {
    fn to_words(self) -> impl AsRef<[u64]> {
        [self.address, self.key.0.into()]
    }
}

/// So many values where the kernels' queues lie: a kernel on a GPU reads them without a way to the host.
pub(crate) struct Table<T> {
    buffer: Buffer,
    len: usize,
    _values: PhantomData<T>,
}

impl<T: InWords> Table<T> {
    pub fn new(placement: Placement, len: usize, value: T) -> Result<Self, Error> {
        const { assert!(align_of::<T>() <= Buffer::ALIGNMENT) };
        let mut table = Self {
            buffer: Buffer::placed(placement, len * size_of::<T>())?,
            len,
            _values: PhantomData,
        };
        for place in 0..len {
            table.set(place, value)?;
        }
        Ok(table)
    }

    pub fn as_ptr(&self) -> *const T {
        self.buffer.as_ptr().cast()
    }

    pub fn set(&mut self, place: usize, value: T) -> Result<(), Error> {
        assert!(place < self.len, "place {place} of {}", self.len);
        if self.buffer.placement().is_host() {
            // As a value, because a pointer of bytes would point to nothing.
            let values: *mut T = self.buffer.as_ptr().cast();
            // SAFETY: inside the buffer, whose alignment is enough; whoever lends it to kernels borrows the table.
            unsafe { values.add(place).write(value) };
            return Ok(());
        }
        let words = value.to_words();
        let bytes = words.as_ref().iter().flat_map(|word| word.to_le_bytes());
        let bytes: Vec<u8> = bytes.collect();
        Ok(self.buffer.write(place * size_of::<T>(), &bytes)?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use warpbell::wqe::RemoteKey;
    use warpbell_host_init::{Node, QueuePairConfig};

    /// The bytes that a GPU would get are those of the value; some are nothing.
    pub(crate) fn words_are_the_bytes<T: InWords>(value: T, nothing: std::ops::Range<usize>) {
        let words = value.to_words();
        let words = words.as_ref().iter();
        let bytes: Vec<u8> = words.flat_map(|word| word.to_ne_bytes()).collect();
        assert_eq!(bytes.len(), size_of::<T>());
        for (place, byte) in bytes.into_iter().enumerate() {
            if !nothing.contains(&place) {
                // SAFETY: a byte of the value that is not padding.
                let found = unsafe { (&raw const value).cast::<u8>().add(place).read() };
                assert_eq!(found, byte, "byte {place}");
            }
        }
    }

    #[test]
    fn words_are_what_kernels_read() {
        words_are_the_bytes(
            Remote {
                address: 0x0123_4567_89ab_cdef,
                key: RemoteKey(0xfedc_ba98),
            },
            12..16,
        );
        let domain = Node::cpu().domain().unwrap();
        let connected = domain.connected(&domain, &QueuePairConfig::default());
        let (pair, _other) = connected.unwrap();
        let handle = pair.send_queue().unwrap();
        // Behind the kind of completions.
        words_are_the_bytes(handle, 66..72);
        words_are_the_bytes(SendQueueHandle::none(), 66..72);
    }
}
