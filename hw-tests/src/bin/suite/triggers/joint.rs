//! The host registers operations while a kernel runs that triggers them.

use std::thread;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell::wqe::Wqe;
use warpbell::{Deadline, Slice, Word64, WordExt};
use warpbell_cpu_grid::Grid;
use warpbell_host_init::Kernels;
use warpbell_hw_tests::arena::Arena;
use warpbell_hw_tests::here;
use warpbell_hw_tests::post::{ample, endings, expect_done};
use warpbell_hw_tests::say::say;
use warpbell_hw_tests::sides::{ALL_ACCESS, Sides};
use warpbell_kernels::place::Place;
use warpbell_kernels::suite::{Output, ScopeKind, TriggerJoint};
use warpbell_patterns::Error;
use warpbell_patterns::trigger::Ringer;
use warpbell_patterns::trigger::host::{JointTriggers, TriggerError};
use warpbell_soft_hca_gpu::MemoryScope;

use super::pairs;

/// Scopes that trigger what the host registers while they run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Joint {
    scope: ScopeKind,
    grid: Grid,
    tags: u32,
    turns: u32,
}

pub(super) fn joints(kernels: Kernels) -> Vec<Joint> {
    let joint = |scope, grid, tags, turns| Joint {
        scope,
        grid,
        tags,
        turns,
    };
    use ScopeKind::{Block, Thread, Warp};
    let mut cases = vec![
        joint(Thread, Grid::new(1, 1), 1, 100),
        joint(Thread, Grid::new(3, 2), 2, 60),
        joint(Warp, Grid::new(2, 64), 1, 15),
        joint(Block, Grid::new(3, 50), 3, 15),
    ];
    if let Kernels::Gpu(_) = kernels {
        cases.push(joint(Block, Grid::new(132, 32), 14, 1000));
        cases.push(joint(Thread, Grid::new(132, 32), 14, 100));
    }
    cases
}

impl Joint {
    pub(super) fn register_meanwhile(&self, kernels: Kernels) {
        let what = format!("{kernels}, {self:?}");
        // The host reaches queues and data while the kernel runs.
        let sides = Sides::reaching(MemoryScope::System);
        let (near, _far) = pairs(&sides, self.tags, Some(here::node().placement()));
        let triggers = match JointTriggers::new(near) {
            Err(Error::Trigger(why @ TriggerError::KernelsDoorbell { .. })) => {
                say(format_args!("         left out, because {why}: {self:?}"));
                return;
            }
            made => made.expect("a table"),
        };
        let scopes = self.scopes_of(0);
        let words = (self.tags * scopes) as usize;
        let values = sides.ours.arena(8 * words, ALL_ACCESS, 0x301);
        // What the scopes have stored, and the numbers of the operations without data.
        let target = sides.theirs.arena(8 * words, ALL_ACCESS, 0x302);
        let numbers = sides
            .theirs
            .arena(8 * self.tags as usize, ALL_ACCESS, 0x303);
        let signs = || here::shared(words, |_| Word64::new(0));
        let (go, done) = (&signs(), &signs());
        let threads = self.grid.blocks * self.grid.threads_per_block;
        let mut ended = here::outcomes(threads as usize);
        let kernel = TriggerJoint {
            triggers: triggers.handle(),
            scope: self.scope,
            turns: self.turns,
            go: Slice::new(go),
            done: Slice::new(done),
            // SAFETY: this memory outlives the launch; kernels and NICs alone store to it meanwhile.
            values: unsafe {
                Place::new(
                    std::ptr::with_exposed_provenance(values.address() as usize),
                    words as u64,
                )
            },
            scopes,
            limit_ms: ample().as_millis() as u64,
            endings: Output::new(&mut ended),
        };
        let host = Host {
            joint: self,
            triggers: &triggers,
            values: &values,
            target: &target,
            numbers: &numbers,
            go,
            done,
            what: &what,
        };
        thread::scope(|scope| {
            let registering = scope.spawn(|| host.register());
            here::launch(kernels, self.grid, &kernel);
            let by_host = registering.join().expect("a host that registers");
            say(format_args!(
                "         the host rang for {by_host} of {} that it registered while their triggers came, {self:?}",
                self.tags * self.turns
            ));
        });
        expect_done(&endings(&ended), &what);
    }

    /// How many scopes trigger a tag.
    fn scopes_of(&self, tag: u32) -> u32 {
        let in_block = match self.scope {
            ScopeKind::Thread => self.grid.threads_per_block,
            ScopeKind::Warp => self.grid.threads_per_block.div_ceil(32),
            ScopeKind::Block => 1,
        };
        (self.grid.blocks - tag).div_ceil(self.tags) * in_block
    }
}

