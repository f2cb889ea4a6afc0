//! The step that packages what is published, and builds each package from what is in it.

use super::{BUILD_DEADLINE, Report, StepError, Steps};

/// Files that each package has beside its sources.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

impl Steps<'_> {
    pub(super) fn packages(&self, report: &mut Report) -> Result<(), StepError> {
        let published: Vec<&str> = self.workspace.published().collect();
        let cargo = |args: &[&str]| {
            let mut command = self.workspace.cargo();
            // What is not committed yet is tested, too.
            command.args(["package", "--allow-dirty"]).args(args);
            // In a folder of its own, because others build at the same time.
            command.env("CARGO_TARGET_DIR", self.workspace.target.join("packages"));
            self.capture(command, BUILD_DEADLINE)
        };
        for package in &published {
            let listed = cargo(&["--list", "--package", package])?;
            let lacks = LICENCES.iter();
            let lacks = lacks.filter(|file| !listed.stdout.lines().any(|line| line == **file));
            let lacks: Vec<_> = lacks
                .map(|file| format!("{package} lacks {file}"))
                .collect();
            report.list(package, &lacks);
        }
        let each = published.iter().flat_map(|package| ["--package", package]);
        let packaged = cargo(&each.collect::<Vec<_>>())?;
        if report.check("cargo package", &packaged) {
            // Cargo warns of metadata that a registry's page lacks.
            let warnings = packaged.output.lines();
            let warnings = warnings.filter(|line| line.starts_with("warning: manifest"));
            let warnings: Vec<_> = warnings.map(str::to_owned).collect();
            report.list("the packages' metadata", &warnings);
        }
        Ok(())
    }
}
