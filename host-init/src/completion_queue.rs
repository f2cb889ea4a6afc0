//! One completion queue for many queue pairs.

use std::collections::HashSet;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use warpbell::{
    CompletionMember, CompletionQueueHandle, CompletionQueueParts, CompletionQueueState, Processor,
    Strays,
};

use crate::config::CheckedCompletions;
use crate::placement::Area;
use crate::queue_memory::{PAGE, Parts, RECORD, SLOT, at, mark_unused};
use crate::{Buffer, Error, ProtectionDomain, QueuePair, QueuePairConfig};

/// Bytes of the device-side state, and of a place of the table.
const STATE: usize = size_of::<CompletionQueueState>();
const MEMBER: usize = size_of::<CompletionMember>();

/// A completion queue that the send queues of many queue pairs have in common: made by
/// [`ProtectionDomain::queue_pairs_with_common_completions`].
///
/// ```
/// use warpbell::wqe::Wqe;
/// use warpbell::{Deadline, Exclusive};
/// use warpbell_host_init::{Node, QueuePairConfig, connect};
///
/// let [near, far] = Node::cpu().ends()?;
/// let config = QueuePairConfig { send_depth: 16, ..QueuePairConfig::default() };
/// let (common, mut pairs) = near.queue_pairs_with_common_completions(&config, 2)?;
/// let mut others = [far.queue_pair(&config)?, far.queue_pair(&config)?];
/// for (ours, theirs) in pairs.iter_mut().zip(&mut others) {
///     connect(ours, theirs)?;
/// }
/// // For a kernel:
/// let mut completions = common.handle(&pairs)?.open().expect("a good handle");
/// let mut queue = pairs[1].send_queue()?.open::<Exclusive>().expect("a good handle");
/// let second = Deadline::after_ms(1000);
/// let ticket = completions.post(&mut queue, Wqe::nop().signalled(), second).expect("room");
/// # let minute = Deadline::after_ms(60_000);
/// # let second = minute;
/// completions.wait(&mut queue, ticket, second).expect("a completion");
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Debug)]
pub struct CompletionQueue {
    ring: Arc<CommonRing>,
    /// The device-side state, then the table.
    words: Buffer,
    members_log2: u8,
    queue_pairs: usize,
}

/// The ring that the device writes. It stays until the last of its queue pairs is gone.
#[derive(Debug)]
pub(crate) struct CommonRing {
    domain: ProtectionDomain,
    cqn: u32,
    completions: CheckedCompletions,
    /// The ring, then the doorbell record, which nobody writes. Freed only after the device has let go of it.
    memory: ManuallyDrop<Buffer>,
}

/// The addresses that a NIC needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommonAddresses {
    pub area: Area,
    pub ring: u64,
    pub record: u64,
}

impl CommonRing {
    fn new(
        domain: &ProtectionDomain,
        completions: CheckedCompletions,
        placement: crate::Placement,
    ) -> Result<Self, Error> {
        domain
            .device()
            .require_reach("a completion queue", placement)?;
        let mut parts = Parts::default();
        // A card wants the ring on a page.
        let ring = parts.add(SLOT << completions.depth_log2, PAGE);
        let record = parts.add(RECORD, RECORD);
        let memory = Buffer::placed(placement, parts.end)?;
        let mut fresh = vec![0; parts.end];
        mark_unused(&mut fresh, completions);
        memory.write(0, &fresh)?;
        let address = |offset| at::<u8>(&memory, offset).expose_provenance() as u64;
        let addresses = CommonAddresses {
            area: memory.area(),
            ring: address(ring),
            record: address(record),
        };
        let provider = domain.provider();
        // SAFETY: the memory is fresh, and lives until `destroy_completion_queue` has succeeded, or for ever if the
        // device may still make the completion queue.
        let made = unsafe { provider.create_completion_queue(completions, &addresses) };
        match made {
            Ok(cqn) => Ok(Self {
                domain: domain.clone(),
                cqn,
                completions,
                memory: ManuallyDrop::new(memory),
            }),
            Err(error) => {
                if error.is_uncertain() {
                    tracing::error!(%error, "the memory of a completion queue is leaked");
                    std::mem::forget(memory);
                }
                Err(error)
            }
        }
    }

    /// Its number at the device.
    pub fn cqn(&self) -> u32 {
        self.cqn
    }
}

