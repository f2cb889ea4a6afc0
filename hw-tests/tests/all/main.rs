//! What the suite's programs refuse, what they do with their output, and how often patterns ring doorbells.

mod doorbells;
mod machine;
mod output;
