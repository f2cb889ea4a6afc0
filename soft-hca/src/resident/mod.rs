//! The engine as a kernel that stays: its arguments, its tables, its talk with the host.
//!
//! A kernel makes one or more [`Resident`]s from the [`Arguments`] that the host gave it, each by the lanes
//! of a warp, or by a thread alone, and calls [`round`](Resident::round) until that says that it is over. The host
//! gives commands through the [`Mailbox`]es, by a `Client` each and a `Team` of all (feature `std`). On the host's side nothing
//! is called while kernels post and poll.
//!
//! The engine takes every address from the commands. They are addresses of the machine that the
//! kernel runs on, and the host never follows them.

#[cfg(feature = "std")]
mod client;
mod mailbox;
mod tables;
#[cfg(feature = "std")]
mod team;
#[cfg(test)]
mod tests;
mod words;

#[cfg(feature = "std")]
pub use client::{Client, ClientError};
pub use mailbox::{EngineState, MAILBOX_VERSION, Mailbox, Refused};
pub use tables::TableSizes;
#[cfg(feature = "std")]
pub use team::Team;
pub use words::WordError;

#[cfg(target_arch = "nvptx64")]
use crate::engine::Reach;
use crate::engine::{Crew, Desk, Engine, KernelMemory, Lanes, Loopback, Memory, Wire, WireAddress};
use words::{Answer, Failure, from_answer, to_command};

/// The bytes in a packet of a resident engine at most.
pub const RESIDENT_MTU: u32 = 64 << 10;

/// Packets that a resident engine's wire holds.
const PACKETS: usize = 32;

/// How long the engine may leave its mailbox alone, in nanoseconds. A look costs a GPU a round
/// trip to the host's memory.
const LOOK_EVERY_NS: u64 = 50_000;

/// Engines of a kernel at most: the desks of so many fit into a block's shared memory, and a GPU has no registers
/// for more.
pub const MAX_ENGINES: u32 = 8;

/// An engine whose queues and payloads lie where the kernel can reach them, and whose queue pairs
/// are connected with each other.
pub type ResidentEngine<'t> = Engine<'t, KernelMemory, Loopback<PACKETS>>;

/// What the host gives the engines' kernel.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Arguments {
    /// The mailboxes, one for each engine, in memory that the host reads and writes too.
    pub mailboxes: *const Mailbox,
    /// Memory for the engines and their tables, [`TableSizes::bytes`] of it, aligned to 128. Its
    /// content does not matter.
    pub tables: *mut u8,
    /// How many entries each table of each engine has.
    pub sizes: TableSizes,
    /// How many engines there are, up to [`MAX_ENGINES`].
    pub engines: u32,
    /// How many threads work for each: the 32 of a warp, or 1.
    pub lanes: u32,
    /// The engine's address, which its queue pairs name as their peer's.
    pub address: u32,
    /// 0 if all that the engine touches is its GPU's memory, and only threads of that GPU look
    /// there; anything else if other GPUs or the host look, too.
    pub system_wide: u32,
}

// SAFETY: two addresses and numbers; whoever follows the addresses promises that they are good.
unsafe impl Send for Arguments {}
// SAFETY: as above.
unsafe impl Sync for Arguments {}

impl Arguments {
    #[cfg(target_arch = "nvptx64")]
    fn memory(&self) -> KernelMemory {
        KernelMemory::new(match self.system_wide {
            0 => Reach::Gpu,
            _ => Reach::System,
        })
    }

    #[cfg(not(target_arch = "nvptx64"))]
    fn memory(&self) -> KernelMemory {
        KernelMemory
    }
}

/// What came of a [`round`](Resident::round).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// There was something to do.
    Worked,
    /// There was nothing to do: the kernel may pause.
    Idle,
    /// The host has asked for the end: the kernel returns.
    Ended,
}

/// A lane of an engine that a kernel drives. All lanes of an engine call the same methods in the same order.
#[derive(Debug)]
pub struct Resident<'d, 't, M, W, L> {
    crew: Crew<'d, 't, M, L>,
    lanes: L,
    /// Lane 0 has the engine.
    lead: Option<Lead<'t, M, W>>,
}

/// The engine and its mailbox.
#[derive(Debug)]
struct Lead<'t, M, W> {
    engine: &'t mut Engine<'t, M, W>,
    mailbox: &'t Mailbox,
    /// The number of the newest request that was answered.
    answered: u64,
    /// Looks at the mailbox so far.
    looks: u64,
    /// When the next look is due.
    look_at: u64,
}

impl<'d, 't, L: Lanes> Resident<'d, 't, KernelMemory, Loopback<PACKETS>, L> {
    /// Makes the tables of engine number `engine` and itself, and tells the host that it runs, or why not.
    ///
    /// # Safety
    ///
    /// `engine` must be below the number of engines, which all run in one block, and the same for all of `lanes`, who
    /// alone use the desk. The mailboxes must be valid for as long as `'t`, and so must the tables, which nobody may
    /// touch but the engines that take the mailboxes. Memory that commands name must be as the engine's methods
    /// want it.
    pub unsafe fn start(
        arguments: &Arguments,
        engine: u32,
        lanes: L,
        desk: &'d Desk<'t>,
    ) -> Result<Self, Refused> {
        let lead = match lanes.index() {
            // SAFETY: the caller's promise is passed on unchanged.
            0 => Some(unsafe { Lead::start(arguments, engine) }),
            _ => None,
        };
        let state = match &lead {
            Some(Err(refused)) => EngineState::Refused(*refused),
            _ => EngineState::Running,
        };
        // The lead's, for all.
        let state = lanes.broadcast(state.to_word(), 0);
        if let EngineState::Refused(refused) = EngineState::from_word(state) {
            return Err(refused);
        }
        // SAFETY: the desk is theirs, as the caller promises, and all memories are alike.
        let crew = unsafe { Crew::new(desk, lanes, arguments.memory()) };
        Ok(Self {
            crew,
            lanes,
            lead: lead.and_then(Result::ok),
        })
    }
}

