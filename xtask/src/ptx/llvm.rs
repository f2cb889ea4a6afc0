//! LLVM's tools, as the nightly brings them: from rustc's bitcode to the PTX of a module for a target.
//!
//! What `llvm-bitcode-linker` does for a `cdylib`, cut in two: linking and optimising, which no target changes, and
//! generating code, which is all that is done for each target anew.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{PtxError, Target};
use crate::run;
use crate::tools;
use crate::workspace::{Workspace, clean_command};

/// How long one tool may take.
const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// LLVM's tools: the pinned nightly's, or Debian's of another version.
pub struct Toolchain {
    tools: PathBuf,
    /// The folder that rustc calls its sysroot.
    sysroot: PathBuf,
}

impl Toolchain {
    /// Asks the nightly's rustc where it lies.
    pub fn find(workspace: &Workspace) -> Result<Self, PtxError> {
        let mut rustc = tools::nightly(workspace, "rustc");
        rustc.args(["--print", "target-libdir"]);
        let finished = run::capture(rustc, DEADLINE, |_| {})?;
        if !finished.success() {
            return Err(PtxError::Llvm {
                tool: "rustc",
                output: finished.account(),
            });
        }
        // `lib/rustlib/HOST/lib` below the sysroot; the tools lie beside it.
        let libraries = Path::new(finished.stdout.trim());
        let sysroot = libraries.ancestors().nth(4).unwrap_or(Path::new(""));
        Ok(Self {
            tools: libraries.with_file_name("bin"),
            sysroot: sysroot.into(),
        })
    }

    /// Tools that lie in a folder, with no compiler.
    pub fn at(tools: &str) -> Self {
        Self {
            tools: tools.into(),
            sysroot: PathBuf::new(),
        }
    }

    /// The compiler's folder.
    pub fn sysroot(&self) -> &Path {
        &self.sysroot
    }

    /// Links files of bitcode, and gives the module's text, which lies at `linked`, too.
    pub fn linked(&self, files: &[&Path], linked: &Path) -> Result<String, PtxError> {
        let folder = linked.parent().unwrap_or(Path::new("."));
        self.run("llvm-link", folder, |link| {
            link.arg("--ignore-non-bitcode").arg("-S").args(files);
            link.arg("-o").arg(linked);
        })?;
        Ok(fs::read_to_string(linked)?)
    }

    /// Runs one of LLVM's tools in a folder.
    pub fn run(
        &self,
        tool: &'static str,
        folder: &Path,
        arguments: impl FnOnce(&mut Command),
    ) -> Result<(), PtxError> {
        let mut command = clean_command(self.tools.join(tool), folder);
        arguments(&mut command);
        let finished = run::capture(command, DEADLINE, |_| {})?;
        match finished.success() {
            true => Ok(()),
            false => Err(PtxError::Llvm {
                tool,
                output: finished.account(),
            }),
        }
    }
}

/// What is done to rustc's bitcode, which it has optimised already.
const OPTIMISE: &str = "default<O3>,internalize,globaldce";
/// What is done to bitcode that nobody has optimised.
pub const REDUCE_AND_OPTIMISE: &str = "internalize,globaldce,default<O3>,internalize,globaldce";

/// All kernels, optimised, as bitcode.
pub struct Kernels<'t> {
    toolchain: &'t Toolchain,
    folder: PathBuf,
    bitcode: PathBuf,
    names: BTreeSet<String>,
    /// What the host finds by its name beside the kernels.
    variables: BTreeSet<String>,
    /// What rustc compiled for: all versions of PTX up to the newest, `+ptx70,+ptx71,…`.
    features: String,
}

impl<'t> Kernels<'t> {
    /// Links a static library's members and optimises what comes of it; `folder` takes the files.
    pub fn optimised(
        toolchain: &'t Toolchain,
        library: &Path,
        folder: PathBuf,
    ) -> Result<Self, PtxError> {
        let linked = folder.join("linked.ll");
        let text = toolchain.linked(&[library], &linked)?;
        Self::of(toolchain, &text, OPTIMISE, &linked, folder)
    }

