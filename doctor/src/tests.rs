//! Whole nodes, good and bad.

use std::time::Duration;

use super::distance::Distance;
use super::finding::{Check, Finding, State, Subject};
use super::report::Report;
use super::table::Table;
use super::tree::Tree;

/// Longer than any of these trees takes.
const LONG: Duration = Duration::from_secs(300);

const SWITCH: &str = "pci0000:15/0000:15:01.0/0000:16:00.0";

fn examine(tree: &Tree) -> Report {
    super::examine(tree.system(), LONG)
}

/// The one finding of a check about a subject whose description holds a word.
fn one<'a>(report: &'a Report, check: Check, about: &str) -> &'a Finding {
    let mut found = report
        .findings
        .iter()
        .filter(|found| found.check == check && format!("{:?}", found.subject).contains(about));
    let first = found
        .next()
        .unwrap_or_else(|| panic!("no finding on {check:?} of {about}"));
    assert_eq!(found.next(), None);
    first
}

/// The checks that stand in the way of being ready.
fn in_the_way(report: &Report) -> Vec<Check> {
    let found = report
        .findings
        .iter()
        .filter(|found| found.needed && found.state != State::Ok);
    found.map(|found| found.check).collect()
}

fn table(report: &Report, columns: usize) -> String {
    Table { report, columns }.to_string()
}

/// Whether the pairs of a good node's GPU are ready: with mlx5_0 at the same switch, with mlx5_1 at the other socket.
#[track_caller]
fn ready(report: &Report) -> [bool; 2] {
    let [near, far] = &report.pairs[..] else {
        panic!("{:?}", report.pairs);
    };
    let places = [near, far].map(|pair| (pair.nic.as_str(), pair.distance));
    let expected = [
        ("mlx5_0", Distance::SameSwitch),
        ("mlx5_1", Distance::AcrossNodes),
    ];
    assert_eq!(places, expected);
    [near.ready, far.ready]
}

/// Remedies are to be pasted, and a line that was wrapped would be pasted as two.
#[test]
fn a_narrow_terminal_wraps_all_but_remedies() {
    let tree = Tree::good_node();
    tree.acs("0000:17:01.0", 0x1d);
    let report = examine(&tree);
    let is_remedy = |line: &&str| line.trim_start().starts_with('→');
    let whole = table(&report, usize::MAX);
    let remedies: Vec<_> = whole.lines().filter(is_remedy).collect();
    assert!(remedies.iter().any(|line| line.chars().count() > 60));
    let narrow = table(&report, 60);
    assert_eq!(
        narrow.lines().filter(is_remedy).collect::<Vec<_>>(),
        remedies
    );
    let others = |table: &'_ str| table.lines().filter(|line| !is_remedy(line)).count();
    assert!(others(&narrow) > others(&whole), "{narrow}");
    let mut lines = narrow.lines().filter(|line| !is_remedy(line));
    assert!(lines.all(|line| line.chars().count() <= 60), "{narrow}");
}

#[test]
fn a_good_node_is_ready() {
    let report = examine(&Tree::good_node());
    assert_eq!(in_the_way(&report), []);
    assert!(report.ready);
    assert_eq!(ready(&report), [true, true]);
    let value = |check, about| &*one(&report, check, about).value;
    assert_eq!(value(Check::Gpu, "18:00.0"), "NVIDIA H100 80GB HBM3");
    assert_eq!(value(Check::Bar1, "18:00.0"), "128.0 GiB");
    let firmware = value(Check::Firmware, "mlx5_0");
    assert_eq!(firmware, "28.39.1002, board MT_0000000838");
    assert!(value(Check::NicDriver, "mlx5_0").contains("ConnectX-7"));
    let acs = value(Check::Acs, "mlx5_0");
    assert_eq!(acs, "off in all 2 bridges between them");
    let gids = value(Check::Gids, "mlx5_1");
    assert_eq!(gids, "1: RoCE v2 192.0.2.5 (ens1f0np0)");
}

