//! GPUrdma's stencil in one dimension: edges exchanged by notifications within a kernel, as its figure 6 sketches it over
//! GASPI; by the host between kernels; and by operations that kernels trigger.

use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use warpbell_bench::origin::Origin;
use warpbell_bench::run::interrupt;
use warpbell_bench::run::launch::LIMIT_US;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::{gaspi, nodes};
use warpbell_host_init::{Grid, Launch, Node, ProtectionDomain, entry};
use warpbell_paper_kernels::path::{MAX_PARTS, Path};
use warpbell_paper_kernels::stencil::{
    ENDS, Owner, Stencil as Kernel, StencilStep, StencilTriggered, Strips, gaspi_stencil,
    stencil_step, stencil_triggered,
};
use warpbell_patterns::gaspi::host::{Gaspi, GaspiConfig};

use crate::application::{Application, Extent, Section};
use crate::halo::{Case, Pair, Ranks, Reference, Series, Stencil, Way};
use crate::{Error, rig};

/// For the report.
pub const APPLICATION: Application = Application {
    name: "stencil",
    title: "Stencil in one dimension",
    paper: "GPUrdma (Daoud, Watad and Silberstein 2016), figure 6: a sketch of a kernel that computes a stencil over GASPI, \
        whose blocks give the cells at their edges to other nodes by write_notify and wait for theirs by notify_waitsome. The \
        paper has no figures of it.",
    differs: "No card: the NIC is software, and both ranks are in one process. Each block has a strip of 64 to 1,024 cells of 8 \
        bytes, as many as the sides of Jacobi's relaxation, and the strips beside it are the other rank's. Beside GASPI's \
        notifications there are edges that a host exchanges between two kernels, and operations that are triggered. Every cell \
        is compared with a loop on the host behind each repetition.",
    run,
};

/// The title of the plot.
pub const PLOT: &str = "Stencil in one dimension";

/// Bytes of a cell.
const CELL: u32 = 8;
/// The most blocks of all ranks, which wait for one another: a GPU of 132 multiprocessors has room for them all, besides a NIC.
const MAX_BLOCKS: u32 = 128;

/// Strips of 64 to 1,024 cells in all ways; on a CPU fewer blocks, and none as large.
pub fn series(node: &Node) -> Series {
    let blocks = match node.gpu() {
        Some(_) => 8,
        None => 2,
    };
    Series::new(node, blocks)
}

/// Ranks whose blocks have a strip of `size` cells each, dealt out to the ranks in turn; the last one is beside the first.
pub struct Ring;

impl Stencil for Ring {
    const SIZE: &'static str = "block size (cells)";
    const WHOSE: &'static str = "size of a block's cells (bytes)";

    fn bytes(size: u32) -> u64 {
        u64::from(CELL) * u64::from(size)
    }

    /// All blocks wait for one another. Without GASPI there are two ranks, and a queue for each end of each strip.
    fn check(case: &Case, ways: &[Way]) -> Result<(), Error> {
        if case.ranks * case.blocks > MAX_BLOCKS {
            return Err(Error::Crowded {
                ranks: case.ranks,
                blocks: case.blocks,
                limit: MAX_BLOCKS,
            });
        }
        let Some(way) = ways.iter().find(|&&way| way != Way::Notified) else {
            return Ok(());
        };
        let most = MAX_PARTS / ENDS;
        let what = match (case.ranks, case.blocks) {
            (2, blocks) if blocks <= most => return Ok(()),
            (2, blocks) => format!("at most {most} blocks, not {blocks}"),
            (ranks, _) => format!("two ranks, not {ranks}"),
        };
        Err(Error::Unfit {
            what: format!(
                "edges {} take {what}; choose that, or --ways notified",
                way.name()
            ),
        })
    }

    fn reference(case: &Case) -> Result<Reference, Error> {
        let mut random = SmallRng::seed_from_u64(case.seed);
        let strips = case.ranks as usize * case.blocks as usize;
        let cells = (0..strips * case.size as usize).map(|_| random.next_u64());
        let start: Vec<u64> = cells.collect();
        Ok(Reference {
            expected: bytes_of(&advanced(&start, case.steps)?),
            start: bytes_of(&start),
        })
    }

