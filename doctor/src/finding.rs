//! Findings: one line each, with a remedy.

use super::pci::Address;

/// No value is longer than this; a file of a broken node may hold anything.
const LONGEST_VALUE: usize = 400;

/// How a fact stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Ok,
    /// It is not so, or not enough.
    Missing,
    /// It could not be seen.
    Unknown,
}

/// The subject of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Node,
    Gpu { gpu: Address },
    Nic { nic: String },
    Port { nic: String, port: u32 },
    Pair { gpu: Address, nic: String },
}

/// Declares the facts, each with its word in the JSON, its name in the table, and who needs it already with half of the
/// way: a GPU with a NIC of software (`gpu`), or a card with kernels on a CPU (`card`).
macro_rules! checks {
    ($($check:ident $word:literal $title:literal [$($half:literal),*],)*) => {
        /// Which fact.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Check {
            $($check,)*
        }

        impl Check {
            /// Its word in the JSON.
            pub fn word(self) -> &'static str {
                match self {
                    $(Self::$check => $word,)*
                }
            }

            /// Its name in the table.
            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$check => $title,)*
                }
            }

            /// Who needs it with half of the way.
            fn needed_by(self) -> &'static [&'static str] {
                match self {
                    $(Self::$check => &[$($half),*],)*
                }
            }
        }
    };
}

checks! {
    Examination "examination" "examination" ["gpu", "card"],
    Gpu "gpu" "GPU" ["gpu"],
    Nic "nic" "NIC" ["card"],
    GpuDriver "gpu-driver" "NVIDIA driver" ["gpu"],
    PeerMapping "peer-mapping" "peer mapping" [],
    GpuFiles "gpu-files" "GPU device files" ["gpu"],
    Peermem "peermem" "nvidia_peermem" [],
    Cuda "cuda" "CUDA" ["gpu"],
    RdmaModules "rdma-modules" "RDMA modules" ["card"],
    RdmaCore "rdma-core" "rdma-core" ["card"],
    Memlock "memlock" "memlock" ["card"],
    Kernels "kernels" "kernels" ["gpu"],
    Dmabuf "dmabuf" "dmabuf" [],
    InboundOrder "inbound-order" "inbound order" [],
    Bar1 "bar1" "BAR1" [],
    Iommu "iommu" "IOMMU" [],
    NicDriver "nic-driver" "driver" ["card"],
    DevicePermission "device-permission" "DEVX permission" ["card"],
    Firmware "firmware" "firmware" [],
    Devx "devx" "DEVX in firmware" ["card"],
    WriteOrdering "write-ordering" "write ordering" [],
    Atomics "atomics" "atomics" [],
    Link "link" "link" ["card"],
    Gids "gids" "GIDs" ["card"],
    Distance "distance" "PCIe distance" [],
    Acs "acs" "ACS" [],
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub subject: Subject,
    pub check: Check,
    pub state: State,
    /// Whether a queue driven by the GPU needs it.
    pub needed: bool,
    /// Who needs it with half of that: `gpu` with a NIC of software, `card` with kernels on a CPU.
    pub needed_by: &'static [&'static str],
    /// The value found, or the reason why none was found.
    pub value: String,
    /// How the remedy weakens the machine.
    pub risk: Option<&'static str>,
    /// What mends it, or shows it.
    pub remedy: Option<String>,
}

impl Finding {
    /// A fact whose remedy weakens the machine.
    pub fn risky(mut self, risk: &'static str) -> Self {
        self.risk = Some(risk);
        self
    }

    /// A fact that a queue driven by the GPU can do without.
    pub fn optional(mut self) -> Self {
        self.needed = false;
        self
    }
}

impl Subject {
    /// A fact that is as it should be.
    pub fn ok(&self, check: Check, value: impl AsRef<str>) -> Finding {
        self.finding(check, State::Ok, value.as_ref(), None)
    }

    /// A fact that is not as it should be, and the command that mends it.
    pub fn missing(
        &self,
        check: Check,
        value: impl AsRef<str>,
        remedy: impl Into<String>,
    ) -> Finding {
        self.finding(check, State::Missing, value.as_ref(), Some(remedy.into()))
    }

    /// A fact that could not be seen, why, and the command that shows it.
    pub fn unknown(
        &self,
        check: Check,
        why: impl AsRef<str>,
        remedy: impl Into<String>,
    ) -> Finding {
        self.finding(check, State::Unknown, why.as_ref(), Some(remedy.into()))
    }

    fn finding(&self, check: Check, state: State, value: &str, remedy: Option<String>) -> Finding {
        Finding {
            subject: self.clone(),
            check,
            state,
            needed: true,
            needed_by: check.needed_by(),
            value: printable(value),
            risk: None,
            remedy: remedy.as_deref().map(printable),
        }
    }
}

/// The text on one line, cut to a limit, without control characters.
fn printable(text: &str) -> String {
    text.chars()
        .take(LONGEST_VALUE)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// A word of a command, quoted where a shell would see more in it than a word.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:@".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
impl Finding {
    /// Fails the test unless the remedy has these words.
    #[track_caller]
    pub fn expect_remedy(&self, words: &str) {
        let remedy = self.remedy.as_deref().unwrap_or_default();
        assert!(remedy.contains(words), "{self:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_acts_upon_the_terminal() {
        let found = Subject::Node.ok(Check::GpuDriver, "a\u{1b}[2Jb\nc\u{9b}d");
        assert_eq!(found.value, "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d");
        let found = Subject::Node.missing(Check::GpuDriver, "x".repeat(9_999), "\u{7}");
        assert_eq!(found.value.len(), LONGEST_VALUE);
        assert_eq!(found.remedy.as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn words_of_a_command_stay_words() {
        assert_eq!(quoted("ens1f0np0"), "ens1f0np0");
        assert_eq!(quoted("$(reboot)"), "'$(reboot)'");
        assert_eq!(quoted("a'; b"), r"'a'\''; b'");
        assert_eq!(quoted(""), "''");
    }
}
