//! What client and server take for a batch, if nobody carries out what they post and they wait for no data.

use std::time::Duration;

use warpbell_bench::cause;
use warpbell_host_init::Node;
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::matvec::{END, MatvecClient, TURNS};

use super::{Asker, Case, Data, Measured};
use crate::Error;
use crate::rig::{Alone, Driver, Rig};

/// WQEs, of a block each, by which an end sends a part.
const BLOCKS_OF_A_PART: u64 = 2;
/// Bytes of a part that the client compares, while it waits for nothing: as few as there are.
const LEAST: u32 = 8;

impl Case {
    /// Measures what the driver takes alone beside what was measured with the NIC, each end for as long as that took.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn measure_alone(&self, node: &Node, with: Measured) -> Result<Measured, Error> {
        let case = Self {
            limit: self.limit.min(Duration::from_secs_f64(with.seconds)),
            ..*self
        };
        let drivers = [Driver::Kernel, with.driver];
        let rig = Rig::new(node, drivers, case.blocks, case.depth)?.completed()?;
        let data = Data::new(&case, node, &rig)?;
        let (client_us, asked) = case.ask_alone(node, &rig, &data)?;
        let (rounds, server_us, answered) = case.serve_alone(node, &rig, &data, with.driver)?;
        let alone = Alone::new(rounds, client_us + server_us, with.us());
        Ok(Measured {
            verified: with.verified && asked && answered && data.guarded(),
            driver_alone: Some(alone),
            ..with
        })
    }

    /// The client: microseconds of a batch, and whether all that it compared is right. What it compares lies there.
    fn ask_alone(&self, node: &Node, rig: &Rig, data: &Data) -> Result<(f64, bool), Error> {
        let asker = Asker::new(self, node)?;
        let handles = rig.handles(&rig.near)?;
        let there = (&data.batches, &data.arrived);
        let path = rig.near.path(&rig.far, &handles, there, LEAST);
        let mut products = vec![0; (LEAST * self.blocks) as usize];
        data.expected.read(0, &mut products)?;
        data.returned.write(0, &products.repeat(TURNS as usize));
        rig.near.all_are_here();
        let client = asker.launch(self, node, data, path, 1)?;
        let ran = node.run_for(&[client], &rig.pairs(), self.limit);
        cause::ended(ran.map_err(Error::from), [("the client", &*asker.outcome)])?;
        let nanoseconds = asker.number(MatvecClient::NANOSECONDS) as f64;
        let us = nanoseconds / 1e3 / asker.rounds()? as f64;
        Ok((us, asker.wrong() == 0))
    }

    /// The server: its batches, microseconds of each, and whether all products of the last one are right.
    fn serve_alone(
        &self,
        node: &Node,
        rig: &Rig,
        data: &Data,
        driver: Driver,
    ) -> Result<(u64, f64, bool), Error> {
        let bytes = self.bytes as usize;
        data.arrived.write(0, &data.batches.read(0, bytes));
        let part = (self.bytes / u64::from(self.blocks)) as u32;
        let handles = rig.handles(&rig.far)?;
        let back = (&data.products, &data.returned);
        let path = rig.far.path(&rig.near, &handles, back, part);
        let outcome = node.shared(Outcome::new())?;
        let (ran, took) = rig.far.alone(self.limit, END, |begin| match driver {
            Driver::Host => self.serve_by_host(node, rig, data, None, path, begin),
            Driver::Kernel | Driver::Triggered | Driver::Proxy => {
                begin();
                self.serve_by_kernel(node, rig, data, None, path, &outcome)
            }
        });
        cause::ended(ran, [("the server", &*outcome)])?;
        // A kernel posts a block more at its end.
        let rounds = rig.far.posted() / BLOCKS_OF_A_PART;
        let us = 1e6 * took.as_secs_f64() / rounds as f64;
        let mut expected = vec![0; bytes];
        data.expected.read(0, &mut expected)?;
        Ok((rounds, us, data.products.holds(&expected)))
    }
}
