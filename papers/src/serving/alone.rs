//! What a server takes for a request, if nobody carries out what it posts and all pictures are there.

use std::time::Duration;

use warpbell_bench::cause;
use warpbell_host_init::{Node, QueuePair};
use warpbell_paper_kernels::serving::{END, is_near};

use super::data::{answered, bytes_of, pictures};
use super::model::{Model, Picture};
use super::server::{Served, Server};
use super::{Case, Measured, VALUE};
use crate::Error;
use crate::rig::{Alone, Driver, Rig};

impl Case {
    /// Measures what the server takes alone beside what was measured with the NIC, for as long as that took. Each request
    /// is the first picture, which may be given.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub fn measure_alone(
        &self,
        node: &Node,
        picture: Option<&Picture>,
        with: Measured,
    ) -> Result<Measured, Error> {
        let case = Self {
            limit: self.limit.min(Duration::from_secs_f64(with.seconds)),
            every: None,
            ..*self
        };
        let driver = with.way.driver();
        let rig = Rig::new(node, [Driver::Kernel, driver], case.parts, case.depth)?.completed()?;
        let server = Server::new(&case, node, &rig.far, driver)?;
        let picture = pictures(&case, picture).swap_remove(0);
        server.data.arrived.write(0, &bytes_of(&picture.values));
        let returned = rig.near.memory(node, case.answer().bytes as usize)?;
        let there = rig.near.begin(&returned);
        let pairs: Vec<&QueuePair> = rig.far.pairs().iter().collect();
        let mut served = Served::default();
        let (ran, took) = rig.far.alone(case.limit, END, |begin| {
            let ready = || {
                begin();
                Ok(())
            };
            served = server.serve(with.way, there, None, &pairs, ready)?;
            Ok(())
        });
        cause::ended(ran, [("the server", &*server.outcome)])?;
        let us = 1e6 * took.as_secs_f64() / served.count as f64;
        let model = Model::new(case.architecture, case.seed);
        let should = answered(&model, &[picture]).concat();
        let bytes = server.data.answer.read(0, VALUE as usize * should.len());
        let (values, _) = bytes.as_chunks();
        let right = values
            .iter()
            .zip(&should)
            .all(|(came, should)| is_near(f32::from_ne_bytes(*came), *should));
        Ok(Measured {
            verified: with.verified && right && served.guarded,
            driver_alone: Some(Alone::new(served.count, us, with.total_us)),
            ..with
        })
    }
}
