//! What a software NIC counts of a queue pair, as it lies in its process's memory.

#[cfg(feature = "soft")]
use std::mem::offset_of;

use serde::Serialize;
#[cfg(feature = "soft")]
use warpbell_soft_hca::engine::Counters;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What a software NIC has counted of a queue pair since the queue pair was made or reset.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Serialize,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C)]
pub struct NicCounters {
    /// Send WQEs that completed without an error.
    pub completed: u64,
    /// Receive WQEs that completed without an error.
    pub received: u64,
    /// WQEs that ended in error or were flushed.
    pub errors: u64,
    /// Times that the NIC went back to an earlier packet.
    pub retries: u64,
    /// RNR NAKs that came in.
    pub rnr_naks: u64,
    /// Packets that came twice.
    pub duplicates: u64,
}

/// The engine's own structure has the same words.
#[cfg(feature = "soft")]
const _: () = {
    assert!(size_of::<NicCounters>() == size_of::<Counters>());
    assert!(offset_of!(NicCounters, completed) == offset_of!(Counters, completed));
    assert!(offset_of!(NicCounters, received) == offset_of!(Counters, received));
    assert!(offset_of!(NicCounters, errors) == offset_of!(Counters, errors));
    assert!(offset_of!(NicCounters, retries) == offset_of!(Counters, retries));
    assert!(offset_of!(NicCounters, rnr_naks) == offset_of!(Counters, receiver_not_ready));
    assert!(offset_of!(NicCounters, duplicates) == offset_of!(Counters, duplicates));
};
