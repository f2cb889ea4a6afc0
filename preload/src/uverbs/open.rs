//! The objects made through each open file of the device.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use mlx5_wqe::{CqNumber, LocalKey, QpNumber};
use warpbell_soft_hca::engine::{Access, ProtectionDomain, SharedReceiveQueue, Transport};

use super::counters::Counted;
use super::devx::Object;
use super::uar::Page;
use super::umem::Umem;
use crate::abi::QueuePairQuery;
use crate::attributes::Errno;
use crate::events::{self, Channel};
use crate::machine::{Machine, machine};
use crate::{async_events, devx_events};

/// Everything that was made through one file, by the handles that its user knows.
#[derive(Default)]
pub struct Open {
    pub domains: BTreeMap<u32, ProtectionDomain>,
    pub regions: BTreeMap<u32, Region>,
    /// Its own channel, once it is open.
    pub events: Option<async_events::Channel>,
    /// By the file descriptor that the user reads.
    pub channels: BTreeMap<c_int, Channel>,
    /// The same, of DEVX events.
    pub event_channels: BTreeMap<c_int, devx_events::Channel>,
    pub completion_queues: BTreeMap<u32, CqNumber>,
    pub shared_receives: BTreeMap<u32, SharedReceiveQueue>,
    pub queue_pairs: BTreeMap<u32, QueuePair>,
    /// The protection domain of each, by its handle.
    pub address_handles: BTreeMap<u32, u32>,
    /// By page number.
    pub pages: BTreeMap<u32, Page>,
    /// By their numbers, which are their handles too.
    pub umems: BTreeMap<u32, Umem>,
    /// What DEVX has made.
    pub objects: BTreeMap<u32, Object>,
    /// Sets of counters: what queue pairs that are gone, or were reset, have added.
    pub counters: BTreeMap<u8, Counted>,
}

/// Registered memory, as its user wanted it.
#[derive(Clone, Copy)]
pub struct Region {
    pub key: LocalKey,
    pub domain: ProtectionDomain,
    pub start: u64,
    pub length: u64,
    pub access: Access,
}

/// A queue pair, where its doorbell record is, and what its user has set.
#[derive(Clone, Copy)]
pub struct QueuePair {
    pub number: QpNumber,
    pub transport: Transport,
    pub record: u64,
    pub set: QueuePairQuery,
}

static FILES: Mutex<BTreeMap<c_int, Open>> = Mutex::new(BTreeMap::new());

/// Runs `work` on a file's objects; the first call makes an entry.
pub fn with<R>(file: c_int, work: impl FnOnce(&mut Open) -> R) -> R {
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    work(files.entry(file).or_default())
}

/// Destroys the objects that a file's user left behind.
pub fn close(file: c_int) {
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(open) = files.remove(&file) else {
        return;
    };
    if let Ok(Some(machine)) = machine() {
        open.destroy(machine);
    }
}

impl Open {
    /// The error number of a handle that names no object of the kind that is asked for: there is one of another kind, or
    /// none.
    pub fn missing(&self, handle: u32) -> Errno {
        let is_other = self.domains.contains_key(&handle)
            || self.regions.contains_key(&handle)
            || self.completion_queues.contains_key(&handle)
            || self.shared_receives.contains_key(&handle)
            || self.queue_pairs.contains_key(&handle)
            || self.address_handles.contains_key(&handle)
            || self.umems.contains_key(&handle)
            || self.objects.contains_key(&handle);
        Errno(if is_other { libc::EINVAL } else { libc::ENOENT })
    }

    /// The object of a handle, among those of its kind.
    pub fn find<T: Copy>(&self, kind: &BTreeMap<u32, T>, handle: u32) -> Result<T, Errno> {
        let found = kind.get(&handle).copied();
        found.ok_or_else(|| self.missing(handle))
    }

    /// Ends all objects, each before the objects that it uses. A stopped engine refuses, but has no objects any more.
    fn destroy(&self, machine: &Machine) {
        let of_devx = |destroyed: fn(&Object) -> bool| {
            for object in self.objects.values().filter(|object| destroyed(object)) {
                let _ = object.destroy(machine);
            }
        };
        of_devx(Object::is_queue_pair);
        for pair in self.queue_pairs.values() {
            let _ = machine.command(|engine| engine.destroy_queue_pair(pair.number));
            async_events::remove(pair.number);
        }
        of_devx(|object| !object.is_queue_pair());
        for queue in self.completion_queues.values() {
            let _ = machine.command(|engine| engine.destroy_completion_queue(*queue));
            events::remove(*queue);
            async_events::remove(*queue);
        }
        for queue in self.shared_receives.values() {
            let _ = machine.command(|engine| engine.destroy_shared_receive_queue(*queue));
        }
        for region in self.regions.values() {
            let _ = machine.command(|engine| engine.deregister_memory(region.key));
        }
        for domain in self.domains.values() {
            let _ = machine.command(|engine| engine.destroy_protection_domain(*domain));
        }
    }
}

/// A number that no object of this process has had before, of 24 bits. Small ones stay free: they are the card's own
/// queues.
pub fn fresh() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0x100);
    // Relaxed: the numbers have to differ, nothing else hangs on them.
    NEXT.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff
}
