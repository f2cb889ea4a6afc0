//! WAIT and SEND_EN: queues that wait for others' completions, and queues that others start.

use mlx5_wqe::{CqNumber, Cqe64, Opcode, QpNumber, Wqe};
use proptest::prelude::*;
use warpbell_soft_hca::engine::{CrossChannel, QueuePairState, Transition, WireAddress};

use super::world::{
    Connection, Qp, Region, Shape, World, clean, connect_queue_pair, create_queue_pair,
};

/// Wide enough for all that a test posts.
const QUEUES: usize = 4;

/// Queues of one HCA, each connected with one of another.
struct Rig {
    world: World,
    queues: Vec<Qp>,
    peers: Vec<Qp>,
    /// A word for each queue's results at the HCA, and the counter that the peers' HCA keeps.
    results: Region,
    counter: Region,
}

impl Rig {
    fn new(kinds: &[CrossChannel]) -> Self {
        Self::with(kinds, Shape::default())
    }

    fn with(kinds: &[CrossChannel], shape: Shape) -> Self {
        let shape = Shape {
            queue_pairs: 1 + QUEUES + 1,
            ..shape
        };
        let mut world = World::with(shape, Connection::default(), [clean(), clean()]);
        let (mut queues, mut peers) = (Vec::new(), Vec::new());
        for kind in kinds {
            let shape = Shape {
                cross_channel: *kind,
                ..shape
            };
            let near = create_queue_pair(&mut world.a.engine, world.a.pd, shape);
            let far = create_queue_pair(&mut world.b.engine, world.b.pd, Shape::default());
            queues.push(near);
            peers.push(far);
        }
        let results = world.a.region(&[0xff; QUEUES * 16 * 8]);
        let counter = world.b.region(&[0; 8]);
        let mut rig = Self {
            world,
            queues,
            peers,
            results,
            counter,
        };
        for queue in 0..rig.queues.len() {
            rig.connect(queue);
        }
        rig
    }

    fn connect(&mut self, queue: usize) {
        let [near, far] = [self.queues[queue].number, self.peers[queue].number];
        let (a, b) = (&mut self.world.a.engine, &mut self.world.b.engine);
        let (mtu, with) = (self.world.shape.mtu, Connection::default());
        connect_queue_pair(a, near, (WireAddress(1), far), mtu, with);
        connect_queue_pair(b, far, (WireAddress(0), near), mtu, with);
    }

    /// Takes the next number of the counter: so the order of what was executed is known.
    fn count(&self, queue: usize, index: u16) -> Wqe<1> {
        let place = (queue * 16 + usize::from(index) % 16) as u64 * 8;
        Wqe::fetch_add(self.results.local(place, 8), self.counter.remote(0), 1)
    }

    /// The number that a WQE took; none if it was not executed.
    fn counted(&self, queue: usize, index: u16) -> Option<u64> {
        let place = (queue * 16 + usize::from(index) % 16) * 8;
        let value = self.results.buffer.u64_at(place);
        (value != u64::MAX).then_some(value)
    }

    fn cq(&self, queue: usize) -> CqNumber {
        self.queues[queue].send_cq.number
    }

    fn drain(&mut self, queue: usize) -> Vec<(u8, u8, u16)> {
        let said = |cqe: &Cqe64| {
            let tail = cqe.tail();
            let syndrome = match tail.cqe_opcode().0 {
                13 => cqe.error_word().syndrome().0,
                _ => 0,
            };
            (tail.cqe_opcode().0, syndrome, tail.wqe_counter())
        };
        self.queues[queue]
            .send_cq
            .drain()
            .iter()
            .map(said)
            .collect()
    }

    /// Lets everything happen that can, and makes sure that the HCA rests then, whoever waits.
    fn settle(&mut self) {
        self.world.settle();
        assert_eq!(
            self.world.step(),
            0,
            "an HCA that only waits has nothing to do"
        );
    }
}

const PLAIN: CrossChannel = CrossChannel::empty();
const MASTER: CrossChannel = CrossChannel::MASTER;
const MANAGED: CrossChannel = CrossChannel::MANAGED_SEND;
const BOTH: CrossChannel = CrossChannel::all();

