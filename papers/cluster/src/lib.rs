//! Clusters of GPUs that no machine here is, simulated.
//!
//! A [schedule](goal) says what each rank sends, receives and computes. [`generate`] makes those of the papers. A
//! [driver] says who posts. [`simulate::run`] lets both meet on a [topology] of nodes and switches,
//! whose costs are [`parameters`] with their sources; [`pcie`] counts packets on the bus.
//!
//! # The engine
//!
//! Nodes and switches are models of nexosim, a maintained discrete-event engine: it has the queue of events, the clock
//! and the messages between models, so that only the models are ours. Its events cost some microseconds each, because
//! each is a boxed value and a task, but 1,024 nodes reduce 64 MiB within a minute of one core all the same. We run it
//! with one thread, although it could use all: events of the same instant then run in the order in which they were
//! scheduled, so that the same seed gives the same bits.

pub mod chart;
pub mod driver;
pub mod figures;
pub mod generate;
pub mod goal;
pub mod parameters;
pub mod pcie;
pub mod sensitivity;
pub mod simulate;
pub mod topology;
