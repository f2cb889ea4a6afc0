//! `--ladder`: the same writes, posted in different ways.

use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::Serialize;
use warpbell_bench::Error;
use warpbell_bench::ladder::{Case, HEADER, Rung, Step, measure};
use warpbell_bench::run::interrupt::ended_early;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::setup::{Ends, config};
use warpbell_bench::run::{place, screen};
use warpbell_bench::setting::Setting;
use warpbell_host_init::QueuePairConfig;

use super::Arguments;
use crate::draw;

/// Largest message where none is named: more takes long in software, and much memory.
const TO: u64 = 64 << 10;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    depth: u32,
    repetitions: u32,
    /// Ctrl-C ended it early.
    interrupted: bool,
    results: &'d [Step],
}

/// Measures every rung at every size.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let config = QueuePairConfig {
        receive_depth: 0,
        ..config(arguments.depth)
    };
    let queues = usize::from(arguments.queues);
    let ends = Ends::several(node, &config, queues)?;
    let mut random = SmallRng::seed_from_u64(arguments.seed);
    let sizes = arguments.sizes(arguments.to.unwrap_or(TO));
    let cases = Rung::ALL
        .into_iter()
        .flat_map(|rung| sizes.clone().map(move |bytes| (rung, bytes)));
    let wanted = cases.filter(|case| arguments.filter.wants(&name(*case)));
    let cases = arguments.filter.some(wanted.collect())?;
    let screen = Screen::new(arguments.output.json, cases.len() as u64);
    screen.line(format_args!(
        "Writes posted in different ways, moved by {} without any network card.",
        place::nic_words(node)
    ));
    screen.line(format_args!("The kernels run on {}.", place::words(node)));
    screen.heading(HEADER);
    let mut results = Vec::new();
    let mut step = |(rung, bytes): (Rung, u64)| {
        screen.step(name((rung, bytes)));
        let case = Case {
            rung,
            bytes,
            messages: arguments
                .messages
                .unwrap_or_else(|| ((16 << 20) / bytes).clamp(64, 4096)),
            repetitions: arguments.repetitions,
            depth: arguments.depth,
        };
        let result = measure(&ends, case, &mut random)?;
        screen.row(result.row(), result.verified);
        results.push(result);
        Ok(())
    };
    let interrupted = ended_early::<Error>(cases.into_iter().try_for_each(&mut step))?;
    screen.finish();
    let document = Document {
        setting: &setting,
        depth: arguments.depth,
        repetitions: arguments.repetitions,
        interrupted,
        results: &results,
    };
    screen.document(&document)?;
    let wrong = results.iter().filter(|result| !result.verified).count();
    draw::end(&arguments.output, &document, (wrong, results.len()))
}

/// A case, in words.
fn name((rung, bytes): (Rung, u64)) -> String {
    format!("{} {}", rung.name(), screen::bytes(bytes))
}