#[test]
fn a_machine_with_nothing_gets_a_readable_list() {
    let report = examine(&Tree::empty());
    assert!(!report.ready);
    assert_eq!(one(&report, Check::Gpu, "Node").state, State::Missing);
    assert_eq!(one(&report, Check::Nic, "Node").state, State::Missing);
    assert_eq!(one(&report, Check::GpuDriver, "Node").state, State::Missing);
    assert_eq!(one(&report, Check::RdmaCore, "Node").state, State::Missing);
    for found in report
        .findings
        .iter()
        .filter(|found| found.state != State::Ok)
    {
        assert!(found.remedy.is_some(), "{found:?}");
    }
    let table = table(&report, usize::MAX);
    assert!(table.contains("NVIDIA driver"), "{table}");
    assert!(
        table.contains("\nnot ready: of the needed items,"),
        "{table}"
    );
}

#[test]
fn acs_below_a_common_switch_is_in_the_way() {
    let tree = Tree::good_node();
    tree.remove("sys/class/infiniband/mlx5_1");
    tree.remove("sys/bus/pci/devices/0000:98:00.0");
    tree.acs("0000:17:01.0", 0x1d);
    let report = examine(&tree);
    assert_eq!(in_the_way(&report), [Check::Acs]);
    assert!(!report.ready);
    let found = one(&report, Check::Acs, "mlx5_0");
    found.expect_remedy("sudo setpci -s 0000:17:01.0 ECAP_ACS+6.w=0000");
    assert!(found.risk.unwrap().contains("past the IOMMU"));
    let table = table(&report, usize::MAX);
    let (risk, remedy) = (table.find("past the IOMMU"), table.find("sudo setpci"));
    assert!(risk.unwrap() < remedy.unwrap(), "{table}");
    // Above the switch it does no harm.
    tree.acs("0000:17:01.0", 0);
    tree.acs("0000:15:01.0", 0x1d);
    tree.acs("0000:16:00.0", 0x1d);
    assert!(examine(&tree).ready);
}

#[test]
fn acs_is_unknown_to_an_ordinary_user() {
    let tree = Tree::good_node();
    tree.file("sys/bus/pci/devices/0000:17:00.0/config", [0; 64]);
    let report = examine(&tree);
    let found = one(&report, Check::Acs, "mlx5_0");
    assert_eq!((found.state, found.needed), (State::Unknown, true));
    found.expect_remedy("as root");
    // The far pair does not depend on it.
    assert_eq!(ready(&report), [false, true]);
}

#[test]
fn either_way_to_register_memory_is_enough() {
    let tree = Tree::good_node();
    tree.remove("sys/module/nvidia_peermem");
    assert!(examine(&tree).ready);
    tree.cuda("false");
    let report = examine(&tree);
    assert_eq!(in_the_way(&report), [Check::Dmabuf]);
    assert!(!report.ready);
    assert_eq!(one(&report, Check::Peermem, "Node").state, State::Missing);
    tree.folder("sys/module/nvidia_peermem");
    let report = examine(&tree);
    assert_eq!(one(&report, Check::Dmabuf, "18:00.0").state, State::Missing);
    assert!(report.ready);
}

