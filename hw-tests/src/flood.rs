//! Many threads at one queue, each of whose requests shows whether it was carried out once.

use warpbell::{SendQueueHandle, Slice};
use warpbell_cpu_grid::Grid;
use warpbell_host_init::Kernels;
use warpbell_kernels::suite::{CommonFlood, EndingWords, Flood, Mode, Output, Pour, ScopeKind};

use crate::arena::{Arena, Image};
use crate::here;
use crate::post::{ample, endings, expect_done};
use crate::sides::{ALL_ACCESS, Common, Sides};

/// Values of a launch at most, over all its threads and rounds.
const VALUES: usize = 1 << 16;
/// Threads of a launch at most.
const MAX_THREADS: usize = 1024;

/// Both ends, with memory for a flood.
pub struct Flooding {
    /// Both ends.
    pub sides: Sides,
    values: Arena,
    found: Arena,
}

impl Flooding {
    /// Between what the command line chose.
    #[expect(clippy::new_without_default, reason = "it opens devices")]
    pub fn new() -> Self {
        Self::between(Sides::chosen())
    }

    /// Between these sides.
    pub fn between(sides: Sides) -> Self {
        Self {
            values: sides
                .theirs
                .arena(8 * (VALUES + MAX_THREADS), ALL_ACCESS, 1),
            found: sides.ours.arena(8 * MAX_THREADS, ALL_ACCESS, 2),
            sides,
        }
    }

    /// Lets a grid at a queue of our end, and looks at every byte.
    pub fn flood(
        &self,
        kernels: Kernels,
        grid: Grid,
        mode: Mode,
        rounds: u32,
        queue: SendQueueHandle<'_>,
        what: &str,
    ) {
        let wanted = self.expect(grid, rounds);
        let mut words = here::outcomes(threads(grid));
        let kernel = Flood {
            queue,
            mode,
            pour: self.pour(rounds, &mut words),
        };
        here::launch(kernels, grid, &kernel);
        expect_done(&endings(&words), what);
        self.check(&wanted, what);
    }

    /// The same over queue pairs with one completion queue, one for each scope.
    pub fn flood_common(
        &self,
        kernels: Kernels,
        grid: Grid,
        scope: ScopeKind,
        rounds: u32,
        common: &Common,
        what: &str,
    ) {
        let handle = |queue: usize| common.ours[queue].send_queue().expect("a send queue");
        let queues = here::shared(common.ours.len(), handle);
        let completions = common.completions.handle(&common.ours);
        let completions = completions.expect("its queue pairs");
        let wanted = self.expect(grid, rounds);
        let mut words = here::outcomes(threads(grid));
        let kernel = CommonFlood {
            completions,
            queues: Slice::new(&queues),
            scope,
            pour: self.pour(rounds, &mut words),
        };
        here::launch(kernels, grid, &kernel);
        expect_done(&endings(&words), what);
        self.check(&wanted, what);
    }

    /// What each thread does; the words take how it fared.
    fn pour<'w>(&self, rounds: u32, words: &'w mut [EndingWords]) -> Pour<'w> {
        Pour {
            rounds,
            patience_ns: ample().as_nanos() as u64,
            values: self.values.address(),
            counters: self.counters(),
            remote_key: self.values.region().rkey().0,
            local_key: self.found.region().lkey().0,
            found: self.found.address(),
            endings: Output::new(words),
        }
    }

    fn counters(&self) -> u64 {
        self.values.address() + 8 * VALUES as u64
    }

    /// What both ends' memory is to be after a flood: the values and counters, and what was found.
    fn expect(&self, grid: Grid, rounds: u32) -> [Image; 2] {
        // Every value lands in its place, and every counter goes up by one a round.
        let mut expected = self.values.image();
        let mut last = self.found.image();
        for thread in 0..threads(grid) as u32 {
            for round in 0..rounds {
                let place = u64::from(thread * rounds + round);
                let value = Pour::value(thread, round).to_le_bytes();
                expected.set(self.values.address() + 8 * place, &value);
            }
            let counter = self.counters() + 8 * u64::from(thread);
            let before = expected.get(counter, 8).try_into().expect("eight bytes");
            let after = u64::from_le_bytes(before).wrapping_add(rounds.into());
            expected.set(counter, &after.to_le_bytes());
            // The last addition found one less.
            let found = after.wrapping_sub(1).to_le_bytes();
            last.set(self.found.address() + 8 * u64::from(thread), &found);
        }
        [expected, last]
    }

    fn check(&self, [expected, last]: &[Image; 2], what: &str) {
        self.values.check(expected, what);
        self.found.check(last, what);
    }
}

fn threads(grid: Grid) -> usize {
    (grid.blocks * grid.threads_per_block) as usize
}
