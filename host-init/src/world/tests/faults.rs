//! Ranks that fail, those that go on, and those that come back.

use std::sync::Barrier;

use super::*;

type Pairs = BTreeMap<u32, QueuePair>;

fn hands(pairs: &Pairs) -> BTreeMap<u32, Hand<'_>> {
    let hands = pairs.iter().map(|(rank, pair)| (*rank, Hand::new(pair)));
    hands.collect()
}

/// The queue pairs of those that are left work on; those to the new process are new.
#[test]
fn those_that_are_left_go_on_and_take_in_who_comes_back() {
    for (port, wire) in [(20_015, WireKind::SharedMemory), (20_016, WireKind::RoceV2)] {
        let shrunk = Barrier::new(4);
        let part = |rank| {
            let start =
                || World::with(join(port, rank, 4), &Node::cpu(), &over(wire)(rank)).unwrap();
            let mut world = start();
            let pairs = world.connect(world.others(), &config()).unwrap();
            let mut hands = hands(&pairs);
            exchange_by(&mut world, &mut hands);
            if rank == 3 {
                drop(hands);
                drop((pairs, world));
                shrunk.wait();
                let mut world = start();
                assert!(world.has_returned());
                let pairs = world.connect(world.others(), &config()).unwrap();
                return exchange(&mut world, &pairs);
            }
            assert!(words(world.barrier()).contains("rank 3 has left"));
            assert!(world.failed().into_iter().eq([3]));
            assert!(world.shrink(PATIENCE).unwrap().into_iter().eq([3]));
            assert!(world.ranks().eq([0, 1, 2]) && world.others().all(|other| other < 3));
            assert_eq!((world.size(), world.wire(3)), (4, None));
            hands.remove(&3);
            exchange_by(&mut world, &mut hands);

            // An error of one rank is named on all, and not the end.
            let neighbours = if rank == 1 { vec![3] } else { vec![] };
            let refused = words(world.connect(neighbours, &config()));
            assert!(
                refused.contains("rank 3 has failed, and does not"),
                "{refused}"
            );
            assert!(world.shrink(PATIENCE).unwrap().is_empty());
            exchange_by(&mut world, &mut hands);

            shrunk.wait();
            world.take_in(3, PATIENCE).unwrap();
            assert_eq!(world.wire(3), Some(wire));
            assert!(world.failed().is_empty() && !world.has_returned());
            let new = world.connect([3], &config()).unwrap();
            hands.extend(self::hands(&new));
            exchange_by(&mut world, &mut hands);
        };
        thread::scope(|scope| {
            let part = &part;
            let ranks: Vec<_> = (0..4).map(|rank| scope.spawn(move || part(rank))).collect();
            ranks.into_iter().for_each(|one| one.join().unwrap());
        });
    }
}

#[test]
fn groups_have_barriers_of_their_own() {
    job(20_017, 3, chosen, |world| {
        let mut world = world.unwrap();
        if world.rank() > 0 {
            world.barrier_of([2, 1]).unwrap();
        }
        world.barrier().unwrap();
    });
}

/// The other rank finds no wire to it, and says that it is gone rather than that.
#[test]
fn a_rank_that_vanishes_while_queue_pairs_are_connected_is_named() {
    let named = job(20_021, 2, over(WireKind::SharedMemory), |world| {
        let mut world = world.unwrap();
        let other = 1 - world.rank();
        let (_, contact) = world.links.peers[&other];
        let device = world.domain().device();
        // The end with the higher GID makes the link.
        if device.gid().0 > contact.gid.0 {
            let refused = words(world.connect([other], &config()));
            return Some((other, refused));
        }
        device.soft_hca().unwrap().kill();
        let end = End {
            rank: other,
            qpn: 1,
            psn: 0,
            card: None,
        };
        gather::by_rank(&mut *world.bootstrap, &[end], PATIENCE).unwrap();
        None
    });
    let (gone, refused) = named.into_iter().flatten().next().unwrap();
    assert!(refused.starts_with(&format!("rank {gone} ")), "{refused}");
}
