//! The device under the tests.

use mlx5_wqe::{Completion, CqDoorbellRecord, Cqe64};
use warpbell_proofs::preloaded::{self, Engine};
use warpbell_proofs::verbs::{self, Verbs};

/// The number that libmlx5 gives the queue pair of a fresh device, by which CQEs name it.
const USER_INDEX: u32 = 0;

/// Runs `body` where there is a device without an engine: in a process of its own, with the library under it.
pub fn with_device(name: &str, body: impl FnOnce()) {
    preloaded::test(Engine::Off, name, body);
}

/// The same with an engine behind the device.
pub fn with_engine(name: &str, body: impl FnOnce()) {
    preloaded::test(Engine::On, name, body);
}

/// A queue pair, and how far its completion queue was consumed.
pub struct Device {
    pub verbs: Verbs,
    consumed: u32,
}

impl Device {
    pub fn open(options: &verbs::Options) -> Self {
        Self {
            verbs: Verbs::open(options).expect("the device opens"),
            consumed: 0,
        }
    }

    /// Writes a CQE of ours where libmlx5 expects the next, and has libmlx5 poll it.
    pub fn complete(&mut self, said: Completion) -> verbs::Completion {
        self.deliver(said.encode(false))
    }

    /// The same with a CQE that is there already; its owner and user index are set to what is due.
    pub fn deliver(&mut self, mut cqe: Cqe64) -> verbs::Completion {
        let ring = self.verbs.completion_ring();
        let depth = ring.len() as u32;
        let owner = (self.consumed / depth) & 1 == 1;
        cqe.op_own = cqe.op_own & !1 | u8::from(owner);
        cqe.srqn_uidx = USER_INDEX.into();
        ring[(self.consumed % depth) as usize] = cqe;
        let polled = self.verbs.poll().expect("libmlx5 understands the CQE");
        self.consumed += 1;
        let [consumer, _] = self.verbs.completion_record();
        assert_eq!(consumer, CqDoorbellRecord::consumer_word(self.consumed));
        assert_eq!(self.verbs.poll(), Ok(None), "there is no other CQE");
        polled.expect("libmlx5 finds the CQE")
    }

    /// CQEs consumed so far.
    pub fn consumed(&self) -> u32 {
        self.consumed
    }

    pub fn close(self) {
        assert_eq!(self.verbs.close(), Ok(()));
    }
}
