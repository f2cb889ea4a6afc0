//! What `warpbell` makes of bytes, of running processes and of machines: known ones, any ones, and wrong ones.

mod any_bytes;
mod bring_up;
mod findings;
mod goldens;
mod input;
mod live;
mod metrics;
mod program;
mod wireshark;

use warpbell_command::decode::{Context, Kind, Report, Severity, Structure, decode};

/// The report on bytes of a kind, with nothing else known.
fn plain(kind: Kind, bytes: &[u8]) -> Report {
    decode(bytes, Some(kind), &Context::default())
}

/// Bytes of hex digits.
fn bytes(hex: &str) -> Vec<u8> {
    warpbell_command::input::parse(hex.as_bytes().to_vec())
        .unwrap()
        .bytes
}

/// The value and the meaning of the first field of a name.
#[track_caller]
fn field<'a>(structure: &'a Structure, name: &str) -> (&'a str, &'a str) {
    let found = structure.fields.iter().find(|field| field.name == name);
    let found = found.unwrap_or_else(|| panic!("no field {name} in {:#?}", structure.fields));
    (&found.raw, &found.meaning)
}

/// The findings of a structure, as severity and text.
fn findings(structure: &Structure) -> Vec<(Severity, &str)> {
    let findings = structure.findings.iter();
    findings
        .map(|finding| (finding.severity, finding.text.as_str()))
        .collect()
}
