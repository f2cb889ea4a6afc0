//! A kernel that triggers the first operations of chains, and waits for the last ones: those between are the NIC's.

use warpbell::{Block, Deadline, Scope, Thread, Warp, block, kernel, thread};
use warpbell_patterns::trigger::TriggerHandle;

use super::arguments::{Kernel, Output};
use super::ending::{Ending, EndingWords};
use super::mode::ScopeKind;
use crate::outcome::Failure;

/// Each scope of the grid triggers the first tag of every chain once, then waits for the last tag of every chain.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TriggerChain<'a> {
    /// The tags, those of a chain one after the other.
    pub triggers: TriggerHandle<'a>,
    /// Who triggers together, and waits.
    pub scope: ScopeKind,
    /// How many chains there are.
    pub chains: u32,
    /// Tags of each chain; at least 1.
    pub links: u32,
    /// Milliseconds that everything may take.
    pub limit_ms: u64,
    /// How each thread fared.
    pub endings: Output<'a, EndingWords>,
}

impl Kernel for TriggerChain<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_trigger_chain::ENTRY;

    fn run(&self) {
        let ending: Ending = match self.scope {
            ScopeKind::Thread => self.follow::<Thread>(),
            ScopeKind::Warp => self.follow::<Warp>(),
            ScopeKind::Block => self.follow::<Block>(),
        }
        .into();
        // SAFETY: each thread has a place of its own.
        unsafe { self.endings.write(thread::index().into(), ending.into()) };
    }
}

/// Runs [`TriggerChain`].
#[kernel]
pub fn suite_trigger_chain(kernel: TriggerChain<'_>) {
    kernel.run();
}

impl TriggerChain<'_> {
    #[inline(always)]
    fn follow<C: Scope>(&self) -> Result<(), Failure> {
        let triggers = self.triggers.open()?;
        let limit = Deadline::after_ms(self.limit_ms);
        // Blocks begin with different chains.
        let first = block::index();
        for number in 0..self.chains {
            let chain = (first + number) % self.chains;
            triggers.trigger::<C>(chain * self.links)?;
        }
        for chain in 0..self.chains {
            triggers.wait::<C>(chain * self.links + self.links - 1, limit)?;
        }
        Ok(())
    }
}
