//! An engine as a kernel runs it, and the host's talk with it through the mailbox.

mod talk;
mod world;
