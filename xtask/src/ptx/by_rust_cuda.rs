//! The kernels' PTX by Rust-CUDA's compiler, with what must hold of it and what it costs beside rustc's.
//!
//! libNVVM takes the bitcode of this LLVM for the newest GPUs alone. For older ones LLVM's own tools generate code, as
//! they do for rustc.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::llvm::{Kernels, REDUCE_AND_OPTIMISE, Toolchain, exported, list};
use super::record::SideBySide;
use super::rust_cuda::{Checkout, tar};
use super::text::{self, Module};
use super::{MODULES, PtxError, Target, costs, judged, module_of, nvvm};
use crate::run;
use crate::tools;
use crate::workspace::Workspace;

/// What was built.
pub struct Built {
    /// The files with PTX.
    pub files: Vec<PathBuf>,
    /// How long it took from a built backend to these.
    pub took: Duration,
    /// What is wrong with the PTX itself.
    pub problems: Vec<String>,
    record: SideBySide,
    /// Where the files lie.
    folder: PathBuf,
    root: PathBuf,
}

/// The record, below `ptx`, and all files together.
const RECORD: &str = "record-rust-cuda.txt";
const PACK: &str = "rust-cuda.tar.xz";
/// How they are packed: the modules of three targets are much alike, and lie far from each other.
const PACKED: &str = "xz --lzma2=preset=9e,dict=128MiB";

/// The files of LLVM's that both ways start from, in a folder each: the same bitcode, linked and read by the LLVM that
/// goes on with it.
const FOR_LLC: &str = "llc";
const FOR_NVVM: &str = "nvvm";

/// Kernels that use local memory as Rust-CUDA compiles them, and not as rustc does: the first has too few registers on
/// sm_80, the next two, which compute, keep two words of a loop there, and the tests of a team's calls spill some words.
const LOCAL_MEMORY_KNOWN: [&str; 4] = [
    "allreduce_posted",
    "serving_process",
    "serving_server",
    "suite_team_warp_all_reduce_ring",
];

/// How many modules are worked on at a time: a process of one thread each.
const AT_A_TIME: usize = 2;

