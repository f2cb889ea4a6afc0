//! The other end is a program of somebody else's.

use std::time::Duration;

use serde::Serialize;
use warpbell_bench::Error;
use warpbell_bench::run::interrupt::ended_early;
use warpbell_bench::run::latency::{Case, HEADER, Latency};
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::{interrupt, place};
use warpbell_bench::setting::Setting;
use warpbell_bench::strangers::pingpong::{Player, Role, way};
use warpbell_strangers::pingpong as default;

use super::{Arguments, Program};

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'d> {
    #[serde(flatten)]
    setting: &'d Setting,
    peer: Program,
    role: Role,
    /// Ctrl-C ended it early.
    interrupted: bool,
    results: &'d [Latency],
}

/// Plays with the other program.
pub fn play(arguments: &Arguments, peer: Program) -> Result<(), Error> {
    let other = &arguments.other;
    let case = Case {
        bytes: other.size.unwrap_or(default::MESSAGE),
        rounds: arguments.rounds.unwrap_or(default::ROUNDS),
        warm_up: 0,
    };
    let role = match other.host {
        Some(_) => Role::Client,
        None => Role::Server,
    };
    let setting = Setting::open(&arguments.machine)?;
    let node = &setting.node;
    let screen = Screen::new(arguments.output.json, 0);
    let mut player = Player::new(node, arguments.depth, case, role)?;
    if role == Role::Server {
        screen.line(format_args!(
            "Waiting for the other program: ibv_rc_pingpong -g 0 -p {} -s {} -n {} HOST",
            other.port, case.bytes, case.rounds
        ));
    }
    let patience = Duration::from_secs(arguments.timeout);
    player.meet(&mut way(other, patience)?)?;
    screen.line(format_args!(
        "Half a round trip of a send between a kernel on {} and ibv_rc_pingpong; no network card takes part.",
        place::words(node)
    ));
    screen.heading(HEADER);
    let mut results = Vec::new();
    let interrupted = ended_early(player.play().map(|latency| results.push(latency)))?;
    for latency in &results {
        screen.row(latency.row(), latency.verified);
    }
    screen.finish();
    screen.document(&Document {
        setting: &setting,
        peer,
        role,
        interrupted,
        results: &results,
    })?;
    let wrong = results.iter().filter(|latency| !latency.verified);
    warpbell_bench::run::Error::if_wrong(wrong.count(), results.len())?;
    Ok(interrupt::check()?)
}
