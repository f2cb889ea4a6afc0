//! CQEs, doorbells and syndromes: real ones, round trips, and any 64 bytes.

use mlx5_wqe::{
    AddressVector, Arrival, Completion, CompletionError, ControlFlags, CqArm, CqDoorbellRecord,
    CqNumber, Cqe64, CqeError, CqeErrorWord, CqeFormat, CqeOpcode, CqeTail, Doorbell,
    DoorbellRecord, Evidence, Immediate, LocalKey, MiniCqe, Opcode, QpNumber, RemoteKey, Requester,
    Responder, Side, Syndrome, UarPage, VendorCode, WqeIndex,
};
use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 16 } else { 1024 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn qpn(number: u32) -> QpNumber {
    QpNumber::new(number).unwrap()
}

/// A CQE as drivers print it: 16 words of 32 bits, big-endian.
fn dumped(words: &str) -> Cqe64 {
    let mut bytes = [0; 64];
    for (word, place) in words.split_whitespace().zip(bytes.chunks_exact_mut(4)) {
        place.copy_from_slice(&u32::from_str_radix(word, 16).unwrap().to_be_bytes());
    }
    Cqe64::from_bytes(bytes)
}

/// Five error CQEs that drivers dumped on real cards, as public threads print them.
#[test]
fn real_cqes() {
    // ofiwg/libfabric#4283: remote access error of an RDMA read.
    let libfabric = "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                     00000002 00000000 00000000 00000000 00000000 00008813 10012abe 0dd0c1d3";
    // An Intel MPI log: remote access error of an RDMA read.
    let intel_mpi = "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                     000000b9 00000000 00000000 00000000 00000000 00008813 100076ab 008ae4d3";
    // A forum thread: RNR retry exceeded by a send.
    let rnr = "00000000 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
               00000000 00000000 00000000 00000000 00000000 00008716 0a001f8e 000027d2";
    // Juniper/warp17#81 (DPDK): local protection error of a send, twice.
    let warp17_a = "00736565 6e000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                    00000013 00000000 00000000 00000000 00000000 9d005304 0a001542 0019b0d2";
    let warp17_b = "00736565 6e000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                    0000000c 00000000 00000000 00000000 00000000 9d005304 0a001534 005a98d2";

    let requester = |syndrome, vendor, opcode, number, index| CompletionError {
        side: Side::Requester,
        syndrome,
        vendor: VendorCode(vendor),
        wqe_index: WqeIndex(index),
        opcode,
        qpn: qpn(number),
    };
    // The words, the error, user index, owner, signature, hardware syndrome.
    let cases = [
        (
            libfabric,
            requester(
                Syndrome::REMOTE_ACCESS,
                0x88,
                Opcode::RDMA_READ,
                0x01_2abe,
                0x0dd0,
            ),
            (0x02, true, 0xc1, 0),
        ),
        (
            intel_mpi,
            requester(
                Syndrome::REMOTE_ACCESS,
                0x88,
                Opcode::RDMA_READ,
                0x00_76ab,
                0x008a,
            ),
            (0xb9, true, 0xe4, 0),
        ),
        (
            rnr,
            requester(Syndrome::RNR_RETRY, 0x87, Opcode::SEND, 0x00_1f8e, 0x0000),
            (0, false, 0x27, 0),
        ),
        (
            warp17_a,
            requester(
                Syndrome::LOCAL_PROTECTION,
                0x53,
                Opcode::SEND,
                0x00_1542,
                0x0019,
            ),
            (0x13, false, 0xb0, 0x9d),
        ),
        (
            warp17_b,
            requester(
                Syndrome::LOCAL_PROTECTION,
                0x53,
                Opcode::SEND,
                0x00_1534,
                0x005a,
            ),
            (0x0c, false, 0x98, 0x9d),
        ),
    ];
    for (words, error, (user_index, owner, signature, hardware)) in cases {
        let cqe = dumped(words);
        assert_eq!(cqe.decode(), Ok(Completion::Error(error)));
        assert_eq!(cqe.user_index(), user_index);
        assert_eq!(cqe.error_word().hardware_syndrome(), hardware);
        let tail = cqe.tail();
        assert!(tail.is_new(owner) && !tail.is_new(!owner));
        assert!(tail.is_error() && tail.is_solicited());
        assert_eq!(tail.signature(), signature);

        let described = error.vendor.describe().unwrap();
        assert_eq!(described.syndrome, Some(error.syndrome));
        assert_eq!(described.evidence, Evidence::Card);
    }
}

fn completion() -> impl Strategy<Value = Completion> {
    let number = || (0..1_u32 << 24).prop_map(qpn);
    let kind = (0..4, any::<u32>()).prop_map(|(kind, word)| match kind {
        0 => Arrival::WriteImmediate(Immediate(word)),
        1 => Arrival::Send,
        2 => Arrival::SendImmediate(Immediate(word)),
        _ => Arrival::SendInvalidate(RemoteKey(word)),
    });
    prop_oneof![
        (number(), any::<u16>(), any::<u8>(), any::<u32>()).prop_map(
            |(qpn, index, opcode, byte_count)| Completion::Requester(Requester {
                qpn,
                wqe_index: WqeIndex(index),
                opcode: Opcode(opcode),
                byte_count,
            })
        ),
        (number(), any::<u16>(), any::<u32>(), kind).prop_map(
            |(qpn, wqe_counter, byte_count, kind)| Completion::Responder(Responder {
                qpn,
                wqe_counter,
                byte_count,
                kind,
            })
        ),
        (number(), any::<u16>(), any::<[u8; 3]>(), any::<bool>()).prop_map(
            |(qpn, index, [opcode, syndrome, vendor], requester)| {
                Completion::Error(CompletionError {
                    side: if requester {
                        Side::Requester
                    } else {
                        Side::Responder
                    },
                    syndrome: Syndrome(syndrome),
                    vendor: VendorCode(vendor),
                    wqe_index: WqeIndex(index),
                    opcode: Opcode(opcode),
                    qpn,
                })
            }
        ),
    ]
}

/// The bytes that a CQE must have, written at the offsets of mlx5dv.h.
fn bytes_of(completion: Completion, owner: bool) -> [u8; 64] {
    let mut bytes = [0; 64];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    let op_own = |opcode: u8| [opcode << 4 | owner as u8];
    match completion {
        Completion::Requester(done) => {
            put(44, &done.byte_count.to_be_bytes());
            put(56, &done.qpn.get().to_be_bytes());
            put(56, &[done.opcode.0]);
            put(60, &done.wqe_index.0.to_be_bytes());
            put(63, &op_own(0));
        }
        Completion::Responder(arrived) => {
            let (opcode, word) = match arrived.kind {
                Arrival::WriteImmediate(immediate) => (1, immediate.0),
                Arrival::Send => (2, 0),
                Arrival::SendImmediate(immediate) => (3, immediate.0),
                Arrival::SendInvalidate(key) => (4, key.0),
            };
            put(36, &word.to_be_bytes());
            put(44, &arrived.byte_count.to_be_bytes());
            put(56, &arrived.qpn.get().to_be_bytes());
            put(60, &arrived.wqe_counter.to_be_bytes());
            put(63, &op_own(opcode));
        }
        Completion::Error(error) => {
            put(54, &[error.vendor.0, error.syndrome.0]);
            put(56, &error.qpn.get().to_be_bytes());
            put(56, &[error.opcode.0]);
            put(60, &error.wqe_index.0.to_be_bytes());
            put(
                63,
                &op_own(if error.side == Side::Requester {
                    13
                } else {
                    14
                }),
            );
        }
    }
    bytes
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn round_trip(said in completion(), owner: bool) {
        let cqe = said.encode(owner);
        prop_assert_eq!(cqe.to_bytes(), bytes_of(said, owner));
        prop_assert_eq!(cqe.decode(), Ok(said));
        prop_assert!(cqe.tail().is_new(owner) && !cqe.tail().is_new(!owner));
        prop_assert_eq!(cqe.solicited().decode(), Ok(said));
        prop_assert!(cqe.solicited().tail().is_solicited() && !cqe.tail().is_solicited());
        prop_assert_eq!(Cqe64::from_words(cqe.to_words()), cqe);
    }

    /// Any 64 bytes decode to what their last byte says, and the cheap ways agree with the whole.
    #[test]
    fn any_bytes(low: [u8; 32], high: [u8; 32]) {
        let bytes: [u8; 64] = [low, high].concat().try_into().unwrap();
        let cqe = Cqe64::from_bytes(bytes);
        prop_assert_eq!(cqe.to_bytes(), bytes);
        let tail = CqeTail(u64::from_ne_bytes(bytes[56..].try_into().unwrap()));
        let word = CqeErrorWord(u64::from_ne_bytes(bytes[48..56].try_into().unwrap()));
        prop_assert_eq!(cqe.tail(), tail);
        prop_assert_eq!(cqe.error_word(), word);
        prop_assert_eq!(tail.op_own(), bytes[63]);
        prop_assert_eq!(tail.cqe_opcode().0, bytes[63] >> 4);
        prop_assert_eq!(tail.owner(), bytes[63] & 1 == 1);
        prop_assert_eq!(tail.format() as u8, bytes[63] >> 2 & 3);
        prop_assert_eq!(tail.wqe_counter(), u16::from_be_bytes([bytes[60], bytes[61]]));
        prop_assert_eq!(tail.opcode().0, bytes[56]);
        prop_assert_eq!(tail.qpn().get(), u32::from_be_bytes([0, bytes[57], bytes[58], bytes[59]]));
        prop_assert_eq!(cqe.as_error().syndrome, word.syndrome().0);
        prop_assert_eq!(cqe.as_error().vendor, word.vendor().0);
        prop_assert_eq!(cqe.as_error().hardware_syndrome, word.hardware_syndrome());
        prop_assert_eq!(cqe.as_error().as_cqe(), cqe);
        prop_assert_eq!(tail.is_new(tail.owner()), bytes[63] >> 4 != 15);

        let compressed = tail.format() == CqeFormat::Compressed;
        match (bytes[63] >> 4, cqe.decode()) {
            (13, Ok(Completion::Error(error))) => prop_assert_eq!(error.side, Side::Requester),
            (14, Ok(Completion::Error(error))) => prop_assert_eq!(error.side, Side::Responder),
            (15, Err(CqeError::Invalid)) => {}
            (_, Err(CqeError::Compressed)) => prop_assert!(compressed),
            (0, Ok(Completion::Requester(_))) => prop_assert!(!compressed),
            (1..=4, Ok(Completion::Responder(arrived))) => {
                prop_assert!(!compressed);
                let bytes = u32::from_be_bytes(bytes[44..48].try_into().unwrap());
                prop_assert_eq!(arrived.byte_count, bytes);
            }
            (5..=12, Err(CqeError::Unsupported(opcode))) => {
                prop_assert_eq!(opcode.0, bytes[63] >> 4);
            }
            (opcode, decoded) => prop_assert!(false, "opcode {} gave {:?}", opcode, decoded),
        }
    }

    #[test]
    fn arms(
        sequence in 0..4_u8,
        solicited_only: bool,
        consumer in 0..1_u32 << 24,
        number in 0..1_u32 << 24,
    ) {
        let arm = CqArm { sequence, solicited_only, consumer };
        let cq = CqNumber::new(number).unwrap();
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&consumer.to_be_bytes());
        bytes[0] = sequence << 4 | solicited_only as u8;
        bytes[4..].copy_from_slice(&number.to_be_bytes());
        prop_assert_eq!(arm.doorbell(cq).to_ne_bytes(), bytes);
        prop_assert_eq!(&arm.word().to_ne_bytes(), &bytes[..4]);
        prop_assert_eq!(CqArm::from_word(arm.word()), arm);
        prop_assert_eq!(CqArm::from_doorbell(arm.doorbell(cq)), (arm, cq));
    }

    #[test]
    fn doorbell_records(index: u16, consumer: u32, number in 0..1_u32 << 24) {
        let word = DoorbellRecord::word(index);
        prop_assert_eq!(word.to_ne_bytes(), (index as u32).to_be_bytes());
        prop_assert_eq!(DoorbellRecord::producer(word), index);
        let record = DoorbellRecord::read_from_bytes([0_u32, word].as_bytes()).unwrap();
        prop_assert_eq!((record.receive.get(), record.send.get()), (0, index as u32));
        let word = CqDoorbellRecord::consumer_word(consumer);
        prop_assert_eq!(word.to_ne_bytes(), (consumer & 0xff_ffff).to_be_bytes());
        prop_assert_eq!(CqDoorbellRecord::consumer(word), consumer & 0xff_ffff);

        let doorbell = Doorbell::of_producer(WqeIndex(index), qpn(number));
        let [a, b] = index.to_be_bytes();
        let [_, c, d, e] = number.to_be_bytes();
        prop_assert_eq!(doorbell.0.to_ne_bytes(), [0, a, b, 0, c, d, e, 0]);
        prop_assert_eq!((doorbell.index(), doorbell.qpn()), (WqeIndex(index), qpn(number)));
    }
}

