//! ptxas: what each kernel costs once it is assembled.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::sources::add;
use crate::run::{self, RunError};
use crate::workspace::clean_command;

/// How long assembling one module may take.
const DEADLINE: Duration = Duration::from_secs(60 * 60);

/// What ptxas says of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    pub registers: u32,
    /// Bytes of local memory, with that of the functions that it calls.
    pub stack: u32,
    /// Bytes of registers that do not fit.
    pub spills: u32,
}

/// Assembles a module, and gives the resources of each kernel; or what ptxas has against it.
pub fn assemble(
    ptxas: &Path,
    target: &str,
    ptx: &Path,
) -> Result<Result<HashMap<String, Resources>, String>, RunError> {
    let folder = ptx.parent().unwrap_or(Path::new("."));
    let mut command: Command = clean_command(ptxas, folder);
    command
        .arg("-v")
        .arg(format!("-arch={target}"))
        .arg(ptx)
        .arg("-o")
        .arg(ptx.with_extension("cubin"));
    let finished = run::capture(command, DEADLINE, |_| {})?;
    Ok(if finished.success() {
        Ok(resources(&finished.output))
    } else {
        Err(finished.account())
    })
}

/// The hash of what a version of ptxas has assembled, each module's name with its text, and of the record of what it said.
pub fn hash<'a>(
    version: &str,
    modules: impl IntoIterator<Item = (&'a str, &'a [u8])>,
    record: &str,
) -> String {
    let mut hash = Sha256::new();
    add(&mut hash, version.as_bytes());
    for (name, text) in modules {
        add(&mut hash, name.as_bytes());
        add(&mut hash, text);
    }
    add(&mut hash, record.as_bytes());
    format!("{:x}", hash.finalize())
}

/// Reads `ptxas -v`: each entry's own properties, its registers and its whole stack, then the properties of
/// the functions that it calls.
fn resources(output: &str) -> HashMap<String, Resources> {
    let mut all = HashMap::new();
    let mut entry = String::new();
    let number_before = |line: &str, what: &str| {
        let (before, _) = line.split_once(what)?;
        before.split_whitespace().next_back()?.parse::<u32>().ok()
    };
    for line in output.lines() {
        let bytes = |what| number_before(line, what).unwrap_or(0);
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            entry = rest.split('\'').next().unwrap_or_default().into();
        } else if line.contains("bytes stack frame") {
            let known: &mut Resources = all.entry(entry.clone()).or_default();
            known.stack = known.stack.max(bytes(" bytes stack frame"));
            known.spills += bytes(" bytes spill stores") + bytes(" bytes spill loads");
        } else if let Some(registers) = number_before(line, " registers") {
            let known = all.entry(entry.clone()).or_default();
            known.registers = registers;
            known.stack = known.stack.max(bytes(" bytes cumulative stack size"));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_module_or_record_is_another_hash() {
        let one =
            |version, text: &str, record| hash(version, [("kernels", text.as_bytes())], record);
        let first = one("13.5", "ret;", "write 36");
        assert_eq!(first.len(), 64);
        assert_eq!(first, one("13.5", "ret;", "write 36"));
        for other in [
            one("13.6", "ret;", "write 36"),
            one("13.5", "exit;", "write 36"),
            one("13.5", "ret;", "write 37"),
            one("13.5", "ret;w", "rite 36"),
            hash("13.5", [], "write 36"),
        ] {
            assert_ne!(first, other);
        }
    }

    #[test]
    fn reads_what_ptxas_says_of_each_kernel() {
        let output = "\
ptxas info    : 8 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
    16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 48 bytes cumulative stack size
ptxas info    : Function properties for helper
    32 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
";
        let found = resources(output);
        assert_eq!(found.len(), 2);
        let first = Resources {
            registers: 40,
            stack: 48,
            spills: 12,
        };
        let second = Resources {
            registers: 12,
            ..Resources::default()
        };
        assert_eq!((found["first"], found["second"]), (first, second));
    }
}
