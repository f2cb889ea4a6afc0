//! Schedules, models and the command, as their users see them.

mod command;
mod generators;
mod goal;
mod judge;
mod predict;
mod simulation;
