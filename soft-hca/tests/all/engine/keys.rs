//! Protection domains and keys: which of them are alive, and when one comes back.

use std::collections::BTreeSet;

use mlx5_wqe::{LocalKey, Wqe};
use warpbell_soft_hca::engine::command::Keys;
use warpbell_soft_hca::engine::{
    Access, CommandError, DirectMemory, Engine, Loopback, ProtectionDomain, RegionSlot, RevokedKey,
    Storage, WireAddress,
};

use super::world::{Buffer, Connection, Node, Shape, TIMEOUT_NS, World, storage};

/// Entries of the table of regions in a [`World`]. That of domains has three, and the world uses the first.
const REGIONS: usize = 16;

/// Registers the first 8 bytes of a buffer.
fn try_register(
    node: &mut Node,
    domain: ProtectionDomain,
    buffer: Buffer,
) -> Result<Keys, CommandError> {
    // SAFETY: the buffer lives as long as the test.
    unsafe {
        node.engine
            .register_memory(domain, buffer.address(), 8, Access::all())
    }
}

fn register(node: &mut Node, domain: ProtectionDomain, buffer: Buffer) -> Keys {
    try_register(node, domain, buffer).unwrap()
}

fn refused(node: &mut Node, domain: ProtectionDomain) {
    let no_domain = CommandError::NoProtectionDomain;
    assert_eq!(try_register(node, domain, Buffer::new(8)), Err(no_domain));
    let destroyed = node.engine.destroy_protection_domain(domain);
    assert_eq!(destroyed, Err(no_domain));
}

/// Its entry has another handle each time, and the old ones open nothing while the new one lives.
#[test]
fn a_destroyed_domain_s_handle_is_not_its_successor_s() {
    let mut world = World::new();
    let node = &mut world.a;
    let mut old = Vec::new();
    for _ in 0..5 {
        let domain = node.engine.create_protection_domain().unwrap();
        assert!(!old.contains(&domain));
        for old in &old {
            refused(node, *old);
        }
        let key = register(node, domain, Buffer::new(8)).local;
        node.engine.deregister_memory(key).unwrap();
        node.engine.destroy_protection_domain(domain).unwrap();
        refused(node, domain);
        old.push(domain);
    }
}

#[test]
fn each_domain_counts_its_own_users() {
    let mut world = World::new();
    let node = &mut world.a;
    let one = node.engine.create_protection_domain().unwrap();
    let other = node.engine.create_protection_domain().unwrap();
    assert!(one != other && ![one, other].contains(&node.pd));
    assert_eq!(
        node.engine.create_protection_domain(),
        Err(CommandError::TableFull)
    );
    let keys = [one, one, one].map(|domain| register(node, domain, Buffer::new(8)).local);
    node.engine.destroy_protection_domain(other).unwrap();
    for key in keys {
        assert_eq!(
            node.engine.destroy_protection_domain(one),
            Err(CommandError::InUse)
        );
        node.engine.deregister_memory(key).unwrap();
    }
    node.engine.destroy_protection_domain(one).unwrap();
}

/// All slots have had their turn before one is used again; then its low byte is another, 256 times.
#[test]
fn a_key_comes_back_as_late_as_possible() {
    let mut world = World::new();
    let node = &mut world.a;
    let (domain, buffer) = (node.pd, Buffer::new(8));
    let mut keys = Vec::new();
    for _ in 0..=REGIONS * 256 {
        let Keys { local, remote } = register(node, domain, buffer);
        assert_eq!(local.0, remote.0);
        // This one ends a list of receive segments.
        assert_ne!(local, LocalKey::LIST_END);
        keys.push(local.0);
        node.engine.deregister_memory(local).unwrap();
        assert_eq!(
            node.engine.deregister_memory(local),
            Err(CommandError::NoRegion)
        );
    }
    let last = keys.pop();
    assert_eq!(keys.first().copied(), last);
    let all: BTreeSet<_> = keys.iter().collect();
    assert_eq!(all.len(), keys.len());
    for round in keys.chunks(REGIONS) {
        let slots: BTreeSet<_> = round.iter().map(|key| key >> 8).collect();
        assert_eq!(slots.len(), REGIONS);
    }
}

