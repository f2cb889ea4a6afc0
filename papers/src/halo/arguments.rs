//! What the binaries of both stencils are told.

use crate::parse::parse_seconds;
use clap::Args;
use warpbell_bench::plot::Output;

use super::{Series, Way};

/// What both take.
#[derive(Args, Clone, Debug)]
pub struct Arguments {
    /// Who exchanges the edges; by default all
    #[arg(long, value_delimiter = ',', value_enum)]
    pub ways: Vec<Way>,
    /// Threads of each block; by default 256 on a GPU, 32 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=512))]
    threads: Option<u32>,
    /// Steps of a repetition, behind which all cells are compared; by default 1,000 on a GPU, 100 on a CPU
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: Option<u32>,
    /// Seconds for each size and way, comparisons and all
    #[arg(long, default_value = "1", value_parser = parse_seconds)]
    seconds: f64,
    /// Maximum number of repetitions for each size and way
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    repetitions: Option<u64>,
    /// Depth of each queue in blocks of 64 bytes, a power of two
    #[arg(long, default_value_t = 64)]
    pub depth: u32,
    /// Seed of the cells
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// What becomes of the results
    #[command(flatten)]
    pub output: Output,
}

impl Arguments {
    /// What is usual, with what was chosen instead; sizes by the binary, which names them.
    pub fn series(&self, usual: Series, sizes: &[u32]) -> Series {
        Series {
            sizes: match sizes.is_empty() {
                true => usual.sizes,
                false => sizes.to_vec(),
            },
            ways: match self.ways.is_empty() {
                true => usual.ways,
                false => self.ways.clone(),
            },
            threads: self.threads.unwrap_or(usual.threads),
            steps: self.steps.unwrap_or(usual.steps),
            repetitions: self.repetitions.unwrap_or(usual.repetitions),
            seconds: self.seconds,
            depth: self.depth,
            seed: self.seed,
            ..usual
        }
    }
}
