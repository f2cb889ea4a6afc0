//! NICs: which there are, and what each one brings.

use std::time::Duration;

use super::finding::{Check, Finding, Subject, quoted};
use super::firmware;
use super::iommu;
use super::pci::{self, Address};
use super::port;
use super::system::{ProgramError, ReadError, System};

/// Where the kernel lists its RDMA devices.
const RDMA_DEVICES: &str = "/sys/class/infiniband";

/// How long `ibv_devinfo` may take.
const DEVINFO_DEADLINE: Duration = Duration::from_secs(8);

/// An RDMA device, or a function of a card that is none for want of a driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// The RDMA device's name, or the function's address.
    pub name: String,
    /// Whether it is an RDMA device.
    pub rdma: bool,
    /// The PCI function that it belongs to.
    pub address: Option<Address>,
    /// Whether it is of the mlx5 family.
    pub mlx5: bool,
}

impl Nic {
    /// A file of the RDMA device.
    pub fn file(&self, name: &str) -> String {
        format!("{RDMA_DEVICES}/{}/{name}", self.name)
    }

    /// What its findings are about.
    pub fn subject(&self) -> Subject {
        Subject::Nic {
            nic: self.name.clone(),
        }
    }
}

/// The node's RDMA devices, then the network functions of Mellanox cards that have none.
pub fn list(system: &System) -> Vec<Nic> {
    let names = system.names(RDMA_DEVICES).unwrap_or_default();
    let mut nics: Vec<_> = names
        .into_iter()
        .map(|name| rdma_device(system, name))
        .collect();
    let functions = pci::functions(system, pci::VENDOR_MELLANOX, pci::CLASS_NETWORK);
    for address in functions {
        if !nics.iter().any(|nic| nic.address == Some(address)) {
            nics.push(Nic {
                name: address.to_string(),
                rdma: false,
                address: Some(address),
                mlx5: true,
            });
        }
    }
    nics
}

fn rdma_device(system: &System, name: String) -> Nic {
    let address = pci::function_of(system, format!("{RDMA_DEVICES}/{name}/device"));
    Nic {
        mlx5: address
            .and_then(|address| address.driver(system))
            .as_deref()
            == Some("mlx5_core"),
        name,
        rdma: true,
        address,
    }
}

/// Examines one NIC and its ports.
pub fn examine(system: &System, nic: &Nic) -> Vec<Finding> {
    let subject = nic.subject();
    let driver = driver(system, nic, &subject);
    let (true, true, Some(address)) = (nic.rdma, nic.mlx5, nic.address) else {
        return vec![driver];
    };
    let mut findings = vec![
        driver,
        permission(system, nic, &subject),
        firmware_version(system, nic, &subject),
    ];
    findings.extend(firmware::examine(system, &subject, address));
    findings.push(atomics(system, nic, &subject, address));
    findings.push(iommu::examine(system, &subject, address));
    findings.extend(port::examine(system, nic));
    findings
}

fn driver(system: &System, nic: &Nic, subject: &Subject) -> Finding {
    let check = Check::NicDriver;
    let driver = nic.address.and_then(|address| address.driver(system));
    match (nic.rdma, nic.mlx5, driver) {
        (true, true, _) => {
            let model = nic.address.and_then(|address| model(system, address));
            let place = nic
                .address
                .map_or_else(String::new, |address| format!(" at {address}"));
            subject.ok(
                check,
                format!("mlx5{place}, {}", model.unwrap_or("a model unknown here")),
            )
        }
        (true, false, driver) => {
            let driver = driver.unwrap_or_else(|| "no driver of a PCI device".into());
            subject.missing(
                check,
                format!("not of the mlx5 family: {driver}"),
                "a ConnectX or BlueField NIC",
            )
        }
        (false, _, Some(driver)) if driver == "mlx5_core" => {
            subject.missing(check, "no RDMA device", "sudo modprobe mlx5_ib")
        }
        (false, _, Some(driver)) => {
            let text = format!("driven by {driver}");
            let address = &nic.name;
            let remedy = format!(
                "echo {address} | sudo tee /sys/bus/pci/devices/{address}/driver/unbind && \
                 echo {address} | sudo tee /sys/bus/pci/drivers/mlx5_core/bind"
            );
            subject.missing(check, text, remedy)
        }
        (false, _, None) => subject.missing(
            check,
            "no driver has it",
            "sudo modprobe -a mlx5_core mlx5_ib",
        ),
    }
}

/// The card's generation, by the PCI device id.
fn model(system: &System, address: Address) -> Option<&'static str> {
    Some(match system.hex(address.file("device")).ok()? {
        0x1013 | 0x1014 => "ConnectX-4",
        0x1015 | 0x1016 => "ConnectX-4 Lx",
        0x1017..=0x101a => "ConnectX-5",
        0x101b | 0x101c => "ConnectX-6",
        0x101d => "ConnectX-6 Dx",
        0x101e => "virtual function of a ConnectX",
        0x101f => "ConnectX-6 Lx",
        0x1021 => "ConnectX-7",
        0x1023 => "ConnectX-8",
        0xa2d6 => "BlueField-2",
        0xa2dc => "BlueField-3",
        _ => return None,
    })
}

