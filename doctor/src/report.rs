//! The findings together, and whether a queue driven by the GPU would work.

use super::distance::Distance;
use super::finding::{Finding, State, Subject};
use super::pair::Pair;
use super::pci::Address;

/// Changes whenever a reader of the JSON would have to.
const FORMAT: u32 = 1;

/// Everything that the doctor found.
#[derive(Debug)]
pub struct Report {
    pub format: u32,
    /// Whether the node and at least one pair have all that is needed.
    pub ready: bool,
    pub pairs: Vec<PairVerdict>,
    pub findings: Vec<Finding>,
}

/// Whether a GPU can drive a NIC.
#[derive(Debug, PartialEq, Eq)]
pub struct PairVerdict {
    pub gpu: Address,
    pub nic: String,
    pub distance: Distance,
    pub ready: bool,
}

impl Report {
    /// Draws the conclusion.
    ///
    /// A pair is ready if the node, both devices, what lies between them and one port of the NIC have all
    /// that is needed. What is unknown counts as not there.
    pub fn new(pairs: &[Pair], findings: Vec<Finding>) -> Self {
        let good = |about: &dyn Fn(&Subject) -> bool| {
            let mut about = findings.iter().filter(|found| about(&found.subject));
            about.all(|found| !found.needed || found.state == State::Ok)
        };
        let port_is_good = |nic: &str| {
            let mut ports = findings.iter().filter_map(|found| match &found.subject {
                Subject::Port { nic: of, .. } if of == nic => Some(&found.subject),
                _ => None,
            });
            ports.any(|port| good(&|subject| subject == port))
        };
        let node = good(&|subject| *subject == Subject::Node);
        let verdict = |pair: &Pair| {
            let Pair {
                gpu, nic, distance, ..
            } = pair;
            let devices = good(&|subject| match subject {
                Subject::Gpu { gpu: of } => of == gpu,
                Subject::Nic { nic: of } => of == nic,
                Subject::Pair { gpu: g, nic: n } => g == gpu && n == nic,
                Subject::Node | Subject::Port { .. } => false,
            });
            PairVerdict {
                gpu: *gpu,
                nic: nic.clone(),
                distance: *distance,
                ready: node && devices && port_is_good(nic),
            }
        };
        let pairs: Vec<_> = pairs.iter().map(verdict).collect();
        Self {
            format: FORMAT,
            ready: pairs.iter().any(|pair| pair.ready),
            pairs,
            findings,
        }
    }

    /// Whether no NIC is nearer to this GPU.
    pub fn is_nearest(&self, gpu: Address, nic: &str) -> bool {
        let of_gpu = || self.pairs.iter().filter(|pair| pair.gpu == gpu);
        let nearest = of_gpu().map(|pair| pair.distance).min();
        of_gpu().any(|pair| pair.nic == nic && Some(pair.distance) == nearest)
    }
}
