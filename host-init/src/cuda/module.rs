//! Kernels on a GPU: their PTX, loaded.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_uint, c_void};
use std::fmt;

use warpbell::Symbol;
use warpbell::panic::{self, PanicRecord, PanicTexts};
use warpbell::{Processor, processor};

use super::driver::{check, describe};
use super::gpu::Handle;
use super::sys::{self, CUfunction, CUmodule, CUresult};
use super::{Gpu, GpuError};
use crate::{Error, Launch, Placement, Shared};

/// What a GPU can do, as NVIDIA numbers it: 9.0 is Hopper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    /// The generation.
    pub major: u32,
    /// Its variant.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Kernels in PTX, built for GPUs of one compute capability and all later ones, of which somebody vouches that they are
/// what a host takes them for.
#[derive(Clone, Copy, Debug)]
pub struct Ptx<'p> {
    /// The least that they need.
    capability: ComputeCapability,
    text: &'p str,
}

impl<'p> Ptx<'p> {
    /// PTX that says itself what it was built for (`.target sm_90`).
    ///
    /// # Safety
    /// Every entry that is named like a kernel's ([`warpbell::Symbol`]) was compiled from the source of that kernel,
    /// with the same types of parameters: no `cfg` in them tells host and GPU apart. A launch compares them as far as
    /// the name tells them.
    ///
    /// # Errors
    /// [`GpuError::BadPtx`] if it does not.
    pub unsafe fn from_text(text: &'p str) -> Result<Self, GpuError> {
        let target = text
            .lines()
            .find_map(|line| line.trim().strip_prefix(".target"));
        let digits = target
            .and_then(|target| target.trim().strip_prefix("sm_"))
            .map(|name| {
                let end = name.find(|letter: char| !letter.is_ascii_digit());
                &name[..end.unwrap_or(name.len())]
            });
        let number: Option<u32> = digits.and_then(|digits| digits.parse().ok());
        let number = number.ok_or_else(|| GpuError::BadPtx {
            why: "it is not PTX".into(),
            log: "there is no line .target sm_…".into(),
        })?;
        let (major, minor) = (number / 10, number % 10);
        let capability = ComputeCapability { major, minor };
        Ok(Self { capability, text })
    }
}

/// Kernels that are loaded on a GPU, until the process ends.
pub struct Module {
    gpu: Gpu,
    /// By the names of their entries. All are loaded at once: while a kernel runs, the driver may hold up the loading of another
    /// one until that has ended.
    entries: HashMap<String, LoadedKernel>,
    /// Where a kernel that panics says so, if the module asks for such a place.
    panic: Option<Shared<PanicRecord>>,
    #[cfg(feature = "cust")]
    pub(super) module: Handle<CUmodule>,
}

/// A kernel's entry, ready to be launched.
#[derive(Clone, Copy)]
pub(super) struct LoadedKernel {
    pub entry: Handle<CUfunction>,
    /// Bytes of its parameter.
    parameter: usize,
    /// Most threads of a block that its registers allow.
    pub threads_per_block: u32,
    /// Bytes of local memory of each thread.
    local: usize,
}

/// Registers of a block, on every GPU since Kepler.
const REGISTERS: usize = 65_536;
/// They are given out to warps, in steps of so many a thread.
const REGISTER_STEP: usize = 8;
/// Most registers of a thread.
const MAX_REGISTERS: usize = 255;

/// Registers of a thread, so that a block has so many threads.
const fn registers_of(threads: u32) -> usize {
    let warps = if threads == 0 {
        1
    } else {
        threads.div_ceil(32) as usize
    };
    let registers = REGISTERS / (warps * 32) / REGISTER_STEP * REGISTER_STEP;
    if registers < MAX_REGISTERS {
        registers
    } else {
        MAX_REGISTERS
    }
}

/// Room for what the driver's compiler has to say.
const LOG_BYTES: usize = 4096;

