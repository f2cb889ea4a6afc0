//! What lies in a queue pair's memory now.

use mlx5_wqe::DoorbellRecord;
use warpbell::{Progress, QueueError, QueueState};

use super::{LiveError, NicCounters, Place, Process, Queue};
use crate::outstanding::{
    AwaitedReceive, Outstanding, SendQueueImage, awaited_receive, newest, stored_in,
};
use crate::queue_memory::SLOT;

/// A queue pair's rings, doorbell record and CQEs. They are copied one after the other, while the queues go on.
pub struct Image {
    /// The queue pair.
    pub queue: Queue,
    /// Blocks of the send ring.
    pub send_ring: Vec<[u8; SLOT]>,
    /// The doorbell record.
    pub record: [u8; 8],
    /// CQEs of the send queue.
    pub send_completions: Vec<[u8; SLOT]>,
    /// Receive WQEs, one after the other.
    pub receive_ring: Vec<u8>,
    /// CQEs of the receive queue.
    pub receive_completions: Vec<[u8; SLOT]>,
    /// Index behind the last block posted.
    pub send_producer: u16,
    /// Receives posted, modulo 2^16.
    pub receive_producer: u16,
    /// The kernels' own words of both queues, if they lie in host memory.
    states: Option<[QueueState; 2]>,
    /// What the NIC has counted, if it is a software NIC on the host.
    pub counters: Option<NicCounters>,
}

/// Index behind the last block posted, and behind the last receive.
pub(super) fn producers(record: [u8; 8]) -> [u16; 2] {
    let (words, _) = record.as_chunks();
    [1, 0].map(|at: usize| DoorbellRecord::producer(u32::from_ne_bytes(words[at])))
}

impl Process {
    /// Copies a queue pair's memory.
    ///
    /// # Errors
    /// [`LiveError::InGpu`] if it lies in a GPU's memory; [`LiveError::Unreadable`] if it is gone.
    pub fn image(&self, queue: &Queue) -> Result<Image, LiveError> {
        let (qpn, row) = (queue.qpn, &queue.row);
        for (what, plural, place) in [
            ("the ring", false, queue.queues_in),
            ("the CQEs", true, queue.completions_in),
        ] {
            if place == Place::Gpu {
                return Err(LiveError::InGpu { what, plural, qpn });
            }
        }
        let is_pinned = queue.queues_in == Place::Pinned || queue.completions_in == Place::Pinned;
        let copy = |address, into: &mut [u8]| {
            self.read(address, into).map_err(|error| match error {
                LiveError::Unreadable { source, .. } if is_pinned => {
                    LiveError::Pinned { qpn, source }
                }
                other => other,
            })
        };
        let slots = |address, count: usize| {
            let mut found = vec![[0; SLOT]; count];
            copy(address, found.as_flattened_mut())?;
            Ok::<_, LiveError>(found)
        };
        // CQEs before the record, because each is of a WQE that the record then counts; the record before the ring,
        // because what it counts has then been stored.
        let send_completions = slots(row.send_completions, 1 << row.send_completions_log2)?;
        let mut record = [0; 8];
        copy(row.record, &mut record)?;
        let send_ring = slots(row.send_ring, queue.send_depth as usize)?;
        let (mut receive_ring, mut receive_completions) = (Vec::new(), Vec::new());
        if let Some(depth) = queue.receive_depth {
            receive_completions =
                slots(row.receive_completions, 1 << row.receive_completions_log2)?;
            receive_ring.resize(depth as usize * queue.receive_stride, 0);
            copy(row.receive_ring, &mut receive_ring)?;
        }
        let states = match queue.states_in {
            Place::Gpu => None,
            _ => Some(self.states(row.states)?),
        };
        let [counted, receive_producer] = producers(record);
        Ok(Image {
            queue: *queue,
            record,
            send_producer: match queue.has_record {
                true => counted,
                false => stored_in(&send_ring, qpn),
            },
            receive_producer,
            send_ring,
            send_completions,
            receive_ring,
            receive_completions,
            states,
            counters: self.counters(queue),
        })
    }

    /// What the NIC counts, if it says where. A NIC that was stopped no longer has counters.
    fn counters(&self, queue: &Queue) -> Option<NicCounters> {
        let address = queue.row.counters;
        let mut bytes = [0; size_of::<NicCounters>()];
        self.read((address != 0).then_some(address)?, &mut bytes)
            .ok()?;
        Some(zerocopy::transmute!(bytes))
    }

    fn states(&self, address: u64) -> Result<[QueueState; 2], LiveError> {
        let mut words = [[0; 8]; 2 * QueueState::WORDS];
        self.read(address, words.as_flattened_mut())?;
        let state = |queue: usize| {
            let word = |at: usize| u64::from_ne_bytes(words[queue * QueueState::WORDS + at]);
            QueueState::from_words(std::array::from_fn(word))
        };
        Ok([state(0), state(1)])
    }
}

impl Image {
    /// The oldest request of the send queue that has no CQE yet.
    pub fn outstanding(&self) -> Option<Outstanding> {
        let image = SendQueueImage {
            ring: self.send_ring.clone(),
            completions: self.send_completions.clone(),
            producer: self.send_producer,
        };
        image.outstanding(self.queue.qpn)
    }

    /// The receive that the next message fills, if one is posted.
    pub fn awaited_receive(&self) -> Option<AwaitedReceive> {
        let depth = self.queue.receive_depth? as usize;
        let qpn = self.queue.qpn;
        awaited_receive(qpn, &self.receive_completions, self.receive_producer, depth)
    }

    /// The newest WQE that the send queue's CQEs name.
    pub fn newest_completed(&self) -> Option<u16> {
        newest(
            &self.send_completions,
            self.send_producer,
            self.send_ring.len(),
        )
    }

    /// How far the send queue has come by its kernels' own words; none if these lie in a GPU's memory.
    pub fn send_progress(&self) -> Option<Progress> {
        Some(self.states.as_ref()?[0].progress())
    }

    /// The first error that a kernel saw in the send queue, then in the receive queue.
    pub fn first_errors(&self) -> [Option<QueueError>; 2] {
        match &self.states {
            Some([send, receive]) => [send.first_error(), receive.first_error()],
            None => [None, None],
        }
    }
}
