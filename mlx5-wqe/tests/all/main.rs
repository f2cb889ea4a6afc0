//! Builders, decoder, completions and commands, by the crate's interface alone.

mod accessors;
mod builders;
mod completions;
mod decode;
mod own_driver;
mod prm;
