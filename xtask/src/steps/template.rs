//! The step that makes a crate from the template, as a user does: outside of the repository, for a CPU, for a GPU, and
//! with what a user gets wrong.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{BUILD_DEADLINE, Report, StepError, Steps};
use crate::built::ptx_of;
use crate::run::{Finished, RunError};
use crate::workspace::{Workspace, clean_command};

/// What the template's program says last.
const OK: &str = "Test OK";

/// A crate made from the template, in a folder that goes with it.
struct App {
    folder: PathBuf,
    /// The workspace's, where what both depend on is built already.
    target: PathBuf,
}

impl App {
    fn make(workspace: &Workspace) -> io::Result<Self> {
        let name = format!("warpbell-template-{}", std::process::id());
        let app = Self {
            folder: std::env::temp_dir().join(name),
            target: workspace.target.clone(),
        };
        let template = workspace.root.join("template");
        fs::create_dir_all(app.path("src"))?;
        for file in [
            "Cargo.toml",
            "build.rs",
            "rustfmt.toml",
            "src/lib.rs",
            "src/main.rs",
        ] {
            fs::copy(template.join(file), app.path(file))?;
        }
        // The versions that are tested everywhere else.
        fs::copy(workspace.root.join("Cargo.lock"), app.path("Cargo.lock"))?;
        // Where its dependencies are looked for.
        symlink(&workspace.root, app.folder.join("warpbell"))?;
        Ok(app)
    }

    /// A file of the crate.
    fn path(&self, file: &str) -> PathBuf {
        self.folder.join("app").join(file)
    }

    fn cargo(&self, args: &[&str]) -> Command {
        let mut command = clean_command("cargo", &self.path(""));
        command.args(args).env("CARGO_TARGET_DIR", &self.target);
        command
    }

    /// Puts other text into a file of the crate.
    fn edit(&self, file: &str, from: &str, to: &str) -> io::Result<()> {
        let text = fs::read_to_string(self.path(file))?;
        fs::write(self.path(file), text.replacen(from, to, 1))
    }
}

impl Drop for App {
    fn drop(&mut self) {
        // What stays behind is in a folder for temporary files.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Steps<'_> {
    pub(super) fn template(&self, report: &mut Report) -> Result<(), StepError> {
        let app = App::make(self.workspace)?;
        let call = |args: &[&str]| self.capture(app.cargo(args), BUILD_DEADLINE);
        report.check("its format", &call(&["fmt", "--check"])?);
        expect(report, "on a CPU", &call(&["run"])?, true, &[OK]);

        let gpu = ["build", "--features", "gpu"];
        let built = call(&[&gpu[..], &["--message-format=json"]].concat())?;
        let entry = ".entry warpbell$my_app$block_sums$";
        match ptx_of(&built.stdout, "my-app") {
            Ok(ptx) if ptx.contains(entry) => report.list("its PTX", &[]),
            Ok(_) => report.fail("its PTX", format!("there is no {entry}")),
            Err(why) => report.fail("its PTX", format!("{why}\n{}", built.account())),
        }
        self.without_nightly(report, &app)?;

        app.edit("build.rs", "compile()", "compile_for(&[\"sm_12\"])")?;
        let said = ["compiled for `sm_12`", "choose one of sm_80, sm_90, sm_100"];
        expect(report, "for an unknown GPU", &call(&gpu)?, false, &said);
        app.edit("build.rs", "compile_for(&[\"sm_12\"])", "compile()")?;

        // A host can do that, and a GPU cannot.
        app.edit(
            "src/lib.rs",
            "    block::sync();\n",
            "    std::process::id();\n",
        )?;
        let said = ["--> src/lib.rs:21", "does not compile for sm_90"];
        expect(report, "with a wrong kernel", &call(&gpu)?, false, &said);
        Ok(())
    }

    /// A rustup that has no nightly: a warning, and a program for a CPU.
    fn without_nightly(&self, report: &mut Report, app: &App) -> Result<(), RunError> {
        let rustup = app.folder.join("bin/rustup");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}/bin:{path}", app.folder.display());
        let title = "without a nightly";
        if let Err(error) = put_program(&rustup, "#!/bin/sh\nexit 1\n") {
            report.fail(title, error.to_string());
            return Ok(());
        }
        // Cargo runs a build script again that has changed.
        let script = app.path("build.rs");
        let touched = fs::read(&script).and_then(|text| fs::write(&script, text));
        if let Err(error) = touched {
            report.fail(title, error.to_string());
            return Ok(());
        }
        let mut command = app.cargo(&["run", "--features", "gpu"]);
        command.env("PATH", path);
        let finished = self.capture(command, BUILD_DEADLINE)?;
        let said = ["run `rustup toolchain install nightly-", OK];
        expect(report, title, &finished, true, &said);
        Ok(())
    }
}

/// Counts a call that is to succeed or fail, and to say all of this.
fn expect(report: &mut Report, title: &str, finished: &Finished, succeeds: bool, said: &[&str]) {
    let missing = said.iter().filter(|text| !finished.output.contains(**text));
    let mut wrong: Vec<_> = missing
        .map(|text| format!("it does not say: {text}"))
        .collect();
    if finished.success() != succeeds {
        wrong.push(format!("it was to end with success: {succeeds}"));
    }
    if !wrong.is_empty() {
        wrong.push(finished.account());
    }
    report.list(title, &wrong);
}

fn put_program(path: &Path, text: &str) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
