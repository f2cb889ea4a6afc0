//! The bytes of an mlx5 queue.
#![no_std]
#![forbid(unsafe_code)]
