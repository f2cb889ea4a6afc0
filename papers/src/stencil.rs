//! GPUrdma's stencil in one dimension: edges exchanged by notifications within a kernel, as its figure 6 sketches it over
//! GASPI; by the host between kernels; and by operations that kernels trigger.

use std::ops::Range;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use warpbell_bench::origin::Origin;
use warpbell_bench::party::Party;
use warpbell_bench::run::interrupt;
use warpbell_bench::run::launch::LIMIT_US;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::{cause, gaspi, nodes};
use warpbell_host_init::{Grid, Launch, Node, ProtectionDomain, QueuePair, entry};
use warpbell_paper_kernels::path::{MAX_PARTS, Path};
use warpbell_paper_kernels::stencil::{
    ENDS, Owner, Stencil as Kernel, StencilStep, StencilTriggered, Strips, gaspi_stencil,
    stencil_step, stencil_triggered,
};
use warpbell_patterns::gaspi::GaspiHandle;
use warpbell_patterns::gaspi::host::{Gaspi, GaspiConfig, GaspiRank};

use crate::Error;
use crate::application::{Application, Extent, Section};
use crate::halo::{self, Case, Pair, Ranks, Reference, Series, Stencil, Way};
use crate::rig::{self, Member};

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
        if ways.contains(&Way::Proxied) {
            return Err(no_proxy());
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

    fn ranks(case: &Case, party: &Party, way: Way) -> Result<Box<dyn Ranks>, Error> {
        Ok(match way {
            Way::Notified => Box::new(Notified::new(case, party)?),
            Way::Proxied => return Err(no_proxy()),
            Way::Host | Way::Triggered => Box::new(Bare {
                case: *case,
                way,
                pair: Pair::new(
                    party,
                    way,
                    (ENDS * case.blocks, CELL),
                    case.depth,
                    Strips::bytes(case.blocks, case.size),
                )?,
            }),
        })
    }
}

/// GASPI's queues post to the NIC themselves.
fn no_proxy() -> Error {
    Error::Unfit {
        what: "the stencil has no way by proxy; choose other --ways, or the program jacobi".into(),
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
    Grid::new(case.blocks, case.threads)
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
    /// Those that this process runs.
    own: Range<u32>,
    gaspi: Members,
}

/// A GASPI program's ranks in this process.
enum Members {
    All(Gaspi),
    One(Box<GaspiRank>),
}

impl Members {
    fn handle(&self, rank: u32) -> Result<GaspiHandle<'_>, Error> {
        match self {
            Self::All(gaspi) => Ok(gaspi.handle(rank)?),
            Self::One(gaspi) => Ok(gaspi.handle()),
        }
    }

    fn queue_pairs(&self, rank: u32) -> Result<Vec<&QueuePair>, Error> {
        match self {
            Self::All(gaspi) => Ok(gaspi.queue_pairs(rank)?.collect()),
            Self::One(gaspi) => Ok(gaspi.queue_pairs().collect()),
        }
    }

    fn write(&self, rank: u32, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        match self {
            Self::All(gaspi) => Ok(gaspi.segment_write(rank, 0, offset, bytes)?),
            Self::One(gaspi) => Ok(gaspi.segment_write(0, offset, bytes)?),
        }
    }

    fn read(&self, rank: u32, offset: usize, bytes: usize) -> Result<Vec<u8>, Error> {
        let mut found = vec![0; bytes];
        match self {
            Self::All(gaspi) => gaspi.segment_read(rank, 0, offset, &mut found)?,
            Self::One(gaspi) => gaspi.segment_read(0, offset, &mut found)?,
        }
        Ok(found)
    }
}

impl Notified {
    fn new(case: &Case, party: &Party) -> Result<Self, Error> {
        let (node, driver) = (party.node(), Way::Notified.driver());
        let own = party.own_ranks(case.ranks)?;
        let nic = nodes::with_queue_pairs(node, rig::reach([driver; 2]), queue_pairs(case))?;
        let notifications = Kernel::notifications(case.blocks);
        let config = |domain: &ProtectionDomain| GaspiConfig {
            // The strips beside one are its own rank's only where there is no other one.
            to_self: case.ranks == 1,
            ..gaspi::config(
                party.queues(driver.queues(node, domain, case.depth)),
                ENDS * case.blocks,
                notifications,
            )
        };
        let bytes = Strips::bytes(case.blocks, case.size);
        let gaspi = match party.world(&nic)? {
            None => {
                let domains = nic.domains(case.ranks as usize)?;
                let mut gaspi = Gaspi::new(&domains, &config(&domains[0]))?;
                gaspi.segment_create(0, bytes)?;
                Members::All(gaspi)
            }
            Some(world) => {
                let config = config(world.domain());
                let mut gaspi = GaspiRank::new(world, &config)?;
                gaspi.segment_create(0, bytes)?;
                Members::One(gaspi.into())
            }
        };
        Ok(Self {
            case: *case,
            node: node.clone(),
            own,
            gaspi,
        })
    }
}

