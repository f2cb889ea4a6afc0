//! The dissector for Wireshark against the decoder: both read the same field from the same bytes.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use mlx5_wqe::{
    Completion, CompletionError, CqNumber, Immediate, Local, LocalKey, Masked, Opcode, QpNumber,
    Remote, RemoteKey, Requester, Side, Syndrome, VendorCode, Wqe, WqeIndex,
};
use warpbell_command::decode::{Kind, Structure};
use zerocopy::IntoBytes;

use crate::plain;

const QPN: QpNumber = QpNumber::from_low_bits(0xab_cdef);
const LOCAL: Local = Local {
    address: 0x1234_5678_9abc_def0,
    length: 8,
    key: LocalKey(0x0102_0304),
};
const REMOTE: Remote = Remote {
    address: 0x0fed_cba9_8765_4320,
    key: RemoteKey(0x0a0b_0c0d),
};

/// A capture file of these packets.
fn write(file: &Path, link_type: u32, packets: &[Vec<u8>]) {
    // Magic, version 2.4, time zone and accuracy, longest packet, link type.
    let mut bytes = [0xa1b2_c3d4_u32.to_le_bytes(), [2, 0, 4, 0], [0; 4], [0; 4]].concat();
    bytes.extend([65_535, link_type].map(u32::to_le_bytes).concat());
    for packet in packets {
        let len = packet.len() as u32;
        bytes.extend([0, 0, len, len].map(u32::to_le_bytes).concat());
        bytes.extend(packet);
    }
    std::fs::write(file, bytes).unwrap();
}

/// What tshark reads: a line a packet, the fields apart by tabs. None without tshark.
fn read(file: &Path, fields: &[&str]) -> Option<Vec<Vec<String>>> {
    let script = concat!(
        "lua_script:",
        env!("CARGO_MANIFEST_DIR"),
        "/wireshark/mlx5.lua"
    );
    let mut command = Command::new("tshark");
    command.args(["-X", script, "-T", "fields", "-r"]).arg(file);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            eprintln!("skipped: tshark is not installed");
            return None;
        }
        output => output.unwrap(),
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !stderr.contains("Lua: Error"),
        "{stderr}"
    );
    let lines = String::from_utf8(output.stdout).unwrap();
    let words = |line: &str| line.split('\t').map(str::to_string).collect();
    Some(lines.lines().map(words).collect())
}

/// The value of the decoder's first field of a name; empty if there is none.
fn value(structure: &Structure, name: &str) -> String {
    let found = structure.fields.iter().find(|field| field.name == name);
    found.map_or_else(String::new, |field| field.raw.clone())
}

/// Compares tshark's fields with the decoder's, as numbers, or as digits where there are more than 8 bytes.
fn compare(name: &str, link_type: u32, kind: Kind, packets: &[Vec<u8>], fields: &[(&str, &str)]) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    write(&file, link_type, packets);
    let theirs: Vec<_> = fields.iter().map(|(theirs, _)| *theirs).collect();
    let Some(lines) = read(&file, &theirs) else {
        return;
    };
    assert_eq!(lines.len(), packets.len());
    let number = |text: &str| {
        let first = text.split(',').next().unwrap_or_default();
        match first.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => first.parse().ok(),
        }
    };
    for (line, packet) in lines.iter().zip(packets) {
        let structure = &plain(kind, packet).structures[0];
        for ((theirs, ours), found) in fields.iter().zip(line) {
            let expected = value(structure, ours);
            match expected.starts_with("0x") {
                true => assert_eq!(
                    number(found),
                    number(&expected),
                    "{theirs}: {found} in {line:?}"
                ),
                false => assert_eq!(*found, expected, "{theirs} in {line:?}"),
            }
        }
    }
}

