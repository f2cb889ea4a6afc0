//! A step of data-parallel training: layers as data, and gradients that are reduced while the next layers compute.

use super::{Error, Reduction, calc, checked, reduce};
use crate::goal::Schedule;

/// A layer of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Weights and biases, of 4 bytes each.
    pub parameters: u64,
    /// Multiplications with an addition each, for one example.
    pub multiplications: u64,
}

/// The layers of AlexNet (Krizhevsky and others 2012), as their shapes give them.
pub const ALEXNET: &str = include_str!("alexnet.csv");

/// Reads layers: a line of names, then a line for each layer with its name, parameters and multiplications.
///
/// # Errors
///
/// [`Error::Layers`] with the line.
pub fn layers(text: &str) -> Result<Vec<Layer>, Error> {
    let mut layers = Vec::new();
    for (number, line) in text.lines().enumerate().skip(1) {
        let bad = |reason: String| Error::Layers {
            line: number + 1,
            reason,
        };
        if line.trim().is_empty() {
            continue;
        }
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let &[name, parameters, multiplications] = fields.as_slice() else {
            return Err(bad(format!("{} fields instead of 3", fields.len())));
        };
        let number = |field: &str| {
            let value = field.parse().ok().filter(|value| *value <= 1 << 48);
            value.ok_or_else(|| bad(format!("{field} is no number up to 2^48")))
        };
        layers.push(Layer {
            name: name.to_owned(),
            parameters: number(parameters)?,
            multiplications: number(multiplications)?,
        });
    }
    match layers.is_empty() {
        true => Err(Error::Layers {
            line: text.lines().count(),
            reason: "no layers".into(),
        }),
        false => Ok(layers),
    }
}

/// How a network is trained.
#[derive(Clone, Debug, PartialEq)]
pub struct Training {
    /// Its layers, from input to output.
    pub layers: Vec<Layer>,
    /// Examples of each rank in a step.
    pub batch: u64,
    /// Multiplications with an addition each, in a nanosecond.
    pub rate: f64,
    /// Gradients are reduced as soon as so many bytes are there.
    pub bucket: u64,
    /// How they are reduced; `bytes` is what a bucket has.
    pub reduction: Reduction,
}

/// One step: forward, then backward, which takes twice as long. Gradients are summed on a stream of their own.
///
/// # Errors
///
/// [`Error::RankCount`], or one of [`super::all_reduce`].
pub fn step(ranks: u32, training: &Training) -> Result<Schedule, Error> {
    const GRADIENT: u64 = 4;
    let mut schedule = checked(ranks)?;
    let time = |layer: &Layer, times: f64| {
        times * (layer.multiplications * training.batch) as f64 / training.rate
    };
    let mut before: Vec<Vec<u32>> = vec![Vec::new(); ranks as usize];
    let compute = |schedule: &mut Schedule, before: &mut [Vec<u32>], nanoseconds| {
        for (rank, before) in before.iter_mut().enumerate() {
            *before = vec![calc(schedule.rank(rank), nanoseconds, 0, before)];
        }
    };
    for layer in &training.layers {
        compute(&mut schedule, &mut before, time(layer, 1.0));
    }
    let mut bucket = 0;
    for (number, layer) in training.layers.iter().enumerate().rev() {
        compute(&mut schedule, &mut before, time(layer, 2.0));
        bucket += layer.parameters * GRADIENT;
        if bucket > 0 && (bucket >= training.bucket || number == 0) {
            let reduction = Reduction {
                bytes: bucket,
                ..training.reduction
            };
            reduce::add(&mut schedule, &reduction, 1, &before)?;
            bucket = 0;
        }
    }
    Ok(schedule)
}
