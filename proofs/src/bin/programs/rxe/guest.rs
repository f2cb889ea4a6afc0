//! The virtual machine: QEMU without acceleration, which runs what a line on its serial port says.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use warpbell_proofs::namespace::Namespace;

use super::files;

/// The program that is the virtual machine.
pub const QEMU: &str = "qemu-system-x86_64";
/// What has its link lose, delay, reorder and double packets, both ways.
pub const BAD_LINK: &str = "netem";
/// The host's end of the link, and its address there. IPv6's is fd77::1.
pub const TAP: &str = "tap0";
pub const HOST: &str = "10.77.0.1";
/// The virtual machine's addresses of either kind.
pub const ADDRESSES: [&str; 2] = ["10.77.0.2", "fd77::2"];
/// Its GIDs, which are these addresses.
const GIDS: [&str; 2] = [
    "0000:0000:0000:0000:0000:ffff:0a4d:0002",
    "fd77:0000:0000:0000:0000:0000:0000:0002",
];
/// What it says when it is up, when the server that it started listens, and, with the status, when a command has ended.
const IS_UP: &str = "@@ up";
const HAS_NO_RXE: &str = "@@ no rxe";
const LISTENS: &str = "@@ listens";
const ENDED: &str = "@@ ended ";
/// How long it may take to start on a busy machine: 5 s on an idle one.
const START: Duration = Duration::from_secs(300);
/// How long a command there may take, in seconds.
const PATIENCE: u32 = 100;
/// Memory, in MiB.
const MEMORY: &str = "384";

/// Modules of the kernel, each behind those that it needs.
const MODULES: [&str; 19] = [
    "crc32_generic",
    "virtio_ring",
    "virtio",
    "failover",
    "net_failover",
    "virtio_net",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "udp_tunnel",
    "ip6_udp_tunnel",
    "ib_core",
    "ib_uverbs",
    "rdma_rxe",
    "sch_netem",
    // Makes the interface ifb0.
    "ifb",
    "sch_ingress",
    "act_mirred",
    "cls_matchall",
];
/// Programs beside busybox.
const PROGRAMS: [&str; 10] = [
    "ip",
    "tc",
    "rdma",
    "ibv_rc_pingpong",
    "ibv_uc_pingpong",
    "ibv_ud_pingpong",
    "ib_write_bw",
    "ib_read_lat",
    "ib_atomic_lat",
    "ib_send_bw",
];

/// A virtual machine that is up. It ends when this is dropped.
pub struct Guest {
    machine: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.machine.kill();
        let _ = self.machine.wait();
    }
}

/// The call of a program there: at a port, by the GID of IPv4 (0) or of IPv6 (1).
pub fn call(program: &str, port: &str, family: usize, options: &str) -> String {
    let gid = GIDS[family];
    let index = match program.ends_with("_pingpong") {
        true => "-g",
        false => "-F -x",
    };
    format!("timeout {PATIENCE} {program} -d rxe0 -p {port} {index} $(index {gid}) {options}")
}

/// What the virtual machine runs from its start on.
fn init() -> String {
    let modules = MODULES.join(" ");
    let [v4, v6] = ADDRESSES;
    let [gid4, gid6] = GIDS;
    // A mark stands on a line of its own, whatever was said before. Programs that busybox has as well need their path.
    // What comes in goes through ifb0, so that the link is bad both ways.
    let bad = "delay 2ms 1ms loss 1% duplicate 2% reorder 25% 50%";
    format!(
        r#"#!/bin/busybox sh
/bin/busybox --install -s /applets
export PATH=/bin:/applets
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
stty -echo
for module in {modules}; do insmod /modules/$module.ko; done
mark() {{ printf "\n%s\n" "$1"; }}
index() {{
	grep -l "$1" /sys/class/infiniband/rxe0/ports/1/gids/* 2>/dev/null | head -n 1 | sed 's,.*/,,'
}}
listens() {{
	for _ in $(seq 600); do
		if grep -q ":$1 [0-9A-F:]* 0A" /proc/net/tcp /proc/net/tcp6; then mark "{LISTENS}"; return; fi
		sleep 0.1
	done
}}
serve() {{
	listens "$1" &
	shift
	"$@"
}}
{BAD_LINK}() {{
	/bin/tc qdisc add dev eth0 root netem {bad} &&
		/bin/ip link set ifb0 up &&
		/bin/tc qdisc add dev ifb0 root netem {bad} &&
		/bin/tc qdisc add dev eth0 ingress &&
		/bin/tc filter add dev eth0 ingress matchall action mirred egress redirect dev ifb0
}}
/bin/ip link set lo up
/bin/ip addr add {v4}/24 dev eth0
/bin/ip addr add {v6}/64 dev eth0 nodad
/bin/ip link set eth0 up
/bin/rdma link add rxe0 type rxe netdev eth0
is="{HAS_NO_RXE}"
for _ in $(seq 600); do
	if [ -n "$(index {gid4})" ] && [ -n "$(index {gid6})" ]; then is="{IS_UP}"; break; fi
	sleep 0.1
done
mark "$is"
while read -r line; do
	eval "$line"
	mark "{ENDED}$?"
done
poweroff -f
"#
    )
}

