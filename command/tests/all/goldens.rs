//! Bytes from cards, from headers and from the builders, whose values their sources give.

use mlx5_wqe::prm::{
    AddressPath, CommandOpcode, CommandStatus, InitToRtr, Mtu, QpContext, Refusal,
};
use mlx5_wqe::{
    AddressVector, Completion, CompletionError, CqArm, CqNumber, Doorbell, DoorbellRecord,
    Immediate, Local, LocalKey, Masked, Opcode, QpNumber, ReceiveWqe, Remote, RemoteKey, Side,
    Syndrome, VendorCode, Wqe, WqeIndex, signature,
};
use proptest::prelude::*;
use warpbell_command::decode::{Context, Kind, Service, Severity, decode};
use zerocopy::IntoBytes;

use crate::{bytes, field, findings, plain};

/// Error CQEs of real cards, as public threads print them: 16 big-endian words each.
const CARDS: [(&str, &str); 5] = [
    (
        "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
         00000002 00000000 00000000 00000000 00000000 00008813 10012abe 0dd0c1d3",
        "remote access error (syndrome 0x13), vendor code 0x88: RDMA_READ in send WQE 0x0dd0 of QP 0x012abe",
    ),
    (
        "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
         000000b9 00000000 00000000 00000000 00000000 00008813 100076ab 008ae4d3",
        "remote access error (syndrome 0x13), vendor code 0x88: RDMA_READ in send WQE 0x008a of QP 0x0076ab",
    ),
    (
        "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
         00000000 00000000 00000000 00000000 00000000 00008716 0a001f8e 000027d2",
        "RNR retry counter exceeded (syndrome 0x16), vendor code 0x87: SEND in send WQE 0x0000 of QP 0x001f8e",
    ),
    (
        "00736565 6e000000 00000000 00000000 00000000 00000000 00000000 00000000 \
         00000013 00000000 00000000 00000000 00000000 9d005304 0a001542 0019b0d2",
        "local protection error (syndrome 0x04), vendor code 0x53: SEND in send WQE 0x0019 of QP 0x001542",
    ),
    (
        "00736565 6e000000 00000000 00000000 00000000 00000000 00000000 00000000 \
         0000000c 00000000 00000000 00000000 00000000 9d005304 0a001534 005a98d2",
        "local protection error (syndrome 0x04), vendor code 0x53: SEND in send WQE 0x005a of QP 0x001534",
    ),
];

const INDEX: WqeIndex = WqeIndex(0x1f3);
const QPN: QpNumber = QpNumber::from_low_bits(0xab_cdef);
const LOCAL: Local = Local {
    address: 0x1234_5678_9abc_def0,
    length: 0x1000,
    key: LocalKey(0x0102_0304),
};
const REMOTE: Remote = Remote {
    address: 0x0fed_cba9_8765_4320,
    key: RemoteKey(0x0a0b_0c0d),
};

#[test]
fn completions_of_cards() {
    for (dump, said) in CARDS {
        let report = decode(&bytes(dump), None, &Context::default());
        assert_eq!(report.kind, Some(Kind::Cqe), "{:?}", report.candidates);
        let [cqe] = &report.structures[..] else {
            panic!("one CQE")
        };
        assert_eq!(cqe.title, format!("CQE in place 0: {said}"));
        assert_eq!(field(cqe, "CQE opcode").0, "0xd");
        assert_eq!(field(cqe, "solicited"), ("0x1", "yes"));
        assert!(!report.has_errors(), "{:?}", cqe.findings);
        // What the syndrome's description says is there.
        assert_eq!(cqe.findings[0].severity, Severity::Warning);
        assert_eq!(cqe.findings[0].offset, 55);
    }
    let cqe = &plain(Kind::Cqe, &bytes(CARDS[3].0)).structures[0];
    assert_eq!(field(cqe, "HW syndrome").0, "0x9d");
    assert_eq!(field(cqe, "user index").0, "0x000013");
    assert_eq!(field(cqe, "signature").0, "0xb0");
    assert_eq!(field(cqe, "owner").0, "0x0");
}

