//! What the device makes of commands (DEVX): it carries out what it knows, and refuses the rest by status and syndrome.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr::{null_mut, without_provenance_mut};

use mlx5_wqe::QpNumber;
use mlx5_wqe::prm::{
    AddressPath, AllocQCounter, AllocQCounterAnswer, CapabilityQuery, Command, CommandStatus,
    CqContext, CreateCq, CreateCqAnswer, CreateQp, CreateQpAnswer, Done, InitToRtr, Mtu,
    OptionalParameters, PrmError, QpContext, QueryAtomicCap, QueryAtomicCapAnswer, QueryHcaCap,
    QueryHcaCap2Answer, QueryHcaCapAnswer, QueryRoceCap, QueryRoceCapAnswer, ReceiveType, Record,
    RstToInit, RtrToRts, SendDoorbellMode, TimestampFormat, TimestampFormats, Transport,
};

use crate::bindings::{
    self, ContextAttributes, DevxObject, Functions, IbvContext, IbvPd, Umem, UmemAttributes, values,
};
use crate::provider::with_engine;

/// The device, opened with DEVX, and a page of memory for queues.
struct Card {
    functions: Functions,
    context: *mut IbvContext,
    domain: *mut IbvPd,
    umem: *mut Umem,
    page: u32,
    event_queue: u32,
}

/// A queue pair of the device's.
struct QueuePair<'a> {
    card: &'a Card,
    object: *mut DevxObject,
    qpn: QpNumber,
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
        // SAFETY: each call has what its manual page wants.
        unsafe {
            let list = (functions.ibv_get_device_list)(null_mut());
            let context = (functions.mlx5dv_open_device)(*list, &raw mut attributes);
            (functions.ibv_free_device_list)(list);
            assert!(!context.is_null(), "{}", io::Error::last_os_error());
            let domain = (functions.ibv_alloc_pd)(context);
            let umem = umem(&functions, context, 4096, 4096);
            let uar = (functions.mlx5dv_devx_alloc_uar)(context, values::UAR_BLUEFLAME);
            let mut event_queue = 0;
            let asked = (functions.mlx5dv_devx_query_eqn)(context, 0, &raw mut event_queue);
            assert_eq!(asked, 0);
            Self {
                functions,
                context,
                domain,
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
        self.make(command)
    }

    /// Gives a command that makes an object.
    fn make<R: Record>(&self, command: &[u8]) -> (*mut DevxObject, Given<R>) {
        let mut answer = vec![0; R::BYTES];
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
        (object, (number, R::read(&answer)))
    }

    /// A queue pair without receives in memory of the card's page, as the commands of the other drivers make one.
    fn queue_pair(&self) -> CreateQp {
        let (_, made) = self.make::<CreateCqAnswer>(&self.completion_queue().to_bytes().unwrap());
        let cqn = made.1.unwrap().cqn;
        CreateQp {
            qpc: QpContext {
                st: Transport::RC,
                rq_type: ReceiveType::NONE,
                ts_format: TimestampFormat::DEFAULT,
                pd: self.domain_number(),
                uar_page: self.page,
                cqn_snd: cqn,
                cqn_rcv: cqn,
                log_sq_size: 2,
                dbr_umem_valid: true,
                dbr_umem_id: self.umem_id(),
                dbr_addr: 2048,
                ..QpContext::default()
            },
            wq_umem_valid: true,
            wq_umem_id: self.umem_id(),
            wq_umem_offset: 3072,
            ..CreateQp::default()
        }
    }

    fn domain_number(&self) -> u32 {
        let mut found = bindings::Domain {
            pdn: 0,
            comp_mask: 0,
        };
        let mut objects = bindings::Objects::NONE;
        objects.pd.input = self.domain.cast();
        objects.pd.output = (&raw mut found).cast();
        // SAFETY: the domain lives, and the structure is filled.
        let looked =
            unsafe { (self.functions.mlx5dv_init_obj)(&raw mut objects, values::OBJECT_PD) };
        assert_eq!(looked, 0);
        found.pdn
    }

    fn make_queue_pair(&self, command: &CreateQp) -> QueuePair<'_> {
        let (object, made) = self.make::<CreateQpAnswer>(&command.to_bytes().unwrap());
        QueuePair {
            card: self,
            object,
            qpn: made.1.unwrap().qpn,
        }
    }

    /// A set of counters.
    fn counters(&self) -> u8 {
        let command = AllocQCounter::default().to_bytes().unwrap();
        let (_, made) = self.make::<AllocQCounterAnswer>(&command);
        made.1.unwrap().counter_set_id
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

impl QueuePair<'_> {
    /// Gives a command that changes it.
    fn modify<C: Command>(&self, modify: &C) -> Given<Done> {
        let mut command = vec![0; C::BYTES];
        modify.write(&mut command).unwrap();
        let mut answer = vec![0; C::Answer::BYTES];
        // SAFETY: the queue pair lives; the bytes are there.
        let number = unsafe {
            (self.card.functions.mlx5dv_devx_obj_modify)(
                self.object,
                command.as_ptr().cast(),
                command.len(),
                answer.as_mut_ptr().cast(),
                answer.len(),
            )
        };
        (number, Done::from_bytes(&answer))
    }

    fn rst_to_init(&self) -> RstToInit {
        RstToInit {
            qpn: self.qpn,
            qpc: QpContext {
                primary_address_path: AddressPath {
                    vhca_port_num: 1,
                    ..AddressPath::default()
                },
                ..QpContext::default()
            },
            ..RstToInit::default()
        }
    }

    fn init_to_rtr(&self) -> InitToRtr {
        let own = own_gid(self.card);
        InitToRtr {
            qpn: self.qpn,
            qpc: QpContext {
                mtu: Mtu::BYTES_1024,
                remote_qpn: self.qpn,
                log_msg_max: 30,
                primary_address_path: AddressPath {
                    vhca_port_num: 1,
                    rgid_rip: own,
                    grh: true,
                    ..AddressPath::default()
                },
                ..QpContext::default()
            },
            ..InitToRtr::default()
        }
    }
}

