//! The tools that the steps need: finds each one, or installs it.

pub mod linux;
pub mod unpacked;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::dist::Target;
use crate::installs::{Installs, Missing, ask};
use crate::run::{self, Finished};
use crate::say::say;
use crate::workspace::{Workspace, clean_command};

/// The toolchain of the PTX build, miri and the fuzzer, which stable Rust does not offer; pinned there alone.
const NIGHTLY_FILE: &str = include_str!("../../ptx/module/rust-toolchain.toml");
const CARGO_FUZZ_VERSION: &str = "0.13.2";
const CARGO_MUTANTS_VERSION: &str = "27.1.0";
const MDBOOK_VERSION: &str = "0.5.4";
/// The package of PyPI that the fixed packets of `roce` were built with.
const SCAPY: &str = "scapy==2.8.0";
/// The package of PyPI with the messages of Perfetto's traces.
const PERFETTO: &str = "perfetto==0.59.1";
/// What reads these messages.
const PROTOBUF: &str = "protobuf==6.33.6";
/// The package of PyPI with ptxas, and its version: another one may allot registers in another way. Before
/// 13.5 it assembles instructions that the target has not, without a word.
const PTXAS_PACKAGE: &str = "nvidia-cuda-nvcc";
pub const PTXAS_VERSION: &str = "13.5.37";

/// The packages of PyPI with libNVVM and CUDA's headers, of ptxas' version.
const CUDA_PACKAGES: [&str; 2] = ["nvidia-nvvm", "nvidia-cuda-runtime"];
/// What Rust-CUDA's backend is built with: LLVM 19, libclang with its headers, and what else its build looks for; and what
/// packs the PTX. Where Debian puts them.
const LLVM_PACKAGES: [&str; 8] = [
    "llvm-19-dev",
    LIBCLANG_PACKAGES[0],
    LIBCLANG_PACKAGES[1],
    "libzstd-dev",
    "libssl-dev",
    "pkg-config",
    "g++",
    "xz-utils",
];
pub const LLVM_TOOLS: &str = "/usr/lib/llvm-19/bin";
pub const LLVM_CONFIG: &str = "/usr/lib/llvm-19/bin/llvm-config";
pub const LIBCLANG_FOLDER: &str = "/usr/lib/llvm-19/lib";
const LIBCLANG_FILES: [&str; 2] = [
    "/usr/lib/llvm-19/lib/libclang-19.so.1",
    "/usr/lib/llvm-19/lib/clang/19/include/stddef.h",
];
const LIBCLANG_PACKAGES: [&str; 2] = ["libclang1-19", "libclang-common-19-dev"];
const LLVM_FILES: [&str; 8] = [
    LLVM_CONFIG,
    LIBCLANG_FILES[0],
    LIBCLANG_FILES[1],
    "/usr/include/zstd.h",
    "/usr/include/openssl/ssl.h",
    "/usr/bin/pkg-config",
    "/usr/bin/g++",
    "/usr/bin/xz",
];

