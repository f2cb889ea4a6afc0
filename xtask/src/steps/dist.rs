//! The step that makes the archive for machines without Rust, and runs its programs on a bare one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::gallery::OK;
use super::{BUILD_DEADLINE, Report, StepError, Steps, minutes};
use crate::count;
use crate::dist::{self, DistError, Target, manifest::Manifest};
use crate::run::Finished;
use crate::tools::unpacked;
use crate::workspace::clean_command;

/// How long one program may take.
const DEADLINE: Duration = minutes(12);
/// Enters a folder as the root of the file system, with the kernel's own file systems, and runs a program there. It takes no
/// rights: in a namespace of its own, every user may.
const ENTER: &str = r#"
for folder in proc sys dev; do
    mkdir -p "$0/$folder" && mount --rbind "/$folder" "$0/$folder" || exit 125
done
exec chroot "$0" "$@"
"#;
/// Two ranks of the gallery, started by the launcher.
const RANKS: [&str; 4] = ["-n", "2", "--", "bin/gallery/all_to_all"];

/// A bring-up with a software NIC, and its steps that need no GPU.
const BRING_UP: [&str; 5] = ["bring-up", "--quick", "--nic", "soft", "--json"];
const STEPS: [&str; 4] = ["cpu", "suite", "latency", "bandwidth"];

/// A bare machine with the archive unpacked.
struct Bare {
    /// What its root is here.
    root: PathBuf,
    /// The archive's folder there.
    home: PathBuf,
}

impl Steps<'_> {
    /// What `dist` packs, so that its programs are there when it begins.
    pub(super) fn dist_build(&self, report: &mut Report) -> Result<(), StepError> {
        let show = |line: &str| self.spinner.set_message(line.trim().to_owned());
        let built = dist::build(self.workspace, Target::default(), show);
        report.list(
            "the programs",
            &Vec::from_iter(built.err().map(|error| error.to_string())),
        );
        let arm = dist::check(self.workspace, Target::Arm);
        report.check("cargo check for Arm", &self.capture(arm, BUILD_DEADLINE)?);
        Ok(())
    }

    pub(super) fn dist(&self, report: &mut Report) -> Result<(), StepError> {
        let made = dist::make(self.workspace, Target::default(), self.spinner)?;
        let manifest = Manifest::read(&made.folder).map_err(DistError::from)?;
        let bare = self.unpacked(&made.archive)?;
        let unpacked = bare
            .root
            .join(bare.home.strip_prefix("/").unwrap_or(&bare.home));
        let problem = manifest.check(&unpacked).err();
        report.list(
            "the archive",
            &Vec::from_iter(problem.map(|error| error.to_string())),
        );
        for file in manifest.files.iter().filter(|file| file.executable) {
            let title = format!("{} --help", file.path);
            report.check(&title, &self.bare(&bare, &file.path, &["--help"])?);
        }
        let doctor = self.bare(&bare, "bin/warpbell-doctor", &["--json"])?;
        report.list("doctor", &no_report(&doctor));
        let demo = self.bare(&bare, "bin/demo", &["--quick", "--json"])?;
        let unverified = count::demo_verified(&demo.stdout).err();
        report.list("demo", &wrong(&demo, unverified));
        let bring_up = self.bare(&bare, "bin/warpbell", &BRING_UP)?;
        report.list("bring-up", &not_brought_up(&bring_up));
        let hello = self.bare(&bare, "bin/gallery/hello_write", &[])?;
        report.list("hello_write", &wrong(&hello, unsaid(&hello, OK)));
        let ranks = self.bare(&bare, "bin/warpbell-launch", &RANKS)?;
        // The launcher says whose lines they are.
        report.list(
            "two ranks",
            &wrong(&ranks, unsaid(&ranks, &format!("[0] {OK}"))),
        );
        Ok(())
    }

    /// Unpacks an archive on a fresh bare machine.
    fn unpacked(&self, archive: &Path) -> Result<Bare, StepError> {
        let root = dist::folder(self.workspace).join("bare");
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        let mut copy = clean_command("cp", &self.workspace.root);
        copy.arg("-a")
            .arg(unpacked::bare_folder(self.workspace))
            .arg(&root);
        self.succeed(copy)?;
        for folder in ["tmp", "opt"] {
            fs::create_dir(root.join(folder))?;
        }
        let mut tar = clean_command("tar", &root.join("opt"));
        tar.arg("-xJf").arg(archive);
        self.succeed(tar)?;
        let name = archive.file_name().unwrap_or_default().to_string_lossy();
        let home = Path::new("/opt").join(name.trim_end_matches(".tar.xz"));
        Ok(Bare { root, home })
    }

    fn succeed(&self, command: Command) -> Result<(), StepError> {
        let finished = self.capture(command, DEADLINE)?;
        match finished.success() {
            true => Ok(()),
            false => Err(io::Error::other(finished.account()).into()),
        }
    }

    /// Runs a program of the archive on the bare machine, in the archive's folder.
    fn bare(&self, bare: &Bare, program: &str, arguments: &[&str]) -> Result<Finished, StepError> {
        let mut command = clean_command("unshare", &self.workspace.root);
        command.args(["--map-root-user", "--mount", "--", "sh", "-c", ENTER]);
        command.arg(&bare.root);
        let home = |path: &str| bare.home.join(path);
        command.arg(home(program));
        for argument in arguments {
            match argument.starts_with("bin/") {
                true => command.arg(home(argument)),
                false => command.arg(argument),
            };
        }
        Ok(self.capture(command, DEADLINE)?)
    }
}

