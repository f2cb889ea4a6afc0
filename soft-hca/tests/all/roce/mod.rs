//! Two HCAs that speak RoCE v2 with each other over UDP sockets of this machine.

mod capture;
mod errors;
mod faults;
mod hostile;
mod processes;
mod rxe;
mod verbs;
mod world;
