//! DEVX event channels: what befalls a queue that commands have made, told to those who have subscribed to it.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mlx5_wqe::prm::EventType;
use rustix::fs::readlink;

use crate::async_events::{Kind, Source};
use crate::channel;

/// A channel: an event is the cookie of a subscription.
pub type Channel = channel::Channel<8>;

/// Where an event goes.
pub enum Target {
    /// Into a channel, under a cookie.
    Channel(Channel, u64),
    /// Into a counter of the user's (an eventfd).
    Counter(OwnedFd),
}

impl Target {
    /// The counter behind a file descriptor. The user may close it.
    pub fn counter(file: c_int) -> io::Result<Self> {
        // SAFETY: the call has no requirements, and fails where there is no such descriptor.
        let counter = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
        if counter < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was opened just now, and nobody else knows it.
        let counter = unsafe { OwnedFd::from_raw_fd(counter) };
        let shown = readlink(format!("/proc/self/fd/{}", counter.as_raw_fd()), Vec::new())?;
        match shown.as_c_str() == COUNTER {
            true => Ok(Self::Counter(counter)),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    /// Tells of an event. What finds no room is lost, as where a kernel has no memory for it.
    fn report(&self) {
        match self {
            Self::Channel(channel, cookie) => {
                channel.report(cookie.to_ne_bytes());
            }
            Self::Counter(counter) => {
                // A counter that is full tells of events enough. Not by the C library, as with channels.
                let _ = rustix::io::write(counter, &1_u64.to_ne_bytes());
            }
        }
    }
}

/// How the system shows a counter.
const COUNTER: &CStr = c"anon_inode:[eventfd]";

/// By source and number of the event.
type Subscriptions = BTreeMap<(Source, u8), Vec<Arc<Target>>>;

static SUBSCRIPTIONS: Mutex<Subscriptions> = Mutex::new(BTreeMap::new());

fn subscriptions() -> MutexGuard<'static, Subscriptions> {
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

/// From now on such events of the source go there.
pub fn subscribe(source: Source, event: u8, target: Arc<Target>) {
    let mut subscriptions = subscriptions();
    let subscribed = subscriptions.entry((source, event)).or_default();
    subscribed.push(target);
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
    for target in subscribed.into_iter().flatten() {
        target.report();
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
        let to = |cookie| Arc::new(Target::Channel(channel.clone(), cookie));
        subscribe(pair, access, to(1));
        subscribe(queue, EventType::CQ_ERROR.0, to(2));
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

    #[test]
    fn a_counter_counts_events_also_when_its_user_has_closed_it() {
        // SAFETY: the call has no requirements.
        let file = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK) };
        // SAFETY: it was opened just now.
        let user = unsafe { OwnedFd::from_raw_fd(file) };
        let mut kept = File::from(user.try_clone().unwrap());
        let queue = Source::CompletionQueue(8);
        let target = Arc::new(Target::counter(file).unwrap());
        drop(user);
        subscribe(queue, EventType::CQ_ERROR.0, target);
        report(queue, Kind::CompletionQueueError);
        report(queue, Kind::CompletionQueueError);
        let mut counted = [0; 8];
        kept.read_exact(&mut counted).unwrap();
        assert_eq!(counted, 2_u64.to_ne_bytes());
        remove(queue);
    }

    #[test]
    fn what_is_no_counter_is_refused() {
        let errno = |file| {
            let refused = Target::counter(file).err().expect("no counter");
            (refused.kind(), refused.raw_os_error())
        };
        assert_eq!(errno(-1).1, Some(libc::EBADF));
        let file = File::open("/dev/null").unwrap();
        assert_eq!(errno(file.as_raw_fd()).0, io::ErrorKind::InvalidInput);
    }
}