#[test]
fn a_write() {
    let wqe = Wqe::write_immediate(LOCAL, REMOTE, Immediate(77))
        .signalled()
        .place(INDEX, QPN);
    let context = Context {
        index: Some(INDEX.0.into()),
        qpn: Some(QPN.get()),
        ..Context::default()
    };
    let report = decode(wqe.as_bytes(), None, &context);
    assert_eq!(report.kind, Some(Kind::Wqe));
    let [found] = &report.structures[..] else {
        panic!("one WQE")
    };
    let expected = [
        ("opcode", "0x09"),
        ("WQE index", "0x01f3"),
        ("QPN", "0xabcdef"),
        ("ds", "0x03"),
        ("completion", "0x2"),
        ("fence", "0x0"),
        ("solicited", "0x0"),
        ("immediate", "0x0000004d"),
        ("remote address", "0x0fedcba987654320"),
        ("rkey", "0x0a0b0c0d"),
        ("length", "0x00001000"),
        ("lkey", "0x01020304"),
        ("local address", "0x123456789abcdef0"),
    ];
    for (name, raw) in expected {
        assert_eq!(field(found, name).0, raw, "{name}");
    }
    assert_eq!(findings(found), []);
}

#[test]
fn atomics_waits_and_inline_data() {
    let eight = Local { length: 8, ..LOCAL };
    let masked = |value, mask| Masked { value, mask };
    let swap = Wqe::masked_compare_swap_u64(eight, REMOTE, masked(1, 2), masked(3, 4));
    let found = &plain(Kind::Wqe, swap.place(INDEX, QPN).as_bytes()).structures;
    assert_eq!(found.len(), 1, "a WQE of two blocks");
    for (name, value) in [
        ("compare", 1),
        ("compare mask", 2),
        ("swap", 3),
        ("swap mask", 4),
    ] {
        assert_eq!(field(&found[0], name).0, format!("{value:#018x}"), "{name}");
    }
    let wait = Wqe::<1>::wait(CqNumber::new(0x123).unwrap(), 9).place(INDEX, QPN);
    let found = &plain(Kind::Wqe, wait.as_bytes()).structures[0];
    assert_eq!(
        field(found, "queue"),
        ("0x00000123", "completion queue 0x000123")
    );
    assert_eq!(field(found, "index").0, "0x00000009");

    let inline = Wqe::<1>::write_inline(b"twelve bytes", REMOTE)
        .unwrap()
        .place(INDEX, QPN);
    let found = &plain(Kind::Wqe, inline.as_bytes()).structures[0];
    assert_eq!(field(found, "length"), ("0x0000000c", "12 bytes"));
    assert_eq!(field(found, "inline data").0, "7477656c7665206279746573");
    assert_eq!(findings(found), []);
}

/// A datagram has its address vector behind the control segment.
#[test]
fn a_datagram() {
    let vector = AddressVector {
        rgid: [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9],
        ..AddressVector::datagram(QpNumber::new(0x77).unwrap(), 0x1122_3344)
    };
    let mut wqe = Wqe::<1>::send(LOCAL).place(INDEX, QPN).as_bytes().to_vec();
    wqe.splice(16..16, vector.as_bytes().iter().copied());
    wqe[7] = 5;
    wqe.resize(128, 0);
    let context = Context {
        transport: Service::Ud.into(),
        ..Context::default()
    };
    let found = &decode(&wqe, Some(Kind::Wqe), &context).structures[0];
    assert_eq!(field(found, "destination").0, "0x000077");
    assert_eq!(field(found, "Q_Key").0, "0x11223344");
    assert_eq!(field(found, "remote GID").1, "2001:db8::9");
    assert_eq!(field(found, "length").1, "4096 bytes");
    assert_eq!(findings(found), []);
}

/// What libmlx5 signs: its XOR over a NOP of 16 bytes was measured.
#[test]
fn a_signature_is_checked() {
    let [block] = signature::signed(Wqe::<1>::nop().place(INDEX, QPN));
    let found = &plain(Kind::Wqe, block.as_bytes()).structures[0];
    assert_eq!(
        findings(found),
        [(Severity::Note, "the signature fits the WQE's bytes")]
    );
}

#[test]
fn receives() {
    let half = Local {
        length: 64,
        ..LOCAL
    };
    let wqe = ReceiveWqe::<4>::linked(8, &[half, half])
        .unwrap()
        .to_octowords();
    let context = Context {
        stride: 64,
        log_size: Some(4),
        ..Context::default()
    };
    let report = decode(wqe.as_bytes(), Some(Kind::SrqWqe), &context);
    let [found] = &report.structures[..] else {
        panic!("one receive")
    };
    assert_eq!(
        found.title,
        "receive WQE in place 0: 128 bytes in 2 segments"
    );
    assert_eq!(field(found, "next WQE").0, "0x0008");
    let ends = found
        .fields
        .iter()
        .filter(|field| field.meaning == "end of the list");
    assert_eq!(ends.count(), 1);
}

