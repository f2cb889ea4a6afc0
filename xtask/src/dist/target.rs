//! The machines that programs are built for.

use clap::ValueEnum;

/// A processor, with Linux and glibc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// Intel and AMD
    #[default]
    #[value(name = "x86_64")]
    X86,
    /// Arm, for example NVIDIA Grace
    #[value(name = "aarch64")]
    Arm,
}

impl Target {
    /// As `uname -m` says it.
    pub const fn machine(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Arm => "aarch64",
        }
    }

    /// As Rust calls it.
    pub fn triple(self) -> String {
        format!("{}-unknown-linux-gnu", self.machine())
    }

    /// As Debian calls it.
    pub const fn debian(self) -> &'static str {
        match self {
            Self::X86 => "amd64",
            Self::Arm => "arm64",
        }
    }

    /// The dynamic linker of its programs.
    pub const fn loader(self) -> &'static str {
        match self {
            Self::X86 => "ld-linux-x86-64.so.2",
            Self::Arm => "ld-linux-aarch64.so.1",
        }
    }

    /// The number of its processor in a program's header.
    pub const fn elf(self) -> u16 {
        match self {
            Self::X86 => object::elf::EM_X86_64,
            Self::Arm => object::elf::EM_AARCH64,
        }
    }

    /// Cargo's variable for the linker, and Debian's cross-linker, if this machine is another one.
    pub fn linker(self) -> Option<(String, String)> {
        let machine = self.machine();
        let variable = format!(
            "CARGO_TARGET_{}_UNKNOWN_LINUX_GNU_LINKER",
            machine.to_uppercase()
        );
        let linker = format!("{machine}-linux-gnu-gcc");
        (std::env::consts::ARCH != machine).then_some((variable, linker))
    }
}