#[test]
fn a_queue_waits_for_the_cqe_of_that_number_and_others_go_on() {
    let mut rig = Rig::new(&[MASTER, PLAIN, PLAIN]);
    // 24 bits count.
    let wait = Wqe::wait(rig.cq(1), 0xff00_0001).signalled();
    let behind = rig.count(0, 1).signalled();
    rig.queues[0].write(wait);
    rig.queues[0].post(behind);
    for number in 0..3 {
        rig.settle();
        assert_eq!(rig.counted(0, 1).is_some(), number == 2, "{number} CQEs");
        // One that makes no CQE, and one that does.
        let [silent, telling] = [0, 1].map(|index| rig.count(1, index));
        rig.queues[1].write(silent);
        rig.queues[1].post(telling.signalled());
        let other = rig.count(2, number);
        rig.queues[2].post(other.signalled());
        rig.settle();
        assert_eq!(rig.drain(2), [(0, 0, number)]);
    }
    assert_eq!(rig.drain(0), [(0, 0, 0), (0, 0, 1)]);
    rig.world.check_canaries();
}

#[test]
fn a_wait_for_what_is_there_holds_nothing() {
    let mut rig = Rig::new(&[MASTER]);
    let own = rig.count(0, 0).signalled();
    rig.queues[0].write(own);
    let wait = Wqe::wait(rig.cq(0), 0).signalled();
    rig.queues[0].write(wait);
    rig.queues[0].post(Wqe::<1>::nop().signalled());
    rig.settle();
    assert_eq!(rig.drain(0), [(0, 0, 0), (0, 0, 1), (0, 0, 2)]);
}

#[test]
fn a_managed_queue_runs_up_to_where_it_is_enabled() {
    let mut rig = Rig::new(&[MASTER, MANAGED]);
    for index in 0..4 {
        let wqe = rig.count(1, index).signalled();
        // Record and doorbell are further, and nobody looks.
        rig.queues[1].post(wqe);
        rig.settle();
    }
    assert_eq!(rig.drain(1), []);
    let number = rig.queues[1].number;
    // The same again, and one of before, take nothing back.
    for (end, runs) in [(1, 0..1), (3, 1..3), (3, 3..3), (2, 3..3), (0x10004, 3..4)] {
        rig.queues[0].post(Wqe::<1>::send_enable(number, end).signalled());
        rig.settle();
        let expected: Vec<_> = runs.map(|index| (0, 0, index)).collect();
        assert_eq!(rig.drain(1), expected, "up to {end}");
    }
    let all: Vec<_> = (0..5).map(|index| (0, 0, index)).collect();
    assert_eq!(rig.drain(0), all);
    assert!((0..4).all(|index| rig.counted(1, index) == Some(index.into())));
}

#[test]
fn the_index_goes_round_with_the_ring() {
    let mut rig = Rig::new(&[MASTER, BOTH]);
    let number = rig.queues[1].number;
    for round in 0..5000u32 {
        for index in 0..16 {
            let wqe = match index {
                15 => Wqe::<1>::nop().signalled(),
                _ => Wqe::<1>::nop(),
            };
            rig.queues[1].write(wqe);
        }
        rig.queues[0].post(Wqe::<1>::send_enable(number, 16 * (round + 1)));
        while rig.world.step() > 0 {}
        assert_eq!(rig.drain(1).len(), 1, "round {round}");
    }
}