/// Compiles the kernels with a checkout's compiler for these targets, and assembles them.
pub fn build(
    workspace: &Workspace,
    spinner: &ProgressBar,
    checkout: &Checkout,
    targets: &[&'static Target],
) -> Result<Built, PtxError> {
    let show = |line: &str| spinner.set_message(line.trim().to_owned());
    let backend = checkout.backend(workspace, show)?;
    let started = Instant::now();
    let bitcode = checkout.compile(workspace, &backend, show)?;
    let bitcode: Vec<&Path> = bitcode.iter().map(PathBuf::as_path).collect();
    spinner.set_message("optimising and generating PTX");
    let toolchain = Toolchain::find(workspace)?;
    let debian = Toolchain::at(tools::LLVM_TOOLS);
    let folder = workspace.target.join("rust-cuda");
    let way = |name: &str, tools: &Toolchain| -> Result<Way, PtxError> {
        let folder = folder.join(name);
        fs::create_dir_all(&folder)?;
        let text = convergent(&tools.linked(&bitcode, &folder.join("linked.ll"))?);
        Ok(Way { text, folder })
    };
    let (for_llc, for_nvvm) = (way(FOR_LLC, &toolchain)?, way(FOR_NVVM, &debian)?);
    let miscounted = miscounted(&for_llc.text);
    let lowered = run::so_many_at_a_time(AT_A_TIME, &MODULES, |module| {
        let targets = targets.iter().copied();
        let targets = targets.filter(|target| target.suite || *module != "suite");
        let (newest, older): (Vec<_>, Vec<_>) = targets.partition(|target| target.nvvm);
        let mut lowered = Vec::new();
        if !older.is_empty() {
            let kernels = for_llc.of_module(&toolchain, module)?;
            let names = Vec::from_iter(kernels.names());
            for target in older {
                let name = format!("{module}.{}", target.name);
                let text = kernels.lower(&name, &names, target)?;
                lowered.push(Lowered::new(&folder, target, name, &text)?);
            }
        }
        for target in newest {
            let name = format!("{module}.{}", target.name);
            let text = for_nvvm.by_nvvm(workspace, &debian, module, target)?;
            lowered.push(Lowered::new(&folder, target, name, &text)?);
        }
        Ok::<_, PtxError>(lowered)
    });
    let lowered: Vec<Vec<Lowered>> = lowered.into_iter().collect::<Result<_, _>>()?;
    let lowered = Vec::from_iter(lowered.into_iter().flatten());
    let took = started.elapsed();
    spinner.set_message("assembling PTX");
    let ptxas = tools::ptxas(workspace);
    let costs = run::beside_each_other(&lowered, |ptx| {
        let name = ptx.name.clone();
        costs(&ptxas, ptx.target, name, &ptx.path, &ptx.text, None)
    })?;
    let all = costs.into_iter().flatten().collect();
    let (record, mut problems) = judged(all, &LOCAL_MEMORY_KNOWN);
    problems.extend(miscounted);
    let root = workspace.root.join("ptx");
    let rustc = super::committed_record(&root)?;
    Ok(Built {
        files: lowered.into_iter().map(|ptx| ptx.path).collect(),
        took,
        problems,
        record: SideBySide::new(rustc, record),
        folder,
        root,
    })
}

/// A module's PTX for a target, in its file.
struct Lowered {
    target: &'static Target,
    name: String,
    path: PathBuf,
    text: String,
}

impl Lowered {
    /// Writes the kernels down, with what they need.
    fn new(
        folder: &Path,
        target: &'static Target,
        name: String,
        text: &str,
    ) -> Result<Self, PtxError> {
        let text = text::without_function_addresses(text);
        let module = Module::parse(&text);
        let text = module.with_entries(&module.entries());
        let path = folder.join(format!("{name}.ptx"));
        fs::write(&path, &text)?;
        Ok(Self {
            target,
            name,
            path,
            text,
        })
    }
}

/// Linked bitcode, as text, and where what is made of it lies.
struct Way {
    text: String,
    folder: PathBuf,
}

impl Way {
    /// The kernels of a module, optimised.
    fn of_module<'t>(
        &self,
        toolchain: &'t Toolchain,
        module: &str,
    ) -> Result<Kernels<'t>, PtxError> {
        let text = for_llc(&self.text, module);
        Kernels::of_rust_cuda(toolchain, &text, self.folder.join(module))
    }

    /// The PTX of a module for a target, by libNVVM.
    fn by_nvvm(
        &self,
        workspace: &Workspace,
        toolchain: &Toolchain,
        module: &str,
        target: &Target,
    ) -> Result<String, PtxError> {
        let file = |kind: &str| self.folder.join(format!("{module}.{kind}"));
        let (linked, optimised, ptx) = (file("ll"), file("optimised.ll"), file("ptx"));
        let (text, kept) = for_nvvm(&self.text, module);
        fs::write(&linked, text)?;
        toolchain.run("opt", &self.folder, |opt| {
            opt.arg("-S").arg(format!("--passes={REDUCE_AND_OPTIMISE}"));
            opt.arg(format!("--internalize-public-api-list={kept}"));
            opt.arg(&linked).arg("-o").arg(&optimised);
        })?;
        fs::write(&optimised, not_copied(&fs::read_to_string(&optimised)?))?;
        let library = tools::cuda_folder(workspace).join("nvvm/lib64/libnvvm.so");
        nvvm::compile(&library, &nvvm::gpu_of(target.name), &optimised, &ptx)?;
        Ok(fs::read_to_string(ptx)?)
    }
}

/// The annotation that makes a function a kernel: its own name, and the function's.
fn annotation(line: &str) -> Option<(&str, &str)> {
    let (node, what) = line.split_once(" = !{ptr @")?;
    let function = what.strip_suffix(", !\"kernel\", i32 1}")?;
    node.starts_with('!').then_some((node, function))
}

/// The annotations of a module's kernels.
fn annotated<'t>(text: &'t str, module: &str) -> impl Iterator<Item = (&'t str, &'t str)> {
    let all = text.lines().filter_map(annotation);
    all.filter(move |(_, function)| module_of(function.trim_matches('"')) == module)
}

/// How a call begins that is a fence.
const FENCE: &str = "asm sideeffect \"fence.";

/// The list of all annotations.
const ANNOTATIONS: &str = "!nvvm.annotations = ";

/// The text of a module as LLVM's newer tools want it: its kernels have a calling convention of their own, and the
/// layout of data is the target's.
fn for_llc(text: &str, module: &str) -> String {
    let kernels: HashSet<&str> = annotated(text, module)
        .map(|(_, function)| function)
        .collect();
    let mut changed = String::with_capacity(text.len());
    for line in text.lines() {
        let defined = line.strip_prefix("define void @");
        let name = defined.and_then(|rest| rest.split('(').next());
        match (defined, name) {
            (Some(rest), Some(name)) if kernels.contains(name) => {
                changed.extend(["define ptx_kernel void @", rest]);
            }
            _ if line.starts_with(ANNOTATIONS) || line.starts_with("target datalayout") => continue,
            _ => changed.push_str(line),
        }
        changed.push('\n');
    }
    changed
}

