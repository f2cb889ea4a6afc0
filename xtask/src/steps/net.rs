//! Machines that a switch joins: network namespaces and a bridge in one of its own.

use std::fs;
use std::path::Path;
use std::process::{self, Command};

use rustix::process::{Pid, Signal, kill_process};

use crate::report::Report;
use crate::workspace::clean_command;

/// The interface of each machine.
const LINK: &str = "lan0";
/// Packets of RoCE with 4,096 bytes fit.
const MTU: u32 = 4200;
/// A link that is slower than what is sent, and whose queue holds a few packets.
const NARROW: &str = "tbf rate 20mbit burst 8k limit 12k";
/// An Ethernet address that no machine has.
const NOBODY: &str = "02:00:00:00:00:99";

/// Whether checks can be made in network namespaces. If not, they are skipped.
pub fn can_be_made(report: &mut Report, titles: &[String]) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        report.skip_all(titles, "they need root");
    }
    is_root
}

/// Network namespaces, by the ranks in them, and their bridge. All end with this.
pub struct Net {
    ranks: u32,
}

impl Net {
    /// So many machines. The error is what `ip` says.
    pub fn new(ranks: u32) -> Result<Self, String> {
        clear()?;
        let net = Self { ranks };
        let switch = net.switch();
        ip(&format!("netns add {switch}"))?;
        ip(&format!("-n {switch} link add bridge type bridge"))?;
        ip(&format!("-n {switch} link set bridge mtu {MTU} up"))?;
        for rank in 0..ranks {
            let (name, address) = (net.name(rank), Self::address(rank));
            ip(&format!("netns add {name}"))?;
            ip(&format!(
                "-n {name} link add {LINK} type veth peer name port{rank} netns {switch}"
            ))?;
            ip(&format!("-n {name} addr add {address}/24 dev {LINK}"))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set {LINK} mtu {MTU} up"))?;
            let port = format!("-n {switch} link set port{rank}");
            ip(&format!("{port} mtu {MTU} master bridge up"))?;
        }
        Ok(net)
    }

    fn name(&self, rank: u32) -> String {
        format!("warpbell-{}-{rank}", process::id())
    }

    fn switch(&self) -> String {
        format!("warpbell-{}-switch", process::id())
    }

    pub fn address(rank: u32) -> String {
        format!("10.79.0.{}", rank + 1)
    }

    /// A program on a rank's machine.
    pub fn command(&self, rank: u32, program: &Path) -> Command {
        let mut command = clean_command("ip", Path::new("/"));
        command.args(["netns", "exec", &self.name(rank)]);
        command.arg(program);
        command
    }

    /// The processes on a rank's machine.
    pub fn processes(&self, rank: u32) -> Result<Vec<Pid>, String> {
        processes(&self.name(rank))
    }

    /// Takes a machine's interface down, or up.
    pub fn set_link(&self, rank: u32, state: &str) -> Result<(), String> {
        ip(&format!("-n {} link set {LINK} {state}", self.name(rank)))
    }

    /// Pulls a machine's cable at the switch, or plugs it in.
    pub fn set_port(&self, rank: u32, state: &str) -> Result<(), String> {
        ip(&format!("-n {} link set port{rank} {state}", self.switch()))
    }

    /// Lets all that goes from one machine to another get lost, or arrive again.
    pub fn lose(&self, from: u32, to: u32, loses: bool) -> Result<(), String> {
        let (name, address) = (self.name(from), Self::address(to));
        ip(&match loses {
            true => {
                format!(
                    "-n {name} neigh replace {address} lladdr {NOBODY} nud permanent dev {LINK}"
                )
            }
            false => format!("-n {name} neigh del {address} dev {LINK}"),
        })
    }

    /// Lets a machine's interface send less than its programs do, with a short queue, so that packets get lost; or as before.
    pub fn narrow(&self, rank: u32, narrow: bool) -> Result<(), String> {
        let change = format!("-n {} qdisc", self.name(rank));
        tc(&match narrow {
            true => format!("{change} replace dev {LINK} root {NARROW}"),
            false => format!("{change} del dev {LINK} root"),
        })
        .map(drop)
    }

    /// How many packets a machine's interface has lost since it is narrow.
    pub fn lost(&self, rank: u32) -> Result<u64, String> {
        let said = tc(&format!("-n {} -s qdisc show dev {LINK}", self.name(rank)))?;
        let mut words = said.split(|separator: char| !separator.is_alphanumeric());
        words.find(|word| *word == "dropped");
        let lost = words.find(|word| !word.is_empty());
        lost.and_then(|lost| lost.parse().ok()).ok_or(format!(
            "tc does not say how many packets were dropped: {said}"
        ))
    }

    /// Changes the longest packet that a machine sends and takes; without a length back to the first one.
    pub fn set_mtu(&self, rank: u32, mtu: Option<u32>) -> Result<(), String> {
        self.set_link(rank, &format!("mtu {}", mtu.unwrap_or(MTU)))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for rank in 0..self.ranks {
            // What is left goes with the machine.
            let _ = ip(&format!("netns delete {}", self.name(rank)));
        }
        let _ = ip(&format!("netns delete {}", self.switch()));
    }
}

/// Removes machines of a run that Ctrl-C ended, with the processes on them.
fn clear() -> Result<(), String> {
    // Without any namespace there is no such folder.
    let names = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
        let process = name
            .strip_prefix("warpbell-")
            .and_then(|rest| rest.split_once('-'));
        let is_over = |(process, _)| !Path::new("/proc").join::<&str>(process).exists();
        if process.is_some_and(is_over) {
            for process in processes(&name)? {
                // It may have ended by itself.
                let _ = kill_process(process, Signal::KILL);
            }
            ip(&format!("netns delete {name}"))?;
        }
    }
    Ok(())
}

fn processes(name: &str) -> Result<Vec<Pid>, String> {
    let numbers = says("ip", &format!("netns pids {name}"))?;
    let numbers = numbers.lines().filter_map(|line| line.trim().parse().ok());
    Ok(numbers.filter_map(Pid::from_raw).collect())
}

fn ip(words: &str) -> Result<(), String> {
    says("ip", words).map(drop)
}

fn tc(words: &str) -> Result<String, String> {
    says("tc", words)
}

fn says(program: &str, words: &str) -> Result<String, String> {
    let output = Command::new(program)
        .args(words.split_whitespace())
        .output();
    let output = output.map_err(|error| format!("no {program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{program} {words}: {}", said.trim()))
        }
    }
}
