//! Commands to the card: how queues come into being and pass through their states (DEVX).
//!
//! A program on Linux hands a command's bytes to `mlx5dv_devx_obj_create` and its sisters, or to the kernel's
//! DEVX methods; a kernel driver posts them to the card's command queue. This module writes and reads
//! the bytes, and does nothing else: no I/O, no allocation.
//!
//! Every structure is a value with the fields' names of the card's programmer's reference manual (PRM),
//! which are those of `mlx5_ifc.h`. `to_bytes` refuses a value that does not fit its field; `from_bytes` of
//! an answer turns a refusal of the card into an error. Bits that no field here covers are
//! written as 0 and not read.
//!
//! ```
//! use mlx5_wqe::CqNumber;
//! use mlx5_wqe::prm::{CqContext, CreateCq, CreateCqAnswer, PrmError, Refusal};
//!
//! // A collapsed completion queue in memory that was registered as umem 7: ring at 0, record at 4096.
//! let command = CreateCq {
//!     cq_context: CqContext {
//!         cc: true,
//!         oi: true,
//!         log_cq_size: 10,
//!         uar_page: 3,
//!         c_eqn_or_apu_element: 1,
//!         dbr_umem_valid: true,
//!         dbr_umem_id: 7,
//!         dbr_addr: 4096,
//!         ..CqContext::default()
//!     },
//!     cq_umem_valid: true,
//!     cq_umem_id: 7,
//!     ..CreateCq::default()
//! };
//! let bytes: [u8; 272] = command.to_bytes()?;
//! assert_eq!(bytes[..2], [0x04, 0x00]);
//!
//! // What the card may answer.
//! let created = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0, 0];
//! assert_eq!(Some(CreateCqAnswer::from_bytes(&created)?.cqn), CqNumber::new(0x1234));
//! let refused = [3, 0, 0, 0, 0, 0x7d, 0x4a, 0x11, 0, 0, 0, 0, 0, 0, 0, 0];
//! let error = CreateCqAnswer::from_bytes(&refused).unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "the card refused: bad parameter (status 0x03), syndrome 0x007d4a11",
//! );
//! # Ok::<(), PrmError>(())
//! ```
//!
//! # The way of a reliable connection
//!
//! [`QueryHcaCap`] (`cqe_version` has to be 1), [`CreateCq`], [`CreateQp`], then [`RstToInit`] (port, access
//! rights), [`InitToRtr`] (the other end, the path to it) and [`RtrToRts`] (retries); [`ToError`],
//! [`ToReset`], [`QueryQp`] and [`DestroyQp`] when they are wanted.
//!
//! # Sources
//!
//! Positions: `linux/mlx5/mlx5_ifc.h` (6.1). What the kernel leaves reserved there, the numbers of umems, the
//! offsets in them, and queue pairs without a doorbell record, has its position from NVIDIA's gpunetio, DPDK or the
//! tests of rdma-core; each such field says so. None of it was tried on a card by us.

mod address_path;
mod bits;
mod capabilities;
mod codes;
mod completion_queue;
mod counters;
mod memory;
mod queue_pair;
mod record;
mod shared_receive;

pub use address_path::AddressPath;
pub use bits::Field;
pub use capabilities::{
    AtomicCapabilities, HcaCapabilities, HcaCapabilities2, QueryAtomicCap, QueryAtomicCapAnswer,
    QueryHcaCap, QueryHcaCap2, QueryHcaCap2Answer, QueryHcaCapAnswer, QueryRoceCap,
    QueryRoceCapAnswer, RoceCapabilities,
};
pub use codes::{
    AtomicMode, CapabilityQuery, CommandOpcode, CommandStatus, CqNotification, CqStatus, EventType,
    Mtu, OptionalParameters, PathMigration, PortType, QpState, ReceiveType, RmpState,
    SendDoorbellMode, ServiceType, TimestampFormat, TimestampFormats, WqType,
};
pub use completion_queue::{CqContext, CreateCq, CreateCqAnswer, DestroyCq};
pub use counters::{AllocQCounter, AllocQCounterAnswer, QueryQCounter, QueryQCounterAnswer};
pub use memory::{
    AllocUar, AllocUarAnswer, CreateUmem, CreateUmemAnswer, DeallocUar, DestroyUmem, Mtt,
    UmemContext,
};
pub use queue_pair::{
    CreateQp, CreateQpAnswer, DestroyQp, Done, InitToRtr, ModifyQpAnswer, QpContext, QueryQp,
    QueryQpAnswer, RstToInit, RtrToRts, ToError, ToReset,
};
pub use record::{Command, PrmError, Record, Refusal, command_opcode};
pub use shared_receive::{CreateRmp, CreateRmpAnswer, RmpContext, WorkQueue};