/// A module's text in which each function is convergent, as LLVM wants it of code for GPUs: Rust-CUDA marks none, and a
/// copy of a call to one with a barrier in it parts the threads that are to meet. LLVM takes the mark off again where a
/// function needs it not.
fn convergent(text: &str) -> String {
    let mut marked = String::with_capacity(text.len() + text.len() / 64);
    for line in text.lines() {
        let function = line
            .strip_suffix('{')
            .filter(|_| line.starts_with("define "));
        match function.map(|head| head.rsplit_once(" #").unwrap_or((head.trim_end(), ""))) {
            Some((head, "")) => marked.extend([head, " convergent {"]),
            Some((head, group)) => marked.extend([head, " convergent #", group, "{"]),
            None => marked.push_str(line),
        }
        marked.push('\n');
    }
    marked
}

/// Names the functions of this project that count the bits of a number that is not 32 bits wide. Rust-CUDA stores a
/// count as wide as the number into 32 bits, and LLVM drops the code behind such a store.
fn miscounted(text: &str) -> Vec<String> {
    let mut function = "";
    let mut found = Vec::new();
    for line in text.lines() {
        if let Some((_, head)) = line.split_once('@').filter(|_| line.starts_with("define ")) {
            function = head.split('(').next().unwrap_or(head);
        }
        let counts = ["@llvm.ctpop.", "@llvm.ctlz.", "@llvm.cttz."]
            .iter()
            .filter_map(|name| line.split_once(name))
            .any(|(call, width)| call.contains("call ") && !width.starts_with("i32("));
        if counts && function.contains("warpbell") {
            found.push(format!(
                "{function} counts the bits of a number that is not 32 bits wide, which Rust-CUDA compiles wrongly"
            ));
        }
    }
    found
}

/// The text of a module as libNVVM wants it, and what others find in it by its name: the annotations name these kernels
/// alone, and a version says which form of LLVM's language it is.
fn for_nvvm(text: &str, module: &str) -> (String, String) {
    let (nodes, functions): (Vec<&str>, Vec<&str>) = annotated(text, module).unzip();
    let (_, variables) = exported(text);
    let kernels = functions.iter().map(|function| function.trim_matches('"'));
    let kept = list(kernels.chain(variables.iter().map(String::as_str)));
    let lines = text.lines().map(|line| match line.starts_with(ANNOTATIONS) {
        true => format!(
            "{ANNOTATIONS}!{{{}}}\n!nvvmir.version = !{{!900000000}}\n!900000000 = !{{i32 2, i32 0, i32 3, i32 1}}\n",
            nodes.join(", ")
        ),
        false => format!("{line}\n"),
    });
    (lines.collect(), kept)
}

/// A module's text of which libNVVM makes no copies: no loop is unrolled, and no fence stands twice. LLVM has done what
/// pays; of a loop that posts, libNVVM makes eight times its code.
fn not_copied(text: &str) -> String {
    const LOOP: &str = ", !llvm.loop !900000001";
    let mut changed = String::with_capacity(text.len() + text.len() / 8);
    for line in text.lines() {
        let fence = line
            .split_once("()")
            .filter(|(call, _)| call.contains(FENCE));
        match fence {
            Some((call, rest)) => changed.extend([call, "() noduplicate", rest]),
            // Where a branch closes no loop, the mark says nothing.
            None if line.starts_with("  br ") && !line.contains("!llvm.loop") => {
                changed.extend([line, LOOP]);
            }
            None => changed.push_str(line),
        }
        changed.push('\n');
    }
    changed.push_str("!900000001 = distinct !{!900000001, !900000002}\n");
    changed.push_str("!900000002 = !{!\"llvm.loop.unroll.disable\"}\n");
    changed
}

impl Built {
    /// What has changed in the kernels' costs since they were recorded.
    pub fn changes(&self) -> Result<Vec<String>, PtxError> {
        Ok(SideBySide::read(&self.root.join(RECORD))?.changes(&self.record))
    }

    /// The files that are not what is committed.
    pub fn outdated(&self) -> Result<Vec<String>, PtxError> {
        let committed = self.folder.join("committed");
        if committed.exists() {
            fs::remove_dir_all(&committed)?;
        }
        fs::create_dir_all(&committed)?;
        let pack = self.root.join(PACK);
        if pack.exists() {
            tar(&committed, |tar| {
                tar.arg("-xJf").arg(&pack);
            })?;
        }
        let mut outdated = Vec::new();
        for file in &self.files {
            let name = file.file_name().unwrap_or_default();
            if fs::read(committed.join(name)).ok() != Some(fs::read(file)?) {
                let name = name.display();
                outdated.push(format!("{name} in ptx/{PACK} is not what its sources give"));
            }
        }
        Ok(outdated)
    }

