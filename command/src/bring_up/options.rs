//! The options of `warpbell bring-up`.

use std::path::PathBuf;

use clap::Args;

use super::plan::Step;

/// What is brought up, and how.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  warpbell bring-up --quick                       this machine, in a minute
  warpbell bring-up --nic mlx5_0 --node node2 --html report.html
                                                  with a second node, and a page to send

The programs run from the folder of this one. Reports contain neither host names nor
addresses unless you give --names. The status is 0 if no step failed, 1 if one did, 2 for
wrong options, and 130 after Ctrl-C.")]
pub struct BringUp {
    /// The card, such as mlx5_0 or mlx5_0:2, or soft for NICs of software; by default the card that the doctor finds nearest
    /// to a GPU, or software if there is none
    #[arg(long, value_name = "NAME", value_parser = nic)]
    pub nic: Option<String>,
    /// Index of the card's GID; by default one is chosen
    #[arg(long, value_name = "NUMBER")]
    pub gid_index: Option<u8>,
    /// Number of the GPU, counted from 0
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub gpu: u32,
    /// A second node, as ssh takes it; the programs have the same path there
    #[arg(long, value_name = "HOST", value_parser = host)]
    pub node: Option<String>,
    /// Where the second node reaches this one; by default its host name
    #[arg(long, value_name = "ADDRESS", requires = "node")]
    pub address: Option<String>,
    /// What starts a command on the second node, called as PROGRAM HOST COMMAND; by default ssh
    #[arg(long, value_name = "PROGRAM", requires = "node")]
    pub rsh: Option<String>,
    /// Smaller tables, three tests of the suite, and short benchmarks
    #[arg(long)]
    pub quick: bool,
    /// Only these steps
    #[arg(long, value_name = "STEPS", value_delimiter = ',', value_enum)]
    pub steps: Vec<Step>,
    /// The most seconds of each step; the suite's tests have deadlines of their own
    #[arg(long, value_name = "SECONDS", default_value_t = 1200, value_parser = clap::value_parser!(u64).range(1..))]
    pub deadline: u64,
    /// Where the programs are; by default the folder of this one
    #[arg(long, value_name = "FOLDER")]
    pub programs: Option<PathBuf>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Write the report as a page
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Print the report as JSON; the lines go to standard error
    #[arg(long)]
    pub json: bool,
    /// Keep host names, user names and addresses in reports
    #[arg(long)]
    pub names: bool,
}

/// A NIC's name goes to other programs as one argument.
fn nic(name: &str) -> Result<String, String> {
    match name.is_empty() || name.starts_with('-') || name.contains(',') {
        true => Err("give one NIC, such as mlx5_0, mlx5_0:2 or soft".into()),
        false => Ok(name.into()),
    }
}

/// The launcher splits a list of hosts at its commas.
fn host(name: &str) -> Result<String, String> {
    match name.is_empty() || name.starts_with('-') || name.contains(',') {
        true => Err("give one host, as ssh takes it".into()),
        false => Ok(name.into()),
    }
}
