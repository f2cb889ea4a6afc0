//! Codes of commands and contexts.
//!
//! Source: `MLX5_CMD_OP_*`, `MLX5_QPC_*` and `MLX5_CQC_*` in linux/mlx5/mlx5_ifc.h, `MLX5_CMD_STAT_*` in
//! linux/mlx5/device.h, `MLX5_QP_OPTPAR_*` in linux/mlx5/qp.h.

use bitflags::bitflags;

use super::record::number_values;
use crate::codes::codes;

codes! {
    /// The opcode of a command (`MLX5_CMD_OP_*`).
    CommandOpcode(u16), "opcode" {
        /// Asks what the card can do.
        QUERY_HCA_CAP = 0x100, "QUERY_HCA_CAP";
        /// Creates a completion queue.
        CREATE_CQ = 0x400, "CREATE_CQ";
        /// Destroys a completion queue.
        DESTROY_CQ = 0x401, "DESTROY_CQ";
        /// Creates a queue pair.
        CREATE_QP = 0x500, "CREATE_QP";
        /// Destroys a queue pair.
        DESTROY_QP = 0x501, "DESTROY_QP";
        /// Brings a queue pair from reset to INIT.
        RST2INIT_QP = 0x502, "RST2INIT_QP";
        /// Brings a queue pair from INIT to ready to receive.
        INIT2RTR_QP = 0x503, "INIT2RTR_QP";
        /// Brings a queue pair from ready to receive to ready to send.
        RTR2RTS_QP = 0x504, "RTR2RTS_QP";
        /// Puts a queue pair in error.
        TO_ERROR_QP = 0x507, "2ERR_QP";
        /// Resets a queue pair.
        TO_RESET_QP = 0x50a, "2RST_QP";
        /// Asks for a queue pair's context.
        QUERY_QP = 0x50b, "QUERY_QP";
        /// Allocates a set of counters.
        ALLOC_Q_COUNTER = 0x771, "ALLOC_Q_COUNTER";
        /// Asks for a set's counters.
        QUERY_Q_COUNTER = 0x773, "QUERY_Q_COUNTER";
        /// Allocates a UAR page.
        ALLOC_UAR = 0x802, "ALLOC_UAR";
        /// Gives a UAR page back.
        DEALLOC_UAR = 0x803, "DEALLOC_UAR";
        /// Creates a receive memory pool.
        CREATE_RMP = 0x90c, "CREATE_RMP";
        /// Destroys a receive memory pool.
        DESTROY_RMP = 0x90e, "DESTROY_RMP";
        /// Registers memory for queues.
        CREATE_UMEM = 0xa08, "CREATE_UMEM";
        /// Gives such memory back.
        DESTROY_UMEM = 0xa0a, "DESTROY_UMEM";
    }

    /// How a command ended (`MLX5_CMD_STAT_*`).
    CommandStatus(u8), "status" {
        /// It is done.
        OK = 0x00, "done";
        /// The firmware failed.
        INTERNAL = 0x01, "internal error";
        /// There is no such command.
        BAD_OPCODE = 0x02, "no such command";
        /// A parameter does not fit.
        BAD_PARAMETER = 0x03, "bad parameter";
        /// The card is in a state that does not allow it.
        BAD_SYSTEM_STATE = 0x04, "bad system state";
        /// There is no such resource.
        BAD_RESOURCE = 0x05, "bad resource";
        /// The resource is in use.
        RESOURCE_BUSY = 0x06, "resource busy";
        /// A limit is exceeded.
        LIMIT = 0x08, "limit exceeded";
        /// The resource is in a state that does not allow it.
        BAD_RESOURCE_STATE = 0x09, "bad resource state";
        /// An index is out of range.
        BAD_INDEX = 0x0a, "bad index";
        /// There are no resources left.
        NO_RESOURCES = 0x0f, "no resources";
        /// The queue pair is in a state that does not allow it.
        BAD_QP_STATE = 0x10, "bad QP state";
        /// A packet is malformed.
        BAD_PACKET = 0x30, "bad packet";
        /// CQEs that are not consumed do not fit the new size.
        BAD_SIZE_OUTSTANDING = 0x40, "too many outstanding CQEs";
        /// The command is too short or too long.
        BAD_INPUT_LENGTH = 0x50, "bad input length";
        /// The room for the answer is too small.
        BAD_OUTPUT_LENGTH = 0x51, "bad output length";
    }

    /// The state of a queue pair.
    QpState(u8), "QP state" {
        /// Reset.
        RST = 0x0, "RST";
        /// Initialised: receives may be posted.
        INIT = 0x1, "INIT";
        /// Ready to receive.
        RTR = 0x2, "RTR";
        /// Ready to send.
        RTS = 0x3, "RTS";
        /// The send queue is in error (not with RC).
        SQER = 0x4, "SQER";
        /// In error.
        ERR = 0x6, "ERR";
        /// The send queue drains.
        SQD = 0x7, "SQD";
        /// Suspended.
        SUSPENDED = 0x9, "SUSPENDED";
    }

    /// The transport service of a queue pair (`st`).
    ServiceType(u8), "service type" {
        /// Reliable connection.
        RC = 0x0, "RC";
        /// Unreliable connection.
        UC = 0x1, "UC";
        /// Datagrams.
        UD = 0x2, "UD";
        /// Extended reliable connection.
        XRC = 0x3, "XRC";
        /// Initiator of dynamic connections.
        DCI = 0x5, "DCI";
        /// Queue pair 0.
        QP0 = 0x7, "QP0";
        /// Queue pair 1.
        QP1 = 0x8, "QP1";
        /// Raw datagrams.
        RAW_DATAGRAM = 0x9, "RAW_DATAGRAM";
        /// Memory registration.
        REG_UMR = 0xc, "REG_UMR";
    }

    /// Where a queue pair stands between its two paths.
    PathMigration(u8), "path migration" {
        /// The alternative path is loaded.
        ARMED = 0x0, "ARMED";
        /// The alternative path is to be loaded.
        REARM = 0x1, "REARM";
        /// There is one path, the primary.
        MIGRATED = 0x3, "MIGRATED";
    }

    /// The bytes of a path's largest packet.
    Mtu(u8), "MTU" {
        /// 256 bytes.
        BYTES_256 = 0x1, "256 bytes";
        /// 512 bytes.
        BYTES_512 = 0x2, "512 bytes";
        /// 1,024 bytes.
        BYTES_1024 = 0x3, "1024 bytes";
        /// 2,048 bytes.
        BYTES_2048 = 0x4, "2048 bytes";
        /// 4,096 bytes.
        BYTES_4096 = 0x5, "4096 bytes";
    }

    /// Which atomics a responder executes.
    AtomicMode(u8), "atomic mode" {
        /// None.
        NONE = 0x0, "none";
        /// Those of 8 bytes, as the InfiniBand specification has them.
        IB_SPECIFICATION = 0x1, "IB_SPEC";
        /// Those of 8 bytes alone.
        ONLY_8_BYTES = 0x2, "ONLY_8B";
        /// Those of up to 8 bytes.
        UP_TO_8_BYTES = 0x3, "UP_TO_8B";
        /// Those of up to 16 bytes.
        UP_TO_16_BYTES = 0x4, "UP_TO_16B";
        /// Those of up to 32 bytes.
        UP_TO_32_BYTES = 0x5, "UP_TO_32B";
        /// Those of up to 64 bytes.
        UP_TO_64_BYTES = 0x6, "UP_TO_64B";
        /// Those of up to 128 bytes.
        UP_TO_128_BYTES = 0x7, "UP_TO_128B";
        /// Those of up to 256 bytes.
        UP_TO_256_BYTES = 0x8, "UP_TO_256B";
    }

    /// Where a queue pair takes its receives from.
    ReceiveType(u8), "receive type" {
        /// A receive queue of its own.
        REGULAR = 0x0, "regular";
        /// A shared receive queue.
        SHARED = 0x1, "shared";
        /// A receive queue of its own that waits to be enabled.
        CROSS_CHANNEL = 0x2, "cross-channel";
        /// Nowhere: there is none.
        NONE = 0x3, "none";
    }

    /// Where the card takes the producer index of a send queue from.
    ///
    /// Not in the kernel's header: gpunetio and the tests of rdma-core.
    SendDoorbellMode(u8), "send doorbell mode" {
        /// The doorbell record.
        WITH_RECORD = 0x0, "DBR_VALID";
        /// The doorbell, which software rings at 0x600 of the UAR page; the card reads no record.
        WITHOUT_RECORD = 0x1, "NO_DBR_EXT";
        /// The same, and the card itself rings.
        WITHOUT_RECORD_INTERNAL = 0x2, "NO_DBR_INT";
    }

    /// The clock of a queue pair's timestamps (`MLX5_TIMESTAMP_FORMAT_*`).
    TimestampFormat(u8), "timestamp format" {
        /// The card's own clock, which runs freely.
        FREE_RUNNING = 0x0, "free running";
        /// The one that the card prefers, which every card takes.
        DEFAULT = 0x1, "default";
        /// The time of day.
        REAL_TIME = 0x2, "real time";
    }

    /// The clocks that a card offers (`MLX5_TIMESTAMP_FORMAT_CAP_*`).
    TimestampFormats(u8), "timestamp formats" {
        /// Its own.
        FREE_RUNNING = 0x0, "free running";
        /// The time of day.
        REAL_TIME = 0x1, "real time";
        /// Both.
        BOTH = 0x2, "free running and real time";
    }

    /// What befalls a queue (`MLX5_EVENT_TYPE_*`), as far as a user may hear of it.
    EventType(u8), "event" {
        /// A completion queue has no room, or another fault.
        CQ_ERROR = 0x04, "completion queue error";
        /// A queue pair is lost.
        WQ_CATASTROPHE = 0x05, "queue pair lost";
        /// The other end asked for what cannot be done.
        WQ_INVALID_REQUEST = 0x10, "invalid request";
        /// The other end had no right to what it asked for.
        WQ_ACCESS_ERROR = 0x11, "access violation";
        /// A queue pair that has failed takes no receive of its shared queue any more.
        SRQ_LAST_WQE = 0x13, "last receive of a shared queue";
    }

    /// How the WQEs of a queue follow one another.
    WqType(u8), "queue type" {
        /// Each names the next one.
        LINKED_LIST = 0x0, "linked list";
        /// By their places in the ring.
        CYCLIC = 0x1, "cyclic";
        /// A linked list of WQEs that take several messages each.
        LINKED_LIST_STRIDING = 0x2, "linked list of strides";
        /// A cycle of such.
        CYCLIC_STRIDING = 0x3, "cyclic strides";
    }

    /// State of a receive memory pool.
    RmpState(u8), "pool's state" {
        /// Ready.
        RDY = 0x1, "ready";
        /// In error.
        ERR = 0x3, "error";
    }

    /// How a completion queue fares.
    CqStatus(u8), "CQ status" {
        /// Well.
        OK = 0x0, "OK";
        /// It overran.
        OVERFLOW = 0x9, "overflow";
        /// The card could not write to it.
        WRITE_FAILED = 0xa, "write failed";
    }

    /// Whether a completion queue will raise an event.
    CqNotification(u8), "CQ notification" {
        /// At the next solicited CQE.
        SOLICITED_ARMED = 0x6, "armed for a solicited CQE";
        /// At the next CQE.
        ARMED = 0x9, "armed";
        /// It has.
        FIRED = 0xa, "fired";
    }

    /// What a port speaks.
    PortType(u8), "port type" {
        /// InfiniBand.
        INFINIBAND = 0x0, "InfiniBand";
        /// Ethernet.
        ETHERNET = 0x1, "Ethernet";
    }

    /// Which capabilities a query asks for: their kind in bits 15:1, and in bit 0 whether it asks for those
    /// enabled now (1) or for the most that there could be (0).
    CapabilityQuery(u16), "capabilities" {
        /// The most that the general capabilities could be.
        GENERAL_MAXIMUM = 0x00, "general capabilities, maximum";
        /// The general capabilities as they are now.
        GENERAL_CURRENT = 0x01, "general capabilities";
        /// The capabilities of atomics as they are now.
        ATOMIC_CURRENT = 0x07, "capabilities of atomics";
        /// The capabilities of RoCE as they are now.
        ROCE_CURRENT = 0x09, "capabilities of RoCE";
        /// More general capabilities as they are now.
        GENERAL_2_CURRENT = 0x41, "more general capabilities";
    }
}