impl Guest {
    /// Makes the link to a namespace, boots the kernel there, and waits until rxe is up.
    pub fn boot(kernel: &Path, namespace: &Namespace) -> Result<Self, String> {
        for words in [
            format!("tuntap add {TAP} mode tap"),
            format!("addr add {HOST}/24 dev {TAP}"),
            format!("addr add fd77::1/64 dev {TAP} nodad"),
            format!("link set {TAP} up"),
        ] {
            namespace.ip(&words)?;
        }
        let archive = files::archive(kernel, &init(), &MODULES, &PROGRAMS)?;
        let mut call = Command::new(QEMU);
        call.args(["-accel", "tcg", "-m", MEMORY, "-nodefaults", "-nographic"])
            .args(["-no-reboot", "-serial", "stdio"])
            .args(["-device", "virtio-net-pci,netdev=net"])
            .arg("-netdev")
            .arg(format!("tap,id=net,ifname={TAP},script=no,downscript=no"))
            .arg("-kernel")
            .arg(files::image(kernel)?)
            .arg("-initrd")
            .arg(archive.path())
            .args(["-append", "console=ttyS0 loglevel=1 panic=-1"]);
        let mut machine = namespace
            .call(&call)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(|error| format!("no virtual machine: {error}"))?;
        let (Some(orders), Some(output)) = (machine.stdin.take(), machine.stdout.take()) else {
            return Err("the virtual machine has no serial port".into());
        };
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            // Ends with the virtual machine.
            while output
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
            {
                let text = String::from_utf8_lossy(&line).trim().to_owned();
                if sender.send(text).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let mut guest = Self {
            machine,
            orders,
            lines,
        };
        let is_known = |line: &str| [IS_UP, HAS_NO_RXE].contains(&line);
        let said = guest.until(is_known, Instant::now() + START)?;
        match said.last().is_some_and(|last| last == IS_UP) {
            true => Ok(guest),
            false => Err(said.join("\n")),
        }
    }

    /// Has it run a line.
    pub fn order(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.orders, "{line}").map_err(|error| format!("no virtual machine: {error}"))
    }

    /// Reads until a line that is wanted, and gives all lines before.
    fn until(
        &mut self,
        wanted: impl Fn(&str) -> bool,
        deadline: Instant,
    ) -> Result<Vec<String>, String> {
        let mut said = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let is_last = wanted(&line);
                    said.push(line);
                    if is_last {
                        return Ok(said);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("the virtual machine is late: {}", said.join("\n")));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(format!("the virtual machine ended: {}", said.join("\n")));
                }
            }
        }
    }

    /// Waits until the server that it was told to serve listens.
    pub fn listens(&mut self, deadline: Instant) -> Result<(), String> {
        let is_known = |line: &str| line == LISTENS || line.starts_with(ENDED);
        let said = self.until(is_known, deadline)?;
        match said.last().is_some_and(|last| last == LISTENS) {
            true => Ok(()),
            false => Err(format!("rxe's server ended: {}", said.join("\n"))),
        }
    }

    /// Waits for a command's end: its status, and what it said.
    pub fn ended(&mut self, deadline: Instant) -> Result<(i32, String), String> {
        let mut said = self.until(|line| line.starts_with(ENDED), deadline)?;
        let last = said.pop().unwrap_or_default();
        let status = last
            .strip_prefix(ENDED)
            .and_then(|status| status.parse().ok());
        Ok((status.unwrap_or(-1), said.join("\n")))
    }

    /// Runs a line and waits for its end, which has to be a good one.
    pub fn run(&mut self, line: &str, patience: Duration) -> Result<(), String> {
        self.order(line)?;
        match self.ended(Instant::now() + patience)? {
            (0, _) => Ok(()),
            (status, said) => Err(format!("{line}: status {status}: {said}")),
        }
    }
}
