//! A GPU and a NIC: how far apart, and what the bridges between them do.

use super::acs::{Acs, CONFIG_SIZE};
use super::distance::{Distance, bridges_between};
use super::finding::{Check, Finding, Subject};
use super::nic::Nic;
use super::pci::{Address, Place};
use super::system::System;

/// How many bridges one line names.
const BRIDGES_SHOWN: usize = 4;

/// A GPU and a NIC, with their places.
#[derive(Clone, Debug)]
pub struct Pair {
    pub gpu: Address,
    pub nic: String,
    pub distance: Distance,
    places: Option<(Place, Place)>,
}

impl Pair {
    /// Looks both up.
    pub fn read(system: &System, gpu: Address, nic: &Nic) -> Self {
        let place = |address| Place::read(system, address);
        let places = place(gpu).zip(nic.address.and_then(place));
        let distance = places
            .as_ref()
            .map_or(Distance::Unknown, |(gpu, nic)| Distance::between(gpu, nic));
        Self {
            gpu,
            nic: nic.name.clone(),
            distance,
            places,
        }
    }

    /// What its findings are about.
    pub fn subject(&self) -> Subject {
        Subject::Pair {
            gpu: self.gpu,
            nic: self.nic.clone(),
        }
    }

    /// What lies between the two.
    pub fn examine(&self, system: &System) -> Vec<Finding> {
        let subject = self.subject();
        vec![self.judge_distance(&subject), self.acs(system, &subject)]
    }

    fn judge_distance(&self, subject: &Subject) -> Finding {
        let check = Check::Distance;
        let words = self.distance.words();
        match self.distance {
            Distance::Unknown => {
                let why = "sysfs shows no bridges above them, as in a virtual machine";
                subject.unknown(check, why, "nvidia-smi topo -m  # on the host: lspci -tv")
            }
            Distance::AcrossNodes => subject.missing(
                check,
                format!("{words}: slow, and blocked on some machines"),
                "nvidia-smi topo -m  # choose a nearer NIC, or move the card",
            ),
            _ => subject.ok(check, words),
        }
        .optional()
    }

    /// Whether a bridge sends the traffic between them up to the root.
    ///
    /// Below a common bridge this is a detour that can also be a dead end. Between two root ports the way
    /// leads through the root anyway, so there it is worth a line, but nothing is needed.
    fn acs(&self, system: &System, subject: &Subject) -> Finding {
        let check = Check::Acs;
        let bridges = match &self.places {
            Some((gpu, nic)) if self.distance != Distance::Unknown => bridges_between(gpu, nic),
            _ => {
                let why = "the bridges between them are hidden";
                return subject.unknown(check, why, "sudo lspci -vvv | grep ACSCtl  # on the host");
            }
        };
        let states: Vec<_> = bridges
            .iter()
            .map(|bridge| (*bridge, read(system, *bridge)))
            .collect();
        let having = |wanted: fn(&Acs) -> bool| -> Vec<Address> {
            let having = states.iter().filter(|(_, acs)| wanted(acs));
            having.map(|(bridge, _)| *bridge).collect()
        };
        let redirecting = having(|acs| matches!(acs, Acs::On(_)));
        let hidden = having(|acs| matches!(acs, Acs::Hidden));
        let broken = having(|acs| matches!(acs, Acs::Broken));
        let finding = if !redirecting.is_empty() {
            subject
                .missing(
                    check,
                    format!(
                        "on in {}: traffic between the two takes a detour through the CPU",
                        listed(&redirecting)
                    ),
                    format!(
                        "{}  # until the next start; permanently: firmware set-up (BIOS)",
                        turn_off(&redirecting)
                    ),
                )
                .risky("without ACS devices below these bridges reach each other past the IOMMU")
        } else if !hidden.is_empty() {
            let why = format!(
                "the capabilities of {} are hidden from this user",
                listed(&hidden)
            );
            subject.unknown(
                check,
                why,
                "run the doctor as root, or: sudo lspci -vvv | grep ACSCtl",
            )
        } else if !broken.is_empty() {
            let why = format!("the capabilities of {} are invalid", listed(&broken));
            subject.unknown(check, why, "sudo lspci -vvv | grep ACSCtl")
        } else {
            subject.ok(
                check,
                format!("off in all {} bridges between them", bridges.len()),
            )
        };
        if self.distance.turns_below_the_root() {
            finding
        } else {
            finding.optional()
        }
    }
}

fn read(system: &System, bridge: Address) -> Acs {
    match system.bytes(bridge.file("config"), CONFIG_SIZE) {
        Ok(config) => Acs::read(&config),
        Err(_) => Acs::Hidden,
    }
}

fn listed(bridges: &[Address]) -> String {
    let shown: Vec<_> = bridges
        .iter()
        .take(BRIDGES_SHOWN)
        .map(Address::to_string)
        .collect();
    shown.join(", ")
        + if bridges.len() > BRIDGES_SHOWN {
            ", …"
        } else {
            ""
        }
}

/// Clears the control register of the bridges.
fn turn_off(bridges: &[Address]) -> String {
    let commands = bridges
        .iter()
        .map(|bridge| format!("sudo setpci -s {bridge} ECAP_ACS+6.w=0000"));
    commands.collect::<Vec<_>>().join(" && ")
}
