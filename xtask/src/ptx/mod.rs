//! `cargo xtask ptx`: kernels to PTX, with what must hold of it.
//!
//! The kernels are compiled, lowered for each target and each module, assembled, and compared with the record of
//! what each kernel costs. The modules are committed, compressed, with the hash of their sources.

mod assemble;
mod build;
pub mod by_rust_cuda;
mod llvm;
pub mod nvvm;
mod record;
pub mod rust_cuda;
pub mod rustc;
mod sources;
mod text;

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use indicatif::ProgressBar;
use thiserror::Error;

use crate::run::{self, RunError};
use crate::tools;
use crate::workspace::Workspace;
use assemble::assemble;
use llvm::{Kernels, Toolchain};
use record::{Costs, Record};
use text::Module;

/// Who compiles the kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Compiler {
    /// rustc's own target for GPUs, which makes the prebuilt PTX
    Rustc,
    /// Rust-CUDA's backend of rustc, of a checkout
    RustCuda,
}

/// A kind of GPU that PTX is built for; newer ones run it too.
#[derive(Debug)]
pub struct Target {
    /// As rustc and ptxas call it.
    name: &'static str,
    /// The PTX version: 8.2 has the doorbell's store, 8.6 the one-sided fences of sm_90.
    isa: &'static str,
    /// Whether the test suite is built for it too; newer GPUs run that one.
    suite: bool,
    /// Whether it has fences that only release or only acquire.
    one_sided_fences: bool,
    /// Whether libNVVM takes the bitcode of Rust-CUDA's LLVM for it.
    nvvm: bool,
}

const TARGETS: [Target; 3] = [
    Target {
        name: "sm_80",
        isa: "ptx82",
        suite: false,
        one_sided_fences: false,
        nvvm: false,
    },
    Target {
        name: "sm_90",
        isa: "ptx86",
        suite: true,
        one_sided_fences: true,
        nvvm: false,
    },
    Target {
        name: "sm_100",
        isa: "ptx86",
        suite: false,
        one_sided_fences: true,
        nvvm: true,
    },
];

/// The names of all targets.
pub fn target_names() -> Vec<&'static str> {
    TARGETS.iter().map(|target| target.name).collect()
}

/// The targets of these names, or all where there are none.
pub fn targets(names: &[String]) -> Vec<&'static Target> {
    let chosen =
        |target: &&Target| names.is_empty() || names.iter().any(|name| name == target.name);
    TARGETS.iter().filter(chosen).collect()
}

/// The modules, the one that takes longest first. What only tests, the software NIC or the papers' applications need
/// would slow down every load of the others.
const MODULES: [&str; 4] = ["suite", "soft_nic", "kernels", "papers"];

/// The file with the hash of what ptxas has assembled, and of what it said.
const ASSEMBLED: &str = "assembled.sha256";

/// The path of the kernel that an entry's name stands for (`warpbell::Symbol`): without the number for its parameters.
fn path_of(symbol: &str) -> String {
    let path = symbol.strip_prefix("warpbell$").unwrap_or(symbol);
    let path = path.rsplit_once('$').map_or(path, |(path, _layout)| path);
    path.replace('$', "::")
}

/// What the kernel is called in its source, and in the record.
fn plain(symbol: &str) -> &str {
    symbol.rsplit('$').nth(1).unwrap_or(symbol)
}

/// The module that a kernel belongs to.
fn module_of(kernel: &str) -> &'static str {
    match plain(kernel) {
        "soft_nic" => "soft_nic",
        name if name.starts_with("suite_") => "suite",
        _ if path_of(kernel).starts_with("warpbell_paper_kernels::") => "papers",
        _ => "kernels",
    }
}

