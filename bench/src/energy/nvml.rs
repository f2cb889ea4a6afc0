//! Energy of GPUs, by NVIDIA's management library, which is found when it is asked for the first time.

use std::ffi::{CStr, CString, c_char, c_uint, c_ulonglong, c_void};

use libloading::Library;
use warpbell_host_init::Gpu;

use super::Unreadable;

/// NVML's `nvmlDevice_t`.
type Device = *mut c_void;
/// NVML's `nvmlReturn_t`: 0 is success.
type Return = c_uint;

/// The functions of `nvml.h` that are called, and the library that keeps them where they are.
struct Nvml {
    init: unsafe extern "C" fn() -> Return,
    shutdown: unsafe extern "C" fn() -> Return,
    by_address: unsafe extern "C" fn(*const c_char, *mut Device) -> Return,
    energy: unsafe extern "C" fn(Device, *mut c_ulonglong) -> Return,
    words: unsafe extern "C" fn(Return) -> *const c_char,
    /// None where a test has functions of its own.
    _library: Option<Library>,
}

/// GPUs whose energy is counted.
pub(super) struct Boards {
    nvml: Nvml,
    devices: Vec<Device>,
    words: String,
}

impl Nvml {
    fn load(name: &str) -> Result<Self, Unreadable> {
        // SAFETY: loading NVIDIA's library runs its initialisers, and they are made for that.
        let library = unsafe { Library::new(name) }?;
        // SAFETY: the functions of these names have these types in `nvml.h`, but for a number in the place of C's enum,
        // which crosses as such. They are used as long as the library stays.
        unsafe {
            Ok(Self {
                init: *library.get("nvmlInit_v2")?,
                shutdown: *library.get("nvmlShutdown")?,
                by_address: *library.get("nvmlDeviceGetHandleByPciBusId_v2")?,
                energy: *library.get("nvmlDeviceGetTotalEnergyConsumption")?,
                words: *library.get("nvmlErrorString")?,
                _library: Some(library),
            })
        }
    }

    fn check(&self, call: &'static str, answer: Return) -> Result<(), Unreadable> {
        if answer == 0 {
            return Ok(());
        }
        // SAFETY: takes any number, and gives a text that stays as long as the library.
        let words = unsafe { CStr::from_ptr((self.words)(answer)) };
        let words = words.to_string_lossy().into_owned();
        Err(Unreadable::Refused { call, words })
    }
}

impl Boards {
    /// These GPUs.
    ///
    /// # Errors
    /// There is none; no library; what NVML refuses.
    pub fn open(gpus: &[Gpu]) -> Result<Self, Unreadable> {
        if gpus.is_empty() {
            return Err(Unreadable::NoGpu);
        }
        let addresses: Vec<_> = gpus.iter().map(|gpu| gpu.pci_address()).collect();
        Self::with(Nvml::load("libnvidia-ml.so.1")?, &addresses)
    }

    fn with(nvml: Nvml, addresses: &[&str]) -> Result<Self, Unreadable> {
        // SAFETY: may be called at any time; `drop` undoes it.
        nvml.check("nvmlInit", unsafe { (nvml.init)() })?;
        let mut boards = Self {
            nvml,
            devices: Vec::new(),
            words: format!("NVML, {}", addresses.join(", ")),
        };
        for &address in addresses {
            let text = CString::new(address).expect("CUDA's text ends with its only 0");
            let mut device = std::ptr::null_mut();
            // SAFETY: the library is initialised, reads the text, and writes one pointer.
            let answer = unsafe { (boards.nvml.by_address)(text.as_ptr(), &raw mut device) };
            boards.nvml.check("nvmlDeviceGetHandleByPciBusId", answer)?;
            boards.devices.push(device);
        }
        boards.read()?;
        Ok(boards)
    }

    /// In words.
    pub fn words(&self) -> String {
        self.words.clone()
    }

    /// What each counter says, in mJ since the driver was loaded.
    ///
    /// # Errors
    /// What NVML refuses.
    pub fn read(&self) -> Result<Vec<u64>, Unreadable> {
        let read = |&device| {
            let mut energy = 0;
            // SAFETY: the library is initialised and gave this device; it writes one number.
            let answer = unsafe { (self.nvml.energy)(device, &raw mut energy) };
            self.nvml
                .check("nvmlDeviceGetTotalEnergyConsumption", answer)?;
            Ok(energy)
        };
        self.devices.iter().map(read).collect()
    }

