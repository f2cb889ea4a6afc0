//! The patterns' tests: on a CPU, under miri, and as models under loom (`--cfg loom`), where no other test is built.

mod active;
mod common;
mod cpnet;
mod experts;
mod gaspi;
mod gpu;
mod inbound;
mod joint;
mod launched;
mod loom_active;
mod loom_gaspi;
mod loom_inbound;
mod loom_joint;
mod loom_proxy;
mod loom_trigger;
mod number;
mod proxy;
mod ranks;
mod team;
mod trigger;
