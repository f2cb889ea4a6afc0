//! Proves that triggered operations go once, with the last of their triggers and not before, whoever triggers, and
//! whichever comes first: an operation's registration or its triggers. No trigger is lost, and none counts twice. And
//! that a chain of operations, of which kernels trigger the first, goes to its end by the NIC alone, in its order. And that
//! the host may register while a kernel runs: before the triggers, behind them, or at the same time.

mod joint;

use std::process::ExitCode;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use warpbell::wqe::Wqe;
use warpbell::{SendDoorbell, Slice};
use warpbell_cpu_grid::Grid;
use warpbell_host_init::{Buffer, Kernels, Placement, QueuePair, QueuePairConfig, connect};
use warpbell_hw_tests::here;
use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::post::{ample, endings, expect_done};
use warpbell_hw_tests::run::{Progress, run};
use warpbell_hw_tests::say::say;
use warpbell_hw_tests::sides::{ALL_ACCESS, Pair, Sides};
use warpbell_kernels::place::Place;
use warpbell_kernels::suite::{Output, ScopeKind, TriggerChain, TriggerStorm};
use warpbell_patterns::trigger::host::Triggers;

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        for kernels in here::in_each_order() {
            for storm in storms(kernels) {
                progress.step(format!("{storm:?}, {kernels}"));
                storm.rage(kernels);
            }
            for chains in chains(kernels) {
                chains.check(kernels, progress);
            }
            for joint in joint::joints(kernels) {
                progress.step(format!("{joint:?}, {kernels}"));
                joint.register_meanwhile(kernels);
            }
        }
    })
}

/// Scopes that trigger in random order, against one thread that registers.
#[derive(Clone, Copy, Debug)]
struct Storm {
    scope: ScopeKind,
    grid: Grid,
    tags: u32,
    operations: u32,
    /// The highest threshold.
    most: u32,
}

fn storms(kernels: Kernels) -> Vec<Storm> {
    let storm = |scope, grid, tags, operations, most| Storm {
        scope,
        grid,
        tags,
        operations,
        most,
    };
    use ScopeKind::{Block, Thread, Warp};
    let mut storms = vec![
        storm(Thread, Grid::new(3, 2), 5, 400, 1),
        storm(Thread, Grid::new(4, 1), 7, 300, 12),
        storm(Warp, Grid::new(2, 64), 3, 20, 7),
        storm(Block, Grid::new(3, 50), 4, 20, 5),
    ];
    if let Kernels::Gpu(_) = kernels {
        // A block for each multiprocessor of an H200, and a million triggers and more; fewer where an operation crosses
        // a bus. A NIC among the kernels has room for 32 queue pairs.
        let operations = if here::takes_orders() { 100 } else { 2400 };
        storms.push(storm(Thread, Grid::new(133, 32), 14, operations, 63));
    }
    storms
}

/// Both ends of a queue for each tag; every other one has no doorbell record, if the device has such queues.
fn pairs(
    sides: &Sides,
    tags: u32,
    placement: Option<Placement>,
) -> (Vec<QueuePair>, Vec<QueuePair>) {
    let without_record = sides.ours.device().limits().without_record;
    let ends = (0..tags).map(|tag| {
        let config = QueuePairConfig {
            placement,
            send_depth: 8,
            receive_depth: 0,
            send_doorbell: match tag % 2 == 1 && without_record {
                true => SendDoorbell::WithoutRecord,
                false => SendDoorbell::WithRecord,
            },
            ..QueuePairConfig::default()
        };
        let Pair { ours, theirs } = sides.pair(&config);
        (ours, theirs)
    });
    ends.unzip()
}

impl Storm {
    fn rage(&self, kernels: Kernels) {
        let what = format!("{kernels}, {self:?}");
        let sides = Sides::chosen();
        let (near, _far) = pairs(&sides, self.tags, None);
        let triggers = Triggers::new(near).expect("a table");
        let target = sides
            .theirs
            .arena(16 * self.tags as usize, ALL_ACCESS, 0x7a66);

        let mut random = SmallRng::seed_from_u64(self.tags.into());
        let mut wanted = Vec::new();
        let mut order = Vec::new();
        for tag in 0..self.tags {
            let mut sum = 0;
            wanted.push(sum);
            for _ in 0..self.operations {
                sum += random.random_range(1..=self.most);
                wanted.push(sum);
            }
            order.extend((0..sum).map(|_| tag));
        }
        order.shuffle(&mut random);
        let shared = |values: &[u32]| here::shared(values.len(), |at| values[at]);
        let (wanted, order) = (shared(&wanted), shared(&order));
        let placement = match kernels {
            Kernels::Cpu(_) => Placement::Host,
            Kernels::Gpu(module) => Placement::Gpu(module.gpu()),
        };
        let begun = Buffer::placed(placement, 8 * self.tags as usize).expect("memory");
        let threads = self.grid.blocks * self.grid.threads_per_block;
        let mut ended = here::outcomes(threads as usize);
        let kernel = TriggerStorm {
            triggers: triggers.handle(),
            scope: self.scope,
            operations: self.operations,
            wanted: Slice::new(&wanted),
            words: target.remote(0),
            order: Slice::new(&order),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            begun: unsafe { Place::new(begun.as_ptr().cast(), begun.len() as u64 / 8) },
            limit_ms: ample().as_millis() as u64,
            endings: Output::new(&mut ended),
        };
        here::launch(kernels, self.grid, &kernel);

        expect_done(&endings(&ended), &what);
        for tag in 0..self.tags {
            let counter = triggers.counter(tag).expect("a tag");
            let spare = i64::from(counter.counted()) - i64::from(counter.threshold());
            assert_eq!(spare, 0, "{what}: triggers of tag {tag} too many");
            let end = 2 * self.operations;
            assert_eq!(u32::from(counter.end().0), end, "{what}: tag {tag}");
        }
        let mut expected = target.image();
        let newest = u64::from(self.operations).to_ne_bytes();
        for word in 0..2 * u64::from(self.tags) {
            expected.set(target.address() + 8 * word, &newest);
        }
        target.check(&expected, &what);
    }
}