/// Kernels that may use local memory, and why. All others post or poll, where it would cost.
const LOCAL_MEMORY_ALLOWED: [(&str, &[&str]); 6] = [
    ("it neither posts nor polls", &["soft_nic", "suite_trouble"]),
    (
        "a test, which keeps tickets or messages on their way at hand",
        &["suite_active_ask", "suite_requests"],
    ),
    (
        "a test, which holds its mode and dispatches on it",
        &[
            "suite_flood",
            "suite_gaspi_calls",
            "suite_gaspi_storm",
            "suite_receive",
        ],
    ),
    (
        "a test, which holds its scope and dispatches on it",
        &["suite_active_serve", "suite_common_flood", "suite_inbound"],
    ),
    (
        "a test, which makes the halves of a call apart",
        &[
            "suite_experts",
            "suite_experts_packed",
            "suite_team_grid_all_reduce_doubling",
            "suite_team_grid_all_reduce_ring",
            "suite_team_grid_reduce_scatter_ring",
        ],
    ),
    (
        "a test, which fills its tables of counts in front of each call",
        &["suite_team_grid_all_to_all_v"],
    ),
];

/// Why PTX could not be built or compared; what is wrong with it is a [`Built::problems`].
#[derive(Debug, Error)]
pub enum PtxError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("the kernels do not compile:\n{output}")]
    Build { output: String },
    #[error("{}: {lacks}; check out revision {tried}, and give its folder with --source", folder.display())]
    NoCheckout {
        folder: PathBuf,
        lacks: String,
        tried: String,
    },
    #[error("Rust-CUDA's backend does not build:\n{output}")]
    Backend { output: String },
    #[error("{tool} refuses the kernels:\n{output}")]
    Llvm { tool: &'static str, output: String },
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
    /// Not compressed, whatever the name.
    text: String,
    /// Whether it is the committed one.
    is_committed: bool,
}

impl File {
    fn new(root: &Path, name: String, text: String) -> Result<Self, PtxError> {
        let is_committed = committed(root, &name)?.is_some_and(|one| one == text.as_bytes());
        Ok(Self {
            name,
            text,
            is_committed,
        })
    }
}

/// What was built: the files to commit, the costs, and what is wrong.
pub struct Built {
    files: Vec<File>,
    record: Record,
    problems: Vec<String>,
    root: PathBuf,
}

/// Compiles the kernels for every target. Only modules whose text is not the committed one are assembled, while the record
/// holds: it has what ptxas said of the others.
pub fn build(workspace: &Workspace, spinner: &ProgressBar) -> Result<Built, PtxError> {
    let ptxas = &tools::ptxas(workspace);
    let root = workspace.root.join("ptx");
    let recorded = &record_that_holds(&root)?;
    let toolchain = Toolchain::find(workspace)?;
    let library = build::compile(workspace, &toolchain, |line| {
        spinner.set_message(line.trim().to_owned());
    })?;
    spinner.set_message("optimising");
    let compiled = Kernels::optimised(&toolchain, &library, workspace.target.join("ptx"))?;
    spinner.set_message("generating and assembling PTX");
    let parts = run::beside_each_other(&Vec::from_iter(wanted()), |(module, target)| {
        part(workspace, &compiled, module, target, ptxas, recorded)
    })?;
    let (mut files, mut kernels, mut costs) = (Vec::new(), Vec::new(), Vec::new());
    for mut part in parts {
        files.push(part.file);
        kernels.append(&mut part.kernels);
        costs.append(&mut part.costs);
    }
    let (record, problems) = judged(costs, &[]);
    let modules = files.iter().map(|file| (&*file.name, file.text.as_bytes()));
    let assembled = hash_of_assembled(modules, &record.to_string());
    files.push(File::new(&root, ASSEMBLED.into(), assembled)?);
    kernels.sort();
    kernels.dedup();
    files.push(File::new(&root, "kernels.txt".into(), kernels.concat())?);
    files.push(hash_of_sources(workspace)?);
    Ok(Built {
        files,
        record,
        problems,
        root,
    })
}

/// The modules, with the targets that each is built for.
fn wanted() -> impl Iterator<Item = (&'static str, &'static Target)> {
    MODULES.into_iter().flat_map(|module| {
        let targets = TARGETS.iter();
        let targets = targets.filter(move |target| target.suite || module != "suite");
        targets.map(move |target| (module, target))
    })
}

