//! Launches on a CPU: what the primitives give, how lanes wait, and how a launch fails.

mod failures;
mod primitives;
mod process;
mod waiting;
