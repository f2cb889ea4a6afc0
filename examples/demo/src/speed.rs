//! How long a write takes until the other kernel sees it, and how many bytes and messages go in a second.

use std::sync::atomic::Ordering;

use serde_json::json;
use warpbell::Slice;
use warpbell::wqe::Remote;
use warpbell_host_init::{Entry, StopWord, entry};
use warpbell_kernels::bandwidth::{self, Sink, Stream};
use warpbell_kernels::pingpong::{PingPong, pingpong};

use crate::Demo;
use crate::ends::{End, Ends, LIMIT_US, job, run};
use crate::error::Error;
use crate::memory::Memory;

pub fn latencies(demo: &mut Demo, ends: &Ends) -> Result<(), Error> {
    let (sizes, rounds): (&[usize], _) = match demo.arguments.quick {
        true => (&[8, 4096], 200),
        false => (&[8, 64, 1024, 16 << 10, 256 << 10], 2000),
    };
    demo.screen
        .heading("Latency: half a round trip of a write and its signal, between two kernels");
    let header = "     bytes        min     median        p99    average   rounds";
    demo.screen.line(header);
    for &bytes in sizes {
        let (halves, verified) = latency(demo, ends, bytes, rounds)?;
        let percent = |percent: usize| halves[(halves.len() * percent).div_ceil(100) - 1];
        let (min, median, p99) = (halves[0], percent(50), percent(99));
        let average = halves.iter().sum::<u64>() / rounds as u64;
        let us = |ns: u64| format!("{:.2} µs", ns as f64 / 1e3);
        demo.screen.line(format_args!(
            "{:>10} {:>10} {:>10} {:>10} {:>10} {rounds:>8}  {}",
            in_words(bytes),
            us(min),
            us(median),
            us(p99),
            us(average),
            demo.screen.mark(verified)
        ));
        let check = json!({
            "bytes": bytes,
            "rounds": rounds,
            "min_ns": min,
            "average_ns": average,
            "median_ns": median,
            "p99_ns": p99,
        });
        demo.record("latency", verified, check);
    }
    Ok(())
}

/// Half of each round trip in nanoseconds, sorted, and whether all payloads arrived.
///
/// Each side's memory has what it sends, room for what it gets, and the signal.
fn latency(
    demo: &mut Demo,
    ends: &Ends,
    bytes: usize,
    rounds: usize,
) -> Result<(Vec<u64>, bool), Error> {
    // 8 bytes are the signal alone.
    let bytes_before = if bytes > 8 { bytes } else { 0 };
    let warm_up = rounds / 10;
    let all = warm_up + rounds;
    let data = [(); 2].map(|()| demo.random.bytes(bytes_before));
    let memory = |end: &End, data: &[u8]| {
        let mut bytes = data.to_vec();
        bytes.resize(2 * bytes_before + 8, 0);
        end.memory(&bytes)
    };
    let memories = [memory(&ends.one, &data[0])?, memory(&ends.other, &data[1])?];
    let node = &ends.one.node;
    let stop = StopWord::new(node.placement())?;
    let outcomes = [ends.one.outcome()?, ends.other.outcome()?];
    let samples = [node.words(all)?, node.words(all)?];
    let played = node.words(2)?;
    let both = [&ends.one, &ends.other];
    let side = |own: usize| {
        let parameters = PingPong {
            queue: both[own].pair.send_queue()?,
            payload: memories[own].local(0, bytes_before),
            target: memories[1 - own].remote(bytes_before),
            signal: memories[own].signal(2 * bytes_before),
            answer: memories[1 - own].remote(2 * bytes_before),
            first: 1,
            rounds: all as u64,
            starts: u32::from(own == 0),
            stop: stop.stop(),
            limit_us: LIMIT_US,
            samples: Slice::new(&samples[own]),
            played: Slice::new(&played[own..=own]),
            outcome: &outcomes[own],
        };
        Ok::<_, Error>(job(entry!(pingpong), parameters, &outcomes[own]))
    };
    let jobs = vec![side(0)?, side(1)?];
    run("ping-pong", jobs, &both)?;

    let signal = (all as u64).to_ne_bytes();
    let arrived = |own: usize| {
        let expected = [&data[own][..], &data[1 - own], &signal].concat();
        memories[own].is_unchanged(&expected)
    };
    let measured = samples[0].iter().skip(warm_up);
    let mut halves: Vec<u64> = measured
        .map(|time| time.load(Ordering::Relaxed) / 2)
        .collect();
    halves.sort_unstable();
    Ok((halves, arrived(0) && arrived(1)))
}

/// A verb and its kernel.
type Kernel = (&'static str, Entry<fn(Stream<'_>)>);

const STREAMS: [Kernel; 3] = [
    ("write", entry!(bandwidth::stream_write)),
    ("read", entry!(bandwidth::stream_read)),
    ("send", entry!(bandwidth::stream_send)),
];

