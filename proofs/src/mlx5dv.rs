//! The oracle `c/mlx5dv.c`: what rdma-core's `infiniband/mlx5dv.h` says.

use mlx5_wqe::Octoword;
use zerocopy::IntoBytes;

use crate::facts::{self, Facts, RawFact};
use crate::request::Request;

mod oracle {
    use super::{RawFact, Read, Request};

    unsafe extern "C" {
        pub static mlx5dv_layouts: RawFact;
        pub static mlx5dv_values: RawFact;
        pub fn mlx5dv_build(wqe: *mut u8, request: *const Request<'_>) -> u32;
        pub fn mlx5dv_read_cqe(bytes: *const u8, said: *mut Read);
    }
}

/// The most bytes that a WQE has: 63 octowords.
pub const MAX_WQE: usize = 63 * 16;

/// What the header says that a CQE holds (`struct completion` of `c/completion.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Read {
    pub opcode: u32,
    pub format: u32,
    pub solicited: u32,
    pub owner: u32,
    pub wqe_opcode: u32,
    pub qpn: u32,
    pub source_qpn: u32,
    pub user_index: u32,
    pub immediate: u32,
    pub byte_count: u32,
    pub wqe_counter: u32,
    pub signature: u32,
    pub syndrome: u32,
    pub vendor: u32,
}

/// Sizes and offsets.
pub fn layouts() -> Facts {
    // SAFETY: the oracle's table ends with a row without a name, and its names are literals.
    unsafe { facts::read(&raw const oracle::mlx5dv_layouts) }
}

/// Enum values and constants.
pub fn values() -> Facts {
    // SAFETY: as above.
    unsafe { facts::read(&raw const oracle::mlx5dv_values) }
}

/// The bytes of a WQE, built with the header's structures and inline functions.
///
/// # Panics
/// If the request has more than [`MAX_WQE`] bytes.
pub fn build(request: &Request<'_>) -> Vec<u8> {
    assert!(
        request.bytes() <= MAX_WQE,
        "a request of {} bytes",
        request.bytes()
    );
    let mut wqe = [Octoword::ZERO; MAX_WQE / 16];
    // SAFETY: the oracle writes no more bytes than the request has, which fit, and reads the lists that the request
    // borrows.
    let length = unsafe { oracle::mlx5dv_build(wqe.as_mut_ptr().cast(), request) };
    wqe.as_bytes()[..length as usize].to_vec()
}

/// What a CQE's bytes say.
pub fn read_cqe(bytes: &[u8; 64]) -> Read {
    let mut said = Read::default();
    // SAFETY: the oracle reads 64 bytes, and writes the structure.
    unsafe { oracle::mlx5dv_read_cqe(bytes.as_ptr(), &raw mut said) };
    said
}