/// The GID of the device's port.
fn own_gid(card: &Card) -> [u8; 16] {
    // SAFETY: the structure is numbers, of which 0 is one.
    let mut entry: bindings::GidEntry = unsafe { std::mem::zeroed() };
    let bytes = size_of::<bindings::GidEntry>();
    // SAFETY: the function fills the structure, whose size it is told.
    let found =
        unsafe { (card.functions.ibv_query_gid_ex)(card.context, 1, 0, &raw mut entry, 0, bytes) };
    assert_eq!(found, 0);
    std::array::from_fn(|byte| entry.gid[byte / 8].to_ne_bytes()[byte % 8])
}

/// Registers memory for queues that is as long as it is aligned, and stays. Pages may have the sizes whose bits are set.
///
/// # Safety
/// The device is open.
unsafe fn umem(
    functions: &Functions,
    context: *mut IbvContext,
    bytes: usize,
    page_sizes: u64,
) -> *mut Umem {
    let layout = std::alloc::Layout::from_size_align(bytes, bytes).unwrap();
    // SAFETY: the layout is not empty.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    let mut attributes = UmemAttributes {
        addr: memory.cast(),
        size: bytes,
        access: values::LOCAL_WRITE,
        pgsz_bitmap: page_sizes,
        comp_mask: 0,
        dmabuf_fd: 0,
    };
    // SAFETY: the caller's promise; the memory stays.
    unsafe { (functions.mlx5dv_devx_umem_reg_ex)(context, &raw mut attributes) }
}

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

        // With RoCE, queue pairs have a clock of their own.
        assert!(told.roce && told.sq_ts_format == TimestampFormats::FREE_RUNNING);
        let command = QueryRoceCap {
            op_mod: CapabilityQuery::ROCE_CURRENT,
        };
        let command = command.to_bytes().unwrap();
        let (number, answer) = card.general(&command, QueryRoceCapAnswer::BYTES);
        let roce = QueryRoceCapAnswer::from_bytes(&answer).unwrap().roce_cap;
        assert_eq!(
            (number, roce.qp_ts_format),
            (0, TimestampFormats::REAL_TIME)
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
                qpc: QpContext {
                    ts_format: TimestampFormat::DEFAULT,
                    ..qpc
                },
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

/// What firmware may refuse of a queue pair that is made, which all other drivers leave alone.
#[test]
fn queue_pairs_are_made_as_others_make_them() {
    with_engine("commands::queue_pairs_are_made_as_others_make_them", || {
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
        refuse(&|qp| qp.qpc.ts_format = TimestampFormat::FREE_RUNNING);
        // A queue pair is bound to counters by RST2INIT.
        refuse(&|qp| qp.qpc.counter_set_id = counters);
        refuse(&|qp| qp.opt_param_mask = OptionalParameters::REMOTE_WRITE);
        card.make_queue_pair(&good);
    });
}

/// What firmware may refuse of each step: fields that it takes only in other steps, and numbers out of their tables.
#[test]
fn steps_take_no_more_than_other_drivers_send() {
    with_engine(
        "commands::steps_take_no_more_than_other_drivers_send",
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
    with_engine("commands::rings_begin_where_pages_let_them", || {
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
    });
}