const MLX5DV_HEADER: &str = "/usr/include/infiniband/mlx5dv.h";
const IBV_RC_PINGPONG: &str = "/usr/bin/ibv_rc_pingpong";
const IB_WRITE_BW: &str = "/usr/bin/ib_write_bw";
/// Python's libibverbs, and what its tests of commands to the card build these with.
const PYVERBS: [&str; 2] = [
    "/usr/lib/python3/dist-packages/pyverbs",
    "/usr/lib/python3/dist-packages/scapy",
];
/// A program of UCX, and a header.
const UCX_PERFTEST: &str = "/usr/bin/ucx_perftest";
const UCP_HEADER: &str = "/usr/include/ucp/api/ucp.h";
const TSHARK: &str = "/usr/bin/tshark";
const SIMGRID: &str = "/usr/include/simgrid/s4u.hpp";
const SIMGRID_PACKAGE: &str = "libsimgrid-dev";
const IBSTAT: &str = "/usr/sbin/ibstat";
const RDMA: &str = "/usr/bin/rdma";
/// OpenMPI's compiler, and who starts its programs.
const MPICC: &str = "/usr/bin/mpicc";
const MPIRUN: &str = "/usr/bin/mpirun";
const HYDRA: &str = "/usr/bin/mpiexec.hydra";
const TORCHRUN: &str = "/usr/bin/torchrun";
const SSHD: &str = "/usr/sbin/sshd";
const OPENSSH_PACKAGE: &str = "openssh-server";
/// What runs Slurm's jobs on one machine: its daemons, its commands, and who tells its users apart. Where Debian puts them.
const SLURM_PACKAGES: [&str; 2] = ["slurm-wlm", "munge"];
const SLURM_FILES: [&str; 5] = [
    "/usr/sbin/slurmctld",
    "/usr/sbin/slurmd",
    "/usr/bin/srun",
    "/usr/bin/sbatch",
    "/usr/sbin/munged",
];
/// A virtual machine, and what its file system is made with.
const QEMU: [&str; 3] = [
    "/usr/bin/qemu-system-x86_64",
    "/usr/bin/busybox",
    "/usr/bin/cpio",
];
const QEMU_PACKAGES: [&str; 3] = ["qemu-system-x86", "busybox-static", "cpio"];
const KERNEL_HEADERS_FOLDER: &str = "/usr/src";
const KERNEL_HEADERS_PATTERN: &str = "^linux-headers-[0-9.-]+-common$";

/// How long asking for a tool's version may take.
const PROBE_DEADLINE: Duration = Duration::from_secs(300);
/// How long installing one tool may take.
const INSTALL_DEADLINE: Duration = Duration::from_secs(60 * 60);

/// Something that a step needs besides the stable compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tool {
    Rustfmt,
    Clippy,
    /// Rust's libraries for Arm.
    ArmTarget,
    /// The nightly toolchain, with what the PTX build and the fuzzer need.
    Nightly,
    /// Its interpreter.
    Miri,
    /// NVIDIA's assembler.
    Ptxas,
    /// What builds Rust-CUDA's backend.
    Llvm,
    /// libNVVM and CUDA's headers.
    Cuda,
    CargoFuzz,
    CargoMutants,
    /// Builds the book.
    Mdbook,
    CxxCompiler,
    /// The headers of libibverbs and libmlx5.
    RdmaCoreHeaders,
    /// rdma-core's example programs, which run on the software HCA.
    IbverbsUtils,
    /// The benchmarks that everybody runs on cards.
    Perftest,
    /// Python's libibverbs, with its tests.
    Pyverbs,
    /// Builds RoCE packets, as a judge of ours.
    Scapy,
    /// Reads traces, as a judge of ours.
    Perfetto,
    /// UCX's programs and headers.
    Ucx,
    /// Reads captured packets.
    Tshark,
    /// Simulates clusters, with its headers.
    SimGrid,
    /// `ibstat` and `ibstatus`.
    InfinibandDiags,
    /// `rdma`.
    Iproute2,
    /// OpenMPI, which runs over UCX, with its compiler.
    OpenMpi,
    /// Reads C's headers for Rust's binding of MPI.
    Libclang,
    /// MPICH, for its launcher hydra.
    Mpich,
    /// Slurm, with munge.
    Slurm,
    /// OpenSSH's server; its client comes with it.
    OpenSsh,
    /// PyTorch, for its launcher torchrun.
    PyTorch,
    /// The headers of a kernel, for those of its mlx5 driver.
    KernelHeaders,
    /// A virtual machine.
    Qemu,
    /// A kernel for it, with its modules.
    LinuxImage,
    /// The files of a machine with nothing but the C library.
    BareDebian,
    /// Prometheus, with the program that checks metrics.
    Promtool,
}