#[test]
fn wqes() {
    let placed = |wqe: Wqe<1>| wqe.place(WqeIndex(0x1f3), QPN).as_bytes().to_vec();
    let masked = |value, mask| Masked { value, mask };
    let packets = [
        placed(
            Wqe::write_immediate(LOCAL, REMOTE, Immediate(77))
                .signalled()
                .solicited(),
        ),
        placed(Wqe::read(LOCAL, REMOTE)),
        placed(Wqe::send_inline(b"twelve bytes").unwrap()),
        placed(Wqe::fetch_add(LOCAL, REMOTE, 5)),
        placed(Wqe::wait(CqNumber::new(0x123).unwrap(), 9)),
        placed(Wqe::nop()),
        Wqe::<2>::masked_compare_swap_u64(LOCAL, REMOTE, masked(1, 2), masked(3, 4))
            .place(WqeIndex(1), QPN)
            .as_bytes()
            .to_vec(),
    ];
    let fields = [
        ("mlx5_wqe.opcode", "opcode"),
        ("mlx5_wqe.modifier", "opcode modifier"),
        ("mlx5_wqe.index", "WQE index"),
        ("mlx5_wqe.qpn", "QPN"),
        ("mlx5_wqe.ds", "ds"),
        ("mlx5_wqe.fence", "fence"),
        ("mlx5_wqe.completion", "completion"),
        ("mlx5_wqe.immediate", "immediate"),
        ("mlx5_wqe.remote_address", "remote address"),
        ("mlx5_wqe.rkey", "rkey"),
        ("mlx5_wqe.length", "length"),
        ("mlx5_wqe.lkey", "lkey"),
        ("mlx5_wqe.local_address", "local address"),
        ("mlx5_wqe.inline", "inline data"),
        ("mlx5_wqe.wait_index", "index"),
        ("mlx5_wqe.wait_queue", "queue"),
    ];
    compare("wqes.pcap", 147, Kind::Wqe, &packets, &fields);
}

#[test]
fn cqes() {
    let done = Completion::Requester(Requester {
        qpn: QPN,
        wqe_index: WqeIndex(7),
        opcode: Opcode::RDMA_READ,
        byte_count: 4096,
    });
    let failed = Completion::Error(CompletionError {
        side: Side::Requester,
        syndrome: Syndrome::RNR_RETRY,
        vendor: VendorCode(0x87),
        wqe_index: WqeIndex(9),
        opcode: Opcode::SEND,
        qpn: QPN,
    });
    let packets =
        [done.encode(true), failed.encode(false).solicited()].map(|cqe| cqe.to_bytes().to_vec());
    let fields = [
        ("mlx5_cqe.opcode", "CQE opcode"),
        ("mlx5_cqe.wqe_opcode", "WQE opcode"),
        ("mlx5_cqe.qpn", "QPN"),
        ("mlx5_cqe.wqe_counter", "WQE counter"),
        ("mlx5_cqe.syndrome", "syndrome"),
        ("mlx5_cqe.vendor", "vendor code"),
        ("mlx5_cqe.byte_count", "byte count"),
        ("mlx5_cqe.owner", "owner"),
        ("mlx5_cqe.user_index", "user index"),
    ];
    compare("cqes.pcap", 148, Kind::Cqe, &packets, &fields);
}

#[test]
fn a_segment_past_the_end_is_malformed() {
    let mut wqe = Wqe::<1>::send(LOCAL)
        .place(WqeIndex(0), QPN)
        .as_bytes()
        .to_vec();
    wqe[7] = 9;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("torn.pcap");
    write(&file, 147, &[wqe[..10].to_vec(), wqe]);
    let Some(lines) = read(&file, &["mlx5_wqe.malformed", "_ws.col.Info"]) else {
        return;
    };
    assert_eq!(lines.len(), 2);
    for line in &lines {
        assert!(!line[0].is_empty(), "{lines:?}");
    }
    assert!(
        lines[1][1].starts_with("SEND, index 0, QP 0xabcdef"),
        "{lines:?}"
    );
}
