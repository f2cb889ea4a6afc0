//! GPUs: which there are, and what each one brings.

use std::collections::BTreeSet;

use super::cuda::{self, Answer};
use super::driver::{self, Driver};
use super::finding::{Check, Finding, Subject};
use super::iommu;
use super::node::cuda_version;
use super::pci::{self, Address};
use super::system::{ProgramError, ReadError, System};

/// The first kernel whose DEVX registers dmabufs as umems.
const DMABUF_KERNEL: (u32, u32) = (6, 1);

/// How many lines of the file `resource` are a function's own regions; more may follow.
const REGIONS: usize = 6;
/// A window smaller than this is not worth trying.
const SMALLEST_BAR1: u64 = 64 << 20;

/// The GPUs of the node: those on the bus, and those that only the driver or CUDA shows.
pub fn list(system: &System, cuda: &Result<Answer, ProgramError>) -> Vec<Address> {
    let mut gpus = BTreeSet::from_iter(pci::functions(
        system,
        pci::VENDOR_NVIDIA,
        pci::CLASS_DISPLAY,
    ));
    let names = system.names("/proc/driver/nvidia/gpus").unwrap_or_default();
    gpus.extend(names.iter().filter_map(|name| name.parse::<Address>().ok()));
    if let Ok(Answer::Gpus(found)) = cuda {
        gpus.extend(found.gpus.iter().map(|gpu| gpu.address));
    }
    gpus.into_iter().collect()
}

/// Examines one GPU.
pub fn examine(system: &System, gpu: Address, cuda: &Result<Answer, ProgramError>) -> Vec<Finding> {
    let (version, known) = match cuda {
        Ok(Answer::Gpus(found)) => {
            let known = found.gpus.iter().find(|known| known.address == gpu);
            (found.version, known)
        }
        _ => (0, None),
    };
    let subject = Subject::Gpu { gpu };
    let mut findings = vec![
        model(system, &subject, gpu),
        kernels(&subject, version, known),
    ];
    let mut dmabuf = dmabuf(system, &subject, known);
    // nvidia_peermem is the other way. Where both are closed, dmabuf is the one to open.
    let peermem = driver::peermem_module(system).is_some();
    dmabuf.needed = !peermem || known.is_some_and(|known| !known.gpu_direct_rdma);
    findings.push(dmabuf);
    findings.push(inbound_order(&subject, known));
    findings.extend(bar1(system, &subject, gpu, known));
    findings.push(iommu::examine(system, &subject, gpu));
    findings
}

fn model(system: &System, subject: &Subject, gpu: Address) -> Finding {
    let check = Check::Gpu;
    let information = system.text(format!("/proc/driver/nvidia/gpus/{gpu}/information"));
    let information = information.unwrap_or_default();
    let mut lines = information.lines();
    let model = lines.find_map(|line| Some(line.strip_prefix("Model:")?.trim()));
    match (model, gpu.driver(system)) {
        (Some(model), _) => subject.ok(check, model),
        (None, Some(driver)) if driver == "nvidia" => subject.ok(check, "driven by nvidia"),
        (None, Some(driver)) => subject.missing(
            check,
            format!("driven by {driver}"),
            "sudo modprobe -r nouveau && sudo modprobe nvidia",
        ),
        (None, None) => subject.missing(check, "no driver has it", "sudo modprobe nvidia"),
    }
}

/// Whether the kernels that Warpbell carries run on it: those for sm_80 want PTX ISA 8.2, which came with
/// CUDA 12.2; those for sm_90 and sm_100 want 8.6, which came with 12.7.
fn kernels(subject: &Subject, version: i32, gpu: Option<&cuda::Gpu>) -> Finding {
    let check = Check::Kernels;
    let Some(gpu) = gpu else {
        return subject.unknown(check, "CUDA does not show this GPU", "nvidia-smi");
    };
    let (major, minor) = gpu.capability;
    let needed = if major < 9 { 12_020 } else { 12_070 };
    let text = format!(
        "compute capability {major}.{minor}, driver for {}",
        cuda_version(version)
    );
    if major < 8 {
        let text = format!("{text}; 8.0 or newer is needed");
        subject.missing(check, text, "a GPU of generation Ampere or newer")
    } else if version < needed {
        let text = format!("{text}; {} or newer is needed", cuda_version(needed));
        subject.missing(
            check,
            text,
            "sudo apt upgrade nvidia-open  # or: sudo dnf upgrade nvidia-open",
        )
    } else {
        subject.ok(check, text)
    }
}