/// What is wrong with a program that has to succeed, and to say something that it may not have said.
fn wrong(finished: &Finished, unsaid: Option<String>) -> Vec<String> {
    match (finished.success(), unsaid) {
        (true, None) => Vec::new(),
        (_, why) => vec![format!("{}{}", finished.account(), why.unwrap_or_default())],
    }
}

/// That a program has not said a line, if it has not.
fn unsaid(finished: &Finished, line: &str) -> Option<String> {
    let said = finished.stdout.lines().any(|one| one == line);
    (!said).then(|| format!("it does not say: {line}"))
}

/// What is wrong with the doctor's report, whose status says whether the machine is ready for a card.
fn no_report(finished: &Finished) -> Vec<String> {
    let read = serde_json::from_str::<serde_json::Value>(&finished.stdout);
    let findings = read
        .as_ref()
        .ok()
        .and_then(|value| value["findings"].as_array());
    match findings {
        Some(findings) if !findings.is_empty() => Vec::new(),
        _ => vec![format!("{}it has no findings", finished.account())],
    }
}

/// What is wrong with a bring-up whose steps without a GPU have to pass.
fn not_brought_up(finished: &Finished) -> Vec<String> {
    let read = serde_json::from_str::<serde_json::Value>(&finished.stdout).unwrap_or_default();
    let has_passed = |name: &&str| {
        let mut steps = read["steps"].as_array().into_iter().flatten();
        steps.any(|step| step["step"] == *name && step["verdict"] == "passed")
    };
    let open = STEPS.iter().find(|name| !has_passed(name));
    wrong(
        finished,
        open.map(|name| format!("the step {name} has not passed")),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    use super::*;
    use crate::run::Ending;

    #[test]
    fn programs_have_to_succeed_and_to_say_so() {
        let ended = |status: i32, said: &str| Finished {
            ending: Ending::Exited(ExitStatus::from_raw(status << 8)),
            stdout: said.into(),
            output: said.into(),
        };
        let counted = |finished: Finished| wrong(&finished, unsaid(&finished, OK)).len();
        assert_eq!(counted(ended(0, "written\nTest OK\n")), 0);
        assert_eq!(counted(ended(0, "not Test OK\n")), 1);
        assert_eq!(counted(ended(1, "Test OK\n")), 1);
        let steps = STEPS.map(|name| format!(r#"{{"step": "{name}", "verdict": "passed"}}"#));
        let steps = format!(r#"{{"steps": [{}]}}"#, steps.join(", "));
        assert_eq!(not_brought_up(&ended(0, &steps)).len(), 0);
        assert_eq!(not_brought_up(&ended(1, &steps)).len(), 1);
        let one_less = steps.replace("bandwidth", "other");
        let one_failed = steps.replacen("passed", "failed", 1);
        for said in [&*one_less, &*one_failed, "{}", ""] {
            assert_eq!(not_brought_up(&ended(0, said)).len(), 1, "accepted: {said}");
        }
        // A machine without a card has status 1.
        assert_eq!(no_report(&ended(1, r#"{"findings": [{}]}"#)).len(), 0);
        for said in ["", "{}", r#"{"findings": []}"#] {
            assert_eq!(no_report(&ended(0, said)).len(), 1, "accepted: {said}");
        }
    }
}