/// The committed record if it is what ptxas said of the committed modules, otherwise an empty one. It is if the committed
/// hash is theirs: that is written only with modules that were assembled.
fn record_that_holds(root: &Path) -> Result<Record, PtxError> {
    let record = committed_record(root)?;
    let mut modules = Vec::new();
    for (module, target) in wanted() {
        let name = file_of(module, target);
        let text = committed(root, &name)?.unwrap_or_default();
        modules.push((name, text));
    }
    let modules = modules.iter().map(|(name, text)| (&**name, &**text));
    let hash = hash_of_assembled(modules, &record.to_string());
    let holds = committed(root, ASSEMBLED)?.is_some_and(|one| one == hash.as_bytes());
    Ok(if holds { record } else { Record::default() })
}

/// The text of [`ASSEMBLED`].
fn hash_of_assembled<'a>(
    modules: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    record: &str,
) -> String {
    let hash = assemble::hash(tools::PTXAS_VERSION, modules, record);
    format!("{hash}\n")
}

/// The record of all costs, and what is wrong with the kernels; `known` may use local memory, too.
fn judged(all: Vec<KernelCosts>, known: &[&str]) -> (Record, Vec<String>) {
    let mut record = Record::default();
    let mut problems = Vec::new();
    for (target, symbol, costs) in all {
        let kernel = plain(&symbol);
        let mut lists = LOCAL_MEMORY_ALLOWED.iter();
        let allowed =
            known.contains(&kernel) || lists.any(|(_why, kernels)| kernels.contains(&kernel));
        if costs.uses_local_memory() && !allowed {
            problems.push(format!(
                "{kernel} on {target} uses local memory: {} bytes of stack, {} spilt, {} accesses",
                costs.resources.stack, costs.resources.spills, costs.counts.local
            ));
        }
        if costs.counts.ors > 0 {
            problems.push(format!(
                "{kernel} on {target} has {} loads that write: load words with `WordExt`, not with core's atomics",
                costs.counts.ors
            ));
        }
        if !record.insert(kernel, target, &costs) {
            problems.push(format!(
                "two kernels are called {kernel}: the record has one"
            ));
        }
    }
    (record, problems)
}

/// The file that says what the PTX was made of.
fn hash_of_sources(workspace: &Workspace) -> Result<File, PtxError> {
    let flags = format!("{TARGETS:?} {:?}", build::FLAGS);
    let hash = sources::hash(&workspace.root, tools::nightly_name(), &flags)?;
    let root = workspace.root.join("ptx");
    File::new(&root, "sources.sha256".into(), format!("{hash}\n"))
}

/// Whether the committed PTX was made of other sources, or with other tools.
pub fn sources_changed(workspace: &Workspace) -> Result<bool, PtxError> {
    Ok(!hash_of_sources(workspace)?.is_committed)
}

/// What comes of the kernels of a module for one target.
struct Part {
    file: File,
    /// The lines of the list of kernels.
    kernels: Vec<String>,
    costs: Vec<KernelCosts>,
}

