//! An engine with a crew, and an engine that a kernel runs.

mod direct;
mod resident;
/// The engine's own tests' two HCAs; these tests use the parts.
#[allow(dead_code, reason = "half of it is for the engine's own tests")]
#[path = "../../../soft-hca/tests/all/engine/world.rs"]
mod world;