#[test]
fn doorbells() {
    let record = [DoorbellRecord::word(3), DoorbellRecord::word(0x1234)];
    let report = decode(record.as_bytes(), None, &Context::default());
    assert_eq!(report.kind, Some(Kind::DoorbellRecord));
    let found = &report.structures[0];
    assert_eq!(field(found, "receives posted").0, "0x0003");
    assert_eq!(field(found, "blocks posted").0, "0x1234");

    let rung = Doorbell::of_producer(WqeIndex(8), QPN).0.to_ne_bytes();
    let found = &plain(Kind::Uar, &rung).structures[0];
    assert_eq!(
        (field(found, "index").0, field(found, "QPN").0),
        ("0x0008", "0xabcdef")
    );
    assert_eq!(field(found, "ds").0, "0x00");
    let pushed = Doorbell::of_wqe(&Wqe::<1>::nop().place(INDEX, QPN))
        .0
        .to_ne_bytes();
    let report = decode(&pushed, None, &Context::default());
    assert_eq!(report.kind, Some(Kind::Uar), "{:?}", report.candidates);
    assert!(
        report.structures[0].findings[0]
            .text
            .contains("posted up to 0x01f4")
    );

    let arm = CqArm {
        sequence: 2,
        solicited_only: true,
        consumer: 0x345,
    };
    let armed = arm.doorbell(CqNumber::new(0x77).unwrap()).to_ne_bytes();
    let found = &plain(Kind::CqArm, &armed).structures[0];
    assert_eq!(field(found, "arm number").0, "0x2");
    assert_eq!(field(found, "armed at").0, "0x000345");
    assert_eq!(field(found, "CQN").0, "0x000077");
    let mut page = vec![0; 4096];
    page[0x20..0x28].copy_from_slice(&armed);
    page[0x800..0x808].copy_from_slice(&rung);
    let report = decode(&page, None, &Context::default());
    assert_eq!(report.kind, Some(Kind::Uar));
    let titles: Vec<_> = report
        .structures
        .iter()
        .map(|found| found.title.as_str())
        .collect();
    assert!(
        titles.contains(&"completion queue 0x000077 is armed"),
        "{titles:?}"
    );
    assert!(
        titles.contains(&"first send doorbell of queue pair 0xabcdef, index 0x0008"),
        "{titles:?}"
    );
}

#[test]
fn commands_and_answers() {
    let command = InitToRtr {
        qpn: QPN,
        qpc: QpContext {
            mtu: Mtu::BYTES_4096,
            remote_qpn: QpNumber::new(0x1234).unwrap(),
            primary_address_path: AddressPath {
                hop_limit: 64,
                rgid_rip: [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                ..AddressPath::default()
            },
            ..QpContext::default()
        },
        ..InitToRtr::default()
    };
    let report = decode(&command.to_bytes().unwrap(), None, &Context::default());
    assert_eq!(report.kind, Some(Kind::Devx), "{:?}", report.candidates);
    let found = &report.structures[0];
    assert_eq!(field(found, "opcode"), ("0x0503", "INIT2RTR_QP"));
    assert_eq!(field(found, "qpn").0, "0xabcdef");
    assert_eq!(field(found, "qpc.mtu"), ("0x5", "4096 bytes"));
    assert_eq!(field(found, "qpc.remote_qpn").0, "0x001234");
    assert_eq!(field(found, "qpc.primary_address_path.hop_limit").0, "0x40");
    assert_eq!(
        field(found, "qpc.primary_address_path.rgid_rip").1,
        "fe80::1"
    );

    let refusal = Refusal {
        status: CommandStatus::BAD_PARAMETER,
        syndrome: 0x7d_4a11,
    };
    let context = Context {
        answers: Some(CommandOpcode::CREATE_CQ),
        ..Context::default()
    };
    let report = decode(&refusal.to_bytes(), Some(Kind::DevxAnswer), &context);
    assert_eq!(field(&report.structures[0], "syndrome").0, "0x007d4a11");
    assert!(report.has_errors());
    let text = findings(&report.structures[0])[0].1;
    assert!(
        text.starts_with("the card refused the command: bad parameter (status 0x03)"),
        "{text}"
    );
    let created = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 0];
    let report = decode(&created, Some(Kind::DevxAnswer), &context);
    assert_eq!(field(&report.structures[0], "cqn").0, "0x001234");
    assert!(!report.has_errors());
}

