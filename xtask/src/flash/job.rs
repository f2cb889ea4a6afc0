//! A program on the nodes, as ranks: the copied launcher starts them, over the connections that are open.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use serde::Serialize;
use serde_json::Value;

use super::FlashError;
use super::connection::{self, Connection, quoted};
use super::nodes::Node;
use crate::launch::LAUNCHER;
use crate::run::{self, Ending};

/// A job ends by itself, by the launcher's deadline, or by Ctrl-C.
const FOR_EVER: Duration = Duration::MAX;
/// A working directory on each node, in its folder.
const WORK: &str = "work";

/// What is run.
pub struct Job<'a> {
    /// The folder that was copied.
    pub from: &'a Path,
    /// A folder of this process alone.
    pub private: &'a Path,
    pub ranks: u32,
    pub address: Option<&'a str>,
    /// Further options of the launcher, and their values.
    pub options: [(&'static str, Option<String>); 3],
    /// The program and its arguments.
    pub program: &'a [String],
}

/// What a rank printed on standard output.
#[derive(Debug, PartialEq, Serialize)]
pub struct Rank {
    pub rank: u32,
    pub node: String,
    /// The document that it printed; the lines, if it is none.
    pub output: Value,
}

/// Runs it. `on_line` gets each line with its node's name. Gives the status and what the ranks printed.
pub fn run(
    job: &Job<'_>,
    connections: &[Connection],
    mut on_line: impl FnMut(&str),
) -> Result<(u8, Vec<Rank>), FlashError> {
    let nodes = Vec::from_iter(connections.iter().map(|one| one.node.clone()));
    let shares = shares(job.ranks, nodes.len());
    let rsh = job.private.join("rsh");
    let write = || {
        fs::write(&rsh, rsh_script(connections))?;
        fs::set_permissions(&rsh, PermissionsExt::from_mode(0o700))
    };
    write().map_err(FlashError::Private)?;
    let address = match job.address {
        Some(address) => address.to_owned(),
        None => {
            connection::address(&nodes[0]).map_err(|problem| FlashError::of(&nodes[0], problem))?
        }
    };
    let mut command = Command::new(job.from.join("bin").join(LAUNCHER));
    command
        .args(["-n", &job.ranks.to_string(), "--folder", "."])
        .args(["--hosts", &hosts(&nodes, &shares), "--address", &address])
        .arg("--rsh")
        .arg(&rsh);
    for (option, value) in &job.options {
        command.args(value.iter().flat_map(|value| [*option, value]));
    }
    command
        .args(["--", "../current/flash/run"])
        .args(job.program);
    let own = getpid();
    // SAFETY: between fork and exec the closure makes two system calls and takes nothing that another thread may hold.
    unsafe { command.pre_exec(move || die_with(own)) };
    if super::is_stopped() {
        return Ok((crate::INTERRUPTED, Vec::new()));
    }
    let finished = run::capture(command, FOR_EVER, |line| {
        on_line(&named(line, &nodes, &shares));
    })?;
    let status = match finished.ending {
        Ending::Exited(status) => code(status),
        Ending::TimedOut(_) => 1,
    };
    Ok((status, printed(&finished.stdout, &nodes, &shares)))
}

/// Lets the kernel kill the launcher when this process dies, which can no longer end it then. The launcher's connections end
/// with it. The signal comes when the thread ends that started it, which must be the first one.
fn die_with(parent: Pid) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The call before the look, because a process that died before the call would go unnoticed.
    match getppid() == Some(parent) {
        true => Ok(()),
        false => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// As a shell has it, of a program that a signal ended.
fn code(status: ExitStatus) -> u8 {
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.unwrap_or(1)
}

/// Blocks of ranks that differ by one at most. The last nodes get none if there are more nodes than ranks.
fn shares(ranks: u32, nodes: usize) -> Vec<Range<u32>> {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX).max(1);
    let start = |node: u32| ranks / nodes * node + node.min(ranks % nodes);
    (0..nodes)
        .map(|node| start(node)..start(node + 1))
        .collect()
}

/// What the launcher calls a node. With the sign no node counts as the launcher's own machine, which has no copy.
fn alias(node: &Node) -> String {
    format!("@{node}").replace(['[', ']'], "")
}

/// The launcher's list of hosts.
fn hosts(nodes: &[Node], shares: &[Range<u32>]) -> String {
    let with_ranks = nodes
        .iter()
        .zip(shares)
        .filter(|(_, ranks)| !ranks.is_empty());
    // In brackets, because the name may have a colon.
    let words = with_ranks.map(|(node, ranks)| format!("[{}]:{}", alias(node), ranks.len()));
    Vec::from_iter(words).join(",")
}

/// What the launcher calls in ssh's place: `rsh NODE LAUNCHER --serve SECONDS`. The launcher of the node's own copy runs.
fn rsh_script(connections: &[Connection]) -> String {
    let mut script = String::from("#!/bin/sh\nset -eu\ncase $1 in\n");
    for connection in connections {
        let name = quoted(&alias(&connection.node));
        let folder = &connection.node.folder;
        let launcher = format!("cd {folder}/{WORK} && exec ../current/bin/{LAUNCHER}");
        // ssh puts the words of a command together, with spaces between.
        let words = connection.words(&launcher);
        script += &format!("{name}) exec {words} \"$3\" \"$4\" ;;\n");
    }
    script + "*) echo \"no node $1\" >&2; exit 255 ;;\nesac\n"
}

/// A line of the launcher's, with the node's name: `[3] words` becomes `node [3] words`.
fn named(line: &str, nodes: &[Node], shares: &[Range<u32>]) -> String {
    match of_rank(line) {
        Some((rank, _)) => match shares.iter().position(|share| share.contains(&rank)) {
            Some(at) => format!("{} {line}", nodes[at]),
            None => line.into(),
        },
        // The launcher's own words.
        None => line.replace(" @", " "),
    }
}

/// The rank of a line, and its words, if it has any.
fn of_rank(line: &str) -> Option<(u32, &str)> {
    let (rank, words) = line.strip_prefix('[')?.split_once(']')?;
    Some((rank.parse().ok()?, words.strip_prefix(' ').unwrap_or(words)))
}

/// What each rank printed.
fn printed(stdout: &str, nodes: &[Node], shares: &[Range<u32>]) -> Vec<Rank> {
    let mut by_rank = BTreeMap::<u32, Vec<&str>>::new();
    for (rank, words) in stdout.lines().filter_map(of_rank) {
        by_rank.entry(rank).or_default().push(words);
    }
    let ranks = nodes
        .iter()
        .zip(shares)
        .flat_map(|(node, share)| share.clone().map(move |rank| (rank, node.to_string())));
    let ranks = ranks.map(|(rank, node)| {
        let lines = by_rank.remove(&rank).unwrap_or_default();
        let document = serde_json::from_str(&lines.join("\n"));
        let output = document.unwrap_or_else(|_| lines.into());
        Rank { rank, node, output }
    });
    ranks.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nodes(words: &[&str]) -> Vec<Node> {
        words.iter().map(|word| word.parse().unwrap()).collect()
    }

    #[test]
    fn nodes_have_blocks_of_ranks() {
        assert_eq!(shares(2, 2), [0..1, 1..2]);
        assert_eq!(shares(5, 2), [0..3, 3..5]);
        assert_eq!(shares(1, 2), [0..1, 1..1]);
        let nodes = nodes(&["localhost", "me@[fd00::1]:22", "c"]);
        let hosts = hosts(&nodes, &shares(3, 2));
        assert_eq!(hosts, "[@localhost]:2,[@me@fd00::1:22]:1");
    }

    #[test]
    fn each_line_has_its_nodes_name() {
        let nodes = nodes(&["a", "me@b:22"]);
        let shares = shares(3, 2);
        for (line, expected) in [
            ("[1] words", "a [1] words"),
            ("[2] [0] words", "me@b:22 [2] [0] words"),
            ("[2]", "me@b:22 [2]"),
            ("[7] words", "[7] words"),
            (
                "warpbell-launch: @me@b:22: lost",
                "warpbell-launch: me@b:22: lost",
            ),
            ("[x] words", "[x] words"),
        ] {
            assert_eq!(named(line, &nodes, &shares), expected);
        }
    }

    #[test]
    fn documents_and_lines_of_ranks_are_kept() {
        let stdout = "[1] {\"a\":\n[0] one\n[1] 2}\n[0] two\nwords of the launcher\n";
        let expected = [
            (0, "a", json!(["one", "two"])),
            (1, "b", json!({"a": 2})),
            (2, "c", json!([])),
        ];
        let expected = expected.map(|(rank, node, output)| Rank {
            rank,
            node: node.into(),
            output,
        });
        assert_eq!(
            printed(stdout, &nodes(&["a", "b", "c"]), &shares(3, 3)),
            expected
        );
    }
}
