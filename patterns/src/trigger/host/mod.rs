//! Tables of tags, for kernels that use [`crate::trigger`].

mod chain;
mod error;
mod joint;
mod shadow;

use crate::trigger::{Counter, Error as Refused, Tag, TriggerEntry, TriggerHandle};
use warpbell::CompletionKind;
use warpbell::wqe::Wqe;

use crate::Error;
use warpbell_host_init::{Buffer, Error as StartError, Placement, QueuePair};

pub use error::TriggerError;
pub use joint::JointTriggers;

use chain::Known;
use shadow::{Changes, Shadow};

/// The most tags of a table.
const MAX_TAGS: u32 = 1 << 20;

/// Bytes of a tag.
const ENTRY: usize = size_of::<TriggerEntry<'_>>();

/// Tags with a queue pair each, to whomever that is connected, and the operations registered under them.
///
/// ```
/// use warpbell::wqe::Wqe;
/// use warpbell::{Deadline, Thread};
/// use warpbell_host_init::soft::SoftOptions;
/// use warpbell_patterns::trigger::host::Triggers;
/// use warpbell_patterns::Error;
/// use warpbell_host_init::{Access, Buffer, Device, Nic, QueuePairConfig, connect};
///
/// fn main() -> Result<(), Error> {
///     let device = Device::open(Nic::Soft(SoftOptions::default()))?;
///     let domain = device.protection_domain()?;
///     let source = domain.register(Buffer::new(64)?, Access::LOCAL_WRITE)?;
///     let target =
///         domain.register(Buffer::new(64)?, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
///     let config = QueuePairConfig {
///         send_depth: 4,
///         receive_depth: 0,
///         ..QueuePairConfig::granting(Access::REMOTE_WRITE)
///     };
///     let (mut near, mut far) = (domain.queue_pair(&config)?, domain.queue_pair(&config)?);
///     connect(&mut near, &mut far)?;
///
///     // Tag 0: a write that goes once it was triggered twice.
///     let mut triggers = Triggers::new(vec![near])?;
///     let write = Wqe::write(source.local(0, 64)?, target.remote().at(0, 64)?);
///     triggers.register(0, 2, [write])?;
///
///     // What a kernel does:
///     let handle = triggers.handle().open().expect("a good handle");
///     for _ in 0..2 {
///         handle.trigger::<Thread>(0).expect("a tag");
///     }
///     handle.wait::<Thread>(0, Deadline::after_ms(5000)).expect("a write that is done");
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Triggers {
    pairs: Vec<QueuePair>,
    /// Where the queues' states lie: in the kernels' own memory, on which their atomics are.
    entries: Buffer,
    /// What lies in each tag's ring.
    known: Vec<Known>,
}

impl Triggers {
    /// Makes a tag of each queue pair, which is connected and unused, and has a completion for each block of its ring,
    /// as by default. An operation has as many WQEs at most as half of the queue's depth.
    ///
    /// # Errors
    /// [`TriggerError`] for queue pairs that are refused; [`NotReady`](warpbell_host_init::Error::NotReady) for one
    /// that is not connected; those of [`Buffer::placed`].
    pub fn new(pairs: Vec<QueuePair>) -> Result<Self, Error> {
        let home = home_of(&pairs)?;
        for (tag, pair) in (0..).zip(&pairs) {
            check(tag, pair)?;
        }
        let tags = pairs.len();
        let triggers = Self {
            entries: Buffer::placed(home, tags * ENTRY)?,
            known: vec![Known::default(); tags],
            pairs,
        };
        for tag in 0..triggers.tags() {
            triggers.describe(tag)?;
        }
        Ok(triggers)
    }

    /// How many tags there are.
    pub fn tags(&self) -> u32 {
        self.pairs.len() as u32
    }

