//! Operations that the NIC starts by itself, once those of another tag are done: behind the WQEs of the one before, in
//! its ring, lie a WAIT for their last completion and a SEND_EN of the queue of the one that follows.

use crate::trigger::{Counter, Error as Refused, MAX_THRESHOLD, Tag};
use mlx5_wqe::{CqNumber, QpNumber, WqeIndex};
use warpbell::wqe::Wqe;

use super::shadow::Changes;
use super::{TriggerError, Triggers, shadow, store};
use crate::Error;
use warpbell_host_init::QueuePair;

/// What the host knows of a tag's ring.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known {
    /// Where the newest operation begins.
    start: u16,
    /// Where it ends, with the WQEs that start others.
    end: u16,
    /// CQEs of all WQEs so far.
    completions: u32,
    /// A kernel registered operations, too: nobody knows how many CQEs they made.
    uncounted: bool,
    /// The SEND_EN that starts it: the tag in whose ring it lies, and its index.
    started_by: Option<(Tag, WqeIndex)>,
}

impl Triggers {
    /// Registers an operation that the NIC starts by itself, once the one that tag `after` has now is done: no kernel
    /// triggers it, and any may [wait](crate::trigger::Triggers::wait) for it. While no kernel runs, and before the
    /// first operation of the chain has gone. Several may follow one, and each of them may be followed in turn.
    ///
    /// The queue pair of `tag` is made with [`managed_send`](warpbell_host_init::QueuePairConfig::managed_send), that
    /// of `after` with [`cross_channel`](warpbell_host_init::QueuePairConfig::cross_channel), and both belong to one
    /// device. In the ring of `after` this takes two more WQEs, for each operation that follows; all of them are part
    /// of its operation, for which kernels wait. If that fails, those that follow are not started, and who waits for
    /// them is told so at the deadline.
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
    ///         domain.register(Buffer::new(128)?, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    ///     let end = QueuePairConfig {
    ///         send_depth: 8,
    ///         receive_depth: 0,
    ///         ..QueuePairConfig::granting(Access::REMOTE_WRITE)
    ///     };
    ///     let first = QueuePairConfig { cross_channel: true, ..end };
    ///     let second = QueuePairConfig { managed_send: true, ..end };
    ///     let (mut near, mut far) = (Vec::new(), Vec::new());
    ///     for config in [first, second] {
    ///         let (mut here, mut there) = (domain.queue_pair(&config)?, domain.queue_pair(&end)?);
    ///         connect(&mut here, &mut there)?;
    ///         near.push(here);
    ///         far.push(there);
    ///     }
    ///
    ///     // Tag 0 goes when it is triggered, tag 1 when that is done.
    ///     let mut triggers = Triggers::new(near)?;
    ///     let write = |at| Ok::<_, Error>(Wqe::write(source.local(0, 64)?, target.remote().at(at, 64)?));
    ///     triggers.register(0, 1, [write(0)?])?;
    ///     triggers.register_after(1, 0, [write(64)?])?;
    ///
    ///     // What a kernel does:
    ///     let handle = triggers.handle().open().expect("a good handle");
    ///     handle.trigger::<Thread>(0).expect("a tag");
    ///     handle.wait::<Thread>(1, Deadline::after_ms(5000)).expect("both writes");
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`TriggerError::NoSuchTag`]; [`TriggerError::NotManaged`], [`TriggerError::NotCrossChannel`],
    /// [`TriggerError::OtherDevice`] for queue pairs that cannot; [`TriggerError::Gone`] if `after` has no operation
    /// that is held back; [`TriggerError::Uncounted`] if kernels have registered any of `after`;
    /// [`TriggerError::Refused`] for what kernels would be refused, too, for a tag whose operation before is not done,
    /// and for a ring in which there is no room. Nothing is registered then.
    pub fn register_after<const N: usize>(
        &mut self,
        tag: Tag,
        after: Tag,
        wqes: [Wqe<1>; N],
    ) -> Result<(), Error> {
        let (follower, first) = (self.pair(tag)?, self.pair(after)?);
        if !follower.is_managed() {
            return Err(TriggerError::NotManaged { tag }.into());
        }
        if !first.is_cross_channel() {
            return Err(TriggerError::NotCrossChannel { tag: after }.into());
        }
        if !first.device().is(follower.device()) {
            return Err(TriggerError::OtherDevice { tag, after }.into());
        }
        let known = self.known[after as usize];
        if known.uncounted || self.counter(after)?.end().0 != known.end {
            return Err(TriggerError::Uncounted { tag: after }.into());
        }
        if !self.is_held(after)? {
            return Err(TriggerError::Gone { tag: after }.into());
        }
        let before = self.counter(tag)?;
        let refused = |tag| move |error| TriggerError::Refused { tag, error };
        // Nobody sends it, whatever the threshold.
        let operation = shadow(follower)?.register(follower, before, MAX_THRESHOLD, wqes);
        let operation = operation.map_err(refused(tag))?;

        // Behind what is there, of which each WQE has a CQE.
        let limit = 1 << first.send_parts().depth_log2;
        if u32::from(known.end.wrapping_sub(known.start)) + 2 > limit {
            let error = Refused::InvalidOperation { limit };
            return Err(TriggerError::Refused { tag: after, error }.into());
        }
        let completions = CqNumber::from_low_bits(first.send_cqn());
        let wait = Wqe::wait(completions, known.completions - 1);
        let start = [wait, enable(follower, operation.counter.end())];
        let start = shadow(first)?.store(first, WqeIndex(known.end), start);
        let start = start.map_err(refused(after))?;
        let end = start.counter.end();
        // Who starts that one starts it with these two.
        let again = match known.started_by {
            None => None,
            Some((by, index)) => {
                let by = self.pair(by)?;
                let again = shadow(by)?.store(by, index, [enable(first, end)]);
                Some((by, again.map_err(refused(after))?))
            }
        };
        store(follower, &operation)?;
        store(first, &start)?;
        if let Some((by, again)) = again {
            store(by, &again)?;
        }
        self.note(tag, before.end(), &operation);
        // Nobody has to trigger it, or sends it by one trigger too many.
        self.set_counter(tag, Counter::new(operation.counter.end(), 1, 1))?;
        let counter = self.counter(after)?;
        let counter = Counter::new(end, counter.threshold(), counter.counted());
        self.set_counter(after, counter)?;
        let first = &mut self.known[after as usize];
        first.end = end.0;
        first.completions += start.completions();
        let enable = WqeIndex(end.0.wrapping_sub(1));
        self.known[tag as usize].started_by = Some((after, enable));
        Ok(())
    }

    /// Whether a tag has an operation that nobody has sent.
    fn is_held(&self, tag: Tag) -> Result<bool, Error> {
        let mut tag = tag;
        // No chain is longer, since each operation follows one that was there before it.
        for _ in 0..self.tags() {
            match self.known[tag as usize].started_by {
                Some((by, _)) => tag = by,
                None => {
                    let counter = self.counter(tag)?;
                    return Ok(counter.is_registered() && counter.missing() > 0);
                }
            }
        }
        Ok(false)
    }

    /// Notes an operation, registered where the one before ended.
    pub(super) fn note(&mut self, tag: Tag, before: WqeIndex, operation: &Changes) {
        self.let_go(tag);
        let known = &mut self.known[tag as usize];
        known.uncounted |= known.end != before.0;
        known.start = before.0;
        known.end = operation.counter.end().0;
        known.completions += operation.completions();
        known.started_by = None;
    }

    /// Forgets what was in a tag's ring.
    pub(super) fn forget(&mut self, tag: Tag) {
        self.let_go(tag);
        self.known[tag as usize] = Known::default();
    }

    /// What the tag's operation before has started is started.
    fn let_go(&mut self, tag: Tag) {
        for known in &mut self.known {
            known.started_by = known.started_by.filter(|(by, _)| *by != tag);
        }
    }
}

/// Lets a queue run up to an index.
fn enable(pair: &QueuePair, end: WqeIndex) -> Wqe<1> {
    let queue = QpNumber::from_low_bits(pair.qpn());
    Wqe::send_enable(queue, u32::from(end.0))
}
