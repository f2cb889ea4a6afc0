//! The step that starts ranks by each launcher, on this machine, by two nodes of Slurm's, and in two network namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{BUILD_DEADLINE, Report, StepError, Steps, minutes, net};
use crate::built::{executable, without_json};
use crate::launch::{LAUNCHER, RANKS};
use crate::run::Finished;
use crate::tools::LIBCLANG_FOLDER;
use crate::workspace::clean_command;

/// Programs of the gallery that take ranks. Rank 0 says this last, and each rank a line with its number.
const PROGRAMS: [&str; 7] = [
    "all_to_all",
    "allreduce",
    "collectives",
    "pingpong",
    "notify",
    "active_message",
    "moe",
];
const OK: &str = "Test OK";
/// The demo, and applications of papers, which take ranks: how many, and a small size. Rank 0 shows the results, and fails if
/// one is wrong.
const APPLICATIONS: [(&str, u32, [&str; 3]); 6] = [
    ("demo", 2, ["--quick", "--size=999", "--seed=5"]),
    ("jacobi", 2, ["--sides=16", "--steps=10", "--repetitions=1"]),
    (
        "stencil",
        4,
        ["--cells=16", "--steps=10", "--repetitions=1"],
    ),
    ("kv", 3, ["--sizes=16", "--keys=200", "--gets=50"]),
    ("daq", 2, ["--rates=500", "--events=200", "--warm-up=10"]),
    ("serving", 2, ["--sides=16", "--rounds=3", "--warm-up=1"]),
];
/// A program that connects all ranks, how many, and what rank 0 says of them.
const CONNECTIONS: (&str, u32, &str) = ("connections", 64, "64 ranks, 2016 connections, connected");
/// How many ranks the sample files start.
const SIZE: u32 = 4;

/// How long one job may take.
const DEADLINE: Duration = minutes(5);

/// The sample files of the gallery, what each starts, and the launcher that it needs.
const SAMPLES: [(&str, &str); 3] = [
    ("mpirun.sh", "mpirun.openmpi"),
    ("mpiexec.sh", "mpiexec.hydra"),
    ("torchrun.sh", "torchrun"),
];
/// torchrun 1.13 on Python 3.11, as Debian 12 has them, cannot start without these.
const TORCHRUN_OUTPUT: [(&str, &str); 2] = [("PET_REDIRECTS", "1"), ("PET_TEE", "1")];
/// A program that calls MPI itself, of the ranks' package.
const MPI_PROGRAM: &str = "mpi_ranks";
const SBATCH: &str = "job.sbatch";
/// Runs a job and prints its output, which goes to a file.
const BATCH: &str =
    r#"status=0; sbatch --wait --output="$0" "$@" || status=$?; cat "$0"; exit $status"#;
const SLURM: [&str; 3] = ["munged", "slurmctld", "slurmd"];
/// How ranks start in two network namespaces, where rank 0 listens, and the program that it needs.
const NAMESPACES: [(&str, &str, Option<&str>); 5] = [
    ("hand", "10.77.0.1:21001", None),
    ("hand", "[fd77::1]:21001", None),
    ("rsh", "10.77.0.1", None),
    ("ssh", "10.77.0.1", Some("sshd")),
    ("mpirun", "10.77.0.1:21001", Some("mpirun.openmpi")),
];

