//! What CUDA says of its GPUs, asked in a process of its own: a driver that hangs or crashes takes only that
//! process with it.
//!
//! The process is this program, started with [`ASK`] in its environment. It loads `libcuda.so.1`, makes no
//! context, and prints an [`Answer`] as JSON.

use std::ffi::{CStr, c_char, c_int};
use std::process::ExitCode;
use std::time::Duration;

use libloading::{Library, Symbol};

use super::pci::Address;
use super::system::{ProgramError, System};

/// Set where this program is to ask CUDA.
pub const ASK: &str = "WARPBELL_DOCTOR_ASK_CUDA";

/// How long CUDA may take; it wakes every GPU of the machine up.
const DEADLINE: Duration = Duration::from_secs(40);

const LIBRARY: &str = "libcuda.so.1";

/// Numbers of `CUdevice_attribute` in cuda.h.
const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
const GPU_DIRECT_RDMA_SUPPORTED: c_int = 116;
const GPU_DIRECT_RDMA_WRITES_ORDERING: c_int = 118;
const DMA_BUF_SUPPORTED: c_int = 124;

/// What CUDA answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Its library cannot be loaded, and why.
    NoLibrary(String),
    /// A call returned this `CUresult`.
    Refused {
        call: String,
        result: i32,
    },
    Gpus(Gpus),
}

/// The GPUs that CUDA has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpus {
    /// The newest CUDA that the driver knows: 1000 × major + 10 × minor.
    pub version: i32,
    pub gpus: Vec<Gpu>,
}

/// A GPU as CUDA sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    pub address: Address,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Bytes of its memory.
    pub memory: u64,
    /// Whether its memory can be given away as a dmabuf.
    pub dmabuf: bool,
    /// Whether its memory can be registered with a NIC at all.
    pub gpu_direct_rdma: bool,
    /// Who sees a NIC's writes into its memory in their order: nobody below 100, its own kernels below 200, else all.
    pub writes_ordering: i32,
}

/// Asks CUDA from a process of its own.
pub fn ask(system: &System) -> Result<Answer, ProgramError> {
    let text = system.run_cuda(DEADLINE)?;
    Answer::from_json(&text).ok_or_else(|| ProgramError::NotText("CUDA".into()))
}