/// The lists below are copied from the headers, not from the crate.
#[test]
fn syndromes_have_words() {
    let listed = [
        0x01, 0x02, 0x04, 0x05, 0x06, 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x22,
    ];
    assert_eq!(Syndrome::KNOWN, listed.map(Syndrome));
    for syndrome in (0..=u8::MAX).map(Syndrome) {
        assert_eq!(syndrome.describe().is_some(), listed.contains(&syndrome.0));
    }
    assert_eq!(
        Syndrome(0x15).to_string(),
        "transport retry counter exceeded (syndrome 0x15)"
    );
    assert_eq!(
        Syndrome(0x77).to_string(),
        "unknown syndrome (syndrome 0x77)"
    );
    let known: Vec<u8> = (0..=u8::MAX)
        .filter(|code| VendorCode(*code).describe().is_some())
        .collect();
    assert_eq!(known, [0x53, 0x81, 0x87, 0x88, 0x8a, 0x93, 0xf9]);
}

#[test]
fn errors_read_well() {
    let mut error = CompletionError {
        side: Side::Requester,
        syndrome: Syndrome::LOCAL_PROTECTION,
        vendor: VendorCode(0x53),
        wqe_index: WqeIndex(0x19),
        opcode: Opcode::SEND,
        qpn: qpn(0x1542),
    };
    assert_eq!(
        error.to_string(),
        "local protection error (syndrome 0x04), vendor code 0x53: \
         SEND in send WQE 0x0019 of QP 0x001542"
    );
    error.side = Side::Responder;
    assert_eq!(
        error.to_string(),
        "local protection error (syndrome 0x04), vendor code 0x53: \
         receive WQE 0x0019 of QP 0x001542"
    );
    assert_eq!(Opcode(0x66).to_string(), "opcode 0x66");
    assert_eq!(
        CqeError::Unsupported(CqeOpcode::RESIZE).to_string(),
        "the CQE reports RESIZE_CQ"
    );
}