/// What cannot be carried out fails by name, and nothing behind it is executed.
#[test]
fn what_cannot_be_is_refused() {
    type Make = fn(&mut Rig) -> Wqe<1>;
    let cases: [(&str, CrossChannel, Make); 9] = [
        ("no such CQ", MASTER, |_| {
            Wqe::wait(CqNumber::from_low_bits(0x55_0001), 0)
        }),
        ("no such QP", MASTER, |_| {
            Wqe::send_enable(QpNumber::from_low_bits(0x55_0001), 1)
        }),
        ("not managed", MASTER, |rig| {
            Wqe::send_enable(rig.queues[2].number, 1)
        }),
        ("beyond the ring", MASTER, |rig| {
            Wqe::send_enable(rig.queues[1].number, 17)
        }),
        ("receives", MASTER, |rig| {
            Wqe::receive_enable(rig.queues[1].number, 1)
        }),
        ("not connected", MASTER, |rig| {
            let number = rig.queues[1].number;
            rig.world
                .a
                .engine
                .modify_queue_pair(number, Transition::Reset)
                .unwrap();
            Wqe::send_enable(number, 1)
        }),
        ("nobody who completes", MASTER, |rig| {
            let number = rig.queues[1].number;
            rig.world
                .a
                .engine
                .modify_queue_pair(number, Transition::Reset)
                .unwrap();
            Wqe::wait(rig.cq(1), 0)
        }),
        ("no master that waits", MANAGED, |rig| {
            Wqe::wait(rig.cq(1), 0)
        }),
        ("no master that enables", PLAIN, |rig| {
            Wqe::send_enable(rig.queues[1].number, 1)
        }),
    ];
    for (what, kind, make) in cases {
        let mut rig = Rig::new(&[kind, MANAGED, PLAIN, MASTER]);
        let wqe = make(&mut rig);
        let behind = rig.count(0, 1);
        rig.queues[0].write(wqe);
        rig.queues[0].post(behind);
        if kind == MANAGED {
            let number = rig.queues[0].number;
            rig.queues[3].post(Wqe::<1>::send_enable(number, 2));
        }
        rig.settle();
        assert_eq!(rig.drain(0), [(13, 0x02, 0), (13, 0x05, 1)], "{what}");
        assert_eq!(rig.counted(0, 1), None, "{what}");
        // The queue that was named is as it was.
        rig.queues[2].post(Wqe::<1>::nop().signalled());
        rig.settle();
        assert_eq!(rig.drain(2), [(0, 0, 0)], "{what}");
    }
}

#[test]
fn a_completion_queue_that_ends_ends_the_wait() {
    for overrun in [false, true] {
        let mut rig = Rig::new(&[MASTER, PLAIN]);
        let wait = Wqe::wait(rig.cq(1), 0);
        rig.queues[0].post(wait);
        rig.settle();
        let (engine, number) = (&mut rig.world.a.engine, rig.queues[1].number);
        let send_cq = rig.queues[1].send_cq.number;
        if overrun {
            engine.overrun_completion_queue(send_cq).unwrap();
            rig.queues[1].post(Wqe::<1>::nop().signalled());
        } else {
            engine.destroy_queue_pair(number).unwrap();
            engine.destroy_completion_queue(send_cq).unwrap();
        }
        rig.settle();
        assert_eq!(rig.drain(0), [(13, 0x02, 0)], "overrun: {overrun}");
    }
}

/// Of two queues that wait, the first waits for another one's completions, the second for its own.
#[test]
fn a_queue_pair_that_ends_ends_the_wait_for_its_completions_alone() {
    for destroyed in [false, true] {
        let mut rig = Rig::new(&[MASTER, MASTER, PLAIN]);
        for (queue, waits_for) in [(0, 2), (1, 1)] {
            let wait = Wqe::wait(rig.cq(waits_for), 0);
            rig.queues[queue].post(wait);
        }
        rig.settle();
        let (engine, number) = (&mut rig.world.a.engine, rig.queues[2].number);
        match destroyed {
            true => engine.destroy_queue_pair(number).unwrap(),
            false => engine.modify_queue_pair(number, Transition::Reset).unwrap(),
        }
        rig.settle();
        assert_eq!(rig.drain(0), [(13, 0x02, 0)], "destroyed: {destroyed}");
        assert_eq!(rig.drain(1), [], "destroyed: {destroyed}");
    }
}

