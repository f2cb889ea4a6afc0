//! How a queue pair is made, and which numbers are refused.

use warpbell::SendDoorbell;

use crate::{Access, Error, Limits, Placement, ProtectionDomain};

/// How a queue pair is made. Change what matters, take the rest from `default()`.
///
/// ```
/// use warpbell_host_init::{Access, Node, QueuePairConfig};
///
/// let config = QueuePairConfig {
///     send_depth: 1024,
///     receive_depth: 0,
///     ..QueuePairConfig::granting(Access::REMOTE_WRITE)
/// };
/// let pair = Node::cpu().domain()?.queue_pair(&config)?;
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuePairConfig {
    /// Depth of the send queue in blocks of 64 bytes, a power of two. A plain
    /// write, read, send or atomic takes one block.
    pub send_depth: u32,
    /// How send completions reach the kernel.
    pub send_completions: Completions,
    /// The send queue may wait for completion queues and start managed send queues, by
    /// [`Wqe::wait`](warpbell::wqe::Wqe::wait) and [`Wqe::send_enable`](warpbell::wqe::Wqe::send_enable), of the same
    /// device. Not every NIC can: see [`Limits::cross_channel`].
    pub cross_channel: bool,
    /// The send queue runs up to where another one has enabled it; nobody rings it. See
    /// [`Limits::cross_channel`].
    pub managed_send: bool,
    /// Where the NIC takes the producer index of the send queue from. Without a doorbell record posts are quicker,
    /// and not every NIC can: see [`Limits::without_record`].
    pub send_doorbell: SendDoorbell,
    /// Depth of the receive queue in receive WQEs, a power of two, or 0 for a
    /// queue pair that takes neither sends nor writes with immediate data.
    pub receive_depth: u32,
    /// Scatter entries of a receive WQE, a power of two. Its stride is 16 bytes
    /// for each, and more in a ring that would have less than 64 bytes.
    pub receive_segments: u32,
    /// How receive completions reach the kernel: [`Completions::Ordinary`].
    pub receive_completions: Completions,
    /// What the other side may do through this queue pair: nothing but to send, unless it is
    /// [granted](Self::granting) more. `LOCAL_WRITE` means nothing here. Each region limits it further.
    pub access: Access,
    /// Longest message in bytes that a kernel may post.
    pub max_message: u32,
    /// Where rings, completion queues and records lie: in the reach of the kernels and
    /// of the device. By default where its [domain](crate::ProtectionDomain::placement) says.
    pub placement: Option<Placement>,
    /// Where completion queues lie, with their records, if elsewhere.
    pub completion_placement: Option<Placement>,
    /// Where the words lie that only those have who use the queues, and no device: by
    /// default in the memory of the GPU whose memory or kernels have the rings. With
    /// [`Placement::Host`] a thread of the host uses the queues, and no kernel of a GPU.
    pub state_placement: Option<Placement>,
    /// Retries and timers.
    pub timers: Timers,
}

impl Default for QueuePairConfig {
    /// 128 blocks and 128 receives of one segment; rings of completions, which keep the
    /// cause of an error; no access; with a doorbell record; in host memory.
    fn default() -> Self {
        Self {
            send_depth: 128,
            send_completions: Completions::ORDINARY,
            cross_channel: false,
            managed_send: false,
            send_doorbell: SendDoorbell::WithRecord,
            receive_depth: 128,
            receive_segments: 1,
            receive_completions: Completions::ORDINARY,
            access: Access::empty(),
            max_message: 1 << 30,
            placement: None,
            completion_placement: None,
            state_placement: None,
            timers: Timers::default(),
        }
    }
}

/// How completions reach the kernel.
///
/// ```
/// use warpbell_host_init::{Completions, QueuePairConfig};
///
/// let config = QueuePairConfig {
///     send_completions: Completions::Ordinary { depth: Some(256) },
///     ..QueuePairConfig::default()
/// };
/// assert_eq!(config.receive_completions, Completions::ORDINARY);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completions {
    /// A ring in which each CQE stays until the kernel has read it: when a request fails,
    /// kernel and host read why, whatever is flushed behind it.
    ///
    /// The NIC is told to ignore overruns of a send queue's ring. They cannot happen: a
    /// kernel posts no further than a ring of blocks beyond the CQEs that it has read.
    Ordinary {
        /// Entries, a power of two, at least as many as the queue is deep; that
        /// many if left out.
        depth: Option<u32>,
    },
    /// Each CQE overwrites the one before, for send queues only. It takes 64 bytes, and one
    /// load finds the newest of many CQEs.
    ///
    /// It loses the cause of an error: the request that fails is followed by flushed ones,
    /// whose CQEs overwrite its own. A kernel that looks later reads "flushed" (0x05).
    Collapsed,
}