impl Tool {
    fn name(self) -> String {
        match self {
            Self::Rustfmt => "rustfmt".into(),
            Self::Clippy => "clippy".into(),
            Self::ArmTarget => Target::Arm.triple(),
            Self::Nightly => format!("{} ({})", nightly_name(), nightly_components().join(", ")),
            Self::Miri => format!("{} (miri)", nightly_name()),
            Self::Ptxas => format!("ptxas ({PTXAS_PACKAGE} {PTXAS_VERSION})"),
            Self::Llvm => LLVM_PACKAGES.join(", "),
            Self::Cuda => format!("{} {PTXAS_VERSION}", CUDA_PACKAGES.join(", ")),
            Self::CargoFuzz => format!("cargo-fuzz {CARGO_FUZZ_VERSION}"),
            Self::CargoMutants => format!("cargo-mutants {CARGO_MUTANTS_VERSION}"),
            Self::Mdbook => format!("mdbook {MDBOOK_VERSION}"),
            Self::CxxCompiler => "a C++ compiler".into(),
            Self::RdmaCoreHeaders => "libibverbs-dev".into(),
            Self::IbverbsUtils => "ibverbs-utils".into(),
            Self::Perftest => "perftest".into(),
            Self::Pyverbs => "python3-pyverbs".into(),
            Self::Scapy => SCAPY.replace("==", " "),
            Self::Perfetto => PERFETTO.replace("==", " "),
            Self::Ucx => "libucx-dev".into(),
            Self::Tshark => "tshark".into(),
            Self::SimGrid => SIMGRID_PACKAGE.into(),
            Self::InfinibandDiags => "infiniband-diags".into(),
            Self::Iproute2 => "iproute2".into(),
            Self::OpenMpi => "libopenmpi-dev".into(),
            Self::Libclang => LIBCLANG_PACKAGES.join(", "),
            Self::Mpich => "mpich".into(),
            Self::OpenSsh => OPENSSH_PACKAGE.into(),
            Self::PyTorch => "python3-torch".into(),
            Self::Slurm => SLURM_PACKAGES.join(", "),
            Self::KernelHeaders => "linux-headers-*-common".into(),
            Self::Qemu => QEMU_PACKAGES.join(", "),
            Self::LinuxImage => "linux-image-*-amd64 (unpacked only)".into(),
            Self::BareDebian => "libc6, libgcc-s1 (unpacked only)".into(),
            Self::Promtool => "prometheus (unpacked only)".into(),
        }
    }
}

/// Finds and installs tools; remembers which ones are there.
pub struct Toolbox<'a> {
    workspace: &'a Workspace,
    spinner: &'a ProgressBar,
    installs: Installs,
    /// The tools that were looked for, and why those are missing that could not be installed.
    known: HashMap<Tool, Result<(), Missing>>,
}

impl<'a> Toolbox<'a> {
    /// A toolbox for commands that need these tools. Where a person decides whether missing ones are installed, asks.
    pub fn new(
        workspace: &'a Workspace,
        spinner: &'a ProgressBar,
        installs: Installs,
        tools: &[Tool],
    ) -> Self {
        let mut toolbox = Self {
            workspace,
            spinner,
            installs,
            known: HashMap::new(),
        };
        if installs == Installs::Ask {
            let missing = toolbox.missing(tools);
            toolbox.installs =
                installs.decide(&missing, |question| spinner.suspend(|| ask(question)));
        }
        toolbox
    }

    /// The names of those of these tools that are not there.
    fn missing(&mut self, tools: &[Tool]) -> Vec<String> {
        let mut names = Vec::new();
        for &tool in tools {
            if self.known.contains_key(&tool) {
                continue;
            }
            match self.is_there(tool) {
                true => drop(self.known.insert(tool, Ok(()))),
                false if names.contains(&tool.name()) => {}
                false => names.push(tool.name()),
            }
        }
        names
    }

    /// Makes sure that tools are there, and says in a line what it installed.
    ///
    /// # Errors
    /// Why some are not available.
    pub fn ensure(&mut self, tools: &[Tool]) -> Result<(), Missing> {
        if self.installs == Installs::No {
            let missing = self.missing(tools);
            return match missing.is_empty() {
                true => Ok(()),
                false => Err(Missing::Unwanted(missing)),
            };
        }
        tools.iter().try_for_each(|tool| self.ensure_one(*tool))
    }