    /// Packs the files, always in the same way.
    pub fn write_pack(&self) -> Result<(), PtxError> {
        let names = self.files.iter().filter_map(|file| file.file_name());
        let mut names = Vec::from_iter(names);
        names.sort();
        tar(&self.folder, |tar| {
            tar.args(["--owner=0", "--group=0", "--numeric-owner", "--mode=644"])
                .args(["--mtime=@0", "-I", PACKED, "-cf"])
                .arg(self.root.join(PACK))
                .args(names);
        })
    }

    /// What each column of the record comes to, as a multiple of rustc's.
    pub fn ratios(&self) -> Vec<(&'static str, f64)> {
        self.record.ratios()
    }

    /// Replaces the record.
    pub fn write_record(&self) -> Result<(), PtxError> {
        Ok(fs::write(self.root.join(RECORD), self.record.to_string())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINKED: &str = "\
target datalayout = \"e-i64:64\"
@WARPBELL_PANIC = global <{ [8 x i8] }> zeroinitializer, align 8
define void @\"warpbell$k$suite$suite_one$01\"([1 x i64] %0) unnamed_addr #0 {
define internal i32 @helper(i32 %0) {
define void @\"warpbell$k$demo$fill$02\"([1 x i64] %0) unnamed_addr #0 {
!nvvm.annotations = !{!0, !1}
!0 = !{ptr @\"warpbell$k$suite$suite_one$01\", !\"kernel\", i32 1}
!1 = !{ptr @\"warpbell$k$demo$fill$02\", !\"kernel\", i32 1}
";

    #[test]
    fn llc_is_told_of_a_modules_kernels_by_their_calling_convention() {
        let text = for_llc(LINKED, "kernels");
        assert!(text.contains("define ptx_kernel void @\"warpbell$k$demo$fill$02\"("));
        assert!(text.contains("define void @\"warpbell$k$suite$suite_one$01\"("));
        assert!(!text.contains("datalayout") && !text.contains(ANNOTATIONS));
    }

    #[test]
    fn nvvm_is_told_of_them_by_annotations() {
        let (text, kept) = for_nvvm(LINKED, "suite");
        assert!(text.contains("!nvvm.annotations = !{!0}\n!nvvmir.version = !{"));
        assert_eq!(kept, "warpbell$k$suite$suite_one$01,WARPBELL_PANIC");
    }

    #[test]
    fn nvvm_is_told_to_copy_neither_loops_nor_fences() {
        let text = "\
  tail call void asm sideeffect \"fence.acquire.sys;\", \"~{memory}\"() #6, !srcloc !86
  %1 = call i32 asm sideeffect \"mov.u32 ${0}, %laneid;\", \"=&r\"() #6
  br label %bb1, !llvm.loop !24
  br i1 %2, label %bb1, label %bb2
!24 = !{!\"llvm.loop.unroll.disable\"}
";
        let expected = "\
  tail call void asm sideeffect \"fence.acquire.sys;\", \"~{memory}\"() noduplicate #6, !srcloc !86
  %1 = call i32 asm sideeffect \"mov.u32 ${0}, %laneid;\", \"=&r\"() #6
  br label %bb1, !llvm.loop !24
  br i1 %2, label %bb1, label %bb2, !llvm.loop !900000001
!24 = !{!\"llvm.loop.unroll.disable\"}
!900000001 = distinct !{!900000001, !900000002}
!900000002 = !{!\"llvm.loop.unroll.disable\"}
";
        assert_eq!(not_copied(text), expected);
    }

    #[test]
    fn counts_of_other_than_32_bits_are_refused() {
        let text = "\
define internal i1 @warpbell_kernels_aligned(ptr %0, i64 %1) {
  %3 = call i64 @llvm.ctpop.i64(i64 %1)
define internal i32 @warpbell_kernels_lanes(i32 %0) {
  %2 = call i32 @llvm.ctpop.i32(i32 %0)
define internal i32 @core_num_ilog(i64 %0) {
  %2 = call i64 @llvm.ctlz.i64(i64 %0, i1 true)
declare i64 @llvm.ctpop.i64(i64)
";
        let found = miscounted(text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("warpbell_kernels_aligned counts the bits"));
    }

    #[test]
    fn every_function_is_convergent() {
        let text = convergent(LINKED);
        assert!(text.contains("([1 x i64] %0) unnamed_addr convergent #0 {\n"));
        assert!(text.contains("@helper(i32 %0) convergent {\n"));
        assert_eq!(text.matches("convergent").count(), 3);
    }
}