/// The costs of a kernel on a target.
type KernelCosts = (&'static str, String, Costs);

/// Lowers the kernels of a module for a target, and takes the costs of each.
fn part(
    workspace: &Workspace,
    compiled: &Kernels<'_>,
    module: &str,
    target: &Target,
    ptxas: &Path,
    recorded: &Record,
) -> Result<Part, PtxError> {
    let kernels = compiled.names().filter(|name| module_of(name) == module);
    let kernels = Vec::from_iter(kernels);
    let name = format!("{module}.{}", target.name);
    let lowered = compiled.lower(&name, &kernels, target)?;
    // Behind an address that is taken there are functions that nothing reaches without it.
    let text = text::without_function_addresses(&lowered);
    let text = Module::parse(&text).with_entries(&kernels);
    let path = workspace.target.join(format!("ptx/{name}.ptx"));
    fs::write(&path, &text)?;
    let root = workspace.root.join("ptx");
    let file = File::new(&root, file_of(module, target), text)?;
    let recorded = file.is_committed.then_some(recorded);
    let costs = costs(ptxas, target, name, &path, &file.text, recorded)?;
    let lines = kernels
        .iter()
        .map(|kernel| format!("{module} {}\n", path_of(kernel)));
    Ok(Part {
        kernels: lines.collect(),
        file,
        costs,
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
        let resources = entries.map(|kernel| {
            Some((
                kernel.to_owned(),
                record.resources(plain(kernel), target.name)?,
            ))
        });
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
    pub fn outdated(&self) -> Vec<String> {
        let outdated = self.files.iter().filter(|file| !file.is_committed);
        let path = |file: &File| prebuilt(&self.root).join(&file.name);
        outdated
            .map(|file| format!("{} is not what its sources give", path(file).display()))
            .collect()
    }

    /// Replaces the committed files that are not what was built.
    pub fn write(&self) -> Result<(), PtxError> {
        let folder = prebuilt(&self.root);
        fs::create_dir_all(&folder)?;
        let outdated: Vec<&File> = self
            .files
            .iter()
            .filter(|file| !file.is_committed)
            .collect();
        run::beside_each_other(&outdated, |file| {
            let content = compress(&file.name, file.text.as_bytes())?;
            Ok::<_, PtxError>(fs::write(folder.join(&file.name), content)?)
        })?;
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

/// What a file there holds, not compressed; nothing where there is none.
fn committed(root: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    match fs::read(prebuilt(root).join(name)) {
        Ok(content) => decompress(name, content).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The file of a module.
fn file_of(module: &str, target: &Target) -> String {
    format!("{module}.{}.ptx.gz", target.name)
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

/// Whether a file of this name is compressed.
fn is_compressed(name: &str) -> bool {
    name.ends_with(".gz")
}

/// What a file of this name holds for some content.
fn compress(name: &str, content: &[u8]) -> io::Result<Vec<u8>> {
    if !is_compressed(name) {
        return Ok(content.into());
    }
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    encoder.finish()
}

/// The content of a file of this name that holds these bytes.
fn decompress(name: &str, bytes: Vec<u8>) -> io::Result<Vec<u8>> {
    if !is_compressed(name) {
        return Ok(bytes);
    }
    let mut plain = Vec::new();
    GzDecoder::new(&bytes[..]).read_to_end(&mut plain)?;
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_holds_while_its_modules_its_costs_and_their_hash_are_the_committed_ones() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let write = |name: &str, text: &str| {
            let content = compress(name, text.as_bytes()).unwrap();
            fs::write(prebuilt(root).join(name), content).unwrap();
        };
        let record = |registers| {
            let mut record = Record::default();
            let mut costs = Costs::default();
            costs.resources.registers = registers;
            assert!(record.insert("write", "sm_90", &costs));
            record.to_string()
        };
        let holds = || {
            let record = record_that_holds(root).unwrap();
            record.resources("write", "sm_90").is_some()
        };
        fs::create_dir(prebuilt(root)).unwrap();
        let names = Vec::from_iter(wanted().map(|(module, target)| file_of(module, target)));
        names.iter().for_each(|name| write(name, "ret;"));
        fs::write(record_path(root), record(36)).unwrap();
        assert!(!holds(), "there is no hash");

        let modules = names.iter().map(|name| (&**name, "ret;".as_bytes()));
        write(ASSEMBLED, &hash_of_assembled(modules, &record(36)));
        assert!(holds());
        fs::write(record_path(root), record(37)).unwrap();
        assert!(!holds(), "a cost was changed by hand");
        fs::write(record_path(root), record(36)).unwrap();
        write(&names[1], "exit;");
        assert!(!holds(), "a module was changed by hand");
        fs::remove_file(prebuilt(root).join(&names[1])).unwrap();
        assert!(!holds(), "a module is missing");
        write(&names[1], "ret;");
        assert!(holds());
    }

    #[test]
    fn a_kernel_is_known_by_its_name() {
        let symbol = "warpbell$my_kernels$suite$suite_fill$0123456789abcdef";
        assert_eq!(path_of(symbol), "my_kernels::suite::suite_fill");
        assert_eq!((plain(symbol), module_of(symbol)), ("suite_fill", "suite"));
        let symbol = "warpbell$warpbell_paper_kernels$daq$daq_batch$0123456789abcdef";
        assert_eq!((plain(symbol), module_of(symbol)), ("daq_batch", "papers"));
        assert_eq!((path_of("fill").as_str(), plain("fill")), ("fill", "fill"));
    }
}
