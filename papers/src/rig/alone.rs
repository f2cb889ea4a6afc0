//! What a driver takes alone: ends whose NIC only completes, and to which all data has come.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;
use warpbell::wqe::{CqeOpcode, CqeTail, Doorbell, Opcode, QpNumber};
use warpbell::{
    CompletionKind, CompletionParts, CompletionSlot, DoorbellPage, FenceReach, SendParts,
    SendQueueHandle, Word32, Word64, WordExt,
};
use warpbell_bench::run::interrupt;
use warpbell_host_init::{Node, QueuePair, Shared};

use super::{End, Rig};
use crate::Error;

/// What a driver takes for a batch or a request, if nobody carries out what it posts and it waits for no data.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Alone {
    /// Batches or requests by which it was measured.
    pub rounds: u64,
    /// Microseconds of each.
    pub us: f64,
    /// The rest of the time with the NIC, in hundredths of that time. Where the driver takes no less alone, it is 0 or
    /// below.
    pub nic_percent: f64,
}

impl Alone {
    /// What took so many microseconds alone, and `with_us` with the NIC.
    pub(crate) fn new(rounds: u64, us: f64, with_us: f64) -> Self {
        Self {
            rounds,
            us,
            nic_percent: 100.0 * (1.0 - us / with_us),
        }
    }

    /// The end of a row of a table, for a human.
    pub(crate) fn words(alone: Option<&Self>) -> String {
        alone.map_or(String::new(), |alone| {
            let Self {
                us, nic_percent, ..
            } = alone;
            format!("  driver alone {us:.2} µs, NIC {nic_percent:.1} %")
        })
    }
}

/// What a queue has in place of what its NIC looks at and writes.
#[repr(C, align(128))]
struct Seat {
    doorbell: Word64,
    /// Its doorbell record, if it has one.
    record: Word32,
    /// That of its completions, which nobody reads.
    taken: Word32,
    /// All of its CQEs, one over the other.
    completion: CompletionSlot,
}

/// What queues and completer have in common.
struct Seats {
    all: Shared<[Seat]>,
    numbers: Vec<QpNumber>,
    /// Blocks that were posted to each.
    posted: Vec<AtomicU64>,
    over: AtomicBool,
}

/// A thread of the host in place of a NIC: it completes all that is posted as soon as a doorbell rings, and carries out
/// nothing. The NIC itself hears of nothing.
pub(super) struct Completer {
    seats: Arc<Seats>,
    thread: Option<JoinHandle<()>>,
}

impl Completer {
    fn start(node: &Node, pairs: &[QueuePair]) -> Result<Self, Error> {
        let seat = |_| Seat {
            doorbell: Word64::new(0),
            record: Word32::new(0),
            taken: Word32::new(0),
            completion: CompletionSlot::invalid(),
        };
        let number = |pair: &QueuePair| QpNumber::from_low_bits(pair.qpn());
        let seats = Arc::new(Seats {
            all: node.shared_slice(pairs.len(), seat)?,
            numbers: pairs.iter().map(number).collect(),
            posted: pairs.iter().map(|_| AtomicU64::new(0)).collect(),
            over: AtomicBool::new(false),
        });
        let thread = thread::spawn({
            let seats = seats.clone();
            move || seats.complete()
        });
        Ok(Self {
            seats,
            thread: Some(thread),
        })
    }

    /// Blocks that were posted to each queue, the fewest of them.
    fn posted(&self) -> u64 {
        let posted = self.seats.posted.iter();
        let posted = posted.map(|blocks| blocks.load(Ordering::Relaxed));
        posted.min().unwrap_or(0)
    }

