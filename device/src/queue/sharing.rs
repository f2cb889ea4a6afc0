//! Who else uses a queue.

use crate::queue::exclusive::Exclusive;
use crate::queue::ledger::Ledger;
use crate::queue::shared::{Among, InBlock, InGpu, SharedAmong};

/// How a queue is shared: [`Exclusive`], [`BlockShared`] or [`GpuShared`].
///
/// Sealed: its methods are the queue's own, and nobody else can call them.
pub trait Sharing: Ledger {}

impl Sharing for Exclusive {}
impl<A: Among> Sharing for SharedAmong<A> {}

/// The threads of one block share the queue, and no other block's may.
pub type BlockShared = SharedAmong<InBlock>;

/// All threads of the GPU share the queue.
pub type GpuShared = SharedAmong<InGpu>;
