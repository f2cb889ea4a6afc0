//! What a kernel's panic leaves for the host.
//!
//! A panic on a GPU ends in a trap, after which the context is lost and with it all of the GPU's memory. So
//! the record of it lies in host memory: the host pins a [`PanicRecord`], maps it, and writes its address
//! into the module's variable [`SYMBOL`] before the first launch. Where the variable is still null, a panic
//! only traps.
//!
//! A library of kernels hands its panics over with [`panic_handler!`](crate::panic_handler).

use core::array;
use core::fmt;
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The variable of a PTX module that takes the address of a [`PanicRecord`]: 8 bytes, null at first.
pub const SYMBOL: &str = "WARPBELL_PANIC";

/// Bytes of a file's name that are kept: its last ones.
const FILE_BYTES: usize = 100;
/// Bytes of a message that are kept: its first ones.
const MESSAGE_BYTES: usize = 128;

/// Values of [`PanicRecord::state`].
const EMPTY: u32 = 0;
const BEING_WRITTEN: u32 = 1;
const WRITTEN: u32 = 2;

/// How often a second thread that panics looks whether the first one's record is written.
const LOOKS: u32 = 100_000;

/// Where the first thread that panics says so; 256 bytes that the host can read whatever became of the GPU.
#[repr(C)]
#[derive(Debug)]
pub struct PanicRecord {
    state: AtomicU32,
    line: AtomicU32,
    column: AtomicU32,
    block: AtomicU32,
    thread: AtomicU32,
    file_length: AtomicU32,
    message_length: AtomicU32,
    file: [AtomicU8; FILE_BYTES],
    message: [AtomicU8; MESSAGE_BYTES],
}

const _: () = assert!(size_of::<PanicRecord>() == 256);

impl Default for PanicRecord {
    fn default() -> Self {
        Self::new()
    }
}

impl PanicRecord {
    /// Nothing has panicked yet.
    pub const fn new() -> Self {
        Self {
            state: AtomicU32::new(EMPTY),
            line: AtomicU32::new(0),
            column: AtomicU32::new(0),
            block: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            file_length: AtomicU32::new(0),
            message_length: AtomicU32::new(0),
            file: [const { AtomicU8::new(0) }; FILE_BYTES],
            message: [const { AtomicU8::new(0) }; MESSAGE_BYTES],
        }
    }

    /// Writes a panic down, if it is the first one. If it is not, waits a while for the first one's record,
    /// because the caller's trap would stop the thread that writes it.
    pub fn write(&self, panic: &KernelPanic<'_>) {
        let claim =
            self.state
                .compare_exchange(EMPTY, BEING_WRITTEN, Ordering::Relaxed, Ordering::Relaxed);
        if claim.is_err() {
            for _ in 0..LOOKS {
                if look(&self.state) == WRITTEN {
                    return;
                }
                core::hint::spin_loop();
            }
            return;
        }
        self.line.store(panic.line, Ordering::Relaxed);
        self.column.store(panic.column, Ordering::Relaxed);
        self.block.store(panic.block, Ordering::Relaxed);
        self.thread.store(panic.thread, Ordering::Relaxed);
        let file = panic.file.as_bytes();
        let file = &file[file.len() - file.len().min(FILE_BYTES)..];
        store_text(&self.file, &self.file_length, file);
        store_text(
            &self.message,
            &self.message_length,
            panic.message.as_bytes(),
        );
        // The details before the state, because the host may look while the kernel runs.
        self.state.store(WRITTEN, Ordering::Release);
    }

    /// The panic, once it is written, with its texts in `texts`.
    pub fn read<'t>(&self, texts: &'t mut PanicTexts) -> Option<KernelPanic<'t>> {
        if self.state.load(Ordering::Acquire) != WRITTEN {
            return None;
        }
        texts.file = array::from_fn(|at| self.file[at].load(Ordering::Relaxed));
        texts.message = array::from_fn(|at| self.message[at].load(Ordering::Relaxed));
        let length = |length: &AtomicU32| length.load(Ordering::Relaxed) as usize;
        Some(KernelPanic {
            file: whole_characters(&texts.file, length(&self.file_length)),
            line: self.line.load(Ordering::Relaxed),
            column: self.column.load(Ordering::Relaxed),
            block: self.block.load(Ordering::Relaxed),
            thread: self.thread.load(Ordering::Relaxed),
            message: whole_characters(&texts.message, length(&self.message_length)),
        })
    }
}

/// Looks at a word that other threads of the grid write, in no order with other accesses.
fn look(word: &AtomicU32) -> u32 {
    #[cfg(target_arch = "nvptx64")]
    return crate::WordExt::load_relaxed(word);
    // Core's word also under loom, which has no models of panics.
    #[cfg(not(target_arch = "nvptx64"))]
    word.load(Ordering::Relaxed)
}

fn store_text(place: &[AtomicU8], length: &AtomicU32, text: &[u8]) {
    let mut stored = 0;
    for (place, byte) in place.iter().zip(text) {
        place.store(*byte, Ordering::Relaxed);
        stored += 1;
    }
    length.store(stored, Ordering::Relaxed);
}

