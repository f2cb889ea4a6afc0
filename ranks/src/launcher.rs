//! Which launcher started this process, and what its variables say.

use std::fmt;

use crate::{Config, Environment, RanksError, Root};

/// What started the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Launcher {
    /// No launcher: this process is the only rank.
    Nobody,
    /// A user or a script, which sets `WARPBELL_RANK` and its kin.
    Hand,
    /// PyTorch's torchrun.
    Torchrun,
    /// Open MPI's mpirun.
    OpenMpi,
    /// A process manager of the PMI family: hydra, and what is built on it.
    Pmi,
    /// Slurm's srun.
    Slurm,
    /// Any launcher of an MPI program, whose processes become ranks (`Rendezvous::over_mpi`, feature `mpi`).
    Mpi,
}

impl Launcher {
    const ALL: [Self; 5] = [
        Self::Hand,
        Self::Torchrun,
        Self::OpenMpi,
        Self::Pmi,
        Self::Slurm,
    ];

    /// The variables with rank, size and local rank.
    fn variables(self) -> [&'static str; 3] {
        match self {
            Self::Nobody | Self::Hand | Self::Mpi => {
                ["WARPBELL_RANK", "WARPBELL_SIZE", "WARPBELL_LOCAL_RANK"]
            }
            Self::Torchrun => ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
            Self::OpenMpi => [
                "OMPI_COMM_WORLD_RANK",
                "OMPI_COMM_WORLD_SIZE",
                "OMPI_COMM_WORLD_LOCAL_RANK",
            ],
            Self::Pmi => ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
            // A batch script has SLURM_PROCID and SLURM_NTASKS, too, but is no task of a step.
            Self::Slurm => ["SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"],
        }
    }

    /// What it says of this process, if it started it.
    fn said(self, env: &Environment) -> Result<Option<[Named; 3]>, RanksError> {
        let [rank, size, _] = self.variables();
        let missing = |variable| env.raw(variable).is_none_or(|value| value.is_empty());
        // These names are common, or inherited: one alone means nothing.
        let needs_both = matches!(self, Self::Torchrun | Self::Slurm);
        if self != Self::Hand && (missing(rank) || needs_both && missing(size)) {
            return Ok(None);
        }
        let mut numbers = [None; 3];
        for (number, variable) in numbers.iter_mut().zip(self.variables()) {
            *number = env.number(variable)?.map(|value| (variable, value));
        }
        if self != Self::Hand && missing(size) {
            return Err(RanksError::Incomplete(size));
        }
        Ok(Some(numbers))
    }
}

/// Its value of `WARPBELL_LAUNCHER`, if it has one, or a word for messages.
impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "nobody",
            Self::Hand => "hand",
            Self::Torchrun => "torchrun",
            Self::OpenMpi => "openmpi",
            Self::Pmi => "pmi",
            Self::Slurm => "slurm",
            Self::Mpi => "MPI",
        })
    }
}

/// A variable, and the number that is its value.
type Named = Option<(&'static str, u32)>;

impl Config {
    /// What all sources say together, without the root.
    ///
    /// # Errors
    /// A value that is no number; two sources that disagree; a rank without a size, or the other way round.
    pub(crate) fn without_root(env: &Environment) -> Result<Self, RanksError> {
        let known = "torchrun, openmpi, pmi, slurm or hand";
        let only = env.read("WARPBELL_LAUNCHER", known, |name| {
            Launcher::ALL
                .into_iter()
                .find(|one| one.to_string() == name)
        })?;
        let mut launcher = Launcher::Nobody;
        let mut all: Vec<[Named; 3]> = Vec::new();
        for source in Launcher::ALL {
            let chosen = source == Launcher::Hand || only.is_none_or(|only| only == source);
            let Some(said) = chosen.then(|| source.said(env)).transpose()?.flatten() else {
                continue;
            };
            match source {
                // If ranks are started by hand, a launcher may still say their numbers.
                Launcher::Hand if said[0].is_none() => {}
                // mpirun, torchrun and mpiexec run inside Slurm's steps, too. Then Slurm counts its own tasks.
                Launcher::Slurm if all[1..].iter().any(|other| differ(other, &said)) => continue,
                // Slurm is named where it speaks PMI itself.
                Launcher::Slurm if launcher == Launcher::Pmi => launcher = source,
                _ if all.len() < 2 => launcher = source,
                _ => {}
            }
            all.push(said);
        }
        if let Some(only) = only
            && only != Launcher::Hand
            && all.len() == 1
        {
            let [rank, ..] = only.variables();
            return Err(RanksError::NotStarted(only, rank));
        }
        let agreed = |at: usize| agreed(all.iter().filter_map(|said| said[at]));
        let (rank, size, local_rank) = (agreed(0)?, agreed(1)?, agreed(2)?);
        let (rank, size, local_rank) = match (rank, size) {
            (Some(rank), Some(size)) => (rank, size, local_rank),
            (Some(_), None) => return Err(RanksError::Incomplete("WARPBELL_SIZE")),
            (None, Some(_)) => return Err(RanksError::Incomplete("WARPBELL_RANK")),
            (None, None) => (0, 1, Some(0)),
        };
        Ok(Self {
            launcher,
            rank,
            size,
            local_rank,
            root: Root::Alone,
            bind: None,
            secret: None,
        })
    }
}

/// Whether two sources count ranks in different ways.
fn differ(one: &[Named; 3], other: &[Named; 3]) -> bool {
    let value = |named: Named| named.map(|one| one.1);
    (0..2).any(|at| value(one[at]) != value(other[at]))
}

/// The one number that all name.
fn agreed(mut said: impl Iterator<Item = (&'static str, u32)>) -> Result<Option<u32>, RanksError> {
    let Some((variable, value)) = said.next() else {
        return Ok(None);
    };
    match said.find(|other| other.1 != value) {
        None => Ok(Some(value)),
        Some((other, found)) => Err(RanksError::Disagree(
            format!("{variable}={value}"),
            format!("{other}={found}"),
        )),
    }
}
