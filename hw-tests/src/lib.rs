//! What the tests of the suite share. Each is a binary of its own (`src/bin`), says in its header what it
//! proves, and ends with `Test OK`, or with `Skipped:` and why; `cargo xtask test --only hw-tests` runs them
//! all, on all that is there.
//!
//! | option of a test | meaning |
//! |---|---|
//! | `--on cpu`, `--on gpu` | where kernels run; the CPU unless said otherwise |
//! | `--nic soft`, `soft-host`, `soft-gpu` | the NIC: a CPU thread for kernels on the CPU, a CPU thread for kernels on a GPU, or a kernel beside them |
//! | `--gpu NUMBER` | which GPU |
//! | `--nic-gpu NUMBER` | which GPU the NIC of `soft-gpu` runs on, if it is another |
//! | `--ptx PATH` | kernels to take instead of the embedded ones; may be repeated |
//! | `--slower TIMES` | how many times as long everything may take, as under compute-sanitizer |
//!
//! The binary `suite` runs the tests that lie beside it, so that a machine without Cargo can do it too:
//!
//! ```console
//! $ cargo build --release -p warpbell-hw-tests --bins
//! $ suite --times 20 -- --on gpu --nic soft-host
//! $ suite --under "compute-sanitizer --error-exitcode 9" --tests verbs,shared -- --on gpu --slower 20
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`run`] | a test's frame: its deadline, its progress, its last line |
//! | [`say`](mod@say) | what a program says, and its end where nobody can hear it |
//! | [`machine`] | the options of a test's command line |
//! | [`here`] | the node that the process tests, and what tests do with its kernels |
//! | [`sides`] | both sides of connections, and two queue pairs connected |
//! | [`arena`] | registered memory between guards, and what it should look like |
//! | [`flood`] | many threads at one queue |
//! | [`model`] | what a request does to memory, said a second time |
//! | [`post`] | a list of requests through the kernel and back |
//! | [`turns`] | two kernels that count in turns |
//! | [`collect`] | receives through the kernel, and what came |
//! | [`abi`] | a handle's fields by their documented offsets |

pub mod abi;
pub mod arena;
pub mod collect;
pub mod flood;
pub mod here;
pub mod machine;
pub mod model;

pub mod post;
pub mod run;
pub mod say;
pub mod sides;
pub mod turns;
