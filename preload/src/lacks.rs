//! What the device lacks on demand, for tests of what drivers make of lesser cards.

use std::env;
use std::sync::OnceLock;

/// Words with commas between them: what the device does not have.
const VARIABLE: &str = "WARPBELL_LACKS";

/// Something that a card may not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Completion queues that ignore overruns.
    IgnoredOverruns,
    /// Atomics.
    Atomics,
    /// Fetched words in the host's byte order: they are in the network's.
    HostOrder,
}

impl Lack {
    fn word(self) -> &'static str {
        match self {
            Self::IgnoredOverruns => "cq_oi",
            Self::Atomics => "atomic",
            Self::HostOrder => "host-order",
        }
    }

    /// Whether this process's device has it after all.
    pub fn is_there(self) -> bool {
        static WORDS: OnceLock<String> = OnceLock::new();
        let words = WORDS.get_or_init(|| env::var(VARIABLE).unwrap_or_default());
        !words.split(',').any(|word| word == self.word())
    }
}
