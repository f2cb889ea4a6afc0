//! GASPI in kernels: how long a notification takes.

use warpbell::{Exclusive, Scope, Slice, Thread, Word64, kernel, thread};
use warpbell_patterns::gaspi::{Error, GASPI_BLOCK, Gaspi, GaspiHandle};

use crate::outcome::Outcome;
use crate::place::Place;

/// The segment of both ranks.
const SEGMENT: u32 = 0;

/// Waits for a notification, takes it, and compares its value.
#[inline(always)]
pub fn expect<C: Scope>(
    gaspi: Gaspi<'_>,
    segment: u32,
    notification: u32,
    value: u32,
) -> Result<(), Error> {
    let first = gaspi.notify_waitsome::<C>(segment, notification, 1, GASPI_BLOCK)?;
    match gaspi.notify_reset::<C>(segment, first)? {
        found if found == value => Ok(()),
        _ => Err(Error::InvalidNotificationValue),
    }
}

/// The whole words of this rank's segment.
#[inline(always)]
pub fn words_of(gaspi: Gaspi<'_>, segment: u32) -> Result<Place, Error> {
    let first = gaspi.segment_ptr(segment)?;
    let bytes = gaspi.segment_size(segment, gaspi.proc_rank())?;
    // SAFETY: the promise of `GaspiHandle::new`; the kernels touch them as atomics.
    Ok(unsafe { Place::in_bytes(first, bytes) })
}

/// Two ranks that notify each other in turn.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct NotifyRoundTrip<'a> {
    /// The rank, 0 or 1; 0 begins.
    pub gaspi: GaspiHandle<'a>,
    /// How many rounds.
    pub rounds: u32,
    /// How many bytes of its segment rank 0 writes ahead of its notifications, if it does.
    pub bytes: u32,
    /// Takes the nanoseconds of each round.
    pub samples: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Plays one side, with one thread; either answers with a notification alone.
#[kernel]
pub fn gaspi_round_trip(p: NotifyRoundTrip<'_>) {
    p.outcome.record(|| Ok(round_trip::<false>(p)?));
}

/// The same; rank 0 notifies behind a write, under one doorbell.
#[kernel]
pub fn gaspi_round_trip_behind(p: NotifyRoundTrip<'_>) {
    p.outcome.record(|| Ok(round_trip::<true>(p)?));
}

#[inline(always)]
fn round_trip<const BEHIND: bool>(p: NotifyRoundTrip<'_>) -> Result<(), Error> {
    let gaspi = p.gaspi.open()?;
    let begins = gaspi.proc_rank() == 0;
    let mut queue = gaspi.queue::<Exclusive, Thread>(0, u32::from(begins))?;
    for round in 0..p.rounds {
        let begin = thread::clock_ns();
        if begins & BEHIND {
            let bytes = u64::from(p.bytes);
            queue.write_notify(SEGMENT, 0, SEGMENT, 0, bytes, 0, round + 1, GASPI_BLOCK)?;
        } else if begins {
            queue.notify(SEGMENT, 0, round + 1, GASPI_BLOCK)?;
        }
        expect::<Thread>(gaspi, SEGMENT, 0, round + 1)?;
        if !begins {
            queue.notify(SEGMENT, 0, round + 1, GASPI_BLOCK)?;
        }
        p.samples.store(round.into(), thread::clock_ns() - begin);
    }
    queue.wait(GASPI_BLOCK)
}
