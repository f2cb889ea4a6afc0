//! Tables of tags whose operations go to other ranks.

use warpbell::Thread;
use warpbell::wqe::Wqe;
use warpbell_host_init::RemoteMemory;
use warpbell_patterns::trigger::host::Triggers;

use super::*;

const THRESHOLD: u32 = 3;
const BYTES: usize = 64;

/// Tag 0 writes to the next rank and tag 1 to the one behind it, twice.
#[test]
fn operations_go_to_other_ranks_once_they_are_triggered() {
    for (port, wire) in (22_010..).zip(WIRES) {
        job(port, 3, wire, |mut world| {
            let own = world.rank();
            let source = region(&world, BYTES, own as u8 + 1);
            let target = region(&world, 3 * BYTES, 0);
            let targets: Vec<RemoteMemory> = world.exchange(&target.remote()).unwrap();
            let others = [(own + 1) % 3, (own + 2) % 3];
            let mut pairs = world.connect(others, &patient()).unwrap();
            let pairs = others.map(|rank| pairs.remove(&rank).unwrap());
            let mut triggers = Triggers::new(pairs.into()).unwrap();
            for round in 1..=2 {
                for (tag, rank) in (0..).zip(others) {
                    let theirs = targets[rank as usize].at(BYTES * own as usize, BYTES as u32);
                    let write = Wqe::write(source.local(0, BYTES as u32).unwrap(), theirs.unwrap());
                    triggers.register(tag, THRESHOLD, [write]).unwrap();
                }
                source.write(0, &[round * (own as u8 + 1); BYTES]).unwrap();
                let table = triggers.handle().open().unwrap();
                thread::scope(|scope| {
                    for _ in 0..THRESHOLD {
                        scope.spawn(|| {
                            for tag in 0..2 {
                                table.trigger::<Thread>(tag).unwrap();
                                table.wait::<Thread>(tag, LIMIT).unwrap();
                            }
                        });
                    }
                });
                world.barrier().unwrap();
                let mut arrived = [0; 3 * BYTES];
                target.read(0, &mut arrived).unwrap();
                for (rank, bytes) in (0..).zip(arrived.chunks(BYTES)) {
                    let byte = if rank == own {
                        0
                    } else {
                        round * (rank as u8 + 1)
                    };
                    assert_eq!(bytes, [byte; BYTES], "of rank {rank} at rank {own}");
                }
                world.barrier().unwrap();
            }
        });
    }
}
