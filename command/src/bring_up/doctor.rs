//! What the doctor says of this machine, and what of that the steps need.

use serde::{Deserialize, Serialize};

/// From the nearest to the farthest.
const DISTANCES: [&str; 4] = ["same-switch", "same-root-port", "same-node", "across-nodes"];

/// The doctor's document, as far as it matters here.
#[derive(Debug, Deserialize)]
pub struct Diagnosis {
    pairs: Vec<Pair>,
    /// All that it found.
    pub findings: Vec<Finding>,
}

/// A GPU and a card.
#[derive(Debug, Deserialize)]
struct Pair {
    nic: String,
    distance: String,
    ready: bool,
}

/// A fact.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Finding {
    /// What it is about.
    pub subject: Subject,
    /// Which fact.
    pub check: String,
    /// `ok`, `missing` or `unknown`.
    pub state: String,
    /// Whether a queue that a GPU drives needs it.
    pub needed: bool,
    /// Who needs it with half of that: `gpu` with a software NIC, `card` with kernels on a CPU.
    pub needed_by: Vec<String>,
    /// What was found.
    pub value: String,
    /// What mends it, or shows it.
    pub remedy: Option<String>,
}

/// What a fact is about.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Subject {
    /// `node`, `gpu`, `nic`, `port` or `pair`.
    pub kind: String,
    /// A GPU's PCI address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// A card's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nic: Option<String>,
    /// A port's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
}

impl Diagnosis {
    /// Whether there is a GPU, as far as the doctor sees.
    pub fn has_gpu(&self) -> bool {
        !self.has("gpu", "missing")
    }

    fn has(&self, check: &str, state: &str) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.check == check && finding.state == state)
    }

    /// The card to take if none is named: one that is ready for a GPU before others, then the nearest to a GPU. Without a
    /// GPU it is the first that the driver for mlx5 has.
    pub fn card(&self) -> Option<&str> {
        let distance = |pair: &Pair| {
            let place = DISTANCES.iter().position(|word| *word == pair.distance);
            place.unwrap_or(DISTANCES.len())
        };
        let best = self
            .pairs
            .iter()
            .min_by_key(|pair| (!pair.ready, distance(pair)));
        let is_driven = |finding: &&Finding| finding.check == "nic-driver" && finding.state == "ok";
        let first = || self.findings.iter().find(is_driven)?.subject.nic.as_deref();
        best.map(|pair| &*pair.nic).or_else(first)
    }

    /// What is missing, or cannot be seen, of all that kernels on a GPU and this card need. With neither, nothing.
    pub fn lacking(&self, gpu: bool, card: Option<&str>) -> Vec<&Finding> {
        let matters = |finding: &&Finding| match (gpu, card) {
            (false, None) => false,
            (true, None) => finding.is_needed_by("gpu"),
            (gpu, Some(card)) => {
                let is_other = finding.subject.nic.as_ref().is_some_and(|nic| nic != card);
                !is_other && (gpu || finding.is_needed_by("card"))
            }
        };
        let lacks = |finding: &&Finding| finding.needed && finding.state != "ok";
        self.findings.iter().filter(lacks).filter(matters).collect()
    }
}

impl Finding {
    fn is_needed_by(&self, half: &str) -> bool {
        self.needed_by.iter().any(|one| one == half)
    }

    /// In a line.
    pub fn line(&self) -> String {
        let Self {
            check,
            state,
            value,
            ..
        } = self;
        match &self.remedy {
            None => format!("{state}: {check}: {value}"),
            Some(remedy) => format!("{state}: {check}: {value} (look at: {remedy})"),
        }
    }
}