#[test]
fn a_queue_that_waits_is_flushed_reset_and_destroyed() {
    let mut rig = Rig::new(&[MASTER, PLAIN]);
    let post = |rig: &mut Rig| {
        let wait = Wqe::wait(rig.cq(1), 5);
        let behind = rig.count(0, 1);
        rig.queues[0].write(wait);
        rig.queues[0].post(behind);
        rig.settle();
    };
    post(&mut rig);
    let number = rig.queues[0].number;
    let modify = |rig: &mut Rig, step| rig.world.a.engine.modify_queue_pair(number, step);
    modify(&mut rig, Transition::Error).unwrap();
    rig.settle();
    assert_eq!(rig.drain(0), [(13, 0x05, 0), (13, 0x05, 1)]);

    // Reset, it knows nothing of the wait any more, nor when that is over.
    for _ in 0..2 {
        modify(&mut rig, Transition::Reset).unwrap();
        let far = rig.peers[0].number;
        let reset = Transition::Reset;
        rig.world.b.engine.modify_queue_pair(far, reset).unwrap();
        rig.queues[0].reset();
        rig.connect(0);
        rig.queues[0].post(Wqe::<1>::nop().signalled());
        rig.settle();
        assert_eq!(rig.drain(0), [(0, 0, 0)]);
        rig.queues[0].producer = 0;
        modify(&mut rig, Transition::Reset).unwrap();
        rig.world.b.engine.modify_queue_pair(far, reset).unwrap();
        rig.queues[0].reset();
        rig.connect(0);
        post(&mut rig);
    }
    rig.world.a.engine.destroy_queue_pair(number).unwrap();
    for _ in 0..8 {
        rig.queues[1].post(Wqe::<1>::nop().signalled());
    }
    rig.settle();
    assert_eq!(rig.drain(1).len(), 8);
    assert_eq!(rig.counted(0, 1), None);
}

/// More than a step flushes.
#[test]
fn all_that_is_behind_a_wait_is_flushed() {
    let shape = Shape {
        log_depth: 8,
        log_cq_depth: 8,
        ..Shape::default()
    };
    let mut rig = Rig::with(&[MASTER, PLAIN], shape);
    let wait = Wqe::wait(rig.cq(1), 0);
    rig.queues[0].write(wait);
    for _ in 0..200 {
        rig.queues[0].write(Wqe::<1>::nop());
    }
    rig.queues[0].ring_doorbell();
    rig.settle();
    let (engine, number) = (&mut rig.world.a.engine, rig.queues[0].number);
    engine.modify_queue_pair(number, Transition::Error).unwrap();
    rig.settle();
    let flushed: Vec<_> = (0..201).map(|index| (13, 0x05, index)).collect();
    assert_eq!(rig.drain(0), flushed);
}

/// Nobody reads it over and over: not before something happens to the completion queue.
#[test]
fn a_queue_that_waits_is_left_alone() {
    let mut rig = Rig::new(&[MASTER, PLAIN]);
    let wait = Wqe::wait(rig.cq(1), 1);
    rig.queues[0].post(wait);
    rig.settle();
    // As if it had been something else.
    rig.queues[0].producer = 0;
    rig.queues[0].post(Wqe::<1>::nop().signalled());
    rig.settle();
    assert_eq!(rig.drain(0), []);
    rig.queues[1].post(Wqe::<1>::nop().signalled());
    rig.settle();
    assert_eq!(rig.drain(0), [(0, 0, 0)]);
}

