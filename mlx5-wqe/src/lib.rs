#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

mod address;
mod codes;
mod completion;
mod cqe;
pub mod decode;
mod doorbell;
mod flags;
mod gather;
mod layout;
pub mod opcode;
#[cfg(feature = "prm")]
pub mod prm;
mod receive;
pub mod segment;
pub mod signature;
mod single;
mod syndrome;
mod uar;
pub mod umr;
mod units;
mod wqe;

pub use address::AddressVector;
pub use completion::{Arrival, Completion, CompletionError, CqeError, Requester, Responder, Side};
pub use cqe::{Cqe64, CqeErrorWord, CqeFormat, CqeTail, ErrorCqe, MiniCqe};
pub use doorbell::{CqArm, CqDoorbellRecord, Doorbell, DoorbellRecord};
pub use flags::{ControlFlags, Fence};
pub use opcode::{CqeOpcode, Opcode};
pub use receive::{ReceiveWqe, SrqNext};
pub use single::Masked;
pub use syndrome::{Description, Evidence, Syndrome, VendorCode, VendorDescription};
pub use uar::{DoorbellRegister, SendRegister, UarPage};
pub use units::{
    CqNumber, Immediate, Local, LocalKey, Octoword, QpNumber, Remote, RemoteKey, WqeBlock, WqeIndex,
};
pub use wqe::{BuildError, MAX_WQE_BLOCKS, Wqe, first_word};