/// Whether its memory can be registered with a NIC as a dmabuf.
fn dmabuf(system: &System, subject: &Subject, gpu: Option<&cuda::Gpu>) -> Finding {
    let check = Check::Dmabuf;
    let load_peermem = "sudo modprobe nvidia-peermem  # the other way";
    let use_open = "sudo apt install nvidia-open  # and restart the machine; the other way: \
        sudo modprobe nvidia-peermem";
    if let Some(gpu) = gpu {
        return match (gpu.dmabuf, gpu.gpu_direct_rdma) {
            (true, _) => kernel_side(system, subject, load_peermem),
            (false, true) => subject.missing(check, "CUDA says that it cannot", use_open),
            (false, false) => subject.missing(
                check,
                "CUDA says that no NIC can reach the memory of this GPU",
                "a GPU with GPUDirect RDMA",
            ),
        };
    }
    match Driver::read(system) {
        Ok(Driver { open: false, .. }) => {
            subject.missing(check, "closed kernel modules cannot do this", use_open)
        }
        Ok(_) => subject.unknown(
            check,
            "open kernel modules, but CUDA does not show this GPU",
            "nvidia-smi",
        ),
        Err(ReadError::Absent) => subject.missing(check, "no driver", use_open),
        Err(error) => subject.unknown(
            check,
            format!("the driver's version: {error}"),
            "nvidia-smi",
        ),
    }
}

/// The NIC's half of dmabuf: the kernel.
fn kernel_side(system: &System, subject: &Subject, load_peermem: &str) -> Finding {
    let check = Check::Dmabuf;
    let release = system
        .text("/proc/sys/kernel/osrelease")
        .unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map(str::parse);
    let (oldest_major, oldest_minor) = DMABUF_KERNEL;
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= DMABUF_KERNEL => {
            subject.ok(check, format!("CUDA exports it, Linux {release} accepts it"))
        }
        // Distributions bring newer RDMA drivers to older kernels.
        _ => subject.unknown(
            check,
            format!(
                "CUDA exports it; Linux {release} may not accept it: {oldest_major}.{oldest_minor} does"
            ),
            load_peermem,
        ),
    }
}

/// Whether a kernel must flush before it reads the data that a NIC has written ahead of a flag.
fn inbound_order(subject: &Subject, gpu: Option<&cuda::Gpu>) -> Finding {
    let check = Check::InboundOrder;
    let finding = match gpu.map(|gpu| gpu.writes_ordering) {
        None => subject.unknown(check, "CUDA does not show this GPU", "nvidia-smi"),
        Some(200..) => subject.ok(check, "kernels of all GPUs see a NIC's writes in order"),
        Some(100..) => subject.ok(check, "its own kernels see a NIC's writes in order"),
        Some(_) => subject.missing(
            check,
            "its kernels flush before they read what a NIC has written",
            "nothing to fix: see docs/inbound.md",
        ),
    };
    finding.optional()
}

