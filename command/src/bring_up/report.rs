//! What came of a bring-up, for programs and for people.

use serde::Serialize;

use super::doctor::Finding;
use super::machine::Machine;
use super::plan::{Nic, Step};
use super::scrub::Scrub;

/// Changes whenever a reader of the JSON would have to.
pub const FORMAT: u32 = 1;

/// How a step ended, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It proved what it says.
    Passed,
    /// It did not.
    Failed,
    /// It was not run, or had nothing to show.
    Skipped,
    /// Ctrl-C ended it.
    Interrupted,
}

/// All that is known at the end.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The version of `warpbell`.
    pub version: &'static str,
    /// When it began, in UTC.
    pub date: String,
    /// Whether placeholders stand for host names, user names and addresses.
    pub scrubbed: bool,
    /// Of all steps: failed if one has failed.
    pub verdict: Verdict,
    /// Whether GPU-driven networking works here, in a sentence.
    pub answer: String,
    /// Whether the steps were short.
    pub quick: bool,
    /// The NIC of all steps.
    pub nic: NicName,
    /// This machine.
    pub machine: Machine,
    /// The steps that were chosen, in their order.
    pub steps: Vec<StepReport>,
    /// All that the doctor found.
    pub findings: Vec<Finding>,
}

/// Which NIC.
#[derive(Debug, Serialize)]
pub struct NicName {
    /// A card's name, or `software`.
    pub name: String,
    /// Whether it is software, so that nothing is proven of a card.
    pub software: bool,
}

/// What came of a step.
#[derive(Debug, Serialize)]
pub struct StepReport {
    /// Which.
    pub step: Step,
    /// What is proven if it passed.
    pub proves: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// Why it did not pass.
    pub why: Option<String>,
    /// The command line, if it was run.
    pub command: Option<String>,
    /// Seconds that it took, if it was run.
    pub seconds: Option<f64>,
    /// The last lines that its program printed. Of the doctor: what is missing.
    pub output: Vec<String>,
    /// What to do, if it failed.
    pub remedy: Option<String>,
}

impl StepReport {
    /// A step that was not run.
    pub fn not_run(step: Step, verdict: Verdict, why: String) -> Self {
        Self {
            step,
            proves: step.proves(),
            verdict,
            why: Some(why),
            command: None,
            seconds: None,
            output: Vec::new(),
            remedy: None,
        }
    }
}

impl StepReport {
    /// Why it did not pass, in its program's words if there are any.
    fn cause(&self) -> Option<&str> {
        let why = self.why.as_deref()?;
        let mut lines = self.output.iter().rev();
        let own = lines.find_map(|line| line.strip_prefix("error: "));
        Some(own.unwrap_or(why).trim_end_matches('.'))
    }
}

impl Verdict {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Interrupted => "interrupted",
        }
    }

    /// That of all steps.
    pub fn of_all(steps: &[StepReport]) -> Self {
        let has = |verdict| steps.iter().any(|step| step.verdict == verdict);
        match (has(Self::Interrupted), has(Self::Failed)) {
            (true, _) => Self::Interrupted,
            (false, true) => Self::Failed,
            (false, false) => Self::Passed,
        }
    }
}

/// Whether GPU-driven networking works, as far as these steps show.
pub fn answer(steps: &[StepReport], nic: &Nic) -> String {
    let find = |step| steps.iter().find(|report| report.step == step);
    let has_passed = |step| find(step).is_some_and(|report| report.verdict == Verdict::Passed);
    let [in_host, in_gpu, between] =
        [Step::GpuHostMemory, Step::GpuMemory, Step::TwoGpus].map(has_passed);
    match nic {
        Nic::Software if in_host || in_gpu => {
            "Kernels on the GPU drive a software NIC. The NIC is software, so nothing is proven of a card.".into()
        }
        Nic::Card(card) if in_gpu => {
            let reach = if between { ", also between two nodes" } else { "" };
            format!(
                "GPU-driven networking works here{reach}: kernels on the GPU drive {card}, with queues and data in the GPU's memory."
            )
        }
        Nic::Card(card) if in_host => format!(
            "GPU-driven networking works here with queues and data in host memory: kernels on the GPU drive {card}. With both in the GPU's memory it is not proven."
        ),
        nic => {
            let first = [Step::Cpu, Step::GpuHostMemory, Step::GpuMemory];
            let mut open = first.into_iter().filter_map(find);
            let open = open.find_map(|report| Some((report.step.name(), report.cause()?)));
            let why = open.map(|(name, why)| format!(" The step {name}: {why}."));
            let card = match nic {
                Nic::Software => " The NIC is software, so nothing is proven of a card.",
                Nic::Card(_) => "",
            };
            let why = why.unwrap_or_default();
            format!("GPU-driven networking is not proven here.{why}{card}")
        }
    }
}

impl From<&Nic> for NicName {
    fn from(nic: &Nic) -> Self {
        Self {
            name: nic.to_string(),
            software: *nic == Nic::Software,
        }
    }
}

impl Report {
    /// The whole result, in a line.
    pub fn conclusion(&self) -> String {
        let count = |verdict| {
            let steps = self.steps.iter();
            steps.filter(|step| step.verdict == verdict).count()
        };
        let [passed, failed, skipped] =
            [Verdict::Passed, Verdict::Failed, Verdict::Skipped].map(count);
        let end = match self.verdict {
            Verdict::Interrupted => ". Ctrl-C ended it early",
            _ => "",
        };
        format!("{passed} steps passed, {failed} failed, {skipped} skipped{end}.")
    }

    /// Puts placeholders in the places of names and addresses. The project's own sentences have none.
    pub fn scrub(&mut self, scrub: &mut Scrub) {
        self.scrubbed = true;
        self.answer = scrub.text(&self.answer);
        let steps = self.steps.iter_mut().flat_map(|step| {
            let texts = step.why.iter_mut().chain(&mut step.command);
            texts.chain(&mut step.output)
        });
        let findings = self.findings.iter_mut().flat_map(|finding| {
            let texts = finding.remedy.iter_mut();
            texts.chain([&mut finding.value])
        });
        for text in steps.chain(findings) {
            *text = scrub.text(text);
        }
    }
}
