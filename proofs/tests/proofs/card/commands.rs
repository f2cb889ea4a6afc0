//! What the device makes of commands (DEVX): it carries out what it knows, and refuses the rest by status and syndrome.

use std::ffi::c_void;
use std::ptr::without_provenance_mut;

use mlx5_wqe::prm::{
    CapabilityQuery, CommandStatus, CreateCq, CreateQp, Done, InitToRtr, OptionalParameters,
    QueryAtomicCap, QueryAtomicCapAnswer, QueryHcaCap, QueryHcaCap2Answer, QueryHcaCapAnswer,
    QueryRoceCap, QueryRoceCapAnswer, Record, RstToInit, RtrToRts, SendDoorbellMode, ServiceType,
    TimestampFormat, TimestampFormats,
};

use crate::card::bindings::{UmemAttributes, values};
use crate::card::opened::{Card, Given, refused, umem};
use crate::card::provider::with_engine;

#[test]
fn capabilities_are_told() {
    with_engine("card::commands::capabilities_are_told", || {
        let card = Card::open();
        let query = |op_mod| QueryHcaCap {
            op_mod,
            ..QueryHcaCap::default()
        };
        let bytes = query(CapabilityQuery::GENERAL_CURRENT).to_bytes().unwrap();
        let (number, answer) = card.general(&bytes, QueryHcaCapAnswer::BYTES);
        let told = QueryHcaCapAnswer::from_bytes(&answer).unwrap().cmd_hca_cap;
        assert_eq!(number, 0);
        assert!(told.rc && told.atomic && told.cq_oi && told.cd && !told.ud && !told.xrc);
        assert_eq!((told.cqe_version, told.log_max_qp_sz), (1, 15));

        // There is more, among it queue pairs without a doorbell record.
        assert!(told.hca_cap_2);
        let bytes = query(CapabilityQuery::GENERAL_2_CURRENT)
            .to_bytes()
            .unwrap();
        let (number, answer) = card.general(&bytes, QueryHcaCap2Answer::BYTES);
        let more = QueryHcaCap2Answer::from_bytes(&answer)
            .unwrap()
            .cmd_hca_cap_2;
        assert_eq!(number, 0);
        assert!(more.send_dbr_mode_no_dbr_ext);

        // With RoCE, queue pairs have a clock of their own.
        assert!(told.roce && told.sq_ts_format == TimestampFormats::REAL_TIME);
        let command = QueryRoceCap {
            op_mod: CapabilityQuery::ROCE_CURRENT,
        };
        let command = command.to_bytes().unwrap();
        let (number, answer) = card.general(&command, QueryRoceCapAnswer::BYTES);
        let roce = QueryRoceCapAnswer::from_bytes(&answer).unwrap().roce_cap;
        assert_eq!(
            (number, roce.qp_ts_format),
            (0, TimestampFormats::FREE_RUNNING)
        );

        // A card that tells of atomics tells which.
        let command = QueryAtomicCap {
            op_mod: CapabilityQuery::ATOMIC_CURRENT,
        };
        let command = command.to_bytes().unwrap();
        let (number, answer) = card.general(&command, QueryAtomicCapAnswer::BYTES);
        let atomics = QueryAtomicCapAnswer::from_bytes(&answer)
            .unwrap()
            .atomic_caps;
        assert_eq!(number, 0);
        assert_eq!((told.atomic, atomics.atomic_operations & 3), (true, 3));

        // Other capabilities are not known, and an answer has to have room.
        let bytes = query(CapabilityQuery(0x0d << 1)).to_bytes().unwrap();
        let (number, answer) = card.general(&bytes, QueryHcaCapAnswer::BYTES);
        let other = (number, Done::from_bytes(&answer));
        assert!(refused(CommandStatus::BAD_PARAMETER)(&other), "{other:?}");
        let bytes = query(CapabilityQuery::GENERAL_CURRENT).to_bytes().unwrap();
        let (_, whole) = card.general(&bytes, QueryHcaCapAnswer::BYTES);
        let part = card.general(&bytes, 272);
        assert_eq!(part, (0, whole[..272].to_vec()), "the first fields");
        let (number, answer) = card.general(&bytes, 16);
        let short = (number, Done::from_bytes(&answer));
        assert!(
            refused(CommandStatus::BAD_OUTPUT_LENGTH)(&short),
            "{short:?}"
        );
    });
}

