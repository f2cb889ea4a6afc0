//! Asynchronous events (`ibv_get_async_event`): what befalls a queue and no completion tells.
//!
//! Of a queue pair's errors those that InfiniBand calls affiliated: a peer's request that cannot be carried out, and a
//! completion queue that is dead. All others end a work request, whose completion tells them. And of each queue pair
//! with a shared receive queue that has failed, that it takes no receive any more.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx5_wqe::{CqNumber, QpNumber, Syndrome};
use warpbell_soft_hca::engine::{ErrorPlace, FirstError};

use crate::{channel, devx_events};

/// A device's channel: an event is an `ib_uverbs_async_event_desc`, the user's handle and a [`Kind`].
pub type Channel = channel::Channel<16>;

/// What has happened, by its number in `enum ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    CompletionQueueError = 0,
    QueuePairFatal = 1,
    InvalidRequest = 2,
    AccessViolation = 3,
    /// Of queue pairs with a shared receive queue alone.
    LastReceive = 16,
}

/// The event of a queue pair's first error; none where a completion tells it.
fn kind_of(error: &FirstError) -> Option<Kind> {
    match error.place {
        ErrorPlace::Send(_) | ErrorPlace::Receive(_) => None,
        ErrorPlace::CompletionQueue => Some(Kind::QueuePairFatal),
        ErrorPlace::Elsewhere if error.syndrome == Syndrome::REMOTE_ACCESS => {
            Some(Kind::AccessViolation)
        }
        ErrorPlace::Elsewhere => Some(Kind::InvalidRequest),
    }
}

/// Whose event it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    CompletionQueue(u32),
    QueuePair(u32),
}

impl From<CqNumber> for Source {
    fn from(number: CqNumber) -> Self {
        Self::CompletionQueue(number.get())
    }
}

impl From<QpNumber> for Source {
    fn from(number: QpNumber) -> Self {
        Self::QueuePair(number.get())
    }
}

/// Where the events of a source go.
#[derive(Debug)]
struct Listener {
    channel: Channel,
    /// How the user calls the source.
    user_handle: u64,
    /// It takes its receives from a shared queue.
    shares_receives: bool,
    /// Events that went into the channel.
    reported: u32,
}

static LISTENERS: Mutex<BTreeMap<Source, Listener>> = Mutex::new(BTreeMap::new());

fn listeners() -> MutexGuard<'static, BTreeMap<Source, Listener>> {
    LISTENERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on the source's events go into the channel.
pub fn add(source: impl Into<Source>, channel: Channel, user_handle: u64, shares_receives: bool) {
    let listener = Listener {
        channel,
        user_handle,
        shares_receives,
        reported: 0,
    };
    listeners().insert(source.into(), listener);
}

/// Ends that, takes back what nobody has read, and tells how many events the user has read.
pub fn remove(source: impl Into<Source>) -> u32 {
    let mut listeners = listeners();
    let Some(listener) = listeners.remove(&source.into()) else {
        return 0;
    };
    let own = listener.user_handle.to_ne_bytes();
    listener.reported - listener.channel.take_back(|event| event.starts_with(&own))
}

/// Tells of an event.
pub fn report(source: impl Into<Source>, kind: Kind) {
    let source = source.into();
    devx_events::report(source, kind);
    let mut listeners = listeners();
    let Some(listener) = listeners.get_mut(&source) else {
        return;
    };
    if kind == Kind::LastReceive && !listener.shares_receives {
        return;
    }
    let mut event = [0; 16];
    event[..8].copy_from_slice(&listener.user_handle.to_ne_bytes());
    event[8..12].copy_from_slice(&(kind as u32).to_ne_bytes());
    if listener.channel.report(event) {
        listener.reported += 1;
    }
}

/// Tells of a queue pair's first error, if it is one to tell, and of its last receive.
pub fn report_error(queue_pair: QpNumber, error: &FirstError) {
    if let Some(kind) = kind_of(error) {
        report(queue_pair, kind);
    }
    report(queue_pair, Kind::LastReceive);
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use mlx5_wqe::{VendorCode, WqeIndex};

    use super::*;

    #[test]
    fn a_user_reads_whose_event_it_is_and_what_nobody_read_goes_with_its_source() {
        let (channel, read) = Channel::create().unwrap();
        let mut read = File::from(read);
        let queue = CqNumber::new(7).unwrap();
        let pair = QpNumber::new(7).unwrap();
        add(queue, channel.clone(), 0x1111, false);
        add(pair, channel.clone(), 0x2222, false);
        let shared = QpNumber::new(8).unwrap();
        add(shared, channel.clone(), 0x3333, true);
        report(queue, Kind::CompletionQueueError);
        report(pair, Kind::InvalidRequest);
        report(pair, Kind::LastReceive);
        report(shared, Kind::LastReceive);
        report(queue, Kind::CompletionQueueError);
        let mut next = || {
            let mut event = [0; 16];
            read.read_exact(&mut event).unwrap();
            event
        };
        assert_eq!(
            next(),
            [0x11, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(remove(queue), 1, "one was read, one was not");
        assert_eq!(
            next(),
            [0x22, 0x22, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]
        );
        let last = next();
        assert_eq!((last[0], last[8]), (0x33, 16), "alone of those that share");
        report(queue, Kind::CompletionQueueError);
        assert_eq!(channel.take_back(|_| true), 0);
        assert_eq!((remove(pair), remove(pair)), (1, 0));
    }

    #[test]
    fn what_a_completion_tells_is_no_event() {
        let kind = |syndrome, place| {
            kind_of(&FirstError {
                syndrome,
                vendor: VendorCode::NONE,
                place,
            })
        };
        let access = Syndrome::REMOTE_ACCESS;
        assert_eq!(kind(access, ErrorPlace::Send(WqeIndex(1))), None);
        assert_eq!(kind(access, ErrorPlace::Receive(WqeIndex(1))), None);
        let fatal = kind(Syndrome::LOCAL_QP_OPERATION, ErrorPlace::CompletionQueue);
        assert_eq!(fatal, Some(Kind::QueuePairFatal));
        let violation = kind(access, ErrorPlace::Elsewhere);
        assert_eq!(violation, Some(Kind::AccessViolation));
        let invalid = kind(Syndrome::REMOTE_INVALID_REQUEST, ErrorPlace::Elsewhere);
        assert_eq!(invalid, Some(Kind::InvalidRequest));
    }
}