    fn ensure_one(&mut self, tool: Tool) -> Result<(), Missing> {
        if let Some(known) = self.known.get(&tool) {
            return known.clone();
        }
        let result = match self.is_there(tool) {
            true => Ok(()),
            false => self.install(tool).map_err(Missing::Uninstallable),
        };
        self.known.insert(tool, result.clone());
        result
    }

    fn is_there(&self, tool: Tool) -> bool {
        let probe = |mut command: Command, args: &[&str]| {
            command.args(args);
            let finished = run::capture(command, PROBE_DEADLINE, |_| {}).ok()?;
            finished.success().then_some(finished.stdout)
        };
        match tool {
            Tool::Rustfmt => probe(self.workspace.cargo(), &["fmt", "--version"]).is_some(),
            Tool::Clippy => probe(self.workspace.cargo(), &["clippy", "--version"]).is_some(),
            Tool::ArmTarget => {
                let listed = probe(self.command("rustup"), &["target", "list", "--installed"]);
                listed.is_some_and(|list| list.lines().any(|line| line == Target::Arm.triple()))
            }
            Tool::Nightly => self.has_components(nightly_name(), &nightly_components()),
            Tool::Miri => self.has_components(nightly_name(), &["miri"]),
            Tool::Ptxas => probe(self.command(ptxas(self.workspace)), &["--version"]).is_some(),
            Tool::Llvm => LLVM_FILES.iter().all(|file| Path::new(file).exists()),
            Tool::Cuda => cuda_folder(self.workspace)
                .join("nvvm/lib64/libnvvm.so")
                .exists(),
            Tool::CargoFuzz => probe(
                self.command(cargo_fuzz_binary(self.workspace)),
                &["--version"],
            )
            .is_some_and(|version| version.trim().ends_with(CARGO_FUZZ_VERSION)),
            Tool::CargoMutants => probe(
                self.command(cargo_mutants(self.workspace)),
                &["mutants", "--version"],
            )
            .is_some_and(|version| version.trim().ends_with(CARGO_MUTANTS_VERSION)),
            Tool::Mdbook => probe(self.command(mdbook(self.workspace)), &["--version"])
                .is_some_and(|version| version.trim().ends_with(MDBOOK_VERSION)),
            Tool::CxxCompiler => probe(self.command("c++"), &["--version"]).is_some(),
            Tool::RdmaCoreHeaders => Path::new(MLX5DV_HEADER).is_file(),
            Tool::IbverbsUtils => Path::new(IBV_RC_PINGPONG).is_file(),
            Tool::Perftest => Path::new(IB_WRITE_BW).is_file(),
            Tool::Pyverbs => PYVERBS.iter().all(|folder| Path::new(folder).is_dir()),
            Tool::Scapy => probe(
                self.command(scapy_python(self.workspace)),
                &["-c", "import scapy"],
            )
            .is_some(),
            Tool::Perfetto => probe(
                self.command(perfetto_python(self.workspace)),
                &["-c", "import perfetto, google.protobuf"],
            )
            .is_some(),
            Tool::Tshark => Path::new(TSHARK).is_file(),
            Tool::SimGrid => Path::new(SIMGRID).is_file(),
            Tool::Ucx => Path::new(UCX_PERFTEST).is_file() && Path::new(UCP_HEADER).is_file(),
            Tool::InfinibandDiags => Path::new(IBSTAT).is_file(),
            Tool::Iproute2 => Path::new(RDMA).is_file(),
            Tool::OpenMpi => Path::new(MPICC).exists() && Path::new(MPIRUN).exists(),
            Tool::Libclang => LIBCLANG_FILES.iter().all(|file| Path::new(file).exists()),
            Tool::Mpich => Path::new(HYDRA).exists(),
            Tool::OpenSsh => Path::new(SSHD).exists(),
            Tool::PyTorch => Path::new(TORCHRUN).exists(),
            Tool::Slurm => SLURM_FILES.iter().all(|file| Path::new(file).exists()),
            Tool::KernelHeaders => has_kernel_headers(),
            Tool::Qemu => QEMU.iter().all(|file| Path::new(file).is_file()),
            Tool::LinuxImage => linux::folder(self.workspace).is_dir(),
            Tool::BareDebian => unpacked::bare_folder(self.workspace).is_dir(),
            Tool::Promtool => unpacked::promtool(self.workspace).is_file(),
        }
    }

