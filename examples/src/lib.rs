//! The gallery's kernels for a GPU: `warpbell-build` compiles this library to PTX, in which each program finds its own.
//! A CPU's compiler sees nothing here.
#![cfg(target_arch = "nvptx64")]
#![no_std]
#![feature(abi_ptx)]

warpbell::panic_handler!();

#[path = "../active_message.rs"]
mod active_message;
#[path = "../all_to_all.rs"]
mod all_to_all;
#[path = "../allreduce.rs"]
mod allreduce;
#[path = "../collectives.rs"]
mod collectives;
#[path = "../error_and_reset.rs"]
mod error_and_reset;
#[path = "../fetch_add.rs"]
mod fetch_add;
#[path = "../hello_write.rs"]
mod hello_write;
#[path = "../moe.rs"]
mod moe;
#[path = "../notify.rs"]
mod notify;
#[path = "../pingpong.rs"]
mod pingpong;
#[path = "../receive.rs"]
mod receive;
#[path = "../trace.rs"]
mod trace;
#[path = "../trigger.rs"]
mod trigger;
#[path = "../two_processes.rs"]
mod two_processes;
#[path = "../warp_scatter.rs"]
mod warp_scatter;