/// Whether this process may open the device for DEVX.
fn permission(system: &System, nic: &Nic, subject: &Subject) -> Finding {
    let check = Check::DevicePermission;
    let class = "/sys/class/infiniband_verbs";
    let names = system.names(class).unwrap_or_default();
    let ours =
        |name: &&String| system.text(format!("{class}/{name}/ibdev")).as_deref() == Ok(&nic.name);
    let Some(name) = names.iter().find(ours) else {
        return subject.missing(
            check,
            "no uverbs device belongs to it",
            "sudo modprobe ib_uverbs",
        );
    };
    let file = format!("/dev/infiniband/{name}");
    match system.can_open(&file) {
        Ok(()) => subject.ok(check, format!("{file} opens for reading and writing")),
        Err(ReadError::Absent) => subject.missing(
            check,
            format!("{file}: not there"),
            "sudo udevadm trigger  # in a container: start it with --device /dev/infiniband",
        ),
        Err(ReadError::Denied) => {
            let remedy = format!(
                "sudo chmod a+rw {}  # permanently: a udev rule",
                quoted(&file)
            );
            subject.missing(check, format!("{file}: no permission"), remedy)
        }
        Err(error) => subject.unknown(
            check,
            format!("{file}: {error}"),
            format!("ls -l {}", quoted(&file)),
        ),
    }
}

fn firmware_version(system: &System, nic: &Nic, subject: &Subject) -> Finding {
    let check = Check::Firmware;
    match system.text(nic.file("fw_ver")) {
        Ok(version) if !version.is_empty() => match system.text(nic.file("board_id")) {
            Ok(board) => subject.ok(check, format!("{version}, board {board}")),
            Err(_) => subject.ok(check, version),
        },
        Ok(_) => subject.unknown(check, "fw_ver is empty", "sudo mlxfwmanager"),
        Err(error) => subject.unknown(check, format!("fw_ver: {error}"), "sudo mlxfwmanager"),
    }
    .optional()
}

/// Whether it executes atomics; sysfs does not tell, the device does.
fn atomics(system: &System, nic: &Nic, subject: &Subject, address: Address) -> Finding {
    let check = Check::Atomics;
    let command = format!("ibv_devinfo -v -d {} | grep atomic_cap", quoted(&nic.name));
    let output = system.run(&["ibv_devinfo"], &["-v", "-d", &nic.name], DEVINFO_DEADLINE);
    let value = output.as_deref().map(|output| {
        let mut lines = output.lines();
        lines.find_map(|line| Some(line.trim().strip_prefix("atomic_cap:")?.trim()))
    });
    match value {
        Ok(Some(value)) if value.starts_with("ATOMIC_HCA") || value.starts_with("ATOMIC_GLOB") => {
            subject.ok(check, value)
        }
        Ok(Some(value)) => subject.missing(
            check,
            value,
            format!("sudo mlxconfig -d {address} query | grep ATOMIC"),
        ),
        Ok(None) => subject.unknown(check, "ibv_devinfo does not report it", command),
        Err(error @ ProgramError::Absent(_)) => subject.unknown(
            check,
            error.to_string(),
            format!("sudo apt install ibverbs-utils; {command}"),
        ),
        Err(error) => subject.unknown(check, error.to_string(), command),
    }
    .optional()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;
    use crate::tree::Tree;

    fn nic() -> Nic {
        Nic {
            name: "mlx5_0".into(),
            rdma: true,
            address: None,
            mlx5: true,
        }
    }

    #[test]
    fn atomics_are_asked_of_the_device() {
        let tree = Tree::empty();
        let address = "0000:19:00.0".parse().unwrap();
        let found = || atomics(&tree.system(), &nic(), &nic().subject(), address);
        found().expect_remedy("apt install ibverbs-utils");
        for (line, state) in [
            ("atomic_cap:  ATOMIC_HCA (1)", State::Ok),
            ("atomic_cap:  ATOMIC_GLOB (2)", State::Ok),
            ("atomic_cap:  ATOMIC_NONE (0)", State::Missing),
            ("nothing of the kind", State::Unknown),
        ] {
            tree.program("ibv_devinfo", &format!("echo '\t{line}'"));
            assert_eq!(found().state, state, "{line}");
        }
    }

    #[test]
    fn permission_is_that_of_the_device_itself() {
        let tree = Tree::empty();
        let found = || permission(&tree.system(), &nic(), &nic().subject());
        assert!(found().value.contains("no uverbs device"));
        tree.file("sys/class/infiniband_verbs/abi_version", "6\n");
        tree.file("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_1\n");
        tree.file("sys/class/infiniband_verbs/uverbs1/ibdev", "mlx5_0\n");
        tree.file("dev/infiniband/uverbs0", "");
        assert_eq!(found().value, "/dev/infiniband/uverbs1: not there");
        tree.file("dev/infiniband/uverbs1", "");
        assert_eq!(found().state, State::Ok);
    }

    #[test]
    fn other_families_are_told_apart() {
        let tree = Tree::empty();
        let device = "/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0";
        let (on_bus, driver) = (
            "/sys/bus/pci/devices/0000:01:00.0",
            "/sys/bus/pci/drivers/mlx4_core",
        );
        tree.file(&format!("{device}/vendor"), "0x15b3");
        tree.link(on_bus, device);
        tree.link("/sys/class/infiniband/mlx4_0/device", on_bus);
        tree.folder(driver);
        tree.link(&format!("{on_bus}/driver"), driver);
        let nics = list(&tree.system());
        assert_eq!(nics.len(), 1);
        let findings = examine(&tree.system(), &nics[0]);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].state, State::Missing);
        assert_eq!(findings[0].check, Check::NicDriver);
    }
}