    /// The queue of a pair, with that seat.
    pub(super) fn handle<'q>(
        &'q self,
        seat: usize,
        pair: &'q QueuePair,
    ) -> Result<SendQueueHandle<'q>, Error> {
        let seat = &self.seats.all[seat];
        let parts = SendParts {
            record: &seat.record,
            doorbell: &seat.doorbell,
            completions: CompletionParts {
                ring: &seat.completion,
                record: &seat.taken,
                depth_log2: 0,
                kind: CompletionKind::Collapsed,
            },
            reach: FenceReach::System,
            doorbell_page: DoorbellPage::Memory,
            ..pair.send_queue()?.parts()
        };
        // SAFETY: ring and state are the pair's, which is borrowed as long, and its NIC has never heard of them; the rest
        // is a seat, where its kernels and the host reach it, and which lives as long as `self`. The completer alone
        // writes its one CQE. The fences reach all.
        Ok(unsafe { SendQueueHandle::new(parts) })
    }
}

impl Seats {
    /// Completes what is posted, until all is over.
    fn complete(&self) {
        let mut ends = vec![0; self.numbers.len()];
        while !self.over.load(Ordering::Relaxed) {
            let mut found = false;
            for (index, end) in ends.iter_mut().enumerate() {
                let seat = &self.all[index];
                let rung = Doorbell(seat.doorbell.load_relaxed()).index().0;
                let blocks = rung.wrapping_sub(*end);
                if blocks > 0 {
                    *end = rung;
                    self.posted[index].fetch_add(blocks.into(), Ordering::Relaxed);
                    let (opcode, qpn) = (CqeOpcode::REQUESTER, self.numbers[index]);
                    let newest = rung.wrapping_sub(1);
                    let tail = CqeTail::new(opcode, false, Opcode::RDMA_WRITE, qpn, newest);
                    // The count before the CQE, by which the driver ends.
                    seat.completion.words()[7].store_release(tail.0);
                    found = true;
                }
            }
            if !found {
                thread::yield_now();
            }
        }
    }
}

impl Drop for Completer {
    fn drop(&mut self) {
        self.seats.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic; whoever drops this may.
            let _ = thread.join();
        }
    }
}

/// What all signals of an end say to which everything has come.
const HERE: u64 = u64::MAX / 2;
/// Between two looks at whether a server has had its time.
const NAP: Duration = Duration::from_micros(100);

impl Rig {
    /// The same ends, of which nobody carries out what they post.
    ///
    /// # Errors
    /// No memory.
    pub fn completed(self) -> Result<Self, Error> {
        Ok(Self {
            near: self.near.completed(&self.node)?,
            far: self.far.completed(&self.node)?,
            ..self
        })
    }
}

impl End {
    /// The same end; what it posts from now on a thread of the host completes at once, and nobody carries it out.
    ///
    /// # Errors
    /// No memory.
    fn completed(self, node: &Node) -> Result<Self, Error> {
        Ok(Self {
            completer: Some(Completer::start(node, &self.pairs)?),
            ..self
        })
    }

    /// All messages have come to this end, whatever their numbers.
    pub fn all_are_here(&self) {
        self.tell_all(HERE);
    }

    fn completer(&self) -> &Completer {
        self.completer.as_ref().expect("a completed end")
    }

    /// Blocks that were posted to each queue of a completed end, the fewest of them.
    ///
    /// # Panics
    /// If the end is none.
    pub fn posted(&self) -> u64 {
        self.completer().posted()
    }

    /// Has a server of this completed end serve: all messages have come, until `limit` is over or Ctrl-C is pressed,
    /// and each queue has posted something; then all signals say `end`. Gives what `serve` gives, and how long it
    /// had from where it says that it begins.
    ///
    /// # Panics
    /// If the end is no completed one.
    pub fn alone(
        &self,
        limit: Duration,
        end: u64,
        serve: impl FnOnce(&dyn Fn()) -> Result<(), Error> + Send,
    ) -> (Result<(), Error>, Duration) {
        let completer = self.completer();
        self.all_are_here();
        let began = OnceLock::new();
        let elapsed = || began.get().map_or(Duration::ZERO, Instant::elapsed);
        let goes_on = || completer.posted() == 0 || (elapsed() < limit && !interrupt::requested());
        thread::scope(|scope| {
            let serving = scope.spawn(|| {
                serve(&|| {
                    began.get_or_init(Instant::now);
                })
            });
            while !serving.is_finished() && goes_on() {
                thread::sleep(NAP);
            }
            let took = elapsed();
            self.tell_all(end);
            let served = serving.join();
            let served = served.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (served, took)
        })
    }
}

