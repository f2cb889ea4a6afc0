//! Lanes of active messages, and what is registered at their target, for kernels that use [`crate::active`].

mod config;
mod end;
mod error;

use crate::active::{
    ActiveParts, Buffer as BufferNumber, BufferEntry, Function, FunctionEntry, InitiatorHandle,
    MAX_ARGUMENTS, SLOT_BYTES, TargetHandle, answer_bytes,
};

use crate::Error;
use warpbell_host_init::{Access, Buffer, MemoryRegion, ProtectionDomain, QueuePair, connect};

pub use config::ActiveConfig;
pub use error::ActiveError;

use end::End;

/// Bytes of entries of the tables.
const FUNCTION: usize = size_of::<FunctionEntry>();
const BUFFER: usize = size_of::<BufferEntry>();

/// Lanes between an initiator and a target in this process, each of a domain of its own or both of one, and the
/// functions and buffers that the target has registered.
///
/// ```
/// use warpbell_patterns::active::Error as Refused;
/// use warpbell::{Deadline, Thread};
/// use warpbell_patterns::active::host::{ActiveConfig, ActiveMessages};
/// use warpbell_host_init::soft::SoftOptions;
/// use warpbell_patterns::Error;
/// use warpbell_host_init::{Device, Nic};
///
/// const ADD: u32 = 3;
///
/// fn main() -> Result<(), Error> {
///     let device = Device::open(Nic::Soft(SoftOptions::default()))?;
///     let (near, far) = (device.protection_domain()?, device.protection_domain()?);
///     let mut active = ActiveMessages::new(&near, &far, &ActiveConfig::default())?;
///     active.register(ADD, 2)?;
///
///     // What a kernel of the initiator does:
///     let limit = Deadline::after_ms(5000);
///     let mut lane = active.initiator().lane::<Thread>(0).expect("a lane");
///     let sum = lane.send(ADD, 0, [40, 2], limit).expect("room");
///     let unknown = lane.send(ADD + 1, 0, [], limit).expect("room");
///
///     // What one of the target does:
///     let mut server = active.target().serve::<Thread>(0).expect("a lane");
///     let task = server.next(limit).expect("a task");
///     let value = (task.argument(0) + task.argument(1)) as u32;
///     server.answer(task, Ok(value), limit).expect("room");
///     assert!(server.next(Deadline::after_ms(100)).is_err(), "the other is refused");
///
///     assert_eq!(lane.wait(sum, limit), Ok(42));
///     let refused = Refused::NotRegistered { function: ADD + 1 };
///     assert_eq!(lane.wait(unknown, limit), Err(refused));
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct ActiveMessages {
    config: ActiveConfig,
    initiator: End,
    target: End,
    target_domain: ProtectionDomain,
    /// At their numbers.
    regions: Vec<Option<MemoryRegion>>,
    /// Entries of functions, behind them those of buffers, which both ends read: in the kernels' own memory.
    tables: Buffer,
    /// What the table of functions says.
    functions: Vec<bool>,
}

