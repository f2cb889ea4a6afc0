//! Nodes of a Slurm job: each call is a step of the job on one node.
//!
//! Slurm does not end a step whose `srun` was killed with its process group, so all steps are cancelled at the end. They
//! have a name that no other steps have.

use std::env;
use std::process::Command;
use std::time::Duration;

use thiserror::Error;

use super::connection::{Hold, last};
use super::problem::Problem;
use crate::run::{self, RunError};

/// How long a command of Slurm's may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// The variables of Slurm's in a job.
const JOB: &str = "SLURM_JOB_ID";
const NODES: &str = "SLURM_JOB_NODELIST";

/// Why there are no nodes of a job.
#[derive(Debug, Error)]
pub enum SlurmError {
    #[error("this machine has no Slurm: {0}")]
    None(RunError),
    #[error(
        "the options {0:?} are for a new job, and this is already job {1}: leave them out, or unset {JOB}"
    )]
    InJob(String, String),
    #[error("Slurm gives no job: {0}")]
    NoJob(Problem),
    #[error("the nodes of job {0} are not known: {1}")]
    NoNodes(String, Problem),
}

/// What calls need to be steps of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    job: String,
    name: String,
}

impl Step {
    #[cfg(test)]
    pub fn sample() -> Self {
        Self {
            job: "1".into(),
            name: "sample".into(),
        }
    }

    /// Runs a command of a shell on a node, in the user's home as ssh does. Its words are what this gets further.
    pub fn command(&self, host: &str, command: &str) -> Command {
        let Self { job, name } = self;
        let mut srun = Command::new("srun");
        srun.args([
            &format!("--jobid={job}"),
            &format!("--job-name={name}"),
            &format!("--nodelist={host}"),
        ]);
        // One task, which shares the node with other steps and has all of its processors.
        srun.args(["--nodes=1", "--ntasks=1", "--overlap", "--cpu-bind=none"]);
        // Ranks have a launcher of their own, and variables come by it.
        srun.args(["--mpi=none", "--export=HOME,PATH", "--chdir=/"]);
        srun.args(["sh", "-c", &format!("cd && {command} \"$@\""), "sh"]);
        srun
    }
}

/// A job, and its nodes. At its end nothing runs there that was started here; a job that was made here ends, too.
#[derive(Debug)]
pub struct Allocation {
    pub hosts: Vec<String>,
    pub step: Step,
    /// Of a job that was made here: it ends with this, and when this process ends.
    made: Option<Hold>,
}

impl Allocation {
    /// Takes the job that this process is in. Outside of a job, makes one with these options of `salloc`, and waits until
    /// it has its nodes.
    pub fn new(options: &str) -> Result<Self, SlurmError> {
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let mut allocation = Self {
            hosts: Vec::new(),
            step: Step {
                job: String::new(),
                name: format!("warpbell-flash-{}", std::process::id()),
            },
            made: None,
        };
        let options = options.trim();
        let list = match (variable(JOB), variable(NODES)) {
            (Some(job), Some(_)) if !options.is_empty() => {
                return Err(SlurmError::InJob(options.into(), job));
            }
            (Some(job), Some(list)) => {
                allocation.step.job = job;
                list
            }
            _ => allocation.make(options)?,
        };
        let hosts = said("scontrol", &["show", "hostnames", &list]).map_err(SlurmError::None)?;
        let unknown = |problem| SlurmError::NoNodes(allocation.step.job.clone(), problem);
        let hosts = hosts.map_err(unknown)?;
        allocation.hosts = hosts.lines().map(str::to_owned).collect();
        Ok(allocation)
    }

