//! Each finding, provoked once.

use mlx5_wqe::prm::CreateQp;
use mlx5_wqe::{
    AddressVector, Completion, CqeOpcode, Local, LocalKey, Opcode, QpNumber, Remote, RemoteKey,
    Requester, Wqe, WqeIndex,
};
use warpbell_command::decode::{Context, Kind, Report, Severity, decode};
use zerocopy::IntoBytes;

use crate::plain;

const QPN: QpNumber = QpNumber::from_low_bits(0x1234);
const LOCAL: Local = Local {
    address: 0x1000,
    length: 8,
    key: LocalKey(5),
};
const REMOTE: Remote = Remote {
    address: 0x2000,
    key: RemoteKey(6),
};

fn write(index: u16) -> Vec<u8> {
    Wqe::<1>::write(LOCAL, REMOTE)
        .place(WqeIndex(index), QPN)
        .as_bytes()
        .to_vec()
}

fn fetch_add() -> Vec<u8> {
    Wqe::<1>::fetch_add(LOCAL, REMOTE, 1)
        .place(WqeIndex(0), QPN)
        .as_bytes()
        .to_vec()
}

/// Some bytes with one of them changed.
fn with(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes
}

#[track_caller]
fn has(report: &Report, severity: Severity, text: &str) {
    let within = report.structures.iter().flat_map(|found| &found.findings);
    let all: Vec<_> = within.chain(&report.findings).collect();
    let found = all
        .iter()
        .any(|finding| finding.severity == severity && finding.text.contains(text));
    assert!(found, "no {severity:?} with {text:?} in {all:#?}");
    assert_eq!(
        report.has_errors(),
        all.iter()
            .any(|finding| finding.severity == Severity::Error)
    );
}

#[test]
fn of_wqes() {
    use Severity::{Error, Note, Warning};
    let none = plain(Kind::Wqe, &write(0));
    assert!(none.structures[0].findings.is_empty());
    let cases = [
        (
            with(write(0), 7, 9),
            Error,
            "ds is 9: the WQE has 144 bytes in 3 blocks, but there is 1 block of room",
        ),
        (with(write(0), 7, 0), Error, "ds is 0"),
        (with(write(0), 7, 0x43), Warning, "bits 7:6 beside ds"),
        (
            with(write(0), 11, 0xe0),
            Error,
            "the fence mode is reserved",
        ),
        (
            with(write(0), 11, 0x10),
            Warning,
            "bits 4 and 0 of fm_ce_se",
        ),
        (with(write(0), 3, 0x3f), Error, "there is no opcode 0x3f"),
        (
            with(write(0), 3, Opcode::TSO.0),
            Note,
            "the segments of TSO are not described",
        ),
        (
            with(write(0), 7, 1),
            Error,
            "a remote address segment has 16 bytes, but ds leaves room for 0",
        ),
        (
            with(write(0), 31, 1),
            Warning,
            "reserved bytes are not zero",
        ),
        (
            with(write(0), 0, 7),
            Error,
            "the opcode does not know the modifier",
        ),
        (with(write(0), 8, 1), Warning, "the signature does not fit"),
        (
            with(write(0), 32, 0x7f),
            Error,
            "a message has at most 1 GiB",
        ),
        (
            with(fetch_add(), 23, 4),
            Error,
            "remote address has to be a multiple of 8",
        ),
        (
            with(fetch_add(), 51, 4),
            Error,
            "an atomic's result needs one data segment of its width",
        ),
        (
            with(fetch_add(), 7, 3),
            Error,
            "an atomic has one data segment for its result, but this one has 0",
        ),
        (
            with(fetch_add(), 48, 0x80),
            Error,
            "inline data where the card has to write",
        ),
        (
            with(with(write(0), 32, 0x80), 35, 60),
            Error,
            "60 bytes of inline data do not fit: ds leaves room for 12",
        ),
        (
            with(with(write(0), 32, 0x80), 33, 1),
            Error,
            "an inline length has 10 bits",
        ),
        (
            with(with(write(0), 3, 0), 7, 3),
            Warning,
            "ds counts more segments than the opcode has",
        ),
        (
            write(0)[..10].to_vec(),
            Error,
            "10 bytes are left, but a control segment has 16",
        ),
    ];
    for (bytes, severity, text) in cases {
        has(&plain(Kind::Wqe, &bytes), severity, text);
    }
    let list_end = Local {
        address: 0,
        length: 0,
        key: LocalKey::LIST_END,
    };
    let wqe = Wqe::<1>::write(list_end, REMOTE).place(WqeIndex(0), QPN);
    has(
        &plain(Kind::Wqe, wqe.as_bytes()),
        Warning,
        "the end of a receive list in a send WQE",
    );
    let wait = Wqe::<1>::wait(mlx5_wqe::CqNumber::MAX, 0).place(WqeIndex(0), QPN);
    has(
        &plain(Kind::Wqe, &with(wait.as_bytes().to_vec(), 28, 1)),
        Error,
        "a queue's number has 24 bits",
    );
    let enable = Wqe::<1>::receive_enable(QPN, 0).place(WqeIndex(0), QPN);
    has(
        &plain(Kind::Wqe, enable.as_bytes()),
        Note,
        "software NIC does not execute RECV_EN",
    );
    let mut datagram = Wqe::<1>::send(LOCAL)
        .place(WqeIndex(0), QPN)
        .as_bytes()
        .to_vec();
    datagram.splice(
        16..16,
        AddressVector::datagram(QPN, 1).as_bytes().iter().copied(),
    );
    datagram[7] = 5;
    datagram[24] = 0;
    let context = Context {
        transport: mlx5_wqe::decode::Transport::Datagram,
        ..Context::default()
    };
    has(
        &decode(&datagram, Some(Kind::Wqe), &context),
        Error,
        "the address vector is not extended",
    );
}

