//! The engine as a kernel that stays: its arguments, its tables, its talk with the host.
//!
//! A kernel makes one or more [`Resident`]s from the [`Arguments`] that the host gave it, each on a thread of its
//! own, and calls [`round`](Resident::round) until that says that it is over. Beside each a [`Crew`](crate::Crew)
//! may work, on a warp. The host gives commands through the [`Mailbox`]es, by a `Client` each and a `Team` of all (feature `std`). On the host's side nothing
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

use crate::{Desk, KernelMemory, Lender, MemoryScope};
use warpbell_soft_hca::engine::{Engine, Loopback, Memory, Wire, WireAddress};
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

const _: () = assert!(MAX_ENGINES as usize * size_of::<Desk<'_>>() <= 48 << 10);

/// Threads of the kernel at most.
pub const MAX_THREADS: u32 = MAX_ENGINES * 2 * 32;

/// An engine whose queues and payloads lie where the kernel can reach them, and whose queue pairs
/// are connected with each other.
pub type ResidentEngine<'t> = Engine<'t, KernelMemory, Loopback<PACKETS>>;

/// What the host gives the engines' kernel.
///
/// Safe code cannot make one, so that the kernel may trust it:
///
/// ```compile_fail,E0133
/// use warpbell_soft_hca_gpu::resident::{ArgumentParts, Arguments};
/// fn anything(parts: ArgumentParts) -> Arguments {
///     Arguments::new(parts)
/// }
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Arguments(ArgumentParts);

/// What [`Arguments`] are made of.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ArgumentParts {
    /// The mailboxes, one for each engine, in memory that the host reads and writes too.
    pub mailboxes: *const Mailbox,
    /// Memory for the engines and their tables, [`TableSizes::bytes`] of it, aligned to 128. Its
    /// content does not matter.
    pub tables: *mut u8,
    /// How many entries each table of each engine has.
    pub sizes: TableSizes,
    /// How many engines there are, up to [`MAX_ENGINES`].
    pub engines: u32,
    /// How many lanes each engine's crew has: those of a warp, or none.
    pub crew: u32,
    /// The engine's address, which its queue pairs name as their peer's.
    pub address: u32,
    /// 0 if all that the engine touches is its GPU's memory, and only threads of that GPU look
    /// there; anything else if other GPUs or the host look, too.
    pub system_wide: u32,
    /// A random number, from which the first key of each region follows.
    pub key_seed: u32,
}

// SAFETY: two addresses and numbers; whoever made it promises that the addresses are good.
unsafe impl Send for Arguments {}
// SAFETY: as above.
unsafe impl Sync for Arguments {}

impl Arguments {
    /// The arguments of one launch.
    ///
    /// # Safety
    /// There are as many mailboxes as engines, and as much memory for tables as the sizes ask for, until all engines
    /// have ended. Only the engines touch the tables. What the mailboxes' commands name is as the engine's methods
    /// want it. A kernel that takes them is launched once, as one block that has
    /// [`threads_per_engine`](Self::threads_per_engine) threads for each engine.
    pub const unsafe fn new(parts: ArgumentParts) -> Self {
        Self(parts)
    }

    /// What they were made of.
    #[inline(always)]
    pub const fn parts(&self) -> &ArgumentParts {
        &self.0
    }

    /// How many threads of the kernel there are for each engine: those of its crew, then its own, which is the first
    /// of as many.
    pub const fn threads_per_engine(&self) -> u32 {
        match self.0.crew {
            0 => 1,
            lanes => 2 * lanes,
        }
    }

