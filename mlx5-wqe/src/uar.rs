//! The page of registers through which a process rings the card's doorbells.
//!
//! Sources: linux/mlx5/doorbell.h (`MLX5_CQ_DOORBELL`, `MLX5_BF_OFFSET`), rdma-core
//! `providers/mlx5` for the second buffer; gpunetio and the tests of rdma-core for the doorbell without a record.

use volatile_register::WO;

use crate::layout::assert_layout;

/// A register that takes 8 bytes at once, and is never read.
pub type DoorbellRegister = WO<u64>;

/// One UAR page, 4 KiB. Storing to a register is `unsafe`, as `volatile_register` has it: the page
/// must be mapped for as long as the reference lives.
///
/// A register takes the native integers that [`CqArm::doorbell`](crate::CqArm::doorbell) and
/// [`Doorbell`](crate::Doorbell) give, each in a single 8-byte store.
#[repr(C)]
pub struct UarPage {
    _reserved0: [u8; 0x20],
    /// Arms a completion queue (0x20).
    pub cq_arm: DoorbellRegister,
    _reserved28: [u8; 0x5d8],
    /// The doorbell of queue pairs without a doorbell record (0x600).
    pub send_without_record: DoorbellRegister,
    _reserved608: [u8; 0x1f8],
    /// The two send registers (0x800 and 0x900). A driver that uses BlueFlame alternates between
    /// them.
    pub send: [SendRegister; 2],
    _reserveda00: [u8; 0x600],
}

assert_layout!(UarPage, 4096, {
    _reserved0: 0, cq_arm: 0x20, _reserved28: 0x28, send_without_record: 0x600, _reserved608: 0x608,
    send: 0x800, _reserveda00: 0xa00,
});

/// A send register: an 8-byte doorbell, or a BlueFlame buffer that takes a WQE's blocks at once.
#[repr(C)]
pub struct SendRegister {
    /// The doorbell: the first 8 bytes.
    pub doorbell: DoorbellRegister,
    /// The other bytes of a WQE pushed by BlueFlame (multiples of 64 B, doorbell included).
    pub rest: [WO<u64>; 31],
}

assert_layout!(SendRegister, 0x100, { doorbell: 0, rest: 8 });

impl UarPage {
    /// Size of the page in bytes.
    pub const SIZE: usize = size_of::<Self>();
    /// Offset of the register that arms a completion queue, in bytes.
    pub const CQ_ARM: usize = core::mem::offset_of!(Self, cq_arm);
    /// Offset of the doorbell of queue pairs without a doorbell record, in bytes.
    pub const DOORBELL_WITHOUT_RECORD: usize = core::mem::offset_of!(Self, send_without_record);
    /// Offsets of the two send doorbells, in bytes.
    pub const DOORBELLS: [usize; 2] = {
        let first = core::mem::offset_of!(Self, send);
        [first, first + size_of::<SendRegister>()]
    };
}
