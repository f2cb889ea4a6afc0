//! The drawings of the benchmarks' documents.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use warpbell_bench::Error;
use warpbell_bench::ladder::Rung;
use warpbell_bench::origin::Origin;
use warpbell_bench::plot::{self, Curve, Output, Panel};
use warpbell_bench::run::interrupt;

use crate::posting;

/// Draws documents of earlier measurements again.
///
/// Each drawing is written beside its document, with the ending .svg.
#[derive(Debug, Args)]
pub struct Arguments {
    /// What `pingpong`, `bandwidth` or `placement` printed with --json, or `posting` wrote with --csv
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Draws each file.
pub fn run(arguments: &Arguments) -> Result<(), Error> {
    arguments.files.iter().try_for_each(|file| {
        let drawing = again(file).map_err(|source| Error::Plot {
            what: file.with_extension("svg").display().to_string(),
            source,
        })?;
        plot::write(&file.with_extension("svg"), &drawing)
    })
}

fn again(file: &Path) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
    let drawn = if file.extension().is_some_and(|ending| ending == "csv") {
        posting::plot::drawing("", posting::csv::read(file)?)
    } else {
        let text = fs::read_to_string(file);
        let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
        drawing(&serde_json::from_str(&text)?)
    };
    drawn.ok_or_else(|| format!("{} has no results that can be drawn", file.display()).into())
}

/// Ends a benchmark: draws its document, where that was asked for, and reports wrong results or an end by Ctrl-C.
///
/// # Errors
/// A file that cannot be written; wrong results; an end by Ctrl-C.
pub fn end(
    output: &Output,
    document: &impl Serialize,
    (wrong, all): (usize, usize),
) -> Result<(), Error> {
    output.write(|| drawing(&serde_json::to_value(document).ok()?))?;
    warpbell_bench::run::Error::if_wrong(wrong, all)?;
    Ok(interrupt::check()?)
}

/// The drawing of a document; none if it is of no benchmark that is drawn, or has no results.
fn drawing(document: &Value) -> Option<String> {
    let results = document["results"].as_array()?;
    let first = results.first()?;
    let by_size = |quantity, curves| Panel {
        quantity,
        over: "message size (bytes)",
        curves,
    };
    let (title, panels) = if first["rung"].is_string() {
        let rung = |result: &Value| Some(Rung::deserialize(&result["rung"]).ok()?.name().into());
        let panel = |quantity, key| Some(by_size(quantity, curves(results, rung, key, 1.0)?));
        let panels = vec![
            panel("message rate (10⁶/s)", "median_million_per_s")?,
            panel("bandwidth (GB/s)", "median_gb_per_s")?,
        ];
        ("Ways to post a write", panels)
    } else if first["rings"].is_string() {
        let place = |result: &Value| {
            let name = |key: &str| match result[key].as_str()? {
                "gpu" => Some("GPU"),
                _ => Some("host"),
            };
            let (rings, completions) = (name("rings")?, name("completions")?);
            Some(format!("rings {rings}, CQ {completions}"))
        };
        let panel = |quantity, key| Some(by_size(quantity, curves(results, place, key, 1.0)?));
        let panels = vec![
            panel("from post to completion (µs)", "latency_us")?,
            panel("bandwidth (GB/s)", "gb_per_s")?,
        ];
        ("Placement of rings and completion queue", panels)
    } else if first["verb"].is_string() {
        let verb = |result: &Value| Some(result["verb"].as_str()?.to_owned());
        let curves = curves(results, verb, "median_gb_per_s", 1.0)?;
        let title = match document["both_ways"] == true {
            true => "Bandwidth both ways",
            false => "Bandwidth one way",
        };
        (title, vec![by_size("bandwidth (GB/s)", curves)])
    } else {
        let one = |name: &str, key| curves(results, |_| Some(name.into()), key, 1e-3);
        let mut curves = one("median", "median_ns")?;
        curves.extend(one("99th percentile", "p99_ns")?);
        if let Some(bare) = document["bare_round_trip"]["median_ns"].as_f64() {
            let sizes = results.iter().filter_map(|result| result["bytes"].as_f64());
            curves.push(Curve {
                name: "a word to a CPU thread and back".into(),
                points: sizes.map(|bytes| (bytes, bare / 1e3)).collect(),
            });
        }
        (
            "Half a round trip of a write",
            vec![by_size("latency (µs)", curves)],
        )
    };
    let title = format!("{title}, NIC {}", document["nic"].as_str()?);
    let kernels = &document["kernels"];
    let kernels = match (kernels["name"].as_str(), kernels["cuda"].as_str()) {
        (Some(name), Some(cuda)) => format!("{name} (CUDA {cuda})"),
        _ => "CPU threads".into(),
    };
    let origin = Origin::deserialize(&document["origin"]).ok()?;
    plot::drawing(&title, &origin.line(&kernels), &panels)
}

/// A curve for each name, in the order in which they come first: the values of a key over the sizes. None if a result
/// lacks one of them.
fn curves(
    results: &[Value],
    name: impl Fn(&Value) -> Option<String>,
    key: &str,
    unit: f64,
) -> Option<Vec<Curve>> {
    let mut curves: Vec<Curve> = Vec::new();
    for result in results {
        let name = name(result)?;
        let point = (result["bytes"].as_f64()?, result[key].as_f64()? * unit);
        match curves.iter_mut().find(|curve| curve.name == name) {
            Some(curve) => curve.points.push(point),
            None => curves.push(Curve {
                name,
                points: vec![point],
            }),
        }
    }
    Some(curves)
}
