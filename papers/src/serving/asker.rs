//! The client as a kernel: pictures that it sends in turn, and what it sees of the answers.

use std::sync::atomic::Ordering;
use std::time::Duration;

use warpbell::wqe::Remote;
use warpbell::{SendQueueHandle, Slice, Word64};
use warpbell_bench::run::{interrupt, memory};
use warpbell_host_init::{Grid, Launch, Node, Shared, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::path::Path;
use warpbell_paper_kernels::serving::{ServingClient, serving_client};

use super::data::{AskerData, place};
use super::model::Picture;
use super::server::Served;
use super::{Case, Measured, Moment, PICTURES, VALUE, Way};
use crate::Error;
use crate::distribution::Distribution;
use crate::rig::End;

/// Threads of a warp: one drives the client's queues.
const LANES: u32 = 32;

/// The client of a case.
pub(super) struct Asker<'a> {
    case: &'a Case,
    node: &'a Node,
    end: &'a End,
    pub(super) data: AskerData,
    handles: Shared<[SendQueueHandle<'a>]>,
    /// Threads that compare answers.
    comparing: u32,
    numbers: Shared<[Word64]>,
    pub(super) outcome: Shared<Outcome>,
}

impl<'a> Asker<'a> {
    /// Prepares it at this end. The first picture may be given.
    pub(super) fn new(
        case: &'a Case,
        node: &'a Node,
        end: &'a End,
        picture: Option<&Picture>,
    ) -> Result<Self, Error> {
        let comparing = match node.gpu() {
            Some(_) => 8 * LANES,
            None => LANES,
        };
        Ok(Self {
            case,
            node,
            end,
            data: AskerData::new(case, node, end, picture)?,
            handles: end.handles(node)?,
            comparing,
            numbers: node.words((ServingClient::WRONG + u64::from(comparing)) as usize)?,
            outcome: node.shared(Outcome::new())?,
        })
    }

    /// The kernel that asks, where pictures and signals begin there.
    pub(super) fn launch(&self, there: [Remote; 2]) -> Result<Launch<'_>, Error> {
        let Self { case, data, .. } = self;
        let [request, answer] = [case.request(), case.answer()];
        let part = request.part(case.parts);
        let path = self.end.path_to(&self.handles, &data.requests, there, part);
        let client = ServingClient {
            path: Path {
                limit_us: case.limit_us(),
                ..path
            },
            request,
            pictures: PICTURES,
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            answer: unsafe { data.returned.place() },
            expected: place(&data.expected),
            kept: place(&data.kept),
            values: answer.bytes / VALUE,
            warm_up: case.warm_up,
            rounds: case.rounds,
            nanoseconds: case.limit.as_nanos().try_into().unwrap_or(u64::MAX),
            interval: case.rate.map_or(0, |rate| (1e9 / rate) as u64),
            stop: interrupt::stop(self.node.placement())?,
            numbers: Slice::new(&self.numbers),
            histogram: place(&data.histogram),
            over_time: place(&data.over_time),
            span: case.span().as_nanos().try_into().unwrap_or(u64::MAX),
            outcome: &self.outcome,
        };
        let grid = Grid::new(1, LANES + self.comparing);
        Ok(Launch::new(entry!(serving_client), grid, client))
    }

    /// What it saw in each span of time, where that was asked for, with what the server's thread had of a core
    /// meanwhile.
    fn moments(&self, served: &Served) -> Result<Vec<Moment>, Error> {
        let Some(span) = self.case.every else {
            return Ok(Vec::new());
        };
        let words = memory::words(&self.data.over_time)?;
        let (words, _) = words.as_chunks::<{ ServingClient::MOMENT as usize }>();
        let all = words.iter().zip(&served.shares).zip(1..);
        let moments = all.map(
            |((&[requests, total, longest], &core_percent), number)| Moment {
                seconds: f64::from(number) * span.as_secs_f64(),
                requests,
                mean_us: total as f64 / 1e3 / requests.max(1) as f64,
                longest_us: longest as f64 / 1e3,
                core_percent,
            },
        );
        Ok(moments.collect())
    }

    /// What it saw, once it has ended, of a server that says this; nothing if Ctrl-C came before a request counted.
    pub(super) fn measured(&self, way: Way, served: &Served) -> Result<Option<Measured>, Error> {
        let case = self.case;
        let number = |index: u64| self.numbers[index as usize].load(Ordering::Relaxed);
        let rounds = number(ServingClient::ROUNDS);
        let longest = number(ServingClient::LONGEST);
        let counts = memory::words(&self.data.histogram)?;
        let Some(distribution) = Distribution::new(&counts, longest) else {
            return Ok(None);
        };
        let wrong =
            (0..self.comparing).map(|thread| number(ServingClient::WRONG + u64::from(thread)));
        let wrong = wrong.sum();
        let each = |all: Duration| 1e6 * all.as_secs_f64() / served.count.max(1) as f64;
        let total_us = number(ServingClient::TOTAL) as f64 / 1e3 / rounds as f64;
        let known = served.copied_in + served.computed + served.copied_out + served.sent;
        let seconds = number(ServingClient::NANOSECONDS) as f64 / 1e9;
        let all = rounds + u64::from(case.warm_up);
        Ok(Some(Measured {
            architecture: case.architecture,
            way,
            width: case.width,
            height: case.height,
            bytes: case.request().bytes.into(),
            answer_bytes: case.answer().bytes.into(),
            rounds,
            dropped: number(ServingClient::DROPPED),
            seconds,
            per_s: rounds as f64 / seconds,
            total_us,
            distribution,
            wait_us: (total_us - each(known)).max(0.0),
            copy_in_us: each(served.copied_in),
            compute_us: each(served.computed),
            copy_out_us: each(served.copied_out),
            send_us: each(served.sent),
            core_percent: served.core_percent,
            over_time: self.moments(served)?,
            wrong,
            verified: wrong == 0
                && (counts.iter().sum::<u64>(), served.count) == (rounds, all)
                && served.guarded
                && self.data.guarded(),
            driver_alone: None,
        }))
    }
}
