//! Which parameter decides: each is doubled and halved, and the workload simulated anew.

use crate::driver::Driver;
use crate::figures::{Error, Figure};
use crate::parameters::{Parameters, ROWS};
use crate::simulate::{Cluster, run};
use crate::topology::Topology;

/// What one parameter does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// Its name.
    pub parameter: &'static str,
    /// The time with half of it, divided by the usual time.
    pub halved: f64,
    /// The time with twice of it, divided by the usual time.
    pub doubled: f64,
}

impl Effect {
    /// How far the time moves, as a factor.
    pub fn strength(&self) -> f64 {
        let factor = |ratio: f64| ratio.max(1.0 / ratio);
        factor(self.halved).max(factor(self.doubled))
    }
}

/// The effect of each parameter that has one, the strongest first. Values stay in their ranges.
///
/// # Errors
///
/// Whatever fails.
pub fn effects(
    figure: Figure,
    over: u64,
    driver: Driver,
    parameters: &Parameters,
    seed: u64,
) -> Result<Vec<Effect>, Error> {
    let time = |parameters: &Parameters| -> Result<f64, Error> {
        let program = figure.schedule(over, parameters)?.check()?;
        let cluster = Cluster {
            topology: Topology::fat_tree(program.ranks.len())?,
            parameters: parameters.clone(),
            driver,
            seed,
        };
        Ok(run(&cluster, program)?.end().microseconds())
    };
    let usual = time(parameters)?;
    let mut effects = Vec::new();
    for row in ROWS {
        let value = parameters.get(row.name).unwrap_or_default();
        let with = |factor: f64| {
            let mut changed = parameters.clone();
            let value = (value * factor).clamp(row.range.0, row.range.1);
            changed
                .set(row.name, value)
                .map_err(crate::simulate::Error::from)?;
            time(&changed)
        };
        effects.push(Effect {
            parameter: row.name,
            halved: with(0.5)? / usual,
            doubled: with(2.0)? / usual,
        });
    }
    effects.retain(|effect| effect.strength() > 1.0005);
    effects.sort_by(|one, other| other.strength().total_cmp(&one.strength()));
    Ok(effects)
}
