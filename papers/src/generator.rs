//! One thread that posts writes of several sizes as fast as it can: of the host, and of a kernel.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use serde_json::json;
use warpbell::wqe::Wqe;
use warpbell::{Slice, Word64};
use warpbell_bench::origin::Origin;
use warpbell_bench::party::Party;
use warpbell_bench::plot::{self, Curve, Panel};
use warpbell_bench::run::interrupt;
use warpbell_bench::run::launch::{LIMIT_US, said};
use warpbell_bench::run::memory::Memory;
use warpbell_bench::run::screen::{self, Screen};
use warpbell_bench::run::statistics::percentile;
use warpbell_host_init::{Grid, Launch, Node, Shared, entry};
use warpbell_kernels::bandwidth::Stream;
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::generator::generator_stream;

use crate::Error;
use crate::application::{Application, Extent, Measurement, Measurements, Section, Table};
use crate::rig::{Driver, HostQueue, Rig};

/// For the report.
pub const APPLICATION: Application = Application {
    name: "generator",
    title: "Throughput by message size, and the time of a post",
    paper: "A paper on GPU-driven RDMA for inference serving (ConnectX-6, A100 and L40), figures 4 and 5: one thread of a CPU, \
        by ibv_verbs and by routines of the paper\u{2019}s own, or of a GPU, by the same routines, generates packets of several \
        sizes. With large ones all fill a link of 100 Gbit/s; with small ones a GPU\u{2019}s rate grows as a CPU\u{2019}s does, at \
        another slope, as its clock is slower. A post takes about the same for all sizes, and longer on a GPU. Both \
        figures are pictures that our copy lacks.",
    differs: "No card: the NIC is software, and there is no link to fill. A transfer is a copy within one memory, so the rate is \
        this NIC\u{2019}s and says nothing about a card. Writes go through one queue, 16 under a doorbell. The time of a post \
        is the median of all repetitions of 64 posts with a doorbell each, into a ring with room, divided by 64. Host and \
        kernel post by the same code. cargo xtask bench libmlx5 measures libmlx5\u{2019}s posts, and cargo xtask bench posting \
        a kernel\u{2019}s, in cycles. Every byte is compared.",
    run,
};

/// The title of the plot.
const PLOT: &str = "Writes of one thread";

/// Blocks of the ring.
const DEPTH: u32 = 128;
/// Writes under a doorbell, the last of which is signalled.
const BATCH: u32 = 16;
/// Posts that are timed: half of the ring, so that none waits for room.
const TIMED: u64 = 64;
/// Writes that lie beside each other, at both ends.
const SLOTS: u64 = 64;
/// Who posts, in the order of the table.
const DRIVERS: [Driver; 2] = [Driver::Host, Driver::Kernel];

/// What is measured, and for how long.
#[derive(Clone, Copy, Debug)]
struct Case {
    /// Bytes of a write.
    bytes: u32,
    /// Writes of a repetition.
    messages: u64,
    /// No repetition begins once they have taken so long.
    limit: Duration,
}

/// What was measured.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measured {
    /// Who posted.
    driver: Driver,
    /// Bytes of a write.
    bytes: u32,
    /// Writes in all, but for those that tell the time of a post.
    messages: u64,
    /// From the first post of each repetition to its last completion, in all.
    seconds: f64,
    /// 10⁹ bits a second.
    gbit_per_s: f64,
    /// 10⁶ writes a second.
    million_per_s: f64,
    /// Nanoseconds of a post.
    ns_per_post: f64,
    /// Every byte arrived, in every repetition.
    verified: bool,
}

/// The columns of [`Measurement::row`].
const HEADER: &str = "message    posted by        Gbit/s   10⁶ a second   ns a post       writes";

fn name(driver: Driver) -> &'static str {
    match driver {
        Driver::Host => "by the host",
        Driver::Kernel | Driver::Triggered | Driver::Proxy => "by a kernel",
    }
}

