//! A tag that was looked at before the work that its trigger ends.

use core::marker::PhantomData;

use super::counter::Counter;
use super::entry::TriggerEntry;
use crate::together::begin;
use warpbell::Scope;
use warpbell::SendQueueHandle;

/// What a tag said before the work that its trigger ends: [`Triggers::look`](super::Triggers::look).
///
/// Where one trigger alone was missing then, and nobody else has triggered the tag since, this one waits for no answer of
/// the tag's word: the word is asked while the thread's data is on its way. Otherwise it is a trigger like any other.
#[derive(Debug)]
#[must_use = "it triggers nothing by itself"]
pub struct Look<'a, C: Scope> {
    entry: &'a TriggerEntry<'a>,
    queue: SendQueueHandle<'a>,
    seen: Counter,
    _scope: PhantomData<C>,
}

impl<'a, C: Scope> Look<'a, C> {
    #[inline(always)]
    pub(super) fn at(entry: &'a TriggerEntry<'a>) -> Self {
        Self {
            entry,
            queue: entry.queue(),
            seen: entry.look(),
            _scope: PhantomData,
        }
    }

    /// Triggers the tag, as [`Triggers::trigger`](super::Triggers::trigger) does, whatever became of it since.
    #[inline(always)]
    pub fn trigger(self) {
        if begin::<C>() {
            self.entry.trigger_seen(&self.queue, self.seen);
        }
    }
}
