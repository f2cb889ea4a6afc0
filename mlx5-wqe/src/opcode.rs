//! What a WQE asks for, and what a CQE reports.

use crate::codes::codes;

codes! {
    /// The opcode of a send-queue WQE (`MLX5_OPCODE_*` in mlx5dv.h; the waiting ones in DPDK's
    /// mlx5_prm.h).
    Opcode(u8), "opcode" {
        /// Does nothing, and completes.
        NOP = 0x00, "NOP";
        /// Send that invalidates a remote key at the receiver.
        SEND_INVALIDATE = 0x01, "SEND_INVAL";
        /// RDMA write.
        RDMA_WRITE = 0x08, "RDMA_WRITE";
        /// RDMA write that consumes a receive at the other end and hands over 32 bits.
        RDMA_WRITE_IMMEDIATE = 0x09, "RDMA_WRITE_IMM";
        /// Send.
        SEND = 0x0a, "SEND";
        /// Send with 32 bits for the receiver's completion.
        SEND_IMMEDIATE = 0x0b, "SEND_IMM";
        /// Send with TCP segmentation (Ethernet).
        TSO = 0x0e, "TSO";
        /// Waits until a completion queue has come to an index.
        WAIT = 0x0f, "WAIT";
        /// RDMA read.
        RDMA_READ = 0x10, "RDMA_READ";
        /// Compare and swap of 8 bytes.
        ATOMIC_COMPARE_SWAP = 0x11, "ATOMIC_CS";
        /// Fetch and add of 8 bytes.
        ATOMIC_FETCH_ADD = 0x12, "ATOMIC_FA";
        /// Compare and swap of 4 or 8 bytes under masks.
        MASKED_COMPARE_SWAP = 0x14, "ATOMIC_MASKED_CS";
        /// Fetch and add of 4 or 8 bytes in fields.
        MASKED_FETCH_ADD = 0x15, "ATOMIC_MASKED_FA";
        /// Lets another queue pair's receive queue run up to an index.
        RECEIVE_ENABLE = 0x16, "RECV_EN";
        /// Lets another queue pair's send queue run up to an index.
        SEND_ENABLE = 0x17, "SEND_EN";
        /// Fast memory registration (older cards).
        FMR = 0x19, "FMR";
        /// Invalidates a local key.
        LOCAL_INVALIDATE = 0x1b, "LOCAL_INVAL";
        /// Configuration command.
        CONFIG_COMMAND = 0x1f, "CONFIG_CMD";
        /// Sets a protection signature value.
        SET_PSV = 0x20, "SET_PSV";
        /// Reads local memory and sends nothing (gpunetio).
        DUMP = 0x23, "DUMP";
        /// User-mode memory registration.
        UMR = 0x25, "UMR";
        /// Tag matching.
        TAG_MATCHING = 0x28, "TAG_MATCHING";
        /// Access to a flow table.
        FLOW_TABLE_ACCESS = 0x2c, "FLOW_TBL_ACCESS";
        /// Memory-to-memory operation.
        MMO = 0x2f, "MMO";
    }

    /// The opcode of a CQE, 4 bits (`MLX5_CQE_*` in mlx5dv.h).
    CqeOpcode(u8), "CQE opcode" {
        /// A WQE of the send queue is done.
        REQUESTER = 0x0, "REQ";
        /// A write with immediate arrived.
        RESPONDER_WRITE_IMMEDIATE = 0x1, "RESP_WR_IMM";
        /// A send arrived.
        RESPONDER_SEND = 0x2, "RESP_SEND";
        /// A send with immediate arrived.
        RESPONDER_SEND_IMMEDIATE = 0x3, "RESP_SEND_IMM";
        /// A send arrived and invalidated a key.
        RESPONDER_SEND_INVALIDATE = 0x4, "RESP_SEND_INV";
        /// The queue was resized.
        RESIZE = 0x5, "RESIZE_CQ";
        /// No packet (tag matching).
        NO_PACKET = 0x6, "NO_PACKET";
        /// A data signature did not match.
        SIGNATURE_ERROR = 0xc, "SIG_ERR";
        /// A WQE of the send queue failed.
        REQUESTER_ERROR = 0xd, "REQ_ERR";
        /// A receive failed.
        RESPONDER_ERROR = 0xe, "RESP_ERR";
        /// The entry was not written yet.
        INVALID = 0xf, "INVALID";
    }
}

/// Opcode modifiers (bits 31:24 of the control segment's first word).
pub mod modifier {
    /// A masked atomic of 4 bytes (NVSHMEM `ibgda_device.cuh`).
    pub const ATOMIC_4_BYTES: u8 = 0x08;
    /// A masked atomic of 8 bytes (NVSHMEM `ibgda_device.cuh`).
    pub const ATOMIC_8_BYTES: u8 = 0x09;
}