impl Completions {
    /// A ring with as many entries as its queue is deep: the default.
    pub const ORDINARY: Self = Self::Ordinary { depth: None };
}

/// Retries and timers, in the codes of the InfiniBand specification.
///
/// ```
/// use warpbell_host_init::{QueuePairConfig, Timers};
///
/// // A peer that is gone is noticed sooner: after 4 waits of 4 ms.
/// let timers = Timers { acknowledge_timeout: 10, retry_count: 3, ..Timers::default() };
/// let config = QueuePairConfig { timers, ..QueuePairConfig::default() };
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// How long to wait for an acknowledgement: 4.096 µs · 2^code, code 0 to 31;
    /// 0 waits for ever.
    pub acknowledge_timeout: u8,
    /// How often an unanswered packet is sent again, 0 to 7, before the queue
    /// pair fails with "transport retry counter exceeded". The count starts again with each acknowledgement.
    pub retry_count: u8,
    /// How often a request is repeated that found no receive, 0 to 7; 7 is for ever. That none was found acknowledges
    /// nothing: packets that are lost during the wait use up `retry_count`.
    pub rnr_retry: u8,
    /// How long the other end is to wait before it repeats such a request, code
    /// 0 to 31: 1 is 10 µs, 12 is 640 µs, 31 is 492 ms, 0 is 655 ms.
    pub rnr_timer: u8,
}

impl Default for Timers {
    /// 67 ms and 7 retries, so that a peer that is gone is noticed within 0.6 s;
    /// a request that finds no receive is repeated for ever, every 120 µs.
    fn default() -> Self {
        Self {
            acknowledge_timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            rnr_timer: 7,
        }
    }
}

