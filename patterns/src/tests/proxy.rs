//! Queues in the hands of a proxy: what kernels post arrives, in order; ends are told; queue pairs come back.

use std::panic::resume_unwind;
use std::sync::mpsc;

use crate::proxy::{Entry, Fault, Unfit};
use mlx5_wqe::{Opcode, Wqe};
use warpbell::{Deadline, Exclusive, PostError, SendQueue, Thread, Ticket, WaitError};

use super::{ALL, bytes_of, connected, posting, reconnect, region, resident, threaded};
use crate::Error;
use crate::proxy::host::{Proxied, ProxiedQueue, Proxy, ProxyError};
use warpbell_host_init::{
    Completions, Device, Error as StartError, MemoryRegion, Placement, ProtectionDomain, QueuePair,
    QueuePairConfig,
};

const LIMIT: Deadline = Deadline::after_ms(300_000);

/// Two connected ends on a device, and memory at the far one.
struct Ends {
    domain: ProtectionDomain,
    far: QueuePair,
    target: MemoryRegion,
}

fn config() -> QueuePairConfig {
    posting(16)
}

impl Ends {
    fn new(device: &Device, config: &QueuePairConfig) -> (Self, QueuePair) {
        let domain = device.protection_domain().unwrap();
        let [near, far] = connected([(&domain, config), (&domain, config)]);
        let target = region(&domain, 8 * 1024, 0, ALL);
        let ends = Self {
            domain,
            far,
            target,
        };
        (ends, near)
    }

    /// Resets both ends after an error, and connects them.
    fn renew(&mut self, near: &mut QueuePair) {
        reconnect(near, &mut self.far).unwrap();
    }

    /// A value for a place of its own at the far end.
    fn write(&self, place: usize, value: u64) -> Wqe<1> {
        let remote = self.target.remote().at(8 * place, 8).unwrap();
        Wqe::write_value(value, remote).signalled()
    }

    /// Writes `count` values, each `base` plus its place, and waits for all.
    fn fill(&self, queue: &ProxiedQueue, base: u64, count: usize) {
        let mut queue = queue.send_queue().open::<Exclusive>().unwrap();
        let mut newest = None;
        for place in 0..count {
            newest = Some(post(&mut queue, self.write(place, base + place as u64)));
        }
        queue.wait(newest.unwrap(), LIMIT).unwrap();
    }

    fn values(&self) -> Vec<u64> {
        let bytes = bytes_of(&self.target);
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().map(|word| u64::from_ne_bytes(*word)).collect()
    }

    /// Checks that `count` values are there, and only zeros behind them.
    #[track_caller]
    fn check(&self, base: u64, count: usize) {
        for (place, value) in self.values().into_iter().enumerate() {
            let there = place < count;
            let expected = (base + place as u64) * u64::from(there);
            assert_eq!(value, expected, "place {place}");
        }
    }
}

fn post(queue: &mut SendQueue<'_, Exclusive, Thread>, wqe: Wqe<1>) -> Ticket {
    queue.post(wqe, LIMIT).unwrap()
}

#[track_caller]
fn fault(result: Result<(), WaitError>) -> Fault {
    match result {
        Err(WaitError::Failed(error)) => Fault::of(error).expect("the proxy's fault"),
        other => panic!("{other:?}"),
    }
}

/// Panics, and prints nothing.
fn die() -> ! {
    resume_unwind(Box::new("on purpose"))
}

#[test]
fn several_threads_serve_several_queues() {
    for device in [threaded(), resident()] {
        let proxy = Proxy::start(2).unwrap();
        let ends: Vec<_> = (0..5).map(|_| Ends::new(&device, &config())).collect();
        let ends: Vec<_> = ends
            .into_iter()
            .enumerate()
            .map(|(number, (ends, near))| match number % 2 {
                0 => (ends, proxy.serve(near, Placement::Host).unwrap()),
                _ => (ends, proxy.serve_indices(near).unwrap()),
            })
            .collect();
        std::thread::scope(|scope| {
            for (number, (ends, queue)) in ends.iter().enumerate() {
                scope.spawn(move || ends.fill(queue, 1000 * number as u64 + 1, 500));
            }
        });
        for (number, (ends, queue)) in ends.iter().enumerate() {
            ends.check(1000 * number as u64 + 1, 500);
            let Proxied {
                posts,
                doorbells,
                completions,
            } = queue.proxied();
            assert_eq!(posts, 500);
            assert!((1..=500).contains(&doorbells) && (1..=500).contains(&completions));
            assert_eq!(queue.first_error(), None);
            assert_eq!(queue.nic_error().unwrap_or_default(), None);
            queue.check(&ends.target).unwrap();
        }
    }
}