bitflags! {
    /// Which optional fields of a context a modifying command takes (`MLX5_QP_OPTPAR_*`); the fields that
    /// a step requires count anyway.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OptionalParameters: u32 {
        /// The alternative path.
        const ALTERNATIVE_PATH = 1 << 0;
        /// `rre`.
        const REMOTE_READ = 1 << 1;
        /// `rae`.
        const REMOTE_ATOMIC = 1 << 2;
        /// `rwe`.
        const REMOTE_WRITE = 1 << 3;
        /// `pkey_index`.
        const PKEY_INDEX = 1 << 4;
        /// `q_key`.
        const Q_KEY = 1 << 5;
        /// `min_rnr_nak`.
        const RNR_TIMEOUT = 1 << 6;
        /// The primary path.
        const PRIMARY_PATH = 1 << 7;
        /// `log_sra_max`.
        const SRA_MAX = 1 << 8;
        /// `log_rra_max`.
        const RRA_MAX = 1 << 9;
        /// `pm_state`.
        const PM_STATE = 1 << 10;
        /// `retry_count`.
        const RETRY_COUNT = 1 << 12;
        /// `rnr_retry`.
        const RNR_RETRY = 1 << 13;
        /// `ack_timeout`.
        const ACK_TIMEOUT = 1 << 14;
        /// `lag_tx_port_affinity`.
        const LAG_PORT = 1 << 15;
        /// `counter_set_id`.
        const COUNTER_SET = 1 << 25;
    }
}

number_values! {
    OptionalParameters: |parameters| parameters.bits() as u64,
        |value| OptionalParameters::from_bits_retain(value as u32);
}

/// Lets codes be the values of fields.
macro_rules! field_codes {
    ($($code:ident)*) => {
        number_values! { $($code: |code| code.0 as u64, |value| $code(value as _);)* }
    };
}

field_codes! {
    QpState ServiceType PathMigration Mtu AtomicMode ReceiveType SendDoorbellMode TimestampFormat TimestampFormats
    WqType RmpState CqStatus CqNotification PortType CapabilityQuery
}
