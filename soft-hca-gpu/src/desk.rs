//! Where an engine lends queues to its crew, and gets them back: two sides that work at the same time, and never
//! wait for each other but by looking again.
//!
//! A seat holds one loan. Its state says whose it is: the engine's, until it says [`LENT`] or [`KEYED`], then the
//! crew's, until the crew says why it gives it back. What lies in the seat is only touched by whose it is.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ptr::addr_of_mut;
use core::sync::atomic::AtomicU32;
#[cfg(not(target_arch = "nvptx64"))]
use core::sync::atomic::{Ordering, fence};

#[cfg(target_arch = "nvptx64")]
use warpbell_gpu::arch::{self, fence_acquire_release, load_in_block, store_in_block};

use crate::lanes::Lanes;
use warpbell_soft_hca::engine::Access;
use warpbell_soft_hca::engine::loan::{Loan, Wanted, Window};

/// Queues that a crew serves at most.
pub(crate) const SEATS: usize = 16;
/// Keys that it knows at most. A power of two: enough for 16 regions that were registered one behind the other, as data and
/// signals of 8 ranks are. Two that share a place drive each other out, and a loan goes back for each that is not there.
const KEYS: usize = 32;

/// States of a seat.
pub(crate) mod seat {
    /// Nothing is lent here.
    pub const FREE: u32 = 0;
    /// The crew's, from here on.
    pub const LENT: u32 = 1;
    /// The same, and the key that the crew wanted lies there.
    pub const KEYED: u32 = 2;
    /// Given back as it was asked for.
    pub const BACK: u32 = 3;
    /// Given back because the WQE at the tail is not plain.
    pub const NOT_PLAIN: u32 = 4;
    /// Given back because a key is unknown; which, lies there.
    pub const WANTS_KEY: u32 = 5;
}

/// What an engine calls to its crew.
pub(crate) mod call {
    /// Nothing.
    pub const NONE: u32 = 0;
    /// All loans are wanted back.
    pub const RECALL: u32 = 1;
    /// There will be no more.
    pub const CLOSE: u32 = 2;
}

/// A word that the engine and the crew tell each other something by.
#[derive(Debug)]
pub(crate) struct Signal(AtomicU32);

impl Signal {
    /// Looks at it, in no order with other accesses.
    #[inline(always)]
    pub(crate) fn peek(&self) -> u32 {
        #[cfg(not(target_arch = "nvptx64"))]
        let value = self.0.load(Ordering::Relaxed);
        #[cfg(target_arch = "nvptx64")]
        let value = load_in_block(&self.0);
        value
    }

    /// What a [`peek`](Self::peek) has found, before whatever is read because of it: what the other side stored
    /// before it told.
    #[inline(always)]
    pub(crate) fn acquire() {
        #[cfg(not(target_arch = "nvptx64"))]
        fence(Ordering::Acquire);
        #[cfg(target_arch = "nvptx64")]
        fence_acquire_release(arch::Reach::Block);
    }

    /// Tells, after everything that this thread, and those that it has met, stored before: the other side goes on
    /// to read it.
    #[inline(always)]
    pub(crate) fn tell(&self, value: u32) {
        #[cfg(not(target_arch = "nvptx64"))]
        self.0.store(value, Ordering::Release);
        #[cfg(target_arch = "nvptx64")]
        {
            fence_acquire_release(arch::Reach::Block);
            store_in_block(&self.0, value);
        }
    }
}

/// What an engine and its crew share.
#[derive(Debug)]
pub struct Desk<'t> {
    /// How many seats the crew looks at.
    open: u32,
    pub(crate) call: Signal,
    /// The state of a seat that is always free.
    pub(crate) free: Signal,
    seats: [Seat<'t>; SEATS],
    /// The crew's alone.
    keys: UnsafeCell<[Key<'t>; KEYS]>,
}

/// Room for a loan.
#[derive(Debug)]
pub(crate) struct Seat<'t> {
    pub(crate) state: Signal,
    loan: UnsafeCell<MaybeUninit<Loan>>,
    /// Keys that were looked up for a loan of another era may mean something else by now.
    era: UnsafeCell<MaybeUninit<u32>>,
    wanted: UnsafeCell<MaybeUninit<Wanted>>,
    key: UnsafeCell<MaybeUninit<Key<'t>>>,
}

// SAFETY: what lies in a seat belongs to one side at a time, as its state says, and the keys are the crew's; both
// sides have promised to keep to that. What a key points to is an atomic word.
unsafe impl Sync for Desk<'_> {}

/// A key that was looked up, for this kind of access from this protection domain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'t> {
    pub(crate) wanted: Wanted,
    pub(crate) window: Window<'t>,
}

impl Key<'_> {
    /// Stands where no key is known. The key 0 is none: who wants it is told that it opens nothing.
    const NONE: Self = Self {
        wanted: Wanted::NOTHING,
        window: Window::NOTHING,
    };
}

/// The only place of the desk's where a key may be.
#[inline(always)]
const fn place(wanted: Wanted) -> usize {
    // The index of a key is above its low 8 bits. Both ends of a write often name the same one.
    let remote = wanted.access.contains(Access::REMOTE_WRITE) as usize;
    ((wanted.key >> 8) as usize * 2 + remote) % KEYS
}

