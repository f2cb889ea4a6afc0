//! The list of mutants that change nothing that a caller can see.
//!
//! ```text
//! # Why the mutants below change nothing.
//! mlx5-wqe/src/address.rs: replace | with ^ in AddressVector::datagram
//! mlx5-wqe/src/cqe.rs: replace | with ^ in CqeTail::new (2 of 3)
//! ```
//!
//! A name is cargo-mutants' own without line and column. Where a function has several mutants of one name, all are
//! numbered in the order of the file.

use std::collections::{BTreeSet, HashMap};

use thiserror::Error;

use super::Plan;
use super::outcome::Mutant;

/// The list.
const LIST: &str = include_str!("equivalent.txt");

/// What is wrong with the list.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum EquivalentError {
    #[error("equivalent.txt: no reason (# …) stands before: {0}")]
    NoReason(String),
    #[error("equivalent.txt: twice: {0}")]
    Twice(String),
    #[error("equivalent.txt: no mutant has these names, so take them out or mend them:\n{0}")]
    NoMutant(String),
}

/// The equivalent mutants of a group, by cargo-mutants' full names.
#[derive(Debug)]
pub struct Equivalents(BTreeSet<String>);

impl Equivalents {
    /// Finds the list's entries for a group's files among its mutants.
    pub fn load(mutants: &[Mutant], plan: &Plan) -> Result<Self, EquivalentError> {
        let entries = parse(LIST)?;
        find(
            entries.iter().filter(|entry| concerns(entry, plan)),
            mutants,
        )
    }

    pub fn contains(&self, mutant: &Mutant) -> bool {
        self.0.contains(&mutant.name)
    }
}

/// Whether an entry's file is one of a group's.
fn concerns(entry: &str, plan: &Plan) -> bool {
    plan.files
        .iter()
        .any(|pattern| match pattern.split_once('*') {
            Some((folder, _)) => entry.starts_with(folder),
            None => entry.starts_with(&format!("{pattern}:")),
        })
}

/// The names of the list, each of which must have a reason above it.
fn parse(list: &str) -> Result<BTreeSet<&str>, EquivalentError> {
    let mut names = BTreeSet::new();
    let mut reason = false;
    for line in list.lines().map(str::trim) {
        if line.is_empty() {
            reason = false;
        } else if line.starts_with('#') {
            reason = true;
        } else if !reason {
            return Err(EquivalentError::NoReason(line.into()));
        } else if !names.insert(line) {
            return Err(EquivalentError::Twice(line.into()));
        }
    }
    Ok(names)
}

/// The mutants that entries name.
fn find<'e>(
    entries: impl Iterator<Item = &'e &'e str>,
    mutants: &[Mutant],
) -> Result<Equivalents, EquivalentError> {
    let known: HashMap<_, _> = numbered(mutants).collect();
    let mut found = BTreeSet::new();
    let mut unknown = Vec::new();
    for entry in entries {
        match known.get(*entry) {
            Some(mutant) => {
                found.insert(mutant.name.clone());
            }
            None => unknown.push(*entry),
        }
    }
    match unknown.is_empty() {
        true => Ok(Equivalents(found)),
        false => Err(EquivalentError::NoMutant(unknown.join("\n"))),
    }
}

/// Mutants by the names that the list has for them.
fn numbered(mutants: &[Mutant]) -> impl Iterator<Item = (String, &Mutant)> {
    let mut all: HashMap<String, usize> = HashMap::new();
    for mutant in mutants {
        *all.entry(mutant.lasting_name()).or_default() += 1;
    }
    let mut so_far: HashMap<String, usize> = HashMap::new();
    mutants.iter().map(move |mutant| {
        let name = mutant.lasting_name();
        let number = so_far.entry(name.clone()).or_default();
        *number += 1;
        match all.get(&name) {
            Some(all) if *all > 1 => (format!("{name} ({number} of {all})"), mutant),
            _ => (name, mutant),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(place: &str, change: &str) -> Mutant {
        Mutant {
            name: format!("a.rs:{place}: {change}"),
            file: "a.rs".into(),
        }
    }

    fn mutants() -> [Mutant; 3] {
        [
            mutant("1:2", "replace | with ^ in f"),
            mutant("3:4", "replace | with ^ in g"),
            mutant("3:9", "replace | with ^ in g"),
        ]
    }

    fn found(entries: &[&str]) -> Result<BTreeSet<String>, EquivalentError> {
        find(entries.iter(), &mutants()).map(|found| found.0)
    }

    #[test]
    fn a_name_means_one_mutant() {
        let one = found(&["a.rs: replace | with ^ in f"]).unwrap();
        assert_eq!(Vec::from_iter(one), ["a.rs:1:2: replace | with ^ in f"]);
        let second = found(&["a.rs: replace | with ^ in g (2 of 2)"]).unwrap();
        assert_eq!(Vec::from_iter(second), ["a.rs:3:9: replace | with ^ in g"]);
    }

    #[test]
    fn a_name_that_means_none_or_several_is_an_error() {
        for name in [
            "a.rs: replace | with ^ in g",
            "a.rs: replace | with ^ in g (2 of 3)",
            "a.rs: replace | with & in f",
        ] {
            assert_eq!(
                found(&["a.rs: replace | with ^ in f", name]),
                Err(EquivalentError::NoMutant(name.into()))
            );
        }
    }

    #[test]
    fn every_entry_has_a_reason_and_stands_once() {
        assert_eq!(parse("# why\nx\ny\n"), Ok(BTreeSet::from(["x", "y"])));
        assert_eq!(
            parse("# why\nx\n\ny\n"),
            Err(EquivalentError::NoReason("y".into()))
        );
        assert_eq!(
            parse("# why\nx\n\n# why\nx"),
            Err(EquivalentError::Twice("x".into()))
        );
    }

    /// An entry for a file of no group would never be looked at.
    #[test]
    fn every_entry_of_the_list_belongs_to_a_group() {
        use clap::ValueEnum;
        for entry in parse(LIST).unwrap() {
            let groups = super::super::Group::value_variants().iter();
            let concerned = groups.filter(|group| concerns(entry, &group.plan()));
            assert_eq!(concerned.count(), 1, "{entry}");
        }
    }
}