/// How much of its memory a NIC reaches at once.
fn bar1(
    system: &System,
    subject: &Subject,
    gpu: Address,
    known: Option<&cuda::Gpu>,
) -> Vec<Finding> {
    let check = Check::Bar1;
    let unknown = |why: &str| vec![subject.unknown(check, why, "nvidia-smi -q -d MEMORY")];
    let resource = system.text(gpu.file("resource"));
    let size = match resource.as_deref().map(window) {
        Ok(Some(size)) => size,
        Ok(None) => return unknown("its file resource is broken"),
        Err(error) => return unknown(&format!("its file resource: {error}")),
    };
    let remedy = "firmware set-up (BIOS): turn on Above 4G Decoding and Resizable BAR";
    if size < SMALLEST_BAR1 {
        return vec![subject.missing(check, in_units(size), remedy)];
    }
    let mut findings = vec![subject.ok(check, in_units(size))];
    if let Some(known) = known.filter(|known| size < known.memory) {
        let (less, memory) = (in_units(known.memory - size), in_units(known.memory));
        let text =
            format!("{less} less than its memory of {memory}: not all can be registered at once");
        findings.push(subject.missing(check, text, remedy).optional());
    }
    findings
}

/// The size of BAR1, the window into the GPU's memory, by the file `resource`.
///
/// BAR1 is the region at line 1 where BAR0 has 32 bits (A100), at line 2 where it has 64 (H100); it is
/// always the largest.
fn window(resource: &str) -> Option<u64> {
    let regions = resource.lines().take(REGIONS).map(region_size);
    regions.collect::<Option<Vec<_>>>()?.into_iter().max()
}

/// The size of a region, by its line `start end flags`; 0 where it has no address.
fn region_size(line: &str) -> Option<u64> {
    let mut numbers = line.split_whitespace().map(|word| {
        let digits = word.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    });
    let (start, end) = (numbers.next()??, numbers.next()??);
    if start == 0 && end == 0 {
        return Some(0);
    }
    end.checked_sub(start)?.checked_add(1)
}

