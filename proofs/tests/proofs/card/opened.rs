//! The device, opened with DEVX, and commands as the other drivers give them.

use std::ffi::c_int;
use std::io;
use std::ptr::null_mut;

use mlx5_wqe::QpNumber;
use mlx5_wqe::prm::{
    AddressPath, AllocQCounter, AllocQCounterAnswer, Command, CommandStatus, CqContext, CreateCq,
    CreateCqAnswer, CreateQp, CreateQpAnswer, Done, InitToRtr, Mtu, PrmError, QpContext,
    ReceiveType, Record, RstToInit, ServiceType, TimestampFormat,
};

use crate::card::bindings::{
    self, ContextAttributes, DevxObject, Functions, IbvContext, IbvPd, Umem, UmemAttributes, values,
};

/// The device, opened with DEVX, and a page of memory for queues.
pub struct Card {
    pub functions: Functions,
    pub context: *mut IbvContext,
    pub domain: *mut IbvPd,
    pub umem: *mut Umem,
    pub page: u32,
    pub event_queue: u32,
}

/// A queue pair of the device's.
pub struct QueuePair<'a> {
    pub card: &'a Card,
    pub object: *mut DevxObject,
    pub qpn: QpNumber,
}

/// What a command's answer says, and the error number of its call.
pub type Given<R> = (c_int, Result<R, PrmError>);

pub fn refused(status: CommandStatus) -> impl Fn(&Given<Done>) -> bool {
    move |given| {
        let (number, Err(PrmError::Refused(refusal))) = given else {
            return false;
        };
        *number == libc::EREMOTEIO && refusal.status == status && refusal.syndrome != 0
    }
}

impl Card {
    pub fn open() -> Self {
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

    pub fn umem_id(&self) -> u32 {
        // SAFETY: the umem lives.
        unsafe { (*self.umem).umem_id }
    }

    /// Gives a command that makes nothing, with room for an answer.
    pub fn general(&self, command: &[u8], room: usize) -> (c_int, Vec<u8>) {
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

    pub fn create(&self, command: &[u8]) -> (*mut DevxObject, Given<Done>) {
        self.make(command)
    }

    /// Gives a command that makes an object.
    pub fn make<R: Record>(&self, command: &[u8]) -> (*mut DevxObject, Given<R>) {
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
    pub fn queue_pair(&self) -> CreateQp {
        let (_, made) = self.make::<CreateCqAnswer>(&self.completion_queue().to_bytes().unwrap());
        let cqn = made.1.unwrap().cqn;
        CreateQp {
            qpc: QpContext {
                st: ServiceType::RC,
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

    pub fn domain_number(&self) -> u32 {
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

    pub fn make_queue_pair(&self, command: &CreateQp) -> QueuePair<'_> {
        let (object, made) = self.make::<CreateQpAnswer>(&command.to_bytes().unwrap());
        QueuePair {
            card: self,
            object,
            qpn: made.1.unwrap().qpn,
        }
    }

    /// A set of counters.
    pub fn counters(&self) -> u8 {
        let command = AllocQCounter::default().to_bytes().unwrap();
        let (_, made) = self.make::<AllocQCounterAnswer>(&command);
        made.1.unwrap().counter_set_id
    }

    pub fn completion_queue(&self) -> CreateCq {
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
    pub fn modify<C: Command>(&self, modify: &C) -> Given<Done> {
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

    pub fn rst_to_init(&self) -> RstToInit {
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

    pub fn init_to_rtr(&self) -> InitToRtr {
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
pub fn own_gid(card: &Card) -> [u8; 16] {
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
pub unsafe fn umem(
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