    fn install(&self, tool: Tool) -> Result<(), String> {
        self.spinner
            .set_message(format!("installing {}", tool.name()));
        let started = Instant::now();
        match tool {
            Tool::Rustfmt => self.rustup(&["component", "add", "rustfmt"]),
            Tool::Clippy => self.rustup(&["component", "add", "clippy"]),
            Tool::ArmTarget => self.rustup(&["target", "add", &Target::Arm.triple()]),
            Tool::Nightly => self.install_components(nightly_name(), &nightly_components()),
            Tool::Miri => self.install_components(nightly_name(), &["miri"]),
            Tool::Ptxas => {
                let package = format!("{PTXAS_PACKAGE}=={PTXAS_VERSION}");
                self.pip_install(&ptxas_folder(self.workspace), &[package])
            }
            Tool::Scapy => self.pip_install(&scapy_folder(self.workspace), &[SCAPY.into()]),
            Tool::Perfetto => {
                let packages = [PERFETTO, PROTOBUF].map(String::from);
                self.pip_install(&perfetto_folder(self.workspace), &packages)
            }
            Tool::Llvm => LLVM_PACKAGES
                .iter()
                .try_for_each(|package| self.apt_get(package)),
            Tool::Cuda => self.install_cuda(),
            Tool::CargoFuzz => self.cargo_install("cargo-fuzz", CARGO_FUZZ_VERSION, &[]),
            Tool::CargoMutants => self.cargo_install("cargo-mutants", CARGO_MUTANTS_VERSION, &[]),
            Tool::Mdbook => self.cargo_install(
                "mdbook",
                MDBOOK_VERSION,
                // Without its server.
                &["--no-default-features", "--features", "search"],
            ),
            Tool::CxxCompiler => self.apt_get("g++"),
            Tool::RdmaCoreHeaders => self.apt_get("libibverbs-dev"),
            Tool::IbverbsUtils => self.apt_get("ibverbs-utils"),
            Tool::Perftest => self.apt_get("perftest"),
            Tool::Pyverbs => self
                .apt_get("python3-pyverbs")
                .and_then(|()| self.apt_get("python3-scapy")),
            Tool::Ucx => self
                .apt_get("ucx-utils")
                .and_then(|()| self.apt_get("libucx-dev")),
            Tool::Tshark => self.apt_get("tshark"),
            Tool::SimGrid => self.apt_get(SIMGRID_PACKAGE),
            Tool::InfinibandDiags => self.apt_get("infiniband-diags"),
            Tool::Iproute2 => self.apt_get("iproute2"),
            Tool::OpenMpi => self
                .apt_get("openmpi-bin")
                .and_then(|()| self.apt_get("libopenmpi-dev")),
            Tool::Libclang => LIBCLANG_PACKAGES
                .iter()
                .try_for_each(|package| self.apt_get(package)),
            Tool::Mpich => self.apt_get("mpich"),
            Tool::OpenSsh => self.apt_get(OPENSSH_PACKAGE),
            Tool::PyTorch => self.apt_get("python3-torch"),
            Tool::Slurm => SLURM_PACKAGES
                .iter()
                .try_for_each(|package| self.apt_get(package)),
            Tool::KernelHeaders => self
                .newest_kernel_headers()
                .and_then(|package| self.apt_get(&package)),
            Tool::Qemu => QEMU_PACKAGES
                .iter()
                .try_for_each(|package| self.apt_get(package)),
            Tool::LinuxImage => linux::unpack(self.workspace),
            Tool::BareDebian => unpacked::unpack_bare(self.workspace),
            Tool::Promtool => unpacked::unpack_prometheus(self.workspace),
        }
        .map_err(|why| format!("{} is missing: {why}", tool.name()))?;
        let seconds = started.elapsed().as_secs();
        let line = format!("installed {} in {seconds} s", tool.name());
        self.spinner.suspend(|| say!("{line}"));
        Ok(())
    }

