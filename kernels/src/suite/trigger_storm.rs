//! A kernel whose blocks trigger tags in any order, while one registers operations under them.

use core::sync::atomic::Ordering;

use warpbell::wqe::{Remote, Wqe};
use warpbell::{Block, Deadline, Scope, Slice, Thread, Warp, block, kernel, thread};
use warpbell_patterns::trigger::{Error, TriggerHandle, Triggers};

use super::arguments::{Kernel, Output};
use super::ending::{Ending, EndingWords};
use super::mode::ScopeKind;
use crate::outcome::Failure;
use crate::place::Place;

/// How long a trigger waits for operations to catch up, in microseconds.
const HOLD_BACK_US: u64 = 200;

/// The last block registers, with one thread; the scopes of all others trigger, each its share of a list.
///
/// Operation number `n` (from 1) of a tag writes `n` to the tag's word, twice, under one doorbell. Its threshold is in a
/// list, too. As many triggers come for each tag as all its operations want; none is done before enough have begun, or
/// the registrar ends with an error.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TriggerStorm<'a> {
    /// The tags.
    pub triggers: TriggerHandle<'a>,
    /// Who triggers together: the scope.
    pub scope: ScopeKind,
    /// Operations of each tag.
    pub operations: u32,
    /// How many triggers a tag's first operations want, from none of them to all; a tag's numbers after the other's.
    pub wanted: Slice<'a, u32>,
    /// Two words for each tag.
    pub words: Remote,
    /// Which tag each trigger is for.
    pub order: Slice<'a, u32>,
    /// For each tag a word in the kernels' own memory: how many of its triggers are on their way or there.
    pub begun: Place,
    /// Milliseconds that everything may take.
    pub limit_ms: u64,
    /// How each thread fared.
    pub endings: Output<'a, EndingWords>,
}

impl Kernel for TriggerStorm<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_trigger_storm::ENTRY;

    fn run(&self) {
        let registers = block::index() + 1 == thread::grid_dim_x();
        let ending: Ending = match self.scope {
            _ if registers => self.register(),
            ScopeKind::Thread => self.trigger::<Thread>(1),
            ScopeKind::Warp => self.trigger::<Warp>(thread::warp_size()),
            ScopeKind::Block => self.trigger::<Block>(block::size()),
        }
        .into();
        // SAFETY: each thread has a place of its own.
        unsafe { self.endings.write(thread::index().into(), ending.into()) };
    }
}

/// Runs [`TriggerStorm`].
#[kernel]
pub fn suite_trigger_storm(kernel: TriggerStorm<'_>) {
    kernel.run();
}

impl TriggerStorm<'_> {
    /// The tags, each of which has its word.
    #[inline(always)]
    fn open(&self) -> Result<Triggers<'_>, Failure> {
        let triggers = self.triggers.open()?;
        self.begun.holds(triggers.tags().into())?;
        Ok(triggers)
    }

    /// Triggers every so many of the list.
    #[inline(always)]
    fn trigger<C: Scope>(&self, size: u32) -> Result<(), Failure> {
        let triggers = self.open()?;
        let size = size.max(1);
        let scopes = (thread::grid_dim_x() - 1) * block::size() / size;
        let mut next = u64::from(thread::index() / size);
        while let Some(&tag) = self.order.get(next) {
            // Some through a look, which mostly is an old one by then.
            let look = triggers.look::<C>(tag)?;
            if C::leads() {
                // Three of four keep near the registrations, so that operations are sent by triggers, too.
                if !next.is_multiple_of(4) {
                    self.hold_back(triggers, tag)?;
                }
                if let Some(begun) = self.begun.word(tag) {
                    begun.fetch_add(1, Ordering::Relaxed);
                }
            }
            match next.is_multiple_of(2) {
                true => look.trigger(),
                false => triggers.trigger::<C>(tag)?,
            }
            next += u64::from(scopes);
        }
        Ok(())
    }

    /// Waits for a little, as long as triggers of the tag are waiting for their operation.
    #[inline(always)]
    fn hold_back(&self, triggers: Triggers<'_>, tag: u32) -> Result<(), Failure> {
        let mut wait = Deadline::after_us(HOLD_BACK_US).wait();
        loop {
            let counter = triggers.counter(tag)?;
            if counter.counted() <= counter.threshold() || wait.expired() {
                return Ok(());
            }
        }
    }

    /// Registers all operations of all tags, each as soon as it may.
    #[inline(always)]
    fn register(&self) -> Result<(), Failure> {
        if block::thread_index() != 0 {
            return Ok(());
        }
        let triggers = self.open()?;
        let mut wait = Deadline::after_ms(self.limit_ms).wait();
        loop {
            let late = wait.expired();
            let mut left = false;
            for tag in 0..triggers.tags() {
                left |= self.advance(triggers, tag)?;
            }
            if !left {
                return Ok(());
            }
            if late {
                return Err(Error::Timeout.into());
            }
        }
    }

    /// Registers a tag's next operation if the one before is done; whether there is something left to do.
    #[inline(always)]
    fn advance(&self, triggers: Triggers<'_>, tag: u32) -> Result<bool, Failure> {
        let number = u32::from(triggers.counter(tag)?.end().0) / 2;
        let before = self.wanted(tag, number);
        let result = if number == self.operations {
            triggers.wait::<Thread>(tag, Deadline::PASSED)
        } else {
            let place = self.words.at(16 * u64::from(tag));
            let write = Wqe::write_value(u64::from(number) + 1, place);
            let again = place.at(8);
            let again = Wqe::write_value(u64::from(number) + 1, again);
            let threshold = self.wanted(tag, number + 1) - before;
            triggers.register::<Thread, 2>(tag, threshold, [write, again], Deadline::PASSED)
        };
        match result {
            Ok(()) => {
                // That of the operation before, which is done now.
                let begun = self.begun.load(tag);
                if begun < u64::from(before) {
                    return Err(Error::Untriggered {
                        missing: before - begun as u32,
                    }
                    .into());
                }
                Ok(number != self.operations)
            }
            Err(Error::Untriggered { .. } | Error::Timeout) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// How many triggers a tag's first so many operations want.
    #[inline(always)]
    fn wanted(&self, tag: u32, operations: u32) -> u32 {
        let place = u64::from(tag) * u64::from(self.operations + 1) + u64::from(operations);
        self.wanted.get(place).copied().unwrap_or(0)
    }
}