impl ActiveMessages {
    /// Makes and connects the lanes. Nothing is registered yet.
    ///
    /// # Errors
    /// [`Error::Active`] for numbers that are refused; those of [`ProtectionDomain::queue_pair`],
    /// [`ProtectionDomain::register`] and [`connect`].
    pub fn new(
        initiator: &ProtectionDomain,
        target: &ProtectionDomain,
        config: &ActiveConfig,
    ) -> Result<Self, Error> {
        config.check()?;
        let slots = config.slots as usize;
        let answer = answer_bytes(config.max_result) as usize;
        let (functions, buffers) = (config.functions as usize, config.buffers as usize);
        let bytes = functions * FUNCTION + buffers * BUFFER;
        let mut active = Self {
            config: *config,
            initiator: End::new(initiator, config, slots * answer)?,
            target: End::new(target, config, slots * SLOT_BYTES as usize)?,
            target_domain: target.clone(),
            regions: (0..buffers).map(|_| None).collect(),
            tables: Buffer::placed(config.queue_pair.states_in(target), bytes)?,
            functions: vec![false; functions],
        };
        for lane in 0..config.lanes as usize {
            active.connect(lane)?;
        }
        Ok(active)
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> u32 {
        self.config.lanes
    }

    /// Registers a function of the target's kernels under a number, with so many arguments.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchFunction`] without a place for it; [`ActiveError::FunctionExists`];
    /// [`ActiveError::Arguments`].
    pub fn register(&mut self, function: Function, arguments: u32) -> Result<(), Error> {
        if *self.place(function)? {
            return Err(ActiveError::FunctionExists { function }.into());
        }
        if arguments > MAX_ARGUMENTS as u32 {
            return Err(ActiveError::Arguments { arguments }.into());
        }
        self.set(function, FunctionEntry::word(arguments))
    }

    /// Takes a function away: tasks that name it are refused from the next kernels on.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchFunction`].
    pub fn deregister(&mut self, function: Function) -> Result<(), Error> {
        let functions = self.config.functions;
        if !*self.place(function)? {
            return Err(ActiveError::NoSuchFunction {
                function,
                functions,
            }
            .into());
        }
        self.set(function, 0)
    }

    /// Registers a buffer of `bytes` bytes at the target under a number, all zero, where the queues lie: for payloads.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchBuffer`] without a place for it; [`ActiveError::BufferExists`]; those of
    /// [`ProtectionDomain::register`].
    pub fn register_buffer(&mut self, buffer: BufferNumber, bytes: usize) -> Result<(), Error> {
        let limit = self.config.buffers;
        let place = self.regions.get_mut(buffer as usize);
        let place = place.ok_or(ActiveError::NoSuchBuffer { buffer, limit })?;
        if place.is_some() {
            return Err(ActiveError::BufferExists { buffer }.into());
        }
        let memory = Buffer::placed(
            self.config.queue_pair.placement_in(&self.target_domain),
            bytes,
        )?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = self.target_domain.register(memory, access)?;
        let entry = BufferEntry {
            address: region.address(),
            size: region.len() as u64,
            remote_key: region.rkey().0,
            unused: 0,
        };
        let at = self.functions.len() * FUNCTION + buffer as usize * BUFFER;
        self.tables.write(at, &bytes_of(&entry.to_words()))?;
        *place = Some(region);
        Ok(())
    }

    /// A buffer of the target.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchBuffer`].
    pub fn buffer(&self, buffer: BufferNumber) -> Result<&MemoryRegion, Error> {
        let limit = self.config.buffers;
        let region = self.regions.get(buffer as usize).and_then(Option::as_ref);
        region.ok_or_else(|| ActiveError::NoSuchBuffer { buffer, limit }.into())
    }

    /// What the kernels of the initiator get. It borrows the lanes, which therefore outlive them and do not change
    /// under them.
    pub fn initiator(&self) -> InitiatorHandle<'_> {
        let parts = self.with_buffers(self.initiator.parts(&self.config, &self.target));
        // SAFETY: queues, states and words have a place for each lane, in memory that `self` owns; the tables change
        // through `&mut self` only. The queue pairs are not handed out.
        unsafe { InitiatorHandle::new(parts, self.config.queue_pair.max_message) }
    }

    /// What the kernels of the target get, likewise.
    pub fn target(&self) -> TargetHandle<'_> {
        let parts = self.with_buffers(self.target.parts(&self.config, &self.initiator));
        let entries = self.tables.as_ptr().cast::<FunctionEntry>();
        // SAFETY: as above; the buffers live as long as `self`.
        unsafe { TargetHandle::new(parts, self.config.functions, entries) }
    }

    /// Makes a lane usable after an error: its queue pairs are reset and connected anew. Messages that were not
    /// answered are forgotten at both ends.
    ///
    /// # Errors
    /// [`ActiveError::NoSuchLane`]; a device that has stopped.
    pub fn renew(&mut self, lane: u32) -> Result<(), Error> {
        let lanes = self.config.lanes;
        if lane >= lanes {
            return Err(ActiveError::NoSuchLane { lane, lanes }.into());
        }
        let lane = lane as usize;
        for end in [&mut self.initiator, &mut self.target] {
            end.pairs[lane].reset()?;
        }
        for end in [&self.initiator, &self.target] {
            end.clear(lane)?;
        }
        self.connect(lane)
    }

    /// The queue pairs of all lanes, at both ends: for a [`Watch`](warpbell_host_init::cuda::Watch) over kernels, and
    /// for what they did.
    pub fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.initiator.pairs.iter().chain(&self.target.pairs)
    }

    /// Lets a lane fail, as an error would.
    #[cfg(test)]
    pub(crate) fn break_lane(&mut self, lane: u32) {
        let pair = &mut self.initiator.pairs[lane as usize];
        pair.to_error().expect("a device");
    }

    fn connect(&mut self, lane: usize) -> Result<(), Error> {
        connect(
            &mut self.initiator.pairs[lane],
            &mut self.target.pairs[lane],
        )?;
        self.initiator.describe(lane)?;
        self.target.describe(lane)
    }

    fn place(&mut self, function: Function) -> Result<&mut bool, Error> {
        let functions = self.config.functions;
        let place = self.functions.get_mut(function as usize);
        place.ok_or_else(|| {
            ActiveError::NoSuchFunction {
                function,
                functions,
            }
            .into()
        })
    }

    /// Writes a function's entry.
    fn set(&mut self, function: Function, word: u64) -> Result<(), Error> {
        let at = function as usize * FUNCTION;
        self.tables.write(at, &bytes_of(&[word]))?;
        *self.place(function)? = word != 0;
        Ok(())
    }

    fn with_buffers<'a>(&'a self, parts: ActiveParts<'a>) -> ActiveParts<'a> {
        let behind = self.functions.len() * FUNCTION;
        ActiveParts {
            buffers: self.config.buffers,
            // SAFETY: inside the tables, which have the buffers' entries behind the functions'.
            buffer_entries: unsafe { self.tables.as_ptr().add(behind) }.cast(),
            ..parts
        }
    }
}

fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
