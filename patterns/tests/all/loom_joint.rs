//! Triggers against the registration by a host with which they have no atomics in common, in every interleaving that loom
//! finds: an operation is rung for once, by the last of its triggers or by the host, and with the data of all who
//! triggered it; and twins without a fence or a step, in which loom must find the fault.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use warpbell::wqe::Opcode;
use warpbell::{CompletionKind, Deadline, LeftOut, Thread, Word64};
use warpbell_patterns::trigger::{
    Counter, Error, JointHandle, JointTag, JointTicket, JointTriggers, Ringer, TagQueue,
};

use crate::common::Rig;
use crate::common::model::{model, model_with};
use crate::loom_trigger::write;

const NOW: Deadline = Deadline::PASSED;

/// One tag, and a word of data for each of two threads.
struct Table {
    tag: JointTag,
    /// Leads into `rig`, which is freed after it.
    queue: TagQueue<'static>,
    rig: Box<Rig>,
    data: [Word64; 2],
}

impl Table {
    fn new() -> Arc<Self> {
        let rig = Box::new(Rig::new(2, CompletionKind::Ordinary));
        // SAFETY: the rig stays where it is as long as the queue.
        let queue = unsafe {
            let rig: *const Rig = &*rig;
            TagQueue::new((*rig).handle())
        };
        Arc::new(Self {
            tag: JointTag::new(),
            queue,
            rig,
            data: [Word64::new(0), Word64::new(0)],
        })
    }

    fn triggers(&self) -> JointTriggers<'_> {
        // SAFETY: a table of one, which lives as long; its completions are a ring of the queue's depth.
        unsafe { JointHandle::new(&self.tag, &self.queue, 1) }
            .open()
            .unwrap()
    }

    fn register(&self, threshold: u32) -> Result<Ringer, Error> {
        // SAFETY: the tag's queue, used through the tag alone.
        unsafe {
            self.tag
                .register(&self.rig.handle(), threshold, [write()], NOW)
        }
    }

    /// Asks who rings for the newest operation, once every thread has looked.
    fn settle(&self) -> Ringer {
        // SAFETY: as above.
        unsafe { self.tag.settle(&self.rig.handle(), NOW) }.unwrap()
    }

    /// A word of the tag, for those that do so by hand: what kernels say, what the host says, what it knows.
    fn word(&self, number: usize) -> &Word64 {
        let tag: *const JointTag = &self.tag;
        // SAFETY: one of its words, of which there are four.
        unsafe { &*tag.cast::<Word64>().add(number) }
    }

    fn tally(&self) -> &Word64 {
        self.word(0)
    }

    fn offer(&self) -> Counter {
        Counter::from_bits(self.word(1).load(Ordering::Relaxed))
    }

    fn missing(&self) -> u32 {
        self.triggers().counter(0).unwrap().missing()
    }

    /// What the NIC does when it looks at the doorbell; gives the index that it was rung with.
    fn look(&self) -> Option<u16> {
        let rung = self.rig.doorbell_index()?;
        let recorded = self.rig.producer_index();
        assert!(recorded >= rung, "an old record after its doorbell");
        for block in 0..recorded {
            let found = self.rig.control(block.into());
            let expected = (block, Opcode::RDMA_WRITE);
            assert_eq!(found, expected, "the NIC fetched an old WQE");
        }
        Some(rung)
    }

    /// The same, and it sends the data.
    fn send(&self, data: &[usize]) {
        if self.look().is_some() {
            for &which in data {
                let sent = self.data[which].load(Ordering::Relaxed);
                assert_eq!(sent, 1, "the NIC sends old data");
            }
        }
    }
}

/// How a thread triggers; whether it rang, if it knows.
type Trigger = fn(&Table) -> Option<bool>;

fn trigger(table: &Table) -> Option<bool> {
    table.triggers().trigger::<Thread>(0).unwrap();
    None
}

/// What a trigger by hand leaves out.
#[derive(Clone, Copy, PartialEq)]
enum Without {
    /// It looks at the offer before it counts, and not again.
    Look,
    /// It does not say that it is about to look.
    Entering,
    /// It does not say that it rings.
    Ringing,
    /// Its data is not released.
    Release,
    Nothing,
}

