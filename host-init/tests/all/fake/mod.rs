//! A driver that is a fake, and what the tests have in common that run under it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use warpbell_host_init::Gpu;
use warpbell_host_init::cuda::{Module, Ptx, Watch};

/// PTX for the fake GPU.
pub const PTX: &str = ".version 8.6\n.target sm_90\n";
const INSIDE: &str = "FAKE_CUDA";

/// The folder of the fake driver, built once.
pub fn fake_driver() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("fake-cuda-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o"])
            .arg(folder.join("libcuda.so.1"))
            .arg(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../host-init/tests/fake_cuda.c"
            ))
            .status();
        assert!(built.unwrap().success(), "the fake driver is built");
        folder
    };
    BUILT.get_or_init(build).clone()
}

/// Runs `body` under the fake driver, to which `what` happens; in a process of its own, because a driver is
/// loaded once. `name` is the path of the test that calls this.
pub fn with_fake(name: &str, what: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let folder = fake_driver();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("LD_LIBRARY_PATH", OsString::from(folder))
        .env(INSIDE, what)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} with {what}: {said}");
    let result = String::from_utf8_lossy(&output.stdout);
    assert!(result.contains(" 1 passed;"), "no test is called {name}");
}

/// The fake GPU's kernels.
pub fn module() -> Module {
    Module::load(Gpu::open(0).unwrap(), &[ptx(PTX)]).unwrap()
}

/// PTX for the fake driver.
pub fn ptx(text: &str) -> Ptx<'_> {
    // SAFETY: whatever it says, the fake driver runs nothing but its own kernel.
    unsafe { Ptx::from_text(text) }.unwrap()
}

/// A short one.
pub fn watch() -> Watch<'static> {
    Watch {
        limit: Duration::from_millis(50),
        asleep: false,
        queue_pairs: &[],
    }
}