#[test]
fn of_a_queues_order() {
    use Severity::{Error, Note, Warning};
    let two = |one: u16, other: u16| [write(one), write(other)].concat();
    assert!(
        plain(Kind::Wqe, &two(4, 5))
            .structures
            .iter()
            .all(|found| found.findings.is_empty())
    );
    has(
        &plain(Kind::Wqe, &two(4, 6)),
        Warning,
        "the index is 0x0006, but the blocks before end at 0x0005",
    );
    let at = |index, log_size| Context {
        index: Some(index),
        log_size,
        ..Context::default()
    };
    has(
        &decode(&write(4), Some(Kind::Wqe), &at(5, None)),
        Error,
        "not its slot's",
    );
    has(
        &decode(&write(4), Some(Kind::Wqe), &at(36, Some(4))),
        Error,
        "2 laps older",
    );
    let of = Context {
        qpn: Some(7),
        ..Context::default()
    };
    has(
        &decode(&write(0), Some(Kind::Wqe), &of),
        Error,
        "the QPN is 0x001234, but the queue's is 0x000007",
    );
    let other = with(write(1), 6, 9);
    has(
        &plain(Kind::Wqe, &[write(0), other].concat()),
        Warning,
        "the QPN is 0x001209",
    );

    // A ring of four: two WQEs of lap 2 before two of lap 1; and one that belongs elsewhere.
    let ring = [write(8), write(9), write(6), write(7)].concat();
    let whole = Context {
        log_size: Some(2),
        ..Context::default()
    };
    let report = decode(&ring, Some(Kind::Wqe), &whole);
    assert!(report.structures[0].findings.is_empty() && report.structures[3].findings.is_empty());
    has(&report, Note, "the index is of the lap before");
    let stray = [write(8), write(10), write(6), write(7)].concat();
    has(
        &decode(&stray, Some(Kind::Wqe), &whole),
        Warning,
        "it would have index 0x000a, which belongs in slot 2 of 4, but this is slot 1",
    );
}

fn cqe(owner: bool) -> Vec<u8> {
    let done = Completion::Requester(Requester {
        qpn: QPN,
        wqe_index: WqeIndex(7),
        opcode: Opcode::RDMA_WRITE,
        byte_count: 0,
    });
    done.encode(owner).to_bytes().to_vec()
}