/// The longest stretch of a text's bytes that is a text: cutting may have split a character at either end.
fn whole_characters(bytes: &[u8], length: usize) -> &str {
    let bytes = bytes.get(..length).unwrap_or(bytes);
    let continues = |byte: &&u8| **byte & 0xc0 == 0x80;
    let bytes = &bytes[bytes.iter().take_while(continues).count()..];
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default(),
    }
}

/// Room for the texts of a [`KernelPanic`] that is read.
#[derive(Clone, Copy, Debug)]
pub struct PanicTexts {
    file: [u8; FILE_BYTES],
    message: [u8; MESSAGE_BYTES],
}

impl Default for PanicTexts {
    fn default() -> Self {
        Self {
            file: [0; FILE_BYTES],
            message: [0; MESSAGE_BYTES],
        }
    }
}

/// A panic of one thread of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelPanic<'t> {
    /// The source file.
    pub file: &'t str,
    /// The line in it, from 1.
    pub line: u32,
    /// The column in it, from 1.
    pub column: u32,
    /// Index of the thread's block in the grid.
    pub block: u32,
    /// Index of the thread in its block.
    pub thread: u32,
    /// The message; empty where the GPU would have to format it.
    pub message: &'t str,
}

impl fmt::Display for KernelPanic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "thread {} of block {} panicked at {}:{}:{}",
            self.thread, self.block, self.file, self.line, self.column
        )?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

/// The address of the host's record: a word, because Rust-CUDA's compiler loads no atomic pointers.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
static WARPBELL_PANIC: crate::arch::Word64 = crate::arch::Word64::new(0);

/// The panic handler of a PTX module, for the top of its library: the host learns of a panic, and the grid stops. Elsewhere
/// than on a GPU it is nothing.
///
/// ```
/// warpbell_gpu::panic_handler!();
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! panic_handler {
    () => {
        #[cfg(target_arch = "nvptx64")]
        #[panic_handler]
        fn panic(info: &::core::panic::PanicInfo<'_>) -> ! {
            $crate::panic::trap(info)
        }
    };
}

/// Writes a panic into the host's record, if there is one, and stops the grid.
#[cfg(target_arch = "nvptx64")]
#[cold]
pub fn trap(info: &core::panic::PanicInfo<'_>) -> ! {
    let record = crate::WordExt::load_relaxed(&WARPBELL_PANIC) as usize;
    // SAFETY: null, or the address of a record that the host has mapped for as long as the module is loaded.
    let record = unsafe { core::ptr::with_exposed_provenance::<PanicRecord>(record).as_ref() };
    if let (Some(record), Some(location)) = (record, info.location()) {
        record.write(&KernelPanic {
            file: location.file(),
            line: location.line(),
            column: location.column(),
            block: crate::block::index(),
            thread: crate::block::thread_index(),
            message: info.message().as_str().unwrap_or_default(),
        });
    }
    // The record before the trap, because nothing that is still under way survives it.
    crate::thread::system_fence();
    // SAFETY: stops the grid; nothing is accessed after it.
    unsafe { core::arch::nvptx::trap() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PANIC: KernelPanic<'_> = KernelPanic {
        file: "kernels/src/demo.rs",
        line: 12,
        column: 5,
        block: 3,
        thread: 77,
        message: "no such slot",
    };

    #[test]
    fn the_first_panic_is_kept() {
        let record = PanicRecord::new();
        let mut texts = PanicTexts::default();
        assert_eq!(record.read(&mut texts), None);
        record.write(&PANIC);
        record.write(&KernelPanic { line: 99, ..PANIC });
        assert_eq!(record.read(&mut texts), Some(PANIC));
    }

    #[test]
    fn a_record_that_is_not_complete_is_none_and_ends_the_wait() {
        let record = PanicRecord::new();
        record.state.store(BEING_WRITTEN, Ordering::Relaxed);
        record.write(&PANIC);
        assert_eq!(record.read(&mut PanicTexts::default()), None);
    }

    #[test]
    fn long_texts_keep_a_files_end_and_a_messages_beginning() {
        extern crate std;
        use std::format;
        let record = PanicRecord::new();
        let long = "ü".repeat(200);
        let (file, message) = (format!("{long}.rs"), format!("{}{long}", "a".repeat(127)));
        record.write(&KernelPanic {
            file: &file,
            message: &message,
            ..PANIC
        });
        let mut texts = PanicTexts::default();
        let read = record.read(&mut texts).unwrap();
        assert_eq!(read.file, format!("{}.rs", "ü".repeat(48)));
        assert_eq!(read.message, "a".repeat(127));
    }

    #[test]
    fn says_where_and_why() {
        extern crate std;
        use std::string::ToString;
        let place = "thread 77 of block 3 panicked at kernels/src/demo.rs:12:5";
        assert_eq!(PANIC.to_string(), std::format!("{place}: no such slot"));
        let silent = KernelPanic {
            message: "",
            ..PANIC
        };
        assert_eq!(silent.to_string(), place);
    }
}
