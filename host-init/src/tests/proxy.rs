//! Queues in the hands of a proxy: what kernels post arrives, in order; ends are told; queue pairs come back.

use std::panic::resume_unwind;

use mlx5_wqe::{Opcode, Wqe};
use warpbell::proxy::{Fault, Unfit};
use warpbell::{Deadline, Exclusive, PostError, SendQueue, Thread, Ticket, WaitError};

use super::{ALL, bytes_of, region, resident, threaded};
use crate::{
    Completions, Device, Error, MemoryRegion, Placement, ProtectionDomain, Proxied, ProxiedQueue,
    Proxy, ProxyError, QueuePair, QueuePairConfig, connect,
};

const LIMIT: Deadline = Deadline::after_ms(10_000);
const DEPTH: u32 = 16;

/// Two connected ends on a device, and memory at the far one.
struct Ends {
    domain: ProtectionDomain,
    far: QueuePair,
    target: MemoryRegion,
}

fn config() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: DEPTH,
        receive_depth: 0,
        ..QueuePairConfig::default()
    }
}

impl Ends {
    fn new(device: &Device, config: &QueuePairConfig) -> (Self, QueuePair) {
        let domain = device.protection_domain().unwrap();
        let mut near = domain.queue_pair(config).unwrap();
        let mut far = domain.queue_pair(config).unwrap();
        connect(&mut near, &mut far).unwrap();
        let target = region(&domain, 8 * 1024, 0, ALL);
        (
            Self {
                domain,
                far,
                target,
            },
            near,
        )
    }

    /// Resets both ends after an error, and connects them.
    fn renew(&mut self, near: &mut QueuePair) {
        near.reset().unwrap();
        self.far.reset().unwrap();
        connect(near, &mut self.far).unwrap();
    }

    /// A value for a place of its own at the far end.
    fn write(&self, place: usize, value: u64) -> Wqe<1> {
        let remote = self.target.remote().at(8 * place, 8).unwrap();
        Wqe::write_value(value, remote).signalled()
    }

    /// Writes so many values, each `base` and its place, and waits for all.
    fn fill(&self, queue: &ProxiedQueue, base: u64, count: usize) {
        let mut queue = queue.send_queue().open::<Exclusive, Thread>().unwrap();
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

    /// So many values are there, and nothing behind them.
    #[track_caller]
    fn check(&self, base: u64, count: usize) {
        for (place, value) in self.values().into_iter().enumerate() {
            let expected = if place < count {
                base + place as u64
            } else {
                0
            };
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
        let mut queue = near
            .send_queue()
            .unwrap()
            .open::<Exclusive, Thread>()
            .unwrap();
        let ticket = post(&mut queue, ends.write(0, 3));
        queue.wait(ticket, LIMIT).unwrap();
    }
    assert_eq!(ends.values()[0], 3);
    // And now it is used.
    let qpn = near.qpn();
    let refused = proxy.serve(near, Placement::Host);
    assert!(matches!(refused, Err(Error::Proxy(ProxyError::Used { qpn: of })) if of == qpn));
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
        let mut view = queue.send_queue().open::<Exclusive, Thread>().unwrap();
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
            assert!(matches!(refused, Err(PostError::Failed(_))), "{refused:?}");
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
    let only_writes =
        |entry: warpbell::proxy::Entry<'_>| entry.control().opcode() == Opcode::RDMA_WRITE;
    let queue = proxy.serve_if(near, Placement::Host, only_writes).unwrap();
    {
        let mut view = queue.send_queue().open::<Exclusive, Thread>().unwrap();
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

#[test]
fn a_thread_that_dies_is_named_and_another_one_goes_on() {
    let device = threaded();
    let (mut ends, near) = Ends::new(&device, &config());
    let (_others, other) = Ends::new(&device, &config());
    let proxy = Proxy::start(2).unwrap();
    let dies = proxy.serve_if(near, Placement::Host, |entry| {
        match entry.control().opcode() {
            Opcode::RDMA_WRITE => true,
            _ => die(),
        }
    });
    let dies = dies.unwrap();
    let lives = proxy.serve(other, Placement::Host).unwrap();
    {
        let mut view = dies.send_queue().open::<Exclusive, Thread>().unwrap();
        let good = post(&mut view, ends.write(0, 1));
        view.wait(good, LIMIT).unwrap();
        let last = post(&mut view, Wqe::nop().signalled());
        assert_eq!(fault(view.wait(last, LIMIT)), Fault::Died);
        assert_eq!(view.wait(good, Deadline::PASSED), Ok(()), "done stays done");
    }
    ends.check(1, 1);
    // The other thread, and its queue, go on; so does this queue, with that thread.
    let mut near = dies.release().unwrap();
    ends.renew(&mut near);
    let queue = proxy.serve(near, Placement::Host).unwrap();
    ends.fill(&queue, 3, 40);
    ends.check(3, 40);
    assert_eq!(lives.first_error(), None);

    let alone = Proxy::start(1).unwrap();
    let mut near = queue.release().unwrap();
    ends.renew(&mut near);
    let queue = alone.serve_if(near, Placement::Host, |_| die()).unwrap();
    {
        let mut view = queue.send_queue().open::<Exclusive, Thread>().unwrap();
        let last = post(&mut view, ends.write(0, 9));
        assert_eq!(fault(view.wait(last, LIMIT)), Fault::Died);
    }
    let mut near = queue.release().unwrap();
    ends.renew(&mut near);
    let refused = alone.serve(near, Placement::Host);
    assert!(
        matches!(refused, Err(Error::Proxy(ProxyError::Dead))),
        "{refused:?}"
    );
}

#[test]
fn what_no_proxy_can_serve_is_refused() {
    for threads in [0, 65] {
        let refused = Proxy::start(threads);
        assert!(
            matches!(refused, Err(Error::Proxy(ProxyError::Threads { threads: of, limit: 64 })) if of == threads)
        );
    }
    let device = threaded();
    let proxy = Proxy::start(1).unwrap();
    let ordinary = QueuePairConfig {
        send_completions: Completions::ORDINARY,
        ..config()
    };
    let (_ends, near) = Ends::new(&device, &ordinary);
    let refused = proxy.serve(near, Placement::Host);
    let why = Unfit::Completions;
    assert!(
        matches!(refused, Err(Error::Proxy(ProxyError::Unfit { why: of, .. })) if of == why),
        "{refused:?}"
    );
    let (ends, _near) = Ends::new(&device, &config());
    let fresh = ends.domain.queue_pair(&config()).unwrap();
    let refused = proxy.serve(fresh, Placement::Host);
    assert!(
        matches!(refused, Err(Error::NotReady { .. })),
        "{refused:?}"
    );
}
