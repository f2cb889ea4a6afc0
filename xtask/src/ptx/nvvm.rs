//! libNVVM: from LLVM 19's bitcode to PTX for the newest GPUs.
//!
//! This program calls the library in a process of its own, which has a deadline: given a module that it does not
//! understand, libNVVM may run for ever, or end the process.

use std::ffi::{CString, OsString, c_char, c_int, c_void};
use std::fs;
use std::path::Path;
use std::process::{self, Command, ExitCode};
use std::ptr;
use std::time::Duration;

use libloading::Library;

use super::PtxError;
use crate::run;
use crate::workspace::clean_command;

/// Set where this program is started to call libNVVM.
pub const AS_NVVM: &str = "WARPBELL_XTASK_AS_NVVM";

/// How long one module may take.
const DEADLINE: Duration = Duration::from_secs(20 * 60);

/// Compiles a module for a GPU, called as libNVVM does, such as `compute_100`.
pub fn compile(library: &Path, gpu: &str, module: &Path, ptx: &Path) -> Result<(), PtxError> {
    let folder = ptx.parent().unwrap_or(Path::new("."));
    // This program, and not what stands in its file by now: a test step may have built another.
    let mut command: Command = clean_command(format!("/proc/{}/exe", process::id()), folder);
    command.env(AS_NVVM, "1").arg(library).arg(gpu);
    command.arg(module).arg(ptx);
    let finished = run::capture(command, DEADLINE, |_| {})?;
    match finished.success() {
        true => Ok(()),
        false => Err(PtxError::Llvm {
            tool: "libNVVM",
            output: finished.account(),
        }),
    }
}

/// Does what [`compile`] asks, with its arguments.
pub fn become_compiler(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.collect();
    let [library, gpu, module, ptx] = &arguments[..] else {
        eprintln!("error: {AS_NVVM} is set, but there is nothing to compile");
        return ExitCode::FAILURE;
    };
    let gpu = gpu.to_string_lossy();
    let compiled = fs::read(module)
        .map_err(|error| format!("cannot read the module: {error}"))
        .and_then(|module| ptx_of(Path::new(library), &gpu, &module))
        .and_then(|text| fs::write(ptx, text).map_err(|error| format!("cannot write: {error}")));
    match compiled {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `nvvmProgram`.
type Program = *mut c_void;
/// A function of libNVVM that fills a buffer, or one that gives its length.
type Fill = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Length = unsafe extern "C" fn(Program, *mut usize) -> c_int;

/// The functions of nvvm.h that are called.
struct Nvvm {
    create: unsafe extern "C" fn(*mut Program) -> c_int,
    add: unsafe extern "C" fn(Program, *const u8, usize, *const c_char) -> c_int,
    compile: unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int,
    log_length: Length,
    log: Fill,
    ptx_length: Length,
    ptx: Fill,
}

impl Nvvm {
    /// Takes them from the library.
    fn of(library: &Library) -> Result<Self, libloading::Error> {
        // SAFETY: each has the type that nvvm.h gives it.
        unsafe {
            Ok(Self {
                create: *library.get(b"nvvmCreateProgram\0")?,
                add: *library.get(b"nvvmAddModuleToProgram\0")?,
                compile: *library.get(b"nvvmCompileProgram\0")?,
                log_length: *library.get(b"nvvmGetProgramLogSize\0")?,
                log: *library.get(b"nvvmGetProgramLog\0")?,
                ptx_length: *library.get(b"nvvmGetCompiledResultSize\0")?,
                ptx: *library.get(b"nvvmGetCompiledResult\0")?,
            })
        }
    }
}

/// Calls the library; an error is what it says of the module.
fn ptx_of(library: &Path, gpu: &str, module: &[u8]) -> Result<Vec<u8>, String> {
    let error = |error: libloading::Error| format!("cannot load libNVVM: {error}");
    // SAFETY: it is NVIDIA's library, which does nothing when it is loaded.
    let library = unsafe { Library::new(library) }.map_err(error)?;
    let nvvm = Nvvm::of(&library).map_err(error)?;
    let option = CString::new(format!("-arch={gpu}")).map_err(|_| "a name with a zero in it")?;
    let options = [option.as_ptr()];
    let mut program: Program = ptr::null_mut();
    // SAFETY: pointers to what the functions read and write, for as long as they do; the program is a new one.
    let result = unsafe {
        match (nvvm.create)(&raw mut program) {
            0 => match (nvvm.add)(program, module.as_ptr(), module.len(), c"kernels".as_ptr()) {
                0 => (nvvm.compile)(program, options.len() as c_int, options.as_ptr()),
                failed => failed,
            },
            failed => return Err(format!("nvvmCreateProgram gives {failed}")),
        }
    };
    let text = |length: Length, fill: Fill| {
        let mut bytes = 0;
        // SAFETY: the program is there, and the buffer as long as the library wants it.
        unsafe {
            if length(program, &raw mut bytes) != 0 {
                return Vec::new();
            }
            let mut buffer = vec![0u8; bytes];
            fill(program, buffer.as_mut_ptr().cast());
            // Its end is a zero.
            buffer.pop();
            buffer
        }
    };
    match result {
        0 => Ok(text(nvvm.ptx_length, nvvm.ptx)),
        failed => {
            let said = text(nvvm.log_length, nvvm.log);
            let said = String::from_utf8_lossy(&said);
            Err(format!("libNVVM gives {failed}: {}", said.trim()))
        }
    }
}

/// What libNVVM calls a target.
pub fn gpu_of(target: &str) -> String {
    target.replace("sm_", "compute_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_an_error() {
        let error = ptx_of(Path::new("/nowhere/libnvvm.so"), "compute_100", &[]).unwrap_err();
        assert!(error.starts_with("cannot load libNVVM: "), "{error}");
        assert_eq!(gpu_of("sm_100"), "compute_100");
    }
}
