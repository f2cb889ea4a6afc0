//! How many WQEs a second one thread of a proxy passes on, with no engine and no bus: kernel, proxy and NIC take turns on
//! one core.

use warpbell::wqe::Wqe;
use warpbell::{CompletionKind, Exclusive, SendDoorbell, SendQueue, Thread};
use warpbell_bench::filter::Filter;
use warpbell_bench::samples::{Goal, Row, Samples, timed};
use warpbell_patterns::proxy::{Drain, Turn};

use super::posting::{GROUP, LAPS, Rig, request};

/// A queue of kernels, and the NIC's behind it.
struct Lane<'a> {
    queue: SendQueue<'a, Exclusive, Thread>,
    drain: Drain<'a>,
    nic: &'a Rig,
    next: u32,
}

impl<'a> Lane<'a> {
    fn new(front: &'a Rig, nic: &'a Rig) -> Self {
        let kernels = front.handle_with(SendDoorbell::WithoutRecord);
        // SAFETY: both are fresh, and nobody else has them.
        let drain = unsafe { Drain::new(kernels, nic.handle_with(SendDoorbell::WithRecord)) };
        Self {
            queue: kernels.open().expect("a fresh queue"),
            drain: drain.expect("two queues that fit"),
            nic,
            next: 0,
        }
    }

    fn post(&mut self) {
        let (local, remote) = request(self.next);
        let posted = self.queue.try_post(Wqe::write(local, remote));
        assert!(posted.is_ok(), "a full queue");
        self.next = self.next.wrapping_add(1);
    }

    fn turn(&mut self, posts: u32) {
        let Turn { posts: taken, .. } = self.drain.turn(|_| true);
        assert_eq!(taken, posts, "the proxy missed some");
    }

    /// Millions of WQEs a second: the median of all laps.
    fn repetition(&mut self, lap: impl Fn(&mut Self) -> f64) -> f64 {
        let mut rates = Samples::default();
        for _ in 0..LAPS {
            let seconds = lap(self);
            rates.push(f64::from(GROUP) / 1e6 / seconds);
            self.nic.complete(self.next.wrapping_sub(1));
            self.turn(0);
        }
        rates.median()
    }
}

/// All of it, if it is wanted.
pub fn measure(repetitions: u32, filter: &Filter) -> Vec<Row> {
    if !filter.wants("proxy") {
        return Vec::new();
    }
    let fronts = [(); 2].map(|()| Rig::new(CompletionKind::Collapsed));
    let nics = [(); 2].map(|()| Rig::new(CompletionKind::Ordinary));
    let [mut together, mut single] = [0, 1].map(|lane| Lane::new(&fronts[lane], &nics[lane]));
    let (mut of_many, mut of_one) = (Samples::default(), Samples::default());
    for repetition in 0..=repetitions {
        let many = together.repetition(|lane| {
            (0..GROUP).for_each(|_| lane.post());
            timed(|| lane.turn(GROUP)).1
        });
        let one = single.repetition(|lane| {
            let alternately = || {
                for _ in 0..GROUP {
                    lane.post();
                    lane.turn(1);
                }
            };
            timed(alternately).1
        });
        // The first round warms up.
        if repetition > 0 {
            of_many.push(many);
            of_one.push(one);
        }
    }
    let goal = Goal::AtLeast(3.0);
    vec![
        Row::new(
            format!("proxy: {GROUP} WQEs taken at once"),
            "M/s",
            &of_many,
        )
        .goal(goal),
        Row::new("proxy: WQEs posted and taken one by one", "M/s", &of_one).goal(goal),
    ]
}
