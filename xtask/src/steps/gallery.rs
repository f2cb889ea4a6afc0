//! The step that runs the gallery's programs, as a newcomer does, also with what a newcomer gets wrong.

use std::path::PathBuf;

use super::{BUILD_DEADLINE, EXAMPLES, Report, StepError, Steps};
use crate::built::{executable, ptx_of, without_json};
use crate::run::{Ending, Finished};
use crate::workspace::clean_command;

/// What each program says last.
pub(super) const OK: &str = "Test OK";
/// A mistake: the program, its arguments, the status, and words of the message, of which one is enough.
type Mistake = (
    &'static str,
    &'static [&'static str],
    i32,
    &'static [&'static str],
);

const MISTAKES: [Mistake; 8] = [
    (
        "hello_write",
        &["--nic", "nonsense"],
        1,
        &["the NIC nonsense is none of software (soft, "],
    ),
    (
        "two_processes",
        &["--nic", "mlx5_77:2"],
        1,
        &["the NIC mlx5_77:2 is none of software (soft, "],
    ),
    (
        "fetch_add",
        &["--nic", "soft-gpu"],
        1,
        &["this program has no kernel for the NIC soft-gpu"],
    ),
    // On a machine that has GPUs, this is one too many.
    (
        "notify",
        &["--on", "gpu", "--gpu", "77"],
        1,
        &["no NVIDIA driver", "no GPU", "there is no GPU 77"],
    ),
    (
        "receive",
        &["--buffers", "0"],
        1,
        &["the queue stayed full until the deadline"],
    ),
    (
        "warp_scatter",
        &["--depth", "16"],
        1,
        &["the queue takes 8: make it deeper"],
    ),
    (
        "warp_scatter",
        &["--depth", "100"],
        1,
        &["100 is no power of two; use 64 or 128"],
    ),
    (
        "pingpong",
        &["--rounds", "5"],
        2,
        &["unexpected argument '--rounds'"],
    ),
];

impl Steps<'_> {
    pub(super) fn gallery(&self, report: &mut Report) -> Result<(), StepError> {
        let mut build = self.workspace_cargo("build");
        build.args(["--examples", "--message-format=json-render-diagnostics"]);
        if self.extent.full {
            build.args(["--features", &format!("{EXAMPLES}/gpu")]);
        }
        let built = self.capture(build, BUILD_DEADLINE)?;
        if !built.success() {
            report.fail("building the gallery", without_json(&built.account()));
            return Ok(());
        }
        let ptx = self.extent.full.then(|| ptx_of(&built.stdout, EXAMPLES));
        let own = self.workspace.targets(EXAMPLES, "example");
        for name in own.iter().copied().chain(["own_driver"]) {
            let Some(program) = executable(&built.stdout, name) else {
                report.fail(name, "Cargo did not say where it built it");
                continue;
            };
            let finished = self.program(&program, &[])?;
            let mut wrong = Vec::new();
            if !finished.success() || finished.stdout.lines().last() != Some(OK) {
                wrong.push(format!("{}its last line is not: {OK}", finished.account()));
            }
            let entry = format!(".entry warpbell$warpbell_examples${name}$");
            match &ptx {
                Some(Err(why)) => wrong.push(format!("its PTX: {why}")),
                Some(Ok(ptx)) if own.contains(&name) && !ptx.contains(&entry) => {
                    wrong.push(format!("the PTX has no {entry}"));
                }
                _ => {}
            }
            report.list(name, &wrong);
        }
        for (name, arguments, status, words) in MISTAKES {
            let title = format!("{name} {}", arguments.join(" "));
            let Some(program) = executable(&built.stdout, name) else {
                report.fail(&title, "Cargo did not say where it built it");
                continue;
            };
            let finished = self.program(&program, arguments)?;
            report.list(&title, &faults(&finished, status, words));
        }
        Ok(())
    }

    fn program(&self, program: &PathBuf, arguments: &[&str]) -> Result<Finished, StepError> {
        let mut command = clean_command(program, &self.workspace.root);
        command.args(arguments);
        Ok(self.capture(command, BUILD_DEADLINE)?)
    }
}

/// What is wrong with the end of a program that is to refuse its arguments.
fn faults(finished: &Finished, status: i32, words: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    let code = match finished.ending {
        Ending::Exited(status) => status.code(),
        Ending::TimedOut(_) => None,
    };
    if code != Some(status) {
        wrong.push(format!("its status is {code:?}, not {status}"));
    }
    if !words.iter().any(|words| finished.output.contains(words)) {
        wrong.push(format!("it does not say: {}", words.join(", or ")));
    }
    let lines = finished.output.lines().count() - finished.stdout.lines().count();
    // What is wrong with an option's spelling, clap says at more length.
    if lines != 1 && status == 1 {
        wrong.push(format!("it says it in {lines} lines"));
    }
    if !wrong.is_empty() {
        wrong.push(finished.account());
    }
    wrong
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;

    #[test]
    fn a_mistake_ends_with_its_status_and_one_line() {
        let ended = |code: i32, said: &str| Finished {
            ending: Ending::Exited(ExitStatus::from_raw(code << 8)),
            stdout: "before\n".into(),
            output: format!("before\n{said}"),
        };
        let faults = |finished, status| faults(&finished, status, &["no card", "no NIC"]).len();
        assert_eq!(faults(ended(1, "Error: no NIC\n"), 1), 0);
        assert_eq!(faults(ended(101, "Error: no NIC\n"), 1), 2);
        assert_eq!(faults(ended(1, "Error: nothing\n"), 1), 2);
        assert_eq!(faults(ended(1, "no NIC\nat all\n"), 1), 2);
        assert_eq!(faults(ended(2, "no NIC\nUsage:\n"), 2), 0);
    }
}