#[test]
fn a_queue_pair_comes_back_and_may_be_served_again_or_posted_to_directly() {
    let (mut ends, near) = Ends::new(&threaded(), &config());
    let proxy = Proxy::start(1).unwrap();
    let queue = proxy.serve(near, Placement::Host).unwrap();
    let qpn = queue.qpn();
    ends.fill(&queue, 1, 50);
    let mut near = queue.release().unwrap();
    assert_eq!(near.qpn(), qpn);
    ends.renew(&mut near);
    let queue = proxy.serve(near, Placement::Host).unwrap();
    ends.fill(&queue, 2, 50);
    ends.check(2, 50);
    let mut near = queue.release().unwrap();
    ends.renew(&mut near);
    {
        let mut queue = near.send_queue().unwrap().open::<Exclusive>().unwrap();
        let ticket = post(&mut queue, ends.write(0, 3));
        queue.wait(ticket, LIMIT).unwrap();
    }
    assert_eq!(ends.values()[0], 3);
    // And now it is used.
    let qpn = near.qpn();
    let refused = proxy.serve(near, Placement::Host);
    assert_matches!(refused => Err(Error::Proxy(ProxyError::Used { qpn: of })) if of == qpn);
}

#[test]
fn what_was_handed_over_is_carried_out_before_a_proxy_ends() {
    for (released, indices) in [(false, false), (false, true), (true, false), (true, true)] {
        let (ends, near) = Ends::new(&threaded(), &config());
        let proxy = Proxy::start(1).unwrap();
        let queue = match indices {
            false => proxy.serve(near, Placement::Host).unwrap(),
            true => proxy.serve_indices(near).unwrap(),
        };
        let mut view = queue.send_queue().open::<Exclusive>().unwrap();
        let tickets: Vec<_> = (0..10)
            .map(|place| post(&mut view, ends.write(place, 7 + place as u64)))
            .collect();
        if released {
            drop(view);
            drop(proxy);
            queue.release().unwrap();
        } else {
            drop(proxy);
            // The view has not looked yet.
            let late = post(&mut view, ends.write(10, 0xbad));
            for ticket in tickets {
                assert_eq!(
                    view.wait(ticket, Deadline::PASSED),
                    Ok(()),
                    "told before the end"
                );
            }
            assert_eq!(fault(view.wait(late, LIMIT)), Fault::Stopped);
            let refused = view.post(ends.write(11, 0xbad), LIMIT);
            assert_matches!(refused => Err(PostError::Failed(_)));
            let error = queue.first_error().unwrap();
            assert_eq!(Fault::of(error), Some(Fault::Stopped));
        }
        ends.check(7, 10);
    }
}

#[test]
fn a_refused_request_ends_the_queue_and_not_the_thread() {
    let (mut ends, near) = Ends::new(&threaded(), &config());
    let proxy = Proxy::start(1).unwrap();
    let only_writes = |entry: Entry<'_>| entry.control().opcode() == Opcode::RDMA_WRITE;
    let queue = proxy.serve_if(near, Placement::Host, only_writes).unwrap();
    {
        let mut view = queue.send_queue().open::<Exclusive>().unwrap();
        let good = post(&mut view, ends.write(0, 1));
        let refused = post(&mut view, Wqe::nop().signalled());
        // Perhaps it is too late for this one already.
        let behind = view.post(ends.write(1, 0xbad), LIMIT);
        assert_eq!(view.wait(good, LIMIT), Ok(()));
        assert_eq!(fault(view.wait(refused, LIMIT)), Fault::Refused);
        if let Ok(behind) = behind {
            assert_eq!(fault(view.wait(behind, LIMIT)), Fault::Refused);
        }
    }
    ends.check(1, 1);
    assert_eq!(queue.nic_error().unwrap(), None, "the NIC never saw it");
    let mut near = queue.release().unwrap();
    ends.renew(&mut near);
    let queue = proxy.serve_if(near, Placement::Host, only_writes).unwrap();
    ends.fill(&queue, 5, 40);
    ends.check(5, 40);
}

