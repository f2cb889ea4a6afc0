//! What the tests share: queues in plain memory, a GASPI program and lanes of active messages on them.
#![allow(dead_code, reason = "each kind of build needs a part of it")]

pub mod program;
#[path = "../../../../device/tests/all/common/mod.rs"]
mod queue;
pub mod wire;

pub use queue::*;