    fn ranks(case: &Case, node: &Node, way: Way) -> Result<Box<dyn Ranks>, Error> {
        Ok(match way {
            Way::Notified => Box::new(Notified::new(case, node)?),
            Way::Host | Way::Triggered => Box::new(Bare {
                case: *case,
                pair: Pair::new(
                    node,
                    way,
                    (ENDS * case.blocks, CELL),
                    case.depth,
                    Strips::bytes(case.blocks, case.size),
                )?,
            }),
        })
    }
}

/// The cells after so many steps, by a loop.
///
/// # Errors
/// Ctrl-C before a step.
fn advanced(start: &[u64], steps: u32) -> Result<Vec<u64>, Error> {
    let mut cells = start.to_vec();
    let count = cells.len();
    for _ in 0..steps {
        interrupt::check()?;
        let of = |cell: usize| cells[cell % count];
        cells = (0..count)
            .map(|cell| Strips::next(of(cell + count - 1), of(cell), of(cell + 1)))
            .collect();
    }
    Ok(cells)
}

fn bytes_of(cells: &[u64]) -> Vec<u8> {
    cells.iter().flat_map(|cell| cell.to_ne_bytes()).collect()
}

fn grid(case: &Case) -> Grid {
    Grid {
        blocks: case.blocks,
        threads_per_block: case.threads,
    }
}

/// Whose strip each is.
fn owners(case: &Case) -> impl Iterator<Item = Owner> {
    let ranks = case.ranks;
    (0..ranks * case.blocks).map(move |strip| Owner::of(strip, ranks))
}

/// The first steps' strips in their order: where each lies in its rank's bytes, and its cells with the neighbours' at both
/// ends.
fn strips(case: &Case, start: &[u8]) -> impl Iterator<Item = (Owner, usize, Vec<u8>)> {
    let (cell, count) = (CELL as usize, start.len() / CELL as usize);
    let size = case.size;
    owners(case).enumerate().map(move |(strip, owner)| {
        let first = strip * size as usize;
        let with_ends = first + count - 1..=first + count + size as usize;
        let bytes = with_ends.flat_map(|at| start[at % count * cell..][..cell].to_vec());
        let offset = Strips::offset(size, owner.block, 0, 0) as usize;
        (owner, offset, bytes.collect())
    })
}

/// Where a block's cells lie after all steps.
fn last(case: &Case, block: u32) -> (usize, usize) {
    let first = Strips::offset(case.size, block, case.steps, 1);
    (first as usize, Ring::bytes(case.size) as usize)
}

/// Queue pairs of all ranks over GASPI: a queue of each end of each strip has one to each other rank, or two to its own where
/// there is no other one. No fewer than in the other ways, so that the NIC's tables, and what a look into them costs, are the
/// same wherever these suffice.
fn queue_pairs(case: &Case) -> u32 {
    let peers = match case.ranks {
        1 => 2,
        ranks => ranks * (ranks - 1),
    };
    (ENDS * case.blocks * peers).max(2 * MAX_PARTS)
}

/// Ranks over GASPI.
struct Notified {
    case: Case,
    node: Node,
    gaspi: Gaspi,
}

impl Notified {
    fn new(case: &Case, node: &Node) -> Result<Self, Error> {
        let driver = Way::Notified.driver();
        let nic = nodes::with_queue_pairs(node, rig::reach([driver; 2]), queue_pairs(case))?;
        let domains = nic.domains(case.ranks as usize)?;
        let queues = |domain: &ProtectionDomain| driver.queues(node, domain, case.depth);
        let queues = domains.first().map(queues).unwrap_or_default();
        let notifications = Kernel::notifications(case.blocks);
        let config = GaspiConfig {
            // The strips beside one are its own rank's only where there is no other one.
            to_self: case.ranks == 1,
            ..gaspi::config(queues, ENDS * case.blocks, notifications)
        };
        let mut gaspi = Gaspi::new(&domains, &config)?;
        gaspi.segment_create(0, Strips::bytes(case.blocks, case.size))?;
        Ok(Self {
            case: *case,
            node: node.clone(),
            gaspi,
        })
    }
}

impl Ranks for Notified {
    fn begin(&self, start: &[u8]) -> Result<(), Error> {
        let empty = vec![0; Strips::bytes(self.case.blocks, self.case.size)];
        for rank in 0..self.case.ranks {
            self.gaspi.segment_write(rank, 0, 0, &empty)?;
        }
        for (owner, offset, cells) in strips(&self.case, start) {
            self.gaspi.segment_write(owner.rank, 0, offset, &cells)?;
        }
        Ok(())
    }