    /// What kernels get. It borrows the table, which therefore outlives them and does not change under them. Where it
    /// lies in host memory, the host's own threads may use it, too.
    pub fn handle(&self) -> TriggerHandle<'_> {
        // SAFETY: the buffer has so many entries, written by `describe` for queues that `self` owns and nobody else
        // uses, and lives as long; it is changed through `&mut self` only. Every handle is for the processor whose
        // memory it is.
        unsafe {
            TriggerHandle::new(self.entries.as_ptr().cast(), self.tags())
                .on(self.entries.placement().processor())
        }
    }

    /// Registers an operation under a tag, while no kernel runs: the WQEs, under one doorbell, once the tag was
    /// triggered `threshold` times. If it was already, they go at once. The operation before is done.
    ///
    /// # Errors
    /// [`TriggerError::NoSuchTag`]; [`TriggerError::Refused`] for what kernels would be refused, too, and for a tag
    /// whose operation before is not done; [`TriggerError::Due`] for an operation that would go at once through a
    /// card's register. Nothing is registered then.
    pub fn register<const N: usize>(
        &mut self,
        tag: Tag,
        threshold: u32,
        wqes: [Wqe<1>; N],
    ) -> Result<(), Error> {
        let refused = |error| TriggerError::Refused { tag, error };
        let pair = self.pair(tag)?;
        if pair.is_managed() {
            return Err(refused(Refused::Managed).into());
        }
        let before = self.counter(tag)?;
        let changes = shadow(pair)?
            .register(pair, before, threshold, wqes)
            .map_err(refused)?;
        if changes.published.is_some() && pair.has_register() {
            return Err(TriggerError::Due { tag }.into());
        }
        store(pair, &changes)?;
        self.set_counter(tag, changes.counter)?;
        if let Some((record, doorbell)) = changes.published {
            // SAFETY: the operation was just stored, up to that index; no kernel has a handle, which would borrow
            // `self`.
            unsafe { pair.publish(record, doorbell) }?;
        }
        self.note(tag, before.end(), &changes);
        Ok(())
    }

    /// A tag's counter and threshold, as they are now.
    ///
    /// # Errors
    /// [`TriggerError::NoSuchTag`]; [`Gpu`](warpbell_host_init::Error::Gpu) if the GPU is lost.
    pub fn counter(&self, tag: Tag) -> Result<Counter, Error> {
        self.pair(tag)?;
        let mut bytes = [0; 8];
        self.entries.read(tag as usize * ENTRY, &mut bytes)?;
        Ok(Counter::from_bits(u64::from_ne_bytes(bytes)))
    }

    /// Makes a tag usable after an error, or without the operation that it has: its queue pair, and the other end, are
    /// reset and connected by `connect_again`. Triggers that came and were not used up are forgotten with it.
    ///
    /// # Errors
    /// [`TriggerError::NoSuchTag`]; what `connect_again` gives; a queue pair that is not as [`new`](Self::new) wants
    /// it.
    pub fn renew(
        &mut self,
        tag: Tag,
        connect_again: impl FnOnce(&mut QueuePair) -> Result<(), StartError>,
    ) -> Result<(), Error> {
        let tags = self.tags();
        let pair = self.pairs.get_mut(tag as usize);
        let pair = pair.ok_or(TriggerError::NoSuchTag { tag, tags })?;
        connect_again(pair)?;
        check(tag, pair)?;
        self.forget(tag);
        self.describe(tag)
    }

    /// The queue pairs, in the order of their tags: for a [`Watch`](warpbell_host_init::cuda::Watch) over kernels, and
    /// for what went wrong.
    pub fn queue_pairs(&self) -> impl Iterator<Item = &QueuePair> {
        self.pairs.iter()
    }

    fn pair(&self, tag: Tag) -> Result<&QueuePair, Error> {
        let tags = self.tags();
        let pair = self.pairs.get(tag as usize);
        pair.ok_or_else(|| TriggerError::NoSuchTag { tag, tags }.into())
    }

    /// Writes a tag's entry: no operation, no triggers.
    fn describe(&self, tag: Tag) -> Result<(), Error> {
        let pair = self.pair(tag)?;
        // SAFETY: its completions are a ring of the same depth, and the queue is unused (`check`), so that WQEs and
        // CQEs are counted from 0; the queue pair is not handed out.
        let entry = unsafe { TriggerEntry::new(pair.held_queue()?, Counter::FRESH) };
        let entry = match pair.is_managed() {
            true => entry.managed(),
            false => entry,
        };
        let bytes: Vec<u8> = entry
            .to_words()
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        Ok(self.entries.write(tag as usize * ENTRY, &bytes)?)
    }

    fn set_counter(&self, tag: Tag, counter: Counter) -> Result<(), Error> {
        let bytes = counter.to_bits().to_ne_bytes();
        Ok(self.entries.write(tag as usize * ENTRY, &bytes)?)
    }
}

/// A queue as the host sees it while no kernel runs.
fn shadow(pair: &QueuePair) -> Result<Shadow, Error> {
    let completions = pair.read_send_completions()?;
    Ok(Shadow::new(&completions))
}

/// Carries WQEs over to the ring.
fn store(pair: &QueuePair, changes: &Changes) -> Result<(), Error> {
    for (slot, block) in &changes.blocks {
        // SAFETY: the operation before in these blocks is done, as its registration found; no kernel has a handle,
        // which would borrow the table that the caller changes.
        unsafe { pair.write_send(*slot, block) }?;
    }
    Ok(())
}

/// Where the kernels have the queues' states that are to trigger all these.
fn home_of(pairs: &[QueuePair]) -> Result<Placement, Error> {
    let tags = pairs.len();
    let limit = MAX_TAGS;
    let home = match pairs.first() {
        Some(pair) if tags <= limit as usize => pair.state_placement(),
        _ => return Err(TriggerError::Tags { tags, limit }.into()),
    };
    for (tag, pair) in (0..).zip(pairs) {
        if pair.state_placement() != home {
            return Err(TriggerError::Elsewhere { tag }.into());
        }
    }
    Ok(home)
}

/// Refuses a queue pair that makes no tag.
fn check(tag: Tag, pair: &QueuePair) -> Result<(), Error> {
    let parts = pair.send_parts();
    let completions = parts.completions;
    if completions.kind != CompletionKind::Ordinary || completions.depth_log2 != parts.depth_log2 {
        return Err(TriggerError::OtherCompletions { tag }.into());
    }
    if pair.send_producer() != Some(0) {
        return Err(TriggerError::Used { tag }.into());
    }
    Ok(())
}
