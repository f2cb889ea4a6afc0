//! What became of packets.

/// How many RoCE packets an HCA has sent, received and dropped, since it listens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoceCounters {
    /// Packets that the system took.
    pub sent: u64,
    /// Packets that the engine got.
    pub received: u64,
    /// Dropped: packets that RoCE has no form for, or longer than the path MTU.
    pub unsendable: u64,
    /// Dropped: packets that the system refused.
    pub send_errors: u64,
    /// Times that the system failed to receive.
    pub receive_errors: u64,
    /// Dropped: datagrams from addresses that no peer has.
    pub unknown_source: u64,
    /// Dropped: datagrams that are no RoCE packets.
    pub malformed: u64,
    /// Dropped: packets with a wrong invariant CRC.
    pub wrong_crc: u64,
    /// Dropped: packets of another partition.
    pub wrong_partition_key: u64,
    /// Dropped: packets that the engine does not understand.
    pub not_understood: u64,
    /// Packets that came with a mark of congestion.
    pub marked: u64,
    /// Congestion notifications that went out; they count as sent, too.
    pub notifications_sent: u64,
    /// Congestion notifications that came.
    pub notifications_received: u64,
}

impl RoceCounters {
    /// Datagrams that came, whether they were taken or dropped.
    pub const fn arrived(&self) -> u64 {
        self.received
            + self.unknown_source
            + self.malformed
            + self.wrong_crc
            + self.wrong_partition_key
            + self.not_understood
            + self.notifications_received
    }
}