    fn run(&self) -> Result<Duration, Error> {
        let Case { ranks, steps, .. } = self.case;
        let outcomes = gaspi::outcomes(&self.node, ranks)?;
        let launches = (0..ranks).zip(&outcomes).map(|(rank, outcome)| {
            let parameters = Kernel {
                gaspi: self.gaspi.handle(rank)?,
                cells: self.case.size,
                steps,
                outcome,
            };
            Ok(Launch::new(
                entry!(gaspi_stencil),
                grid(&self.case),
                parameters,
            ))
        });
        let launches = launches.collect::<Result<Vec<_>, Error>>()?;
        let meant = Duration::from_micros(LIMIT_US).saturating_mul(steps);
        let began = std::time::Instant::now();
        let what = ("the stencil", meant);
        gaspi::run(&self.node, &self.gaspi, what, &launches, &outcomes)?;
        Ok(began.elapsed())
    }

    fn cells(&self) -> Result<Option<Vec<u8>>, Error> {
        let mut all = Vec::new();
        for owner in owners(&self.case) {
            let (first, bytes) = last(&self.case, owner.block);
            let mut cells = vec![0; bytes];
            self.gaspi.segment_read(owner.rank, 0, first, &mut cells)?;
            all.extend(cells);
        }
        Ok(Some(all))
    }
}

/// Two ranks without GASPI.
struct Bare {
    case: Case,
    pair: Pair,
}

impl Bare {
    fn strips(&self, rank: usize) -> Strips {
        Strips {
            start: self.pair.start(rank),
            cells: self.case.size,
        }
    }
}

impl Ranks for Bare {
    fn begin(&self, start: &[u8]) -> Result<(), Error> {
        self.pair.clear();
        for (owner, offset, cells) in strips(&self.case, start) {
            self.pair.cells[owner.rank as usize].write(offset, &cells);
        }
        Ok(())
    }

    fn run(&self) -> Result<Duration, Error> {
        let (steps, grid) = (self.case.steps, grid(&self.case));
        let Some(triggers) = &self.pair.triggers else {
            let launch = |rank, step| {
                let strips = self.strips(rank);
                Launch::new(entry!(stencil_step), grid, StencilStep { strips, step })
            };
            // A part for each end of each block's strip.
            let message = |rank, path: &Path<'_>, part, step| {
                let (block, end) = (part / ENDS, part % ENDS);
                let own = Owner {
                    rank: rank as u32,
                    block,
                };
                self.strips(rank).message(path, own, end, step)
            };
            return self.pair.by_hosts(steps, launch, message);
        };
        self.pair
            .triggered(steps, triggers, |rank, path, triggers, outcome| {
                let parameters = StencilTriggered {
                    strips: self.strips(rank),
                    rank: rank as u32,
                    steps,
                    path,
                    triggers,
                    outcome,
                };
                Launch::new(entry!(stencil_triggered), grid, parameters)
            })
    }

    fn cells(&self) -> Result<Option<Vec<u8>>, Error> {
        let cells = owners(&self.case).flat_map(|owner| {
            let (first, bytes) = last(&self.case, owner.block);
            self.pair.cells[owner.rank as usize].read(first, bytes)
        });
        let cells = cells.collect();
        Ok(self.pair.intact().then_some(cells))
    }
}

fn run(node: &Node, extent: Extent, origin: &Origin, screen: &Screen) -> Result<Section, Error> {
    let series = Series {
        seconds: extent.seconds,
        ..series(node)
    };
    series.section::<Ring>(node, extent.quick, (PLOT, origin), screen)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that is told of larger strips than its segment has room for touches none of it.
    #[test]
    fn strips_beyond_the_segment_are_refused() {
        let node = Node::cpu();
        let fits = Case {
            size: 8,
            ranks: 2,
            blocks: 1,
            threads: 1,
            steps: 1,
            repetitions: 1,
            limit: Duration::from_secs(1),
            depth: 16,
            seed: 0,
        };
        let mut notified = Notified::new(&fits, &node).unwrap();
        notified.run().unwrap();
        for size in [9, 1 << 20, u32::MAX] {
            notified.case.size = size;
            let refused = notified.run().unwrap_err().to_string();
            assert!(
                refused.contains("words of a memory that has"),
                "{size}: {refused}"
            );
        }
        let mut found = vec![1; Strips::bytes(1, 8)];
        notified.gaspi.segment_read(0, 0, 0, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0));
    }
}