impl<'t> Desk<'t> {
    /// Makes a desk for a crew of so many lanes, in the place where it stays: it is too large to be moved about.
    #[inline(always)]
    pub fn set_up(place: &mut MaybeUninit<Self>, lanes: u32) -> &Self {
        let desk = place.as_mut_ptr();
        // SAFETY: every field is written, but for what a seat's state says is not there.
        unsafe {
            addr_of_mut!((*desk).open).write(lanes.min(SEATS as u32));
            addr_of_mut!((*desk).call).write(Signal(AtomicU32::new(call::NONE)));
            addr_of_mut!((*desk).free).write(Signal(AtomicU32::new(seat::FREE)));
            for index in 0..SEATS {
                let state = addr_of_mut!((*desk).seats[index].state);
                state.write(Signal(AtomicU32::new(seat::FREE)));
            }
            for index in 0..KEYS {
                let key = addr_of_mut!((*desk).keys).cast::<Key<'t>>();
                key.add(index).write(Key::NONE);
            }
            &*desk
        }
    }

    /// How many seats the crew looks at.
    #[inline(always)]
    pub(crate) const fn open(&self) -> u32 {
        self.open
    }

    #[inline(always)]
    pub(crate) fn seat(&self, index: usize) -> Option<&Seat<'t>> {
        self.seats.get(index)
    }

    /// Crew: the key in the place where this one would be. All of it, whichever it is: its words come in the time
    /// of one.
    #[inline(always)]
    pub(crate) fn key(&self, wanted: Wanted) -> Key<'t> {
        // SAFETY: only the crew looks here, and a lane changes it only between two meetings, when no other looks.
        let keys = unsafe { &*self.keys.get() };
        keys[place(wanted)]
    }

    /// One lane of the crew, between two meetings: keeps a key in the place of another.
    #[inline(always)]
    pub(crate) fn keep(&self, key: &Key<'t>) {
        // SAFETY: as above.
        let keys = unsafe { &mut *self.keys.get() };
        keys[place(key.wanted)] = *key;
    }

    /// The same: forgets all keys.
    #[inline(always)]
    pub(crate) fn forget_keys(&self) {
        // SAFETY: as above.
        let keys = unsafe { &mut *self.keys.get() };
        for key in keys {
            key.wanted = Key::NONE.wanted;
        }
    }
}

impl<'t> Seat<'t> {
    /// The loan here.
    ///
    /// # Safety
    /// There is one, it is the caller's side's, and no other thread of it changes it meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn loan(&self) -> &Loan {
        // SAFETY: the caller's promise.
        unsafe { (*self.loan.get()).assume_init_ref() }
    }

    /// The same, to change.
    ///
    /// # Safety
    /// As for [`loan`](Self::loan), and no other thread looks at it meanwhile.
    #[inline(always)]
    #[allow(
        clippy::mut_from_ref,
        reason = "who it belongs to, the seat's state says"
    )]
    pub(crate) unsafe fn loan_mut(&self) -> &mut Loan {
        // SAFETY: the caller's promise.
        unsafe { (*self.loan.get()).assume_init_mut() }
    }

    /// Crew: the era of the loan here.
    ///
    /// # Safety
    /// There is a loan, and it is the crew's.
    #[inline(always)]
    pub(crate) unsafe fn era(&self) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { (*self.era.get()).assume_init() }
    }

    /// Engine: puts a loan of this era here, and hands it out.
    ///
    /// # Safety
    /// The seat is free, and the caller the engine that it belongs to.
    pub(crate) unsafe fn lend(&self, loan: Loan, era: u32) {
        // SAFETY: the caller's promise.
        unsafe {
            (*self.loan.get()).write(loan);
            (*self.era.get()).write(era);
        }
        self.state.tell(seat::LENT);
    }

    /// Engine: puts the key here that the crew wants, and hands the loan out again; whether it is one.
    ///
    /// # Safety
    /// The seat's state is [`WANTS_KEY`](seat::WANTS_KEY), and the caller the engine.
    pub(crate) unsafe fn answer(&self, look_up: impl FnOnce(Wanted) -> Option<Window<'t>>) -> bool {
        // SAFETY: the caller's promise; the crew wrote it before it told.
        let wanted = unsafe { (*self.wanted.get()).assume_init() };
        let Some(window) = look_up(wanted) else {
            return false;
        };
        // SAFETY: the caller's promise.
        unsafe { (*self.key.get()).write(Key { wanted, window }) };
        self.state.tell(seat::KEYED);
        true
    }

    /// Crew, one lane, after all have met: gives the loan back for want of a key.
    ///
    /// # Safety
    /// The loan is the crew's.
    #[inline(always)]
    pub(crate) unsafe fn ask(&self, wanted: Wanted) {
        // SAFETY: the caller's promise.
        unsafe { (*self.wanted.get()).write(wanted) };
        self.state.tell(seat::WANTS_KEY);
    }

    /// Crew: the key that the engine put here.
    ///
    /// # Safety
    /// The state that the loan came with is [`KEYED`](seat::KEYED).
    #[inline(always)]
    pub(crate) unsafe fn given_key(&self) -> &Key<'t> {
        // SAFETY: the caller's promise.
        unsafe { (*self.key.get()).assume_init_ref() }
    }
}

/// Lanes that meet, so that one of them may change what all look at.
#[inline(always)]
pub(crate) fn in_turn<L: Lanes>(lanes: L, turns: u32, mut turn: impl FnMut()) {
    let mut turns = turns;
    while turns != 0 {
        let lane = turns.trailing_zeros();
        turns &= turns - 1;
        lanes.sync();
        if lanes.index() == lane {
            turn();
        }
    }
    lanes.sync();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_keys_share_no_place() {
        for first in 0..4u32 {
            let mut taken = [false; KEYS];
            for index in first..first + 16 {
                for access in [Access::empty(), Access::REMOTE_WRITE] {
                    let place = place(Wanted {
                        key: index << 8 | 0x5a,
                        access,
                        ..Wanted::NOTHING
                    });
                    assert!(!taken[place], "key {index} from {first} on");
                    taken[place] = true;
                }
            }
        }
    }
}