/// Asks CUDA in this process, and prints the answer.
pub fn answer() -> ExitCode {
    match serde_json::to_string(&enumerate()) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

fn enumerate() -> Answer {
    // SAFETY: loading NVIDIA's driver library runs its initialisers, which are made for that.
    let library = match unsafe { Library::new(LIBRARY) } {
        Ok(library) => library,
        Err(error) => return Answer::NoLibrary(error.to_string()),
    };
    let driver = match Driver::load(&library) {
        Ok(driver) => driver,
        Err(error) => return Answer::NoLibrary(error.to_string()),
    };
    match driver.gpus() {
        Ok(gpus) => Answer::Gpus(gpus),
        Err((call, result)) => Answer::Refused {
            call: call.into(),
            result,
        },
    }
}

/// A call that failed, and its `CUresult`.
type Refusal = (&'static str, c_int);

type Init = unsafe extern "C" fn(flags: u32) -> c_int;
type GetNumber = unsafe extern "C" fn(number: *mut c_int) -> c_int;
type GetDevice = unsafe extern "C" fn(device: *mut c_int, ordinal: c_int) -> c_int;
type GetAttribute =
    unsafe extern "C" fn(value: *mut c_int, attribute: c_int, device: c_int) -> c_int;
type GetMemory = unsafe extern "C" fn(bytes: *mut usize, device: c_int) -> c_int;
type GetBusId = unsafe extern "C" fn(text: *mut c_char, size: c_int, device: c_int) -> c_int;

/// The calls of the driver API that are used here.
struct Driver<'a> {
    init: Symbol<'a, Init>,
    version: Symbol<'a, GetNumber>,
    count: Symbol<'a, GetNumber>,
    device: Symbol<'a, GetDevice>,
    attribute: Symbol<'a, GetAttribute>,
    memory: Symbol<'a, GetMemory>,
    bus_id: Symbol<'a, GetBusId>,
}

impl<'a> Driver<'a> {
    fn load(library: &'a Library) -> Result<Self, libloading::Error> {
        // SAFETY: the types are those of cuda.h; these calls have kept them since CUDA 4.1.
        unsafe {
            Ok(Self {
                init: library.get(b"cuInit\0")?,
                version: library.get(b"cuDriverGetVersion\0")?,
                count: library.get(b"cuDeviceGetCount\0")?,
                device: library.get(b"cuDeviceGet\0")?,
                attribute: library.get(b"cuDeviceGetAttribute\0")?,
                memory: library.get(b"cuDeviceTotalMem_v2\0")?,
                bus_id: library.get(b"cuDeviceGetPCIBusId\0")?,
            })
        }
    }

    fn gpus(&self) -> Result<Gpus, Refusal> {
        // SAFETY: cuInit takes 0 and no pointer.
        checked("cuInit", unsafe { (self.init)(0) })?;
        let version = self.number("cuDriverGetVersion", &self.version)?;
        let count = self.number("cuDeviceGetCount", &self.count)?;
        let gpus = (0..count).map(|ordinal| self.gpu(ordinal));
        Ok(Gpus {
            version,
            gpus: gpus.collect::<Result<_, _>>()?,
        })
    }

    fn number(&self, name: &'static str, get: &GetNumber) -> Result<c_int, Refusal> {
        let mut number = 0;
        // SAFETY: the call writes one int.
        checked(name, unsafe { get(&mut number) })?;
        Ok(number)
    }

    fn gpu(&self, ordinal: c_int) -> Result<Gpu, Refusal> {
        let mut device = 0;
        // SAFETY: the call writes one int.
        checked("cuDeviceGet", unsafe {
            (self.device)(&mut device, ordinal)
        })?;
        let mut memory = 0;
        // SAFETY: the call writes one size_t.
        checked("cuDeviceTotalMem", unsafe {
            (self.memory)(&mut memory, device)
        })?;
        let mut text = [0_u8; 32];
        // SAFETY: the call writes at most as many bytes as the text has.
        let result =
            unsafe { (self.bus_id)(text.as_mut_ptr().cast(), text.len() as c_int, device) };
        checked("cuDeviceGetPCIBusId", result)?;
        let address = CStr::from_bytes_until_nul(&text).ok();
        let address = address.and_then(|text| text.to_str().ok()?.parse().ok());
        Ok(Gpu {
            address: address.ok_or(("cuDeviceGetPCIBusId", 0))?,
            capability: (
                self.attribute(device, CAPABILITY_MAJOR)?,
                self.attribute(device, CAPABILITY_MINOR)?,
            ),
            memory: memory as u64,
            // A driver that does not know the attribute does not do the thing.
            dmabuf: self.attribute(device, DMA_BUF_SUPPORTED) == Ok(1),
            gpu_direct_rdma: self.attribute(device, GPU_DIRECT_RDMA_SUPPORTED) == Ok(1),
            // Nor does it promise the order.
            writes_ordering: self
                .attribute(device, GPU_DIRECT_RDMA_WRITES_ORDERING)
                .unwrap_or(0),
        })
    }

    fn attribute(&self, device: c_int, attribute: c_int) -> Result<c_int, Refusal> {
        let mut value = 0;
        // SAFETY: the call writes one int.
        let result = unsafe { (self.attribute)(&mut value, attribute, device) };
        checked("cuDeviceGetAttribute", result)?;
        Ok(value)
    }
}

fn checked(call: &'static str, result: c_int) -> Result<(), Refusal> {
    match result {
        0 => Ok(()),
        result => Err((call, result)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn an_answer_survives_the_way_between_the_processes() {
        let answer = Answer::Gpus(Gpus {
            version: 13_000,
            gpus: vec![Gpu {
                address: "0000:18:00.0".parse().unwrap(),
                capability: (9, 0),
                memory: 80 << 30,
                dmabuf: true,
                gpu_direct_rdma: true,
                writes_ordering: 200,
            }],
        });
        let tree = Tree::empty();
        let text = serde_json::to_string(&answer).unwrap();
        tree.program(
            "cuda-answer",
            &format!("test -n \"${ASK}\" && echo '{text}'"),
        );
        assert_eq!(ask(&tree.system()), Ok(answer));
    }

    #[test]
    fn nonsense_is_no_answer() {
        let tree = Tree::empty();
        assert!(ask(&tree.system()).is_err());
        for nonsense in [
            "echo '{'",
            "echo '[[[[[['",
            "printf '\\377'",
            "kill -SEGV $$",
        ] {
            tree.program("cuda-answer", nonsense);
            assert!(ask(&tree.system()).is_err(), "{nonsense}");
        }
    }
}