/// Who knows some keys of an HCA is not to foresee those of one with another seed.
#[test]
fn each_bit_of_the_seed_changes_half_of_the_bits_of_the_keys() {
    const SLOTS: usize = 256;
    let keys = |seed: u32| {
        let storage = Storage {
            regions: Vec::leak((0..SLOTS).map(|_| RegionSlot::default()).collect()),
            revoked: Vec::leak((0..SLOTS).map(|_| RevokedKey::default()).collect()),
            ..storage(Shape::default())
        };
        let mut engine = Engine::new(
            WireAddress(0),
            DirectMemory,
            Loopback::<1>::new(1024),
            storage,
        );
        engine.start_keys(seed);
        let domain = engine.create_protection_domain().unwrap();
        let buffer = Buffer::new(8);
        let mut register = || {
            // SAFETY: the buffer lives as long as the test.
            unsafe { engine.register_memory(domain, buffer.address(), 8, Access::all()) }
        };
        [(); SLOTS].map(|()| register().unwrap().local.0)
    };
    let before = keys(0);
    for bit in 0..u32::BITS {
        let after = keys(1 << bit);
        let changed: u32 = before
            .iter()
            .zip(after)
            .map(|(before, after)| (before ^ after).count_ones())
            .sum();
        // A key has 8 bits of its own; the others are its slot's.
        let share = f64::from(changed) / (8 * SLOTS) as f64;
        assert!((0.42..0.62).contains(&share), "bit {bit}: {share}");
    }
}

/// What a peer took away stays away, and the next key of the slot that looks the same opens its memory.
#[test]
fn a_key_that_was_taken_away_does_not_spoil_its_successors() {
    let mut world = World::new();
    let source = world.a.region(&[5; 8]);
    let (domain, buffer) = (world.b.pd, Buffer::new(8));
    let first = register(&mut world.b, domain, buffer);
    let inbox = world.b.region(&[0; 8]);
    let is_well = |world: &mut World, wqe: Wqe<1>| {
        world.b.qp.post_receive(&[inbox.all()]);
        world.a.qp.post(wqe.signalled());
        // Who asks for a key that is none to be taken away hears nothing, until all retries are spent.
        world.run_for(20 * TIMEOUT_NS);
        let error = world.a.qp.send_cq.drain()[0].tail().is_error();
        if error {
            world.reset();
            world.connect(Connection::default());
            world.a.qp.send_cq.drain();
        }
        world.b.qp.receive_cq.drain();
        !error
    };
    let invalidate = |keys: Keys| Wqe::send_invalidate(source.all(), keys.remote);
    let write = |keys: Keys| {
        let remote = mlx5_wqe::Remote {
            address: buffer.address(),
            key: keys.remote,
        };
        Wqe::write(source.all(), remote)
    };
    assert!(is_well(&mut world, write(first)));
    assert!(is_well(&mut world, invalidate(first)));
    assert!(!is_well(&mut world, write(first)));
    // Once taken away is all that it can be.
    assert!(!is_well(&mut world, invalidate(first)));
    world.b.engine.deregister_memory(first.local).unwrap();
    // The same slot's keys, until one looks the same: only then does the low byte say nothing.
    let mut same = None;
    for _ in 0..(REGIONS - 1) * 256 {
        let keys = register(&mut world.b, domain, buffer);
        if keys.local == first.local {
            same = Some(keys);
            break;
        }
        world.b.engine.deregister_memory(keys.local).unwrap();
    }
    let same = same.expect("a slot has 256 keys");
    assert!(is_well(&mut world, write(same)));
    // A key of another domain is not this queue pair's to take away.
    let other = world.b.engine.create_protection_domain().unwrap();
    let foreign = register(&mut world.b, other, buffer);
    assert!(!is_well(&mut world, invalidate(foreign)));
}
