//! What befalls queues and no completion tells, as the card reports it (a DEVX event channel).

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use mlx5_wqe::prm::EventType;
use mlx5_wqe::{CqNumber, QpNumber};

use super::bindings::{EventChannel, values};
use super::context::{Context, Object, last, status, system};
use super::error::Mlx5Error;

/// What has befallen a queue of a card. The queue stands still from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CardEvent {
    /// A completion queue had no room for a completion, or met another fault.
    CompletionQueueError {
        /// Which one.
        cqn: u32,
    },
    /// A queue pair is lost, as when its completion queue is.
    QueuePairFatal {
        /// Which one.
        qpn: u32,
    },
    /// The other end asked a queue pair for what cannot be done.
    InvalidRequest {
        /// Which one.
        qpn: u32,
    },
    /// The other end had no right to what it asked of a queue pair.
    AccessViolation {
        /// Which one.
        qpn: u32,
    },
}

impl fmt::Display for CardEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CompletionQueueError { cqn } => {
                write!(f, "completion queue {cqn:#x} has no room, or is at fault")
            }
            Self::QueuePairFatal { qpn } => write!(f, "queue pair {qpn:#x} is lost"),
            Self::InvalidRequest { qpn } => {
                write!(f, "queue pair {qpn:#x} got a request that cannot be done")
            }
            Self::AccessViolation { qpn } => {
                write!(
                    f,
                    "queue pair {qpn:#x} got a request without the right to it"
                )
            }
        }
    }
}

impl CardEvent {
    /// The event of a cookie, which is the event's number above the queue's.
    fn of(cookie: u64) -> Option<Self> {
        let number = cookie as u32;
        Some(match EventType((cookie >> 32) as u8) {
            EventType::CQ_ERROR => Self::CompletionQueueError { cqn: number },
            EventType::WQ_CATASTROPHE => Self::QueuePairFatal { qpn: number },
            EventType::WQ_INVALID_REQUEST => Self::InvalidRequest { qpn: number },
            EventType::WQ_ACCESS_ERROR => Self::AccessViolation { qpn: number },
            _ => return None,
        })
    }
}

/// The card's number of an event above the queue's.
fn cookie(event: EventType, queue: u32) -> u64 {
    u64::from(event.0) << 32 | u64::from(queue)
}

/// A queue that has events.
pub(super) enum Queue {
    Completion(CqNumber),
    Pair(QpNumber),
}

/// A channel of events, freed when it is dropped.
#[derive(Debug)]
pub(super) struct Events {
    context: Arc<Context>,
    raw: NonNull<EventChannel>,
}

// SAFETY: it is not tied to a thread.
unsafe impl Send for Events {}
// SAFETY: libmlx5 changes nothing in it.
unsafe impl Sync for Events {}

impl Events {
    /// Opens a channel, where system and card have such: queues work without.
    pub fn open(context: &Arc<Context>) -> Option<Self> {
        let opened = Self::try_open(context);
        opened
            .inspect_err(|error| tracing::warn!(%error, "no events are reported"))
            .ok()
    }

    fn try_open(context: &Arc<Context>) -> io::Result<Self> {
        // SAFETY: the device is open.
        let raw = unsafe {
            let create = context.functions.mlx5dv_devx_create_event_channel;
            create(context.raw(), values::EVENT_CHANNEL_WITHOUT_DATA)
        };
        let events = Self {
            context: context.clone(),
            raw: NonNull::new(raw).ok_or_else(last)?,
        };
        // SAFETY: the channel lives, and its file with it.
        let set = unsafe {
            let file = events.raw.as_ref().fd;
            libc::fcntl(file, libc::F_SETFL, libc::O_NONBLOCK)
        };
        status(set)?;
        Ok(events)
    }

    /// Has a queue's events told from now on.
    pub fn subscribe(&self, object: &Object, queue: &Queue) {
        let (events, number): (&[EventType], _) = match queue {
            Queue::Completion(number) => (&[EventType::CQ_ERROR], number.get()),
            Queue::Pair(number) => (
                &[
                    EventType::WQ_CATASTROPHE,
                    EventType::WQ_INVALID_REQUEST,
                    EventType::WQ_ACCESS_ERROR,
                ],
                number.get(),
            ),
        };
        for event in events {
            let mut list = [u16::from(event.0)];
            // SAFETY: channel and object live; the list is read, and has as many bytes.
            let subscribed = status(unsafe {
                let subscribe = self.context.functions.mlx5dv_devx_subscribe_devx_event;
                let bytes = size_of_val(&list) as u16;
                let cookie = cookie(*event, number);
                subscribe(
                    self.raw.as_ptr(),
                    object.raw(),
                    bytes,
                    list.as_mut_ptr(),
                    cookie,
                )
            });
            if let Err(error) = subscribed {
                tracing::warn!(%error, %event, number, "an event is not reported");
            }
        }
    }

    /// What has come since the last call.
    pub fn read(&self) -> Result<Vec<CardEvent>, Mlx5Error> {
        let mut events = Vec::new();
        loop {
            let mut cookie = 0_u64;
            // SAFETY: the channel lives; the cookie has the bytes that the call is told.
            let read = unsafe {
                let get = self.context.functions.mlx5dv_devx_get_event;
                get(
                    self.raw.as_ptr(),
                    (&raw mut cookie).cast(),
                    size_of::<u64>(),
                )
            };
            match (read, last()) {
                (0.., _) => events.extend(CardEvent::of(cookie)),
                (_, error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(events),
                (_, error) => return Err(system("read the card's events")(error)),
            }
        }
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        // SAFETY: it lives, and ends here.
        unsafe { (self.context.functions.mlx5dv_devx_destroy_event_channel)(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_names_event_and_queue() {
        let of = |event| CardEvent::of(cookie(event, 0xff_ffff)).map(|event| event.to_string());
        for (event, words) in [
            (
                EventType::CQ_ERROR,
                "completion queue 0xffffff has no room, or is at fault",
            ),
            (EventType::WQ_CATASTROPHE, "queue pair 0xffffff is lost"),
            (
                EventType::WQ_INVALID_REQUEST,
                "queue pair 0xffffff got a request that cannot be done",
            ),
            (
                EventType::WQ_ACCESS_ERROR,
                "queue pair 0xffffff got a request without the right to it",
            ),
        ] {
            assert_eq!(of(event).as_deref(), Some(words));
        }
        assert_eq!(of(EventType(0)), None);
    }
}
