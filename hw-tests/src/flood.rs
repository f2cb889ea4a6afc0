//! Many threads at one queue, each of whose requests shows whether it was carried out once.

use warpbell::SendQueueHandle;
use warpbell_cpu_grid::Grid;
use warpbell_host_init::Kernels;
use warpbell_kernels::suite::{Flood, Mode, Output};

use crate::arena::Arena;
use crate::here;
use crate::post::{ample, endings, expect_done};
use crate::sides::{ALL_ACCESS, Sides};

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
        let sides = Sides::chosen();
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
        let threads = grid.blocks * grid.threads_per_block;
        let counters = self.values.address() + 8 * VALUES as u64;

        // Every value lands in its place, and every counter goes up by one a round.
        let mut expected = self.values.image();
        let mut last = self.found.image();
        for thread in 0..threads {
            for round in 0..rounds {
                let place = u64::from(thread * rounds + round);
                let value = Flood::value(thread, round).to_le_bytes();
                expected.set(self.values.address() + 8 * place, &value);
            }
            let counter = counters + 8 * u64::from(thread);
            let before = expected.get(counter, 8).try_into().expect("eight bytes");
            let after = u64::from_le_bytes(before).wrapping_add(rounds.into());
            expected.set(counter, &after.to_le_bytes());
            // The last addition found one less.
            let found = after.wrapping_sub(1).to_le_bytes();
            last.set(self.found.address() + 8 * u64::from(thread), &found);
        }

        let mut words = here::outcomes(threads as usize);
        let kernel = Flood {
            queue,
            mode,
            rounds,
            patience_ns: ample().as_nanos() as u64,
            values: self.values.address(),
            counters,
            remote_key: self.values.region().rkey().0,
            local_key: self.found.region().lkey().0,
            found: self.found.address(),
            endings: Output::new(&mut words),
        };
        here::launch(kernels, grid, &kernel);
        expect_done(&endings(&words), what);
        self.values.check(&expected, what);
        self.found.check(&last, what);
    }
}
