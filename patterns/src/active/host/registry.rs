//! What a target has registered: functions and buffers, by number.

use crate::active::{
    Buffer as BufferNumber, BufferEntry, Function, FunctionEntry, MAX_ARGUMENTS, TargetHandle,
};

use super::end::End;
use super::{ActiveConfig, ActiveError};
use crate::Error;
use warpbell_host_init::{Access, Buffer, MemoryRegion, ProtectionDomain};

/// Entries that kernels read, in their own memory.
#[derive(Debug)]
pub(super) struct Table {
    memory: Buffer,
    entry: usize,
}

impl Table {
    /// A place for each buffer, all of them empty.
    pub(super) fn of_buffers(
        domain: &ProtectionDomain,
        config: &ActiveConfig,
    ) -> Result<Self, Error> {
        Self::new(domain, config, config.buffers, size_of::<BufferEntry>())
    }

    fn new(
        domain: &ProtectionDomain,
        config: &ActiveConfig,
        places: u32,
        entry: usize,
    ) -> Result<Self, Error> {
        let memory = Buffer::placed(config.queue_pair.states_in(domain), places as usize * entry)?;
        Ok(Self { memory, entry })
    }

    /// Writes an entry.
    pub(super) fn set(&mut self, place: usize, words: &[u64]) -> Result<(), Error> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(self.memory.write(place * self.entry, &bytes)?)
    }

    /// The first entry.
    pub(super) fn first(&self) -> *const u8 {
        self.memory.as_ptr()
    }
}

#[derive(Debug)]
pub(super) struct Registry {
    config: ActiveConfig,
    domain: ProtectionDomain,
    /// At their numbers.
    regions: Vec<Option<MemoryRegion>>,
    buffers: Table,
    /// What the table of functions says.
    registered: Vec<bool>,
    functions: Table,
}

impl Registry {
    /// Nothing is registered yet.
    pub(super) fn new(domain: &ProtectionDomain, config: &ActiveConfig) -> Result<Self, Error> {
        let functions = config.functions;
        Ok(Self {
            config: *config,
            domain: domain.clone(),
            regions: (0..config.buffers).map(|_| None).collect(),
            buffers: Table::of_buffers(domain, config)?,
            registered: vec![false; functions as usize],
            functions: Table::new(domain, config, functions, size_of::<FunctionEntry>())?,
        })
    }

    pub(super) fn register(&mut self, function: Function, arguments: u32) -> Result<(), Error> {
        if *self.place(function)? {
            return Err(ActiveError::FunctionExists { function }.into());
        }
        if arguments > MAX_ARGUMENTS as u32 {
            return Err(ActiveError::Arguments { arguments }.into());
        }
        self.set(function, FunctionEntry::word(arguments))
    }

    pub(super) fn deregister(&mut self, function: Function) -> Result<(), Error> {
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

    /// Registers a buffer, and returns what initiators need to know.
    pub(super) fn register_buffer(
        &mut self,
        buffer: BufferNumber,
        bytes: usize,
    ) -> Result<BufferEntry, Error> {
        let limit = self.config.buffers;
        let place = self.regions.get_mut(buffer as usize);
        let place = place.ok_or(ActiveError::NoSuchBuffer { buffer, limit })?;
        if place.is_some() {
            return Err(ActiveError::BufferExists { buffer }.into());
        }
        let placement = self.config.queue_pair.placement_in(&self.domain);
        let memory = Buffer::placed(placement, bytes)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let region = self.domain.register(memory, access)?;
        let entry = entry_of(&region);
        self.buffers.set(buffer as usize, &entry.to_words())?;
        *place = Some(region);
        Ok(entry)
    }

    pub(super) fn buffer(&self, buffer: BufferNumber) -> Result<&MemoryRegion, Error> {
        let limit = self.config.buffers;
        let region = self.regions.get(buffer as usize).and_then(Option::as_ref);
        region.ok_or_else(|| ActiveError::NoSuchBuffer { buffer, limit }.into())
    }

    /// The functions that are registered, by number.
    pub(super) fn functions(&self) -> impl Iterator<Item = Function> {
        let places = (0..).zip(&self.registered);
        places.filter_map(|(function, registered)| registered.then_some(function))
    }

    /// The buffers that are registered, by number.
    #[cfg(feature = "ranks")]
    pub(super) fn buffers(&self) -> impl Iterator<Item = (usize, BufferEntry)> {
        let places = self.regions.iter().enumerate();
        places.filter_map(|(place, region)| Some((place, entry_of(region.as_ref()?))))
    }

    /// What the target's kernels get at this end of theirs.
    pub(super) fn handle<'a>(&'a self, end: &'a End) -> TargetHandle<'a> {
        let parts = end.parts(&self.buffers);
        let entries = self.functions.first().cast::<FunctionEntry>();
        // SAFETY: queues, states and words have a place for each lane, in memory that `end` owns, and the tables one for
        // each buffer and function; they change through `&mut` only. The queue pairs are not handed out. The buffers
        // live as long as `self`.
        unsafe { TargetHandle::new(parts, self.config.functions, entries) }
    }

    fn place(&mut self, function: Function) -> Result<&mut bool, Error> {
        let functions = self.config.functions;
        let place = self.registered.get_mut(function as usize);
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
        self.functions.set(function as usize, &[word])?;
        *self.place(function)? = word != 0;
        Ok(())
    }
}

fn entry_of(region: &MemoryRegion) -> BufferEntry {
    BufferEntry {
        address: region.address(),
        size: region.len() as u64,
        remote_key: region.rkey().0,
        unused: 0,
    }
}
