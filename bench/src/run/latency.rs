//! Ping-pong that Ctrl-C ends.

use warpbell_stage::latency;
pub use warpbell_stage::latency::{Case, HEADER, Latency, Player};

use crate::run::setup::{End, Ends};
use crate::run::{Error, interrupt};

/// One side.
///
/// # Errors
/// As [`Player::new`].
pub fn player(end: &End, case: Case, starts: bool) -> Result<Player<'_>, Error> {
    let stop = interrupt::stop(end.node.placement())?;
    Ok(Player::new(end, case, starts, stop)?)
}

/// What a side has measured.
///
/// # Errors
/// Ctrl-C came before a round that counts.
pub fn measured(latency: Option<Latency>) -> Result<Latency, Error> {
    latency.ok_or(Error::Interrupted)
}

/// Measures between two kernels of this process.
///
/// # Errors
/// A kernel failed; Ctrl-C came before a round that counts.
pub fn measure(ends: &Ends, case: Case) -> Result<Latency, Error> {
    interrupt::check()?;
    let stop = interrupt::stop(ends.node().placement())?;
    measured(latency::measure(ends, case, stop)?)
}
