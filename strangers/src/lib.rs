//! What unmodified programs of others say to their other end over TCP, before they use a queue pair and after, so
//! that ours can be that end.
//!
//! | module | its one job |
//! |---|---|
//! | [`pingpong`] | `ibv_rc_pingpong` of rdma-core, as client and as server |
//! | [`perftest`] | a client of perftest's `ib_write_bw` |
//! | [`Connection`] | a TCP connection on which every step has a deadline |
//! | [`Script`] | a conversation without a network, for tests |
//!
//! Neither program documents what it says. It was read off connections between two of them (rdma-core 44, perftest
//! 4.5), and the tests repeat those words. Whatever else the other end says is an [`Error`] by name.

#[cfg(test)]
#[macro_use]
mod assert_matches;
mod connection;
mod conversation;
mod error;
mod field;
pub mod perftest;
pub mod pingpong;

pub use connection::{Connection, FirstWords};
pub use conversation::{Conversation, Script};
pub use error::Error;
