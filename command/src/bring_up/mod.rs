//! `warpbell bring-up`: shows step by step whether GPU-driven networking works on a machine, and why not.
//!
//! Each step runs a program of this project (`plan`, `child`), and judges how it ended. The result is a `report`, as
//! lines (`screen`), as JSON, or as a page (`html`), and [`scrub`] takes names and addresses out of it.

mod child;
mod doctor;
mod html;
mod machine;
mod options;
mod plan;
mod report;
mod screen;
pub mod scrub;

use std::fs::{self, File};
use std::io::{self, Write, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use child::{Ending, Ran};
use doctor::Diagnosis;
use machine::Machine;
use plan::{Nic, Place, Plan, Step};
use report::{FORMAT, Report, StepReport, Verdict};
use screen::Screen;
use scrub::{Kind, Scrub};

pub use options::BringUp;

/// The signal of the kernel's that ends a process when memory is short.
const KILLED: i32 = 9;
/// What makes a program a rank.
const RANK: [&str; 6] = [
    "WARPBELL_RANK",
    "WARPBELL_SIZE",
    "WARPBELL_LOCAL_RANK",
    "WARPBELL_ROOT",
    "WARPBELL_BIND",
    "WARPBELL_SECRET",
];
const NEWER_COPY: &str =
    "The program may be of another version than this one. Copy the whole folder again.";

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum BringUpError {
    /// A report's file cannot be written.
    #[error("cannot write {file}: {source}")]
    File {
        /// Its name.
        file: String,
        /// What the system says.
        source: io::Error,
    },
    /// This program does not know where it is.
    #[error("cannot find the folder of this program ({0}); give it with --programs")]
    Folder(io::Error),
    /// Ctrl-C cannot be handled.
    #[error("cannot handle Ctrl-C: {0}")]
    Signals(#[from] ctrlc::Error),
    /// The report has no JSON.
    #[error("cannot write JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The lines or the document cannot be printed.
    #[error("cannot print: {0}")]
    Print(io::Error),
    /// Ctrl-C came. The reports are written.
    #[error("ended by Ctrl-C; the steps that are left were not run")]
    Interrupted,
}

impl BringUpError {
    /// The status of the process.
    pub fn status(&self) -> u8 {
        match self {
            Self::Interrupted => 130,
            Self::Print(_) => 1,
            _ => 2,
        }
    }
}

impl BringUp {
    /// Runs the steps. False if one has failed.
    ///
    /// # Errors
    /// [`BringUpError`]. A step that fails is none.
    pub fn run(&self, columns: usize) -> Result<bool, BringUpError> {
        // Before the first step: nobody waits for minutes in vain.
        let [json, html] = [&self.report, &self.html].map(|file| file.as_deref().map(create));
        let (json, html) = (json.transpose()?, html.transpose()?);
        let folder = match &self.programs {
            Some(folder) => fs::canonicalize(folder).unwrap_or_else(|_| folder.clone()),
            None => own_folder().map_err(BringUpError::Folder)?,
        };
        child::catch_signals()?;
        let date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let mut run = Run::new(self, &folder, columns);
        for step in self.chosen() {
            run.step(step);
        }
        let mut report = Report {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            date,
            scrubbed: false,
            verdict: Verdict::of_all(&run.steps),
            answer: report::answer(&run.steps, &run.plan.nic),
            quick: self.quick,
            nic: (&run.plan.nic).into(),
            machine: Machine::this(),
            findings: run.diagnosis.map_or_else(Vec::new, |all| all.findings),
            steps: run.steps,
        };
        let mut screen = run.screen;
        screen.conclude(&report);
        if !self.names {
            report.scrub(&mut self.scrub(&folder));
        }
        let document = serde_json::to_string_pretty(&report)? + "\n";
        let page = html.map(|file| (file, html::page(&report)));
        for (file, text) in json
            .map(|file| (file, document.clone()))
            .into_iter()
            .chain(page)
        {
            file.write(&text)?;
            screen.written(&file.name, report.scrubbed);
        }
        screen.end_of_output().map_err(BringUpError::Print)?;
        if self.json {
            print(&document).map_err(BringUpError::Print)?;
        }
        match report.verdict {
            Verdict::Interrupted => Err(BringUpError::Interrupted),
            verdict => Ok(verdict == Verdict::Passed),
        }
    }

    /// The steps to run, in their order.
    fn chosen(&self) -> Vec<Step> {
        let is_chosen = |step: &Step| self.steps.is_empty() || self.steps.contains(step);
        Step::ALL.into_iter().filter(is_chosen).collect()
    }

    /// What knows the names of this machine and of the second node.
    fn scrub(&self, programs: &Path) -> Scrub {
        let mut scrub = Scrub::default();
        scrub.programs(&programs.to_string_lossy());
        scrub.name(Kind::Host, &host_name());
        let address = self.address.as_deref();
        let address = address.map(|address| match address.split_once(':') {
            Some((host, port)) if !port.contains(':') => host,
            _ => address,
        });
        for name in self.node.as_deref().into_iter().chain(address) {
            let (user, host) = name.rsplit_once('@').unwrap_or(("", name));
            scrub.name(Kind::User, user);
            scrub.name(Kind::Host, host);
        }
        if let Ok(home) = std::env::var("HOME") {
            scrub.home(&home);
            scrub.name(Kind::User, home.rsplit('/').next().unwrap_or_default());
        }
        for variable in ["USER", "LOGNAME"] {
            scrub.name(Kind::User, &std::env::var(variable).unwrap_or_default());
        }
        scrub
    }
}

/// A report's file, open for writing.
struct Target {
    name: String,
    file: File,
}

fn create(path: &Path) -> Result<Target, BringUpError> {
    let name = path.display().to_string();
    match File::create(path) {
        Ok(file) => Ok(Target { name, file }),
        Err(source) => Err(BringUpError::File { file: name, source }),
    }
}

impl Target {
    fn write(&self, text: &str) -> Result<(), BringUpError> {
        let written = (&self.file).write_all(text.as_bytes());
        written.map_err(|source| BringUpError::File {
            file: self.name.clone(),
            source,
        })
    }
}

fn print(text: &str) -> io::Result<()> {
    match stdout()
        .write_all(text.as_bytes())
        .and_then(|()| stdout().flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

fn own_folder() -> io::Result<PathBuf> {
    let own = std::env::current_exe()?;
    own.parent()
        .map(Path::to_owned)
        .ok_or(io::ErrorKind::NotFound.into())
}

/// As the launcher finds its own machine.
fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// A bring-up under way.
struct Run<'a> {
    plan: Plan<'a>,
    screen: Screen,
    diagnosis: Option<Diagnosis>,
    steps: Vec<StepReport>,
}

/// What came of a program.
struct Judged {
    verdict: Verdict,
    why: Option<String>,
    remedy: Option<String>,
    output: Vec<String>,
}

impl Judged {
    fn failed(why: String, remedy: impl Into<String>, output: Vec<String>) -> Self {
        Self {
            verdict: Verdict::Failed,
            why: Some(why),
            remedy: Some(remedy.into()),
            output,
        }
    }
}

impl<'a> Run<'a> {
    fn new(options: &'a BringUp, folder: &'a Path, columns: usize) -> Self {
        let nic = options.nic.as_deref().map_or(Nic::Software, Nic::of);
        Self {
            plan: Plan {
                options,
                folder,
                nic,
                host: host_name(),
            },
            screen: Screen::new(options.chosen(), options.json, columns),
            diagnosis: None,
            steps: Vec::new(),
        }
    }

    /// Runs a step, or says why not.
    fn step(&mut self, step: Step) {
        let report = match self.obstacle(step) {
            Some((verdict, why)) => StepReport::not_run(step, verdict, why),
            None => self.run(step),
        };
        self.screen.end(&report);
        if step == Step::Doctor && self.diagnosis.is_some() && self.plan.options.nic.is_none() {
            self.screen.chosen(&self.plan.nic);
        }
        self.steps.push(report);
    }

    /// What came of a step, if it was chosen and its turn has come.
    fn done(&self, step: Step) -> Option<Verdict> {
        let mut steps = self.steps.iter();
        steps
            .find(|done| done.step == step)
            .map(|done| done.verdict)
    }

    /// Why a step is not run.
    fn obstacle(&self, step: Step) -> Option<(Verdict, String)> {
        let skipped = |why: &str| Some((Verdict::Skipped, why.to_owned()));
        if child::is_stopped() {
            return Some((Verdict::Interrupted, "Ctrl-C came before it".into()));
        }
        if step.needs_node() && self.plan.options.node.is_none() {
            return skipped("no second node was named; add --node HOST");
        }
        let has_gpu = self.diagnosis.as_ref().is_none_or(Diagnosis::has_gpu);
        if step.needs_gpu() && !has_gpu {
            return skipped("the doctor finds no GPU on this machine");
        }
        let mut premises = step.premises().iter();
        let is_missing = |one: &&Step| self.done(**one).is_some_and(|done| done != Verdict::Passed);
        let missing = premises.find(is_missing)?.name();
        skipped(&format!(
            "it needs the step {missing}, which has not passed"
        ))
    }

    /// The best place that has passed.
    fn best(&self) -> Place {
        match [Step::GpuMemory, Step::GpuHostMemory].map(|step| self.done(step)) {
            [Some(Verdict::Passed), _] => Place::GpuMemory,
            [_, Some(Verdict::Passed)] => Place::GpuHostMemory,
            _ => Place::Cpu,
        }
    }

    fn run(&mut self, step: Step) -> StepReport {
        let call = self.plan.call(step, self.best());
        self.screen.begin(step, &call);
        let mut command = Command::new(&call.program);
        command.args(&call.arguments);
        // This program may itself run as a rank of a launcher's. The programs that it runs are none.
        for variable in RANK {
            command.env_remove(variable);
        }
        command.env("WARPBELL_LAUNCHER", "hand");
        let deadline = Duration::from_secs(self.plan.options.deadline);
        let ran = child::run(&mut command, deadline);
        let seconds = Some(ran.took.as_millis() as f64 / 1e3);
        let Judged {
            verdict,
            why,
            remedy,
            output,
        } = match step {
            Step::Doctor => self.examine(ran, &call.program),
            _ => self.judge(step, ran, &call.program),
        };
        StepReport {
            step,
            proves: step.proves(),
            verdict,
            why,
            command: Some(call.to_string()),
            seconds,
            output,
            remedy,
        }
    }

    /// Takes the doctor's report, and chooses the card if none was named.
    fn examine(&mut self, ran: Ran, program: &Path) -> Judged {
        // Status 1 says that the machine is not ready for a card.
        let has_reported =
            matches!(&ran.ending, Ending::Exited(status) if matches!(status.code(), Some(0 | 1)));
        let diagnosis = serde_json::from_str::<Diagnosis>(&ran.stdout);
        let diagnosis = match (has_reported, diagnosis) {
            (false, _) => return self.judge(Step::Doctor, ran, program),
            (true, Ok(diagnosis)) => diagnosis,
            (true, Err(error)) => {
                let why = format!("its report cannot be read: {error}");
                return Judged::failed(why, NEWER_COPY, ran.lines);
            }
        };
        if self.plan.options.nic.is_none()
            && let Some(card) = diagnosis.card()
        {
            self.plan.nic = Nic::Card(card.to_owned());
        }
        let (nic, has_gpu) = (&self.plan.nic, diagnosis.has_gpu());
        let lacking = diagnosis.lacking(has_gpu, nic.card());
        let output: Vec<_> = lacking.iter().map(|finding| finding.line()).collect();
        let (verdict, why) = match (output.len(), nic) {
            (0, Nic::Software) if !has_gpu => {
                let why = "it finds no GPU, and the NIC is software, so nothing is needed";
                (Verdict::Skipped, Some(why.into()))
            }
            (0, _) => (Verdict::Passed, None),
            (1, _) => (
                Verdict::Failed,
                Some("1 thing is missing or unknown".into()),
            ),
            (count, _) => {
                let why = format!("{count} things are missing or unknown");
                (Verdict::Failed, Some(why))
            }
        };
        let remedy = Step::Doctor.remedy(nic);
        self.diagnosis = Some(diagnosis);
        Judged {
            verdict,
            why,
            remedy: (verdict == Verdict::Failed).then(|| remedy.into()),
            output,
        }
    }

    /// Whether a program has proven what it should.
    fn judge(&self, step: Step, ran: Ran, program: &Path) -> Judged {
        let remedy = step.remedy(&self.plan.nic);
        let status = match ran.ending {
            Ending::Exited(status) => status,
            Ending::Stopped => {
                return Judged {
                    verdict: Verdict::Interrupted,
                    why: Some("Ctrl-C ended it".into()),
                    remedy: None,
                    output: ran.lines,
                };
            }
            Ending::TimedOut => {
                let why = format!("it did not end within {} s", self.plan.options.deadline);
                let remedy = format!(
                    "On a busy machine, give it more time with --deadline. Otherwise something hangs. {remedy}"
                );
                return Judged::failed(why, remedy, ran.lines);
            }
            Ending::NotStarted(error) => {
                let why = format!("{} does not start: {error}", program.display());
                let remedy = format!(
                    "All programs belong beside `warpbell`: copy the whole folder again. In a checkout, build it: cargo build -p {}",
                    step.package()
                );
                return Judged::failed(why, remedy, ran.lines);
            }
        };
        let why = child::words(status);
        if std::os::unix::process::ExitStatusExt::signal(&status) == Some(KILLED) {
            let remedy = "Linux kills a process if memory is short: look at `sudo dmesg | tail`. Free some, and try again.";
            return Judged::failed(why, remedy, ran.lines);
        }
        if status.code().is_none() {
            let remedy = "This is a bug. Please send us the report.";
            return Judged::failed(why, remedy, ran.lines);
        }
        if !status.success() {
            return Judged::failed(why, remedy, ran.lines);
        }
        let lines = ran.lines.iter();
        let skipped = lines
            .clone()
            .find_map(|line| line.strip_prefix("Skipped: "));
        let (verdict, why) = match step.evidence() {
            Some(_) if skipped.is_some() => (Verdict::Skipped, skipped.map(str::to_owned)),
            Some(words) if !lines.clone().any(|line| line.contains(words)) => {
                let why = format!("{why}, but did not print \"{words}\"");
                return Judged::failed(why, NEWER_COPY, ran.lines);
            }
            _ => (Verdict::Passed, None),
        };
        Judged {
            verdict,
            why,
            remedy: None,
            output: ran.lines,
        }
    }
}