/// A configuration whose numbers have been checked, as logarithms where the NIC
/// wants them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checked {
    pub send_depth_log2: u8,
    pub send_completions: CheckedCompletions,
    /// Number of the completion queue that takes the send queue's CQEs, if it is not one of its own.
    pub common_cqn: Option<u32>,
    pub cross_channel: bool,
    pub managed_send: bool,
    pub send_doorbell: SendDoorbell,
    pub receive: Option<CheckedReceive>,
    pub access: Access,
    pub max_message: u32,
    pub placement: Placement,
    pub completion_placement: Placement,
    pub state_placement: Placement,
    pub timers: Timers,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedReceive {
    pub depth_log2: u8,
    pub stride_log2: u8,
    pub completions: CheckedCompletions,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckedCompletions {
    pub collapsed: bool,
    pub depth_log2: u8,
    pub ignore_overrun: bool,
}

impl QueuePairConfig {
    /// The default, but that the other side may do this.
    ///
    /// ```
    /// use warpbell_host_init::{Access, QueuePairConfig};
    /// let config = QueuePairConfig {
    ///     send_depth: 64,
    ///     ..QueuePairConfig::granting(Access::REMOTE_WRITE)
    /// };
    /// assert!(QueuePairConfig::default().access.is_empty());
    /// # assert_eq!(config.access, Access::REMOTE_WRITE);
    /// ```
    pub fn granting(access: Access) -> Self {
        Self {
            access,
            ..Self::default()
        }
    }

    /// Checks the numbers, for queues that lie there unless the configuration says otherwise.
    pub(crate) fn check(&self, limits: &Limits, usual: Placement) -> Result<Checked, Error> {
        let placement = self.placement.unwrap_or(usual);
        let send_depth_log2 = depth("send queue", self.send_depth, limits.max_depth)?;
        let send_completions = completions("send", self.send_completions, self.send_depth, limits)?;
        let receive = match self.receive_depth {
            0 => None,
            receive_depth => Some(self.check_receive(receive_depth, limits)?),
        };
        if self.max_message == 0 || self.max_message > limits.max_message {
            return Err(Error::BadMaxMessage {
                bytes: self.max_message,
                limit: limits.max_message,
            });
        }
        if self.send_doorbell == SendDoorbell::WithoutRecord && !limits.without_record {
            return Err(Error::NeedsDoorbellRecord);
        }
        if (self.cross_channel || self.managed_send) && !limits.cross_channel {
            return Err(Error::NeedsCrossChannel);
        }
        self.timers.check()?;
        Ok(Checked {
            send_depth_log2,
            send_completions,
            common_cqn: None,
            cross_channel: self.cross_channel,
            managed_send: self.managed_send,
            send_doorbell: self.send_doorbell,
            receive,
            access: self.access,
            max_message: self.max_message,
            placement,
            completion_placement: self.completion_placement.unwrap_or(placement),
            state_placement: self.states(placement),
            timers: self.timers,
        })
    }

    /// Checks the numbers of `count` queue pairs over one completion queue: those of each, and those of the completion
    /// queue. The send completions are the completion queue's; each queue pair has one entry.
    pub(crate) fn check_common(
        &self,
        count: u32,
        limits: &Limits,
        usual: Placement,
    ) -> Result<(Checked, CheckedCompletions), Error> {
        let Completions::Ordinary { depth: given } = self.send_completions else {
            return Err(Error::CollapsedCommon);
        };
        let one = Self {
            send_completions: Completions::Collapsed,
            ..*self
        };
        let one = one.check(limits, usual)?;
        // Room for a CQE of each block of each send ring.
        let needed = count.saturating_mul(self.send_depth).max(LEAST_COMMON);
        let depth = match given {
            _ if count == 0 => 0,
            Some(given) => given,
            None => needed.checked_next_power_of_two().unwrap_or(u32::MAX),
        };
        let depth = Completions::Ordinary { depth: Some(depth) };
        Ok((one, completions("common", depth, needed, limits)?))
    }

    /// Where its queues lie in a domain.
    pub fn placement_in(&self, domain: &ProtectionDomain) -> Placement {
        self.placement.unwrap_or(domain.placement())
    }

    /// Where the state of its queues lies in a domain.
    pub fn states_in(&self, domain: &ProtectionDomain) -> Placement {
        self.states(self.placement_in(domain))
    }

    fn states(&self, queues: Placement) -> Placement {
        self.state_placement.unwrap_or_else(|| queues.of_states())
    }

    fn check_receive(&self, receive_depth: u32, limits: &Limits) -> Result<CheckedReceive, Error> {
        let segments = self.receive_segments;
        if !segments.is_power_of_two() || segments > limits.max_receive_segments {
            return Err(Error::BadSegments {
                segments,
                limit: limits.max_receive_segments,
            });
        }
        if self.receive_completions == Completions::Collapsed {
            return Err(Error::CollapsedReceive);
        }
        let depth_log2 = depth("receive queue", receive_depth, limits.max_depth)?;
        Ok(CheckedReceive {
            depth_log2,
            // Cards take no ring below 64 bytes, which are four entries.
            stride_log2: (segments.ilog2() as u8).max(2_u8.saturating_sub(depth_log2)),
            completions: CheckedCompletions {
                // Kernels write its consumer index.
                ignore_overrun: false,
                ..completions("receive", self.receive_completions, receive_depth, limits)?
            },
        })
    }
}

impl Timers {
    fn check(&self) -> Result<(), Error> {
        for (what, value, limit) in [
            ("acknowledge_timeout", self.acknowledge_timeout, 31),
            ("retry_count", self.retry_count, 7),
            ("rnr_retry", self.rnr_retry, 7),
            ("rnr_timer", self.rnr_timer, 31),
        ] {
            if value > limit {
                return Err(Error::BadTimer { what, value, limit });
            }
        }
        Ok(())
    }
}

/// A warp looks at so many CQEs at once.
const LEAST_COMMON: u32 = 32;

fn depth(what: &'static str, depth: u32, limit: u32) -> Result<u8, Error> {
    if depth == 0 || depth > limit {
        return Err(Error::DepthOutOfRange { what, depth, limit });
    }
    if !depth.is_power_of_two() {
        return Err(Error::DepthNotPowerOfTwo { what, depth });
    }
    Ok(depth.ilog2() as u8)
}

fn completions(
    what: &'static str,
    completions: Completions,
    needed: u32,
    limits: &Limits,
) -> Result<CheckedCompletions, Error> {
    match completions {
        Completions::Collapsed => {
            // One entry is all that is ever written, and nobody writes a
            // consumer index: the check for overrun would take the queue down.
            Ok(CheckedCompletions {
                collapsed: true,
                depth_log2: 0,
                ignore_overrun: true,
            })
        }
        Completions::Ordinary { depth: given } => {
            let given = given.unwrap_or(needed);
            let depth_log2 = depth("completion queue", given, limits.max_completion_depth)?;
            if given < needed {
                return Err(Error::CompletionQueueTooSmall {
                    what,
                    depth: given,
                    needed,
                });
            }
            Ok(CheckedCompletions {
                collapsed: false,
                depth_log2,
                // Kernels write no consumer index of a send queue, and have read each entry before
                // its block is posted again.
                ignore_overrun: true,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        max_depth: 32_768,
        max_completion_depth: 1 << 22,
        max_receive_segments: 32,
        max_message: 1 << 30,
        without_record: false,
        cross_channel: false,
    };

    fn refused(change: impl FnOnce(&mut QueuePairConfig)) -> Error {
        let mut config = QueuePairConfig::default();
        change(&mut config);
        config
            .check(&LIMITS, Placement::Host)
            .expect_err("a bad number")
    }

    #[test]
    fn every_bad_number_has_its_error() {
        use Error as E;
        for depth in [3, 6, 100, 32_767] {
            assert!(matches!(refused(|c| c.send_depth = depth),
                E::DepthNotPowerOfTwo { what: "send queue", depth: found } if found == depth));
            assert!(matches!(refused(|c| c.receive_depth = depth),
                E::DepthNotPowerOfTwo { what: "receive queue", depth: found } if found == depth));
        }
        for depth in [32_769, 65_536, 1 << 31, u32::MAX] {
            assert!(matches!(refused(|c| c.send_depth = depth),
                E::DepthOutOfRange { depth: found, limit: 32_768, .. } if found == depth));
            assert_matches!(refused(|c| c.receive_depth = depth) => E::DepthOutOfRange { .. });
        }
        assert_matches!(refused(|c| c.send_depth = 0) => E::DepthOutOfRange { depth: 0, .. });
        for segments in [0, 3, 33, 64] {
            assert!(matches!(refused(|c| c.receive_segments = segments),
                E::BadSegments { segments: found, limit: 32 } if found == segments));
        }
        assert_matches!(
            refused(|c| c.receive_completions = Completions::Collapsed) => E::CollapsedReceive
        );
        assert_matches!(
            refused(|c| c.send_doorbell = SendDoorbell::WithoutRecord) => E::NeedsDoorbellRecord
        );
        for change in [
            (|c| c.cross_channel = true) as fn(&mut QueuePairConfig),
            |c| c.managed_send = true,
        ] {
            assert_matches!(refused(change) => E::NeedsCrossChannel);
        }
        assert_matches!(refused(|c| c.max_message = 0) => E::BadMaxMessage { bytes: 0, .. });
        assert_matches!(refused(|c| c.max_message = (1 << 30) + 1) => E::BadMaxMessage { .. });
        assert_matches!(
            refused(|c| c.timers.retry_count = 8) =>
                E::BadTimer { what: "retry_count", value: 8, limit: 7 }
        );
        assert_matches!(refused(|c| c.timers.rnr_retry = 8) => E::BadTimer { .. });
        assert_matches!(refused(|c| c.timers.rnr_timer = 32) => E::BadTimer { .. });
        assert_matches!(refused(|c| c.timers.acknowledge_timeout = 32) => E::BadTimer { .. });
    }

    #[test]
    fn a_completion_queue_that_is_too_small_is_refused() {
        let small = Completions::Ordinary { depth: Some(64) };
        assert!(matches!(
            refused(|c| c.send_completions = small),
            Error::CompletionQueueTooSmall {
                what: "send",
                depth: 64,
                needed: 128
            }
        ));
        assert!(matches!(
            refused(|c| c.receive_completions = small),
            Error::CompletionQueueTooSmall {
                what: "receive",
                depth: 64,
                needed: 128
            }
        ));
        // The words say what to write instead.
        let told = refused(|c| c.send_completions = small).to_string();
        for instead in ["Completions::ORDINARY", "Some(128)"] {
            assert!(told.contains(instead), "{told}");
        }
        let odd = Completions::Ordinary { depth: Some(129) };
        assert_matches!(refused(|c| c.send_completions = odd) => Error::DepthNotPowerOfTwo { .. });
    }

    #[test]
    fn every_good_depth_is_taken() {
        for log2 in 0..=15u8 {
            let config = QueuePairConfig {
                send_depth: 1 << log2,
                receive_depth: 1 << log2,
                ..QueuePairConfig::default()
            };
            let checked = config.check(&LIMITS, Placement::Host).unwrap();
            let receive = checked.receive.unwrap();
            assert_eq!(checked.send_depth_log2, log2);
            assert_eq!(checked.send_completions.depth_log2, log2);
            assert_eq!(
                (receive.depth_log2, receive.completions.depth_log2),
                (log2, log2)
            );
        }
        for (receive_depth, receive_segments) in [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (8, 1)] {
            let config = QueuePairConfig {
                receive_depth,
                receive_segments,
                ..QueuePairConfig::default()
            };
            let checked = config.check(&LIMITS, Placement::Host).unwrap();
            let receive = checked.receive.unwrap();
            let bytes = 16 << (receive.depth_log2 + receive.stride_log2);
            assert_eq!(bytes, (16 * receive_depth * receive_segments).max(64));
        }
        let without = QueuePairConfig {
            receive_depth: 0,
            ..QueuePairConfig::default()
        };
        let checked = without.check(&LIMITS, Placement::Host).unwrap();
        assert!(checked.receive.is_none());
    }
}