    /// Builds a tool of crates.io.
    fn cargo_install(&self, name: &str, version: &str, options: &[&str]) -> Result<(), String> {
        let mut command = self.workspace.cargo();
        command
            // It only calls others, and need not be quick itself.
            .args(["install", "--locked", "--force", "--debug", name])
            .args(["--version", version])
            .args(options)
            .arg("--root")
            .arg(tools_folder(self.workspace))
            // Nobody debugs it.
            .env("CARGO_PROFILE_DEV_DEBUG", "false");
        finish(command)
    }

    /// Makes sure that a nightly is there, with these components.
    ///
    /// # Errors
    /// Why it is not.
    pub fn ensure_nightly(&self, nightly: &str, components: &[&str]) -> Result<(), Missing> {
        if self.has_components(nightly, components) {
            return Ok(());
        }
        if self.installs == Installs::No {
            return Err(Missing::Unwanted(vec![nightly.into()]));
        }
        self.spinner.set_message(format!("installing {nightly}"));
        self.install_components(nightly, components)
            .map_err(|why| Missing::Uninstallable(format!("{nightly} is missing: {why}")))
    }

    /// Whether a nightly is there with these components.
    fn has_components(&self, nightly: &str, components: &[&str]) -> bool {
        let mut list = self.command("rustup");
        list.args(["component", "list", "--installed"])
            .args(["--toolchain", nightly]);
        let Ok(listed) = run::capture(list, PROBE_DEADLINE, |_| {}) else {
            return false;
        };
        let installed = |component: &&str| {
            let mut lines = listed.stdout.lines();
            lines.any(|line| line.starts_with(*component))
        };
        listed.success() && components.iter().all(installed)
    }

    fn install_components(&self, nightly: &str, components: &[&str]) -> Result<(), String> {
        let mut args = vec!["toolchain", "install", nightly, "--profile", "minimal"];
        args.push("--no-self-update");
        for component in components {
            args.extend(["--component", component]);
        }
        self.rustup(&args)
    }

    /// Installs these packages alone, each with its version, in a virtual environment of their own.
    fn pip_install(&self, folder: &Path, packages: &[String]) -> Result<(), String> {
        // Debian has Python without what makes such environments.
        let mut probe = self.command("python3");
        probe.args(["-c", "import ensurepip"]);
        if finish(probe).is_err() {
            self.apt_get("python3-venv")?;
        }
        let mut create = self.command("python3");
        create.args(["-m", "venv", "--clear"]).arg(folder);
        finish(create)?;
        let mut install = self.command(folder.join("bin/pip"));
        install
            .args([
                "install",
                "--quiet",
                "--no-deps",
                "--disable-pip-version-check",
            ])
            .args(packages);
        finish(install)
    }

    /// Installs libNVVM and CUDA's headers, and lays them out as an installation of CUDA does.
    fn install_cuda(&self) -> Result<(), String> {
        let cuda = cuda_folder(self.workspace);
        let python = tools_folder(self.workspace).join(format!("cuda-python-{PTXAS_VERSION}"));
        let packages = CUDA_PACKAGES.map(|package| format!("{package}=={PTXAS_VERSION}"));
        self.pip_install(&python, &packages)?;
        let packages = nvidia_folder(&python);
        let links = [
            ("include", "include"),
            ("nvvm/include", "include"),
            ("nvvm/libdevice", "nvvm/libdevice"),
            ("nvvm/lib64/libnvvm.so", "lib/libnvvm.so.4"),
            ("nvvm/lib64/libnvvm.so.4", "lib/libnvvm.so.4"),
        ];
        let lay = || -> io::Result<()> {
            if cuda.exists() {
                fs::remove_dir_all(&cuda)?;
            }
            fs::create_dir_all(cuda.join("nvvm/lib64"))?;
            fs::create_dir_all(cuda.join("lib64"))?;
            for (link, to) in links {
                symlink(packages.join(to), cuda.join(link))?;
            }
            Ok(())
        };
        lay().map_err(|error| error.to_string())
    }

