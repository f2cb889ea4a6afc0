//! The IOMMU as a device meets it.

use super::finding::{Check, Finding, Subject};
use super::pci::Address;
use super::system::{ReadError, System};

const GROUPS: &str = "/sys/kernel/iommu_groups";

const PASS_THROUGH: &str = "add iommu=pt to the kernel's command line (GRUB_CMDLINE_LINUX in \
    /etc/default/grub), then: sudo update-grub  # and restart the machine";
const RISK: &str = "with iommu=pt the IOMMU does not protect memory from the host's devices";

/// Whether a device's addresses go through untranslated, which peer-to-peer traffic needs.
pub fn examine(system: &System, subject: &Subject, address: Address) -> Finding {
    let check = Check::Iommu;
    let kind = system.text(address.file("iommu_group/type"));
    match kind.as_deref() {
        Ok("identity") => subject.ok(check, "passes addresses through"),
        Ok(kind @ ("DMA" | "DMA-FQ")) => subject
            .missing(
                check,
                format!("translates addresses ({kind}): the peer's memory may be out of reach"),
                PASS_THROUGH,
            )
            .risky(RISK),
        Ok(kind) => subject
            .unknown(check, format!("its domain is of type {kind}"), PASS_THROUGH)
            .risky(RISK),
        Err(ReadError::Absent) if system.names(GROUPS).is_ok_and(|groups| groups.is_empty()) => {
            subject.ok(check, "off")
        }
        Err(error) => subject.unknown(
            check,
            format!("type of its group: {error}"),
            "sudo dmesg | grep -i iommu",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;
    use crate::tree::Tree;

    #[test]
    fn tells_off_from_passing_through_from_translating() {
        let address: Address = "0000:18:00.0".parse().unwrap();
        let tree = Tree::empty();
        let examine = || examine(&tree.system(), &Subject::Gpu { gpu: address }, address);
        assert_eq!(examine().state, State::Unknown);
        tree.folder("sys/kernel/iommu_groups");
        assert_eq!(examine().value, "off");
        // Groups, but the device is in none that can be seen.
        tree.file("sys/kernel/iommu_groups/7/type", "identity\n");
        assert_eq!(examine().state, State::Unknown);
        tree.link(&address.file("iommu_group"), "/sys/kernel/iommu_groups/7");
        assert_eq!(examine().state, State::Ok);
        for (kind, state) in [
            ("DMA", State::Missing),
            ("DMA-FQ", State::Missing),
            ("blocked", State::Unknown),
        ] {
            tree.file("sys/kernel/iommu_groups/7/type", kind);
            assert_eq!(examine().state, state, "{kind}");
            assert_eq!(examine().risk, Some(RISK));
            assert!(!examine().remedy.unwrap().contains("reboot"));
        }
    }
}