/// The host beside [`TriggerJoint`].
struct Host<'a> {
    joint: &'a Joint,
    triggers: &'a JointTriggers,
    values: &'a Arena,
    target: &'a Arena,
    numbers: &'a Arena,
    go: &'a [Word64],
    done: &'a [Word64],
    what: &'a str,
}

impl Host<'_> {
    /// Registers three operations of each tag in each turn, and looks at what they brought. Gives how often it rang for
    /// those whose triggers came at the same time.
    fn register(&self) -> u32 {
        let tags = self.joint.tags;
        let mut random = SmallRng::seed_from_u64(tags.into());
        let mut by_host = 0;
        for turn in 1..=u64::from(self.joint.turns) {
            for tag in 0..tags {
                let number = Wqe::write_value(turn, self.numbers.remote(8 * i64::from(tag)));
                let ringer = self.register_one(tag, number);
                assert_eq!(
                    ringer,
                    Ringer::Trigger,
                    "{}: before its triggers",
                    self.what
                );
                self.go[tag as usize].store_release(2 * turn - 1);
            }
            for tag in 0..tags {
                self.await_scopes(tag, turn);
                let ringer = self.register_one(tag, self.write(tag));
                assert_eq!(ringer, Ringer::Host, "{}: behind its triggers", self.what);
                self.expect(tag, 2 * turn - 1);
                let mut number = [0; 8];
                let read = self.numbers.region().read(8 * tag as usize, &mut number);
                read.expect("inside");
                assert_eq!(
                    u64::from_ne_bytes(number),
                    turn,
                    "{}: turn {turn}",
                    self.what
                );
            }
            for tag in 0..tags {
                self.go[tag as usize].store_release(2 * turn);
                // As soon as so many have come, or all.
                self.await_triggers(tag, random.random_range(0..=self.joint.scopes_of(tag)));
                let ringer = self.register_one(tag, self.write(tag));
                by_host += u32::from(ringer == Ringer::Host);
            }
            for tag in 0..tags {
                self.expect(tag, 2 * turn);
            }
        }
        by_host
    }

    fn register_one(&self, tag: u32, wqe: Wqe<1>) -> Ringer {
        let threshold = self.joint.scopes_of(tag);
        let registered = self.triggers.register(tag, threshold, [wqe], self.limit());
        registered.unwrap_or_else(|error| panic!("{}: {error}", self.what))
    }

    /// Writes what all scopes of a tag have stored.
    fn write(&self, tag: u32) -> Wqe<1> {
        let (place, scopes) = self.places(tag);
        let place = 8 * place as i64;
        Wqe::write(
            self.values.local(place, 8 * scopes as u32),
            self.target.remote(place),
        )
    }

    /// Waits for all scopes' signs.
    fn await_scopes(&self, tag: u32, turn: u64) {
        let (place, scopes) = self.places(tag);
        let mut wait = self.limit().wait();
        let given = |done: &Word64| done.load_acquire() >= turn;
        while !self.done[place..][..scopes].iter().all(given) {
            assert!(!wait.expired(), "{}: no signs in turn {turn}", self.what);
        }
    }

    /// Waits for so many triggers that no operation takes.
    fn await_triggers(&self, tag: u32, triggers: u32) {
        let mut wait = self.limit().wait();
        let came = || {
            let counter = self.triggers.counter(tag).expect("a tag");
            counter.counted() - counter.threshold()
        };
        while came() < triggers {
            assert!(!wait.expired(), "{}: no triggers", self.what);
        }
    }

    /// Waits for a tag's operation, which has brought the values of that sign.
    fn expect(&self, tag: u32, sign: u64) {
        let waited = self.triggers.wait(tag, self.limit());
        waited.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        let (place, scopes) = self.places(tag);
        let mut found = vec![0; 8 * scopes];
        let read = self.target.region().read(8 * place, &mut found);
        read.expect("inside");
        let value = |place: usize| TriggerJoint::value(sign, place as u32).to_ne_bytes();
        let expected: Vec<u8> = (place..place + scopes).flat_map(value).collect();
        assert_eq!(found, expected, "{}: tag {tag}, sign {sign}", self.what);
    }

    /// A tag's first place, and how many it has.
    fn places(&self, tag: u32) -> (usize, usize) {
        let (most, scopes) = (self.joint.scopes_of(0), self.joint.scopes_of(tag));
        ((tag * most) as usize, scopes as usize)
    }

    fn limit(&self) -> Deadline {
        Deadline::after_ms(ample().as_millis() as u64)
    }
}
