//! Memory for the NIC: page-aligned, zeroed, at an address that does not change.

use warpbell::{CompletionQueueState, QueueState};

#[cfg(feature = "cust")]
use crate::cuda::Foreign;
use crate::placement::Area;
use crate::{Error, Placement};

/// Zeroed, page-aligned memory that a NIC, kernels and the host share.
///
/// It never gives out `&[u8]`, because the NIC may write at any time: the host
/// copies in and out with [`read`](Self::read) and [`write`](Self::write). Bytes
/// that the NIC is changing meanwhile come out old or new, each for itself;
/// whoever wants to know waits for the completion first.
///
/// ```
/// use warpbell_host_init::Buffer;
///
/// let buffer = Buffer::new(4096)?;
/// buffer.write(100, b"hello")?;
/// let mut found = [0; 5];
/// buffer.read(100, &mut found)?;
/// assert_eq!(&found, b"hello");
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Debug)]
pub struct Buffer {
    area: Area,
    /// Whose it is, if it was not allocated here.
    #[cfg(feature = "cust")]
    foreign: Option<Foreign>,
}

impl Buffer {
    /// Alignment of every buffer in bytes: a page.
    pub const ALIGNMENT: usize = 4096;

    /// Allocates `len` bytes of host memory, all zero, aligned to [`ALIGNMENT`](Self::ALIGNMENT).
    ///
    /// # Errors
    /// [`Error::BadSize`] for 0 bytes or more than `isize::MAX`;
    /// [`Error::OutOfMemory`] if the system has none.
    pub fn new(len: usize) -> Result<Self, Error> {
        Self::placed(Placement::Host, len)
    }

    /// The same elsewhere.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Gpu`] if there is too little pinned memory or too little of the
    /// GPU's.
    pub fn placed(placement: Placement, len: usize) -> Result<Self, Error> {
        let area = Area::allocate(placement, len)?;
        Ok(Self {
            area,
            #[cfg(feature = "cust")]
            foreign: None,
        })
    }

    /// Memory of somebody else, which `foreign` keeps.
    #[cfg(feature = "cust")]
    pub(crate) fn of_foreign(area: Area, foreign: Foreign) -> Self {
        let foreign = Some(foreign);
        Self { area, foreign }
    }

    /// Whose memory it is, if it was not allocated here.
    #[cfg(feature = "cust")]
    pub(crate) fn foreign(&mut self) -> &mut Option<Foreign> {
        &mut self.foreign
    }

    /// Where it lies.
    pub fn placement(&self) -> Placement {
        self.area.placement
    }

    /// Address of the first byte, in this process or, for the GPU's memory, on the GPU.
    pub fn as_ptr(&self) -> *mut u8 {
        self.area.start.as_ptr()
    }

    /// Length in bytes; never 0.
    #[expect(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        self.area.len
    }

    /// Copies `into.len()` bytes out, from `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they do not all lie inside; [`Error::Gpu`] if the GPU is lost.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<(), Error> {
        // SAFETY: the memory lives as long as `self`.
        unsafe { self.area.read(offset, into) }
    }

    /// Copies `from` in, from `offset` on.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if it does not fit; [`Error::Gpu`] if the GPU is lost.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        // SAFETY: the memory lives as long as `self`.
        unsafe { self.area.write(offset, from) }
    }

    /// A queue's state that is at `offset`, as it is now; as new if it does not fit, and on a GPU that is lost.
    pub fn queue_state(&self, offset: usize) -> QueueState {
        let mut bytes = [0; size_of::<QueueState>()];
        match self.read(offset, &mut bytes) {
            Ok(()) => {
                let (words, _) = bytes.as_chunks();
                let word = |at: usize| u64::from_ne_bytes(words[at]);
                QueueState::from_words(std::array::from_fn(word))
            }
            Err(_) => QueueState::new(),
        }
    }

    /// The state of a completion queue that many send queues have in common, which is all that it holds.
    pub(crate) fn completion_queue_state(&self) -> CompletionQueueState {
        let mut bytes = [0; size_of::<CompletionQueueState>()];
        match self.read(0, &mut bytes) {
            // SAFETY: a state is atomic words, for which any bytes will do.
            Ok(()) => unsafe {
                std::mem::transmute::<[u8; size_of::<CompletionQueueState>()], CompletionQueueState>(
                    bytes,
                )
            },
            Err(_) => CompletionQueueState::new(),
        }
    }

    pub(crate) fn area(&self) -> Area {
        self.area
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        #[cfg(feature = "cust")]
        if let Some(foreign) = self.foreign.take() {
            return foreign.free();
        }
        // SAFETY: allocated by `placed`, and freed once.
        unsafe { self.area.free() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn is_aligned_and_zeroed() {
        let buffer = Buffer::new(100).unwrap();
        assert_eq!(buffer.as_ptr() as usize % Buffer::ALIGNMENT, 0);
        let mut bytes = [1u8; 100];
        buffer.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 100]);
    }

    #[test]
    fn refuses_bad_sizes() {
        assert_matches!(Buffer::new(0) => Err(Error::BadSize { bytes: 0, .. }));
        assert_matches!(Buffer::new(usize::MAX) => Err(Error::BadSize { .. }));
    }

    proptest! {
        #[test]
        fn gives_back_what_was_written_and_nothing_beside(
            offset in 0usize..70,
            bytes in proptest::collection::vec(any::<u8>(), 0..70),
        ) {
            let buffer = Buffer::new(80).unwrap();
            let mut model = [0xa5u8; 80];
            buffer.write(0, &model).unwrap();
            let fits = offset + bytes.len() <= 80;
            prop_assert_eq!(buffer.write(offset, &bytes).is_ok(), fits);
            if fits {
                model[offset..offset + bytes.len()].copy_from_slice(&bytes);
                let mut back = vec![0; bytes.len()];
                buffer.read(offset, &mut back).unwrap();
                prop_assert_eq!(back, bytes);
            }
            let mut all = [0u8; 80];
            buffer.read(0, &mut all).unwrap();
            prop_assert_eq!(all, model);
        }
    }
}
