//! Several writes at a time in a lent queue, which as many lanes execute together.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use warpbell_soft_hca_gpu::Lanes;

use super::*;

const LANES: u32 = 4;

/// A thread that is a lane.
#[derive(Clone, Copy)]
struct Lane {
    index: u32,
    meeting: &'static Meeting,
}

/// Where they meet, and what each brings there.
struct Meeting {
    barrier: Barrier,
    brought: [AtomicU64; LANES as usize],
}

impl Lane {
    /// What all lanes bring, which they look at between two meetings.
    fn exchange(self, value: u64) -> [u64; LANES as usize] {
        let Meeting { barrier, brought } = self.meeting;
        brought[self.index as usize].store(value, Ordering::Relaxed);
        barrier.wait();
        let all = brought.each_ref().map(|word| word.load(Ordering::Relaxed));
        barrier.wait();
        all
    }
}

// SAFETY: a barrier orders what all threads do before it before what they do behind it.
unsafe impl Lanes for Lane {
    fn index(self) -> u32 {
        self.index
    }

    fn count(self) -> u32 {
        LANES
    }

    fn ballot(self, predicate: bool) -> u32 {
        let bits = self.exchange(predicate.into()).into_iter().enumerate();
        bits.map(|(lane, bit)| (bit as u32) << lane).sum()
    }

    fn broadcast(self, value: u64, from: u32) -> u64 {
        self.exchange(value)[from as usize]
    }

    fn sync(self) {
        self.meeting.barrier.wait();
    }
}

/// A lane of a crew that works on a thread, for one round.
struct Member(Crew<'static, 'static, Guarded, Lane>);

// SAFETY: what it has is its own but for the desk, which threads may share, and of which lanes touch in turn what is the
// crew's, whichever threads they are.
unsafe impl Send for Member {}

impl Member {
    fn round(&mut self) {
        self.0.round();
    }
}

/// A rig whose queues are lent to a crew of several lanes, in place of its own one.
struct Together {
    rig: Rig<Loopback<32>>,
    crew: Vec<Member>,
}

impl Together {
    fn new() -> Self {
        let mut rig = Rig::new(Loopback::new(MTU), Access::all());
        let desk = Desk::set_up(Box::leak(Box::new(MaybeUninit::uninit())), LANES);
        // SAFETY: the desk is new, and has one engine, which has lent nothing yet.
        rig.lender = unsafe { Lender::new(desk) };
        let meeting = &*Box::leak(Box::new(Meeting {
            barrier: Barrier::new(LANES as usize),
            brought: Default::default(),
        }));
        let lane = |index| {
            let memory = Guarded {
                range: rig.guarded.clone(),
                stores: rig.stores.clone(),
                lane: index,
                ..Guarded::default()
            };
            // SAFETY: the desk was set up for so many lanes.
            Member(unsafe { Crew::new(desk, Lane { index, meeting }, memory) })
        };
        let crew = (0..LANES).map(lane).collect();
        Self { rig, crew }
    }

    fn some_rounds(&mut self) {
        for _ in 0..10 {
            let rig = &mut self.rig;
            rig.engine.step_with(rig.now, &mut rig.lender);
            thread::scope(|scope| {
                for lane in &mut self.crew {
                    scope.spawn(|| lane.round());
                }
            });
        }
    }
}

/// Whoever polls a word, or what lay in the ring, goes on to read the payloads that were written before it; those that
/// other lanes of the same round have stored, too.
#[test]
fn orders_words_behind_the_payloads_of_other_lanes() {
    let mut together = Together::new();
    let memory = together.rig.memory;
    let (payload, polled) = (memory.remote(512), memory.remote(768));
    let write = Wqe::<1>::write(memory.local(0, 64), payload);
    let words = [
        Wqe::<1>::write_value([1u64, 2, 3], polled),
        Wqe::<1>::write_value([1u64, 2], polled),
        Wqe::<1>::write_value(1u64, polled),
        Wqe::<1>::write(memory.local(0, 8), polled),
    ];
    // With completions, so that nothing is unordered at first: what is unordered is fenced in any case.
    let done = |together: &mut Together| {
        together.rig.pairs[0].post(write.signalled());
        together.some_rounds();
        let completions = together.rig.pairs[0].send_cq.drain();
        assert_eq!(completions.len(), 1);
        together.rig.stores.lock().unwrap().clear();
    };
    // The second one finds the keys known.
    done(&mut together);
    for payloads in 1..LANES {
        for word in words {
            done(&mut together);
            for _ in 0..payloads {
                together.rig.pairs[0].write(write);
            }
            together.rig.pairs[0].post(word);
            together.some_rounds();
            let stores = together.rig.stores.lock().unwrap();
            let is_at = |stored: Stored, at: u64| stored == Stored::At(at);
            let written = stores
                .iter()
                .rposition(|&(_, stored)| is_at(stored, payload.address))
                .unwrap();
            let mut by = Vec::new();
            for (index, &(lane, stored)) in stores.iter().enumerate() {
                if is_at(stored, polled.address) {
                    let between = stores.get(written..index).expect("a word before a payload");
                    assert!(between.contains(&(lane, Stored::Released)), "{stores:?}");
                    by.push(lane);
                }
            }
            assert_ne!(by, [], "{stores:?}");
            // A word is stored by the lane whose write it is: all of them were executed together.
            if let [lane] = by[..] {
                assert_eq!(lane, payloads, "{stores:?}");
            }
        }
    }
}
