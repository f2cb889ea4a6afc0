//! Two HCAs that speak RoCE v2 with each other over UDP sockets of this machine.

mod capture;
mod congestion;
mod errors;
mod faults;
mod flood;
mod hostile;
mod processes;
mod receiver_not_ready;
mod relay;
mod rxe;
mod verbs;
mod world;
