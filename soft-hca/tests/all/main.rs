//! The engine's tests: against its specification, and against a model.

mod differential;
mod engine;
#[cfg(not(miri))]
mod roce;
