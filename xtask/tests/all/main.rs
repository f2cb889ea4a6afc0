//! The commands as their users start them, and the script of the measurements.

mod measure;
mod output;
