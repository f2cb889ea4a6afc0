//! `ibv_poll_cq` reads CQEs of ours, and those of real cards; a completion queue is armed.

use mlx5_wqe::{
    Arrival, Completion, CompletionError, CqArm, CqNumber, Cqe64, Immediate, Opcode, QpNumber,
    RemoteKey, Responder, Side, Syndrome, VendorCode, WqeIndex,
};
use warpbell_proofs::verbs::{Options, Post, values};

use crate::libmlx5::device::{Device, with_device};

/// What verbs call a syndrome.
pub fn status(syndrome: Syndrome) -> &'static str {
    match syndrome {
        Syndrome::LOCAL_LENGTH => "IBV_WC_LOC_LEN_ERR",
        Syndrome::LOCAL_QP_OPERATION => "IBV_WC_LOC_QP_OP_ERR",
        Syndrome::LOCAL_PROTECTION => "IBV_WC_LOC_PROT_ERR",
        Syndrome::FLUSHED => "IBV_WC_WR_FLUSH_ERR",
        Syndrome::MEMORY_WINDOW_BIND => "IBV_WC_MW_BIND_ERR",
        Syndrome::BAD_RESPONSE => "IBV_WC_BAD_RESP_ERR",
        Syndrome::LOCAL_ACCESS => "IBV_WC_LOC_ACCESS_ERR",
        Syndrome::REMOTE_INVALID_REQUEST => "IBV_WC_REM_INV_REQ_ERR",
        Syndrome::REMOTE_ACCESS => "IBV_WC_REM_ACCESS_ERR",
        Syndrome::REMOTE_OPERATION => "IBV_WC_REM_OP_ERR",
        Syndrome::TRANSPORT_RETRY => "IBV_WC_RETRY_EXC_ERR",
        Syndrome::RNR_RETRY => "IBV_WC_RNR_RETRY_EXC_ERR",
        Syndrome::REMOTE_ABORTED => "IBV_WC_REM_ABORT_ERR",
        _ => "IBV_WC_GENERAL_ERR",
    }
}

/// Every syndrome that a byte can hold, on both sides.
#[test]
fn every_syndrome() {
    with_device("libmlx5::polling::every_syndrome", || {
        let values = values();
        let mut device = Device::open(&Options::default());
        let qpn = QpNumber::new(device.verbs.qpn()).unwrap();
        for code in 0..=u8::MAX {
            let syndrome = Syndrome(code);
            let vendor = VendorCode(code.wrapping_mul(7));
            for side in [Side::Requester, Side::Responder] {
                let id = u64::from(code) << 1 | u64::from(side == Side::Responder);
                match side {
                    Side::Requester => {
                        let mut nothing = Post::new(values["IBV_WR_SEND"]);
                        nothing.id = id;
                        device.verbs.post(&nothing).unwrap();
                    }
                    Side::Responder => device.verbs.receive(id, &[]).unwrap(),
                }
                let polled = device.complete(Completion::Error(CompletionError {
                    side,
                    syndrome,
                    vendor,
                    // A send of nothing has one block.
                    wqe_index: WqeIndex(code.into()),
                    opcode: Opcode::SEND,
                    qpn,
                }));
                assert_eq!(
                    u64::from(polled.status),
                    values[status(syndrome)],
                    "{syndrome}"
                );
                assert_eq!(polled.vendor, u32::from(vendor.0), "{syndrome}");
                assert_eq!((polled.id, polled.qpn), (id, qpn.get()), "{syndrome}");
            }
        }
        device.close();
    });
}

#[test]
fn every_arrival() {
    with_device("libmlx5::polling::every_arrival", || {
        let values = values();
        let mut device = Device::open(&Options::default());
        let qpn = QpNumber::new(device.verbs.qpn()).unwrap();
        let kinds = [
            (
                Arrival::WriteImmediate(Immediate(0x0102_0304)),
                "IBV_WC_RECV_RDMA_WITH_IMM",
                "IBV_WC_WITH_IMM",
            ),
            (Arrival::Send, "IBV_WC_RECV", ""),
            (
                Arrival::SendImmediate(Immediate(0xaabb_ccdd)),
                "IBV_WC_RECV",
                "IBV_WC_WITH_IMM",
            ),
            (
                Arrival::SendInvalidate(RemoteKey(0x1122_3344)),
                "IBV_WC_RECV",
                "IBV_WC_WITH_INV",
            ),
        ];
        // Three times round the completion queue.
        for (number, (kind, opcode, flag)) in (0..48_u16).zip(kinds.into_iter().cycle()) {
            device.verbs.receive(number.into(), &[]).unwrap();
            let bytes = u32::from(number) * 1000;
            let polled = device.complete(Completion::Responder(Responder {
                qpn,
                wqe_counter: number,
                byte_count: bytes,
                kind,
            }));
            assert_eq!(u64::from(polled.status), values["IBV_WC_SUCCESS"]);
            assert_eq!(u64::from(polled.opcode), values[opcode]);
            assert_eq!((polled.id, polled.bytes), (number.into(), bytes));
            let word = match kind {
                Arrival::SendInvalidate(key) => Some(key.0),
                other => other.immediate().map(|immediate| immediate.0),
            };
            assert_eq!(
                u64::from(polled.flags),
                values.get(flag).copied().unwrap_or(0)
            );
            assert!(word.is_none_or(|word| word == polled.immediate), "{kind:?}");
        }
        device.close();
    });
}