impl Measurement for Measured {
    fn row(&self) -> String {
        format!(
            "{:<10} {:<12} {:>10.3} {:>14.3} {:>11.1} {:>12}",
            screen::bytes(self.bytes.into()),
            name(self.driver),
            self.gbit_per_s,
            self.million_per_s,
            self.ns_per_post,
            self.messages,
        )
    }

    fn verified(&self) -> bool {
        self.verified
    }
}

/// How long posts and all took, in nanoseconds.
struct Took {
    posts: f64,
    all: f64,
}

/// One thread with its queue, and where its writes go.
struct Generator<'r> {
    node: &'r Node,
    rig: &'r Rig,
    /// The host's queue, if it posts.
    queue: Option<HostQueue<'r>>,
    source: Memory,
    target: Memory,
    bytes: u32,
    times: Shared<[Word64]>,
}

impl Generator<'_> {
    /// Posts so many writes, `batch` under a doorbell, and waits for the last.
    fn post(&mut self, messages: u64, batch: u32) -> Result<Took, Error> {
        let (bytes, source, target) = (self.bytes, &self.source, &self.target);
        let Some(queue) = &mut self.queue else {
            return self.post_by_kernel(messages, batch);
        };
        let write = |message: u64| {
            let offset = (message % SLOTS) as usize * bytes as usize;
            Wqe::write(source.local(offset, bytes as usize), target.remote(offset))
        };
        let began = Instant::now();
        for first in (0..messages).step_by(batch as usize) {
            let these = 0..(messages - first).min(batch.into()) as u32;
            queue.post(these.map(|which| write(first + u64::from(which))))?;
        }
        let posts = began.elapsed();
        queue.drain()?;
        let nanoseconds = |time: Duration| time.as_nanos() as f64;
        Ok(Took {
            posts: nanoseconds(posts),
            all: nanoseconds(began.elapsed()),
        })
    }

    fn post_by_kernel(&self, messages: u64, batch: u32) -> Result<Took, Error> {
        let near = &self.rig.near;
        let handles = self.rig.handles(near)?;
        let outcome = self.node.shared(Outcome::new())?;
        let stream = Stream {
            queue: handles[0],
            local: self.source.local(0, self.bytes as usize),
            remote: self.target.remote(0),
            slots: SLOTS,
            messages,
            batch,
            signal_every: batch.into(),
            limit_us: LIMIT_US,
            times: Slice::new(&self.times),
            outcome: &outcome,
        };
        let launch = Launch::new(entry!(generator_stream), Grid::ONE_THREAD, stream);
        self.node.run(&[launch], &self.rig.pairs())?;
        said("the kernel that posts", &outcome)?;
        let [began, ended, posted] = [0, 1, 2].map(|which: usize| {
            let time = &self.times[which];
            time.load(Ordering::Relaxed) as f64
        });
        // A clock that steps by a microsecond may not have moved at all.
        Ok(Took {
            posts: f64::max(posted - began, 1.0),
            all: f64::max(ended - began, 1.0),
        })
    }
}

