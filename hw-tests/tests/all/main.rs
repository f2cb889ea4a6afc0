//! What the suite's programs refuse, what they say and where it goes, and how often patterns ring doorbells.

mod doorbells;
mod machine;
mod output;
mod suite;
