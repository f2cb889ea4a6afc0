//! What the device makes of commands (DEVX): it carries out what it knows, and refuses the rest by status and syndrome.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::{null_mut, without_provenance_mut};

use mlx5_wqe::prm::{
    CapabilityQuery, CommandStatus, CqContext, CreateCq, CreateQp, Done, PrmError, QpContext,
    QueryHcaCap, QueryHcaCap2Answer, QueryHcaCapAnswer, Record, SendDoorbellMode, Transport,
};

use crate::bindings::{ContextAttributes, DevxObject, Functions, IbvContext, Umem, values};
use crate::provider::with_engine;

/// The device, opened with DEVX, and a page of memory for queues.
struct Card {
    functions: Functions,
    context: *mut IbvContext,
    umem: *mut Umem,
    page: u32,
    event_queue: u32,
}

/// What a command's answer says, and the error number of its call.
type Given<R> = (c_int, Result<R, PrmError>);

fn refused(status: CommandStatus) -> impl Fn(&Given<Done>) -> bool {
    move |given| {
        let (number, Err(PrmError::Refused(refusal))) = given else {
            return false;
        };
        *number == libc::EREMOTEIO && refusal.status == status && refusal.syndrome != 0
    }
}

impl Card {
    fn open() -> Self {
        let functions = Functions::load().unwrap();
        let mut attributes = ContextAttributes {
            flags: values::CONTEXT_DEVX,
            comp_mask: 0,
        };
        // 4,096 bytes aligned to as many, which stay.
        let memory = Box::leak(Box::new(Page([0; 4096])));
        // SAFETY: each call has what its manual page wants.
        unsafe {
            let list = (functions.ibv_get_device_list)(null_mut());
            let context = (functions.mlx5dv_open_device)(*list, &raw mut attributes);
            (functions.ibv_free_device_list)(list);
            assert!(!context.is_null(), "{}", io::Error::last_os_error());
            let start = memory.0.as_mut_ptr().cast();
            let umem = (functions.mlx5dv_devx_umem_reg)(context, start, 4096, values::LOCAL_WRITE);
            let uar = (functions.mlx5dv_devx_alloc_uar)(context, values::UAR_BLUEFLAME);
            let mut event_queue = 0;
            let asked = (functions.mlx5dv_devx_query_eqn)(context, 0, &raw mut event_queue);
            assert_eq!(asked, 0);
            Self {
                functions,
                context,
                umem,
                page: (*uar).page_id,
                event_queue,
            }
        }
    }

    fn umem_id(&self) -> u32 {
        // SAFETY: the umem lives.
        unsafe { (*self.umem).umem_id }
    }

    /// Gives a command that makes nothing, with room for an answer.
    fn general(&self, command: &[u8], room: usize) -> (c_int, Vec<u8>) {
        let mut answer = vec![0; room];
        // SAFETY: the bytes are there.
        let number = unsafe {
            (self.functions.mlx5dv_devx_general_cmd)(
                self.context,
                command.as_ptr().cast(),
                command.len(),
                answer.as_mut_ptr().cast(),
                room,
            )
        };
        (number, answer)
    }

    fn create(&self, command: &[u8]) -> (*mut DevxObject, Given<Done>) {
        let mut answer = [0; 16];
        // SAFETY: the bytes are there.
        let object = unsafe {
            (self.functions.mlx5dv_devx_obj_create)(
                self.context,
                command.as_ptr().cast(),
                command.len(),
                answer.as_mut_ptr().cast(),
                answer.len(),
            )
        };
        let number = match object.is_null() {
            true => io::Error::last_os_error().raw_os_error().unwrap(),
            false => 0,
        };
        (object, (number, Done::from_bytes(&answer)))
    }