#[cfg(test)]
mod tests {
    use warpbell::wqe::Wqe;
    use warpbell::{Deadline, Exclusive};

    use super::*;
    use crate::rig::Driver;

    fn rig(node: &Node, parts: u32) -> Rig {
        let rig = Rig::new(node, [Driver::Kernel, Driver::Host], parts, 16).unwrap();
        rig.completed().unwrap()
    }

    #[test]
    fn all_that_is_posted_is_complete_and_nobody_carries_it_out() {
        let node = Node::cpu();
        let rig = rig(&node, 2);
        let (near, far) = (&rig.near, &rig.far);
        let memories = [near, far].map(|end| end.memory(&node, 8).unwrap());
        memories[0].write(0, &[7; 8]);
        let handles = rig.handles(near).unwrap();
        let path = near.path(far, &handles, (&memories[0], &memories[1]), 8);
        let limit = Deadline::after_ms(300_000);
        // More blocks than an index counts, and by far more than the ring holds.
        let rounds = (1 << 15) + 10;
        let mut queue = handles[1].open::<Exclusive>().unwrap();
        for number in 1..=rounds {
            let mut both = queue.batch(2, limit).unwrap();
            let _ = both.post(path.write_part(0, 0, 0)).unwrap();
            let told = both.post(path.tell(1, number).signalled()).unwrap();
            drop(both);
            queue.wait(told, limit).unwrap();
        }
        let posted = &near.completer().seats.posted;
        let posted = posted.iter().map(|blocks| blocks.load(Ordering::Relaxed));
        assert_eq!(posted.collect::<Vec<_>>(), [0, 2 * rounds]);
        assert_eq!((near.posted(), far.posted()), (0, 0));
        assert!(memories[1].holds(&[0; 8]));
        assert_eq!(far.newest(), 0);
    }

    #[test]
    fn a_server_has_all_messages_until_each_queue_has_posted_and_time_is_over() {
        const END: u64 = u64::MAX;
        let node = Node::cpu();
        let rig = rig(&node, 2);
        let limit = Duration::from_millis(20);
        let (ran, took) = rig.far.alone(limit, END, |begin| {
            let mut queues = rig.far.host_queues()?;
            let told = |part| rig.far.told(part);
            assert!(
                [0, 1]
                    .map(told)
                    .iter()
                    .all(|&told| (1..END).contains(&told))
            );
            begin();
            thread::sleep(2 * limit);
            for (part, queue) in (0..).zip(&mut queues) {
                // Time is over, and not all have posted.
                assert_ne!(told(part), END);
                queue.post([Wqe::nop()].into_iter())?;
                queue.drain()?;
            }
            while told(0) != END || told(1) != END {
                thread::yield_now();
            }
            Ok(())
        });
        ran.unwrap();
        assert!(took >= 2 * limit);
        assert_eq!(rig.far.posted(), 1);
    }

    #[test]
    fn a_server_that_fails_ends_at_once() {
        let node = Node::cpu();
        let rig = rig(&node, 1);
        let fails = |_: &dyn Fn()| Err(Error::AloneAmongRanks);
        let (ran, took) = rig.far.alone(Duration::MAX, 1, fails);
        assert!(matches!(ran, Err(Error::AloneAmongRanks)));
        assert_eq!(took, Duration::ZERO);
    }

    #[test]
    fn the_nics_share_is_the_rest_of_the_time_with_it() {
        let alone = Alone::new(10, 4.0, 16.0);
        assert_eq!(alone.nic_percent, 75.0);
        let words = "  driver alone 4.00 µs, NIC 75.0 %";
        assert_eq!(Alone::words(Some(&alone)), words);
        assert_eq!(Alone::words(None), "");
        assert_eq!(Alone::new(10, 20.0, 16.0).nic_percent, -25.0);
    }
}
