//! The bytes of an mlx5 queue.
#![no_std]
#![forbid(unsafe_code)]

mod flags;
mod gather;
mod layout;
pub mod opcode;
pub mod segment;
mod units;
mod wqe;

pub use flags::{ControlFlags, Fence};
pub use opcode::{CqeOpcode, Opcode};
pub use units::{
    CqNumber, Immediate, Local, LocalKey, Octoword, QpNumber, Remote, RemoteKey, WqeBlock, WqeIndex,
};
pub use wqe::{BuildError, MAX_WQE_BLOCKS, Masked, Wqe, first_word};