impl<'t> Lead<'t, KernelMemory, Loopback<PACKETS>> {
    /// # Safety
    ///
    /// As for [`Resident::start`], and one lane alone calls it.
    unsafe fn start(arguments: &Arguments, engine: u32) -> Result<Self, Refused> {
        // SAFETY: the caller vouches for the mailboxes, whose words are atomics.
        let mailbox = unsafe { &*arguments.mailboxes.add(engine as usize) };
        let checked = mailbox.check();
        if let Err(refused @ Refused::NotAMailbox { .. }) = checked {
            // Nothing is written to what may be anything.
            return Err(refused);
        }
        // An engine that has the mailbox already is left alone.
        mailbox.take()?;
        let made = checked.and_then(|()| {
            // SAFETY: the caller vouches for the tables' memory, which this engine alone has taken.
            unsafe {
                let which = (engine, arguments.engines);
                tables::build(arguments.tables, &arguments.sizes, which)
            }
        });
        match made {
            Ok(tables) => {
                let wire = Loopback::new(RESIDENT_MTU);
                let address = WireAddress(arguments.address);
                let memory = arguments.memory();
                let engine = Engine::new(address, memory, wire, tables.storage);
                Ok(Self::new(tables.engine.write(engine), mailbox))
            }
            Err(refused) => {
                mailbox.set_state(EngineState::Refused(refused));
                Err(refused)
            }
        }
    }
}

/// What the lead tells the others of its turn.
mod turn {
    pub const IDLE: u64 = 0;
    pub const WORKED: u64 = 1;
    pub const ENDED: u64 = 2;
}

impl<M: Memory, W: Wire, L: Lanes> Resident<'_, '_, M, W, L> {
    /// Does one bounded piece of work, and looks at the mailbox if it is time. `now_ns` is as
    /// for [`Engine::step`]; that of lane 0 counts.
    #[inline(always)]
    pub fn round(&mut self, now_ns: u64) -> Round {
        let mut worked = false;
        let due = |lead: &Lead<'_, M, W>| now_ns >= lead.look_at || self.crew.is_due(now_ns);
        if self.lanes.ballot(self.lead.as_ref().is_some_and(due)) != 0 {
            // The others have looked at the desk before the lead changes it.
            self.lanes.sync();
            let turn = match &mut self.lead {
                Some(lead) => lead.turn(&mut self.crew, now_ns),
                None => turn::IDLE,
            };
            match self.lanes.broadcast(turn, 0) {
                turn::ENDED => return Round::Ended,
                turn => worked = turn == turn::WORKED,
            }
            self.crew.refresh();
        }
        let engine = self.lead.as_mut().map(|lead| &mut *lead.engine);
        worked |= self.crew.serve(engine, now_ns);
        match worked {
            true => Round::Worked,
            false => Round::Idle,
        }
    }
}

impl<'t, M: Memory, W: Wire> Lead<'t, M, W> {
    const fn new(engine: &'t mut Engine<'t, M, W>, mailbox: &'t Mailbox) -> Self {
        Self {
            engine,
            mailbox,
            answered: 0,
            looks: 0,
            look_at: 0,
        }
    }

    /// Looks at the mailbox if it is time, and lets the engine step if that is due; the others wait.
    #[inline(never)]
    fn turn<L: Lanes>(&mut self, crew: &mut Crew<'_, 't, M, L>, now_ns: u64) -> u64 {
        if now_ns >= self.look_at {
            self.look_at = now_ns.saturating_add(LOOK_EVERY_NS);
            self.looks += 1;
            self.mailbox.beat(self.looks);
            if self.mailbox.is_stopped() {
                self.mailbox.set_state(EngineState::Ended);
                return turn::ENDED;
            }
            if self.serve(crew) {
                // Commands come in groups.
                self.look_at = now_ns;
            }
        }
        match crew.is_due(now_ns) && crew.step(self.engine, now_ns) > 0 {
            true => turn::WORKED,
            false => turn::IDLE,
        }
    }

    /// Answers the request in the mailbox; false if there is no new one.
    fn serve<L: Lanes>(&mut self, crew: &mut Crew<'_, 't, M, L>) -> bool {
        let sequence = self.mailbox.request.sequence();
        if sequence == self.answered {
            return false;
        }
        // A command may concern any queue.
        crew.recall(self.engine);
        let answer = self.answer(sequence);
        self.answered = sequence;
        self.mailbox.reply.put(sequence, &from_answer(&answer));
        true
    }

    fn answer(&mut self, sequence: u64) -> Answer {
        let expected = self.answered.wrapping_add(1);
        if sequence != expected {
            let found = sequence;
            return Err(Failure::Words(WordError::OutOfOrder { found, expected }));
        }
        let request = self.mailbox.request.get(sequence);
        let command = request
            .and_then(|message| to_command(&message))
            .map_err(Failure::Words)?;
        // SAFETY: whoever made this value vouches for the memory that commands name.
        unsafe { self.engine.execute(command) }.map_err(Failure::Command)
    }
}
