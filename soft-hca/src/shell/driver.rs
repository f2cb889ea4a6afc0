//! A thread that drives HCAs.

use std::prelude::v1::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::bell::{self, Bell};
use super::hca::{HcaError, Seat, SoftHca};

/// How long a dropped driver waits for its thread.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Empty rounds that a thread spins through, so that a busy HCA answers at once. Few,
/// because on few cores it keeps the kernel waiting whose doorbell it waits for.
const SPINS: u32 = 8;
/// Empty rounds after which a thread no longer yields but sleeps, unless told otherwise: by then some
/// tens of microseconds have passed, and a core is worth more to a kernel.
const YIELDS: u32 = 400;
/// How long it sleeps between looks at the doorbells.
const NAP: Duration = Duration::from_micros(30);
/// Empty rounds after which it takes long naps: some 40 ms have passed, and short
/// ones would cost a third of a core for nothing.
const SHORT_NAPS: u32 = YIELDS + 1000;
/// How long a thread sleeps whose HCAs have been idle for a while.
const LONG_NAP: Duration = Duration::from_micros(250);

/// A yield that takes longer has let another thread run for its time slice: somebody spins, and takes all cores.
const LONG_YIELD: Duration = Duration::from_micros(500);
/// The longest time for which it then sleeps instead of yielding.
const CROWDED: Duration = Duration::from_secs(1);
/// After so many short yields in a row, nobody is taken to spin any more.
const SHORT_YIELDS: u32 = 256;

/// How long it leaves an HCA to somebody who wanted to help: several polls.
const HOLD_BACK: Duration = Duration::from_micros(2);

/// A thread that drives one or more HCAs, until it is dropped.
///
/// Without work it spins for a moment, then yields its core between rounds, then
/// sleeps 30 µs at a time, and 250 µs after some 40 ms, so that it does not starve
/// kernels on few cores. Where a yield takes long, because others spin on all cores, it
/// sleeps at once for as long as that took, and twice as long each time that happens again, up to a
/// second. A packet from another process or machine wakes it. While others
/// [help](SoftHca::help), it sleeps 250 µs at a time.
#[derive(Debug)]
pub struct Driver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    seats: Mutex<Vec<Arc<Seat>>>,
    /// Changes of `seats`, so that the thread need not lock it each round.
    changes: AtomicUsize,
    stop: AtomicBool,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