/// The owner of the first queue never answers for its second request. The second queue has the same thread, and adds 1 at
/// the far end several times before and after that.
fn ends_at_a_question(
    expected: Fault,
    mut answer: impl FnMut() -> bool + Send + 'static,
    comes_back: impl FnOnce(),
) {
    const BEFORE: u64 = 100;
    const AFTER: u64 = 400;
    let device = threaded();
    let (mut ends, near) = Ends::new(&device, &config());
    let (others, other) = Ends::new(&device, &config());
    let proxy = Proxy::start(1).unwrap();
    let mut questions = 0;
    let allow = move |_: Entry<'_>| {
        questions += 1;
        questions != 2 || answer()
    };
    let asked = proxy.serve_if(near, Placement::Host, allow).unwrap();
    let other = proxy.serve_if(other, Placement::Host, |_| true).unwrap();
    let found = region(&others.domain, 8, 0, ALL);
    let remote = others.target.remote().at(0, 8).unwrap();
    let add = Wqe::fetch_add(found.local(0, 8).unwrap(), remote, 1).signalled();
    {
        let mut counting = other.send_queue().open::<Exclusive>().unwrap();
        let mut add = |times| {
            let newest = (0..times).map(|_| post(&mut counting, add)).last();
            counting.wait(newest.unwrap(), LIMIT).unwrap();
        };
        let mut view = asked.send_queue().open::<Exclusive>().unwrap();
        let good = post(&mut view, ends.write(0, 1));
        view.wait(good, LIMIT).unwrap();
        add(BEFORE);
        let unheard = post(&mut view, ends.write(1, 0xbad));
        // Is taken by the thread that comes.
        add(AFTER);
        assert_eq!(fault(view.wait(unheard, LIMIT)), expected);
        assert_eq!(view.wait(good, Deadline::PASSED), Ok(()), "done stays done");
        let refused = view.post(ends.write(1, 0xbad), LIMIT);
        assert_matches!(refused => Err(PostError::Failed(_)));
    }
    ends.check(1, 1);
    assert_eq!(others.values()[0], BEFORE + AFTER, "each once");
    assert_eq!(asked.proxied().posts, 1);
    assert_eq!(asked.nic_error().unwrap(), None);
    assert_eq!(other.first_error(), None);
    // The queue pair comes back, and the same proxy serves it.
    let mut near = asked.release().unwrap();
    ends.renew(&mut near);
    let queue = proxy.serve(near, Placement::Host).unwrap();
    ends.fill(&queue, 3, 40);
    comes_back();
    ends.fill(&queue, 5, 40);
    ends.check(5, 40);
    assert_eq!(queue.proxied().posts, 80);
}

#[test]
fn a_thread_that_dies_at_a_question_is_replaced() {
    ends_at_a_question(Fault::Died, || die(), || {});
}

#[test]
fn a_thread_that_hangs_at_a_question_is_replaced_and_too_late_when_it_comes_back() {
    let (wake, gate) = mpsc::channel::<()>();
    let (come_back, came_back) = mpsc::channel::<()>();
    let waits = move || {
        // Both end with the other side: the first once it is dropped below, the second with the thread's questions.
        let _ = (gate.recv(), &come_back);
        true
    };
    ends_at_a_question(Fault::Hung, waits, || {
        drop(wake);
        let _ = came_back.recv();
    });
}

/// An owner that takes its time, though never two seconds, keeps its own queue and the thread's other one longer than
/// any thread may stand still.
#[test]
fn queues_come_back_from_a_thread_whose_owner_is_slow() {
    let device = threaded();
    let (slow_ends, near) = Ends::new(&device, &config());
    let (ends, other) = Ends::new(&device, &config());
    let proxy = Proxy::start(1).unwrap();
    let (tell, asked) = mpsc::channel();
    let allow = move |_: Entry<'_>| {
        let _ = tell.send(());
        std::thread::sleep(std::time::Duration::from_millis(600));
        true
    };
    let slow = proxy.serve_if(near, Placement::Host, allow).unwrap();
    let other = proxy.serve(other, Placement::Host).unwrap();
    ends.fill(&other, 1, 1);
    let mut view = slow.send_queue().open::<Exclusive>().unwrap();
    let mut batch = view.batch(8, LIMIT).unwrap();
    for place in 0..8 {
        let wqe = slow_ends.write(place, 7 + place as u64);
        let _ = batch.post(wqe).unwrap();
    }
    drop(batch);
    drop(view);
    asked.recv().unwrap();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| other.release());
        slow.release().unwrap();
        other.join().unwrap().unwrap();
    });
    slow_ends.check(7, 8);
}

#[test]
fn what_no_proxy_can_serve_is_refused() {
    for threads in [0, 65] {
        let refused = Proxy::start(threads);
        assert_matches!(
            refused =>
                Err(Error::Proxy(ProxyError::Threads { threads: of, limit: 64 })) if of == threads
        );
    }
    let device = threaded();
    let proxy = Proxy::start(1).unwrap();
    let collapsed = QueuePairConfig {
        send_completions: Completions::Collapsed,
        ..config()
    };
    let (_ends, near) = Ends::new(&device, &collapsed);
    let refused = proxy.serve(near, Placement::Host);
    let why = Unfit::Completions;
    assert_matches!(refused => Err(Error::Proxy(ProxyError::Unfit { why: of, .. })) if of == why);
    let (ends, _near) = Ends::new(&device, &config());
    let fresh = ends.domain.queue_pair(&config()).unwrap();
    let refused = proxy.serve(fresh, Placement::Host);
    assert_matches!(refused => Err(Error::Start(StartError::NotReady { .. })));
}
