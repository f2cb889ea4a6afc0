//! The command `warpbell`.
//!
//! [`decode`] turns bytes of mlx5 queues into fields with their meaning, and says what is wrong with them. [`input`]
//! reads bytes and hex dumps. [`text`] prints for people; `--json` prints the same values for programs.

pub mod arguments;
pub mod decode;
pub mod input;
pub mod text;
