//! Lanes that serve the doorbells of lent queues, and the desk that they share.
//!
//! Each lane listens to one doorbell register. Where one rings, all of them execute the queue's plain writes
//! together, a WQE each (`burst`). Lane 0 has the engine: it lends the queues, and takes them back when
//! something else is to be done.

mod burst;

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::mem::MaybeUninit;

use heapless::Vec;

use super::command::{Access, ProtectionDomain};
use super::lanes::Lanes;
use super::loan::Loan;
use super::memory::Memory;
use super::protection::Window;
use super::wire::Wire;
use super::{Engine, packet::Range};
use burst::Verdict;

/// Queues that a crew serves at most.
const LOANS: usize = 16;
/// Keys that it knows at most. A power of two.
const KEYS: usize = 16;
/// How long after the last write of a lent queue the engine still has to step back.
const BUSY_NS: u64 = 100_000;
/// How often the engine steps meanwhile.
const STEP_EVERY_NS: u64 = 5_000;

/// What the lanes of a crew share. Lane 0 writes here, between two meetings of all.
#[derive(Debug)]
pub struct Desk<'t> {
    content: UnsafeCell<MaybeUninit<Content<'t>>>,
}

// SAFETY: a desk does nothing by itself; a crew's lanes, who made a promise, take turns.
unsafe impl Sync for Desk<'_> {}

impl Desk<'_> {
    /// A desk that no crew has used.
    pub const fn new() -> Self {
        Self {
            content: UnsafeCell::new(MaybeUninit::uninit()),
        }
    }
}

impl Default for Desk<'_> {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Debug)]
struct Content<'t> {
    loans: Vec<Loan, LOANS>,
    keys: [Option<Key<'t>>; KEYS],
}

/// A key that was looked up, for this kind of access from this protection domain.
#[derive(Clone, Copy, Debug)]
struct Key<'t> {
    wanted: Wanted,
    window: Window<'t>,
}

/// What a key is to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    key: u32,
    domain: ProtectionDomain,
    access: Access,
}

impl Wanted {
    /// The only place of the desk's where this key may be.
    #[inline(always)]
    const fn place(self) -> usize {
        // The index of a key is above its low 8 bits. Both ends of a write often name the same one.
        let remote = self.access.contains(Access::REMOTE_WRITE) as usize;
        ((self.key >> 8) as usize * 2 + remote) % KEYS
    }
}

/// Whether a key opens a range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Opens {
    Yes,
    No,
    /// It has to be looked up.
    Unknown,
}

/// One lane of a crew. All lanes call the same methods in the same order, but for those of lane 0.
#[derive(Debug)]
pub struct Crew<'d, 't, M, L> {
    desk: &'d Desk<'t>,
    lanes: L,
    memory: M,
    /// The register that this lane listens to, if any, and the last ring that it heard there.
    register: Option<u64>,
    heard: u64,
    /// Queues of which more is known to be posted: bit n is loan n.
    pending: u32,
    /// When the engine stepped last, and whether it did anything.
    stepped: (u64, bool),
    /// Until when the crew counts as busy.
    busy_until: u64,
    _engine: PhantomData<fn(&'t ())>,
}

impl<'d, 't, M: Memory, L: Lanes> Crew<'d, 't, M, L> {
    /// Makes the calling thread one of the lanes at `desk`.
    ///
    /// # Safety
    ///
    /// Nobody but the lanes of this crew may use the desk while one of them lives. All of them belong to one
    /// engine: lane 0 always comes with the same one, the others with none. Each has a memory that reaches
    /// what the engine's does.
    #[inline(always)]
    pub unsafe fn new(desk: &'d Desk<'t>, lanes: L, memory: M) -> Self {
        if lanes.index() == 0 {
            let content = Content {
                loans: Vec::new(),
                keys: [const { None }; KEYS],
            };
            // SAFETY: the caller's promise; the others look after the meeting.
            unsafe { (*desk.content.get()).write(content) };
        }
        lanes.sync();
        Self {
            desk,
            lanes,
            memory,
            register: None,
            heard: 0,
            pending: 0,
            stepped: (0, true),
            busy_until: 0,
            _engine: PhantomData,
        }
    }

    /// The desk, to look at.
    #[inline(always)]
    fn content(&self) -> &Content<'t> {
        // SAFETY: written by `new`; lane 0 changes it only between two meetings, when no other looks.
        unsafe { (*self.desk.content.get()).assume_init_ref() }
    }