/// The steps of the first trigger, some left out.
fn trigger_by_hand(table: &Table, without: Without) -> Option<bool> {
    let wants = |step| without != step;
    let (tally, order) = (table.tally(), Ordering::Relaxed);
    let mut offer = table.offer();
    fence(match wants(Without::Release) {
        true => Ordering::AcqRel,
        false => Ordering::Acquire,
    });
    let looking = u64::from(wants(Without::Entering));
    let found = tally.fetch_add((1 << 36) + looking, order);
    let number = Counter::from_bits(found).counted() + 1;
    if !offer.is_registered() && wants(Without::Look) {
        fence(Ordering::SeqCst);
        offer = table.offer();
    }
    let rings = offer.is_registered() && offer.counted() == number;
    let rung = u64::from(rings && wants(Without::Ringing)) << 24;
    tally.fetch_add(rung.wrapping_sub(looking), order);
    if rings {
        fence(Ordering::AcqRel);
        table.rig.store_record(offer.end());
        fence(Ordering::Release);
        table.rig.ring(offer.end());
    }
    Some(rings)
}

/// Threads that store and trigger, against the registration of an operation that wants so many of them, and the NIC.
fn race(without: Option<LeftOut>, threads: &'static [Trigger], threshold: u32) {
    model(without, move || {
        let table = Table::new();
        // Those who are not there are not waited for.
        for data in &table.data[threads.len()..] {
            data.store(1, Ordering::Relaxed);
        }
        let wanted: &[usize] = match threads.len() > threshold as usize {
            // Which of them is sent, the operation leaves open.
            true => &[],
            false => &[0, 1],
        };
        let act = |(number, how): (usize, &'static Trigger)| {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.data[number].store(1, Ordering::Relaxed);
                let rang = how(&table);
                // Everybody may be the NIC as well.
                table.send(wanted);
                rang
            })
        };
        let acting: Vec<_> = threads.iter().enumerate().map(act).collect();
        let registered = table.register(threshold);
        table.send(wanted);
        let rang = acting.into_iter().map(|thread| thread.join().unwrap());
        let rang: Vec<_> = rang.collect();
        let ringer = match registered {
            Ok(ringer) => ringer,
            Err(Error::Unsettled) => table.settle(),
            Err(error) => panic!("{error:?}"),
        };
        assert_eq!(table.missing(), 0, "a trigger is lost");
        // A thread that does not know has said so beside its triggers, at the bit that the ones by hand use.
        let said = table.tally().load(Ordering::Relaxed) >> 24 & 1 == 1;
        let rung = match rang.contains(&None) {
            true => usize::from(said),
            false => rang.iter().filter(|&&rang| rang == Some(true)).count(),
        };
        let rung = rung + usize::from(ringer == Ringer::Host);
        assert_ne!(rung, 0, "nobody rang");
        assert_eq!(rung, 1, "it was rung twice");
        assert_eq!(table.look(), Some(1), "whoever rang");
        table.send(wanted);
    });
}

#[test]
fn a_trigger_or_the_host_rings() {
    race(None, &[trigger], 1);
}

#[test]
fn the_last_of_two_triggers_or_the_host_rings() {
    race(None, &[trigger, trigger], 2);
}

#[test]
fn one_trigger_too_many_rings_not_again() {
    race(None, &[trigger, trigger], 1);
}

const BY_HAND: Trigger = |table| trigger_by_hand(table, Without::Nothing);

#[test]
fn the_steps_by_hand_are_those_of_a_trigger() {
    race(None, &[BY_HAND], 1);
}

#[test]
#[should_panic(expected = "nobody rang")]
fn counting_comes_before_looking() {
    race(None, &[|table| trigger_by_hand(table, Without::Look)], 1);
}

#[test]
#[should_panic(expected = "it was rung twice")]
fn the_host_waits_for_those_who_look() {
    let how: &[Trigger] = &[|table| trigger_by_hand(table, Without::Entering)];
    race(None, how, 1);
}

#[test]
#[should_panic(expected = "it was rung twice")]
fn who_rings_says_so() {
    race(None, &[|table| trigger_by_hand(table, Without::Ringing)], 1);
}