impl Case {
    /// Posts again and again, and compares what came.
    fn measure(&self, node: &Node, driver: Driver) -> Result<Measured, Error> {
        let rig = Rig::new(node, [driver, Driver::Kernel], 1, DEPTH)?;
        let all = (SLOTS * u64::from(self.bytes)) as usize;
        let mut data = vec![0; all];
        SmallRng::seed_from_u64(1).fill(&mut data[..]);
        let (source, target) = (rig.near.memory(node, all)?, rig.far.memory(node, all)?);
        source.write(0, &data);
        let mut generator = Generator {
            node,
            rig: &rig,
            queue: match driver {
                Driver::Host => rig.near.host_queues()?.pop(),
                Driver::Kernel | Driver::Triggered | Driver::Proxy => None,
            },
            source,
            target,
            bytes: self.bytes,
            times: node.words(3)?,
        };
        let began = Instant::now();
        let (mut nanoseconds, mut repetitions, mut posts) = (0.0, 0, Vec::new());
        let mut verified = true;
        while repetitions == 0 || began.elapsed() < self.limit {
            interrupt::check()?;
            for (messages, batch) in [(TIMED, 1), (self.messages, BATCH)] {
                generator.target.write(0, &vec![0; all]);
                let took = generator.post(messages, batch)?;
                match batch {
                    1 => posts.push(took.posts / messages as f64),
                    _ => nanoseconds += took.all,
                }
                verified &= generator.source.check(&data).is_ok();
                verified &= generator.target.check(&data).is_ok();
            }
            repetitions += 1;
        }
        posts.sort_unstable_by(f64::total_cmp);
        let messages = repetitions * self.messages;
        let rate = messages as f64 / nanoseconds;
        Ok(Measured {
            driver,
            bytes: self.bytes,
            messages,
            seconds: nanoseconds / 1e9,
            gbit_per_s: 8.0 * f64::from(self.bytes) * rate,
            million_per_s: 1e3 * rate,
            ns_per_post: percentile(&posts, 50),
            verified,
        })
    }
}

fn table(measured: &[Measured]) -> Table {
    let columns = [
        "message size",
        "host (Gbit/s)",
        "kernel (Gbit/s)",
        "host (10⁶ messages/s)",
        "kernel (10⁶ messages/s)",
        "host (ns a post)",
        "kernel (ns a post)",
    ];
    // A size's drivers come one after the other.
    let rows = measured.chunks_exact(DRIVERS.len()).map(|both| {
        let numbers: [fn(&Measured) -> f64; 3] = [
            |of| of.gbit_per_s,
            |of| of.million_per_s,
            |of| of.ns_per_post,
        ];
        let cells = numbers.iter().flat_map(|number| both.iter().map(number));
        let cells = cells.map(|number| format!("{number:.2}"));
        let size = screen::bytes(both[0].bytes.into());
        [size].into_iter().chain(cells).collect()
    });
    Table {
        columns: columns.map(String::from).to_vec(),
        rows: rows.collect(),
    }
}

fn panels(measured: &[Measured]) -> [Panel; 2] {
    let panel = |quantity, number: fn(&Measured) -> f64| Panel {
        quantity,
        over: "message size (bytes)",
        curves: DRIVERS
            .map(|driver| {
                let own = measured.iter().filter(|of| of.driver == driver);
                Curve {
                    name: name(driver).into(),
                    points: own.map(|of| (f64::from(of.bytes), number(of))).collect(),
                }
            })
            .to_vec(),
    };
    [
        panel("bandwidth (Gbit/s)", |of| of.gbit_per_s),
        panel("cost of a post (ns)", |of| of.ns_per_post),
    ]
}

fn run(node: &Node, extent: Extent, origin: &Origin, screen: &Screen) -> Result<Section, Error> {
    let sizes: &[u32] = match extent.quick {
        true => &[64],
        false => &[8, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10],
    };
    let case = |&bytes: &u32| Case {
        bytes,
        messages: match node.gpu() {
            Some(_) => 1024,
            None => 256,
        },
        limit: Duration::try_from_secs_f64(extent.seconds).unwrap_or(Duration::MAX),
    };
    let cases: Vec<Case> = sizes.iter().map(case).collect();
    screen.heading(HEADER);
    let results = Measurements::of(
        &Party::alone(node),
        &cases,
        &DRIVERS,
        screen,
        |case, driver| {
            screen.step(screen::bytes(case.bytes.into()));
            case.measure(node, driver)
        },
    )?;
    Ok(Section {
        table: table(&results.measured),
        verdicts: Vec::new(),
        plot: plot::svg(PLOT, origin, node, &panels(&results.measured)),
        wrong: results.wrong(),
        interrupted: results.interrupted,
        document: json!({ "results": results }),
    })
}