pub fn bandwidths(demo: &mut Demo, ends: &Ends) -> Result<(), Error> {
    let (sizes, repetitions): (&[usize], _) = match demo.arguments.quick {
        true => (&[8, 4096, 65_536], 3),
        false => (&[8, 64, 512, 4096, 32 << 10, 256 << 10, 1 << 20], 7),
    };
    demo.screen
        .heading("Bandwidth, one way: median (and slowest) repetition");
    let header = "     bytes        write GB/s         read GB/s         send GB/s    write Mmsg/s";
    demo.screen.line(header);
    for &bytes in sizes {
        let (mut columns, mut verified, mut writes) = (String::new(), true, 0.0);
        for (verb, kernel) in STREAMS {
            let messages = ((16 << 20) / bytes).clamp(16, 10_000) as u64;
            let (mut rates, mut arrived) = (Vec::new(), true);
            for _ in 0..repetitions {
                let (rate, good) = stream(demo, ends, (verb, kernel), bytes, messages)?;
                rates.push(rate);
                arrived &= good;
            }
            rates.sort_unstable_by(f64::total_cmp);
            let (min, median) = (rates[0], rates[rates.len() / 2]);
            columns += &format!("   {median:>6.3} ({min:>6.3})");
            verified &= arrived;
            let million = |rate: f64| rate * 1e3 / bytes as f64;
            if verb == "write" {
                writes = million(median);
            }
            let check = json!({
                "verb": verb,
                "bytes": bytes,
                "messages": messages,
                "min_gb_per_s": min,
                "median_gb_per_s": median,
                "min_million_per_s": million(min),
                "median_million_per_s": million(median),
            });
            demo.record("bandwidth", arrived, check);
        }
        let (size, mark) = (in_words(bytes), demo.screen.mark(verified));
        let row = format!("{size:>10} {columns}   {writes:>13.3}  {mark}");
        demo.screen.line(row);
    }
    Ok(())
}

/// One repetition: 10⁹ bytes a second, and whether every byte of both ends is what it should be.
fn stream(
    demo: &mut Demo,
    ends: &Ends,
    (verb, kernel): Kernel,
    bytes: usize,
    messages: u64,
) -> Result<(f64, bool), Error> {
    let slots = ((1 << 20) / bytes as u64).clamp(1, 64).min(messages);
    let data = demo.random.bytes(slots as usize * bytes);
    let empty = vec![0; data.len()];
    let (ours, theirs) = match verb {
        "read" => (&empty, &data),
        _ => (&data, &empty),
    };
    let (local, remote) = (ends.one.memory(ours)?, ends.other.memory(theirs)?);
    let times = ends.one.node.words(2)?;
    let (sent, received) = (ends.one.outcome()?, ends.other.outcome()?);
    let stream = Stream {
        queue: ends.one.pair.send_queue()?,
        local: local.local(0, bytes),
        remote: match verb {
            "send" => Remote::default(),
            _ => remote.remote(0),
        },
        slots,
        messages,
        batch: (demo.arguments.depth / 2).clamp(1, 16),
        signal_every: 16,
        limit_us: LIMIT_US,
        times: Slice::new(&times),
        outcome: &sent,
    };
    let mut jobs = vec![job(kernel, stream, &sent)];
    if verb == "send" {
        let depth = demo.arguments.depth.into();
        let sink = sink(
            &ends.other,
            &remote,
            (bytes, slots, messages, depth),
            &received,
        )?;
        let prepare = job(entry!(bandwidth::sink_prepare), sink, &received);
        run(verb, vec![prepare], &[&ends.other])?;
        jobs.push(job(entry!(bandwidth::sink), sink, &received));
    }
    run(verb, jobs, &[&ends.one, &ends.other])?;
    let [begin, end] = [0, 1].map(|which: usize| times[which].load(Ordering::Relaxed));
    let rate = (bytes as u64 * messages) as f64 / (end - begin).max(1) as f64;
    Ok((
        rate,
        local.is_unchanged(&data) && remote.is_unchanged(&data),
    ))
}

/// What a kernel needs that receives so many bytes in so many slots and messages, through a queue of some depth.
pub fn sink<'s>(
    end: &'s End,
    memory: &Memory,
    (bytes, slots, messages, depth): (usize, u64, u64, u64),
    outcome: &'s warpbell_kernels::outcome::Outcome,
) -> Result<Sink<'s>, Error> {
    Ok(Sink {
        queue: end.pair.receive_queue()?,
        local: memory.local(0, bytes),
        slots,
        messages,
        prepared: messages.min(depth),
        limit_us: LIMIT_US,
        outcome,
    })
}

/// A number of bytes, in the largest unit that it is a multiple of.
fn in_words(bytes: usize) -> String {
    match bytes {
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}
