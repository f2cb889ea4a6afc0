//! A proxy between kernels and their NIC: puts that ComP-Net's kernels make, with and without one.

use clap::Args;
use serde::Serialize;
use warpbell_bench::Error;
use warpbell_bench::energy::{Meter, Sources};
use warpbell_bench::parse::{parse_bytes, parse_message};
use warpbell_bench::proxy::{ProducerLine, PutCase, PutResult, Way};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::screen::{Screen, bytes};
use warpbell_bench::run::{interrupt, place};
use warpbell_bench::setting::Setting;

/// Measures puts with and without a proxy on the CPU.
///
/// Work-groups put into another end's memory, 8 bytes at a time unless --sizes says otherwise, directly through the
/// NIC's doorbells and through a proxy: CPU threads that take whole WQEs out of rings in host memory and post them, as
/// ComP-Net's network processor does, or that take only producer indices and ring for the kernels.
///
/// The kernel is the same; only its handle differs. --producer-line chooses where a work-group has its queue's indices,
/// and --streaming lets other threads evict them from the cache. The HCAs are software, and no network card takes part,
/// unless --nic names one.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Work-groups, each with a queue of its own
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1024))]
    groups: u32,
    /// Threads of each work-group, which post together
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: u32,
    /// Puts of each thread, many under way
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    rounds: u64,
    /// Puts of each thread, one at a time
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    singles: u64,
    /// Work-groups that put one at a time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    waiting_groups: u32,
    /// Numbers of threads of each, which put one at a time together, one number after the other
    #[arg(long, default_value = "1", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    waiting_threads: Vec<u32>,
    /// Sizes of puts that one thread of one work-group puts one at a time, beside the puts of 8 bytes; multiples of 8
    #[arg(long, value_delimiter = ',', value_name = "BYTES", value_parser = parse_words)]
    sizes: Vec<u64>,
    /// Where a work-group has what it reads and writes for each post
    #[arg(long, value_enum, default_value_t = ProducerLine::Registers)]
    producer_line: ProducerLine,
    /// Bytes that other threads read again and again meanwhile, a multiple of 8; far more than the cache has
    #[arg(long, default_value = "0", value_name = "BYTES", value_parser = parse_streamed)]
    streaming: u64,
    /// Numbers of proxy threads, one after the other
    #[arg(long, default_value = "1,2", value_delimiter = ',')]
    drains: Vec<usize>,
    /// Cores that the proxy's threads stay on, taken in turn; by default the system chooses
    #[arg(long, value_delimiter = ',')]
    cores: Vec<usize>,
    /// Depth of each queue in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 256)]
    depth: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Puts of whole words, up to 1 GiB.
fn parse_words(text: &str) -> Result<u64, String> {
    whole_words(parse_message::<{ 1 << 30 }>(text)?)
}

/// Memory of whole words, whose number a kernel counts in 32 bits.
fn parse_streamed(text: &str) -> Result<u64, String> {
    match whole_words(parse_bytes(text)?)? {
        size if size / 8 <= u32::MAX.into() => Ok(size),
        _ => Err("choose less than 32 GiB".into()),
    }
}

fn whole_words(size: u64) -> Result<u64, String> {
    match size.is_multiple_of(8) {
        true => Ok(size),
        false => Err("choose a multiple of 8 bytes".into()),
    }
}

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    energy_sources: Sources,
    /// Straight, and then by way of a proxy, each with many puts under way and with one at a time.
    puts: Vec<PutResult>,
}

fn words(way: &Way) -> String {
    let handed = match way.indices {
        false => "whole WQEs",
        true => "indices alone",
    };
    match way.drain_threads {
        0 => "straight to the NIC".into(),
        1 => format!("by a proxy of one thread, {handed}"),
        threads => format!("by a proxy of {threads} threads, {handed}"),
    }
}

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let direct = Way {
        drain_threads: 0,
        cores: Vec::new(),
        indices: false,
    };
    let mut ways = vec![direct];
    for indices in [false, true] {
        ways.extend(arguments.drains.iter().map(|&drain_threads| Way {
            drain_threads,
            cores: arguments.cores.clone(),
            indices,
        }));
    }
    let screen = Screen::new(
        arguments.json,
        (ways.len() * (1 + arguments.waiting_threads.len() + arguments.sizes.len())) as u64,
    );
    screen.line(format_args!(
        "The kernels run on {}; the NIC is {}.",
        place::words(node),
        node.nic_name()
    ));
    let meter = Meter::of(std::slice::from_ref(node));
    meter.sources().show(&screen);
    if arguments.producer_line == ProducerLine::Locked {
        // Before the NIC starts, which may be a kernel.
        ProducerLine::prepare_to_lock(node)?;
    }
    let many = PutCase {
        groups: arguments.groups,
        threads: arguments.threads,
        bytes: 8,
        rounds: arguments.rounds,
        one_at_a_time: false,
        depth: arguments.depth,
        producer_line: arguments.producer_line,
        streamed: arguments.streaming as usize,
    };
    let single = |&threads: &u32| PutCase {
        groups: arguments.waiting_groups,
        threads,
        rounds: arguments.singles,
        one_at_a_time: true,
        ..many
    };
    let sized = |&bytes: &u64| PutCase {
        bytes: bytes as usize,
        groups: 1,
        ..single(&1)
    };
    let singles: Vec<_> = (arguments.waiting_threads.iter().map(single))
        .chain(arguments.sizes.iter().map(sized))
        .collect();
    let mut puts = Vec::new();
    for way in &ways {
        let what = words(way);
        screen.step(what.clone());
        let stream = many.run(node, &meter, way)?;
        screen.line(format_args!(
            "{what}: {:.2} million puts a second, {}",
            stream.posts_per_second / 1e6,
            screen.mark(stream.verified),
        ));
        let [cpu, gpu] = stream.energy.of_each(stream.posts);
        screen.line(format_args!(
            "    energy of a put: CPUs {cpu} µJ, GPUs {gpu} µJ"
        ));
        if way.drain_threads > 0 {
            screen.line(format_args!(
                "    {} entries taken with {} doorbells",
                stream.posts, stream.doorbells
            ));
        }
        if many.streamed > 0 {
            let passes = stream.passes;
            screen.line(format_args!(
                "    beside the reading, of which the first thread did its share {passes} times"
            ));
        }
        puts.push(stream);
        for single in &singles {
            screen.step(what.clone());
            let single = single.run(node, &meter, way)?;
            screen.line(format_args!(
                "    one at a time, {} × {} threads, {}: {:.2} µs, {}",
                single.case.groups,
                single.case.threads,
                bytes(single.case.bytes as u64),
                single.us_per_round,
                screen.mark(single.verified)
            ));
            puts.push(single);
        }
    }
    screen.finish();
    screen.document(&Document {
        setting: &setting,
        energy_sources: meter.sources(),
        puts: puts.clone(),
    })?;
    let wrong = puts.iter().filter(|put| !put.verified).count();
    warpbell_bench::run::Error::if_wrong(wrong, puts.len())?;
    Ok(interrupt::check()?)
}
