//! Inbound data: the ways by which a kernel knows that what a peer wrote is there, what each costs, and which hold where
//! memory shows writes late.

use clap::Args;
use serde::Serialize;
use warpbell_bench::Error;
use warpbell_bench::inbound::{InboundCase, Manner, Row, Who};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::screen::{Screen, bytes};
use warpbell_bench::run::{interrupt, place};
use warpbell_bench::setting::Setting;
use warpbell_host_init::cuda::InboundOrder;

/// Measures the ways in which a kernel learns that data has come.
///
/// Sends messages from one block to another, which waits for a completion, a flag, a counter, sequence numbers in
/// the data or checksums over them, and then compares every byte. Prints the time from before the post until the
/// message was read, and the cost of checking and reading a message that is already there.
///
/// With --unlucky the software HCA makes its writes visible late and in any order, as a GPU that promises no order
/// may. Ways that rely on an order then read stale data.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Message sizes in bytes, one after the other
    #[arg(long, value_name = "BYTES", default_value = "8,1024,65536", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    sizes: Vec<u32>,
    /// Who writes and who reads
    #[arg(long, value_enum, default_value = "block")]
    who: Who,
    /// Threads of a block; a GPU has too few registers for more
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..=384))]
    threads: u32,
    /// Messages that count
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rounds: u32,
    /// Warm-up messages, which do not count
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    warm_up: u32,
    /// Make writes visible to the reader late and in any order
    #[arg(long)]
    unlucky: bool,
    /// Bytes that come together then, a power of two
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    piece: u64,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    who: Who,
    /// Bytes that come together, if writes are late.
    piece: Option<u64>,
    /// Who the GPU reports to see a NIC's writes to its memory in order without a flush.
    in_order_for: Option<&'static str>,
    /// "ns" or "cycles", of what the reader pays.
    unit: &'static str,
    rows: Vec<Row>,
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let piece = arguments
        .unlucky
        .then_some(arguments.piece.next_power_of_two());
    let unit = match node.gpu() {
        None => "ns",
        Some(_) => "cycles",
    };
    let manners = Manner::all();
    let screen = Screen::new(
        arguments.json,
        (manners.len() * arguments.sizes.len()) as u64,
    );
    screen.line(format_args!(
        "The kernels run on {}; the NIC is {}.",
        place::words(node),
        node.nic_name()
    ));
    let order = node.gpu().map(|gpu| match gpu.inbound_order() {
        InboundOrder::Unordered => "nobody",
        InboundOrder::Owner => "its own kernels",
        InboundOrder::Everywhere => "the kernels of all GPUs",
    });
    if let Some(order) = order {
        screen.line(format_args!(
            "The GPU reports that {order} may read what a NIC has written to its memory without a flush."
        ));
    }
    let mut rows = Vec::new();
    for &size in &arguments.sizes {
        screen.heading(&format!("messages of {}", bytes(size.into())));
        for &manner in &manners {
            screen.step(manner.words());
            let case = InboundCase {
                who: arguments.who,
                threads: arguments.threads,
                bytes: size,
                rounds: arguments.rounds,
                warm_up: arguments.warm_up,
                piece,
            };
            let row = case.run(node, manner)?;
            screen.line(line(&row, unit, &screen));
            rows.push(row);
        }
    }
    screen.finish();
    let wrong = rows.iter().filter(|row| !row.verified).count();
    let all = rows.len();
    screen.document(&Document {
        setting: &setting,
        who: arguments.who,
        piece,
        in_order_for: order,
        unit,
        rows,
    })?;
    warpbell_bench::run::Error::if_wrong(wrong, all)?;
    Ok(interrupt::check()?)
}

fn line(row: &Row, unit: &str, screen: &Screen) -> String {
    let reader = match row.reader {
        Some(cost) => format!("the reader pays {cost} {unit}, "),
        None => String::new(),
    };
    let end = match (row.holds, row.stale) {
        (true, 0) => screen.mark(true),
        (true, stale) => format!("{}: {stale} stale", screen.mark(false)),
        (false, stale) => format!("does not hold: {stale} of {} stale", row.messages),
    };
    format!(
        "{:<48} {:>9.2} µs one way, 99 of 100 within {:.2}, {reader}{end}",
        row.way,
        row.one_way_ns as f64 / 1000.0,
        row.one_way_p99_ns as f64 / 1000.0
    )
}