    fn rustup(&self, args: &[&str]) -> Result<(), String> {
        let mut command = self.command("rustup");
        command.args(args);
        finish(command)
    }

    /// Installs a Debian package, where that is ours to do.
    fn apt_get(&self, package: &str) -> Result<(), String> {
        if !rustix::process::geteuid().is_root() {
            return Err(format!("not root, so run: apt-get install {package}"));
        }
        self.update_apt()?;
        let mut install = self.command("apt-get");
        install
            .args(["install", "-y", "--no-install-recommends", package])
            .env("DEBIAN_FRONTEND", "noninteractive");
        finish(install)
    }

    fn update_apt(&self) -> Result<(), String> {
        let mut update = self.command("apt-get");
        update.arg("update");
        finish(update)
    }

    /// The package of headers of the newest kernel that Debian offers here.
    fn newest_kernel_headers(&self) -> Result<String, String> {
        if rustix::process::geteuid().is_root() {
            self.update_apt()?;
        }
        let mut search = self.command("apt-cache");
        search.args(["search", "--names-only", KERNEL_HEADERS_PATTERN]);
        let found =
            run::capture(search, PROBE_DEADLINE, |_| {}).map_err(|error| error.to_string())?;
        newest_package(&found.stdout)
            .map(str::to_owned)
            .ok_or_else(|| "apt-cache knows no such package".into())
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        clean_command(program, &self.workspace.root)
    }
}

/// Whether the headers of any kernel are there, where Debian puts them.
fn has_kernel_headers() -> bool {
    let Ok(folders) = fs::read_dir(KERNEL_HEADERS_FOLDER) else {
        return false;
    };
    folders.filter_map(Result::ok).any(|folder| {
        folder
            .path()
            .join("include/linux/mlx5/mlx5_ifc.h")
            .is_file()
    })
}

/// The package with the highest version in its name, of the lines `package - description`.
fn newest_package(listed: &str) -> Option<&str> {
    let numbers = |package: &str| -> Vec<u64> {
        let parts = package.split(|c: char| !c.is_ascii_digit());
        parts.filter_map(|part| part.parse().ok()).collect()
    };
    listed
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .max_by_key(|package| numbers(package))
}

/// The nightly toolchain, as rustup calls it.
pub fn nightly_name() -> &'static str {
    quoted(NIGHTLY_FILE, "channel")
        .first()
        .copied()
        .unwrap_or_default()
}

/// What it must have.
fn nightly_components() -> Vec<&'static str> {
    quoted(NIGHTLY_FILE, "components")
}

/// The texts in quotation marks on a line of a toolchain's file.
pub fn quoted<'f>(file: &'f str, key: &str) -> Vec<&'f str> {
    let line = file.lines().find(|line| line.starts_with(key));
    line.unwrap_or_default()
        .split('"')
        .skip(1)
        .step_by(2)
        .collect()
}

/// Where ptxas is, once it is installed.
pub fn ptxas(workspace: &Workspace) -> PathBuf {
    nvidia_folder(&ptxas_folder(workspace)).join("bin/ptxas")
}

/// A folder as an installation of CUDA has it, with libNVVM and headers, once they are installed.
pub fn cuda_folder(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join(format!("cuda-{PTXAS_VERSION}"))
}

/// Where NVIDIA's packages lie in a virtual environment: Python names a folder there after its version.
fn nvidia_folder(environment: &Path) -> PathBuf {
    let lib = environment.join("lib");
    let pythons = fs::read_dir(&lib).into_iter().flatten().flatten();
    let mut candidates = pythons.map(|python| python.path().join("site-packages/nvidia/cu13"));
    let found = candidates.find(|path| path.is_dir());
    found.unwrap_or(lib)
}

