//! Commands and answers: round trips, refusals, and any bytes. `warpbell-proofs` compares the positions.
#![cfg(feature = "prm")]

use mlx5_wqe::prm::{
    AddressPath, CapabilityQuery, Command, CommandOpcode, CommandStatus, CqContext, CreateCq,
    CreateCqAnswer, CreateQp, CreateQpAnswer, CreateUmem, Done, HcaCapabilities, Mtu, PrmError,
    QpContext, QueryHcaCap, QueryHcaCap2, QueryHcaCap2Answer, QueryHcaCapAnswer, QueryQpAnswer,
    Record, Refusal, RstToInit, SendDoorbellMode, ToError, command_opcode,
};
use mlx5_wqe::{CqNumber, QpNumber};
use proptest::prelude::*;

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Three fields by hand, in the bytes where the manual's bit numbers put them.
#[test]
fn a_command_by_hand() {
    let command = CreateQp {
        uid: 0x1234,
        qpc: QpContext {
            pd: 0x00ab_cdef,
            mtu: Mtu::BYTES_4096,
            log_msg_max: 30,
            cqn_snd: CqNumber::new(0x77).unwrap(),
            ..QpContext::default()
        },
        wq_umem_id: 9,
        ..CreateQp::default()
    };
    let mut expected = [0; 272];
    expected[..4].copy_from_slice(&[0x05, 0x00, 0x12, 0x34]);
    // The context begins at byte 24: pd at bit 0x28 of it, mtu at 0x40, cqn_snd at 0x3e8.
    expected[29..32].copy_from_slice(&[0xab, 0xcd, 0xef]);
    expected[32] = 5 << 5 | 30;
    expected[24 + 0x3e8 / 8 + 2] = 0x77;
    expected[2112 / 8 + 3] = 9;
    assert_eq!(command.to_bytes(), Ok(expected));
    assert_eq!(CreateQp::from_bytes(&expected), Ok(command));
    assert_eq!(command_opcode(&expected), Some(CreateQp::OPCODE));
    assert_eq!(command_opcode(&expected[..1]), None);
}

/// Where gpunetio's and DPDK's headers have what the kernel's leaves reserved.
#[test]
fn umems_are_where_others_have_them() {
    fn offset<R: Record>(name: &str) -> Option<usize> {
        let field = R::FIELDS.iter().find(|field| field.name() == name);
        field.map(|field| field.offset())
    }
    assert_eq!(offset::<CreateQp>("wq_umem_offset"), Some(2048));
    assert_eq!(offset::<CreateQp>("wq_umem_id"), Some(2112));
    assert_eq!(offset::<CreateCq>("cq_umem_offset"), Some(640));
    assert_eq!(offset::<CreateCq>("cq_umem_id"), Some(704));
    assert_eq!(offset::<CqContext>("dbr_umem_id"), Some(32));
    assert_eq!(offset::<QpContext>("dbr_umem_id"), Some(1824));
}

/// A queue pair without a doorbell record, and the capability, where gpunetio and the tests of rdma-core have them.
#[test]
fn without_a_doorbell_record() {
    let context = QpContext {
        send_dbr_mode: SendDoorbellMode::WITHOUT_RECORD,
        user_index: 0xab_cdef,
        ..QpContext::default()
    };
    let bytes = context.to_bytes().unwrap();
    assert_eq!(bytes[16..20], [0x40, 0xab, 0xcd, 0xef]);
    assert_eq!(
        QpContext::from_bytes(&bytes).unwrap().send_dbr_mode,
        SendDoorbellMode::WITHOUT_RECORD
    );

    let query = QueryHcaCap2 {
        op_mod: CapabilityQuery::GENERAL_2_CURRENT,
    };
    let mut expected = [0; 16];
    (expected[0], expected[7]) = (1, 0x41);
    assert_eq!(query.to_bytes(), Ok(expected));
    let mut answer = [0; 4112];
    let capable = |answer: &[u8]| {
        let answer = QueryHcaCap2Answer::from_bytes(answer).unwrap();
        answer.cmd_hca_cap_2.send_dbr_mode_no_dbr_ext
    };
    assert!(!capable(&answer));
    answer[16 + 0x2e1 / 8] = 0x80 >> (0x2e1 % 8);
    assert!(capable(&answer));
}

/// `rmac_47_32` at bit 0x130 and `rmac_31_0` at 0x140 of `ads`: six bytes in a row.
#[test]
fn a_mac_address_has_six_bytes_in_a_row() {
    let mac = [1, 2, 3, 4, 5, 6];
    let path = AddressPath::default().with_mac(mac);
    let mut expected = [0; 44];
    expected[0x130 / 8..][..6].copy_from_slice(&mac);
    assert_eq!(path.to_bytes(), Ok(expected));
    assert_eq!(path.mac(), mac);
}

