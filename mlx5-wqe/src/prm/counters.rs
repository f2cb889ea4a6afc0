//! Sets of counters, which queue pairs are bound to (`counter_set_id` of their context).

use super::bits::Field;
use super::codes::CommandOpcode;
use super::record::{self, Command, PrmError, Record, records};

records! {
    /// Allocates a set of counters.
    command(ALLOC_Q_COUNTER => AllocQCounterAnswer) AllocQCounter = "alloc_q_counter_in", 16 {
        /// User context; the kernel fills it in.
        uid: u16 = 0x10, 16;
        /// Modifier.
        op_mod: u16 = 0x30, 16;
    }

    /// The answer to [`AllocQCounter`].
    answer AllocQCounterAnswer = "alloc_q_counter_out", 16 {
        /// The set's number, for the contexts of queue pairs.
        counter_set_id: u8 = 0x58, 8;
    }

    /// Asks for a set's counters.
    command(QUERY_Q_COUNTER => QueryQCounterAnswer) QueryQCounter = "query_q_counter_in", 32 {
        /// Modifier.
        op_mod: u16 = 0x30, 16;
        /// The counters are 0 from then on.
        clear: bool = 0xc0, 1;
        /// The set.
        counter_set_id: u8 = 0xf8, 8;
    }

    /// The answer to [`QueryQCounter`], as far as connections need it.
    answer QueryQCounterAnswer = "query_q_counter_out", 256 {
        /// Writes that arrived.
        rx_write_requests: u32 = 0x80, 32;
        /// Reads that arrived.
        rx_read_requests: u32 = 0xc0, 32;
        /// Atomics that arrived.
        rx_atomic_requests: u32 = 0x100, 32;
        /// Messages that found no receive.
        out_of_buffer: u32 = 0x180, 32;
        /// Packets that arrived out of sequence.
        out_of_sequence: u32 = 0x1c0, 32;
        /// Packets that arrived twice.
        duplicate_request: u32 = 0x200, 32;
        /// Answers that a receiver was not ready.
        rnr_nak_retry_err: u32 = 0x240, 32;
        /// Answers that packets were lost.
        packet_seq_err: u32 = 0x280, 32;
        /// Times that an acknowledgement did not come.
        local_ack_timeout_err: u32 = 0x300, 32;
    }
}
