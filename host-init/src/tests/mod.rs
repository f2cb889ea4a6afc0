//! Tests of start-up against the software HCA, with work requests written by hand.

mod completion_queue;
mod drops;
pub(crate) mod hand;
mod node;
mod other_user;
mod refusals;
pub(crate) mod resident;
mod states;
mod trace;
mod traffic;
mod two_processes;
mod watch;

use resident::resident;

use crate::soft::{Drive, SoftOptions};
use crate::{Access, Buffer, Device, MemoryRegion, Nic, ProtectionDomain, Timers};

/// A device that stands still until `step` is called.
fn by_hand() -> Device {
    let options = SoftOptions {
        drive: Drive::ByHand,
        ..SoftOptions::default()
    };
    Device::open(Nic::Soft(options)).unwrap()
}

/// A device on a thread of its own.
fn threaded() -> Device {
    Device::open(Nic::Soft(SoftOptions::default())).unwrap()
}

pub(crate) const ALL: Access = Access::all();

/// 4 s, eight times: no busy machine lets a living peer miss that.
pub(crate) const PATIENT: Timers = Timers {
    acknowledge_timeout: 20,
    retry_count: 7,
    rnr_retry: 7,
    rnr_timer: 7,
};

/// A region filled with one byte.
pub(crate) fn region(
    domain: &ProtectionDomain,
    bytes: usize,
    fill: u8,
    access: Access,
) -> MemoryRegion {
    let region = domain
        .register(Buffer::new(bytes).unwrap(), access)
        .unwrap();
    region.write(0, &vec![fill; bytes]).unwrap();
    region
}

pub(crate) fn bytes_of(region: &MemoryRegion) -> Vec<u8> {
    let mut bytes = vec![0; region.len()];
    region.read(0, &mut bytes).unwrap();
    bytes
}