/// Chains of operations, registered and triggered several times.
#[derive(Clone, Copy, Debug)]
struct Chains {
    scope: ScopeKind,
    grid: Grid,
    chains: u32,
    /// Operations of each.
    links: u32,
    rounds: u32,
}

fn chains(kernels: Kernels) -> Vec<Chains> {
    let all = |scope, grid, chains, links, rounds| Chains {
        scope,
        grid,
        chains,
        links,
        rounds,
    };
    use ScopeKind::{Block, Thread, Warp};
    let mut cases = vec![
        all(Thread, Grid::new(1, 1), 1, 8, 30),
        all(Thread, Grid::new(2, 3), 3, 5, 20),
        all(Warp, Grid::new(2, 64), 2, 5, 5),
        all(Block, Grid::new(3, 50), 4, 3, 5),
    ];
    if let Kernels::Gpu(_) = kernels {
        cases.push(all(Block, Grid::new(132, 32), 3, 5, 300));
    }
    cases
}

impl Chains {
    fn check(&self, kernels: Kernels, progress: &Progress) {
        let sides = Sides::chosen();
        if !sides.ours.device().limits().cross_channel {
            say(format_args!(
                "         left out, because this NIC lets no queue start another: {self:?}"
            ));
            return;
        }
        progress.step(format!("{self:?}, {kernels}"));
        let other = QueuePairConfig {
            send_depth: 8,
            receive_depth: 0,
            ..QueuePairConfig::default()
        };
        let ends = (0..self.chains * self.links).map(|tag| {
            let config = QueuePairConfig {
                cross_channel: tag % self.links + 1 < self.links,
                managed_send: tag % self.links > 0,
                ..other
            };
            let mut near = sides.ours.queue_pair(&config);
            let mut far = sides.theirs.queue_pair(&other);
            connect(&mut near, &mut far).expect("a connection");
            (near, far)
        });
        let (near, _far): (Vec<_>, Vec<QueuePair>) = ends.unzip();
        let mut triggers = Triggers::new(near).expect("a table");
        // A word for each operation at either side: a chain's value goes to and fro.
        let bytes = 8 * (self.chains * (self.links + 1)) as usize;
        let ours = sides.ours.arena(bytes, ALL_ACCESS, 0xc4a1);
        let theirs = sides.theirs.arena(bytes, ALL_ACCESS, 0xc4a2);
        let mut random = SmallRng::seed_from_u64(self.links.into());
        for round in 0..self.rounds {
            let what = format!("{kernels}, {self:?}, round {round}");
            let [mut here, mut there] = [ours.image(), theirs.image()];
            for chain in 0..self.chains {
                let value: [u8; 8] = random.random();
                let word = |link: u32| 8 * i64::from(chain * (self.links + 1) + link);
                ours.region()
                    .write(word(0) as usize, &value)
                    .expect("a word");
                here.set(ours.address() + word(0) as u64, &value);
                for link in 0..self.links {
                    let tag = chain * self.links + link;
                    // Sends on the bytes that the operation before has brought.
                    let operation = match link % 2 {
                        0 => {
                            there.set(theirs.address() + word(link) as u64, &value);
                            Wqe::write(ours.local(word(link), 8), theirs.remote(word(link)))
                        }
                        _ => {
                            here.set(ours.address() + word(link + 1) as u64, &value);
                            Wqe::read(ours.local(word(link + 1), 8), theirs.remote(word(link - 1)))
                        }
                    };
                    let registered = match (link, (round + link) % 3) {
                        (0, _) => triggers.register(tag, self.scopes(), [operation]),
                        (_, 0) => triggers.register_after(tag, tag - 1, [Wqe::nop(), operation]),
                        _ => triggers.register_after(tag, tag - 1, [operation]),
                    };
                    registered.unwrap_or_else(|error| panic!("{what}: {error}"));
                }
            }
            let threads = self.grid.blocks * self.grid.threads_per_block;
            let mut ended = here::outcomes(threads as usize);
            let kernel = TriggerChain {
                triggers: triggers.handle(),
                scope: self.scope,
                chains: self.chains,
                links: self.links,
                limit_ms: ample().as_millis() as u64,
                endings: Output::new(&mut ended),
            };
            here::launch(kernels, self.grid, &kernel);
            expect_done(&endings(&ended), &what);
            ours.check(&here, &what);
            theirs.check(&there, &what);
        }
    }

    /// How many trigger together.
    fn scopes(&self) -> u32 {
        let warps = self.grid.threads_per_block.div_ceil(32);
        self.grid.blocks
            * match self.scope {
                ScopeKind::Thread => self.grid.threads_per_block,
                ScopeKind::Warp => warps,
                ScopeKind::Block => 1,
            }
    }
}
