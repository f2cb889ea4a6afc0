//! What `warpbell decode` says of a ring in which libmlx5 posted a request: what was asked for.

use mlx5_wqe::WqeBlock;
use warpbell_command::decode::{Context, Kind, Severity, Structure, decode};
use warpbell_proofs::facts::Facts;
use zerocopy::IntoBytes;

use super::asked::{Asked, Payload, Verb};

/// The most bytes of a message.
const MAX_MESSAGE: u64 = 1 << 30;

/// Where the request was posted.
#[derive(Clone, Copy)]
pub struct Place {
    pub index: u16,
    pub qpn: u32,
    /// libmlx5 signs its WQEs, and those across the ring's end with bytes of others.
    pub signed: bool,
}

/// Compares what is said of the only WQE of a ring with the request; opcodes and fences are the header's.
pub fn check(ring: &[WqeBlock], place: Place, asked: &Asked, header: &Facts) {
    let context = Context {
        log_size: Some(ring.len().ilog2() as u8),
        qpn: Some(place.qpn),
        ..Context::default()
    };
    let report = decode(ring.as_bytes(), Some(Kind::Wqe), &context);
    let is_wqe = |found: &&Structure| found.fields.iter().any(|field| field.name == "opcode");
    let wqes: Vec<_> = report.structures.iter().filter(is_wqe).collect();
    let [wqe] = wqes[..] else {
        panic!("{} WQEs in {:#?}", wqes.len(), report.structures);
    };
    assert_eq!(wqe.offset, usize::from(place.index) % ring.len() * 64);
    if !place.signed {
        let findings = report.structures.iter().flat_map(|found| &found.findings);
        let bad: Vec<_> = findings
            .filter(|finding| finding.severity != Severity::Note)
            .collect();
        assert_eq!(!bad.is_empty(), is_refused(asked), "{bad:?}");
    }

    let mut expected = said(asked, place, header);
    if let Payload::Inline(bytes, _) = &asked.data {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        expected.push(("inline data", hex));
    }
    let names: Vec<_> = expected.iter().map(|(name, _)| *name).collect();
    let found = wqe.fields.iter();
    let found = found.filter(|field| names.contains(&field.name.as_str()));
    let found: Vec<_> = found
        .map(|field| (field.name.as_str(), plain(&field.name, &field.raw)))
        .collect();
    assert_eq!(found, expected);
}

/// Whether a card refuses what libmlx5 posts all the same.
fn is_refused(asked: &Asked) -> bool {
    let is_atomic = matches!(asked.verb, Verb::CompareSwap | Verb::FetchAdd);
    let is_askew = !asked.remote.address.is_multiple_of(8);
    asked.wqe().payload() > MAX_MESSAGE || (is_atomic && is_askew)
}

/// A number without its width; other bytes as they are.
fn plain(name: &str, raw: &str) -> String {
    let digits = raw.trim_start_matches("0x");
    match name {
        "inline data" => digits.to_owned(),
        _ => u64::from_str_radix(digits, 16).map_or(raw.to_owned(), |value| value.to_string()),
    }
}

/// The fields in the order of the bytes, without inline data.
fn said(asked: &Asked, place: Place, header: &Facts) -> Vec<(&'static str, String)> {
    let opcode = match asked.verb {
        Verb::Write => "MLX5_OPCODE_RDMA_WRITE",
        Verb::WriteImmediate => "MLX5_OPCODE_RDMA_WRITE_IMM",
        Verb::Send => "MLX5_OPCODE_SEND",
        Verb::SendImmediate => "MLX5_OPCODE_SEND_IMM",
        Verb::SendInvalidate => "MLX5_OPCODE_SEND_INVAL",
        Verb::Read => "MLX5_OPCODE_RDMA_READ",
        Verb::CompareSwap => "MLX5_OPCODE_ATOMIC_CS",
        Verb::FetchAdd => "MLX5_OPCODE_ATOMIC_FA",
    };
    let flag = |set: bool, name: &str, shift: u32| if set { header[name] >> shift } else { 0 };
    let has_word = matches!(
        asked.verb,
        Verb::WriteImmediate | Verb::SendImmediate | Verb::SendInvalidate
    );
    let is_send = matches!(
        asked.verb,
        Verb::Send | Verb::SendImmediate | Verb::SendInvalidate
    );
    let mut said = vec![
        ("WQE index", u64::from(place.index)),
        ("opcode", header[opcode]),
        ("QPN", place.qpn.into()),
        ("fence", flag(asked.fenced, "MLX5_WQE_CTRL_FENCE", 5)),
        (
            "completion",
            flag(asked.signalled, "MLX5_WQE_CTRL_CQ_UPDATE", 2),
        ),
        (
            "solicited",
            flag(asked.solicited, "MLX5_WQE_CTRL_SOLICITED", 1),
        ),
        ("immediate", if has_word { asked.word.into() } else { 0 }),
    ];
    if !is_send {
        said.push(("remote address", asked.remote.address));
        said.push(("rkey", asked.remote.key.0.into()));
    }
    let [first, second] = asked.operands;
    match asked.verb {
        Verb::CompareSwap => said.extend([("swap", second), ("compare", first)]),
        Verb::FetchAdd => said.push(("add", first)),
        _ => {}
    }
    match &asked.data {
        Payload::List(list) => {
            for local in list {
                said.push(("length", local.length.into()));
                said.push(("lkey", local.key.0.into()));
                said.push(("local address", local.address));
            }
        }
        Payload::Inline(bytes, _) => said.push(("length", bytes.len() as u64)),
    }
    let said = said.into_iter();
    said.map(|(name, value)| (name, value.to_string()))
        .collect()
}
