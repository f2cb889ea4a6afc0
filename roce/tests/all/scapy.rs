//! Packets that scapy built with `tests/scapy_packets.py`: every opcode over IPv4 and IPv6, with CRCs.

use std::collections::HashMap;
use std::process::Command;

use warpbell_roce::{
    Aeth, AethSyndrome, AtomicAckEth, AtomicEth, Bth, BthFlags, BthOpcode, CnpBody, Deth, Extended,
    Form, Headers, Ieth, ImmDt, Msn, Packet, Psn, Qpn, Reth, from_ip,
};

use crate::{build, bytes_of};

/// What the script printed, for seed 0, with scapy 2.8.0.
const PRINTED: &str = include_str!("../data/scapy.txt");

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| std::str::from_utf8(pair).expect("ASCII"))
        .map(|pair| u8::from_str_radix(pair, 16).expect("digits"))
        .collect()
}

fn check_packet(line: &str) {
    let values: HashMap<_, _> = line
        .split(' ')
        .map(|pair| pair.split_once('=').expect("KEY=VALUE"))
        .collect();
    let long = |name: &str| u64::from_str_radix(values[name], 16).expect("a number");
    let number = |name: &str| u32::try_from(long(name)).expect("32 bits");
    let flags: BthFlags = [
        ("se", BthFlags::SOLICITED_EVENT),
        ("migreq", BthFlags::MIG_REQ),
        ("fecn", BthFlags::FECN),
        ("becn", BthFlags::BECN),
        ("ackreq", BthFlags::ACK_REQUEST),
    ]
    .iter()
    .filter(|(name, _)| number(name) == 1)
    .map(|&(_, flag)| flag)
    .collect();
    let opcode = BthOpcode(number("opcode") as u8);
    let qpn = |name| Qpn::new(number(name)).expect("24 bits");
    let psn = Psn::new(number("psn")).expect("24 bits");
    let mut bth = Bth::new(opcode, qpn("dqpn"), psn, flags);
    bth.partition_key = (number("pkey") as u16).into();

    let virtual_address = long("va").into();
    let remote_key = number("key").into();
    let immediate = ImmDt {
        data: number("data").into(),
    };
    let reth = Reth {
        virtual_address,
        remote_key,
        length: number("length").into(),
    };
    let aeth = Aeth {
        syndrome: AethSyndrome(number("syndrome") as u8),
        msn: Msn::new(number("msn")).expect("24 bits"),
    };
    let atomic = AtomicEth {
        virtual_address,
        remote_key,
        swap_or_add: long("swap").into(),
        compare: long("compare").into(),
    };
    let atomic_ack = AtomicAckEth {
        original: long("original").into(),
    };
    let deth = Deth {
        queue_key: remote_key,
        reserved: 0,
        source_qp: qpn("source_qp"),
    };
    let ieth = Ieth { remote_key };
    let body = CnpBody::default();
    let extended = match opcode.shape().expect("a known opcode").form {
        Form::Bare => Extended::Bare {},
        Form::Immediate => Extended::Immediate { immediate },
        Form::Invalidate => Extended::Invalidate { ieth },
        Form::Reth => Extended::Reth { reth },
        Form::RethImmediate => Extended::RethImmediate { reth, immediate },
        Form::Aeth => Extended::Aeth { aeth },
        Form::AtomicAck => Extended::AtomicAck { aeth, atomic_ack },
        Form::Atomic => Extended::Atomic { atomic },
        Form::Deth => Extended::Deth { deth },
        Form::DethImmediate => Extended::DethImmediate { deth, immediate },
        Form::Cnp => Extended::Cnp { body },
    };
    let payload = bytes(values["payload"]);
    let headers = Headers::new(bth, extended, payload.len()).expect("headers that fit");
    let frame = bytes(values["packet"]);

    let (udp, theirs) = from_ip(&frame).expect("an IP packet");
    assert_eq!(u32::from(udp.source_port), number("source_port"));
    assert!(udp.verify(&[theirs]), "{line}");
    assert_eq!(build(&headers, &payload, &udp), theirs, "{line}");
    let packet = Packet::parse(theirs).expect("a packet");
    assert_eq!((packet.headers, packet.payload), (headers, &payload[..]));
    assert_eq!(packet.headers.bth().flags(), flags);
    assert_eq!(bytes_of(&packet), theirs);
}

/// Checks each packet, and the name of each opcode; returns how many packets there are.
fn check(printed: &str) -> usize {
    let mut packets = 0;
    for line in printed.lines() {
        let Some(opcode) = line.strip_prefix("opcode ") else {
            check_packet(line);
            packets += 1;
            continue;
        };
        let (number, name) = opcode.split_once(' ').expect("NUMBER NAME");
        let opcode = BthOpcode(u8::from_str_radix(number, 16).expect("a number"));
        // Reliable datagrams are not here.
        assert_eq!(opcode.shape().is_none(), name.starts_with("RD_"), "{name}");
        if opcode.shape().is_some() {
            assert_eq!(opcode.to_string().to_uppercase().replace(' ', "_"), name);
        }
    }
    packets
}

#[test]
fn fixed_packets_agree() {
    assert_eq!(check(PRINTED), 2 * BthOpcode::KNOWN.len());
}

/// `WARPBELL_SCAPY` names a Python with scapy.
#[test]
#[ignore = "needs a Python with scapy, which WARPBELL_SCAPY names"]
fn fresh_packets_agree() {
    let python = std::env::var_os("WARPBELL_SCAPY").expect("WARPBELL_SCAPY names a Python");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scapy_packets.py");
    for seed in 0..4 {
        let mut command = Command::new(&python);
        let run = command.arg(script).arg(seed.to_string()).output();
        let run = run.expect("Python starts");
        assert!(run.status.success(), "{run:?}");
        let printed = String::from_utf8(run.stdout).expect("text");
        assert_eq!(check(&printed), 2 * BthOpcode::KNOWN.len());
        if seed == 0 {
            assert_eq!(
                printed, PRINTED,
                "tests/data/scapy.txt is of another script"
            );
        }
    }
}