#[test]
fn fresh_entries_are_invalid() {
    let mut bytes = [0; 64];
    bytes[63] = 0xf0;
    assert_eq!(Cqe64::INVALID.to_bytes(), bytes);
    assert_eq!(Cqe64::INVALID.decode(), Err(CqeError::Invalid));
    assert!(!CqeTail::INVALID.is_new(false) && !CqeTail::INVALID.is_new(true));
}

/// An error is an error whatever its format bits say.
#[test]
fn errors_come_before_formats() {
    let mut bytes = [0; 64];
    bytes[55] = 0x05;
    bytes[63] = 13 << 4 | 3 << 2;
    let Ok(Completion::Error(error)) = Cqe64::from_bytes(bytes).decode() else {
        panic!("an error was taken for something else");
    };
    assert_eq!(error.syndrome, Syndrome::FLUSHED);
}

#[test]
fn compressed_entries_are_refused() {
    let said = Completion::Responder(Responder {
        qpn: qpn(1),
        wqe_counter: 0,
        byte_count: 3,
        kind: Arrival::Send,
    });
    let mut bytes = said.encode(false).to_bytes();
    bytes[63] |= 3 << 2;
    assert_eq!(Cqe64::from_bytes(bytes).decode(), Err(CqeError::Compressed));

    let mini = MiniCqe::read_from_bytes(&[0x12, 0x34, 0x0a, 0, 0, 0, 0, 3]).unwrap();
    assert_eq!(
        mini.wqe_index_and_opcode(),
        (WqeIndex(0x1234), Opcode::SEND)
    );
    assert_eq!(mini.checksum_and_stride(), (0x1234, 0x0a00));
    assert_eq!(mini.hash(), 0x1234_0a00);
    assert_eq!(mini.byte_count.get(), 3);
}

