//! The other end is perftest's `ib_write_bw`.

use std::time::Duration;

use serde::Serialize;
use warpbell_bench::Error;
use warpbell_bench::run::place;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::setting::Setting;
use warpbell_bench::strangers::perftest::{Case, HEADER, Written, write};
use warpbell_strangers::Connection;
use warpbell_strangers::perftest as default;

use super::{Arguments, Program};

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    peer: Program,
    depth: u32,
    batch: u32,
    signal_every: u64,
    results: &'d [Written],
}

/// Messages under a doorbell where no number is named.
const BATCH: u32 = 16;

/// Writes into the memory of the server on that host.
pub fn run(arguments: &Arguments, host: &str) -> Result<(), Error> {
    let other = &arguments.other;
    let batch = arguments.batch.unwrap_or(BATCH);
    let case = Case {
        bytes: other.size.unwrap_or(default::MESSAGE),
        messages: arguments.messages.unwrap_or(default::MESSAGES),
        batch,
        signal_every: arguments.signal_every,
        depth: arguments.depth,
        seed: arguments.seed,
    };
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let screen = Screen::new(arguments.output.json, 0);
    let patience = Duration::from_secs(arguments.timeout);
    let server = Connection::call(host, other.port, patience)?;
    let written = write(node, case, server)?;
    screen.line(format_args!(
        "Written by a kernel on {} into the memory of ib_write_bw, which prints the same numbers; no network card takes part.",
        place::words(node)
    ));
    screen.heading(HEADER);
    screen.line(written.row());
    screen.finish();
    Ok(screen.document(&Document {
        setting: &setting,
        peer: Program::Perftest,
        depth: arguments.depth,
        batch,
        signal_every: arguments.signal_every,
        results: &[written],
    })?)
}
