//! What the doctor says of a node, and what of that its programs need.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::connection::{Connection, succeeded};
use super::nodes::Node;
use super::problem::Problem;
use crate::run::{Ending, Finished};

/// How long it may take; it has deadlines of its own.
const DEADLINE: Duration = Duration::from_secs(300);

/// The doctor's JSON, as far as it matters here.
#[derive(Deserialize)]
struct Report {
    findings: Vec<Finding>,
}

#[derive(Deserialize)]
struct Finding {
    subject: Subject,
    check: String,
    state: String,
    needed: bool,
    needed_by: Vec<String>,
    value: String,
    remedy: Option<String>,
}

impl Finding {
    /// Whether a GPU with a software NIC (`gpu`), or a card with kernels on a CPU (`card`), needs it.
    fn is_needed_by(&self, half: &str) -> bool {
        self.needed_by.iter().any(|one| one == half)
    }
}

#[derive(Deserialize)]
struct Subject {
    nic: Option<String>,
}

/// Something that a node needs, and does not have or does not show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub check: String,
    pub value: String,
    pub remedy: Option<String>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.value)?;
        match &self.remedy {
            None => Ok(()),
            Some(remedy) => write!(f, " (look at: {remedy})"),
        }
    }
}

/// Runs the doctor on a node: what its GPU and its NIC lack. A node with software alone lacks nothing.
pub fn examine(connection: &Connection) -> Result<Vec<Missing>, Problem> {
    let finished = connection.call("examine", drop, DEADLINE)?;
    // Status 1 says that the node is not ready for a card.
    let has_reported = |ended: &Finished| match ended.ending {
        Ending::Exited(status) => status.code() == Some(1) && ended.stdout.starts_with('{'),
        Ending::TimedOut(_) => false,
    };
    let report = match has_reported(&finished) {
        true => finished.stdout,
        false => succeeded(finished)?,
    };
    Ok(missing(&connection.node, serde_json::from_str(&report)?))
}

fn missing(node: &Node, report: Report) -> Vec<Missing> {
    let card = node.nic.as_deref().filter(|nic| !nic.starts_with("soft"));
    let name = card.map(|card| card.split([':', ',']).next().unwrap_or(card));
    let matters = |finding: &Finding| match (node.gpu, name) {
        (None, None) => false,
        (Some(_), None) => finding.is_needed_by("gpu"),
        (gpu, Some(name)) => {
            let is_other = finding.subject.nic.as_ref().is_some_and(|nic| nic != name);
            !is_other && (gpu.is_some() || finding.is_needed_by("card"))
        }
    };
    let lacks = |finding: &Finding| finding.needed && finding.state != "ok" && matters(finding);
    let lacking = report.findings.into_iter().filter(lacks);
    let lacking = lacking.map(|finding| Missing {
        check: finding.check,
        value: finding.value,
        remedy: finding.remedy,
    });
    lacking.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the doctor would say of a node with two cards.
    const REPORT: &str = r#"{"format": 1, "ready": false, "pairs": [], "findings": [
        {"subject": {"kind": "node"}, "check": "cuda", "state": "missing", "needed": true, "needed_by": ["gpu"], "value": "12.0", "remedy": "x"},
        {"subject": {"kind": "node"}, "check": "rdma-core", "state": "unknown", "needed": true, "needed_by": ["card"], "value": "?", "remedy": null},
        {"subject": {"kind": "nic", "nic": "mlx5_0"}, "check": "link", "state": "missing", "needed": true, "needed_by": ["card"], "value": "down", "remedy": null},
        {"subject": {"kind": "nic", "nic": "mlx5_1"}, "check": "link", "state": "missing", "needed": true, "needed_by": ["card"], "value": "down", "remedy": null},
        {"subject": {"kind": "pair", "gpu": "0000:18:00.0", "nic": "mlx5_0"}, "check": "acs", "state": "missing", "needed": true, "needed_by": [], "value": "on", "remedy": null},
        {"subject": {"kind": "node"}, "check": "memlock", "state": "ok", "needed": true, "needed_by": ["card"], "value": "", "remedy": null},
        {"subject": {"kind": "node"}, "check": "gids", "state": "missing", "needed": false, "needed_by": ["card"], "value": "", "remedy": null}
    ]}"#;

    #[test]
    fn only_what_the_node_uses_is_missing() {
        for (gpu, nic, expected) in [
            (None, None, &[][..]),
            (None, Some("soft-host"), &[]),
            (Some(0), None, &["cuda"]),
            (Some(0), Some("soft-gpu"), &["cuda"]),
            (None, Some("mlx5_0:2"), &["rdma-core", "link"]),
            (
                Some(0),
                Some("mlx5_0"),
                &["cuda", "rdma-core", "link", "acs"],
            ),
        ] {
            let mut node: Node = "a".parse().unwrap();
            (node.gpu, node.nic) = (gpu, nic.map(str::to_owned));
            let found = missing(&node, serde_json::from_str(REPORT).unwrap());
            let found = Vec::from_iter(found.iter().map(|one| &*one.check));
            assert_eq!(found, expected, "{gpu:?} {nic:?}");
        }
    }

    #[test]
    fn a_remedy_stands_behind_what_is_missing() {
        let mut one = Missing {
            check: "cuda".into(),
            value: "12.0".into(),
            remedy: Some("nvidia-smi".into()),
        };
        assert_eq!(one.to_string(), "cuda: 12.0 (look at: nvidia-smi)");
        one.remedy = None;
        assert_eq!(one.to_string(), "cuda: 12.0");
    }
}
