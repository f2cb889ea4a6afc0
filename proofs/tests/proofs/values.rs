//! The constants that `mlx5dv.h` and the kernel's headers have in common, with our numbers.

use mlx5_wqe::segment::InlineHeader;
use mlx5_wqe::{
    AddressVector, Arrival, Completion, ControlFlags, CqArm, CqeOpcode, DoorbellRecord, LocalKey,
    Opcode, QpNumber, Responder, Syndrome, UarPage, WqeBlock,
};
use warpbell_proofs::facts::{Facts, constants};

/// Our numbers under the names of both headers.
pub fn common() -> Facts {
    let arm = |solicited_only| {
        let arm = CqArm {
            sequence: 0,
            solicited_only,
            consumer: 0,
        };
        u64::from(u32::from_be(arm.word()))
    };
    let received = Completion::Responder(Responder {
        qpn: QpNumber::MAX,
        wqe_counter: 0,
        byte_count: 0,
        kind: Arrival::Send,
    });
    let owner = u64::from(received.encode(true).op_own ^ received.encode(false).op_own);
    let flags = |flags: ControlFlags| u64::from(flags.bits());
    let opcode = |opcode: Opcode| u64::from(opcode.0);
    let cqe = |opcode: CqeOpcode| u64::from(opcode.0);
    let syndrome = |syndrome: Syndrome| u64::from(syndrome.0);
    constants([
        (
            "MLX5_RCV_DBR",
            std::mem::offset_of!(DoorbellRecord, receive) as u64 / 4,
        ),
        (
            "MLX5_SND_DBR",
            std::mem::offset_of!(DoorbellRecord, send) as u64 / 4,
        ),
        ("MLX5_OPCODE_NOP", opcode(Opcode::NOP)),
        ("MLX5_OPCODE_SEND_INVAL", opcode(Opcode::SEND_INVALIDATE)),
        ("MLX5_OPCODE_RDMA_WRITE", opcode(Opcode::RDMA_WRITE)),
        (
            "MLX5_OPCODE_RDMA_WRITE_IMM",
            opcode(Opcode::RDMA_WRITE_IMMEDIATE),
        ),
        ("MLX5_OPCODE_SEND", opcode(Opcode::SEND)),
        ("MLX5_OPCODE_SEND_IMM", opcode(Opcode::SEND_IMMEDIATE)),
        ("MLX5_OPCODE_RDMA_READ", opcode(Opcode::RDMA_READ)),
        ("MLX5_OPCODE_ATOMIC_CS", opcode(Opcode::ATOMIC_COMPARE_SWAP)),
        ("MLX5_OPCODE_ATOMIC_FA", opcode(Opcode::ATOMIC_FETCH_ADD)),
        (
            "MLX5_OPCODE_ATOMIC_MASKED_CS",
            opcode(Opcode::MASKED_COMPARE_SWAP),
        ),
        (
            "MLX5_OPCODE_ATOMIC_MASKED_FA",
            opcode(Opcode::MASKED_FETCH_ADD),
        ),
        ("MLX5_OPCODE_CONFIG_CMD", opcode(Opcode::CONFIG_COMMAND)),
        ("MLX5_OPCODE_SET_PSV", opcode(Opcode::SET_PSV)),
        ("MLX5_OPCODE_UMR", opcode(Opcode::UMR)),
        (
            "MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR",
            syndrome(Syndrome::LOCAL_LENGTH),
        ),
        (
            "MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR",
            syndrome(Syndrome::LOCAL_QP_OPERATION),
        ),
        (
            "MLX5_CQE_SYNDROME_LOCAL_PROT_ERR",
            syndrome(Syndrome::LOCAL_PROTECTION),
        ),
        (
            "MLX5_CQE_SYNDROME_WR_FLUSH_ERR",
            syndrome(Syndrome::FLUSHED),
        ),
        (
            "MLX5_CQE_SYNDROME_MW_BIND_ERR",
            syndrome(Syndrome::MEMORY_WINDOW_BIND),
        ),
        (
            "MLX5_CQE_SYNDROME_BAD_RESP_ERR",
            syndrome(Syndrome::BAD_RESPONSE),
        ),
        (
            "MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR",
            syndrome(Syndrome::LOCAL_ACCESS),
        ),
        (
            "MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR",
            syndrome(Syndrome::REMOTE_INVALID_REQUEST),
        ),
        (
            "MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR",
            syndrome(Syndrome::REMOTE_ACCESS),
        ),
        (
            "MLX5_CQE_SYNDROME_REMOTE_OP_ERR",
            syndrome(Syndrome::REMOTE_OPERATION),
        ),
        (
            "MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR",
            syndrome(Syndrome::TRANSPORT_RETRY),
        ),
        (
            "MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR",
            syndrome(Syndrome::RNR_RETRY),
        ),
        (
            "MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR",
            syndrome(Syndrome::REMOTE_ABORTED),
        ),
        ("MLX5_CQE_OWNER_MASK", owner),
        ("MLX5_CQE_REQ", cqe(CqeOpcode::REQUESTER)),
        (
            "MLX5_CQE_RESP_WR_IMM",
            cqe(CqeOpcode::RESPONDER_WRITE_IMMEDIATE),
        ),
        ("MLX5_CQE_RESP_SEND", cqe(CqeOpcode::RESPONDER_SEND)),
        (
            "MLX5_CQE_RESP_SEND_IMM",
            cqe(CqeOpcode::RESPONDER_SEND_IMMEDIATE),
        ),
        (
            "MLX5_CQE_RESP_SEND_INV",
            cqe(CqeOpcode::RESPONDER_SEND_INVALIDATE),
        ),
        ("MLX5_CQE_RESIZE_CQ", cqe(CqeOpcode::RESIZE)),
        ("MLX5_CQE_SIG_ERR", cqe(CqeOpcode::SIGNATURE_ERROR)),
        ("MLX5_CQE_REQ_ERR", cqe(CqeOpcode::REQUESTER_ERROR)),
        ("MLX5_CQE_RESP_ERR", cqe(CqeOpcode::RESPONDER_ERROR)),
        ("MLX5_CQE_INVALID", cqe(CqeOpcode::INVALID)),
        ("MLX5_CQ_DOORBELL", UarPage::CQ_ARM as u64),
        ("MLX5_CQ_DB_REQ_NOT_SOL", arm(true)),
        ("MLX5_CQ_DB_REQ_NOT", arm(false)),
        ("MLX5_INVALID_LKEY", u64::from(LocalKey::LIST_END.0)),
        ("MLX5_EXTENDED_UD_AV", u64::from(AddressVector::EXTENDED)),
        ("MLX5_WQE_CTRL_CQ_UPDATE", flags(ControlFlags::COMPLETION)),
        ("MLX5_WQE_CTRL_SOLICITED", flags(ControlFlags::SOLICITED)),
        ("MLX5_SEND_WQE_BB", size_of::<WqeBlock>() as u64),
        ("MLX5_INLINE_SEG", u64::from(InlineHeader::MARK)),
    ])
}
