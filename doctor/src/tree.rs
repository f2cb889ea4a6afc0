//! Trees that look like machines, for the tests.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use super::acs::CONFIG_SIZE;
use super::system::System;

/// A folder that stands for `/`.
pub struct Tree(TempDir);

impl Tree {
    /// A machine with nothing.
    pub fn empty() -> Self {
        Self(TempDir::new().unwrap())
    }

    /// A node that has all: an H100 and a ConnectX-7 of InfiniBand below one switch, and a ConnectX-7 of
    /// RoCE at the other socket.
    pub fn good_node() -> Self {
        let tree = Self::empty();
        tree.linux();
        tree.nvidia();
        tree.rdma_core("44.0");
        tree.folder("sys/kernel/iommu_groups");
        let switch = "pci0000:15/0000:15:01.0/0000:16:00.0";
        for bridge in ["pci0000:15/0000:15:01.0", switch, "pci0000:97/0000:97:01.0"] {
            tree.bridge(bridge, Some(0));
        }
        tree.bridge(&format!("{switch}/0000:17:00.0"), Some(0));
        tree.bridge(&format!("{switch}/0000:17:01.0"), Some(0));
        tree.h100(&format!("{switch}/0000:17:00.0/0000:18:00.0"));
        tree.connectx7(0, &format!("{switch}/0000:17:01.0/0000:19:00.0"), 0);
        tree.infiniband_port(0);
        tree.connectx7(1, "pci0000:97/0000:97:01.0/0000:98:00.0", 1);
        tree.roce_port(1);
        tree.cuda("true");
        tree.program("ibv_devinfo", "echo '\tatomic_cap:\t\tATOMIC_HCA (1)'");
        tree.program(
            "mlxconfig",
            "echo ' UCTX_EN   True(1)'; echo ' PCI_WR_ORDERING per_mkey(0)'",
        );
        tree
    }

    pub fn system(&self) -> System {
        System::below(self.0.path())
    }

    /// Writes a file; its path is that of the machine, with or without the first `/`.
    pub fn file(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.make_parent(path);
        // Through a link, if there is one: that is how sysfs is written, too.
        fs::write(path, content).unwrap();
    }

    pub fn folder(&self, path: &str) {
        fs::create_dir_all(self.at(path)).unwrap();
    }

    /// Makes a link; a target that begins with `/` is one of the machine.
    pub fn link(&self, path: &str, target: &str) {
        let path = self.make_parent(path);
        let target = match target.strip_prefix('/') {
            Some(_) => self.at(target),
            None => target.into(),
        };
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
    }

    pub fn fifo(&self, path: &str) {
        let path = self.make_parent(path);
        let _ = fs::remove_file(&path);
        mknodat(CWD, path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    }

    /// Makes a program of the shell.
    pub fn program(&self, name: &str, script: &str) {
        let path = self.make_parent(&format!("usr/bin/{name}"));
        let _ = fs::remove_file(&path);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    pub fn rename(&self, from: &str, to: &str) {
        fs::rename(self.at(from), self.make_parent(to)).unwrap();
    }

    pub fn remove(&self, path: &str) {
        let path = self.at(path);
        fs::remove_file(&path)
            .or_else(|_| fs::remove_dir_all(path))
            .unwrap();
    }

    /// All files below `/sys`, `/proc` and `/dev`, links left out.
    pub fn files(&self) -> Vec<String> {
        let mut files = Vec::new();
        let mut folders: Vec<_> = ["sys", "proc", "dev"].map(|name| self.at(name)).into();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let entry = entry.unwrap();
                let kind = entry.file_type().unwrap();
                if kind.is_dir() {
                    folders.push(entry.path());
                } else if kind.is_file() {
                    let path = entry.path();
                    let inside = path.strip_prefix(self.0.path()).unwrap();
                    files.push(inside.to_str().unwrap().to_owned());
                }
            }
        }
        files.sort();
        files
    }