/// `rgid_rip` at bit 0x80 of `ads`, and the path within a context (`primary_address_path`, bit 0xc0 of `qpc`).
#[test]
fn a_gid_has_sixteen_bytes_in_a_row() {
    let rgid_rip = core::array::from_fn(|at| 0xf0 - at as u8);
    let primary_address_path = AddressPath {
        rgid_rip,
        ..AddressPath::default()
    };
    let context = QpContext {
        primary_address_path,
        ..QpContext::default()
    };
    let mut expected = [0; 232];
    expected[(0xc0 + 0x80) / 8..][..16].copy_from_slice(&rgid_rip);
    assert_eq!(context.to_bytes(), Ok(expected));
    assert_eq!(QpContext::from_bytes(&expected), Ok(context));
}

/// The manual's way to count bits: the first is the highest of the first byte.
#[test]
fn fields_are_bits_of_the_bytes_that_there_are() {
    let named = |name: &str| {
        let fields = QpContext::FIELDS.iter().chain(AddressPath::FIELDS);
        *fields
            .into_iter()
            .find(|field| field.name() == name)
            .unwrap()
    };
    let value = 0xa5c3_96f1_0f3c_5a69_u64;
    // Of a bit, within a byte, of whole bytes, across bytes, at the end of the record.
    for (name, offset, width) in [
        ("fl", 0, 1),
        ("free_ar", 1, 1),
        ("mlid", 0x29, 7),
        ("rlid", 0x30, 16),
        ("flow_label", 0x6c, 20),
        ("pd", 0x28, 24),
        ("rmac_31_0", 0x140, 32),
        ("dbr_addr", 0x500, 64),
    ] {
        let field = named(name);
        assert_eq!((field.offset(), field.width()), (offset, width), "{name}");
        let low = value & (u64::MAX >> (64 - width));
        // Miri is spared the many lengths that end before the field.
        let shortest = if cfg!(miri) {
            (offset / 8).saturating_sub(1)
        } else {
            0
        };
        for length in shortest..=(offset + width).div_ceil(8) + 1 {
            for background in [0, 0xff] {
                let mut bytes = vec![background; length];
                let bit = |bytes: &[u8], at: usize| {
                    let byte = bytes.get(at / 8);
                    byte.is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1)
                };
                field.set(&mut bytes, value);
                for at in 0..length * 8 {
                    let expected = match at.checked_sub(offset) {
                        Some(place) if place < width => low >> (width - 1 - place) & 1 == 1,
                        _ => background != 0,
                    };
                    assert_eq!(
                        bit(&bytes, at),
                        expected,
                        "{name}, bit {at} of {length} bytes"
                    );
                }
                // Bits that are not there are read as 0.
                let there = (length * 8).saturating_sub(offset).min(width);
                let lost = width - there;
                let kept = low.checked_shr(lost as u32).unwrap_or(0);
                assert_eq!(
                    field.get(&bytes),
                    kept.checked_shl(lost as u32).unwrap_or(0)
                );
            }
        }
        assert!(field.fits(low) && field.fits(0) && field.fits(u64::MAX >> (64 - width)));
        assert_eq!(field.fits(u64::MAX), width == 64);
        if width < 64 {
            assert!(!field.fits(1 << width));
        }
    }
}

#[test]
fn a_value_that_does_not_fit_is_named() {
    let context = QpContext {
        log_sq_size: 16,
        ..QpContext::default()
    };
    let error = PrmError::TooWide {
        field: "log_sq_size",
        value: 16,
        bits: 4,
    };
    assert_eq!(context.to_bytes(), Err(error));
    assert_eq!(
        error.to_string(),
        "log_sq_size has 4 bits, too few for 0x10"
    );
    // Within another record as well.
    let command = RstToInit {
        qpc: context,
        ..RstToInit::default()
    };
    assert_eq!(command.to_bytes(), Err(error));
}

#[test]
fn too_few_bytes_are_refused() {
    let short = |given| PrmError::Short {
        record: "cqc",
        needed: 64,
        given,
    };
    assert_eq!(CqContext::from_bytes(&[0; 63]), Err(short(63)));
    assert_eq!(CqContext::default().write(&mut [0; 10]), Err(short(10)));
    assert_eq!(short(63).to_string(), "cqc has 64 bytes, but 63 were given");
    // A longer buffer keeps what lies behind the record.
    let mut bytes = [0xff; 70];
    CqContext::default().write(&mut bytes).unwrap();
    assert_eq!(bytes[..64], [0; 64]);
    assert_eq!(bytes[64..], [0xff; 6]);
}