    /// The kernels of Rust-CUDA's linked bitcode that have these names.
    pub fn of_rust_cuda(
        toolchain: &'t Toolchain,
        text: &str,
        folder: PathBuf,
    ) -> Result<Self, PtxError> {
        fs::create_dir_all(&folder)?;
        let linked = folder.join("linked.ll");
        fs::write(&linked, text)?;
        Self::of(toolchain, text, REDUCE_AND_OPTIMISE, &linked, folder)
    }

    /// Optimises the module that lies at `linked` and reads `text`.
    fn of(
        toolchain: &'t Toolchain,
        text: &str,
        passes: &str,
        linked: &Path,
        folder: PathBuf,
    ) -> Result<Self, PtxError> {
        let (names, variables) = exported(text);
        let features = attribute(text, FEATURES).unwrap_or(ALL_FEATURES).to_owned();
        let bitcode = folder.join("optimised.bc");
        let kept = list(names.iter().chain(&variables).map(String::as_str));
        toolchain.run("opt", &folder, |opt| {
            opt.arg(format!("--passes={passes}"));
            opt.arg(format!("--internalize-public-api-list={kept}"));
            opt.arg(linked).arg("-o").arg(&bitcode);
        })?;
        Ok(Self {
            toolchain,
            folder,
            bitcode,
            names,
            variables,
            features,
        })
    }

    /// The kernels' names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// The PTX of some of the kernels for a target; `name` is that of its files.
    pub fn lower(&self, name: &str, kernels: &[&str], target: &Target) -> Result<String, PtxError> {
        let module = self.folder.join(format!("{name}.ll"));
        let variables = self.variables.iter().map(String::as_str);
        let kept = list(kernels.iter().copied().chain(variables));
        self.toolchain.run("opt", &self.folder, |opt| {
            opt.arg("-S").arg("--passes=internalize,globaldce");
            opt.arg(format!("--internalize-public-api-list={kept}"));
            opt.arg(&self.bitcode).arg("-o").arg(&module);
        })?;
        let text = fs::read_to_string(&module)?;
        fs::write(&module, retargeted(&text, &self.features, target))?;
        let ptx = self.folder.join(format!("{name}.llc.ptx"));
        self.toolchain.run("llc", &self.folder, |llc| {
            llc.arg(format!("-mcpu={}", target.name));
            llc.arg(format!("-mattr={}", features(&self.features, target)));
            llc.arg(&module).arg("-o").arg(&ptx);
        })?;
        Ok(fs::read_to_string(ptx)?)
    }
}

/// Names as LLVM's options take them.
pub fn list<'n>(names: impl Iterator<Item = &'n str>) -> String {
    Vec::from_iter(names).join(",")
}

/// A module's text for a target: each function says what it is compiled for, and the code generator believes that more
/// than its own options.
///
/// Where there are no one-sided fences the one that is both takes their place, as the sources have it for such targets.
fn retargeted(text: &str, compiled: &str, target: &Target) -> String {
    let moved = |text: &str, attribute: &str, value: &str| {
        let mut parts = text.split(attribute);
        let mut moved = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let rest = part.split_once('"').map_or("", |(_old, rest)| rest);
            moved.extend([attribute, value, "\"", rest]);
        }
        moved
    };
    let text = moved(text, CPU, target.name);
    let text = moved(&text, FEATURES, &features(compiled, target));
    match target.one_sided_fences {
        true => text,
        false => text
            .replace("\"fence.release.", "\"fence.acq_rel.")
            .replace("\"fence.acquire.", "\"fence.acq_rel."),
    }
}

/// Of the versions of PTX that were compiled for, those that a target has: LLVM asks for each by itself.
fn features(compiled: &str, target: &Target) -> String {
    // As texts, because all have two digits.
    let has = |feature: &&str| feature.trim_start_matches('+') <= target.isa;
    let those: Vec<&str> = compiled.split(',').filter(has).collect();
    those.join(",")
}

/// What kernels are compiled for that say nothing of it.
const ALL_FEATURES: &str = "+ptx82,+ptx86";

