//! DEVX event channels: what befalls a queue that commands have made, told to those who have subscribed to it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx5_wqe::prm::EventType;

use crate::async_events::{Kind, Source};
use crate::channel;

/// A channel: an event is the cookie of a subscription.
pub type Channel = channel::Channel<8>;

/// Where an event goes, and under which cookie.
type Subscription = (Channel, u64);

/// By source and number of the event.
static SUBSCRIPTIONS: Mutex<BTreeMap<(Source, u8), Vec<Subscription>>> =
    Mutex::new(BTreeMap::new());

fn subscriptions() -> MutexGuard<'static, BTreeMap<(Source, u8), Vec<Subscription>>> {
    SUBSCRIPTIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The card's number of an event.
fn number(kind: Kind) -> EventType {
    match kind {
        Kind::CompletionQueueError => EventType::CQ_ERROR,
        Kind::QueuePairFatal => EventType::WQ_CATASTROPHE,
        Kind::InvalidRequest => EventType::WQ_INVALID_REQUEST,
        Kind::AccessViolation => EventType::WQ_ACCESS_ERROR,
        Kind::LastReceive => EventType::SRQ_LAST_WQE,
    }
}

/// Whether a source ever has such events.
pub fn has(source: Source, event: u16) -> bool {
    let kinds: &[Kind] = match source {
        Source::CompletionQueue(_) => &[Kind::CompletionQueueError],
        Source::QueuePair(_) => &[
            Kind::QueuePairFatal,
            Kind::InvalidRequest,
            Kind::AccessViolation,
            Kind::LastReceive,
        ],
    };
    kinds.iter().any(|kind| u16::from(number(*kind).0) == event)
}

/// From now on such events of the source go into the channel.
pub fn subscribe(source: Source, event: u8, channel: Channel, cookie: u64) {
    let mut subscriptions = subscriptions();
    let subscribed = subscriptions.entry((source, event)).or_default();
    subscribed.push((channel, cookie));
}

/// The source is gone.
pub fn remove(source: impl Into<Source>) {
    let source = source.into();
    subscriptions().retain(|(subscribed, _), _| *subscribed != source);
}

/// Tells of an event.
pub fn report(source: Source, kind: Kind) {
    let subscriptions = subscriptions();
    let subscribed = subscriptions.get(&(source, number(kind).0));
    for (channel, cookie) in subscribed.into_iter().flatten() {
        // What finds no room is lost, as where a kernel has no memory for it.
        channel.report(cookie.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn subscribers_hear_of_their_events_until_the_source_is_gone() {
        let (channel, read) = Channel::create().unwrap();
        let mut read = File::from(read);
        let (queue, pair) = (Source::CompletionQueue(7), Source::QueuePair(7));
        let access = EventType::WQ_ACCESS_ERROR.0;
        assert!(has(pair, access.into()) && !has(queue, access.into()) && !has(pair, 0));
        subscribe(pair, access, channel.clone(), 1);
        subscribe(queue, EventType::CQ_ERROR.0, channel.clone(), 2);
        report(pair, Kind::InvalidRequest);
        report(queue, Kind::CompletionQueueError);
        report(pair, Kind::AccessViolation);
        remove(pair);
        report(pair, Kind::AccessViolation);
        let mut told = [0; 16];
        read.read_exact(&mut told).unwrap();
        assert_eq!([told[0], told[8]], [2, 1]);
        assert_eq!(channel.take_back(|_| true), 0);
    }
}
