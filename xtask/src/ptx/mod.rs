//! `cargo xtask ptx`: kernels to PTX, with what must hold of it.
//!
//! The kernels are compiled for each target, cut into modules, assembled, and compared with the record of what
//! each kernel costs. The modules are committed, compressed, with the hash of their sources.

mod assemble;
mod build;
mod record;
pub mod rustc;
mod sources;
mod text;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use indicatif::ProgressBar;
use thiserror::Error;

use crate::run::{self, RunError};
use crate::tools;
use crate::workspace::Workspace;
use assemble::assemble;
use record::{Costs, Record};
use text::Module;

/// A kind of GPU that PTX is built for; newer ones run it too.
#[derive(Debug)]
pub struct Target {
    /// As rustc and ptxas call it.
    name: &'static str,
    /// The PTX version: 8.2 has the doorbell's store, 8.6 the one-sided fences of sm_90.
    isa: &'static str,
    /// Whether the test suite is built for it too; newer GPUs run that one.
    suite: bool,
}

/// The one that takes longest begins first.
const TARGETS: [Target; 3] = [
    Target {
        name: "sm_90",
        isa: "ptx86",
        suite: true,
    },
    Target {
        name: "sm_80",
        isa: "ptx82",
        suite: false,
    },
    Target {
        name: "sm_100",
        isa: "ptx86",
        suite: false,
    },
];

/// The modules. What only tests or the software NIC need would slow down every load of the others.
const MODULES: [&str; 3] = ["suite", "soft_nic", "kernels"];

/// The module that a kernel belongs to.
fn module_of(kernel: &str) -> &'static str {
    match kernel {
        "soft_nic" => "soft_nic",
        _ if kernel.starts_with("suite_") => "suite",
        _ => "kernels",
    }
}

/// Kernels that may use local memory, and why. All others post or poll, where it would cost.
const LOCAL_MEMORY_ALLOWED: [(&str, &str); 7] = [
    ("soft_nic", "a NIC, which neither posts nor polls"),
    (
        "suite_requests",
        "a test, which keeps up to 64 tickets at hand",
    ),
    (
        "suite_flood",
        "a test, which holds its mode and dispatches on it",
    ),
    (
        "suite_gaspi_calls",
        "a test, which holds its mode and dispatches on it",
    ),
    (
        "suite_gaspi_storm",
        "a test, which holds its mode and dispatches on it",
    ),
    (
        "suite_receive",
        "a test, which holds its mode and dispatches on it",
    ),
    ("suite_trouble", "a test, which neither posts nor polls"),
];

/// Why PTX could not be built or compared; what is wrong with it is a [`Built::problems`].
#[derive(Debug, Error)]
pub enum PtxError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the kernels do not compile for {target}:\n{output}")]
    Build {
        target: &'static str,
        output: String,
    },
    #[error("ptxas refuses {module}:\n{output}")]
    Assemble { module: String, output: String },
    #[error("{lacks} lacks: {names}")]
    Externs { lacks: String, names: String },
    #[error("{module} takes the address of a function, which ptxas compiles wrongly: {names}")]
    Addressed { module: String, names: String },
    #[error("{module} calls functions by their addresses, of which it has none: {names}")]
    IndirectCalls { module: String, names: String },
}

/// A file of `ptx/prebuilt` as it should be.
struct File {
    name: String,
    content: Vec<u8>,
}

/// What was built: the files to commit, the costs, and what is wrong.
pub struct Built {
    files: Vec<File>,
    record: Record,
    problems: Vec<String>,
    root: PathBuf,
}

/// Which modules are assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assemble {
    All,
    /// Those whose text is not the committed one: what ptxas says of that is in the record.
    Changed,
}