/// How the attributes of a function begin.
const CPU: &str = "\"target-cpu\"=\"";
const FEATURES: &str = "\"target-features\"=\"";

/// The first value of an attribute.
fn attribute<'t>(text: &'t str, attribute: &str) -> Option<&'t str> {
    let (_before, value) = text.split_once(attribute)?;
    value.split('"').next()
}

/// How Rust's mangled names begin.
const MANGLED: &str = "_R";

/// The kernels that a module defines, and the variables that others may find in it: those whose names Rust has not
/// mangled.
pub fn exported(text: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let hidden = ["private", "internal", "hidden", "external"];
    let (mut kernels, mut variables) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines() {
        let name_after_at = |rest: &str| {
            let end = |c: char| !(c.is_ascii_alphanumeric() || "_$.".contains(c));
            // Names with a `$` stand in quotes.
            let name = rest.strip_prefix('"').unwrap_or(rest);
            name.split(end).next().unwrap_or_default().to_owned()
        };
        if line.starts_with("define ") && line.contains(" ptx_kernel ") {
            kernels.extend(line.split('@').nth(1).map(name_after_at));
        } else if let Some((name, what)) = line
            .strip_prefix('@')
            .and_then(|rest| rest.split_once(" = "))
            && !what.split(' ').any(|word| hidden.contains(&word))
        {
            variables.insert(name_after_at(name));
        }
    }
    variables.retain(|name| !name.starts_with(MANGLED));
    (kernels, variables)
}

#[cfg(test)]
mod tests {
    use super::super::TARGETS;
    use super::*;

    #[test]
    fn says_what_it_is_compiled_for() {
        let text = "\
  tail call void asm sideeffect \"fence.release.gpu;\", \"~{memory}\"() #1
  tail call void asm sideeffect \"fence.acquire.sys;\", \"~{memory}\"() #1
  tail call void asm sideeffect \"fence.sc.sys;\", \"~{memory}\"() #1
attributes #0 = { nounwind \"target-cpu\"=\"sm_90\" \"target-features\"=\"+ptx78,+ptx82,+ptx83,+ptx86\" }
attributes #1 = { nounwind \"target-cpu\"=\"sm_90\" }
attributes #2 = { nounwind }
";
        let compiled = attribute(text, FEATURES).unwrap();
        let older = text
            .replace("sm_90", "sm_80")
            .replace(",+ptx83,+ptx86", "")
            .replace("release", "acq_rel")
            .replace("acquire", "acq_rel");
        assert_eq!(retargeted(text, compiled, &TARGETS[0]), older);
        assert_eq!(retargeted(text, compiled, &TARGETS[1]), text);
        let newest = text.replace("sm_90", "sm_100");
        assert_eq!(retargeted(text, compiled, &TARGETS[2]), newest);
    }

    #[test]
    fn finds_what_a_module_exports() {
        let text = "\
@PANIC = local_unnamed_addr global [8 x i8] zeroinitializer, align 8, !guid !6
@alloc_1 = private unnamed_addr constant [2 x i8] c\"ab\", align 1
@table = internal constant [1 x i64] zeroinitializer
@inner = hidden global i32 0
@elsewhere = external global i32
@_RNvNtC4core7unicode3MAP = global i32 0
define dso_local ptx_kernel void @write(ptr byval([32 x i8]) align 8 %0) unnamed_addr #1 {
  call void @helper(ptr @PANIC)
define hidden void @memcpy(ptr %0) {
define internal fastcc void @helper(ptr %0) {
declare void @llvm.trap()
define ptx_kernel void @read_2() #1 {
define ptx_kernel void @\"warpbell$crate$fill$0123456789abcdef\"([2 x i64] %0) #1 {
";
        let (kernels, variables) = exported(text);
        let fill = "warpbell$crate$fill$0123456789abcdef";
        assert_eq!(Vec::from_iter(kernels), ["read_2", fill, "write"]);
        assert_eq!(Vec::from_iter(variables), ["PANIC"]);
    }
}