#[test]
fn numbers_have_24_bits() {
    assert_eq!(QpNumber::new(0xff_ffff), Some(QpNumber::MAX));
    assert_eq!(QpNumber::new(0x100_0000), None);
    assert_eq!(CqNumber::new(0x100_0000), None);
    assert_eq!(CqNumber::from_low_bits(0x1234_5678).get(), 0x34_5678);
    assert_eq!(QpNumber::MAX.to_string(), "0xffffff");
    assert_eq!(LocalKey(0x1234).to_string(), "0x00001234");
    assert_eq!(RemoteKey(0xfeed_beef).to_string(), "0xfeedbeef");
}

#[test]
fn flags_are_the_headers() {
    assert_eq!(ControlFlags::COMPLETION.bits(), 2 << 2);
    assert_eq!(ControlFlags::COMPLETION_AND_EVENT.bits(), 3 << 2);
    assert_eq!(ControlFlags::SOLICITED.bits(), 1 << 1);
    assert!(ControlFlags::COMPLETION_AND_EVENT.is_signalled());
    assert!(!ControlFlags::COMPLETION_ON_FIRST_ERROR.is_signalled());
    assert_eq!(ControlFlags::from_bits_retain(7 << 5).fence(), None);
}

#[test]
fn registers_are_where_the_headers_say() {
    assert_eq!(UarPage::SIZE, 4096);
    assert_eq!(UarPage::CQ_ARM, 0x20);
    assert_eq!(UarPage::DOORBELL_WITHOUT_RECORD, 0x600);
    assert_eq!(UarPage::DOORBELLS, [0x800, 0x900]);
}

#[test]
fn address_vector() {
    let vector = AddressVector::datagram(qpn(0x12_3456), 0x1122_3344);
    let mut bytes = [0; 48];
    bytes[..4].copy_from_slice(&[0x11, 0x22, 0x33, 0x44]);
    bytes[8..12].copy_from_slice(&[0x80, 0x12, 0x34, 0x56]);
    assert_eq!(vector.as_bytes(), bytes);
    assert_eq!(vector.to_octowords().as_bytes(), bytes);
    assert_eq!((vector.qpn(), vector.qkey()), (qpn(0x12_3456), 0x1122_3344));
    assert!(vector.is_extended());
}