/// Compiles the kernels for every target and assembles them.
pub fn build(
    workspace: &Workspace,
    spinner: &ProgressBar,
    which: Assemble,
) -> Result<Built, PtxError> {
    let ptxas = &tools::ptxas(workspace);
    let root = workspace.root.join("ptx");
    let recorded = &match which {
        Assemble::All => Record::default(),
        Assemble::Changed => committed_record(&root)?,
    };
    // All at once, because one target's compiler leaves a core free most of the time.
    let parts = run::beside_each_other(&TARGETS, |target| {
        let compiled = build::compile(workspace, target, |line| {
            spinner.set_message(format!("{}: {}", target.name, line.trim()));
        })?;
        cut(workspace, target, &compiled, ptxas, recorded)
    })?;
    let (mut files, mut kernels, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    for mut part in parts.into_iter().flatten() {
        files.append(&mut part.files);
        kernels.append(&mut part.kernels);
        costs.append(&mut part.costs);
    }
    kernels.sort();
    kernels.dedup();
    files.push(File {
        name: "kernels.txt".into(),
        content: kernels.concat().into_bytes(),
    });
    let hash = sources::hash(
        &workspace.root,
        tools::nightly_name(),
        &format!("{TARGETS:?}"),
    )?;
    files.push(File {
        name: "sources.sha256".into(),
        content: format!("{hash}\n").into_bytes(),
    });
    let mut record = Record::default();
    let mut problems = Vec::new();
    for (target, kernel, costs) in costs {
        let allowed = LOCAL_MEMORY_ALLOWED.iter().any(|(name, _)| *name == kernel);
        if costs.uses_local_memory() && !allowed {
            problems.push(format!(
                "{kernel} on {target} uses local memory: {} bytes of stack, {} spilt, {} accesses",
                costs.resources.stack, costs.resources.spills, costs.counts.local
            ));
        }
        record.insert(&kernel, target, &costs);
    }
    Ok(Built {
        files,
        record,
        problems,
        root,
    })
}

/// What comes of the kernels of a module for one target.
#[derive(Default)]
struct Part {
    files: Vec<File>,
    /// The lines of the list of kernels.
    kernels: Vec<String>,
    costs: Vec<KernelCosts>,
}

/// The costs of a kernel on a target.
type KernelCosts = (&'static str, String, Costs);

/// Cuts the kernels for one target into modules, and takes the costs of each.
fn cut(
    workspace: &Workspace,
    target: &Target,
    compiled: &str,
    ptxas: &Path,
    recorded: &Record,
) -> Result<Vec<Part>, PtxError> {
    let folder = workspace.target.join("ptx");
    fs::create_dir_all(&folder)?;
    let compiled = &text::without_function_addresses(compiled);
    let compiled = Module::parse(compiled);
    run::beside_each_other(&MODULES, |module| {
        let mut entries = compiled.entries();
        entries.retain(|entry| module_of(entry) == *module);
        if entries.is_empty() {
            return Ok(Part::default());
        }
        let name = format!("{module}.{}", target.name);
        let text = compiled.with_entries(&entries);
        let path = folder.join(format!("{name}.ptx"));
        fs::write(&path, &text)?;
        let file = File {
            name: format!("{name}.ptx.gz"),
            content: compress(text.as_bytes())?,
        };
        let committed = prebuilt(&workspace.root.join("ptx")).join(&file.name);
        let recorded = is_there(&committed, text.as_bytes())?.then_some(recorded);
        let kernels = entries.iter().map(|entry| format!("{module} {entry}\n"));
        Ok(Part {
            kernels: kernels.collect(),
            files: vec![file],
            costs: costs(ptxas, target, name, &path, &text, recorded)?,
        })
    })
}

/// The costs of each kernel of a module. It is assembled unless they are all recorded.
fn costs(
    ptxas: &Path,
    target: &Target,
    name: String,
    path: &Path,
    text: &str,
    recorded: Option<&Record>,
) -> Result<Vec<KernelCosts>, PtxError> {
    let module = Module::parse(text);
    let externs = module.externs();
    if !externs.is_empty() {
        return Err(PtxError::Externs {
            lacks: name,
            names: externs.join(", "),
        });
    }
    let callers = module.indirect_callers();
    if !callers.is_empty() {
        return Err(PtxError::IndirectCalls {
            module: name,
            names: callers.join(", "),
        });
    }
    let addressed = module.addressed();
    if !addressed.is_empty() {
        return Err(PtxError::Addressed {
            module: name,
            names: Vec::from_iter(addressed).join(", "),
        });
    }
    let known = recorded.and_then(|record| {
        let entries = module.entries().into_iter();
        let resources =
            entries.map(|kernel| Some((kernel.to_owned(), record.resources(kernel, target.name)?)));
        resources.collect::<Option<HashMap<_, _>>>()
    });
    let resources = match known {
        Some(known) => known,
        None => assemble(ptxas, target.name, path)?.map_err(|output| PtxError::Assemble {
            module: name,
            output,
        })?,
    };
    let kernels = module.entries().into_iter().map(|kernel| {
        let costs = Costs {
            resources: resources.get(kernel).copied().unwrap_or_default(),
            counts: module.counts(kernel),
        };
        (target.name, kernel.to_owned(), costs)
    });
    Ok(kernels.collect())
}

impl Built {
    /// What is wrong with the PTX itself, whatever is committed.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// What has changed in the kernels' costs since they were recorded.
    pub fn changes(&self) -> Result<Vec<String>, PtxError> {
        Ok(committed_record(&self.root)?.changes(&self.record))
    }

    /// The committed files that are not what was built.
    pub fn outdated(&self) -> Result<Vec<String>, PtxError> {
        let mut outdated = Vec::new();
        for file in &self.files {
            let path = prebuilt(&self.root).join(&file.name);
            if !is_there(&path, &decompress(&file.content)?)? {
                outdated.push(format!("{} is not what its sources give", path.display()));
            }
        }
        Ok(outdated)
    }

    /// Replaces the committed files.
    pub fn write(&self) -> Result<(), PtxError> {
        let folder = prebuilt(&self.root);
        fs::create_dir_all(&folder)?;
        for file in &self.files {
            fs::write(folder.join(&file.name), &file.content)?;
        }
        Ok(())
    }

    /// Replaces the record.
    pub fn write_record(&self) -> Result<(), PtxError> {
        Ok(fs::write(record_path(&self.root), self.record.to_string())?)
    }
}

fn prebuilt(root: &Path) -> PathBuf {
    root.join("prebuilt")
}

fn record_path(root: &Path) -> PathBuf {
    root.join("record.txt")
}

/// The record as it is committed; an empty one where there is none.
fn committed_record(root: &Path) -> Result<Record, PtxError> {
    match fs::read_to_string(record_path(root)) {
        Ok(text) => Ok(Record::parse(&text).map_err(io::Error::other)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Record::default()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a file, compressed or not, holds this.
fn is_there(path: &Path, wanted: &[u8]) -> Result<bool, PtxError> {
    match fs::read(path) {
        Ok(content) => Ok(decompress(&content)? == wanted),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn compress(content: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}

/// The content of a compressed file; another file's own.
fn decompress(content: &[u8]) -> io::Result<Vec<u8>> {
    const GZIP: [u8; 2] = [0x1f, 0x8b];
    if !content.starts_with(&GZIP) {
        return Ok(content.into());
    }
    let mut plain = Vec::new();
    GzDecoder::new(content).read_to_end(&mut plain)?;
    Ok(plain)
}