    fn completion_queue(&self) -> CreateCq {
        CreateCq {
            cq_context: CqContext {
                log_cq_size: 2,
                uar_page: self.page,
                c_eqn_or_apu_element: self.event_queue,
                dbr_umem_valid: true,
                dbr_umem_id: self.umem_id(),
                dbr_addr: 1024,
                ..CqContext::default()
            },
            cq_umem_valid: true,
            cq_umem_id: self.umem_id(),
            ..CreateCq::default()
        }
    }
}

#[repr(align(4096))]
struct Page([u8; 4096]);

#[test]
fn capabilities_are_told() {
    with_engine("commands::capabilities_are_told", || {
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

        // Other capabilities are not known, and an answer has to have room.
        let bytes = query(CapabilityQuery(0x0d << 1)).to_bytes().unwrap();
        let (number, answer) = card.general(&bytes, QueryHcaCapAnswer::BYTES);
        let other = (number, Done::from_bytes(&answer));
        assert!(refused(CommandStatus::BAD_PARAMETER)(&other), "{other:?}");
        let bytes = query(CapabilityQuery::GENERAL_CURRENT).to_bytes().unwrap();
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
    with_engine("commands::unknown_commands_are_refused", || {
        let card = Card::open();
        // CREATE_RMP, QUERY_SPECIAL_CONTEXTS: there are such on a card.
        for opcode in [0x90c_u16, 0x203, 0xffff] {
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
    with_engine("commands::queues_that_cannot_be_are_refused", || {
        let card = Card::open();
        let refuse = |status, change: fn(&mut CreateCq)| {
            let mut command = card.completion_queue();
            change(&mut command);
            let (object, given) = card.create(&command.to_bytes().unwrap());
            assert!(object.is_null() && refused(status)(&given), "{given:?}");
        };
        let parameter = CommandStatus::BAD_PARAMETER;
        refuse(parameter, |cq| cq.cq_umem_valid = false);
        refuse(parameter, |cq| cq.cq_umem_id += 1);
        refuse(parameter, |cq| cq.cq_umem_offset = 4096 - 192);
        refuse(parameter, |cq| cq.cq_context.dbr_addr = 4092);
        refuse(parameter, |cq| cq.cq_context.cqe_comp_en = true);
        let resource = CommandStatus::BAD_RESOURCE;
        refuse(resource, |cq| cq.cq_context.uar_page = 0xfff);
        refuse(resource, |cq| cq.cq_context.c_eqn_or_apu_element = 77);
        let command = card.completion_queue().to_bytes().unwrap();
        let (object, given) = card.create(&command[..100]);
        let short = CommandStatus::BAD_INPUT_LENGTH;
        assert!(object.is_null() && refused(short)(&given), "{given:?}");

        // Datagrams, doorbells that the card itself would ring, and receives that others would enable.
        let contexts = [
            QpContext {
                st: Transport::UD,
                ..QpContext::default()
            },
            QpContext {
                send_dbr_mode: SendDoorbellMode::WITHOUT_RECORD_INTERNAL,
                ..QpContext::default()
            },
            QpContext {
                cd_slave_receive: true,
                ..QpContext::default()
            },
        ];
        let create = |qpc| {
            let command = CreateQp {
                qpc,
                ..CreateQp::default()
            };
            let (object, given) = card.create(&command.to_bytes().unwrap());
            assert!(object.is_null() && refused(parameter)(&given), "{given:?}");
            match given.1 {
                Err(PrmError::Refused(refusal)) => refusal.syndrome,
                other => panic!("{other:?}"),
            }
        };
        // Without memory, which is looked at last, any is refused.
        let without_memory = create(QpContext::default());
        for qpc in contexts {
            assert_ne!(create(qpc), without_memory);
        }
    });
}

#[test]
fn memory_stays_while_queues_live_in_it() {
    with_engine("commands::memory_stays_while_queues_live_in_it", || {
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
            let none = (functions.mlx5dv_devx_umem_reg)(
                card.context,
                without_provenance_mut::<c_void>(4096),
                0,
                values::LOCAL_WRITE,
            );
            assert!(none.is_null());
        }
    });
}