    /// Makes a job, and gives the list of its nodes.
    fn make(&mut self, options: &str) -> Result<String, SlurmError> {
        let mut command = Command::new("salloc");
        command.arg("--quiet").args(options.split_whitespace());
        command.arg(format!("--job-name={}", self.step.name));
        let script = format!("echo \"${JOB} ${NODES}\"; echo held; exec cat");
        command.args(["sh", "-c", &script]);
        let hold = Hold::start(command).map_err(|problem| match problem {
            Problem::Run(error) => SlurmError::None(error),
            problem => SlurmError::NoJob(problem),
        })?;
        // It may wait for nodes as long as others have them.
        let said = self.made.insert(hold).until("held", Duration::MAX);
        let said = said.map_err(SlurmError::NoJob)?;
        let words = said.last().and_then(|line| line.split_once(' '));
        let (job, list) = words.unwrap_or_default();
        self.step.job = job.into();
        Ok(list.into())
    }

    /// The steps that were started here and have not ended.
    fn steps(&self) -> Vec<String> {
        let Step { job, name } = &self.step;
        let options = ["--steps", "--noheader", "--format=%i %j", "--jobs", job];
        // Without an answer nothing can be done.
        let listed = said("squeue", &options).ok().and_then(Result::ok);
        let listed = listed.unwrap_or_default();
        let steps = listed.lines().filter_map(|line| line.split_once(' '));
        let own = steps.filter(|(_, step)| step.trim() == name);
        own.map(|(number, _)| number.to_owned()).collect()
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let mut cancel = Command::new("scancel");
        match self.made.take() {
            // By its name while it waits for nodes: its number is not known before.
            Some(_) if self.step.job.is_empty() => cancel.arg(format!("--name={}", self.step.name)),
            Some(_) => cancel.arg(&self.step.job),
            None => match self.steps() {
                none if none.is_empty() => return,
                steps => cancel.arg("--signal=KILL").args(steps),
            },
        };
        // A job that has ended by itself cannot be cancelled.
        let _ = run::capture(cancel, PATIENCE, |_| {});
    }
}

/// The address of a node, as Slurm has it.
pub fn address(host: &str) -> Result<String, Problem> {
    let shown = said("scontrol", &["--oneliner", "show", "node", host])??;
    let words = shown.split_whitespace();
    let mut addresses = words.filter_map(|word| word.strip_prefix("NodeAddr="));
    Ok(addresses.next().unwrap_or(host).to_owned())
}

/// What a command of Slurm's says, or why it failed.
fn said(program: &str, arguments: &[&str]) -> Result<Result<String, Problem>, RunError> {
    let mut command = Command::new(program);
    command.args(arguments);
    let finished = run::capture(command, PATIENCE, |_| {})?;
    Ok(match finished.success() {
        true => Ok(finished.stdout),
        false => Err(Problem::Remote(last(&finished.output, 1))),
    })
}

/// Why there is no step, by the words of `srun`: not those on a command that ran to its end.
pub fn lost(words: &str) -> Option<Problem> {
    let mut lines = words.lines().map(str::trim);
    let is_slurms = |line: &&str| {
        let of_step = line.starts_with("slurmstepd") && line.contains("error: *** STEP");
        of_step || line.starts_with("srun: error: ") && !line.contains(": task ")
    };
    let found = lines.rfind(is_slurms)?;
    Some(Problem::Unreachable(found.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_was_lost_is_told_from_one_that_failed() {
        for (words, expected) in [
            (
                "tar: no space\nsrun: error: one: task 0: Exited with exit code 2\n",
                None,
            ),
            ("sh: 1: no\n", None),
            (
                "srun: error: Unable to create step for job 3: Job/step already completing or completed\n",
                Some("it cannot be reached: srun: error: Unable to create step for job 3"),
            ),
            (
                "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n\
                 slurmstepd-one: error: *** STEP 1.3 ON one CANCELLED AT 2026-11-27T17:00:40 ***\n\
                 srun: error: one: task 0: Terminated\n",
                Some("it cannot be reached: slurmstepd-one: error: *** STEP 1.3 ON one CANCELLED"),
            ),
        ] {
            let problem = lost(words).map(|problem| problem.to_string());
            let is_so = match (&problem, expected) {
                (Some(problem), Some(expected)) => problem.starts_with(expected),
                (problem, expected) => problem.is_none() && expected.is_none(),
            };
            assert!(is_so, "{words}: {problem:?}");
        }
    }
}