impl Driver {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`HcaError::Thread`] if the system gives none.
    pub fn spawn() -> Result<Self, HcaError> {
        Self::spawn_with(YIELDS)
    }

    /// Starts a thread that never yields, but sleeps as soon as it has nothing to do: for HCAs beside programs that
    /// spin on their completions. Where those take all cores, a yield costs the rest of their time slice, some
    /// milliseconds; who wakes up goes before them.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub fn spawn_beside_spinners() -> Result<Self, HcaError> {
        Self::spawn_with(0)
    }

    fn spawn_with(yields: u32) -> Result<Self, HcaError> {
        let shared = Arc::<Shared>::default();
        let thread = std::thread::Builder::new()
            .name("warpbell-hca".into())
            .spawn({
                let shared = shared.clone();
                move || run(&shared, yields)
            })
            .map_err(HcaError::Thread)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Drives this HCA from now on, until it stops.
    pub fn drive(&self, hca: &SoftHca) {
        let mut seats = self
            .shared
            .seats
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        seats.push(hca.seat().clone());
        self.shared.changes.fetch_add(1, Ordering::Release);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return;
        };
        let deadline = Instant::now() + STOP_TIMEOUT;
        while !thread.is_finished() {
            if Instant::now() >= deadline {
                tracing::error!(timeout = ?STOP_TIMEOUT, "the thread of an HCA does not end");
                return;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        // The thread catches the engines' panics, so there is nothing to pass on.
        let _ = thread.join();
    }
}

fn run(shared: &Shared, yields: u32) {
    // The default slack of 50 µs would more than double the nap; where it cannot
    // be changed, naps are longer and nothing else.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1_000));
    let mut seats = Vec::new();
    let mut seen = 0;
    let mut empty = 0u32;
    let mut bells = Vec::new();
    let mut yields = Yields::new(yields);
    while !shared.stop.load(Ordering::Relaxed) {
        let changes = shared.changes.load(Ordering::Acquire);
        if changes != seen {
            seen = changes;
            seats.clone_from(&shared.seats.lock().unwrap_or_else(PoisonError::into_inner));
        }
        let mut done = 0;
        let mut stopped = false;
        for seat in &seats {
            match seat.drive() {
                Some(things) => done += things,
                None => stopped = true,
            }
        }
        if stopped {
            let mut all = shared.seats.lock().unwrap_or_else(PoisonError::into_inner);
            all.retain(|seat| !seat.has_stopped());
            seats.clone_from(&all);
        }
        empty = if done > 0 { 0 } else { empty.saturating_add(1) };
        // Who found this thread at work may take over: else a thread that always finds something to do keeps a core
        // for what the other, who polls anyway, does as well.
        let wanted = seats.iter().any(|seat| seat.is_due());
        if wanted {
            hold_back();
        }
        let limit = yields.limit();
        match empty {
            0 => {}
            // Not where others take all cores: who waits for the packet just sent may wait for this very core.
            1..SPINS if limit > 0 => std::hint::spin_loop(),
            _ if empty < limit => yields.once(),
            // One more look for him, should he not come again.
            _ if wanted => {}
            _ => sleep(&seats, &mut bells, &mut empty),
        }
    }
}

/// When a thread yields, and when it rather sleeps: where others take all cores, who wakes up goes before them, but who
/// yields waits for the end of their time slices. One long yield says little: a program that starts takes a time slice,
/// too.
struct Yields {
    /// Empty rounds after which it sleeps in any case.
    limit: u32,
    /// Until when it sleeps at once.
    crowded: Option<Instant>,
    /// How long it sleeps at once after the last long yield; zero if there was none lately.
    pause: Duration,
    /// Yields since then.
    short: u32,
}

impl Yields {
    const fn new(limit: u32) -> Self {
        Self {
            limit,
            crowded: None,
            pause: Duration::ZERO,
            short: 0,
        }
    }

    /// Empty rounds after which it sleeps.
    fn limit(&mut self) -> u32 {
        self.limit_at(Instant::now)
    }

    fn limit_at(&mut self, now: impl FnOnce() -> Instant) -> u32 {
        if let Some(end) = self.crowded {
            if now() < end {
                return 0;
            }
            self.crowded = None;
        }
        self.limit
    }

    fn once(&mut self) {
        let start = Instant::now();
        std::thread::yield_now();
        self.took(start, Instant::now());
    }

    fn took(&mut self, start: Instant, end: Instant) {
        let took = end.saturating_duration_since(start);
        if took > LONG_YIELD {
            self.pause = (2 * self.pause).max(took).min(CROWDED);
            self.crowded = Some(end + self.pause);
            self.short = 0;
        } else if self.short < SHORT_YIELDS {
            self.short += 1;
        } else {
            self.pause = Duration::ZERO;
        }
    }
}

/// Leaves the HCAs alone for a moment.
fn hold_back() {
    let start = Instant::now();
    while start.elapsed() < HOLD_BACK {
        std::hint::spin_loop();
    }
}

/// Sleeps until an HCA has something to do, as far as that can be known, and for a nap at most.
fn sleep(seats: &[Arc<Seat>], bells: &mut Vec<Bell>, empty: &mut u32) {
    let mut helped = false;
    for seat in seats {
        let this_one = seat.was_helped();
        // The program that helps reads the sockets, too. They would wake this thread for each packet.
        seat.bells(bells, !this_one);
        helped |= this_one;
    }
    if helped {
        // When the help ends, short naps come first.
        *empty = YIELDS;
    }
    let nap = if helped || *empty >= SHORT_NAPS {
        LONG_NAP
    } else {
        NAP
    };
    bell::sleep(bells, nap, |packets| {
        // Who is at work sees to the packets that wait.
        let unseen = packets && !seats.iter().any(|seat| seat.is_busy());
        unseen || seats.iter().any(|seat| seat.is_due())
    });
    bells.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_micros(501);

    #[test]
    fn after_a_long_yield_a_thread_sleeps_for_a_while() {
        let start = Instant::now();
        let at = |after| start + after;
        let mut yields = Yields::new(7);
        yields.took(start, at(LONG_YIELD));
        assert_eq!(yields.limit_at(|| unreachable!("nobody was in the way")), 7);
        yields.took(start, at(LONG));
        assert_eq!(yields.limit_at(|| at(LONG)), 0);
        assert_eq!(yields.limit_at(|| at(LONG * 3 / 2)), 0);
        assert_eq!(yields.limit_at(|| at(LONG * 2)), 7);
        assert_eq!(yields.limit_at(|| unreachable!("that is over")), 7);
    }

    /// For how long a thread sleeps at once after a yield that took so long.
    fn pause(yields: &mut Yields, took: Duration) -> Duration {
        let start = Instant::now();
        yields.took(start, start + took);
        let end = yields.crowded.expect("a long yield");
        end - (start + took)
    }

    #[test]
    fn beside_one_who_spins_a_thread_yields_once_a_second() {
        let mut yields = Yields::new(7);
        let pauses: Vec<_> = (0..14).map(|_| pause(&mut yields, LONG)).collect();
        let doubled: Vec<_> = (0..11).map(|times| LONG * (1 << times)).collect();
        assert_eq!(pauses[..11], doubled);
        assert_eq!(pauses[11..], [CROWDED; 3]);
        assert_eq!(pause(&mut yields, 2 * CROWDED), CROWDED);
    }

    #[test]
    fn after_many_short_yields_a_long_one_is_the_first_again() {
        let start = Instant::now();
        for (short, then) in [(SHORT_YIELDS, 2 * LONG), (SHORT_YIELDS + 1, LONG)] {
            let mut yields = Yields::new(7);
            assert_eq!(pause(&mut yields, LONG), LONG);
            (0..short).for_each(|_| yields.took(start, start + LONG_YIELD));
            assert_eq!(pause(&mut yields, LONG), then, "after {short}");
        }
    }
}
