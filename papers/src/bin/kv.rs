//! A key-value GET from kernels, by one-sided READs and by an active message, with what each costs the network.

use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use warpbell_bench::inbound::Who;
use warpbell_bench::party::Party;
use warpbell_bench::run::interrupt::{self, ended_early};
use warpbell_bench::run::machine::Machine;
use warpbell_bench::run::place;
use warpbell_bench::run::screen::{bytes, start};
use warpbell_bench::setting::Setting;
use warpbell_paper_kernels::kv::Keys;
use warpbell_papers::Error;
use warpbell_papers::kv::{HEADER, KvCase, Row, Store, Way};
use warpbell_patterns::active::MAX_RESULT;

/// Gets values from a hash table in the target's memory, in two ways.
///
/// With READs of the key's bucket, of further buckets while they are full, and of the value; a study of SmartNICs
/// calls this network amplification. With an active message, whose task looks the key up and answers with the
/// value. Every value is compared, missing keys included. Every request, packet and byte on the wire is counted.
///
/// If a launcher has started several processes, the table is at the first one, and the others get by READs.
///
/// Packets are those of RoCE v2 with all their headers, and with an acknowledgement of each WRITE.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 98)]
struct Arguments {
    #[command(flatten)]
    machine: Machine,
    /// Value sizes in bytes, one after the other
    #[arg(long, value_name = "BYTES", default_value = "16,64,256,1024,4096", value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_RESULT)))]
    sizes: Vec<u32>,
    /// Give values all lengths up to these
    #[arg(long)]
    variable: bool,
    /// How many keys there are
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    keys: u32,
    /// How many of 100 entries of the table are taken
    #[arg(long, default_value_t = 75, value_parser = clap::value_parser!(u32).range(1..=99))]
    load: u32,
    /// How many of 100 GETs ask for a key that is not there
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(..=100))]
    missing: u32,
    /// GETs of each client, one after the other
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    gets: u32,
    /// Who a client is, and who serves him
    #[arg(long, value_enum, default_value = "thread")]
    who: Who,
    /// Threads of a block
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: u32,
    /// How many clients there are, each of which takes two queue pairs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    clients: u32,
    /// Bytes that a packet carries
    #[arg(long, default_value = "1024", value_parser = ["256", "512", "1024", "2048", "4096"])]
    mtu: String,
    /// Other keys for other numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
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
    clients: u32,
    keys: u32,
    /// Of 100 entries.
    load: f64,
    buckets: u32,
    mtu: u32,
    seed: u64,
    rows: Vec<Row>,
}

impl Arguments {
    fn case(&self, size: u32, mtu: u32) -> KvCase {
        KvCase {
            who: self.who,
            threads: self.threads,
            clients: self.clients,
            keys: Keys {
                seed: self.seed,
                keys: self.keys,
                missing: self.missing,
                shortest: if self.variable { 1 } else { size },
                longest: size,
            },
            load: self.load,
            gets: self.gets,
            mtu,
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Error> {
    let setting = warpbell_papers::open(&arguments.machine)?;
    let party = Party::from_env(&setting.node)?;
    let result = measure(arguments, &setting, &party);
    party.end(result)
}

fn measure(arguments: &Arguments, setting: &Setting, party: &Party) -> Result<(), Error> {
    let node = &setting.node;
    let ways = Way::all(party);
    let mtu = arguments.mtu.parse().expect("one of the values");
    let steps = ways.len() * arguments.sizes.len();
    let screen = party.screen(arguments.json, steps as u64);
    screen.line(format_args!(
        "The kernels run on {}; the NIC is {}.",
        place::words(node),
        node.nic_name()
    ));
    let mut rows = Vec::new();
    let mut shape = (0.0, 0);
    let mut get_all = || {
        for &size in &arguments.sizes {
            let mut store = Store::new(party, arguments.case(size, mtu))?;
            shape = store.load();
            if rows.is_empty() {
                let (load, buckets) = shape;
                screen.line(format_args!(
                    "{} keys in {buckets} buckets of four entries, of which {load:.1} of 100 are taken; {} of 100 GETs ask for another key; packets of {}.",
                    arguments.keys,
                    arguments.missing,
                    bytes(mtu.into()),
                ));
                screen.heading(HEADER);
            }
            for &way in &ways {
                screen.step(format!("{} of {size} bytes", way.words()));
                for row in store.get(party, way)? {
                    let wrong = match row.wrong {
                        0 => String::new(),
                        wrong => format!(": {wrong} of {} GETs", row.gets),
                    };
                    let rank = row
                        .rank
                        .map_or_else(String::new, |rank| format!("  rank {rank}"));
                    let mark = screen.mark(row.verified);
                    screen.line(format_args!("{}  {mark}{wrong}{rank}", row.line()));
                    rows.push(row);
                }
            }
        }
        Ok::<_, Error>(())
    };
    ended_early(get_all())?;
    screen.finish();
    if party.rank() > 0 {
        return Ok(());
    }
    let wrong = rows.iter().filter(|row| !row.verified).count();
    let all = rows.len();
    let (load, buckets) = shape;
    screen.document(&Document {
        setting,
        who: arguments.who,
        clients: arguments.clients,
        keys: arguments.keys,
        load,
        buckets,
        mtu,
        seed: arguments.seed,
        rows,
    })?;
    warpbell_bench::run::Error::if_wrong(wrong, all)?;
    Ok(interrupt::check()?)
}

fn main() -> ExitCode {
    start(|arguments: Arguments| run(&arguments))
}