#[test]
fn unknown_commands_are_refused() {
    with_engine("card::commands::unknown_commands_are_refused", || {
        let card = Card::open();
        // CREATE_XRQ, QUERY_SPECIAL_CONTEXTS: there are such on a card.
        for opcode in [0x717_u16, 0x203, 0xffff] {
            let mut command = [0; 272];
            command[..2].copy_from_slice(&opcode.to_be_bytes());
            let (number, answer) = card.general(&command, 16);
            let general = (number, Done::from_bytes(&answer));
            assert!(refused(CommandStatus::BAD_OPCODE)(&general), "{general:?}");
            let (object, created) = card.create(&command);
            assert!(object.is_null());
            assert!(refused(CommandStatus::BAD_OPCODE)(&created), "{created:?}");
        }
        // A known one where it does not belong is the caller's mistake, as a kernel has it.
        let create = card.completion_queue().to_bytes().unwrap();
        assert_eq!(card.general(&create, 16).0, libc::EINVAL);
    });
}

#[test]
fn queues_that_cannot_be_are_refused() {
    with_engine("card::commands::queues_that_cannot_be_are_refused", || {
        let card = Card::open();
        let refuse = |status, change: fn(&mut CreateCq)| {
            let mut command = card.completion_queue();
            change(&mut command);
            let (object, given) = card.create(&command.to_bytes().unwrap());
            assert!(object.is_null() && refused(status)(&given), "{given:?}");
        };
        let parameter = CommandStatus::BAD_PARAMETER;
        refuse(parameter, |cq| cq.cq_umem_id += 1);
        refuse(parameter, |cq| cq.cq_umem_offset = 4096 - 192);
        refuse(parameter, |cq| cq.cq_context.dbr_addr = 4092);
        refuse(parameter, |cq| cq.cq_context.cqe_comp_en = true);
        refuse(parameter, |cq| cq.cq_context.cqe_sz = 3);
        let resource = CommandStatus::BAD_RESOURCE;
        refuse(resource, |cq| cq.cq_context.uar_page = 0xfff);
        refuse(resource, |cq| cq.cq_context.c_eqn_or_apu_element = 77);
        let command = card.completion_queue().to_bytes().unwrap();
        let (object, given) = card.create(&command[..100]);
        let short = CommandStatus::BAD_INPUT_LENGTH;
        assert!(object.is_null() && refused(short)(&given), "{given:?}");
    });
}

/// What firmware may refuse of a queue pair that is made, which all other drivers leave alone.
#[test]
fn queue_pairs_are_made_as_others_make_them() {
    with_engine(
        "card::commands::queue_pairs_are_made_as_others_make_them",
        || {
            let card = Card::open();
            let good = card.queue_pair();
            let counters = card.counters();
            let refuse = |change: &dyn Fn(&mut CreateQp)| {
                let mut command = card.queue_pair();
                change(&mut command);
                let (object, given) = card.create(&command.to_bytes().unwrap());
                let parameter = CommandStatus::BAD_PARAMETER;
                assert!(object.is_null() && refused(parameter)(&given), "{given:?}");
            };
            // The card's clock of send queues, which is not that of queue pairs.
            refuse(&|qp| qp.qpc.ts_format = TimestampFormat::REAL_TIME);
            // A queue pair is bound to counters by RST2INIT.
            refuse(&|qp| qp.qpc.counter_set_id = counters);
            refuse(&|qp| qp.opt_param_mask = OptionalParameters::REMOTE_WRITE);
            // Datagrams, doorbells that the card itself would ring, and receives that others would enable.
            refuse(&|qp| qp.qpc.st = ServiceType::UD);
            refuse(&|qp| qp.qpc.send_dbr_mode = SendDoorbellMode::WITHOUT_RECORD_INTERNAL);
            refuse(&|qp| qp.qpc.cd_slave_receive = true);
            refuse(&|qp| qp.wq_umem_offset = 4096);
            card.make_queue_pair(&good);
        },
    );
}