/// An error's CQE is one like any other: who waits elsewhere goes on, who waits in the failed queue is flushed.
#[test]
fn an_error_stops_a_chain_in_its_own_queue_alone() {
    let mut rig = Rig::new(&[MASTER, MASTER, MANAGED, MANAGED]);
    let [own, other] = [2, 3].map(|queue| {
        let wqe = rig.count(queue, 0).signalled();
        rig.queues[queue].write(wqe);
        rig.queues[queue].number
    });
    let mut nowhere = rig.counter.remote(0);
    nowhere.key.0 ^= 1;
    let wait = Wqe::wait(rig.cq(0), 0);
    rig.queues[1].write(wait);
    rig.queues[1].post(Wqe::<1>::send_enable(other, 1));
    let bad = Wqe::<1>::write(rig.results.local(0, 8), nowhere).signalled();
    rig.queues[0].write(bad);
    rig.queues[0].write(wait);
    rig.queues[0].post(Wqe::<1>::send_enable(own, 1));
    rig.settle();
    assert_eq!(rig.drain(0), [(13, 0x13, 0), (13, 0x05, 1), (13, 0x05, 2)]);
    assert_eq!(rig.drain(3), [(0, 0, 0)], "the wait elsewhere");
    assert_eq!(rig.drain(2), [], "the wait in the failed queue");
    // What is enabled in a queue that has failed is flushed.
    let engine = &mut rig.world.a.engine;
    engine.modify_queue_pair(own, Transition::Error).unwrap();
    rig.queues[1].post(Wqe::<1>::send_enable(own, 1).signalled());
    rig.settle();
    assert_eq!(rig.drain(2), [(13, 0x05, 0)]);
    assert_eq!(rig.drain(1), [(0, 0, 2)]);
}

#[test]
fn a_fence_before_an_enable_waits_for_reads() {
    use mlx5_wqe::Fence;
    let mut rig = Rig::new(&[MASTER, MANAGED]);
    let [first, second] = [rig.count(0, 0), rig.count(1, 0)].map(Wqe::signalled);
    rig.queues[1].write(second);
    let number = rig.queues[1].number;
    rig.queues[0].write(first);
    let enable = Wqe::<1>::send_enable(number, 1).fenced(Fence::InitiatorSmall);
    rig.queues[0].post(enable);
    rig.settle();
    assert_eq!((rig.counted(0, 0), rig.counted(1, 0)), (Some(0), Some(1)));
}

/// One that is to fail by command fails, and enables nothing.
#[test]
fn an_injected_error_strikes_them_too() {
    let mut rig = Rig::new(&[MASTER, MANAGED]);
    let wqe = rig.count(1, 0).signalled();
    rig.queues[1].write(wqe);
    let (own, number) = (rig.queues[0].number, rig.queues[1].number);
    let (syndrome, vendor) = (mlx5_wqe::Syndrome::LOCAL_LENGTH, mlx5_wqe::VendorCode(7));
    let engine = &mut rig.world.a.engine;
    engine.fail_send(own, 1, syndrome, vendor).unwrap();
    let wait = Wqe::wait(rig.cq(1), 0);
    for wqe in [
        Wqe::<1>::send_enable(number, 0),
        Wqe::<1>::send_enable(number, 1),
        wait,
    ] {
        rig.queues[0].post(wqe);
    }
    rig.settle();
    assert_eq!(rig.drain(0), [(13, 0x01, 1), (13, 0x05, 2)]);
    assert_eq!(rig.drain(1), []);
}

/// A step of a random program.
#[derive(Clone, Copy, Debug)]
enum Step {
    Count,
    Wait { queue: usize, number: u32 },
    Enable { queue: usize, end: u32 },
}

/// The steps of each queue, each with whether it makes a CQE; and which queues are managed.
type Program = (Vec<Vec<(Step, bool)>>, [bool; QUEUES]);

fn programs() -> impl Strategy<Value = Program> {
    let queue = 0..QUEUES;
    let step = prop_oneof![
        3 => Just(Step::Count),
        2 => (queue.clone(), 0u32..4).prop_map(|(queue, number)| Step::Wait { queue, number }),
        2 => (queue, 0u32..=8).prop_map(|(queue, end)| Step::Enable { queue, end }),
    ];
    let steps = proptest::collection::vec((step, any::<bool>()), 8);
    (
        proptest::collection::vec(steps, QUEUES),
        any::<[bool; QUEUES]>(),
    )
}