    /// The answer that the tree's CUDA gives; `dmabuf` is `true` or `false`.
    pub fn cuda(&self, dmabuf: &str) {
        let gpu = format!(
            r#"{{"address":"0000:18:00.0","capability":[9,0],"memory":85899345920,"dmabuf":{dmabuf},"gpu_direct_rdma":true,"writes_ordering":100}}"#
        );
        self.program(
            "cuda-answer",
            &format!(r#"echo '{{"gpus":{{"version":13000,"gpus":[{gpu}]}}}}'"#),
        );
    }

    /// Sets the control register of a bridge's ACS.
    pub fn acs(&self, bridge: &str, control: u8) {
        let mut config = vec![0; CONFIG_SIZE as usize];
        // At 0x100 an ACS capability of version 1, the last of the list.
        config[0x100..0x104].copy_from_slice(&[0x0d, 0, 1, 0]);
        config[0x106] = control;
        self.file(&format!("sys/bus/pci/devices/{bridge}/config"), config);
    }

    fn linux(&self) {
        self.file("proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
        self.file(
            "proc/self/status",
            "Name:\txtask\nCapEff:\t0000000000000000\n",
        );
        self.file("proc/self/uid_map", "0 0 4294967295\n");
        self.file(
            "proc/self/limits",
            "Max locked memory         unlimited            unlimited            bytes\n",
        );
    }

    fn nvidia(&self) {
        let version =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n";
        self.file("proc/driver/nvidia/version", version);
        self.file(
            "proc/driver/nvidia/params",
            "EnableMSI: 1\nRegistryDwords: \"PeerMappingOverride=1;\"\n",
        );
        self.file(
            "proc/driver/nvidia/gpus/0000:18:00.0/information",
            "Model: \t\t NVIDIA H100 80GB HBM3\n",
        );
        self.file("dev/nvidiactl", "");
        self.file("dev/nvidia-uvm", "");
        self.folder("sys/module/nvidia_peermem");
        self.folder("sys/module/mlx5_ib");
    }

    fn rdma_core(&self, version: &str) {
        for (name, interface) in [("libibverbs", "1.14"), ("libmlx5", "1.24")] {
            let file = format!("{name}.so.{interface}.{version}");
            self.file(&format!("usr/lib64/{file}"), "");
            self.link(&format!("usr/lib64/{name}.so.1"), &file);
        }
    }

    /// A PCI function at its path below `/sys/devices`.
    fn function(
        &self,
        path: &str,
        vendor: &str,
        device: &str,
        class: &str,
        numa: Option<u32>,
    ) -> String {
        let folder = format!("sys/devices/{path}");
        let address = path.rsplit('/').next().unwrap();
        for (name, content) in [("vendor", vendor), ("device", device), ("class", class)] {
            self.file(&format!("{folder}/{name}"), format!("{content}\n"));
        }
        let numa = numa.map_or("-1".into(), |node| node.to_string());
        self.file(&format!("{folder}/numa_node"), format!("{numa}\n"));
        self.link(
            &format!("sys/bus/pci/devices/{address}"),
            &format!("../../../devices/{path}"),
        );
        folder
    }

    fn bridge(&self, path: &str, numa: Option<u32>) {
        self.function(path, "0x1000", "0xc030", "0x060400", numa);
        self.acs(path.rsplit('/').next().unwrap(), 0);
    }

    fn h100(&self, path: &str) {
        let folder = self.function(path, "0x10de", "0x2330", "0x030200", Some(0));
        self.file(
            &format!("{folder}/resource"),
            "0x0000382040000000 0x0000382040ffffff 0x000000000014220c\n\
             0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
             0x0000380000000000 0x0000381fffffffff 0x000000000014220c\n",
        );
        self.folder("sys/bus/pci/drivers/nvidia");
        self.link(&format!("{folder}/driver"), "/sys/bus/pci/drivers/nvidia");
    }

    fn connectx7(&self, number: u32, path: &str, numa: u32) {
        let folder = self.function(path, "0x15b3", "0x1021", "0x020700", Some(numa));
        self.folder("sys/bus/pci/drivers/mlx5_core");
        self.link(
            &format!("{folder}/driver"),
            "/sys/bus/pci/drivers/mlx5_core",
        );
        let device = format!("{folder}/infiniband/mlx5_{number}");
        self.file(&format!("{device}/fw_ver"), "28.39.1002\n");
        self.file(&format!("{device}/board_id"), "MT_0000000838\n");
        self.link(&format!("{device}/device"), "../..");
        self.link(
            &format!("sys/class/infiniband/mlx5_{number}"),
            &format!("/{device}"),
        );
        let verbs = format!("sys/class/infiniband_verbs/uverbs{number}/ibdev");
        self.file(&verbs, format!("mlx5_{number}\n"));
        self.file(&format!("dev/infiniband/uverbs{number}"), "");
    }

    fn port(&self, number: u32, layer: &str) -> String {
        let port = format!("sys/class/infiniband/mlx5_{number}/ports/1");
        self.file(&format!("{port}/state"), "4: ACTIVE\n");
        self.file(&format!("{port}/phys_state"), "5: LinkUp\n");
        self.file(&format!("{port}/rate"), "400 Gb/sec (4X NDR)\n");
        self.file(&format!("{port}/link_layer"), format!("{layer}\n"));
        port
    }

    fn infiniband_port(&self, number: u32) {
        let port = self.port(number, "InfiniBand");
        self.file(
            &format!("{port}/gids/0"),
            "fe80:0000:0000:0000:9803:9b03:0098:6a4c\n",
        );
        self.file(&format!("{port}/gid_attrs/types/0"), "IB/RoCE v1\n");
    }

    fn roce_port(&self, number: u32) {
        let port = self.port(number, "Ethernet");
        for (index, kind) in [(0, "IB/RoCE v1"), (1, "RoCE v2")] {
            self.file(
                &format!("{port}/gids/{index}"),
                "0000:0000:0000:0000:0000:ffff:c000:0205\n",
            );
            self.file(
                &format!("{port}/gid_attrs/types/{index}"),
                format!("{kind}\n"),
            );
            self.file(&format!("{port}/gid_attrs/ndevs/{index}"), "ens1f0np0\n");
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn make_parent(&self, path: &str) -> PathBuf {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
        path
    }
}
