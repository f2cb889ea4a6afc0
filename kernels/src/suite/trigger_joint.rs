//! A kernel that triggers operations which the host registers while it runs: before, behind, and at the same time.

use warpbell::{
    Block, Deadline, Scope, Slice, Thread, Warp, Word64, WordExt, block, kernel, thread,
};
use warpbell_patterns::trigger::{Error, JointHandle};

use super::arguments::{Kernel, Output};
use super::ending::{Ending, EndingWords};
use super::mode::ScopeKind;
use crate::outcome::Failure;
use crate::place::Place;

/// Each block has a tag, in turn, and each of its scopes does the same, many times:
///
/// 1. it waits for the host's first sign of the turn, and triggers for the operation that the host registered before;
/// 2. it stores a value, triggers for an operation that the host has not registered, and gives a sign;
/// 3. it waits for the host's second sign, stores another value, and triggers while the host registers;
/// 4. it waits until all three operations are done.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TriggerJoint<'a> {
    /// The tags; at least 1.
    pub triggers: JointHandle<'a>,
    /// Who triggers together: the scope.
    pub scope: ScopeKind,
    /// How often.
    pub turns: u32,
    /// The host's signs, a word for each tag: two for each turn.
    pub go: Slice<'a, Word64>,
    /// The scopes' signs, a word for each: the turns that it did the second step of. Those of a tag lie behind those of the
    /// tag before, `scopes` for each.
    pub done: Slice<'a, Word64>,
    /// Their values, in the same order.
    pub values: Place,
    /// The most scopes that a tag has.
    pub scopes: u32,
    /// Milliseconds that a wait may take.
    pub limit_ms: u64,
    /// How each thread fared.
    pub endings: Output<'a, EndingWords>,
}

impl Kernel for TriggerJoint<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_trigger_joint::ENTRY;

    fn run(&self) {
        let ending: Ending = match self.scope {
            ScopeKind::Thread => self.trigger::<Thread>(1),
            ScopeKind::Warp => self.trigger::<Warp>(thread::warp_size()),
            ScopeKind::Block => self.trigger::<Block>(block::size()),
        }
        .into();
        // SAFETY: each thread has a place of its own.
        unsafe { self.endings.write(thread::index().into(), ending.into()) };
    }
}

/// Runs [`TriggerJoint`].
#[kernel]
pub fn suite_trigger_joint(kernel: TriggerJoint<'_>) {
    kernel.run();
}

impl TriggerJoint<'_> {
    /// What a scope stores in a turn, with the host's sign of that number.
    pub const fn value(sign: u64, place: u32) -> u64 {
        sign << 32 | (place as u64 + 1)
    }

    /// Does all turns, in scopes of so many threads.
    #[inline(always)]
    fn trigger<C: Scope>(&self, size: u32) -> Result<(), Failure> {
        let triggers = self.triggers.open()?;
        let (size, tags) = (size.max(1), triggers.tags().max(1));
        self.values
            .holds(u64::from(tags) * u64::from(self.scopes))?;
        let in_block = block::size().div_ceil(size);
        let (number, tag) = (block::index() / tags, block::index() % tags);
        let place = tag * self.scopes + number * in_block + block::thread_index() / size;
        let limit = Deadline::after_ms(self.limit_ms);
        for turn in 1..=u64::from(self.turns) {
            if C::leads() {
                self.await_sign(tag, 2 * turn - 1)?;
            }
            triggers.trigger::<C>(tag)?;
            if C::leads() {
                self.values.store(place, Self::value(2 * turn - 1, place));
            }
            triggers.trigger::<C>(tag)?;
            if C::leads() {
                if let Some(done) = self.done.get(place.into()) {
                    done.store_release(turn);
                }
                self.await_sign(tag, 2 * turn)?;
                self.values.store(place, Self::value(2 * turn, place));
            }
            let last = triggers.trigger::<C>(tag)?;
            triggers.wait(last, limit)?;
        }
        Ok(())
    }

    /// Waits for a sign of the host's.
    #[inline(always)]
    fn await_sign(&self, tag: u32, sign: u64) -> Result<(), Failure> {
        let mut wait = Deadline::after_ms(self.limit_ms).wait();
        loop {
            let given = self.go.get(tag.into());
            if given.is_some_and(|given| given.load_acquire() >= sign) {
                return Ok(());
            }
            if wait.expired() {
                return Err(Error::Timeout.into());
            }
        }
    }
}
