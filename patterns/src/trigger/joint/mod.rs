//! Tags under which the host registers operations while kernels run, as GPU-TN has it.
//!
//! A GPU behind PCIe and a CPU have no atomics in common. So each of them stores to words of its own, and looks at those
//! of the other: kernels count triggers in one word, the host offers operations in another. Both lie in memory that both
//! reach, pinned host memory for a GPU's kernels.
//!
//! - A trigger counts itself, and then looks at the offer.
//! - A registration makes its offer, and then looks at the count.
//!
//! So at least one of the two sees that nothing is missing. Whether it was the trigger's thread, the count says: each
//! thread leaves it once it has looked, and whoever is to ring says so before. The host waits until no thread is between
//! its addition and its look, and rings if nobody has said that it does. No thread of a kernel ever waits for the host.
//!
//! | file | job |
//! |---|---|
//! | `words` | what the two words say |
//! | `tag` | the two words in memory: a trigger, and a wait |
//! | `register` | the host's side of a tag |
//! | `handle` | the ABI, and the calls of kernels |

mod handle;
#[cfg(not(target_arch = "nvptx64"))]
mod register;
mod tag;
mod words;

pub use handle::{JointHandle, JointTicket, JointTriggers};
#[cfg(not(target_arch = "nvptx64"))]
pub use register::Ringer;
pub use tag::JointTag;
