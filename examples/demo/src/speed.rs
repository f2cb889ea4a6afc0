//! How long a write takes until the other kernel sees it, and how many bytes and messages go in a second.

use serde_json::json;
use warpbell_host_init::StopWord;
use warpbell_stage::bandwidth::{self, Verb};
use warpbell_stage::latency::{self, HEADER};
use warpbell_stage::setup::Ends;
use warpbell_stage::{Error, screen};

use crate::Demo;

pub fn latencies(demo: &mut Demo, ends: &Ends) -> Result<(), Error> {
    let (sizes, rounds): (&[u64], _) = match demo.arguments.quick {
        true => (&[8, 4096], 200),
        false => (&[8, 64, 1024, 16 << 10, 256 << 10], 2000),
    };
    demo.screen
        .heading("Latency: half a round trip of a write and its signal, between two kernels");
    demo.screen.line(HEADER);
    let stop = StopWord::new(ends.node().placement())?;
    for &bytes in sizes {
        let case = latency::Case {
            bytes,
            rounds,
            warm_up: rounds / 10,
        };
        let latency = latency::measure(ends, case, stop.stop())?.expect("nobody stops the kernels");
        let mark = demo.screen.mark(latency.verified);
        demo.screen.line(format_args!("{}  {mark}", latency.row()));
        demo.record("latency", latency.verified, json!(latency));
    }
    Ok(())
}

pub fn bandwidths(demo: &mut Demo, ends: &Ends) -> Result<(), Error> {
    let (sizes, repetitions): (&[u64], _) = match demo.arguments.quick {
        true => (&[8, 4096, 65_536], 3),
        false => (&[8, 64, 512, 4096, 32 << 10, 256 << 10, 1 << 20], 7),
    };
    demo.screen
        .heading("Bandwidth, one way: median (and slowest) repetition");
    let header = "     bytes        write GB/s         read GB/s         send GB/s    write Mmsg/s";
    demo.screen.line(header);
    for &bytes in sizes {
        let (mut columns, mut verified, mut writes) = (String::new(), true, 0.0);
        for verb in [Verb::Write, Verb::Read, Verb::Send] {
            let case = bandwidth::Case {
                verb,
                bytes,
                messages: ((16 << 20) / bytes).clamp(16, 10_000),
                repetitions,
                batch: (demo.arguments.depth / 2).clamp(1, 16),
                signal_every: 16,
                both_ways: false,
            };
            let go_on = || Ok::<_, Error>(());
            let stream = bandwidth::measure(ends, case, &mut demo.random, go_on)?;
            let (min, median) = (stream.min_gb_per_s, stream.median_gb_per_s);
            columns += &format!("   {median:>6.3} ({min:>6.3})");
            verified &= stream.verified;
            if verb == Verb::Write {
                writes = stream.median_million_per_s;
            }
            demo.record("bandwidth", stream.verified, json!(stream));
        }
        let (size, mark) = (screen::bytes(bytes), demo.screen.mark(verified));
        let row = format!("{size:>10} {columns}   {writes:>13.3}  {mark}");
        demo.screen.line(row);
    }
    Ok(())
}