impl Steps<'_> {
    pub(super) fn ranks(&self, report: &mut Report) -> Result<(), StepError> {
        let mut build = self.workspace_cargo("build");
        build.args(["--examples", "--bin", LAUNCHER]);
        let applications = match self.extent.full {
            true => &APPLICATIONS[..],
            false => &[],
        };
        build.args(applications.iter().flat_map(|(name, ..)| ["--bin", name]));
        build.arg("--message-format=json-render-diagnostics");
        let built = self.capture(build, BUILD_DEADLINE)?;
        if !built.success() {
            report.fail(
                "building the ranks' programs",
                without_json(&built.account()),
            );
            return Ok(());
        }
        let launcher = executable(&built.stdout, LAUNCHER).ok_or(StepError::Unbuilt(LAUNCHER))?;
        for (name, ranks, arguments) in applications {
            let program = executable(&built.stdout, name).ok_or(StepError::Unbuilt(name))?;
            for wire in ["shm", "roce"] {
                let mut command = clean_command(&launcher, &self.workspace.root);
                command.args(["-n", &ranks.to_string()]).arg(&program);
                command.args(arguments);
                command.env("WARPBELL_WIRE", wire);
                let finished = self.capture(command, DEADLINE)?;
                let shown = [format!(" {ranks} ranks, ")];
                let title = format!("{LAUNCHER} {name} {wire}");
                report.list(&title, &faults(&finished, shown));
            }
        }
        for name in PROGRAMS {
            let program = executable(&built.stdout, name).ok_or(StepError::Unbuilt(name))?;
            for wire in ["", "shm", "roce"] {
                let mut command = clean_command(&launcher, &self.workspace.root);
                command.args(["-n", &SIZE.to_string()]).arg(&program);
                command.env("WARPBELL_WIRE", wire);
                self.job(report, &format!("{LAUNCHER} {name} {wire}"), command)?;
            }
            self.samples(report, name, &program)?;
            self.as_root(report, name, &program, &launcher)?;
        }
        let (name, ranks, words) = CONNECTIONS;
        let program = executable(&built.stdout, name).ok_or(StepError::Unbuilt(name))?;
        let mut command = clean_command(&launcher, &self.workspace.root);
        command.args(["-n", &ranks.to_string()]).arg(&program);
        let finished = self.capture(command, DEADLINE)?;
        let said = [words, OK].map(str::to_owned);
        report.list(&format!("{LAUNCHER} {name}"), &faults(&finished, said));
        self.in_mpi(report)
    }

    /// Ranks that are the processes of an MPI program. Only this builds rsmpi.
    fn in_mpi(&self, report: &mut Report) -> Result<(), StepError> {
        let mut build = self.workspace.cargo();
        build.args(["build", "--message-format=json-render-diagnostics"]);
        build.args(["-p", RANKS, "--features", "mpi", "--example"]);
        build.arg(MPI_PROGRAM).env("LIBCLANG_PATH", LIBCLANG_FOLDER);
        let built = self.capture(build, BUILD_DEADLINE)?;
        if !built.success() {
            report.fail("building an MPI program", without_json(&built.account()));
            return Ok(());
        }
        let program = executable(&built.stdout, MPI_PROGRAM);
        let program = program.ok_or(StepError::Unbuilt(MPI_PROGRAM))?;
        self.by_sample(report, MPI_PROGRAM, &program, SAMPLES[0])
    }

    fn samples(&self, report: &mut Report, name: &str, program: &Path) -> Result<(), StepError> {
        for sample in SAMPLES {
            self.by_sample(report, name, program, sample)?;
        }
        Ok(())
    }

    fn by_sample(
        &self,
        report: &mut Report,
        name: &str,
        program: &Path,
        (sample, launcher): (&str, &str),
    ) -> Result<(), StepError> {
        let title = format!("{sample} {name}");
        if find(launcher).is_none() {
            report.skip(format!("{title}: {launcher} is not installed"));
            return Ok(());
        }
        let mut command = self.sample(sample);
        command.arg(program);
        command.env("MPIRUN", launcher).env("MPIEXEC", launcher);
        // Of Open MPI: on few cores, and by root.
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
        command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.envs(TORCHRUN_OUTPUT);
        self.job(report, &title, command)
    }

    fn as_root(
        &self,
        report: &mut Report,
        name: &str,
        program: &Path,
        launcher: &Path,
    ) -> Result<(), StepError> {
        let slurm = format!("{SBATCH} {name}");
        let title = |way, root| format!("namespaces by {way}, root {root}: {name}");
        let titles = NAMESPACES
            .into_iter()
            .map(|(way, root, _)| title(way, root));
        let titles: Vec<_> = titles.chain([slurm.clone()]).collect();
        if !net::can_be_made(report, &titles) {
            return Ok(());
        }
        match SLURM.into_iter().find(|daemon| find(daemon).is_none()) {
            Some(missing) => report.skip(format!("{slurm}: {missing} is not installed")),
            None => {
                let folder = self.workspace.target.join("slurm");
                let mut command = self.slurm(&folder);
                command.args(["sh", "-c", BATCH]).arg(folder.join("output"));
                command.arg(self.sample_path(SBATCH)).arg(program);
                self.job(report, &slurm, command)?;
            }
        }
        for (way, root, needed) in NAMESPACES {
            let title = title(way, root);
            if let Some(missing) = needed.filter(|program| find(program).is_none()) {
                report.skip(format!("{title}: {missing} is not installed"));
                continue;
            }
            let mut command = self.script("namespaces.sh");
            command.args([way, root]).arg(program);
            command.env("LAUNCHER", launcher);
            self.job(report, &title, command)?;
        }
        Ok(())
    }

    fn sample_path(&self, name: &str) -> PathBuf {
        self.workspace.root.join("examples/launch").join(name)
    }

    fn sample(&self, name: &str) -> Command {
        clean_command(self.sample_path(name), &self.workspace.root)
    }

    /// Runs the command that its further arguments make, with a Slurm of its own.
    pub(super) fn slurm(&self, folder: &Path) -> Command {
        let mut command = self.script("slurm.sh");
        command.arg(folder);
        command
    }

    fn script(&self, name: &str) -> Command {
        let folder = self.workspace.root.join("xtask/src/steps/ranks");
        let mut command = clean_command("sh", &self.workspace.root);
        command.arg(folder.join(name));
        command
    }

    /// Runs a job of [`SIZE`] ranks.
    fn job(&self, report: &mut Report, title: &str, command: Command) -> Result<(), StepError> {
        let finished = self.capture(command, DEADLINE)?;
        report.list(title.trim_end(), &faults(&finished, lines()));
        Ok(())
    }
}

