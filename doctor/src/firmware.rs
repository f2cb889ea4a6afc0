//! Settings of the card's firmware that only its own tool shows: mlxconfig, or mstconfig of mstflint.

use std::time::Duration;

use super::finding::{Check, Finding, Subject};
use super::pci::Address;
use super::system::{ProgramError, System};

/// How long the tool may take; it talks to the firmware.
const DEADLINE: Duration = Duration::from_secs(10);

/// Whether user programs may have a DEVX context.
const DEVX: &str = "UCTX_EN";
/// Whether the card may reorder its writes.
const WRITE_ORDERING: &str = "PCI_WR_ORDERING";

/// Asks the tool, where it is installed; else names the command.
pub fn examine(system: &System, subject: &Subject, address: Address) -> Vec<Finding> {
    let arguments = ["-d", &address.to_string(), "query"];
    let output = system.run(&["mlxconfig", "mstconfig"], &arguments, DEADLINE);
    let value = |key| setting(output.as_deref().ok()?, key);
    let set = |key| format!("sudo mlxconfig -d {address} set {key}  # and restart the machine");
    let unknown = |check, key: &str| {
        let why = match &output {
            Ok(_) => format!("the firmware does not show {key}"),
            Err(error) => error.to_string(),
        };
        let query = match &output {
            Err(ProgramError::Absent(_)) => {
                format!("sudo apt install mstflint; sudo mstconfig -d {address} query | grep {key}")
            }
            _ => format!("sudo mlxconfig -d {address} query | grep {key}"),
        };
        subject.unknown(check, why, query).optional()
    };
    let devx = match value(DEVX) {
        Some(value) if value.starts_with("True") => {
            subject.ok(Check::Devx, format!("{DEVX} {value}"))
        }
        Some(value) if value.starts_with("False") => {
            subject.missing(Check::Devx, format!("{DEVX} {value}"), set("UCTX_EN=1"))
        }
        _ => unknown(Check::Devx, DEVX),
    };
    let ordering = match value(WRITE_ORDERING) {
        Some(value) if value.starts_with("per_mkey") => {
            subject.ok(Check::WriteOrdering, format!("{WRITE_ORDERING} {value}"))
        }
        Some(value) if value.starts_with("force_relax") => subject.missing(
            Check::WriteOrdering,
            format!("{WRITE_ORDERING} {value}: a write may be seen before an earlier one"),
            set("PCI_WR_ORDERING=0"),
        ),
        _ => unknown(Check::WriteOrdering, WRITE_ORDERING),
    };
    vec![devx, ordering.optional()]
}

/// The value of a setting in the tool's table, such as `UCTX_EN    True(1)`; the last column is that of the
/// next start, which is what the firmware runs with unless somebody has just changed it.
fn setting<'a>(output: &'a str, key: &str) -> Option<&'a str> {
    output.lines().find_map(|line| {
        // Read-only settings have a mark before them.
        let mut words = line
            .split_whitespace()
            .skip_while(|word| matches!(*word, "*" | "RO"));
        (words.next() == Some(key)).then(|| words.last()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::State;
    use crate::tree::Tree;

    fn states(script: Option<&str>) -> Vec<(State, bool)> {
        let tree = Tree::empty();
        if let Some(script) = script {
            tree.program("mstconfig", script);
        }
        let address = "0000:3b:00.0".parse().unwrap();
        let findings = examine(&tree.system(), &Subject::Node, address);
        findings
            .iter()
            .map(|found| (found.state, found.needed))
            .collect()
    }

    #[test]
    fn settings_are_found_in_the_table() {
        let output = "Device #1:\n\nConfigurations:          Next Boot\n   UCTX_EN      True(1)\n * LINK_TYPE_P1   ETH(2)\n";
        assert_eq!(setting(output, "UCTX_EN"), Some("True(1)"));
        assert_eq!(setting(output, "LINK_TYPE_P1"), Some("ETH(2)"));
        assert_eq!(setting(output, "UCTX"), None);
        assert_eq!(setting("UCTX_EN", "UCTX_EN"), None);
    }

    #[test]
    fn what_the_tool_tells_is_judged_and_the_rest_is_unknown() {
        let print = "printf ' UCTX_EN %s\\n PCI_WR_ORDERING %s\\n'";
        let good =
            format!("test \"$*\" = '-d 0000:3b:00.0 query' && {print} 'True(1)' 'per_mkey(0)'");
        assert_eq!(states(Some(&good)), [(State::Ok, true), (State::Ok, false)]);
        let bad = format!("{print} 'False(0)' 'force_relax(1)'");
        assert_eq!(
            states(Some(&bad)),
            [(State::Missing, true), (State::Missing, false)]
        );
        let unknown = [(State::Unknown, false), (State::Unknown, false)];
        assert_eq!(states(Some("echo nothing")), unknown);
        let strange = format!("{print} 'N/A' 'N/A'");
        assert_eq!(states(Some(&strange)), unknown);
        assert_eq!(states(Some("exit 3")), unknown);
        assert_eq!(states(None), unknown);
    }
}
