//! Simulates clusters of GPUs that this project does not have.
//!
//! A [schedule](goal) says what each rank sends, receives and computes. [`generate`] makes those of the papers. A
//! [driver] says who posts. [`simulate::run`] lets both meet on a [topology] of nodes and switches,
//! whose costs are [`parameters`] with their sources; [`pcie`] counts packets on the bus. [`paths`] says what the
//! paths of a SmartNIC carry.
//!
//! # The engine
//!
//! Nodes and switches are models of nexosim, a maintained discrete-event engine. The engine has the queue of events, the
//! clock and the messages between models, so that only the models are ours. An event costs some microseconds, because it
//! is a boxed value and a task. 1,024 nodes still reduce 64 MiB within a minute of one core.
//!
//! nexosim could use all cores, but gets one thread here. Events of the same instant then run in a fixed order: model by
//! model, and within a model as they were scheduled. So the same seed gives the same bits.

pub mod chart;
pub mod driver;
pub mod figures;
pub mod generate;
pub mod goal;
pub mod parameters;
pub mod paths;
pub mod pcie;
pub mod predict;
pub mod projection;
pub mod sensitivity;
pub mod simulate;
pub mod topology;
