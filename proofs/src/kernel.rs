//! The oracle `c/kernel.c`: what the kernel's `linux/mlx5` headers say.

use std::ffi::c_void;

use mlx5_wqe::Cqe64;

use crate::facts::{self, Facts, RawFact};

mod oracle {
    use super::{Cqe64, RawFact, c_void};

    unsafe extern "C" {
        pub static kernel_layouts: RawFact;
        pub static kernel_values: RawFact;
        pub fn kernel_masked_atomic(
            at: *mut c_void,
            swap: u64,
            compare: u64,
            swap_mask: u64,
            compare_mask: u64,
        );
        pub fn kernel_cq_arm(
            record: *mut u32,
            uar: *mut c_void,
            cqn: u32,
            sequence: u32,
            solicited_only: u32,
            consumer: u32,
        );
        pub fn kernel_cqe_opcode(cqe: *const Cqe64) -> u8;
        pub fn kernel_cqe_format(cqe: *const Cqe64) -> u8;
    }
}

/// Sizes and offsets.
pub fn layouts() -> Facts {
    // SAFETY: the oracle's table ends with a row without a name, and its names are literals.
    unsafe { facts::read(&raw const oracle::kernel_layouts) }
}

/// Enum values and constants.
pub fn values() -> Facts {
    // SAFETY: as above.
    unsafe { facts::read(&raw const oracle::kernel_values) }
}

/// Both segments of a masked 8-byte compare-and-swap.
pub fn masked_atomic(swap: u64, compare: u64, swap_mask: u64, compare_mask: u64) -> [u8; 32] {
    let mut words = [0_u64; 4];
    let at = words.as_mut_ptr().cast();
    // SAFETY: the oracle writes the structure's four words.
    unsafe { oracle::kernel_masked_atomic(at, swap, compare, swap_mask, compare_mask) };
    zerocopy::transmute!(words)
}

/// What `mlx5_cq_set_ci` and `mlx5_cq_arm` leave in a CQ's doorbell record, and in the register of a UAR page.
pub fn cq_arm(cqn: u32, sequence: u32, solicited_only: bool, consumer: u32) -> ([u32; 2], u64) {
    let mut record = [0; 2];
    let mut uar = [0_u64; 512];
    let page = uar.as_mut_ptr().cast();
    // SAFETY: the oracle writes two words of the record, and eight bytes of the page at 0x20.
    unsafe {
        oracle::kernel_cq_arm(
            record.as_mut_ptr(),
            page,
            cqn,
            sequence,
            solicited_only.into(),
            consumer,
        );
    }
    let register = uar[0x20 / 8];
    assert_eq!(
        uar.iter().filter(|word| **word != 0).count(),
        usize::from(register != 0),
        "the kernel wrote elsewhere in the page"
    );
    (record, register)
}

/// The opcode and the format of a CQE.
pub fn cqe_opcode_and_format(cqe: &Cqe64) -> (u8, u8) {
    // SAFETY: the oracle reads the last byte of a CQE.
    unsafe {
        (
            oracle::kernel_cqe_opcode(cqe),
            oracle::kernel_cqe_format(cqe),
        )
    }
}