impl Ranks for Notified {
    fn begin(&self, start: &[u8]) -> Result<(), Error> {
        let empty = vec![0; Strips::bytes(self.case.blocks, self.case.size)];
        for rank in self.own.clone() {
            self.gaspi.write(rank, 0, &empty)?;
        }
        for (owner, offset, cells) in strips(&self.case, start) {
            if self.own.contains(&owner.rank) {
                self.gaspi.write(owner.rank, offset, &cells)?;
            }
        }
        Ok(())
    }

    fn run(&self) -> Result<Duration, Error> {
        interrupt::check()?;
        let steps = self.case.steps;
        let outcomes = gaspi::outcomes(&self.node, self.own.len() as u32)?;
        let (mut launches, mut queue_pairs) = (Vec::new(), Vec::new());
        for (rank, outcome) in self.own.clone().zip(&outcomes) {
            let parameters = Kernel {
                gaspi: self.gaspi.handle(rank)?,
                cells: self.case.size,
                steps,
                outcome,
            };
            launches.push(Launch::new(
                entry!(gaspi_stencil),
                grid(&self.case),
                parameters,
            ));
            queue_pairs.extend(self.gaspi.queue_pairs(rank)?);
        }
        let meant = Duration::from_micros(LIMIT_US).saturating_mul(steps);
        let began = Instant::now();
        let ran = self.node.run_for(&launches, &queue_pairs, meant);
        let took = began.elapsed();
        let kernels = outcomes.iter().map(|outcome| ("the stencil", &**outcome));
        cause::ended(ran.map_err(Error::from), kernels)?;
        Ok(took)
    }

    fn are_right(&self, expected: &[u8]) -> Result<bool, Error> {
        right(&self.case, &self.own, expected, |rank, first, bytes| {
            self.gaspi.read(rank, first, bytes)
        })
    }
}

/// Whether the last steps' strips of these ranks are as expected of all, where `read` gives bytes of a rank.
fn right(
    case: &Case,
    own: &Range<u32>,
    expected: &[u8],
    read: impl Fn(u32, usize, usize) -> Result<Vec<u8>, Error>,
) -> Result<bool, Error> {
    let bytes = Ring::bytes(case.size) as usize;
    let mut right = true;
    for (owner, strip) in owners(case).zip(expected.chunks_exact(bytes)) {
        if own.contains(&owner.rank) {
            let first = Strips::offset(case.size, owner.block, case.steps, 1) as usize;
            right &= read(owner.rank, first, bytes)? == strip;
        }
    }
    Ok(right)
}

/// Two ranks without GASPI, or one of them.
struct Bare {
    case: Case,
    way: Way,
    pair: Pair,
}

impl Bare {
    fn strips(&self, member: &Member) -> Strips {
        Strips {
            start: halo::start(member),
            cells: self.case.size,
        }
    }
}

impl Ranks for Bare {
    fn begin(&self, start: &[u8]) -> Result<(), Error> {
        self.pair.clear();
        for (owner, offset, cells) in strips(&self.case, start) {
            let mut members = self.pair.members.iter();
            if let Some(member) = members.find(|of| of.rank as u32 == owner.rank) {
                member.memory.write(offset, &cells);
            }
        }
        Ok(())
    }

    fn run(&self) -> Result<Duration, Error> {
        let (steps, grid) = (self.case.steps, grid(&self.case));
        if self.way == Way::Host {
            let launch = |member: &Member, step| {
                let strips = self.strips(member);
                Launch::new(entry!(stencil_step), grid, StencilStep { strips, step })
            };
            // A part for each end of each block's strip.
            let message = |member: &Member, path: &Path<'_>, part, step| {
                let (block, end) = (part / ENDS, part % ENDS);
                let own = Owner {
                    rank: member.rank as u32,
                    block,
                };
                self.strips(member).message(path, own, end, step)
            };
            return self.pair.by_hosts(steps, launch, message);
        }
        self.pair
            .triggered(steps, |member, path, triggers, outcome| {
                let parameters = StencilTriggered {
                    strips: self.strips(member),
                    rank: member.rank as u32,
                    steps,
                    path,
                    triggers,
                    outcome,
                };
                Launch::new(entry!(stencil_triggered), grid, parameters)
            })
    }

    fn are_right(&self, expected: &[u8]) -> Result<bool, Error> {
        let mut all = self.pair.intact();
        for Member { rank, memory, .. } in &self.pair.members {
            let own = *rank as u32..*rank as u32 + 1;
            all &= right(&self.case, &own, expected, |_, first, bytes| {
                Ok(memory.read(first, bytes))
            })?;
        }
        Ok(all)
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
        let mut notified = Notified::new(&fits, &Party::alone(&node)).unwrap();
        notified.run().unwrap();
        for size in [9, 1 << 20, u32::MAX] {
            notified.case.size = size;
            let refused = notified.run().unwrap_err().to_string();
            assert!(
                refused.contains("words of a memory that has"),
                "{size}: {refused}"
            );
        }
        let found = notified.gaspi.read(0, 0, Strips::bytes(1, 8)).unwrap();
        assert!(found.iter().all(|byte| *byte == 0));
    }
}
