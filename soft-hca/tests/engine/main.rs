//! The engine against its specification: two HCAs on an in-process wire, stepped by hand.

mod commands;
mod completion;
mod decode;
mod errors;
mod faults;
mod hostile;
mod mutation;
mod order;
mod verbs;
mod world;