fn scapy_folder(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join("scapy")
}

/// The Python that finds scapy.
pub fn scapy_python(workspace: &Workspace) -> PathBuf {
    scapy_folder(workspace).join("bin/python")
}

fn perfetto_folder(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join("perfetto")
}

/// The Python that finds Perfetto's messages.
pub fn perfetto_python(workspace: &Workspace) -> PathBuf {
    perfetto_folder(workspace).join("bin/python")
}

fn ptxas_folder(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join(format!("ptxas-{PTXAS_VERSION}"))
}

/// A call of the nightly toolchain's cargo, in the workspace's root.
pub fn nightly_cargo(workspace: &Workspace) -> Command {
    nightly(workspace, "cargo")
}

/// A call of `cargo fuzz`, with the nightly toolchain, in the workspace's root.
pub fn cargo_fuzz(workspace: &Workspace) -> Command {
    let mut command = nightly(workspace, cargo_fuzz_binary(workspace));
    command.arg("fuzz");
    command
}

/// Runs a program such that each cargo and rustc below it are the nightly toolchain's.
pub fn nightly(workspace: &Workspace, program: impl AsRef<OsStr>) -> Command {
    let mut command = clean_command("rustup", &workspace.root);
    command.args(["run", nightly_name()]).arg(program);
    command
}

/// Where the tools are installed that Cargo builds.
fn tools_folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("tools")
}

fn cargo_fuzz_binary(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join("bin/cargo-fuzz")
}

/// Where mdbook is, once it is installed.
pub fn mdbook(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join("bin/mdbook")
}

/// Where cargo-mutants is, once it is installed.
pub fn cargo_mutants(workspace: &Workspace) -> PathBuf {
    tools_folder(workspace).join("bin/cargo-mutants")
}

/// Runs an installing command; its error is one line.
fn finish(command: Command) -> Result<(), String> {
    match run::capture(command, INSTALL_DEADLINE, |_| {}) {
        Ok(finished) if finished.success() => Ok(()),
        Ok(finished) => Err(reason(&finished)),
        Err(error) => Err(error.to_string()),
    }
}

/// The line that most likely tells why a command failed: the first error, or else the last line.
fn reason(finished: &Finished) -> String {
    let lines = || finished.output.lines().map(str::trim);
    let error = lines().find(|line| line.starts_with("error") || line.starts_with("E: "));
    error
        .or_else(|| lines().rfind(|line| !line.is_empty()))
        .unwrap_or("it failed without a word")
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_to_be_installed_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = Workspace::empty(folder.path());
        let spinner = ProgressBar::hidden();
        let tools = [Tool::CargoFuzz, Tool::Ptxas, Tool::CargoFuzz];
        let mut toolbox = Toolbox::new(&workspace, &spinner, Installs::No, &tools);
        let missing = tools.map(Tool::name)[..2].to_vec();
        assert_eq!(toolbox.ensure(&tools), Err(Missing::Unwanted(missing)));
        let nothing = fs::read_dir(folder.path()).unwrap();
        assert_eq!(nothing.count(), 0, "nothing was installed");
    }

    #[test]
    fn the_newest_kernel_is_that_of_the_highest_numbers() {
        let listed = "linux-headers-6.1.0-9-common - Common header files\n\
                      linux-headers-6.1.0-47-common - Common header files\n\
                      linux-headers-5.10.0-50-common - Common header files\n";
        assert_eq!(
            newest_package(listed),
            Some("linux-headers-6.1.0-47-common")
        );
        assert_eq!(newest_package(""), None);
    }

    #[test]
    fn the_toolchain_file_names_the_nightly_and_its_components() {
        let date = nightly_name().strip_prefix("nightly-").unwrap();
        assert_eq!(date.len(), "2026-01-01".len());
        let components = nightly_components();
        for needed in ["rust-src", "llvm-tools", "llvm-bitcode-linker"] {
            assert!(components.contains(&needed), "{needed} is missing");
        }
        assert_eq!(components.len(), 3);
    }
}