impl Module {
    /// Loads the newest of the PTX that the GPU can run; the driver compiles it.
    ///
    /// # Errors
    /// [`GpuError::TooOld`] if there is none; [`GpuError::BadPtx`] if the driver refuses it;
    /// [`GpuError::NoPinnedMemory`].
    pub fn load(gpu: Gpu, variants: &[Ptx<'_>]) -> Result<Self, Error> {
        Self::compile(gpu, variants, None)
    }

    /// The same for blocks of so many threads: each gets no more registers than such a block can have,
    /// where the driver would otherwise give it as many as it likes and refuse to launch the block.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_for_blocks(
        gpu: Gpu,
        variants: &[Ptx<'_>],
        threads_per_block: u32,
    ) -> Result<Self, Error> {
        Self::compile(gpu, variants, Some(threads_per_block))
    }

    fn compile(
        gpu: Gpu,
        variants: &[Ptx<'_>],
        threads_per_block: Option<u32>,
    ) -> Result<Self, Error> {
        let ptx = choose(gpu.name(), gpu.compute_capability(), variants)?;
        let text = CString::new(ptx.text).map_err(|_| GpuError::BadPtx {
            why: "it is not text".into(),
            log: "a byte is 0".into(),
        })?;
        gpu.enter()?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = vec![
            sys::CU_JIT_ERROR_LOG_BUFFER,
            sys::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
        ];
        // A number where the driver's interface has a pointer.
        let number = std::ptr::without_provenance_mut::<c_void>;
        let mut values = vec![log.as_mut_ptr().cast(), number(LOG_BYTES)];
        if let Some(threads) = threads_per_block {
            options.push(sys::CU_JIT_MAX_REGISTERS);
            values.push(number(registers_of(threads)));
        }
        let mut module = std::ptr::null_mut();
        // SAFETY: the text ends with 0, the log has the size that the options say, and both outlive the call.
        let result = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut module,
                text.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if result != CUresult::CUDA_SUCCESS {
            return Err(Error::Gpu(GpuError::BadPtx {
                why: describe(result),
                log: first_line(&log),
            }));
        }
        Self::of(gpu, module)
    }

    /// Makes a loaded module's kernels ready; the GPU is current.
    pub(super) fn of(gpu: Gpu, module: CUmodule) -> Result<Self, Error> {
        let entries = load_all(module)?;
        reserve_local_memory(&entries)?;
        tell_processor(gpu, module)?;
        Ok(Self {
            gpu,
            entries,
            panic: panic_record(gpu, module)?,
            #[cfg(feature = "cust")]
            module: Handle(module),
        })
    }

    /// The GPU that they are loaded on.
    pub fn gpu(&self) -> Gpu {
        self.gpu
    }

    /// A launch's kernel, whose parameters are as the host has them: by their number in the entry's name, and by their
    /// bytes. That it has one parameter, [`Launch`] sees to.
    pub(super) fn kernel(&self, launch: &Launch<'_>) -> Result<LoadedKernel, GpuError> {
        let name = launch.name();
        let Some(kernel) = self.entries.get(launch.entry()) else {
            return Err(self.missing(launch.symbol()));
        };
        let (wanted, given) = (kernel.parameter, launch.parameters().1);
        match wanted == given {
            true => Ok(*kernel),
            false => Err(GpuError::OtherParameters {
                name,
                wanted,
                given,
            }),
        }
    }

    /// Why there is no such entry: the kernel is there with other parameters, or is not.
    fn missing(&self, symbol: Symbol) -> GpuError {
        let name = symbol.path().into();
        let stem = symbol.stem().to_string();
        let is_other = |entry: &String| {
            let layout = entry.strip_prefix(&stem);
            layout.is_some_and(|layout| !layout.is_empty() && !layout.contains('$'))
        };
        match symbol {
            Symbol::Kernel { .. } if self.entries.keys().any(is_other) => {
                GpuError::OtherTypes { name }
            }
            _ => GpuError::NoSuchKernel { name },
        }
    }

    /// Which thread of a kernel panicked, where and why, if one did.
    pub(super) fn panic_message(&self) -> Option<String> {
        let mut texts = PanicTexts::default();
        let panic = self.panic.as_ref()?.read(&mut texts)?;
        Some(panic.to_string())
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // The module stays loaded, and may write there.
        std::mem::forget(self.panic.take());
    }
}

/// Tells a module that asks for it on which GPU it is loaded.
fn tell_processor(gpu: Gpu, module: CUmodule) -> Result<(), Error> {
    let number = u64::from(Processor::gpu(gpu.ordinal()).number());
    if let Some(address) = variable(module, processor::SYMBOL)? {
        // SAFETY: the variable is as long as the number.
        unsafe { gpu.write(address, &number.to_ne_bytes())? };
    }
    Ok(())
}

/// The address of a module's variable of 8 bytes, if the module has it.
///
/// # Errors
/// [`GpuError::OtherVariable`] if it is longer or shorter.
fn variable(module: CUmodule, name: &'static str) -> Result<Option<u64>, GpuError> {
    let symbol = CString::new(name).expect("a name");
    let (mut address, mut found) = (0, 0);
    // SAFETY: the driver writes an address and a length; the module is loaded.
    let result = unsafe {
        sys::cuModuleGetGlobal_v2(&raw mut address, &raw mut found, module, symbol.as_ptr())
    };
    let expected = size_of::<u64>();
    match result {
        CUresult::CUDA_SUCCESS if found == expected => Ok(Some(address)),
        CUresult::CUDA_SUCCESS => Err(GpuError::OtherVariable {
            name,
            found,
            expected,
        }),
        _ => Ok(None),
    }
}

/// Gives a module that asks for it a place for its panics.
fn panic_record(gpu: Gpu, module: CUmodule) -> Result<Option<Shared<PanicRecord>>, Error> {
    let Some(address) = variable(module, panic::SYMBOL)? else {
        return Ok(None);
    };
    let record = Shared::new(Placement::Pinned(gpu), PanicRecord::new())?;
    let record_address = &raw const *record as u64;
    // SAFETY: the variable is as long as the address that it takes.
    unsafe { gpu.write(address, &record_address.to_ne_bytes())? };
    Ok(Some(record))
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("gpu", &self.gpu)
            .finish_non_exhaustive()
    }
}

/// The newest PTX that a GPU can run.
fn choose<'p>(
    gpu: &str,
    has: ComputeCapability,
    variants: &[Ptx<'p>],
) -> Result<Ptx<'p>, GpuError> {
    let able = variants.iter().filter(|ptx| ptx.capability <= has);
    let oldest = variants.iter().map(|ptx| ptx.capability).min();
    able.max_by_key(|ptx| ptx.capability)
        .copied()
        .ok_or_else(|| GpuError::TooOld {
            gpu: gpu.into(),
            has,
            oldest: oldest.unwrap_or(has),
        })
}

