//! What bytes can be, by their length and by what lies at the places that tell.

use mlx5_wqe::UarPage;
use mlx5_wqe::decode::BLOCK;
use mlx5_wqe::segment::Data;
use serde::Serialize;

use super::fields::{Reader, is_zero};
use super::{Context, Kind, completion, devx, segments, wqe};

/// One thing that bytes can be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// What.
    pub kind: Kind,
    /// What speaks for it.
    pub why: String,
}

/// What these bytes can be, the likeliest first.
pub(super) fn candidates(bytes: &[u8], context: &Context) -> Vec<Candidate> {
    let mut found: Vec<(u32, Candidate)> = Vec::new();
    let mut add = |percent: u32, kind, why: String| {
        found.push((percent, Candidate { kind, why }));
    };
    if bytes.len() == 8 {
        if is_zero(&bytes[..2]) && is_zero(&bytes[4..6]) {
            add(
                80,
                Kind::DoorbellRecord,
                "8 bytes, two numbers below 65,536".into(),
            );
        }
        if bytes[7] == 0 && !is_zero(&bytes[4..7]) {
            add(
                70,
                Kind::Uar,
                "8 bytes: an index, and a QPN over 8 bits of 0".into(),
            );
        }
        if wqe_head(bytes) {
            add(90, Kind::Uar, "8 bytes: the beginning of a WQE".into());
        }
        if bytes[0] & 0xce == 0 && bytes[4] == 0 && !is_zero(&bytes[5..]) {
            add(
                40,
                Kind::CqArm,
                "8 bytes: a request for an event, and a CQN".into(),
            );
        }
        if bytes[0] == 0 {
            add(
                30,
                Kind::CqDoorbellRecord,
                "8 bytes, the first a number of 24 bits".into(),
            );
        }
    }
    if let Some(opcode) = devx::looks_like_command(bytes) {
        add(
            95,
            Kind::Devx,
            format!("begins with the opcode of {opcode}, and is long enough"),
        );
    }
    let (entries, _) = bytes.as_chunks::<BLOCK>();
    let used = || entries.iter().filter(|entry| !is_zero(&entry[..]));
    let (all, cqes) = (
        used().count(),
        used().filter(|entry| completion::looks_like(entry)).count(),
    );
    if cqes > 0 {
        let percent = 100 * cqes / all;
        add(
            percent as u32,
            Kind::Cqe,
            format!("{cqes} of {all} entries of 64 bytes are written like CQEs"),
        );
    }
    let first = bytes.chunks(BLOCK).find(|block| !is_zero(block));
    if let Some(first) = first.filter(|first| wqe::looks_like(first)) {
        let structures = wqe::queue(bytes, context);
        let faulty = structures.iter().filter(|found| {
            let mut findings = found.findings.iter();
            findings.any(|finding| finding.severity == super::Severity::Error)
        });
        let (all, faulty) = (structures.len(), faulty.count());
        let opcode = mlx5_wqe::Opcode(first[3]);
        add(
            (85 * (all - faulty) / all).max(20) as u32,
            Kind::Wqe,
            format!("begins with the control segment of {opcode}; errors in {faulty} of {all}"),
        );
    }
    if bytes.len() == UarPage::SIZE && is_page(bytes) {
        add(60, Kind::Uar, "a page with nothing but doorbells".into());
    }
    let segment: Data = segments::read(&Reader::new(bytes, 0), 0);
    let local = segment.local();
    if bytes.len() >= size_of::<Data>()
        && local.length > 0
        && !segment.is_inline()
        && local.key.0 != 0
    {
        add(
            15,
            Kind::RecvWqe,
            format!("begins with a data segment of {} bytes", local.length),
        );
    }
    if bytes.len() >= 16 && is_zero(&bytes[1..4]) && !is_zero(bytes) && cqes == 0 {
        let status = mlx5_wqe::prm::CommandStatus(bytes[0]);
        if status.name().is_some() {
            add(
                10,
                Kind::DevxAnswer,
                format!("begins with the status \"{status}\""),
            );
        }
    }
    found.sort_by_key(|(percent, _)| std::cmp::Reverse(*percent));
    let mut found: Vec<_> = found.into_iter().map(|(_, candidate)| candidate).collect();
    let mut kinds = std::collections::HashSet::new();
    found.retain(|candidate| kinds.insert(candidate.kind));
    found
}

/// Whether 8 bytes are the first ones of a WQE.
fn wqe_head(bytes: &[u8]) -> bool {
    let ds = bytes[7];
    (1..=0x3f).contains(&ds)
        && !is_zero(&bytes[4..7])
        && mlx5_wqe::Opcode(bytes[3]).name().is_some()
}

/// Whether there is nothing beside the registers of a page.
fn is_page(bytes: &[u8]) -> bool {
    let registers = [
        UarPage::CQ_ARM,
        UarPage::DOORBELL_WITHOUT_RECORD,
        UarPage::DOORBELLS[0],
        UarPage::DOORBELLS[1],
    ];
    let is_register = |at: usize| {
        registers
            .iter()
            .any(|start| (*start..start + 8).contains(&at))
    };
    let mut others = bytes.iter().enumerate().filter(|(at, _)| !is_register(*at));
    others.all(|(_, byte)| *byte == 0)
}
