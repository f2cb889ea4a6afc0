//! Measures: latency, bandwidth, what a post costs, and what is built of posts.

mod active;
mod bandwidth;
mod collectives;
mod completions;
mod draw;
mod experts;
mod inbound;
mod one_core;
mod pingpong;
mod placement;
mod posting;
mod proxy;
mod put;
mod trigger;
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warpbell_bench::run::screen::start;

/// Measures what communication costs a kernel.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, max_term_width = 98)]
struct Arguments {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    Pingpong(pingpong::Arguments),
    Bandwidth(bandwidth::Arguments),
    Completions(completions::Arguments),
    Placement(placement::Arguments),
    Posting(posting::Arguments),
    OneCore(one_core::Arguments),
    Inbound(inbound::Arguments),
    Proxy(proxy::Arguments),
    Put(put::Arguments),
    Trigger(trigger::Arguments),
    Active(active::Arguments),
    Collectives(collectives::Arguments),
    Experts(experts::Arguments),
    Wire(wire::Arguments),
    Draw(draw::Arguments),
}

fn main() -> ExitCode {
    start(|Arguments { benchmark }| match benchmark {
        Benchmark::Pingpong(arguments) => pingpong::run(&arguments),
        Benchmark::Bandwidth(arguments) => bandwidth::run(&arguments),
        Benchmark::Completions(arguments) => completions::run(&arguments),
        Benchmark::Placement(arguments) => placement::run(&arguments),
        Benchmark::Posting(arguments) => posting::run(&arguments),
        Benchmark::OneCore(arguments) => one_core::run(&arguments),
        Benchmark::Inbound(arguments) => inbound::run(&arguments),
        Benchmark::Proxy(arguments) => proxy::run(&arguments),
        Benchmark::Put(arguments) => put::run(&arguments),
        Benchmark::Trigger(arguments) => trigger::run(&arguments),
        Benchmark::Active(arguments) => active::run(&arguments),
        Benchmark::Collectives(arguments) => collectives::run(&arguments),
        Benchmark::Experts(arguments) => experts::run(&arguments),
        Benchmark::Wire(arguments) => wire::run(&arguments),
        Benchmark::Draw(arguments) => draw::run(&arguments),
    })
}