#[test]
#[should_panic(expected = "nobody rang")]
fn counting_and_offering_want_their_full_fences() {
    race(Some(LeftOut::Full), &[trigger], 1);
}

#[test]
#[should_panic(expected = "the NIC sends old data")]
fn triggers_release_their_data() {
    let how: &[Trigger] = &[|table| trigger_by_hand(table, Without::Release), trigger];
    race(None, how, 2);
}

#[test]
#[should_panic(expected = "the NIC fetched an old WQE")]
fn triggers_want_their_acquire_fences() {
    race(Some(LeftOut::Acquire), &[trigger], 1);
}

/// Two threads trigger for an operation each, behind so many that went by a trigger. The second is registered when the
/// first is done.
fn two_operations(behind: u16, preemptions: usize) {
    model_with(None, preemptions, move || {
        let table = Table::new();
        for index in 0..behind {
            assert_eq!(table.register(1), Ok(Ringer::Trigger));
            trigger(&table);
            assert_eq!(table.look(), Some(index + 1));
            table.rig.complete(index.into(), index);
        }
        let acting = [0, 1].map(|_| {
            let table = Arc::clone(&table);
            thread::spawn(move || trigger(&table))
        });
        let mut first = table.register(1);
        // Plays the NIC, once it is rung.
        let rung = table.look() == Some(behind + 1);
        let next = || {
            table.rig.complete(behind.into(), behind);
            table.register(1)
        };
        let early = rung.then(next);
        for thread in acting {
            thread.join().unwrap();
        }
        let second = early.unwrap_or_else(|| {
            first = Ok(table.settle());
            assert_eq!(table.look(), Some(behind + 1), "the first was not sent");
            next()
        });
        let newest = table.settle();
        assert_eq!(second.unwrap_or(newest), newest, "it is told otherwise");
        assert_eq!(table.look(), Some(behind + 2), "the second was not sent");
        let counter = table.triggers().counter(0).unwrap();
        assert_eq!((counter.counted(), counter.missing()), (1, 0));
        // One that was not settled was rung for by a trigger.
        let ringers = [first.unwrap_or(Ringer::Trigger), newest];
        let by_triggers = ringers.iter().filter(|&&ringer| ringer == Ringer::Trigger);
        let all = u64::from(behind) + by_triggers.count() as u64;
        // Nothing but that bit, and the count of triggers.
        let expected = u64::from(behind + 2) << 36 | all % 2 << 24;
        let said = table.tally().load(Ordering::Relaxed);
        assert_eq!(said, expected, "{ringers:?}");
    });
}

#[test]
fn triggers_are_counted_once_across_operations() {
    two_operations(0, 3);
}

#[test]
fn who_rings_is_said_at_the_bit_as_it_stands() {
    // One thread is between its addition and its look while the other one rings and the host goes on.
    two_operations(1, 4);
}

/// A host that closes behind its last operation, against a thread that waits for that.
fn close_behind_the_last(wait: fn(&Table, JointTicket<Thread>) -> Result<(), Error>) {
    model(None, move || {
        let table = Table::new();
        let ticket = table.triggers().trigger(0).unwrap();
        let waiting = Arc::clone(&table);
        let waiting = thread::spawn(move || wait(&waiting, ticket));
        table.register(1).unwrap();
        table.tag.close().unwrap();
        let told = waiting.join().unwrap();
        assert_ne!(told, Err(Error::Closed), "the last operation is overlooked");
    });
}

#[test]
fn the_last_operation_is_seen_before_the_end() {
    close_behind_the_last(|table, ticket| table.triggers().wait(ticket, NOW));
}

#[test]
#[should_panic(expected = "the last operation is overlooked")]
fn a_wait_looks_for_the_end_first() {
    close_behind_the_last(|table, _| {
        let offer = table.offer();
        let closed = table.word(2).load(Ordering::Acquire) & 1 == 1;
        match (offer.is_registered(), closed) {
            (true, _) => Ok(()),
            (false, true) => Err(Error::Closed),
            (false, false) => Err(Error::NotRegistered),
        }
    });
}
