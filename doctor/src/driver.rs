//! NVIDIA's kernel driver: its version, its flags, its device files, nvidia_peermem.

use super::finding::{Check, Finding, Subject};
use super::privileges::Privileges;
use super::system::{ReadError, System};

const VERSION: &str = "/proc/driver/nvidia/version";
const PARAMETERS: &str = "/proc/driver/nvidia/params";

/// The device files that a program without graphics opens.
const DEVICE_FILES: [&str; 2] = ["/dev/nvidiactl", "/dev/nvidia-uvm"];

const LOAD: &str = "sudo modprobe nvidia  # after: sudo apt install nvidia-open, or dnf";
const SET_OVERRIDE: &str = "echo 'options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\"' | \
    sudo tee /etc/modprobe.d/warpbell.conf && sudo update-initramfs -u  # and restart the machine; or run as root";
const OVERRIDE_RISK: &str =
    "with PeerMappingOverride every user may map other devices' registers into a GPU";

/// The driver that is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Driver {
    pub version: String,
    /// Whether these are the open kernel modules, which alone give memory away as dmabufs.
    pub open: bool,
}

impl Driver {
    /// Reads what the driver says of itself.
    pub fn read(system: &System) -> Result<Self, ReadError> {
        let text = system.text(VERSION)?;
        let line = text.lines().next().unwrap_or_default();
        let version = line.split_whitespace().find(|word| is_version(word));
        Ok(Self {
            version: version.ok_or(ReadError::NotText)?.into(),
            open: line.contains("Open Kernel Module"),
        })
    }
}

/// Whether a word is a version such as `580.159.04`.
fn is_version(word: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    word.contains('.') && word.split('.').all(number)
}

/// What the node has of NVIDIA's driver.
pub fn examine(system: &System, privileges: Privileges) -> Vec<Finding> {
    vec![
        loaded(system),
        peer_mapping(system, privileges),
        device_files(system),
        peermem(system),
    ]
}

fn loaded(system: &System) -> Finding {
    match Driver::read(system) {
        Ok(Driver { version, open }) => {
            let kind = if open {
                "open kernel modules"
            } else {
                "closed kernel modules"
            };
            Subject::Node.ok(Check::GpuDriver, format!("{version}, {kind}"))
        }
        Err(ReadError::Absent) => Subject::Node.missing(Check::GpuDriver, "not loaded", LOAD),
        Err(error) => Subject::Node.unknown(
            Check::GpuDriver,
            format!("{VERSION}: {error}"),
            "nvidia-smi",
        ),
    }
}

/// Whether a NIC's UAR page may be mapped into the GPU: the driver allows it to administrators, and to
/// everybody with PeerMappingOverride.
fn peer_mapping(system: &System, privileges: Privileges) -> Finding {
    let check = Check::PeerMapping;
    match system.text(PARAMETERS) {
        Ok(text) if overrides(&text) => Subject::Node.ok(check, "PeerMappingOverride=1"),
        Ok(_) if privileges.administrate => Subject::Node.ok(
            check,
            "PeerMappingOverride is not set; allowed to this process by CAP_SYS_ADMIN",
        ),
        Ok(_) => Subject::Node
            .missing(
                check,
                "PeerMappingOverride is not set, and this process has no CAP_SYS_ADMIN",
                SET_OVERRIDE,
            )
            .risky(OVERRIDE_RISK),
        Err(ReadError::Absent) => Subject::Node.unknown(
            check,
            "no driver to ask",
            format!("grep RegistryDwords: {PARAMETERS}"),
        ),
        Err(_) if privileges.administrate => {
            Subject::Node.ok(check, "allowed to this process by CAP_SYS_ADMIN")
        }
        Err(error) => Subject::Node.unknown(
            check,
            format!("{PARAMETERS}: {error}"),
            format!("sudo grep RegistryDwords: {PARAMETERS}"),
        ),
    }
}

/// Whether the driver's parameters have `RegistryDwords: "…PeerMappingOverride=1;…"`.
fn overrides(parameters: &str) -> bool {
    let mut lines = parameters.lines();
    let Some(dwords) = lines.find_map(|line| line.strip_prefix("RegistryDwords:")) else {
        return false;
    };
    let mut settings = dwords.trim().trim_matches('"').split(';');
    settings.any(|setting| {
        setting.split_once('=').is_some_and(|(key, value)| {
            key.trim() == "PeerMappingOverride" && matches!(value.trim(), "1" | "0x1")
        })
    })
}