#[test]
fn another_command_is_not_read() {
    let bytes = ToError {
        qpn: QpNumber::MAX,
        ..ToError::default()
    };
    let error = PrmError::OtherCommand {
        expected: CommandOpcode::QUERY_HCA_CAP,
        found: CommandOpcode::TO_ERROR_QP,
    };
    assert_eq!(
        QueryHcaCap::from_bytes(&bytes.to_bytes().unwrap()),
        Err(error)
    );
    assert_eq!(
        error.to_string(),
        "the command is 2ERR_QP, not QUERY_HCA_CAP"
    );
}

/// A refusal is told even where the answer would be longer.
#[test]
fn a_refusal_is_an_error() {
    let refusal = Refusal {
        status: CommandStatus::BAD_QP_STATE,
        syndrome: 0x1234_5678,
    };
    let bytes = refusal.to_bytes();
    assert_eq!(
        bytes,
        [
            0x10, 0, 0, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 0
        ]
    );
    assert_eq!(Done::from_bytes(&bytes), Err(PrmError::Refused(refusal)));
    assert_eq!(
        QueryQpAnswer::from_bytes(&bytes),
        Err(PrmError::Refused(refusal))
    );
    assert_eq!(
        PrmError::Refused(refusal).to_string(),
        "the card refused: bad QP state (status 0x10), syndrome 0x12345678"
    );
    let unknown = Refusal {
        status: CommandStatus(0x66),
        syndrome: 0,
    };
    assert_eq!(
        unknown.to_string(),
        "the card refused: unknown (status 0x66), syndrome 0x00000000"
    );
}

#[test]
fn capabilities_come_in_their_answer() {
    let answer = QueryHcaCapAnswer {
        cmd_hca_cap: HcaCapabilities {
            cqe_version: 1,
            log_bf_reg_size: 9,
            ..HcaCapabilities::default()
        },
    };
    let bytes = answer.to_bytes().unwrap();
    assert_eq!(bytes.len(), 4112);
    assert_eq!(QueryHcaCapAnswer::from_bytes(&bytes), Ok(answer));
    let question = QueryHcaCap {
        op_mod: CapabilityQuery::GENERAL_CURRENT,
        ..QueryHcaCap::default()
    };
    assert_eq!(question.to_bytes().unwrap()[..8], [1, 0, 0, 0, 0, 0, 0, 1]);
}

/// Reading and writing again gives the same record, and reading never fails but for the named reasons.
fn any_bytes<R: Record + PartialEq + core::fmt::Debug>(bytes: &[u8]) -> Result<(), TestCaseError> {
    match R::read(bytes) {
        Ok(record) => {
            let mut again = vec![0xa5; R::BYTES];
            prop_assert_eq!(record.write(&mut again), Ok(()));
            prop_assert_eq!(R::read(&again), Ok(record));
        }
        Err(PrmError::Short { needed, given, .. }) => prop_assert!(given < needed),
        Err(PrmError::OtherCommand { expected, found }) => prop_assert_ne!(expected, found),
        Err(PrmError::Refused(refusal)) => prop_assert_ne!(refusal.status, CommandStatus::OK),
        Err(PrmError::TooWide { .. }) => prop_assert!(false, "reading cannot be too wide"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_bytes_are_read(
        mut bytes in prop::collection::vec(any::<u8>(), 0..300),
        opcode in prop::option::of(prop::sample::select(vec![[1_u8, 0], [4, 0], [5, 0], [0xa, 8], [0, 0]])),
    ) {
        if let (Some(opcode), [first, second, ..]) = (opcode, &mut bytes[..]) {
            [*first, *second] = opcode;
        }
        any_bytes::<QpContext>(&bytes)?;
        any_bytes::<CqContext>(&bytes)?;
        any_bytes::<HcaCapabilities>(&bytes)?;
        any_bytes::<QueryHcaCap>(&bytes)?;
        any_bytes::<CreateCq>(&bytes)?;
        any_bytes::<CreateQp>(&bytes)?;
        any_bytes::<CreateUmem>(&bytes)?;
        any_bytes::<CreateQpAnswer>(&bytes)?;
        any_bytes::<CreateCqAnswer>(&bytes)?;
        any_bytes::<QueryQpAnswer>(&bytes)?;
    }
}