    /// How far the order of the engines' and their crews' accesses reaches.
    #[inline(always)]
    pub const fn reach(&self) -> MemoryScope {
        match self.0.system_wide {
            0 => MemoryScope::Gpu,
            _ => MemoryScope::System,
        }
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

/// An engine that a kernel drives, and its mailbox.
#[derive(Debug)]
pub struct Resident<'d, 't, M, W> {
    engine: &'t mut Engine<'t, M, W>,
    lender: Lender<'d, 't>,
    mailbox: &'t Mailbox,
    /// The number of the newest request that was answered.
    answered: u64,
    /// Looks at the mailbox so far.
    looks: u64,
    /// When the next look is due.
    look_at: u64,
}

impl<'d, 't> Resident<'d, 't, KernelMemory, Loopback<PACKETS>> {
    /// Makes the tables of engine number `engine` and itself, and tells the host that it runs, or why not: then the
    /// crew at its desk is let go.
    ///
    /// # Safety
    ///
    /// `engine` must be below the number of engines, which all run in one block. The mailboxes must be valid for as long
    /// as `'t`, and so must the tables, which nobody may touch but the engines that take the mailboxes. Memory that
    /// commands name must be as the engine's methods want it.
    pub unsafe fn start(
        arguments: &Arguments,
        engine: u32,
        lender: Lender<'d, 't>,
    ) -> Result<Self, Refused> {
        // SAFETY: the caller's promise is passed on unchanged.
        match unsafe { Self::build(arguments, engine) } {
            Ok((engine, mailbox)) => Ok(Self::new(engine, lender, mailbox)),
            Err(refused) => {
                lender.close();
                Err(refused)
            }
        }
    }

    /// # Safety
    ///
    /// As for [`start`](Self::start).
    unsafe fn build(
        arguments: &Arguments,
        engine: u32,
    ) -> Result<(&'t mut ResidentEngine<'t>, &'t Mailbox), Refused> {
        let parts = arguments.parts();
        // SAFETY: the caller vouches for the mailboxes, whose words are atomics.
        let mailbox = unsafe { &*parts.mailboxes.add(engine as usize) };
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
                let which = (engine, parts.engines);
                tables::build(parts.tables, &parts.sizes, which)
            }
        });
        match made {
            Ok(tables) => {
                let wire = Loopback::new(RESIDENT_MTU);
                let address = WireAddress(parts.address);
                let memory = arguments.reach().memory();
                let mut engine = Engine::new(address, memory, wire, tables.storage);
                engine.start_keys(parts.key_seed);
                let engine = tables.engine.write(engine);
                // Not before: the host gives commands once all engines run, and what they share is then built.
                mailbox.set_state(EngineState::Running);
                Ok((engine, mailbox))
            }
            Err(refused) => {
                mailbox.set_state(EngineState::Refused(refused));
                Err(refused)
            }
        }
    }
}

/// What the host has asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// Something that waits for the crew.
    Later,
    /// A command, which was carried out.
    Command,
    /// The end.
    End,
}

impl<'d, 't, M: Memory, W: Wire> Resident<'d, 't, M, W> {
    const fn new(
        engine: &'t mut Engine<'t, M, W>,
        lender: Lender<'d, 't>,
        mailbox: &'t Mailbox,
    ) -> Self {
        Self {
            engine,
            lender,
            mailbox,
            answered: 0,
            looks: 0,
            look_at: 0,
        }
    }

    /// Does one bounded piece of work, and looks at the mailbox if it is time. `now_ns` is as
    /// for [`Engine::step`].
    #[inline]
    pub fn round(&mut self, now_ns: u64) -> Round {
        if now_ns >= self.look_at {
            self.look_at = now_ns.saturating_add(LOOK_EVERY_NS);
            self.looks += 1;
            self.mailbox.beat(self.looks);
            let asked = self.look();
            if asked != Asked::Nothing {
                // Commands come in groups, and the crew does not let wait for long.
                self.look_at = now_ns;
            }
            match asked {
                Asked::End => return Round::Ended,
                Asked::Later => return Round::Worked,
                Asked::Nothing | Asked::Command => {}
            }
        }
        match self.engine.step_with(now_ns, &mut self.lender) {
            0 => Round::Idle,
            _ => Round::Worked,
        }
    }

    /// Looks at the mailbox, and does what it asks for, once the crew has given everything back.
    fn look(&mut self) -> Asked {
        let stopped = self.mailbox.is_stopped();
        let sequence = self.mailbox.request.sequence();
        if !stopped && sequence == self.answered {
            return Asked::Nothing;
        }
        if !self.lender.clear(self.engine) {
            return Asked::Later;
        }
        if stopped {
            self.lender.close();
            self.mailbox.set_state(EngineState::Ended);
            return Asked::End;
        }
        let answer = self.answer(sequence);
        self.answered = sequence;
        self.mailbox.reply.put(sequence, &from_answer(&answer));
        Asked::Command
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
