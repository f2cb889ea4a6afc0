//! What tshark and scapy say of the packets that the preloaded device captures.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use warpbell_proofs::pair::{self, Side};

use crate::folder::Folder;
use crate::machines::{SERVER, with_gid};
use crate::{Outcome, missing};

/// Debian's own interpreter, which has Debian's scapy.
const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = include_str!("captured.py");
/// Programs whose packets have all kinds of headers between them.
const PROGRAMS: [(&str, &str); 6] = [
    ("ibv_rc_pingpong", "-n 50"),
    ("ibv_uc_pingpong", "-n 50"),
    ("ibv_ud_pingpong", "-n 50"),
    ("ib_write_bw", "-n 30"),
    ("ib_read_lat", "-n 50"),
    ("ib_atomic_lat", "-n 50"),
];
/// Each file has at least so many packets.
const LEAST: u64 = 50;
/// What tshark calls an error (`PI_ERROR` of its `proto.h`).
const ERROR: u32 = 0x0080_0000;

/// Runs all programs with a capture between these two, and has the packets judged.
pub fn run(sides: [Side<'_>; 2], gid_index: &str) -> Outcome {
    if let Some(missing) = missing("tshark") {
        return missing;
    }
    match judged(sides, gid_index) {
        Ok(packets) => Outcome::Well(format!("{packets} packets")),
        Err(why) => Outcome::Badly(why),
    }
}

fn judged(sides: [Side<'_>; 2], gid_index: &str) -> Result<u64, String> {
    let words = |error: io::Error| error.to_string();
    let folder = Folder::new("captured").map_err(words)?;
    let mut environment = sides[0].environment.to_vec();
    environment.push(("WARPBELL_CAPTURE", folder.0.display().to_string()));
    let sides = sides.map(|side| Side {
        environment: &environment,
        ..side
    });
    for (program, options) in PROGRAMS {
        let options = with_gid(program, gid_index, options);
        pair::run_between(sides, SERVER, program, &options)?;
    }
    let family = if gid_index == "1" { "ipv4" } else { "ipv6" };
    let files = fs::read_dir(&folder.0).map_err(words)?;
    let files: Result<Vec<PathBuf>, _> = files.map(|file| Ok(file?.path())).collect();
    let mut files = files.map_err(words)?;
    // The device listens over both, and a program uses one.
    files.retain(|file| file.to_string_lossy().contains(family));
    if files.len() != 2 * PROGRAMS.len() {
        return Err(format!("{} files of {family}", files.len()));
    }
    let by_scapy = said(Command::new(PYTHON).args(["-c", SCRIPT]).args(&files))?;
    let mut packets = 0;
    for (file, line) in files.iter().zip(by_scapy.lines()) {
        let [all, roce, bad] = by_tshark(file)?;
        let crcs = if family == "ipv4" { all } else { 0 };
        if all < LEAST || roce != all || bad != 0 || line != format!("{all} {crcs} 0") {
            return Err(format!(
                "of {all} packets tshark takes {roce} for RoCE and {bad} for malformed; \
                 scapy finds packets, judges CRCs and refuses CRCs: {line}"
            ));
        }
        packets += all;
    }
    Ok(packets)
}

/// Of the packets of a file how many there are, how many tshark takes for RoCE, and how many for malformed.
fn by_tshark(file: &Path) -> Result<[u64; 3], String> {
    let mut tshark = Command::new("tshark");
    tshark.args(["-o", "udp.check_checksum:TRUE", "-T", "fields"]);
    tshark.args(["-e", "frame.protocols", "-e", "_ws.expert.severity", "-r"]);
    let mut counts = [0; 3];
    for line in said(tshark.arg(file))?.lines() {
        let (protocols, severities) = line.split_once('\t').unwrap_or((line, ""));
        let mut severities = severities.split(',');
        let is_error = severities.any(|severity| severity.parse().is_ok_and(|s: u32| s >= ERROR));
        let is_roce = protocols.contains(":infiniband");
        let is_bad = is_error || protocols.contains("malformed");
        for (count, has) in counts.iter_mut().zip([true, is_roce, is_bad]) {
            *count += u64::from(has);
        }
    }
    Ok(counts)
}

fn said(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}
