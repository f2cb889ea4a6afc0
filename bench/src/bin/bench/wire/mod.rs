//! Measures the RoCE wire of the software HCA beside bare UDP: `bench wire`.
//!
//! Two ends talk over the loopback device, or between two network namespaces, on a thread each. What is compared takes turns. A busy machine spoils both, and
//! not always equally: threads that share a core wait for each other.

mod place;
mod roce;
mod udp;

use clap::Args;
use warpbell_bench::Error;
use warpbell_bench::samples::{Goal, Row, SampleArguments, Samples};

use place::Place;
use roce::{Far, Rig};
use udp::{Echo, Stream};

/// Bytes of a RoCE packet that writes 8 bytes, and of one in the middle of a message: BTH, RETH, payload and CRC.
const SMALL_PACKET: usize = 12 + 16 + 8 + 4;
const LARGE_PACKET: usize = 12 + 4096 + 4;
/// Bytes of a large write.
const LARGE: u32 = 64 << 10;
/// Bytes of payload in a packet.
const MTU: f64 = 4096.0;

/// Measures the RoCE wire of the software HCA beside bare UDP.
///
/// A write goes to another HCA in UDP datagrams, and its acknowledgement comes back. One thread posts, polls and drives
/// its own HCA; a thread of the other HCA's answers.
#[derive(Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    samples: SampleArguments,
    /// The two ends: addresses of this machine, or of network namespaces that `ip netns` has named
    #[arg(
        long,
        num_args = 2,
        value_names = ["[NAMESPACE/]ADDRESS", "[NAMESPACE/]ADDRESS"],
        default_values = ["127.0.0.1", "127.0.0.2"]
    )]
    between: Vec<Place>,
}

type Ends = [Place; 2];
type Part = (&'static str, fn(&Ends, u32) -> Result<Vec<Row>, Error>);

const PARTS: [Part; 4] = [
    ("round trip", round_trip),
    ("8-byte writes", small_writes),
    ("64 KiB writes", large_writes),
    ("64 KiB writes, loss", lossy_writes),
];

/// Measures.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    let Arguments { samples, between } = arguments;
    let ends = std::array::from_fn(|end| between[end].clone());
    let mut rows = Vec::new();
    for (name, part) in PARTS {
        if samples.filter.wants(name) {
            rows.extend(part(&ends, samples.repetitions)?);
        }
    }
    samples.print(rows, "two threads are at work")
}

/// Takes `ours` and `theirs` in turns. Each makes its threads anew, because the other's threads would take its cores. An
/// HCA's thread that once lost its core sleeps for a second instead of yielding.
fn in_turns(
    repetitions: u32,
    mut ours: impl FnMut() -> Result<f64, Error>,
    mut theirs: impl FnMut() -> Result<f64, Error>,
) -> Result<[Samples; 2], Error> {
    let mut samples = [Samples::default(), Samples::default()];
    // The first round warms up.
    for repetition in 0..=repetitions {
        let figures = [ours()?, theirs()?];
        if repetition > 0 {
            for (samples, figure) in samples.iter_mut().zip(figures) {
                samples.push(figure);
            }
        }
    }
    Ok(samples)
}

fn round_trip(ends: &Ends, repetitions: u32) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (far, echo, what, goal) in [
        (
            Far::Awake,
            Echo::spinning as fn(&Ends) -> _,
            "awake",
            Some(Goal::AtMost(1.5)),
        ),
        (Far::Sleeps, Echo::sleeping, "asleep", None),
    ] {
        let [ours, theirs] = in_turns(
            repetitions,
            || Rig::new(ends, far, None)?.round_trip(),
            || Ok(echo(ends)?.round_trip(SMALL_PACKET)?),
        )?;
        let ratio = Row::new(
            format!("round trip, {what}: write / UDP echo"),
            "x",
            &ours.over(&theirs),
        );
        rows.extend([
            Row::new(
                format!("round trip, {what}: a write of 8 bytes"),
                "us",
                &ours,
            ),
            Row::new(format!("round trip, {what}: UDP echo"), "us", &theirs),
            match goal {
                Some(goal) => ratio.goal(goal),
                None => ratio,
            },
        ]);
    }
    Ok(rows)
}

fn small_writes(ends: &Ends, repetitions: u32) -> Result<Vec<Row>, Error> {
    let [ours, theirs] = in_turns(
        repetitions,
        || Rig::new(ends, Far::Awake, None)?.rate(8),
        || Ok(Stream::new(ends)?.rate(SMALL_PACKET)?),
    )?;
    Ok(vec![
        Row::new("8-byte writes", "M/s", &ours).goal(Goal::AtLeast(0.8)),
        Row::new("UDP datagrams of 40 bytes", "M/s", &theirs),
        Row::new("8-byte writes / UDP datagrams", "x", &ours.over(&theirs)),
    ])
}

/// GB/s of large writes.
fn throughput(ends: &Ends, loss: Option<u32>) -> Result<f64, Error> {
    Ok(Rig::new(ends, Far::Awake, loss)?.rate(LARGE)? * f64::from(LARGE) / 1e3)
}

fn large_writes(ends: &Ends, repetitions: u32) -> Result<Vec<Row>, Error> {
    let [ours, theirs] = in_turns(
        repetitions,
        || throughput(ends, None),
        || Ok(Stream::new(ends)?.rate(LARGE_PACKET)? * MTU / 1e3),
    )?;
    Ok(vec![
        Row::new("64 KiB writes", "GB/s", &ours).goal(Goal::AtLeast(2.0)),
        Row::new("UDP datagrams of 4,112 bytes", "GB/s", &theirs),
        Row::new("64 KiB writes / UDP datagrams", "x", &ours.over(&theirs)),
    ])
}

/// One packet of a hundred is lost, in both directions.
fn lossy_writes(ends: &Ends, repetitions: u32) -> Result<Vec<Row>, Error> {
    let [with, without] = in_turns(
        repetitions,
        || throughput(ends, Some(10)),
        || throughput(ends, None),
    )?;
    Ok(vec![
        Row::new("64 KiB writes, 1 % loss", "GB/s", &with),
        Row::new("64 KiB writes, 1 % loss / none", "x", &with.over(&without))
            .goal(Goal::AtLeast(0.25)),
    ])
}