/// How far each queue comes: whoever can go on does, until nobody can. The order makes no difference, because what a
/// queue waits for stays.
fn model(steps: &[Vec<(Step, bool)>], managed: [bool; QUEUES]) -> [usize; QUEUES] {
    let mut at = [0; QUEUES];
    let mut ends = managed.map(|managed| if managed { 0 } else { 8 });
    loop {
        let before = (at, ends);
        for queue in 0..QUEUES {
            if at[queue] == ends[queue] {
                continue;
            }
            let goes = match steps[queue][at[queue]].0 {
                Step::Count => true,
                Step::Wait { queue, number } => {
                    let done = &steps[queue][..at[queue]];
                    done.iter().filter(|(_, tells)| *tells).count() > number as usize
                }
                Step::Enable { queue, end } => {
                    ends[queue] = ends[queue].max(end as usize);
                    true
                }
            };
            at[queue] += usize::from(goes);
        }
        if before == (at, ends) {
            return at;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 400 }))]

    /// Each queue comes as far as the model's, in its order, and nobody passes a WAIT before the CQE is there.
    #[test]
    fn any_program_comes_as_far_as_the_model_s((mut steps, managed) in programs()) {
        // Only managed queues can be enabled.
        for (step, _) in steps.iter_mut().flatten() {
            if let Step::Enable { queue, .. } = *step && !managed[queue] {
                *step = Step::Count;
            }
        }
        let kinds = managed.map(|managed| if managed { BOTH } else { MASTER });
        let mut rig = Rig::new(&kinds);
        for (queue, own) in steps.iter().enumerate() {
            for (index, (step, tells)) in (0..).zip(own) {
                let wqe = match *step {
                    Step::Count => rig.count(queue, index),
                    Step::Wait { queue, number } => Wqe::wait(rig.cq(queue), number),
                    Step::Enable { queue, end } => Wqe::send_enable(rig.queues[queue].number, end),
                };
                rig.queues[queue].write(if *tells { wqe.signalled() } else { wqe });
            }
        }
        // All are written before the first is rung, because they name each other.
        for queue in &rig.queues {
            queue.ring_doorbell();
        }
        rig.settle();
        let reached = model(&steps, managed);
        for (queue, own) in steps.iter().enumerate() {
            let told = own[..reached[queue]].iter().enumerate().filter(|(_, (_, tells))| *tells);
            let told: Vec<_> = told.map(|(index, _)| (0, 0, index as u16)).collect();
            prop_assert_eq!(rig.drain(queue), told, "queue {}", queue);
            let status = rig.world.a.engine.query_queue_pair(rig.queues[queue].number).unwrap();
            prop_assert_eq!(status.state, QueuePairState::ReadyToSend);
            prop_assert_eq!(usize::from(status.send_index), reached[queue]);
            let mut newest = None;
            for (index, (step, _)) in (0..).zip(own) {
                match *step {
                    Step::Count => {
                        let counted = rig.counted(queue, index);
                        prop_assert_eq!(counted.is_some(), usize::from(index) < reached[queue]);
                        prop_assert!(counted.is_none() || counted > newest, "in its own order");
                        newest = counted.or(newest);
                    }
                    // What the awaited CQE tells of came before all that is behind the WAIT.
                    Step::Wait { queue: of, number } if usize::from(index) < reached[queue] => {
                        let mut telling = (0..).zip(&steps[of]).filter(|(_, (_, tells))| *tells);
                        let (at, _) = telling.nth(number as usize).unwrap();
                        let earlier = (0..=at).filter_map(|at| match steps[of][usize::from(at)].0 {
                            Step::Count => rig.counted(of, at),
                            _ => None,
                        });
                        newest = earlier.max().max(newest);
                    }
                    _ => {}
                }
            }
        }
        rig.world.check_canaries();
    }
}

/// No opcode of them is among those that the ordinary way counts as data.
#[test]
fn they_are_told_by_their_opcodes() {
    let mut rig = Rig::new(&[MASTER, MANAGED]);
    let enable = Wqe::<1>::send_enable(rig.queues[1].number, 0).signalled();
    rig.queues[0].post(enable);
    rig.settle();
    let cqe = rig.queues[0].send_cq.poll().unwrap();
    assert_eq!(cqe.tail().opcode(), Opcode::SEND_ENABLE);
    assert_eq!(cqe.byte_count.get(), 0);
}