    /// Joules from one reading to a later one. The counter has 64 bits, and does not start again.
    pub fn joules(before: &[u64], after: &[u64]) -> f64 {
        let each = before.iter().zip(after);
        let taken = each.map(|(before, after)| after.saturating_sub(*before));
        taken.sum::<u64>() as f64 / 1e3
    }
}

impl Drop for Boards {
    fn drop(&mut self) {
        // SAFETY: `with` has initialised it, and no device is used behind this.
        let _ = unsafe { (self.nvml.shutdown)() };
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        /// Who has initialised the fake and not shut it down, and how often it was read.
        static OPEN: Cell<u32> = const { Cell::new(0) };
        static READ: Cell<u64> = const { Cell::new(0) };
    }

    const NOT_SUPPORTED: Return = 3;
    const NOT_FOUND: Return = 6;

    unsafe extern "C" fn init() -> Return {
        OPEN.set(OPEN.get() + 1);
        0
    }

    unsafe extern "C" fn shutdown() -> Return {
        OPEN.set(OPEN.get() - 1);
        0
    }

    /// Knows two addresses.
    unsafe extern "C" fn by_address(address: *const c_char, device: *mut Device) -> Return {
        // SAFETY: `Boards` gives a text and room for a pointer.
        let (address, device) = unsafe { (CStr::from_ptr(address), &mut *device) };
        *device = match address.to_bytes() {
            b"0000:17:00.0" => std::ptr::without_provenance_mut(1),
            b"0000:27:00.0" => std::ptr::without_provenance_mut(2),
            _ => return NOT_FOUND,
        };
        0
    }

    /// The first GPU takes 1.5 J, and the second one twice as much, from each reading of any to the next one.
    unsafe extern "C" fn energy(device: Device, energy: *mut c_ulonglong) -> Return {
        READ.set(READ.get() + 1);
        // SAFETY: `Boards` gives room for a number.
        unsafe { *energy = 1500 * device.addr() as u64 * READ.get() };
        0
    }

    unsafe extern "C" fn no_energy(_: Device, _: *mut c_ulonglong) -> Return {
        NOT_SUPPORTED
    }

    unsafe extern "C" fn words(answer: Return) -> *const c_char {
        let words = match answer {
            NOT_SUPPORTED => c"Not Supported",
            NOT_FOUND => c"Not Found",
            _ => c"Unknown Error",
        };
        words.as_ptr()
    }

    fn fake() -> Nvml {
        Nvml {
            init,
            shutdown,
            by_address,
            energy,
            words,
            _library: None,
        }
    }

    fn refused(nvml: Nvml, address: &str) -> String {
        let refused = Boards::with(nvml, &[address]);
        let why = refused.err().expect("an error").to_string();
        assert_eq!(OPEN.get(), 0, "shut down all the same");
        why
    }

    #[test]
    fn millijoules_of_all_boards_become_joules() {
        let boards = Boards::with(fake(), &["0000:17:00.0", "0000:27:00.0"]).unwrap();
        assert_eq!(boards.words(), "NVML, 0000:17:00.0, 0000:27:00.0");
        let before = boards.read().unwrap();
        let after = boards.read().unwrap();
        // Two readings later: 3 J of the first, 6 J of the second.
        assert_eq!(Boards::joules(&before, &after), 9.0);
        assert_eq!(OPEN.get(), 1);
        drop(boards);
        assert_eq!(OPEN.get(), 0);
    }

    #[test]
    fn what_nvml_refuses_has_its_words_and_no_library_is_named() {
        let old = Nvml {
            energy: no_energy,
            ..fake()
        };
        assert_eq!(
            refused(old, "0000:17:00.0"),
            "nvmlDeviceGetTotalEnergyConsumption: Not Supported"
        );
        assert_eq!(
            refused(fake(), "0000:99:00.0"),
            "nvmlDeviceGetHandleByPciBusId: Not Found"
        );
        let none = Nvml::load("libnvidia-ml-of-nobody.so.1").err().unwrap();
        let why = none.to_string();
        assert!(why.starts_with("no NVML on this machine: "), "{why}");
        assert!(why.contains("libnvidia-ml-of-nobody.so.1"), "{why}");
    }
}