/// Two laps of a ring of 8 blocks whose last WQE goes on at the ring's first block.
#[test]
fn a_ring_whose_last_wqe_wraps() {
    let mut ring = vec![0; 8 * 64];
    let mut put = |index: u16, wqe: &[u8]| {
        for (number, block) in wqe.chunks(64).enumerate() {
            let slot = (usize::from(index) + number) % 8;
            ring[slot * 64..slot * 64 + 64].copy_from_slice(block);
        }
    };
    let nop = |index| Wqe::<1>::nop().place(WqeIndex(index), QPN);
    for index in 0..8 {
        put(index, nop(index).as_bytes());
    }
    let data: Vec<_> = (1..=70).collect();
    let long = Wqe::<2>::write_inline(&data, REMOTE).unwrap();
    put(15, long.place(WqeIndex(15), QPN).as_bytes());
    let context = Context {
        log_size: Some(3),
        ..Context::default()
    };
    let report = decode(&ring, Some(Kind::Wqe), &context);
    let found = report.structures.last().unwrap();
    assert_eq!((found.offset, found.bytes), (7 * 64, 128));
    assert!(
        found.title.starts_with("send WQE 0x000f: RDMA_WRITE"),
        "{}",
        found.title
    );
    let inline = found
        .fields
        .iter()
        .find(|field| field.name == "inline data")
        .unwrap();
    assert_eq!(inline.raw.len(), 2 * data.len());
    let padding = found
        .fields
        .iter()
        .find(|field| field.meaning.starts_with("behind the WQE"));
    assert_eq!(padding.unwrap().offset, 48, "in the ring's first block");
    assert_eq!(report.structures[0].offset, 64);
    assert!(!report.has_errors());
}

fn config() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    /// What the builders build, field by field.
    #[test]
    fn what_builders_build(
        index: u16,
        qpn in 1..1_u32 << 24,
        address: u64,
        length in 1..1_u32 << 30,
        keys: (u32, u32),
        kind in 0..4,
    ) {
        let local = Local { address, length, key: LocalKey(keys.0) };
        let remote = Remote { address: !address, key: RemoteKey(keys.1) };
        let (wqe, opcode) = match kind {
            0 => (Wqe::write(local, remote), Opcode::RDMA_WRITE),
            1 => (Wqe::read(local, remote), Opcode::RDMA_READ),
            2 => (Wqe::send(local), Opcode::SEND),
            _ => (Wqe::send_invalidate(local, remote.key), Opcode::SEND_INVALIDATE),
        };
        let placed = wqe.place(WqeIndex(index), QpNumber::new(qpn).unwrap());
        let context = Context { index: Some(index.into()), qpn: Some(qpn), ..Context::default() };
        let report = decode(placed.as_bytes(), Some(Kind::Wqe), &context);
        let found = &report.structures[0];
        prop_assert_eq!(field(found, "opcode").0, format!("{:#04x}", opcode.0));
        prop_assert_eq!(field(found, "WQE index").0, format!("{index:#06x}"));
        prop_assert_eq!(field(found, "QPN").0, format!("{qpn:#08x}"));
        prop_assert_eq!(field(found, "local address").0, format!("{address:#018x}"));
        prop_assert_eq!(field(found, "length").0, format!("{length:#010x}"));
        prop_assert_eq!(field(found, "lkey").0, format!("{:#010x}", keys.0));
        if kind < 2 {
            prop_assert_eq!(field(found, "remote address").0, format!("{:#018x}", !address));
            prop_assert_eq!(field(found, "rkey").0, format!("{:#010x}", keys.1));
        }
        prop_assert!(!report.has_errors(), "{:?}", found.findings);
    }

    #[test]
    fn what_a_failed_request_leaves(
        index: u16,
        qpn in 0..1_u32 << 24,
        syndrome in proptest::sample::select(Syndrome::KNOWN),
        vendor: u8,
    ) {
        let error = CompletionError {
            side: Side::Requester,
            syndrome,
            vendor: VendorCode(vendor),
            wqe_index: WqeIndex(index),
            opcode: Opcode::RDMA_WRITE,
            qpn: QpNumber::new(qpn).unwrap(),
        };
        let cqe = Completion::Error(error).encode(false);
        let report = decode(&cqe.to_bytes(), None, &Context::default());
        prop_assert_eq!(report.kind, Some(Kind::Cqe));
        let found = &report.structures[0];
        prop_assert_eq!(&found.title, &format!("CQE in place 0: {error}"));
        prop_assert_eq!(field(found, "syndrome"), (&*format!("{:#04x}", syndrome.0), syndrome.name()));
        prop_assert_eq!(field(found, "vendor code").0, format!("{vendor:#04x}"));
        prop_assert_eq!(field(found, "WQE counter").0, format!("{index:#06x}"));
    }
}
