//! Which steps there are: what each checks, when it runs, and what it needs.

use clap::ValueEnum;

use crate::tools::Tool;

/// A step of `cargo xtask test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    Fmt,
    PtxSources,
    Test,
    Proofs,
    Programs,
    Rxe,
    HwTests,
    Demo,
    Gallery,
    Ranks,
    Faults,
    Flash,
    Template,
    Card,
    Cust,
    Differential,
    Rounds,
    // From here on two at a time, those that take longest first.
    Sanitizers,
    Dist,
    Clippy,
    Fuzz,
    RustCuda,
    Doc,
    Book,
    // These beside all others, with what those leave of the processors.
    Ptx,
    DistBuild,
    Miri,
    Loom,
    Packages,
    OlderGpu,
}

impl Step {
    /// The name on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().into())
    }

    /// What it does, in a line.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Fmt => "the source is formatted",
            Self::Clippy => {
                "clippy has no warnings (with --full, in all packages and with fewer features, too)"
            }
            Self::Test => {
                "unit, integration and documentation tests (with --full, those of bench and papers, too)"
            }
            Self::Proofs => {
                "layouts and commands are those of rdma-core's and the kernel's headers, RoCE packets those of scapy, SimGrid agrees with simulated clusters, promtool with the metrics, and Perfetto with traces"
            }
            Self::Programs => {
                "unmodified programs run on the preloaded device, each a row of a table"
            }
            Self::Rxe => {
                "programs on the preloaded device talk to Linux's soft-RoCE in a virtual machine"
            }
            Self::HwTests => {
                "the hardware suite, on whatever hardware is there (with --full, a NIC among CPU kernels, too)"
            }
            Self::Loom => "loom tries every order of the publish and poll accesses",
            Self::Miri => {
                "miri interprets what has unsafe code: warpbell-gpu, warpbell, warpbell-patterns and the memory of the software HCA's engine; and what mlx5-wqe asks of zerocopy"
            }
            Self::PtxSources => "the committed PTX was built from the present sources",
            Self::Ptx => "the sources give the committed PTX, at the recorded cost",
            Self::OlderGpu => "the kernels compile for a GPU without one-sided fences, too",
            Self::RustCuda => {
                "a kernel compiles against cuda_std too, whose paths are the same; with WARPBELL_RUST_CUDA=DIR Rust-CUDA compiles all kernels"
            }
            Self::Cust => "contexts, streams, modules and buffers cross between cust and host-init",
            Self::Fuzz => "each fuzz target survives its inputs",
            Self::Sanitizers => {
                "ThreadSanitizer and AddressSanitizer find nothing in shell, peers, preload and drops"
            }
            Self::Differential => "20,000 random episodes of two HCAs agree with a model",
            Self::Rounds => {
                "1,000 rounds of collectives and of exchanges with experts are right over wires that lose packets"
            }
            Self::Doc => "the documentation builds without warnings",
            Self::Book => "the book builds without a warning, and no link of a page is dead",
            Self::Demo => "the demo runs and verifies every byte",
            Self::Gallery => {
                "each program of the gallery says \"Test OK\" and explains mistakes (--full: has PTX, too)"
            }
            Self::Ranks => {
                "ranks start under warpbell-launch, Open MPI, hydra, torchrun and Slurm, and between two network namespaces by ssh and mpirun"
            }
            Self::Faults => {
                "ranks in four network namespaces go on when one fails, and take it in again"
            }
            Self::Flash => {
                "`cargo xtask flash` copies programs to two network namespaces by ssh and to two nodes of Slurm, runs them there, and leaves nothing behind"
            }
            Self::Template => {
                "a crate made from the template runs, builds PTX, and explains mistakes"
            }
            Self::Packages => "each published crate builds from its package",
            Self::Dist => {
                "the archive for machines without Rust is small, and its programs run on a bare Debian"
            }
            Self::DistBuild => "all programs build for machines without Rust, and compile for Arm",
            Self::Card => "demo and suite drive a preloaded device through libibverbs and libmlx5",
        }
    }

    /// Whether it runs without `--full`. Daily steps find what a change breaks most often, in some minutes.
    pub const fn is_daily(self) -> bool {
        matches!(
            self,
            Self::Fmt
                | Self::PtxSources
                | Self::Test
                | Self::HwTests
                | Self::Demo
                | Self::Gallery
                | Self::Clippy
                | Self::Doc
        )
    }

    /// Whether another step of the kind may run beside it: nothing is measured in it, and it mostly builds in a folder of its
    /// own. Each has parts that leave a core idle.
    ///
    /// `Clippy` and `Doc` build in the same folder, where one waits for the other's lock: other steps lie between them, so
    /// that they hardly meet.
    pub const fn stands_apart(self) -> bool {
        matches!(
            self,
            Self::Sanitizers
                | Self::Dist
                | Self::Fuzz
                | Self::Clippy
                | Self::RustCuda
                | Self::Doc
                | Self::Book
        )
    }

    /// Whether it may take as long as it likes beside any other step: it compiles, interprets, or tries out a model of
    /// threads, in a folder of its own, and looks at no clock.
    pub const fn can_wait(self) -> bool {
        matches!(
            self,
            Self::Ptx | Self::DistBuild | Self::Miri | Self::Loom | Self::Packages | Self::OlderGpu
        )
    }

    /// What must be installed for it.
    pub fn needs(self) -> &'static [Tool] {
        match self {
            Self::Fmt => &[Tool::Rustfmt],
            Self::Clippy => &[Tool::Clippy],
            Self::Proofs => &[
                Tool::Scapy,
                Tool::Perfetto,
                Tool::SimGrid,
                Tool::Promtool,
                Tool::CxxCompiler,
                Tool::RdmaCoreHeaders,
                Tool::KernelHeaders,
                Tool::IbverbsUtils,
                Tool::Perftest,
            ],
            Self::Programs => &[
                Tool::RdmaCoreHeaders,
                Tool::IbverbsUtils,
                Tool::Perftest,
                Tool::Pyverbs,
                Tool::Ucx,
                Tool::OpenMpi,
                Tool::Tshark,
                Tool::InfinibandDiags,
                Tool::Iproute2,
            ],
            Self::Ranks => &[
                Tool::OpenMpi,
                Tool::Libclang,
                Tool::Mpich,
                Tool::Slurm,
                Tool::OpenSsh,
                Tool::PyTorch,
                Tool::Iproute2,
            ],
            Self::Faults => &[Tool::Iproute2],
            Self::Flash => &[Tool::OpenSsh, Tool::Iproute2, Tool::Slurm],
            Self::Rxe => &[
                Tool::IbverbsUtils,
                Tool::Perftest,
                Tool::Iproute2,
                Tool::Qemu,
                Tool::LinuxImage,
            ],
            Self::Miri => &[Tool::Nightly, Tool::Miri],
            Self::Ptx => &[Tool::Nightly, Tool::Ptxas],
            Self::OlderGpu | Self::Sanitizers | Self::Template => &[Tool::Nightly],
            Self::RustCuda => super::rust_cuda::needs(),
            Self::Fuzz => &[Tool::Nightly, Tool::CxxCompiler, Tool::CargoFuzz],
            Self::Dist => &[Tool::Nightly, Tool::BareDebian],
            Self::DistBuild => &[Tool::Nightly, Tool::ArmTarget],
            // Its package brings libibverbs and libmlx5, which the demo loads.
            Self::Card => &[Tool::RdmaCoreHeaders],
            Self::PtxSources
            | Self::Test
            | Self::HwTests
            | Self::Cust
            | Self::Loom
            | Self::Packages
            | Self::Doc
            | Self::Demo
            | Self::Gallery
            | Self::Differential
            | Self::Rounds => &[],
            Self::Book => &[Tool::Mdbook],
        }
    }
}