#[test]
fn a_gpu_that_no_nic_reaches_is_not_helped_by_peermem() {
    let tree = Tree::good_node();
    let gpu = r#"{"address":"0000:18:00.0","capability":[9,0],"memory":1,"dmabuf":false,"gpu_direct_rdma":false,"writes_ordering":0}"#;
    let answer = format!(r#"{{"gpus":{{"version":13000,"gpus":[{gpu}]}}}}"#);
    tree.program("cuda-answer", &format!("echo '{answer}'"));
    let report = examine(&tree);
    assert_eq!(in_the_way(&report), [Check::Dmabuf]);
    assert!(!report.ready);
}

/// Takes something from a good node.
type Break = fn(&Tree);

#[test]
fn each_need_of_the_node_is_in_the_way_when_it_fails() {
    let breaks: [(Check, Break); 6] = [
        (Check::PeerMapping, |tree| {
            tree.file("proc/driver/nvidia/params", "RegistryDwords: \"\"\n");
        }),
        (Check::GpuFiles, |tree| tree.remove("dev/nvidia-uvm")),
        (Check::Memlock, |tree| {
            let limit = "Max locked memory   65536   65536   bytes\n";
            tree.file("proc/self/limits", limit);
        }),
        (Check::RdmaCore, |tree| {
            tree.remove("usr/lib64/libmlx5.so.1")
        }),
        (Check::Cuda, |tree| {
            let refused = r#"{"refused":{"call":"cuInit","result":803}}"#;
            tree.program("cuda-answer", &format!("echo '{refused}'"));
        }),
        (Check::GpuDriver, |tree| {
            tree.remove("proc/driver/nvidia/version")
        }),
    ];
    for (check, break_it) in breaks {
        let tree = Tree::good_node();
        break_it(&tree);
        let report = examine(&tree);
        assert!(!report.ready, "{check:?}");
        let found = one(&report, check, "Node");
        let judged = (found.state, found.needed);
        assert_eq!(judged, (State::Missing, true), "{check:?}");
    }
}

#[test]
fn one_good_pair_among_broken_ones_is_enough() {
    let tree = Tree::good_node();
    tree.file("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
    let physical = "sys/class/infiniband/mlx5_0/ports/1/phys_state";
    tree.file(physical, "2: Polling\n");
    let report = examine(&tree);
    let link = one(&report, Check::Link, "mlx5_0");
    assert_eq!(link.value, "DOWN (Polling), InfiniBand");
    assert!(report.ready);
    assert_eq!(ready(&report), [false, true]);
    tree.remove("sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/1");
    tree.remove("sys/class/infiniband/mlx5_1/ports/1/gids/1");
    let report = examine(&tree);
    assert!(!report.ready);
    assert_eq!(one(&report, Check::Gids, "mlx5_1").state, State::Missing);
}

#[test]
fn firmware_that_forbids_devx_is_in_the_way_but_not_firmware_that_nobody_can_ask() {
    let tree = Tree::good_node();
    tree.program("mlxconfig", "echo ' UCTX_EN   False(0)'");
    let report = examine(&tree);
    assert!(!report.ready);
    assert_eq!(one(&report, Check::Devx, "mlx5_0").state, State::Missing);
    tree.remove("usr/bin/mlxconfig");
    tree.remove("usr/bin/ibv_devinfo");
    let report = examine(&tree);
    assert!(report.ready);
    let found = one(&report, Check::Devx, "mlx5_0");
    assert_eq!(found.state, State::Unknown);
    assert_eq!(
        found.remedy.as_deref(),
        Some("sudo apt install mstflint; sudo mstconfig -d 0000:19:00.0 query | grep UCTX_EN")
    );
}

#[test]
fn a_card_without_its_driver_is_named() {
    let tree = Tree::good_node();
    tree.remove("sys/class/infiniband/mlx5_1");
    let report = examine(&tree);
    let found = one(&report, Check::NicDriver, "98:00.0");
    assert_eq!(found.remedy.as_deref(), Some("sudo modprobe mlx5_ib"));
    assert_eq!(report.pairs.len(), 1);
}

#[test]
fn an_iommu_that_translates_is_in_the_way() {
    let tree = Tree::good_node();
    let functions = ["0000:18:00.0", "0000:19:00.0", "0000:98:00.0"];
    for (group, function) in (7..).zip(functions) {
        let folder = format!("/sys/kernel/iommu_groups/{group}");
        tree.file(&format!("{folder}/type"), "identity\n");
        let link = format!("sys/bus/pci/devices/{function}/iommu_group");
        tree.link(&link, &folder);
    }
    assert!(examine(&tree).ready);
    tree.file("sys/kernel/iommu_groups/7/type", "DMA-FQ\n");
    let report = examine(&tree);
    assert_eq!(in_the_way(&report), [Check::Iommu]);
    assert!(!report.ready);
}

#[test]
fn no_file_is_trusted() {
    let tree = Tree::good_node();
    let files = tree.files();
    assert!(files.len() > 60, "{}", files.len());
    let hostile: [&[u8]; 5] = [
        b"",
        b"\xff\x00\xfe\x1b[2J",
        b"-1",
        b"99999999999999999999999999",
        b"0xffffffffffffffff 0x0 0x0\n0xffffffffffffffff 0x0 0x0\n",
    ];
    for content in hostile {
        let tree = Tree::good_node();
        for file in &files {
            tree.file(file, content);
        }
        let report = examine(&tree);
        assert!(!report.ready, "{content:?}");
        assert_no_control_characters(&report);
    }
}

#[test]
fn each_file_alone_may_be_hostile() {
    let good = || {
        let tree = Tree::good_node();
        // Only the files are looked at here, and starting programs takes its time.
        for name in ["cuda-answer", "ibv_devinfo", "mlxconfig"] {
            tree.remove(&format!("usr/bin/{name}"));
        }
        tree
    };
    let before = in_the_way(&examine(&good())).len();
    let huge = vec![b'7'; 1 << 20];
    for file in good().files() {
        let tree = good();
        let broken = |report: &Report| {
            let now = in_the_way(report);
            // A file describes one device, its port, and at most the bridges to another device.
            assert!(now.len() <= before + 4, "{file}: {now:?}");
        };
        tree.file(&file, &huge);
        broken(&examine(&tree));
        tree.remove(&file);
        broken(&examine(&tree));
        tree.fifo(&file);
        broken(&examine(&tree));
    }
}

#[test]
fn programs_that_hang_cost_their_deadline_and_no_more() {
    let tree = Tree::good_node();
    for name in ["mlxconfig", "ibv_devinfo"] {
        // Longer than the deadline below, and short enough to end soon after the tests.
        tree.program(name, "exec sleep 20");
    }
    // Time for the others on a busy machine, and less than a program gets.
    let report = super::examine(tree.system(), Duration::from_secs(6));
    let found = one(&report, Check::Examination, "mlx5_0");
    assert_eq!((found.state, found.needed), (State::Unknown, true));
    let other = one(&report, Check::Examination, "mlx5_1");
    assert_eq!(other.state, State::Unknown);
    assert!(!report.ready);
    // The others have answered.
    assert_eq!(one(&report, Check::GpuDriver, "Node").state, State::Ok);
}

#[test]
fn the_json_tells_what_the_table_tells() {
    let tree = Tree::good_node();
    tree.acs("0000:17:01.0", 0x1d);
    let report = examine(&tree);
    let json: serde_json::Value =
        serde_json::from_str(&serde_json::to_string(&report).unwrap()).unwrap();
    assert_eq!(json["format"], 1);
    assert_eq!(json["ready"], true);
    assert_eq!(json["pairs"][0]["gpu"], "0000:18:00.0");
    assert_eq!(json["pairs"][0]["distance"], "same-switch");
    assert_eq!(json["pairs"][0]["ready"], false);
    let findings = json["findings"].as_array().unwrap();
    assert_eq!(findings.len(), report.findings.len());
    let acs = findings
        .iter()
        .find(|found| found["check"] == "acs")
        .unwrap();
    assert_eq!(acs["state"], "missing");
    assert_eq!(acs["needed"], true);
    assert_eq!(
        acs["subject"],
        serde_json::json!({"kind": "pair", "gpu": "0000:18:00.0", "nic": "mlx5_0"})
    );
    let table = table(&report, usize::MAX);
    let nearest =
        |found: &&Finding| !matches!(&found.subject, Subject::Pair { nic, .. } if nic == "mlx5_1");
    for found in report.findings.iter().filter(nearest) {
        assert!(table.contains(&found.value), "{}", found.value);
    }
    assert!(
        table.contains("ready: GPU 0000:18:00.0 with NIC mlx5_1"),
        "{table}"
    );
    assert!(
        !table.contains("GPU 0000:18:00.0 with NIC mlx5_0:"),
        "{table}"
    );
}

#[test]
fn functions_of_a_virtual_machine_have_no_distance() {
    let tree = Tree::good_node();
    for (function, below) in [
        ("0000:18:00.0", "0000:17:00.0"),
        ("0000:19:00.0", "0000:17:01.0"),
    ] {
        let moved = format!("/sys/devices/{SWITCH}/{below}/{function}");
        let to = format!("/sys/devices/pci0000:00/{function}");
        tree.rename(&moved, &to);
        tree.link(&format!("sys/bus/pci/devices/{function}"), &to);
        if function == "0000:19:00.0" {
            tree.link(
                "sys/class/infiniband/mlx5_0",
                &format!("{to}/infiniband/mlx5_0"),
            );
        }
    }
    let report = examine(&tree);
    assert_eq!(report.pairs[0].distance, Distance::Unknown);
    let found = one(&report, Check::Acs, "mlx5_0");
    assert_eq!((found.state, found.needed), (State::Unknown, true));
}

fn assert_no_control_characters(report: &Report) {
    for found in &report.findings {
        let remedy = found.remedy.as_deref().unwrap_or_default();
        assert!(!found.value.chars().any(char::is_control), "{found:?}");
        assert!(!remedy.chars().any(char::is_control), "{found:?}");
    }
}
