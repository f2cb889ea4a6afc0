//! The command `warpbell`.
//!
//! [`decode`] turns bytes of mlx5 queues into fields with their meaning, and says what is wrong with them. [`input`]
//! reads bytes and hex dumps. [`live`] decodes the queues of a running process or of a [`core_dump`], and [`top`] says
//! what they wait for. [`metrics`] serves the same to Prometheus. [`bring_up`] shows whether a machine works. [`text`]
//! prints for people; `--json` prints the same values for programs.

pub mod arguments;
pub mod bring_up;
pub mod core_dump;
pub mod decode;
pub mod input;
pub mod live;
pub mod metrics;
pub mod text;
pub mod top;
