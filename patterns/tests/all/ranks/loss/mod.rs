//! Ranks whose wire loses, delays and doubles packets: every value is right all the same.

mod collectives;
mod experts;

use super::*;

/// A packet is sent again after 0.27 s, and a peer that is gone is noticed after 2 s: by no means a busy one.
fn queues() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: 64,
        timers: Timers {
            acknowledge_timeout: 16,
            ..Timers::default()
        },
        ..QueuePairConfig::granting(ALL)
    }
}

/// What so many ranks do over a wire that loses packets; it has lost some.
fn under_loss(port: u16, size: u32, wire: WireKind, part: impl Fn(World) + Sync) {
    let lost = Arc::new(AtomicU64::new(0));
    let entrance = Entrance {
        lost: Some(lost.clone()),
        ..Entrance::new(port, size, wire)
    };
    entrance.all(part);
    assert!(lost.load(Ordering::Relaxed) > 0, "a good wire");
}

/// The step `rounds` runs them, optimised.
mod thousand_rounds {
    /// Nine calls in each round.
    #[test]
    fn collectives() {
        super::collectives::rounds(22_076, 112);
    }

    #[test]
    fn experts() {
        super::experts::rounds(22_072, 250);
    }
}
