//! `cargo xtask dist`: all programs in one folder and one archive, for machines without Rust.

pub mod manifest;