impl Drop for CommonRing {
    fn drop(&mut self) {
        match self.domain.provider().destroy_completion_queue(self.cqn) {
            // SAFETY: dropped once, here.
            Ok(()) => unsafe { ManuallyDrop::drop(&mut self.memory) },
            Err(error) => {
                tracing::error!(cqn = self.cqn, %error, "the memory of a completion queue is leaked");
            }
        }
    }
}

impl CompletionQueue {
    pub(crate) fn new(
        domain: &ProtectionDomain,
        config: &QueuePairConfig,
        count: u32,
    ) -> Result<(Self, Vec<QueuePair>), Error> {
        let limits = domain.device().limits();
        let (config, completions) = config.check_common(count, &limits, domain.placement())?;
        let ring = CommonRing::new(domain, completions, config.completion_placement)?;
        let ring = Arc::new(ring);
        let pairs: Vec<_> = (0..count)
            .map(|_| QueuePair::of_checked(domain, config, Some(Arc::clone(&ring))))
            .collect::<Result<_, _>>()?;
        // At most half full, so that a search is short.
        let mut table = vec![CompletionMember::FREE; (2 * pairs.len()).next_power_of_two()];
        for pair in &pairs {
            let (entry, _) = pair.memory().send_completions();
            assert!(CompletionMember::enter(&mut table, pair.qpn(), entry));
        }
        let words = Buffer::placed(config.state_placement, STATE + MEMBER * table.len())?;
        let words_of = table.iter().flat_map(|member| member.words());
        let bytes: Vec<u8> = words_of.flat_map(u64::to_ne_bytes).collect();
        words.write(STATE, &bytes)?;
        let queue = Self {
            ring,
            words,
            members_log2: table.len().ilog2() as u8,
            queue_pairs: pairs.len(),
        };
        Ok((queue, pairs))
    }

    /// Its number at the device.
    pub fn cqn(&self) -> u32 {
        self.ring.cqn()
    }

    /// Who keeps the ring: this, and queue pairs that are there or could not be destroyed.
    #[cfg(test)]
    pub(crate) fn keepers(&self) -> usize {
        Arc::strong_count(&self.ring)
    }

    /// CQEs that it has room for.
    pub fn depth(&self) -> u32 {
        1 << self.ring.completions.depth_log2
    }

    /// Bytes that it takes: ring, record, state and table. Each queue pair has an entry beside it.
    pub fn bytes(&self) -> usize {
        self.ring.memory.len() + self.words.len()
    }

    /// The completion queue, for a kernel that has send queues of these queue pairs. It borrows all of its queue pairs,
    /// because a kernel that polls also stores what it finds for the others.
    ///
    /// # Errors
    /// [`Error::NotItsQueuePairs`] unless `pairs` are all that were made with it, and no others.
    pub fn handle<'a>(
        &'a self,
        pairs: impl IntoIterator<Item = &'a QueuePair>,
    ) -> Result<CompletionQueueHandle<'a>, Error> {
        let mut own = HashSet::new();
        let mut others = 0;
        let mut first = None;
        for pair in pairs {
            match pair.is_over(&self.ring) {
                true => drop(own.insert(pair.qpn())),
                false => others += 1,
            }
            first = first.or(Some(pair));
        }
        let (Some(pair), true) = (first, own.len() == self.queue_pairs && others == 0) else {
            return Err(Error::NotItsQueuePairs {
                cqn: self.cqn(),
                wanted: self.queue_pairs,
                found: own.len(),
            });
        };
        let parts = CompletionQueueParts {
            ring: at(&self.ring.memory, 0),
            depth_log2: self.ring.completions.depth_log2,
            members: at(&self.words, STATE),
            members_log2: self.members_log2,
            state: at(&self.words, 0),
            reach: pair.send_parts().reach,
        };
        // SAFETY: ring, state and table live in `self`, and the entries in the queue pairs; both are borrowed, and a
        // queue pair over a common completion queue is not reset. `check_common` made the ring deep enough for the send
        // rings of all, and no other queue pair has it. State and table lie where the kernels run, as the states of the
        // queue pairs do.
        Ok(unsafe { CompletionQueueHandle::new(parts).on(self.processor()) })
    }

    fn processor(&self) -> Processor {
        self.words.placement().processor()
    }

    /// CQEs that named none of its queue pairs, as kernels found them: none, unless the NIC is at fault. Zeros as well
    /// if the state lies on a GPU that is lost.
    pub fn strays(&self) -> Strays {
        self.words.completion_queue_state().strays()
    }

    /// CQEs that kernels have taken from it.
    pub fn taken(&self) -> u64 {
        self.words.completion_queue_state().taken()
    }
}