/// What firmware may refuse of each step: fields that it takes only in other steps, and numbers out of their tables.
#[test]
fn steps_take_no_more_than_other_drivers_send() {
    with_engine(
        "card::commands::steps_take_no_more_than_other_drivers_send",
        || {
            let card = Card::open();
            let pair = card.make_queue_pair(&card.queue_pair());
            let refuse = |status, given: Given<Done>| assert!(refused(status)(&given), "{given:?}");
            let (parameter, index) = (CommandStatus::BAD_PARAMETER, CommandStatus::BAD_INDEX);
            let init = |change: &dyn Fn(&mut RstToInit)| {
                let mut command = pair.rst_to_init();
                change(&mut command);
                pair.modify(&command)
            };
            let rights = OptionalParameters::REMOTE_WRITE
                | OptionalParameters::REMOTE_READ
                | OptionalParameters::REMOTE_ATOMIC;
            refuse(parameter, init(&|step| step.opt_param_mask = rights));
            let at = |step: &mut RstToInit| step.qpc.primary_address_path.pkey_index = 1;
            refuse(index, init(&at));
            let unknown = |step: &mut RstToInit| step.qpc.counter_set_id = 99;
            refuse(CommandStatus::BAD_RESOURCE, init(&unknown));
            let counters = card.counters();
            let bound = init(&|step| step.qpc.counter_set_id = counters);
            assert_eq!(bound.0, 0, "{bound:?}");

            let rtr = |change: &dyn Fn(&mut InitToRtr)| {
                let mut command = pair.init_to_rtr();
                change(&mut command);
                pair.modify(&command)
            };
            let foreign = OptionalParameters::RNR_TIMEOUT;
            refuse(parameter, rtr(&|step| step.opt_param_mask = foreign));
            refuse(parameter, rtr(&|step| step.qpc.log_rra_max = 5));
            let at = |step: &mut InitToRtr| step.qpc.primary_address_path.pkey_index = 1;
            refuse(index, rtr(&at));
            // As UCX sends it.
            let ready = rtr(&|step| step.opt_param_mask = rights);
            assert_eq!(ready.0, 0, "{ready:?}");

            let rts = |change: &dyn Fn(&mut RtrToRts)| {
                let mut command = RtrToRts {
                    qpn: pair.qpn,
                    ..RtrToRts::default()
                };
                change(&mut command);
                pair.modify(&command)
            };
            let foreign = OptionalParameters::PKEY_INDEX;
            refuse(parameter, rts(&|step| step.opt_param_mask = foreign));
            refuse(parameter, rts(&|step| step.qpc.log_sra_max = 5));
            let ready = rts(&|_| ());
            assert_eq!(ready.0, 0, "{ready:?}");
        },
    );
}

/// A ring begins at a 64th of a page, so that a choice of page sizes leaves rings without a place.
#[test]
fn rings_begin_where_pages_let_them() {
    with_engine("card::commands::rings_begin_where_pages_let_them", || {
        const BYTES: usize = 1 << 20;
        let card = Card::open();
        let at = |page_sizes, offset| {
            // SAFETY: the device is open.
            let umem = unsafe { umem(&card.functions, card.context, BYTES, page_sizes) };
            let mut command = card.completion_queue();
            // SAFETY: the umem lives.
            command.cq_umem_id = unsafe { (*umem).umem_id };
            command.cq_umem_offset = offset;
            card.create(&command.to_bytes().unwrap()).1
        };
        assert_eq!(at(4096, 4096).0, 0);
        assert_eq!(at(!0xfff, 1 << 14).0, 0);
        let large = at(!0xfff, 4096);
        assert!(refused(CommandStatus::BAD_PARAMETER)(&large), "{large:?}");
    });
}

#[test]
fn memory_stays_while_queues_live_in_it() {
    with_engine(
        "card::commands::memory_stays_while_queues_live_in_it",
        || {
            let card = Card::open();
            let (object, given) = card.create(&card.completion_queue().to_bytes().unwrap());
            assert_eq!(given.0, 0, "{given:?}");
            // SAFETY: umem and queue live until they are ended.
            unsafe {
                let functions = &card.functions;
                assert_eq!((functions.mlx5dv_devx_umem_dereg)(card.umem), libc::EBUSY);
                assert_eq!((functions.mlx5dv_devx_obj_destroy)(object), 0);
                assert_eq!((functions.mlx5dv_devx_umem_dereg)(card.umem), 0);
                // None is there for no memory at all.
                let mut attributes = UmemAttributes {
                    addr: without_provenance_mut::<c_void>(4096),
                    size: 0,
                    access: values::LOCAL_WRITE,
                    pgsz_bitmap: 4096,
                    comp_mask: 0,
                    dmabuf_fd: 0,
                };
                let none = (functions.mlx5dv_devx_umem_reg_ex)(card.context, &raw mut attributes);
                assert!(none.is_null());
            }
        },
    );
}