/// What the [`SIZE`] ranks of a program say.
fn lines() -> impl Iterator<Item = String> {
    let ranks = (0..SIZE).map(|rank| format!("rank {rank} "));
    ranks.chain([OK.into(), format!(" {SIZE} ranks, ")])
}

/// What is wrong with a job that is to say these words. Launchers may put something before each line, and mix the lines of
/// ranks.
fn faults(finished: &Finished, expected: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut wrong = Vec::new();
    if !finished.success() {
        wrong.push("it failed".to_owned());
    }
    let says = |words: &str| finished.stdout.lines().any(|line| line.contains(words));
    for words in expected {
        if !says(&words) {
            wrong.push(format!("nobody says: {words}"));
        }
    }
    if !wrong.is_empty() {
        wrong.push(finished.account());
    }
    wrong
}

/// Where a program is, if it is installed. Daemons are not on the path of every user.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let is_file = |file: &PathBuf| fs::metadata(file).is_ok_and(|data| data.is_file());
    folders.map(|folder| folder.join(program)).find(is_file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;
    use crate::run::Ending;

    #[test]
    fn a_job_is_right_if_all_ranks_speak_and_it_succeeds() {
        let ended = |code: i32, words: &str| Finished {
            ending: Ending::Exited(ExitStatus::from_raw(code << 8)),
            stdout: words.into(),
            output: words.into(),
        };
        let words = "[0] started by hand: 4 ranks, root x\nrank 0 a\nrank 1 b\n[2] rank 2 c\nrank 3 d\nTest OK\n";
        assert!(faults(&ended(0, words), lines()).is_empty());
        assert_eq!(faults(&ended(1, words), lines()).len(), 2);
        for word in ["rank 2 ", "Test OK", "4 ranks"] {
            assert_eq!(
                faults(&ended(0, &words.replace(word, "")), lines()).len(),
                2
            );
        }
    }
}
