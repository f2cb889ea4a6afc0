//! What a card counts of the packets of this device's queue pairs.

use std::sync::Arc;

use mlx5_wqe::prm::{AllocQCounter, HcaCapabilities, QueryQCounter};

use super::context::{Context, Object};
use super::error::Mlx5Error;

/// What a card has counted, of all queue pairs of one open device; numbers that were 2³² begin at 0 again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardCounters {
    /// Messages that arrived and found no receive.
    pub out_of_buffer: u32,
    /// Packets that arrived out of sequence.
    pub out_of_sequence: u32,
    /// Packets that arrived twice.
    pub duplicate_request: u32,
    /// Answers of other ends that they were not ready to receive.
    pub rnr_nak_retry_err: u32,
    /// Answers of other ends that packets were lost.
    pub packet_seq_err: u32,
    /// Times that an acknowledgement did not come.
    pub local_ack_timeout_err: u32,
}

/// A set of counters. It has to be [ended](Self::end); dropped, it stays.
#[derive(Debug)]
pub(super) struct CounterSet {
    object: Object,
    number: u8,
}

impl CounterSet {
    /// Allocates one, where the card has any left: queues work without.
    pub fn allocate(context: &Arc<Context>, capabilities: &HcaCapabilities) -> Option<Self> {
        if capabilities.max_qp_cnt == 0 {
            return None;
        }
        let command = AllocQCounter::default();
        // SAFETY: the command names no memory.
        match unsafe { Object::create(context, "allocate a set of counters", &command) } {
            Ok((object, answer)) => Some(Self {
                object,
                number: answer.counter_set_id,
            }),
            Err(error) => {
                tracing::warn!(%error, "nothing is counted");
                None
            }
        }
    }

    /// Its number, for the contexts of queue pairs.
    pub fn number(&self) -> u8 {
        self.number
    }

    /// What it has counted.
    pub fn read(&self) -> Result<CardCounters, Mlx5Error> {
        let query = QueryQCounter {
            counter_set_id: self.number,
            ..QueryQCounter::default()
        };
        let told = self.object.query("ask for the card's counters", &query)?;
        Ok(CardCounters {
            out_of_buffer: told.out_of_buffer,
            out_of_sequence: told.out_of_sequence,
            duplicate_request: told.duplicate_request,
            rnr_nak_retry_err: told.rnr_nak_retry_err,
            packet_seq_err: told.packet_seq_err,
            local_ack_timeout_err: told.local_ack_timeout_err,
        })
    }

    /// Gives it back; no queue pair may be bound to it.
    pub fn end(self) -> Result<(), Mlx5Error> {
        self.object.destroy("give a set of counters back")
    }
}