/// A size such as `128 GiB`.
fn in_units(bytes: u64) -> String {
    match bytes {
        0x4000_0000.. => format!("{:.1} GiB", bytes as f64 / (1u64 << 30) as f64),
        _ => format!("{} MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;
    use crate::tree::Tree;

    const SUBJECT: Subject = Subject::Node;

    fn known(capability: (i32, i32), dmabuf: bool) -> cuda::Gpu {
        cuda::Gpu {
            address: "0000:18:00.0".parse().unwrap(),
            capability,
            memory: 80 << 30,
            dmabuf,
            gpu_direct_rdma: true,
            writes_ordering: 100,
        }
    }

    #[test]
    fn the_window_is_found_wherever_it_lies() {
        let a100 = "0x00000000c5000000 0x00000000c5ffffff 0x0000000000040200\n\
            0x0000380000000000 0x0000380fffffffff 0x000000000014220c\n\
            0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
            0x0000381000000000 0x0000381001ffffff 0x000000000014220c\n";
        let h100 = "0x0000382040000000 0x0000382040ffffff 0x000000000014220c\n\
            0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
            0x0000380000000000 0x0000381fffffffff 0x000000000014220c\n";
        assert_eq!(window(a100), Some(64 << 30));
        assert_eq!(window(h100), Some(128 << 30));
        // The regions of virtual functions come behind its own.
        let mut with_virtual_functions = a100.to_owned() + &"0x0 0x0 0x0\n".repeat(3);
        with_virtual_functions += "0x0000390000000000 0x0000393fffffffff 0x000000000014220c\n";
        assert_eq!(window(&with_virtual_functions), Some(64 << 30));
    }

    #[test]
    fn a_broken_list_of_regions_has_no_window() {
        assert_eq!(window("0x0 0x0 0x0"), Some(0));
        assert_eq!(window(""), None);
        for broken in ["0x1 0x0 0x0", "0x0 0xffffffffffffffff 0x0", "1 2 3", "0x1"] {
            assert_eq!(window(broken), None, "{broken}");
        }
        assert_eq!(in_units(128 << 30), "128.0 GiB");
        assert_eq!(in_units(256 << 20), "256 MiB");
    }

    #[test]
    fn a_window_is_held_against_the_memory() {
        let gpu = known((9, 0), true);
        let judged = |size: u64| {
            let tree = Tree::empty();
            let resource = format!("0x1000000000 {:#x} 0x14220c\n", 0x10_0000_0000 + size - 1);
            tree.file(&gpu.address.file("resource"), resource);
            let findings = bar1(&tree.system(), &SUBJECT, gpu.address, Some(&gpu));
            let states = findings.iter().map(|found| (found.state, found.needed));
            states.collect::<Vec<_>>()
        };
        assert_eq!(judged(128 << 30), [(State::Ok, true)]);
        assert_eq!(
            judged(256 << 20),
            [(State::Ok, true), (State::Missing, false)]
        );
        assert_eq!(judged(32 << 20), [(State::Missing, true)]);
        let found = bar1(&Tree::empty().system(), &SUBJECT, gpu.address, None);
        assert_eq!(found[0].state, State::Unknown);
    }

    #[test]
    fn the_ptx_bounds_the_driver_from_below() {
        let state =
            |capability, version| kernels(&SUBJECT, version, Some(&known(capability, true))).state;
        assert_eq!(state((9, 0), 12_070), State::Ok);
        assert_eq!(state((9, 0), 12_060), State::Missing);
        assert_eq!(state((8, 9), 12_020), State::Ok);
        assert_eq!(state((8, 0), 12_010), State::Missing);
        assert_eq!(state((7, 5), 13_000), State::Missing);
        assert_eq!(kernels(&SUBJECT, 13_000, None).state, State::Unknown);
    }

    #[test]
    fn dmabuf_wants_both_halves() {
        let tree = Tree::empty();
        let state = |gpu: Option<&cuda::Gpu>| dmabuf(&tree.system(), &SUBJECT, gpu).state;
        let (gives, refuses) = (known((9, 0), true), known((9, 0), false));
        assert_eq!(state(Some(&gives)), State::Unknown);
        for (release, expected) in [
            ("6.1.0-13-amd64", State::Ok),
            ("10.0.1", State::Ok),
            ("5.15.0-91-generic", State::Unknown),
            ("nonsense", State::Unknown),
        ] {
            tree.file("proc/sys/kernel/osrelease", release);
            assert_eq!(state(Some(&gives)), expected, "{release}");
        }
        assert_eq!(state(Some(&refuses)), State::Missing);
        assert_eq!(state(None), State::Missing);
        for (version, expected) in [
            ("x86_64 Kernel Module  535.183.01", State::Missing),
            ("Open Kernel Module for x86_64  580.159.04", State::Unknown),
        ] {
            tree.file(
                "proc/driver/nvidia/version",
                format!("NVIDIA UNIX {version}"),
            );
            assert_eq!(state(None), expected, "{version}");
        }
    }

    #[test]
    fn the_order_of_inbound_writes_is_told_and_does_not_count() {
        let found = |writes_ordering: Option<i32>| {
            let gpu = writes_ordering.map(|writes_ordering| cuda::Gpu {
                writes_ordering,
                ..known((9, 0), true)
            });
            let finding = inbound_order(&SUBJECT, gpu.as_ref());
            (finding.state, finding.needed)
        };
        assert_eq!(found(None), (State::Unknown, false));
        assert_eq!(found(Some(0)), (State::Missing, false));
        assert_eq!(found(Some(100)), (State::Ok, false));
        assert_eq!(found(Some(200)), (State::Ok, false));
    }

    #[test]
    fn gpus_that_only_the_driver_shows_are_listed() {
        let tree = Tree::empty();
        let gpus = "proc/driver/nvidia/gpus";
        let model = "Model: \t NVIDIA H200\n";
        tree.file(&format!("{gpus}/0000:3b:00.0/information"), model);
        tree.file(&format!("{gpus}/nonsense/information"), "");
        let answer = Answer::Gpus(cuda::Gpus {
            version: 13_000,
            gpus: vec![known((9, 0), true)],
        });
        let gpus = list(&tree.system(), &Ok(answer));
        let gpus: Vec<_> = gpus.iter().map(Address::to_string).collect();
        assert_eq!(gpus, ["0000:18:00.0", "0000:3b:00.0"]);
    }
}
