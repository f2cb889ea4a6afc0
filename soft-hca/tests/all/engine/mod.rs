//! The engine against its specification: two HCAs on an in-process wire, stepped by hand.

mod answers;
mod commands;
mod completion;
mod cross_channel;
mod datagram;
mod errors;
mod fairness;
mod faults;
mod hostile;
mod keys;
mod mutation;
mod options;
mod order;
mod packet;
mod rules;
mod shared;
mod timers;
mod unreliable;
mod verbs;
mod without_record;
pub mod world;
