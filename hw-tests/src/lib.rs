//! What the tests of the suite share. Each is a binary of its own (`src/bin`), says in its header what it
//! proves, and ends with `Test OK`; `cargo xtask test --only hw-tests` runs them all.
//!
//! | module | job |
//! |---|---|
//! | [`run`] | a test's frame: its deadline, its progress, its last line |
//! | [`world`] | where kernels run |
//! | [`node`] | a device with its domain, and two queue pairs connected |
//! | [`arena`] | registered memory between guards, and what it should look like |
//! | [`model`] | what a request does to memory, said a second time |
//! | [`post`] | a list of requests through the kernel and back |
//! | [`collect`] | receives through the kernel, and what came |
//! | [`abi`] | a handle's fields by their documented offsets |
//! | [`mod@bench`] | repetitions, medians, tables |

pub mod abi;
pub mod arena;
pub mod bench;
pub mod collect;
pub mod model;
pub mod node;
pub mod post;
pub mod run;
pub mod world;
