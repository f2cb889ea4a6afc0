//! What cargo-mutants writes of its mutants.

use serde::Deserialize;

/// A change of the sources.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Mutant {
    /// `FILE:LINE:COLUMN: replace … with … in …`
    pub name: String,
    /// The changed file, from the workspace's root.
    pub file: String,
}

impl Mutant {
    /// The name without line and column, which stays when lines are added above.
    pub fn lasting_name(&self) -> String {
        let change = self.name.splitn(4, ':').nth(3).unwrap_or_default();
        format!("{}:{change}", self.file)
    }
}

/// What the tests said of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A test failed, or did not end.
    Caught,
    /// All tests passed.
    Missed,
    /// It does not compile.
    Unviable,
}

/// A mutant that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tested {
    pub mutant: Mutant,
    pub verdict: Verdict,
}

#[derive(Deserialize)]
struct Outcomes {
    outcomes: Vec<Outcome>,
}

#[derive(Deserialize)]
struct Outcome {
    scenario: Scenario,
    summary: Summary,
    phase_results: Vec<PhaseResult>,
}

#[derive(Deserialize)]
struct PhaseResult {
    phase: Phase,
}

#[derive(PartialEq, Eq, Deserialize)]
enum Phase {
    Check,
    Build,
    Test,
}

#[derive(Deserialize)]
enum Scenario {
    Baseline,
    Mutant(Mutant),
}

#[derive(Deserialize)]
enum Summary {
    Success,
    Failure,
    CaughtMutant,
    MissedMutant,
    Timeout,
    Unviable,
}

/// The mutants of `outcomes.json`.
pub fn read(json: &str) -> Result<Vec<Tested>, serde_json::Error> {
    let Outcomes { outcomes } = serde_json::from_str(json)?;
    let tested = outcomes.into_iter().filter_map(|outcome| {
        let Scenario::Mutant(mutant) = outcome.scenario else {
            return None;
        };
        let ran = outcome.phase_results.iter();
        let tests_ran = ran.last().is_some_and(|last| last.phase == Phase::Test);
        let verdict = match outcome.summary {
            Summary::CaughtMutant => Verdict::Caught,
            Summary::MissedMutant => Verdict::Missed,
            Summary::Timeout if tests_ran => Verdict::Caught,
            // The compiler was in an endless loop, or failed in another way than by refusing.
            Summary::Timeout | Summary::Unviable | Summary::Success | Summary::Failure => {
                Verdict::Unviable
            }
        };
        Some(Tested { mutant, verdict })
    });
    Ok(tested.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_read_as_cargo_mutants_writes_them() {
        let outcome = |name: &str, summary: &str, last: &str| {
            format!(
                r#"{{"scenario": {{"Mutant": {{"name": "{name}", "file": "a/b.rs", "genre": "x"}}}},
                    "summary": "{summary}", "log_path": "", "phase_results": [
                        {{"phase": "Build", "duration": 1.5, "process_status": "Success"}},
                        {{"phase": "{last}", "duration": 1.5, "process_status": "Timeout"}}
                    ]}}"#
            )
        };
        let json = format!(
            r#"{{"outcomes": [
                {{"scenario": "Baseline", "summary": "Success", "phase_results": []}}, {}, {}, {}, {}, {}
            ], "caught": 1}}"#,
            outcome("1", "CaughtMutant", "Test"),
            outcome("2", "MissedMutant", "Test"),
            outcome("3", "Timeout", "Test"),
            outcome("4", "Unviable", "Build"),
            outcome("5", "Timeout", "Build"),
        );
        let read = read(&json).unwrap();
        let verdicts: Vec<_> = read
            .iter()
            .map(|tested| (tested.mutant.name.as_str(), tested.verdict))
            .collect();
        assert_eq!(
            verdicts,
            [
                ("1", Verdict::Caught),
                ("2", Verdict::Missed),
                ("3", Verdict::Caught),
                ("4", Verdict::Unviable),
                ("5", Verdict::Unviable),
            ]
        );
    }

    #[test]
    fn a_lasting_name_has_no_line_and_no_column() {
        let mutant = Mutant {
            name: "a/b.rs:12:34: replace A::b -> c with d::e()".into(),
            file: "a/b.rs".into(),
        };
        assert_eq!(
            mutant.lasting_name(),
            "a/b.rs: replace A::b -> c with d::e()"
        );
    }
}
