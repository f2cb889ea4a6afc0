//! GPUrdma's stencil in one dimension with strips of several sizes, for the report.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::application::{Application, Extent, Measurement, Measurements, Section, Table};
use crate::gaspi::StencilCase;
use crate::origin::Origin;
use crate::plot::{self, Curve, Panel};
use crate::screen::Screen;
use crate::world::World;
use crate::{Error, interrupt};

/// For the report.
pub const APPLICATION: Application = Application {
    name: "stencil",
    title: "Stencil in one dimension",
    paper: "GPUrdma (Daoud, Watad and Silberstein 2016), figure 6: a sketch of a kernel that computes a stencil over GASPI, \
        whose blocks give the cells at their edges to their neighbours by write_notify and wait for theirs by \
        notify_waitsome. The paper has no figures of it.",
    differs: "No card: the NIC is software, and both ranks are kernels of one process. Each cell is compared with a loop on \
        the host. A step is the time from the launch of both kernels to their end, over the number of steps.",
    run,
};

/// The title of the plot.
const PLOT: &str = "Stencil in one dimension";

const HEADER: &str = "cells of a block    µs a step      steps";

/// Strips of one size.
#[derive(Clone, Copy, Debug, Serialize)]
struct Measured {
    cells: u32,
    /// Of all repetitions.
    steps: u64,
    seconds: f64,
    us_per_step: f64,
    /// Every cell was what a loop on the host says, after each repetition.
    verified: bool,
}

impl Measurement for Measured {
    fn row(&self) -> String {
        format!(
            "{:<16} {:>12.2} {:>10}",
            self.cells, self.us_per_step, self.steps
        )
    }

    fn verified(&self) -> bool {
        self.verified
    }
}

/// Computes again and again until the time is over.
fn measure(world: &World, case: &StencilCase, limit: Duration) -> Result<Measured, Error> {
    let devices = world.devices()?;
    let (began, mut seconds, mut steps) = (Instant::now(), 0.0, 0);
    let mut verified = true;
    while steps == 0 || (began.elapsed() < limit && !interrupt::requested()) {
        let result = case.compute(world, &devices)?;
        seconds += result.seconds;
        steps += u64::from(case.steps);
        verified &= result.verified;
    }
    Ok(Measured {
        cells: case.cells,
        steps,
        seconds,
        us_per_step: 1e6 * seconds / steps as f64,
        verified,
    })
}

fn run(world: &World, extent: Extent, origin: &Origin, screen: &Screen) -> Result<Section, Error> {
    let (blocks, threads, steps) = match world.gpu() {
        Some(_) => (8, 256, 1000),
        None => (2, 32, 100),
    };
    let case = |cells| StencilCase {
        ranks: 2,
        blocks,
        threads,
        cells,
        steps,
        depth: 64,
        seed: 1,
    };
    let sizes = match extent.quick {
        true => &[100][..],
        false => &[100, 1_000, 10_000],
    };
    let cases: Vec<StencilCase> = sizes.iter().copied().map(case).collect();
    let limit = Duration::try_from_secs_f64(extent.seconds).unwrap_or(Duration::MAX);
    screen.heading(HEADER);
    let results = Measurements::of(&cases, &[()], screen, |case, ()| {
        screen.step(case.cells.to_string());
        measure(world, case, limit)
    })?;
    let points = results.measured.iter();
    let panel = Panel {
        quantity: "µs a step",
        over: "bytes of a block's cells",
        curves: vec![Curve {
            name: "notifications within the kernel".into(),
            points: points
                .map(|of| (8.0 * f64::from(of.cells), of.us_per_step))
                .collect(),
        }],
    };
    let row = |of: &Measured| vec![of.cells.to_string(), format!("{:.2}", of.us_per_step)];
    Ok(Section {
        table: Table {
            columns: ["cells of a block", "µs a step"].map(String::from).to_vec(),
            rows: results.measured.iter().map(row).collect(),
        },
        verdicts: Vec::new(),
        plot: plot::svg(PLOT, origin, world, &[panel])?,
        wrong: results.wrong(),
        interrupted: results.interrupted,
        document: json!({ "cases": cases, "results": results }),
    })
}