fn device_files(system: &System) -> Finding {
    let check = Check::GpuFiles;
    let wrong = DEVICE_FILES
        .iter()
        .find_map(|file| Some((file, system.can_open(file).err()?)));
    match wrong {
        None => Subject::Node.ok(check, DEVICE_FILES.join(", ")),
        Some((file, ReadError::Absent)) => Subject::Node.missing(
            check,
            format!("{file}: not there"),
            "sudo nvidia-modprobe -u -c 0",
        ),
        Some((file, ReadError::Denied)) => Subject::Node.missing(
            check,
            format!("{file}: no permission"),
            format!("sudo chmod a+rw {file}  # in a container: start it with --gpus all"),
        ),
        Some((file, error)) => {
            Subject::Node.unknown(check, format!("{file}: {error}"), format!("ls -l {file}"))
        }
    }
}

/// The module that is the older way to register the GPU's memory, if it is loaded.
pub fn peermem_module(system: &System) -> Option<&'static str> {
    ["nvidia_peermem", "nv_peer_mem"]
        .into_iter()
        .find(|module| system.exists(format!("/sys/module/{module}")))
}

fn peermem(system: &System) -> Finding {
    match peermem_module(system) {
        Some(module) => Subject::Node.ok(Check::Peermem, format!("{module} is loaded")),
        None => Subject::Node.missing(Check::Peermem, "not loaded", "sudo modprobe nvidia-peermem"),
    }
    .optional()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;
    use crate::tree::Tree;

    const PLAIN: Privileges = Privileges {
        lock_memory: false,
        administrate: false,
    };

    fn read(version: &str) -> Result<Driver, ReadError> {
        let tree = Tree::empty();
        tree.file("proc/driver/nvidia/version", version);
        Driver::read(&tree.system())
    }

    #[test]
    fn tells_the_open_modules_from_the_closed_ones() {
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs)\nGCC version: 12.2.0\n";
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12\n";
        let driver = |version: &str, open| {
            Ok(Driver {
                version: version.into(),
                open,
            })
        };
        assert_eq!(read(open), driver("580.159.04", true));
        assert_eq!(read(closed), driver("535.183.01", false));
        assert_eq!(read("GCC version 12"), Err(ReadError::NotText));
        assert_eq!(read(""), Err(ReadError::NotText));
    }

    #[test]
    fn the_override_is_found_among_other_settings() {
        assert!(overrides(
            "EnableMSI: 1\nRegistryDwords: \"PeerMappingOverride=1;\"\nRmMsg: \"\""
        ));
        assert!(overrides(
            "RegistryDwords: \"A=2; PeerMappingOverride=0x1\""
        ));
        assert!(!overrides("RegistryDwords: \"PeerMappingOverride=0;\""));
        assert!(!overrides("RegistryDwords: \"NoPeerMappingOverride=1;\""));
        assert!(!overrides(
            "RegistryDwordsPerDevice: \"PeerMappingOverride=1\"\nRegistryDwords: \"\""
        ));
        assert!(!overrides(""));
    }

    #[test]
    fn an_administrator_needs_no_override() {
        let tree = Tree::empty();
        let system = tree.system();
        let administrator = Privileges {
            administrate: true,
            ..PLAIN
        };
        assert_eq!(peer_mapping(&system, administrator).state, State::Unknown);
        tree.file("proc/driver/nvidia/params", "RegistryDwords: \"\"\n");
        assert_eq!(peer_mapping(&system, administrator).state, State::Ok);
        let plain = peer_mapping(&system, PLAIN);
        assert_eq!(plain.state, State::Missing);
        assert_eq!(plain.risk, Some(OVERRIDE_RISK));
        let remedy = plain.remedy.unwrap();
        assert!(remedy.contains("PeerMappingOverride=1;") && !remedy.contains("reboot"));
        tree.file(
            "proc/driver/nvidia/params",
            "RegistryDwords: \"PeerMappingOverride=1;\"\n",
        );
        assert_eq!(peer_mapping(&system, PLAIN).state, State::Ok);
    }
}
