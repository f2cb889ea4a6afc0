//! A table of tags on one device, the other ends of their connections, and bytes at both.

use super::{ALL, bytes_of, connected, reconnect, region};
use crate::Error;
use crate::trigger::Error as Refused;
use crate::trigger::host::{TriggerError, Triggers};
use warpbell::wqe::Wqe;
use warpbell::{Deadline, Thread};
use warpbell_host_init::{Device, MemoryRegion, ProtectionDomain, QueuePair, QueuePairConfig};

pub(super) const LIMIT: Deadline = Deadline::after_ms(300_000);

pub(super) fn config() -> QueuePairConfig {
    super::posting(8)
}

pub(super) struct Rig {
    pub domain: ProtectionDomain,
    pub triggers: Triggers,
    pub far: Vec<QueuePair>,
    pub source: MemoryRegion,
    pub target: MemoryRegion,
}

impl Rig {
    /// A tag for each kind, connected to a queue pair of [`config`].
    pub fn new(device: &Device, kinds: &[QueuePairConfig]) -> Self {
        Self::with(device, kinds, &config())
    }

    /// The same, where the other ends are as `others` says.
    pub fn with(device: &Device, kinds: &[QueuePairConfig], others: &QueuePairConfig) -> Self {
        let domain = device.protection_domain().unwrap();
        let pairs = kinds.iter().map(|kind| {
            let pair = connected([(&domain, kind), (&domain, others)]);
            <(_, _)>::from(pair)
        });
        let (near, far) = pairs.unzip();
        Self {
            triggers: Triggers::new(near).unwrap(),
            far,
            source: region(&domain, 64, 0xaa, ALL),
            target: region(&domain, 64, 0, ALL),
            domain,
        }
    }

    /// A write of a word to that word of the target.
    pub fn write(&self, to: usize) -> Wqe<1> {
        let local = self.source.local(0, 8).unwrap();
        Wqe::write(local, self.target.remote().at(8 * to, 8).unwrap())
    }

    /// Copies a word of the target to the next one: so one write shows that the one before was there.
    pub fn copy(&self, from: usize) -> Wqe<1> {
        let local = self.target.local(8 * from, 8).unwrap();
        Wqe::write(local, self.target.remote().at(8 * from + 8, 8).unwrap())
    }

    /// A write that the other end refuses.
    pub fn write_beyond(&self) -> Wqe<1> {
        let mut beyond = self.target.remote().at(0, 8).unwrap();
        beyond.address += 60;
        Wqe::write(self.source.local(0, 8).unwrap(), beyond)
    }

    /// Which words of the target were written.
    pub fn arrived(&self) -> [bool; 8] {
        let bytes = bytes_of(&self.target);
        let (words, _) = bytes.as_chunks::<8>();
        std::array::from_fn(|word| words[word] == [0xaa; 8])
    }

    pub fn trigger(&self, tag: u32) {
        let triggers = self.triggers.handle().open().unwrap();
        triggers.trigger::<Thread>(tag).unwrap();
    }

    pub fn wait(&self, tag: u32, deadline: Deadline) -> Result<(), Refused> {
        let triggers = self.triggers.handle().open().unwrap();
        triggers.wait::<Thread>(tag, deadline)
    }

    /// Makes a tag that failed anew.
    pub fn renew(&mut self, tag: u32) {
        let far = &mut self.far[tag as usize];
        let renewed = self.triggers.renew(tag, |near| reconnect(near, far));
        renewed.unwrap();
    }
}

/// Why the host refused something.
#[track_caller]
pub(super) fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> TriggerError {
    match result {
        Err(Error::Trigger(error)) => error,
        other => panic!("{other:?}"),
    }
}
