//! The engine's tests: against its specification, and against a model.

mod differential;
mod engine;
mod other_process;
#[cfg(not(miri))]
mod roce;
