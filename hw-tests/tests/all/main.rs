//! What the suite's programs refuse, and what they do with their output.

mod machine;
mod output;
