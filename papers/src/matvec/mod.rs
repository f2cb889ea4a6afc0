//! The product of a matrix with each of a stream of short vectors, the server's network driven by its host or by its
//! kernel.

mod alone;
mod series;

use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use warpbell::{Slice, Word64};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use warpbell_bench::cause;
use warpbell_bench::run::interrupt;
use warpbell_bench::run::memory::{self, Memory};
use warpbell_host_init::{Buffer, Grid, Launch, Node, Shared, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::matvec::{
    END, MatvecClient, MatvecServer, Multiply, SIDE, TURNS, VECTOR_BYTES, matvec_batch,
    matvec_client, matvec_server,
};
use warpbell_paper_kernels::path::Path;

use crate::Error;
use crate::application::Measurement;
use crate::rig::{Alone, Driver, HostQueue, Rig};

pub use series::{APPLICATION, PAPER, PaperRow, Results, Series, usual_blocks};

/// Batches that are sent in turn, so that what is left of one is not taken for the next.
const BATCHES: u32 = 3;

/// What is multiplied, and for how long.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Case {
    /// Blocks of the server, each of which multiplies a part of a batch.
    pub blocks: u32,
    /// Threads of each, and those of the client that compare.
    pub threads: u32,
    /// Bytes of a batch.
    pub bytes: u64,
    /// Batches before those that count.
    pub warm_up: u32,
    /// The most batches that count.
    pub rounds: u32,
    /// No batch begins later than that.
    pub limit: Duration,
    /// Depth of each queue in blocks of 64 bytes.
    pub depth: u32,
    /// Seed of matrix and vectors.
    pub seed: u64,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Measured {
    /// Who drove the server's network.
    pub driver: Driver,
    /// Blocks of the server.
    pub blocks: u32,
    /// Bytes of a batch.
    pub bytes: u64,
    /// Vectors of a batch.
    pub vectors: u64,
    /// Batches.
    pub rounds: u64,
    /// From the first batch's post to the last one's products.
    pub seconds: f64,
    /// Vectors multiplied, in 10⁶ a second.
    pub million_per_s: f64,
    /// The longest that a batch took, in microseconds.
    pub longest_us: f64,
    /// Words of 8 bytes that were not what they should be, of all batches.
    pub wrong: u64,
    /// All products of all batches are what a loop on the host says, and nothing beside them was touched.
    pub verified: bool,
    /// What client and server take for a batch without a NIC's part, where that was asked for.
    pub driver_alone: Option<Alone>,
}

impl Measured {
    /// Microseconds of a batch.
    fn us(&self) -> f64 {
        1e6 * self.seconds / self.rounds as f64
    }
}

/// The columns of [`Measured::row`].
pub const HEADER: &str = "batch      blocks   driven by   M vectors/s   batches   µs a batch   longest µs   vectors a batch";

impl Measurement for Measured {
    fn row(&self) -> String {
        format!(
            "{:<10} {:>6}   {:<10} {:>12.3} {:>9} {:>12.2} {:>12.1} {:>17}{}",
            warpbell_bench::run::screen::bytes(self.bytes),
            self.blocks,
            match self.driver {
                Driver::Host => "host",
                Driver::Kernel | Driver::Triggered | Driver::Proxy => "kernel",
            },
            self.million_per_s,
            self.rounds,
            self.us(),
            self.longest_us,
            self.vectors,
            Alone::words(self.driver_alone.as_ref()),
        )
    }

    fn verified(&self) -> bool {
        self.verified
    }
}

/// What is multiplied and what comes of it, by a loop: the sum over the columns in their order, each product and each sum
/// rounded.
fn product<'v>(matrix: &'v [f32], vector: &'v [f32]) -> impl Iterator<Item = f32> + 'v {
    matrix.chunks_exact(SIDE as usize).map(move |row| {
        let terms = row.iter().zip(vector).map(|(one, other)| one * other);
        terms.fold(0.0, |sum, term| sum + term)
    })
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

/// Matrix, vectors and products in memory of both ends.
struct Data {
    matrix: Buffer,
    expected: Buffer,
    /// The client's batches.
    batches: Memory,
    /// What comes back to it.
    returned: Memory,
    /// A batch at the server.
    arrived: Memory,
    /// Its products there.
    products: Memory,
}

impl Data {
    fn new(case: &Case, node: &Node, rig: &Rig) -> Result<Self, Error> {
        let mut random = SmallRng::seed_from_u64(case.seed);
        let mut values = |count: usize| -> Vec<f32> {
            (0..count)
                .map(|_| random.random::<f32>() * 2.0 - 1.0)
                .collect()
        };
        let matrix = values((SIDE * SIDE) as usize);
        let vectors = values((u64::from(BATCHES) * case.bytes / 4) as usize);
        let expected: Vec<f32> = vectors
            .chunks_exact(SIDE as usize)
            .flat_map(|vector| product(&matrix, vector))
            .collect();
        let bytes = case.bytes as usize;
        let placed = |values: &[f32]| {
            let buffer = Buffer::placed(node.nic_placement(), 4 * values.len())?;
            buffer.write(0, &bytes_of(values))?;
            Ok::<_, Error>(buffer)
        };
        let data = Self {
            matrix: placed(&matrix)?,
            expected: placed(&expected)?,
            batches: rig.near.memory(node, BATCHES as usize * bytes)?,
            returned: rig.near.memory(node, TURNS as usize * bytes)?,
            arrived: rig.far.memory(node, bytes)?,
            products: rig.far.memory(node, bytes)?,
        };
        data.batches.write(0, &bytes_of(&vectors));
        Ok(data)
    }

    fn multiply(&self, case: &Case) -> Multiply {
        Multiply {
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            matrix: unsafe { memory::place(&self.matrix) },
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            vectors: unsafe { self.arrived.place() },
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            products: unsafe { self.products.place() },
            vectors_of_a_part: case.vectors_of_a_part(),
        }
    }

    /// Whether nothing beside batches and products was touched.
    fn guarded(&self) -> bool {
        let all = [&self.batches, &self.returned, &self.arrived, &self.products];
        all.iter().all(|memory| memory.check_guards().is_ok())
    }
}

impl Case {
    fn vectors_of_a_part(&self) -> u32 {
        (self.bytes / u64::from(self.blocks * VECTOR_BYTES)) as u32
    }

    /// Whether a batch has as many vectors for each block.
    ///
    /// # Errors
    /// [`Error::Uneven`].
    pub fn check(&self) -> Result<(), Error> {
        let part = u64::from(self.blocks * VECTOR_BYTES);
        match self.bytes > 0 && self.bytes.is_multiple_of(part) {
            true => Ok(()),
            false => Err(Error::Uneven {
                bytes: self.bytes,
                parts: self.blocks,
                what: "vectors",
                unit: VECTOR_BYTES.into(),
            }),
        }
    }

    /// Multiplies batch after batch.
    ///
    /// # Errors
    /// A batch that is not even; a kernel or the host failed; Ctrl-C before a batch counted.
    pub fn measure(&self, node: &Node, driver: Driver) -> Result<Measured, Error> {
        interrupt::check()?;
        self.check()?;
        let rig = Rig::new(node, [Driver::Kernel, driver], self.blocks, self.depth)?;
        let data = Data::new(self, node, &rig)?;
        let part = (self.bytes / u64::from(self.blocks)) as u32;
        let handles = [rig.handles(&rig.near)?, rig.handles(&rig.far)?];
        let there = (&data.batches, &data.arrived);
        let back = (&data.products, &data.returned);
        let there = rig.near.path(&rig.far, &handles[0], there, part);
        let back = rig.far.path(&rig.near, &handles[1], back, part);

        let asker = Asker::new(self, node)?;
        let outcome = node.shared(Outcome::new())?;
        let client = Some(asker.launch(self, node, &data, there, BATCHES)?);
        let ran = match driver {
            Driver::Kernel | Driver::Triggered | Driver::Proxy => {
                self.serve_by_kernel(node, &rig, &data, client, back, &outcome)
            }
            Driver::Host => self.serve_by_host(node, &rig, &data, client, back, || ()),
        };
        let kernels = [("the client", &*asker.outcome), ("the server", &*outcome)];
        cause::ended(ran, kernels)?;
        let rounds = asker.rounds()?;
        let wrong = asker.wrong();
        let seconds = asker.number(MatvecClient::NANOSECONDS) as f64 / 1e9;
        let vectors = self.bytes / u64::from(VECTOR_BYTES);
        Ok(Measured {
            driver,
            blocks: self.blocks,
            bytes: self.bytes,
            vectors,
            rounds,
            seconds,
            million_per_s: (rounds * vectors) as f64 / seconds / 1e6,
            longest_us: asker.number(MatvecClient::LONGEST) as f64 / 1e3,
            wrong,
            verified: wrong == 0 && data.guarded(),
            driver_alone: None,
        })
    }

    fn grid(&self) -> Grid {
        Grid::new(self.blocks, self.threads)
    }

    fn serve_by_kernel(
        &self,
        node: &Node,
        rig: &Rig,
        data: &Data,
        client: Option<Launch<'_>>,
        path: Path<'_>,
        outcome: &Outcome,
    ) -> Result<(), Error> {
        let server = MatvecServer {
            multiply: data.multiply(self),
            path,
            outcome,
        };
        let server = Launch::new(entry!(matvec_server), self.grid(), server);
        let all: Vec<_> = [server].into_iter().chain(client).collect();
        Ok(node.run_for(&all, &rig.pairs(), self.limit)?)
    }

    /// Calls `begin` before the first batch. Without a client somebody else says when there is no more.
    fn serve_by_host(
        &self,
        node: &Node,
        rig: &Rig,
        data: &Data,
        client: Option<Launch<'_>>,
        path: Path<'_>,
        begin: impl FnOnce(),
    ) -> Result<(), Error> {
        let pairs = rig.pairs();
        let batch = Launch::new(entry!(matvec_batch), self.grid(), data.multiply(self));
        let batch = [batch];
        // Once ahead, so that no first launch counts.
        node.run(&batch, &[])?;
        let mut queues = rig.far.host_queues()?;
        begin();
        let client = client.as_slice();
        thread::scope(|scope| {
            let client = (!client.is_empty())
                .then(|| scope.spawn(|| Ok(node.run_for(client, &pairs, self.limit)?)));
            let over = || client.as_ref().is_some_and(|client| client.is_finished());
            let mut serve = || {
                for round in 0.. {
                    for part in 0..self.blocks {
                        let told = rig.far.wait(part, round + 1, over)?;
                        if told.is_none_or(|told| told == END) {
                            return Ok(queues.iter_mut().try_for_each(HostQueue::drain)?);
                        }
                    }
                    node.run(&batch, &[])?;
                    for (part, queue) in (0..).zip(&mut queues) {
                        let products = path.write_part(part, 0, (round % u64::from(TURNS)) as u32);
                        queue.post([products, path.tell(part, round + 1)].into_iter())?;
                    }
                }
                Ok(())
            };
            let served = serve();
            let client = client.map_or(Ok(()), |client| {
                let client = client.join();
                client.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            cause::first_cause([client, served])
        })
    }
}

/// The client of a case.
struct Asker {
    /// Threads that compare.
    comparing: u32,
    numbers: Shared<[Word64]>,
    outcome: Shared<Outcome>,
}

impl Asker {
    fn new(case: &Case, node: &Node) -> Result<Self, Error> {
        let comparing = case.threads.max(LANES);
        Ok(Self {
            comparing,
            numbers: node.words(MatvecClient::WRONG as usize + comparing as usize)?,
            outcome: node.shared(Outcome::new())?,
        })
    }

    /// The kernel that sends the first so many batches in turn.
    fn launch<'l>(
        &'l self,
        case: &Case,
        node: &Node,
        data: &'l Data,
        path: Path<'l>,
        batches: u32,
    ) -> Result<Launch<'l>, Error> {
        let client = MatvecClient {
            path,
            batches,
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            products: unsafe { data.returned.place() },
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            expected: unsafe { memory::place(&data.expected) },
            warm_up: case.warm_up,
            rounds: case.rounds,
            nanoseconds: case.limit.as_nanos().try_into().unwrap_or(u64::MAX),
            stop: interrupt::stop(node.placement())?,
            numbers: Slice::new(&self.numbers),
            outcome: &self.outcome,
        };
        let grid = Grid::new(1, LANES + self.comparing);
        Ok(Launch::new(entry!(matvec_client), grid, client))
    }

    fn number(&self, index: u64) -> u64 {
        self.numbers[index as usize].load(Ordering::Relaxed)
    }

    /// Batches that counted: one at least, if Ctrl-C did not come before.
    fn rounds(&self) -> Result<u64, Error> {
        match self.number(MatvecClient::ROUNDS) {
            0 => Err(warpbell_bench::run::Error::Interrupted.into()),
            rounds => Ok(rounds),
        }
    }

    /// Words that were not what they should be.
    fn wrong(&self) -> u64 {
        let threads = 0..u64::from(self.comparing);
        threads
            .map(|thread| self.number(MatvecClient::WRONG + thread))
            .sum()
    }
}

/// Threads of a warp: one drives the client's queues.
const LANES: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_the_sum_over_its_row_in_order() {
        // In any other order 1 is lost beside 2^24.
        let side = SIDE as usize;
        let mut matrix = vec![0.0; side * side];
        let large = (1 << 24) as f32;
        matrix[5 * side..5 * side + 3].copy_from_slice(&[large, -large, 1.0]);
        matrix[6 * side..6 * side + 3].copy_from_slice(&[large, 1.0, -large]);
        let vector = vec![1.0; side];
        let found: Vec<f32> = product(&matrix, &vector).collect();
        assert_eq!(found.len(), side);
        assert_eq!((found[5], found[6], found[7]), (1.0, 0.0, 0.0));
    }
}