/// Loads all kernels of a module.
pub(super) fn load_all(module: CUmodule) -> Result<HashMap<String, LoadedKernel>, GpuError> {
    let mut count = 0;
    // SAFETY: the driver writes one number; the module is loaded.
    check("cuModuleGetFunctionCount", unsafe {
        sys::cuModuleGetFunctionCount(&raw mut count, module)
    })?;
    let mut functions = vec![std::ptr::null_mut(); count as usize];
    // SAFETY: the driver writes at most `count` pointers.
    check("cuModuleEnumerateFunctions", unsafe {
        sys::cuModuleEnumerateFunctions(functions.as_mut_ptr(), count, module)
    })?;
    functions.into_iter().map(load).collect()
}

/// Loads a kernel, and gives its name.
fn load(function: CUfunction) -> Result<(String, LoadedKernel), GpuError> {
    let mut name = std::ptr::null();
    // SAFETY: the driver writes one pointer, to a text that lives as long as the module.
    check("cuFuncGetName", unsafe {
        sys::cuFuncGetName(&raw mut name, function)
    })?;
    // SAFETY: as above.
    let name = unsafe { CStr::from_ptr(name) };
    // SAFETY: the function is the module's.
    check("cuFuncLoad", unsafe { sys::cuFuncLoad(function) })?;
    let attribute = |attribute| {
        let mut value = 0;
        // SAFETY: the driver writes one number; the function is the module's.
        let result = unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, function) };
        check("cuFuncGetAttribute", result).map(|()| value as u32)
    };
    let (mut offset, mut parameter) = (0, 0);
    // SAFETY: the driver writes two numbers; a kernel without parameters leaves both at 0.
    let _ = unsafe { sys::cuFuncGetParamInfo(function, 0, &raw mut offset, &raw mut parameter) };
    let kernel = LoadedKernel {
        entry: Handle(function),
        parameter,
        threads_per_block: attribute(sys::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
        local: attribute(sys::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)? as usize,
    };
    Ok((name.to_string_lossy().into_owned(), kernel))
}

