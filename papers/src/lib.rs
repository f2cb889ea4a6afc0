//! What papers built on networking from inside kernels, built with Warpbell: each application, what it measures, and
//! the report that runs them all.

pub mod allreduce;
pub mod application;
pub mod cpu_time;
pub mod daq;
pub mod distribution;
pub mod error;
pub mod generator;
pub mod halo;
pub mod jacobi;
pub mod kv;
pub mod matvec;
pub mod overlap;
pub mod parse;
pub mod repetitions;
pub mod report;
pub mod rig;
pub mod round_trip;
pub mod serving;
pub mod stencil;
pub mod together;

pub use error::Error;

use warpbell_bench::run::machine::Machine;
use warpbell_bench::setting::Setting;
use warpbell_ptx::PAPERS;

/// Opens what the applications' kernels run on.
///
/// # Errors
/// As [`Setting::open`].
pub fn open(machine: &Machine) -> Result<Setting, Error> {
    let (setting, _) = Setting::open_with(machine, &PAPERS, &[])?;
    Ok(setting)
}
