//! Completion channels, in which users read of which queue an event has come.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mlx5_wqe::{CqArm, CqNumber};

use crate::attributes::Errno;
use crate::channel;
use crate::uverbs::Page;

/// A channel of completions: an event names its queue, as `ib_uverbs_comp_event_desc` does.
pub type Channel = channel::Channel<8>;

/// A completion queue with a channel.
#[derive(Debug)]
struct Queue {
    channel: Channel,
    /// Address of its doorbell record's arm word.
    arm_word: u64,
    /// How the user calls it.
    user_handle: u64,
    /// Events that went into the channel.
    reported: u32,
}

/// Each completion queue that has a channel.
static QUEUES: Mutex<BTreeMap<u32, Queue>> = Mutex::new(BTreeMap::new());

fn queues() -> MutexGuard<'static, BTreeMap<u32, Queue>> {
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the arm word holds before a user's first request, and no user writes: bits 30 and 31 are nobody's.
///
/// libmlx5's first request is 0, as a fresh record is. All queues of a page are armed by one register, where a second
/// request may overwrite the first; the engine then looks for words that have changed, so that the first has to be a
/// change. The engine takes this word for a request for solicited events, of which nobody is told.
const NEVER_ARMED: u32 = 0xf100_0000_u32.to_be();

/// Prepares a fresh queue for a channel; `page` is the one whose register arms it.
///
/// # Safety
/// The record must be the queue's, and stay until the queue is destroyed.
pub unsafe fn prepare(number: CqNumber, record: u64, page: &Page) -> Result<(), Errno> {
    // SAFETY: the caller says so.
    unsafe { arm_word(record + 4) }.store(NEVER_ARMED, Ordering::Relaxed);
    page.ring_arm(CqArm::from_word(NEVER_ARMED).doorbell(number))
}

/// # Safety
/// The address must be that of a living queue's arm word.
unsafe fn arm_word<'a>(address: u64) -> &'a AtomicU32 {
    // SAFETY: it is aligned to 4, and who shares it takes it for atomic.
    unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(address as usize)) }
}

/// From now on the queue's events go into the channel.
///
/// # Safety
/// The record must be the queue's, and stay until [`remove`].
pub unsafe fn add(number: CqNumber, record: u64, channel: Channel, user_handle: u64) {
    let queue = Queue {
        channel,
        arm_word: record + 4,
        user_handle,
        reported: 0,
    };
    queues().insert(number.get(), queue);
}

/// Ends that, takes back what nobody has read, and tells how many events the user has read.
pub fn remove(number: CqNumber) -> u32 {
    let mut queues = queues();
    let Some(queue) = queues.remove(&number.get()) else {
        return 0;
    };
    let own = queue.user_handle.to_ne_bytes();
    queue.reported - queue.channel.take_back(|event| *event == own)
}

/// A completion has come to an armed queue.
pub fn hear(number: CqNumber) {
    let mut queues = queues();
    let Some(queue) = queues.get_mut(&number.get()) else {
        return;
    };
    // SAFETY: the record stays until the queue is taken out.
    let word = unsafe { arm_word(queue.arm_word) }.load(Ordering::Relaxed);
    if word != NEVER_ARMED && queue.channel.report(queue.user_handle.to_ne_bytes()) {
        queue.reported += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;

    use super::*;

    #[test]
    fn a_user_reads_events_and_what_nobody_read_goes_with_the_queue() {
        let (channel, read) = Channel::create().unwrap();
        let mut read = File::from(read);
        let [first, second] = [1, 2].map(|number| CqNumber::new(number).unwrap());
        let mut records = [[0_u32; 2], [0; 2]];
        let [one, two] = &mut records;
        let [one, two] = [one, two].map(|record| record.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: the records outlive the queues.
        unsafe {
            add(first, one, channel.clone(), 0x1111);
            add(second, two, channel.clone(), 0x2222);
        }
        for number in [first, second, first] {
            hear(number);
        }
        let mut next = || {
            let mut event = [0; 8];
            read.read_exact(&mut event).unwrap();
            u64::from_ne_bytes(event)
        };
        assert_eq!(next(), 0x1111);
        assert_eq!(remove(first), 1, "one was read, one was not");
        assert_eq!(next(), 0x2222);
        hear(first);
        assert_eq!(channel.take_back(|_| true), 0);
        assert_eq!(remove(second), 1);
        assert_eq!(remove(second), 0);
    }
}