/// Error CQEs that drivers dumped on real cards, as public threads print them: libmlx5 reads them as we do, and
/// as the threads say.
#[test]
fn cqes_of_real_cards() {
    // The last three words of sixteen; those before are zero but for the user index and the first two,
    // which libmlx5 does not look at. ofiwg/libfabric#4283, an Intel MPI log, a forum thread, Juniper/warp17#81.
    let dumped = [
        (
            [0x0000_8813, 0x1001_2abe, 0x0dd0_c1d3],
            "IBV_WC_REM_ACCESS_ERR",
            Opcode::RDMA_READ,
        ),
        (
            [0x0000_8813, 0x1000_76ab, 0x008a_e4d3],
            "IBV_WC_REM_ACCESS_ERR",
            Opcode::RDMA_READ,
        ),
        (
            [0x0000_8716, 0x0a00_1f8e, 0x0000_27d2],
            "IBV_WC_RNR_RETRY_EXC_ERR",
            Opcode::SEND,
        ),
        (
            [0x9d00_5304, 0x0a00_1542, 0x0019_b0d2],
            "IBV_WC_LOC_PROT_ERR",
            Opcode::SEND,
        ),
        (
            [0x9d00_5304, 0x0a00_1534, 0x005a_98d2],
            "IBV_WC_LOC_PROT_ERR",
            Opcode::SEND,
        ),
    ];
    with_device("libmlx5::polling::cqes_of_real_cards", || {
        let values = values();
        for (words, status, opcode) in dumped {
            // A queue of its own: the CQEs tell WQEs that were not posted here.
            let mut device = Device::open(&Options::default());
            let mut bytes = [0; 64];
            for (word, place) in words.into_iter().zip(bytes[52..].as_chunks_mut().0) {
                *place = u32::to_be_bytes(word);
            }
            let cqe = Cqe64::from_bytes(bytes);
            let Ok(Completion::Error(ours)) = cqe.decode() else {
                panic!("{cqe:?} is an error");
            };
            device
                .verbs
                .post(&Post::new(values["IBV_WR_SEND"]))
                .unwrap();
            let theirs = device.deliver(cqe);
            assert_eq!(u64::from(theirs.status), values[status]);
            assert_eq!(theirs.vendor, u32::from(ours.vendor.0));
            assert_eq!(theirs.qpn, ours.qpn.get());
            assert_eq!(ours.opcode, opcode);
            assert_eq!(
                u64::from(theirs.status),
                values[self::status(ours.syndrome)]
            );
            device.close();
        }
    });
}

#[test]
fn arming() {
    with_device("libmlx5::polling::arming", || {
        let mut device = Device::open(&Options::default());
        let cq = CqNumber::new(device.verbs.cqn()).unwrap();
        let qpn = QpNumber::new(device.verbs.qpn()).unwrap();
        for number in 0..20_u16 {
            let solicited_only = number % 3 == 0;
            device.verbs.arm(solicited_only).unwrap();
            // The sequence goes up with events, of which there are none here.
            let arm = CqArm {
                sequence: 0,
                solicited_only,
                consumer: device.consumed(),
            };
            let [_, record] = device.verbs.completion_record();
            assert_eq!(
                CqArm::from_word(record).sequence,
                CqArm::from_word(arm.word()).sequence
            );
            assert_eq!(record, arm.word());
            assert_eq!(device.verbs.arm_register(), arm.doorbell(cq));
            device.verbs.receive(0, &[]).unwrap();
            device.complete(Completion::Responder(Responder {
                qpn,
                wqe_counter: number,
                byte_count: 0,
                kind: Arrival::Send,
            }));
        }
        device.close();
    });
}
