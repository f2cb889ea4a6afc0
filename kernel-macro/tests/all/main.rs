//! What the attribute takes and refuses.

mod accepted;
mod refused;