#[test]
fn of_completions() {
    use Severity::{Error, Note, Warning};
    // Entry 5 of a ring of 4 is of lap 1, and entry 4 before it.
    let lap = Context {
        index: Some(4),
        log_size: Some(2),
        ..Context::default()
    };
    let report = decode(&[cqe(true), cqe(false)].concat(), Some(Kind::Cqe), &lap);
    assert!(report.structures[0].findings.is_empty());
    has(&report, Warning, "the owner bit is 0, but lap 1 writes 1");
    has(
        &plain(Kind::Cqe, &[cqe(true), cqe(false)].concat()),
        Note,
        "not that of the entry before",
    );
    let code = |opcode: CqeOpcode| with(cqe(false), 63, opcode.0 << 4);
    has(
        &plain(Kind::Cqe, &code(CqeOpcode(9))),
        Error,
        "there is no CQE opcode 0x9",
    );
    has(
        &plain(Kind::Cqe, &code(CqeOpcode::RESIZE)),
        Note,
        "RESIZE_CQ is no completion",
    );
    has(
        &plain(Kind::Cqe, &with(cqe(false), 63, 3 << 2)),
        Warning,
        "the CQE is compressed",
    );
    let failed = |syndrome, vendor| {
        with(
            with(code(CqeOpcode::REQUESTER_ERROR), 55, syndrome),
            54,
            vendor,
        )
    };
    has(
        &plain(Kind::Cqe, &failed(0x15, 0x81)),
        Warning,
        "did not acknowledge in time",
    );
    has(
        &plain(Kind::Cqe, &failed(0x05, 0xf9)),
        Note,
        "Look for the first error",
    );
    has(
        &plain(Kind::Cqe, &failed(0x77, 0)),
        Warning,
        "in no public header",
    );
    has(
        &plain(Kind::Cqe, &failed(0x15, 0x88)),
        Note,
        "known with another syndrome: remote access error",
    );
    let of = Context {
        qpn: Some(7),
        ..Context::default()
    };
    has(
        &decode(&cqe(false), Some(Kind::Cqe), &of),
        Note,
        "of QP 0x001234, not of 0x000007",
    );
    has(
        &plain(Kind::Cqe, &cqe(false)[..63]),
        Error,
        "63 bytes are left, but a CQE has 64",
    );
}

#[test]
fn of_receives_doorbells_and_commands() {
    use Severity::{Error, Note, Warning};
    let receive = |word: u32| [&word.to_be_bytes()[..], &[0, 0, 0, 7], &[0; 7], &[9]].concat();
    has(
        &plain(Kind::RecvWqe, &receive(1 << 31 | 4)),
        Error,
        "inline data in a receive",
    );
    let end = [&[0; 4][..], &[0, 0, 1, 0], &[0; 8]].concat();
    has(
        &plain(Kind::RecvWqe, &end),
        Note,
        "the receive has no memory",
    );
    has(
        &plain(Kind::RecvWqe, &end[..15]),
        Error,
        "15 bytes are left, but a receive WQE has 16",
    );
    let context = Context {
        stride: 32,
        log_size: Some(3),
        ..Context::default()
    };
    let linked = [&[0, 0, 0, 8][..], &[0; 12], &receive(64)].concat();
    has(
        &decode(&linked, Some(Kind::SrqWqe), &context),
        Error,
        "the link leads out of the queue",
    );

    has(
        &plain(Kind::DoorbellRecord, &[0, 0, 0, 1, 5, 0, 0, 0]),
        Error,
        "the high 16 bits have to be 0",
    );
    has(
        &plain(Kind::DoorbellRecord, &[0; 7]),
        Error,
        "7 bytes are left, but a doorbell record has 8",
    );
    has(
        &plain(Kind::CqDoorbellRecord, &[1, 0, 0, 0, 0, 0, 0, 0]),
        Warning,
        "the high 8 bits are not zero",
    );
    has(
        &plain(Kind::CqArm, &[0, 0, 0, 0, 1, 0, 0, 1]),
        Error,
        "a completion queue's number has 24 bits",
    );
    has(
        &plain(Kind::Uar, &[0, 0, 1, 0, 0, 0, 7, 0]),
        Note,
        "posted up to 0x0001",
    );

    let create = CreateQp::default().to_bytes().unwrap();
    has(
        &plain(Kind::Devx, &create[..100]),
        Error,
        "create_qp_in has 272 bytes, but there are 100",
    );
    let mut odd = create;
    odd[5] = 1;
    has(
        &plain(Kind::Devx, &odd),
        Note,
        "byte 0x5 has bits that no field here describes",
    );
    has(
        &plain(Kind::Devx, &[0x77; 16]),
        Error,
        "0x7777 is the opcode of no command",
    );
    let unknown = [&[0x09, 0x0e][..], &[0; 14]].concat();
    has(
        &plain(Kind::Devx, &unknown),
        Note,
        "the fields of DESTROY_RMP are not described",
    );
    has(
        &plain(Kind::DevxAnswer, &[0; 16]),
        Note,
        "depends on the command: name it with --answers",
    );
}
