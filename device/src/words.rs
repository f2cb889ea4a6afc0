//! Accesses to the words that a queue's threads, its host and its NIC share.
//!
//! [`warpbell_gpu::arch`] asks its caller that a word lies in global memory. This module gives that promise for the
//! crate, in one place. Every word that this crate reads or writes is one of these:
//!
//! - a word behind a pointer of a handle, or of another structure, whose constructor is an `unsafe fn` that asks for it;
//! - a word of a structure that only the host can make.

use warpbell_gpu::arch::{Word32, Word64};

warpbell_gpu::word_accesses! {
    /// Loads a word, in no order with other accesses.
    load_relaxed64(Word64) -> u64;
    /// Loads a word before every later access.
    load_acquire64(Word64) -> u64;
    /// Stores a word, in no order with other accesses.
    store_relaxed32(Word32, value: u32);
    /// Stores a word, in no order with other accesses.
    store_relaxed64(Word64, value: u64);
    /// Stores a word after every earlier access.
    store_release64(Word64, value: u64);
    /// Replaces `old` by `new`, as acquire and release; `Err` holds the value that was there instead.
    compare_exchange64(Word64, old: u64, new: u64) -> Result<u64, u64>;
    /// Replaces `old` by `new`, in no order with other accesses; `Err` holds the value that was there instead.
    compare_exchange_relaxed64(Word64, old: u64, new: u64) -> Result<u64, u64>;
    /// Stores `new` and returns the value from before, in one step and in no order with other accesses.
    exchange_relaxed64(Word64, new: u64) -> u64;
    /// Adds, as acquire and release, and returns the value from before.
    fetch_add64(Word64, value: u64) -> u64;
    /// Adds, in no order with other accesses, and returns the value from before.
    fetch_add_relaxed64(Word64, value: u64) -> u64;
}
