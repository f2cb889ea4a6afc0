//! OpenSSH's client. All calls of a node share one connection.
//!
//! Host keys are checked and no password is asked for, whatever the user's configuration says.

use std::process::{Command, ExitStatus};
use std::time::Duration;

use super::connection::last;
use super::nodes::Node;
use super::problem::Problem;
use crate::run;

/// How long ssh may try to reach a node (s).
const CONNECT: u64 = 20;
/// How long it may take to read its configuration.
const PATIENCE: Duration = Duration::from_secs(60);
/// Its status if a connection could not be made or broke.
const LOST: i32 = 255;

/// The options of each call.
fn options() -> Vec<String> {
    let options = [
        "BatchMode=yes",
        "StrictHostKeyChecking=yes",
        "UpdateHostKeys=no",
        "ServerAliveInterval=10",
        "ServerAliveCountMax=3",
        "ControlPersist=no",
        "ClearAllForwardings=yes",
        "ForwardAgent=no",
        "PermitLocalCommand=no",
        "RemoteCommand=none",
    ];
    let mut all = Vec::from(options.map(str::to_owned));
    all.push(format!("ConnectTimeout={CONNECT}"));
    all
}

/// ssh for a node, without the command.
fn ssh(node: &Node, more: &[String]) -> Command {
    let mut command = Command::new("ssh");
    command.arg("-T");
    for option in options().iter().chain(more) {
        command.args(["-o", option]);
    }
    if let Some(user) = &node.user {
        command.args(["-l", user]);
    }
    if let Some(port) = node.port {
        command.args(["-p", &port.to_string()]);
    }
    command.arg(&node.host);
    command
}

/// Runs a command of a shell on a node, with further options.
pub fn command(node: &Node, more: &[String], command: &str) -> Command {
    let mut ssh = ssh(node, more);
    ssh.arg(command);
    ssh
}

/// Where ssh finds a node, by its configuration.
pub fn address(node: &Node) -> Result<String, Problem> {
    let mut command = ssh(node, &[]);
    command.arg("-G");
    let found = run::capture(command, PATIENCE, |_| {})?;
    let mut lines = found.stdout.lines();
    let host = lines.find_map(|line| line.strip_prefix("hostname "));
    Ok(host.unwrap_or(&node.host).to_owned())
}

/// Why there is no connection, by ssh's words.
pub fn lost(status: ExitStatus, words: &str) -> Option<Problem> {
    if status.code() != Some(LOST) {
        None
    } else if words.contains("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        Some(Problem::HostKeyChanged)
    } else if words.contains("Host key verification failed") {
        Some(Problem::HostKeyUnknown)
    } else if words.contains("Permission denied (") {
        Some(Problem::Login(last(words, 1)))
    } else {
        Some(Problem::Unreachable(last(words, 1)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn ssh_says_why_there_is_no_connection() {
        for (words, expected) in [
            (
                "@@@\n@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\nHost key verification failed.\n",
                "another host key",
            ),
            (
                "No ED25519 host key is known for a and you have requested strict checking.\nHost key verification failed.\n",
                "host key is not known",
            ),
            ("me@a: Permission denied (publickey).\n", "no login"),
            (
                "ssh: connect to host a port 22: No route to host\n\n",
                "cannot be reached: ssh: connect to host a port 22: No route",
            ),
        ] {
            let problem = lost(ExitStatus::from_raw(LOST << 8), words)
                .unwrap()
                .to_string();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
