//! Two kernels that count in turns, for a graph that launches itself.

use std::sync::atomic::Ordering;

use warpbell::Word64;
use warpbell_host_init::cuda::Module;
use warpbell_host_init::{Entry, Grid, Launch, Placement, Shared, StopWord, entry};
use warpbell_kernels::suite::{self, Round};

const ROUND: Entry<fn(Round<'_>)> = entry!(suite::suite_round);
/// One thread counts; the others are there.
const GRID: Grid = Grid::new(2, 64);

/// Two kernels that count in turns, one from the other's number, and the word for their end.
pub struct Turns {
    words: &'static [Word64; 2],
    /// Asks for the end.
    pub stop: &'static StopWord,
}

impl Turns {
    /// None has counted; in pinned memory, and for as long as the process is there.
    ///
    /// # Panics
    /// There is no such memory.
    pub fn new(module: &Module) -> Self {
        let place = Placement::Pinned(module.gpu());
        let words = Shared::new(place, [Word64::new(0), Word64::new(0)]).expect("words");
        let stop = StopWord::new(place).expect("a word");
        Self {
            words: &**Box::leak(Box::new(words)),
            stop: Box::leak(Box::new(stop)),
        }
    }

    /// Both kernels, of which one asks for the end once so many are counted.
    pub fn launches(&self, enough: u64) -> [Launch<'static>; 2] {
        [(0, 1), (1, 0)].map(|(from, to)| {
            let round = Round {
                from: &self.words[from],
                to: &self.words[to],
                enough,
                stop: self.stop.stop(),
            };
            Launch::new(ROUND, GRID, round)
        })
    }

    /// What each has counted.
    pub fn counted(&self) -> [u64; 2] {
        [0, 1].map(|at| self.words[at].load(Ordering::Relaxed))
    }
}
