//! The signature byte of WQEs, for queues that have signatures on.
//!
//! Source: rdma-core `providers/mlx5/qp.c`: the XOR of all bytes, inverted.

use crate::segment::Control;
use crate::units::{Octoword, QpNumber, WqeBlock};
use crate::wqe::Wqe;

/// XOR of all bytes.
#[inline]
fn fold(octowords: &[Octoword]) -> u8 {
    let word = octowords
        .iter()
        .fold(0, |sum, octoword| sum ^ octoword.0[0] ^ octoword.0[1]);
    word.to_ne_bytes()
        .into_iter()
        .fold(0, |sum, byte| sum ^ byte)
}

/// The signature of a send WQE, over its `ds` octowords while its signature byte is 0.
///
/// Over a WQE that carries its signature the result is 0: so is one checked.
#[inline]
pub fn of_send(octowords: &[Octoword]) -> u8 {
    !fold(octowords)
}

/// The signature of a receive WQE: its signature segment (with the byte 0) and its data segments
/// without the end of the list, the QPN, and the receive's number.
#[inline]
pub fn of_receive(octowords: &[Octoword], qpn: QpNumber, counter: u16) -> u8 {
    let numbers = qpn
        .get()
        .to_ne_bytes()
        .into_iter()
        .chain(counter.to_ne_bytes())
        .fold(0, |sum, byte| sum ^ byte);
    !(fold(octowords) ^ numbers)
}

/// A placed send WQE with its signature filled in.
///
/// ```
/// use mlx5_wqe::{QpNumber, Wqe, WqeIndex, signature};
/// let placed = Wqe::nop().place(WqeIndex(1), QpNumber::new(0x42).unwrap());
/// let [block] = signature::signed(placed);
/// assert_eq!(signature::of_send(&block), 0);
/// ```
#[inline]
pub fn signed<const BLOCKS: usize>(mut blocks: [WqeBlock; BLOCKS]) -> [WqeBlock; BLOCKS] {
    const { Wqe::<BLOCKS>::BLOCKS_ARE_SOUND };
    let mut control = Control::from_octoword(blocks[0][0]);
    control.signature = 0;
    blocks[0][0] = control.to_octoword();
    // Blocks past the WQE's end are zero and do not change the sum.
    control.signature = of_send(blocks.as_flattened());
    blocks[0][0] = control.to_octoword();
    blocks
}