/// Lets the driver set aside as much local memory as these kernels need. It would do so when they are
/// launched, and wait until no kernel runs: for ever, behind one that waits for them.
pub(super) fn reserve_local_memory(
    kernels: &HashMap<String, LoadedKernel>,
) -> Result<(), GpuError> {
    /// What the driver adds of its own, with room to spare.
    const MARGIN: usize = 1024;
    let most = kernels.values().map(|kernel| kernel.local).max();
    let wanted = most.unwrap_or(0) + MARGIN;
    let mut has = 0;
    // SAFETY: the driver writes one number.
    check("cuCtxGetLimit", unsafe {
        sys::cuCtxGetLimit(&raw mut has, sys::CU_LIMIT_STACK_SIZE)
    })?;
    if has >= wanted {
        return Ok(());
    }
    // SAFETY: only a number is passed.
    check("cuCtxSetLimit", unsafe {
        sys::cuCtxSetLimit(sys::CU_LIMIT_STACK_SIZE, wanted)
    })
}

fn first_line(log: &[u8]) -> String {
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(text);
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or("it does not say why").trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn capability(major: u32, minor: u32) -> ComputeCapability {
        ComputeCapability { major, minor }
    }

    fn ptx(major: u32, minor: u32) -> Ptx<'static> {
        Ptx {
            capability: capability(major, minor),
            text: "",
        }
    }

    #[test]
    fn the_newest_that_the_gpu_can_run_is_chosen() {
        let variants = [ptx(9, 0), ptx(8, 0), ptx(10, 0)];
        for (has, wanted) in [
            ((8, 0), (8, 0)),
            ((8, 9), (8, 0)),
            ((9, 0), (9, 0)),
            ((12, 0), (10, 0)),
        ] {
            let chosen = choose("GPU", capability(has.0, has.1), &variants).unwrap();
            assert_eq!(chosen.capability, capability(wanted.0, wanted.1));
        }
    }

    #[test]
    fn a_gpu_older_than_all_of_them_is_named() {
        let error = choose("Tesla T4", capability(7, 5), &[ptx(9, 0), ptx(8, 0)]).unwrap_err();
        let (has, oldest) = (capability(7, 5), capability(8, 0));
        let gpu = "Tesla T4".into();
        assert_eq!(error, GpuError::TooOld { gpu, has, oldest });
        assert!(
            error
                .to_string()
                .contains("capability 7.5, the kernels need 8.0")
        );
    }

    #[test]
    fn ptx_says_what_it_was_built_for() {
        for (line, wanted) in [
            (".target sm_90", (9, 0)),
            ("  .target sm_90a, debug", (9, 0)),
            (".target sm_100", (10, 0)),
            (".target sm_121", (12, 1)),
        ] {
            let text = format!("//\n.version 8.6\n{line}\n.address_size 64\n");
            // SAFETY: nobody loads it.
            let found = unsafe { Ptx::from_text(&text) }.unwrap().capability;
            assert_eq!(found, capability(wanted.0, wanted.1), "{line}");
        }
        for text in ["", ".target", ".target sm_", ".target gfx90a", "ELF"] {
            // SAFETY: as above.
            let refused = unsafe { Ptx::from_text(text) };
            assert!(matches!(refused, Err(GpuError::BadPtx { .. })), "{text}");
        }
    }

    #[test]
    fn a_block_has_as_many_registers_as_its_threads_may_use() {
        for (threads, wanted) in [
            (1, 255),
            (256, 255),
            (257, 224),
            (512, 128),
            (1000, 64),
            (1024, 64),
        ] {
            assert_eq!(registers_of(threads), wanted, "{threads}");
        }
    }

    #[test]
    fn the_first_line_of_a_log_says_why() {
        assert_eq!(first_line(b"\n  ptxas: fatal\nmore\0\0"), "ptxas: fatal");
        assert_eq!(first_line(b"\0\0"), "it does not say why");
    }
}
