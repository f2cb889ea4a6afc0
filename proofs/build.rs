//! Compiles the C oracles in `c/` against the headers that this machine has.
//!
//! Where an oracle's headers are missing, its cfg stays unset: the tests that need it are then ignored, with the
//! reason. An oracle that does not compile against headers that are there is an error.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

const RDMA_CORE: &str = "/usr/include/infiniband/mlx5dv.h";
/// A program of each package that the tests run, and the cfg that says that it is there.
const PROGRAMS: [(&str, &str); 2] = [
    ("/usr/bin/ibv_rc_pingpong", "ibverbs_utils"),
    ("/usr/bin/ib_write_bw", "perftest"),
];
/// Where Debian installs the headers of its kernels.
const KERNELS: &str = "/usr/src";

fn main() {
    println!("cargo::rustc-check-cfg=cfg(rdma_core_headers)");
    println!("cargo::rustc-check-cfg=cfg(kernel_headers)");
    println!("cargo::rerun-if-changed=c");
    for (program, cfg) in PROGRAMS {
        println!("cargo::rustc-check-cfg=cfg({cfg})");
        println!("cargo::rerun-if-changed={program}");
        if Path::new(program).is_file() {
            println!("cargo::rustc-cfg={cfg}");
        }
    }
    println!("cargo::rerun-if-changed={RDMA_CORE}");
    println!("cargo::rerun-if-changed={KERNELS}");
    if Path::new(RDMA_CORE).is_file() {
        oracle("bounds", &[]);
        oracle("card", &[]);
        oracle("mlx5dv", &[]);
        oracle("refused", &[]);
        oracle("verbs", &[]);
        println!("cargo::rustc-link-lib=ibverbs");
        println!("cargo::rustc-link-lib=mlx5");
        println!("cargo::rustc-cfg=rdma_core_headers");
    }
    if let Some(include) = kernel_include() {
        let kernel: [&OsStr; 5] = [
            "-Ic/shims".as_ref(),
            // Behind the system's headers, so that the C library keeps its own.
            "-idirafter".as_ref(),
            include.as_ref(),
            "-include".as_ref(),
            "c/shims/kernel.h".as_ref(),
        ];
        oracle("kernel", &kernel);
        oracle("prm", &kernel);
        println!("cargo::rustc-cfg=kernel_headers");
    }
}

/// Compiles `c/NAME.c` into the library.
fn oracle(name: &str, flags: &[&OsStr]) {
    let mut build = cc::Build::new();
    // The headers of others are not ours to warn about.
    build
        .std("gnu11")
        .warnings(false)
        .file(format!("c/{name}.c"));
    for flag in flags {
        build.flag(flag);
    }
    build.compile(name);
}

/// The include folder of the newest kernel whose common headers are installed.
fn kernel_include() -> Option<PathBuf> {
    let folders = std::fs::read_dir(KERNELS).ok()?;
    folders
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let version = name
                .strip_prefix("linux-headers-")?
                .strip_suffix("-common")?;
            let numbers: Vec<u64> = version
                .split(['.', '-'])
                .map_while(|number| number.parse().ok())
                .collect();
            let include = entry.path().join("include");
            include
                .join("linux/mlx5/mlx5_ifc.h")
                .is_file()
                .then_some((numbers, include))
        })
        .max()
        .map(|(_, include)| include)
}