    /// The desk, to change: lane 0, between two meetings.
    #[inline(always)]
    #[allow(
        clippy::mut_from_ref,
        reason = "the lanes take turns, as the promise of `new` says"
    )]
    fn change(&self) -> &mut Content<'t> {
        // SAFETY: as above, and no reference of lane 0's own lives from before.
        unsafe { (*self.desk.content.get()).assume_init_mut() }
    }

    /// Lane 0: whether the engine is to [`step`](Self::step).
    #[inline(always)]
    pub const fn is_due(&self, now_ns: u64) -> bool {
        let (stepped, worked) = self.stepped;
        worked || now_ns >= self.busy_until || now_ns.saturating_sub(stepped) >= STEP_EVERY_NS
    }

    /// Lane 0, while the others wait: the engine's [`step`](Engine::step), but plain writes are left to the crew.
    /// All [`refresh`](Self::refresh) afterwards.
    #[inline(always)]
    pub fn step<W: Wire>(&mut self, engine: &mut Engine<'t, M, W>, now_ns: u64) -> usize {
        let most = self.lanes.count() as usize;
        let work = engine.step_lending(now_ns, &mut self.change().loans, most);
        self.stepped = (now_ns, work > 0);
        work
    }

    /// Lane 0, while the others wait: gives everything back to the engine, which may then carry out any command.
    /// All [`refresh`](Self::refresh) afterwards.
    #[inline(always)]
    pub fn recall<W: Wire>(&mut self, engine: &mut Engine<'t, M, W>) {
        let content = self.change();
        engine.recall(&mut content.loans);
        content.keys = [const { None }; KEYS];
        self.stepped.1 = true;
    }

    /// Every lane learns what it listens to.
    #[inline(always)]
    pub fn refresh(&mut self) {
        self.lanes.sync();
        let loan = self.content().loans.get(self.lanes.index() as usize);
        let loan = loan.map(|loan| (loan.register, loan.heard, loan.producer != loan.tail));
        self.register = loan.map(|(register, ..)| register);
        self.heard = loan.map_or(0, |(_, heard, _)| heard);
        let pending = loan.is_some_and(|(.., pending)| pending);
        self.pending = self.lanes.ballot(pending);
    }

    /// The ring at this lane's register that it has not heard yet.
    #[inline(always)]
    fn ring(&self) -> Option<u64> {
        // SAFETY: the owner vouched for the page when the queue pair was created.
        let value = unsafe { self.memory.peek_u64(self.register?) };
        // 0 is what the engine leaves behind. No two rings that count are alike: 65,536 blocks lie between
        // them, more than a ring has.
        (value != 0 && value != self.heard).then_some(value)
    }

    /// Executes what is posted to the lent queues, up to a WQE a lane of each; lane 0 comes with the engine.
    /// False if nothing was to be done.
    #[inline(always)]
    pub fn serve<W: Wire>(
        &mut self,
        mut engine: Option<&mut Engine<'t, M, W>>,
        now_ns: u64,
    ) -> bool {
        let ring = self.ring();
        let rung = self.lanes.ballot(ring.is_some());
        let mut waiting = rung | self.pending;
        if waiting == 0 {
            return false;
        }
        let ring = ring.unwrap_or_default();
        while waiting != 0 {
            let which = waiting.trailing_zeros();
            waiting &= waiting - 1;
            let heard = match rung >> which & 1 {
                0 => None,
                _ => Some(self.lanes.broadcast(ring, which)),
            };
            let done = self.burst(which, heard);
            let bit = 1 << which;
            self.pending = (self.pending & !bit) | if done.more { bit } else { 0 };
            if let Some(heard) = heard
                && done.confirmed
                && self.lanes.index() == which
            {
                self.heard = heard;
            }
            let mut goes_on = true;
            match done.verdict {
                Verdict::Executed => {}
                Verdict::Unknown => {
                    // The first write is lane 0's, and so is what it wants.
                    if let (Some(engine), Some(wanted)) = (&mut engine, done.wanted) {
                        goes_on = self.look_up(engine, wanted);
                    }
                    goes_on = self.lanes.broadcast(goes_on.into(), 0) != 0;
                }
                Verdict::NotPlain => goes_on = false,
            }
            if !goes_on {
                if let Some(engine) = &mut engine {
                    let loan = self.change().loans.swap_remove(which as usize);
                    engine.take_back(&loan, true);
                    self.stepped.1 = true;
                }
                self.refresh();
                break;
            }
        }
        self.busy_until = now_ns.saturating_add(BUSY_NS);
        true
    }

    /// Lane 0: looks a key up; false if it does not open what it is to open.
    #[inline(never)]
    fn look_up<W: Wire>(&self, engine: &Engine<'t, M, W>, wanted: Wanted) -> bool {
        let window = engine.window(wanted.domain, wanted.key, wanted.access);
        if let Some(window) = window {
            self.change().keys[wanted.place()] = Some(Key { wanted, window });
        }
        window.is_some()
    }

    /// Whether a key opens a range.
    #[inline(always)]
    fn opens(&self, wanted: Wanted, range: Range) -> Opens {
        match &self.content().keys[wanted.place()] {
            Some(key) if key.wanted == wanted => match key.window.holds(range) {
                true => Opens::Yes,
                false => Opens::No,
            },
            _ => Opens::Unknown,
        }
    }
}
