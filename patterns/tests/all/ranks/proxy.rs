//! Queues to other ranks in the hands of a proxy.

use warpbell::Exclusive;
use warpbell::wqe::Wqe;
use warpbell_host_init::{Placement, RemoteMemory};
use warpbell_patterns::proxy::host::Proxy;

use super::*;

const WORDS: usize = 200;

/// The next rank gets whole WQEs from the proxy's ring, the one behind it those of which the proxy knows the indices.
#[test]
fn what_a_proxy_is_handed_arrives_at_other_ranks() {
    for (port, wire) in (22_020..).zip(WIRES) {
        job(port, 3, wire, |mut world| {
            let own = world.rank();
            let target = region(&world, 3 * 8 * WORDS, 0);
            let targets: Vec<RemoteMemory> = world.exchange(&target.remote()).unwrap();
            let others = [(own + 1) % 3, (own + 2) % 3];
            let mut pairs = world.connect(others, &patient()).unwrap();
            let [next, behind] = others.map(|rank| pairs.remove(&rank).unwrap());
            let proxy = Proxy::start(1).unwrap();
            let queues = [
                proxy.serve(next, Placement::Host).unwrap(),
                proxy.serve_indices(behind).unwrap(),
            ];
            for (rank, proxied) in others.into_iter().zip(&queues) {
                let mut queue = proxied.send_queue().open::<Exclusive>().unwrap();
                let mut newest = None;
                for word in 0..WORDS {
                    let place = 8 * (WORDS * own as usize + word);
                    let theirs = targets[rank as usize].at(place, 8).unwrap();
                    let write = Wqe::write_value(value(own, rank, word), theirs).signalled();
                    newest = Some(queue.post(write, LIMIT).unwrap());
                }
                queue.wait(newest.unwrap(), LIMIT).unwrap();
                assert_eq!(proxied.proxied().posts, WORDS as u64);
            }
            world.barrier().unwrap();
            let arrived = target.read_words(0, 3 * WORDS).unwrap();
            for (rank, words) in (0..).zip(arrived.chunks(WORDS)) {
                let expected = (0..WORDS).map(|word| match rank == own {
                    true => 0,
                    false => value(rank, own, word),
                });
                assert!(words.iter().copied().eq(expected), "of rank {rank}");
            }
            world.barrier().unwrap();
        });
    }
}

/// No two words are alike.
fn value(from: u32, to: u32, word: usize) -> u64 {
    u64::from(16 * from + to + 1) << 32 | word as u64
}
