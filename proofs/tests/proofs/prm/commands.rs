//! Codes, and the commands that bring a reliable connection up, each written by both sides.

use mlx5_wqe::prm::*;
use mlx5_wqe::{CqNumber, QpNumber};
use proptest::prelude::*;
use warpbell_proofs::facts::{assert_same, constants};
use warpbell_proofs::prm::{self, Connection, Step};

#[test]
fn codes_are_the_headers() {
    let state = |state: QpState| u64::from(state.0);
    let service_type = |code: ServiceType| u64::from(code.0);
    let status = |status: CommandStatus| u64::from(status.0);
    let atomics = |mode: AtomicMode| u64::from(mode.0);
    let optional = |parameters: OptionalParameters| u64::from(parameters.bits());
    let ours = constants([
        (
            "MLX5_CMD_OP_QUERY_HCA_CAP",
            CommandOpcode::QUERY_HCA_CAP.0.into(),
        ),
        ("MLX5_CMD_OP_CREATE_CQ", CommandOpcode::CREATE_CQ.0.into()),
        ("MLX5_CMD_OP_DESTROY_CQ", CommandOpcode::DESTROY_CQ.0.into()),
        ("MLX5_CMD_OP_CREATE_QP", CommandOpcode::CREATE_QP.0.into()),
        ("MLX5_CMD_OP_DESTROY_QP", CommandOpcode::DESTROY_QP.0.into()),
        (
            "MLX5_CMD_OP_RST2INIT_QP",
            CommandOpcode::RST2INIT_QP.0.into(),
        ),
        (
            "MLX5_CMD_OP_INIT2RTR_QP",
            CommandOpcode::INIT2RTR_QP.0.into(),
        ),
        ("MLX5_CMD_OP_RTR2RTS_QP", CommandOpcode::RTR2RTS_QP.0.into()),
        ("MLX5_CMD_OP_2ERR_QP", CommandOpcode::TO_ERROR_QP.0.into()),
        ("MLX5_CMD_OP_2RST_QP", CommandOpcode::TO_RESET_QP.0.into()),
        ("MLX5_CMD_OP_QUERY_QP", CommandOpcode::QUERY_QP.0.into()),
        (
            "MLX5_CMD_OP_ALLOC_Q_COUNTER",
            CommandOpcode::ALLOC_Q_COUNTER.0.into(),
        ),
        (
            "MLX5_CMD_OP_QUERY_Q_COUNTER",
            CommandOpcode::QUERY_Q_COUNTER.0.into(),
        ),
        ("MLX5_CMD_OP_CREATE_RMP", CommandOpcode::CREATE_RMP.0.into()),
        (
            "MLX5_CMD_OP_DESTROY_RMP",
            CommandOpcode::DESTROY_RMP.0.into(),
        ),
        ("MLX5_CMD_OP_ALLOC_UAR", CommandOpcode::ALLOC_UAR.0.into()),
        (
            "MLX5_CMD_OP_DEALLOC_UAR",
            CommandOpcode::DEALLOC_UAR.0.into(),
        ),
        (
            "MLX5_CMD_OP_CREATE_UMEM",
            CommandOpcode::CREATE_UMEM.0.into(),
        ),
        (
            "MLX5_CMD_OP_DESTROY_UMEM",
            CommandOpcode::DESTROY_UMEM.0.into(),
        ),
        ("MLX5_CMD_STAT_OK", status(CommandStatus::OK)),
        ("MLX5_CMD_STAT_INT_ERR", status(CommandStatus::INTERNAL)),
        (
            "MLX5_CMD_STAT_BAD_OP_ERR",
            status(CommandStatus::BAD_OPCODE),
        ),
        (
            "MLX5_CMD_STAT_BAD_PARAM_ERR",
            status(CommandStatus::BAD_PARAMETER),
        ),
        (
            "MLX5_CMD_STAT_BAD_SYS_STATE_ERR",
            status(CommandStatus::BAD_SYSTEM_STATE),
        ),
        (
            "MLX5_CMD_STAT_BAD_RES_ERR",
            status(CommandStatus::BAD_RESOURCE),
        ),
        (
            "MLX5_CMD_STAT_RES_BUSY",
            status(CommandStatus::RESOURCE_BUSY),
        ),
        ("MLX5_CMD_STAT_LIM_ERR", status(CommandStatus::LIMIT)),
        (
            "MLX5_CMD_STAT_BAD_RES_STATE_ERR",
            status(CommandStatus::BAD_RESOURCE_STATE),
        ),
        ("MLX5_CMD_STAT_IX_ERR", status(CommandStatus::BAD_INDEX)),
        (
            "MLX5_CMD_STAT_NO_RES_ERR",
            status(CommandStatus::NO_RESOURCES),
        ),
        (
            "MLX5_CMD_STAT_BAD_QP_STATE_ERR",
            status(CommandStatus::BAD_QP_STATE),
        ),
        (
            "MLX5_CMD_STAT_BAD_PKT_ERR",
            status(CommandStatus::BAD_PACKET),
        ),
        (
            "MLX5_CMD_STAT_BAD_SIZE_OUTS_CQES_ERR",
            status(CommandStatus::BAD_SIZE_OUTSTANDING),
        ),
        (
            "MLX5_CMD_STAT_BAD_INP_LEN_ERR",
            status(CommandStatus::BAD_INPUT_LENGTH),
        ),
        (
            "MLX5_CMD_STAT_BAD_OUTP_LEN_ERR",
            status(CommandStatus::BAD_OUTPUT_LENGTH),
        ),
        ("MLX5_QPC_STATE_RST", state(QpState::RST)),
        ("MLX5_QPC_STATE_INIT", state(QpState::INIT)),
        ("MLX5_QPC_STATE_RTR", state(QpState::RTR)),
        ("MLX5_QPC_STATE_RTS", state(QpState::RTS)),
        ("MLX5_QPC_STATE_SQER", state(QpState::SQER)),
        ("MLX5_QPC_STATE_ERR", state(QpState::ERR)),
        // qp.h has MLX5_QP_STATE_SQD as 5, and 7 as its SQ_DRAINING.
        ("MLX5_QPC_STATE_SQD", state(QpState::SQD)),
        ("MLX5_QPC_STATE_SUSPENDED", state(QpState::SUSPENDED)),
        ("MLX5_QPC_ST_RC", service_type(ServiceType::RC)),
        ("MLX5_QPC_ST_UC", service_type(ServiceType::UC)),
        ("MLX5_QPC_ST_UD", service_type(ServiceType::UD)),
        ("MLX5_QPC_ST_XRC", service_type(ServiceType::XRC)),
        ("MLX5_QPC_ST_DCI", service_type(ServiceType::DCI)),
        ("MLX5_QPC_ST_QP0", service_type(ServiceType::QP0)),
        ("MLX5_QPC_ST_QP1", service_type(ServiceType::QP1)),
        (
            "MLX5_QPC_ST_RAW_DATAGRAM",
            service_type(ServiceType::RAW_DATAGRAM),
        ),
        ("MLX5_QPC_ST_REG_UMR", service_type(ServiceType::REG_UMR)),
        ("MLX5_QPC_PM_STATE_ARMED", PathMigration::ARMED.0.into()),
        ("MLX5_QPC_PM_STATE_REARM", PathMigration::REARM.0.into()),
        (
            "MLX5_QPC_PM_STATE_MIGRATED",
            PathMigration::MIGRATED.0.into(),
        ),
        ("MLX5_QPC_MTU_256_BYTES", Mtu::BYTES_256.0.into()),
        ("MLX5_QPC_MTU_512_BYTES", Mtu::BYTES_512.0.into()),
        ("MLX5_QPC_MTU_1K_BYTES", Mtu::BYTES_1024.0.into()),
        ("MLX5_QPC_MTU_2K_BYTES", Mtu::BYTES_2048.0.into()),
        ("MLX5_QPC_MTU_4K_BYTES", Mtu::BYTES_4096.0.into()),
        (
            "MLX5_QPC_ATOMIC_MODE_IB_SPEC",
            atomics(AtomicMode::IB_SPECIFICATION),
        ),
        (
            "MLX5_QPC_ATOMIC_MODE_ONLY_8B",
            atomics(AtomicMode::ONLY_8_BYTES),
        ),
        (
            "MLX5_QPC_ATOMIC_MODE_UP_TO_8B",
            atomics(AtomicMode::UP_TO_8_BYTES),
        ),
        (
            "MLX5_QPC_ATOMIC_MODE_UP_TO_16B",
            atomics(AtomicMode::UP_TO_16_BYTES),
        ),
        (
            "MLX5_QPC_ATOMIC_MODE_UP_TO_32B",
            atomics(AtomicMode::UP_TO_32_BYTES),
        ),
        (
            "MLX5_QPC_ATOMIC_MODE_UP_TO_64B",
            atomics(AtomicMode::UP_TO_64_BYTES),
        ),
        (
            "MLX5_QPC_ATOMIC_MODE_UP_TO_128B",
            atomics(AtomicMode::UP_TO_128_BYTES),
        ),
        (
            "MLX5_QPC_ATOMIC_MODE_UP_TO_256B",
            atomics(AtomicMode::UP_TO_256_BYTES),
        ),
        ("MLX5_NON_ZERO_RQ", ReceiveType::REGULAR.0.into()),
        ("MLX5_SRQ_RQ", ReceiveType::SHARED.0.into()),
        ("MLX5_CRQ_RQ", ReceiveType::CROSS_CHANNEL.0.into()),
        ("MLX5_ZERO_LEN_RQ", ReceiveType::NONE.0.into()),
        ("MLX5_CQC_STATUS_OK", CqStatus::OK.0.into()),
        ("MLX5_CQC_STATUS_CQ_OVERFLOW", CqStatus::OVERFLOW.0.into()),
        (
            "MLX5_CQC_STATUS_CQ_WRITE_FAIL",
            CqStatus::WRITE_FAILED.0.into(),
        ),
        (
            "MLX5_CQC_ST_SOLICITED_NOTIFICATION_REQUEST_ARMED",
            CqNotification::SOLICITED_ARMED.0.into(),
        ),
        (
            "MLX5_CQC_ST_NOTIFICATION_REQUEST_ARMED",
            CqNotification::ARMED.0.into(),
        ),
        ("MLX5_CQC_ST_FIRED", CqNotification::FIRED.0.into()),
        ("MLX5_CAP_PORT_TYPE_IB", PortType::INFINIBAND.0.into()),
        ("MLX5_CAP_PORT_TYPE_ETH", PortType::ETHERNET.0.into()),
        (
            "MLX5_CAP_GENERAL << 1 | HCA_CAP_OPMOD_GET_MAX",
            CapabilityQuery::GENERAL_MAXIMUM.0.into(),
        ),
        (
            "MLX5_CAP_GENERAL << 1 | HCA_CAP_OPMOD_GET_CUR",
            CapabilityQuery::GENERAL_CURRENT.0.into(),
        ),
        (
            "MLX5_CAP_ATOMIC << 1 | HCA_CAP_OPMOD_GET_CUR",
            CapabilityQuery::ATOMIC_CURRENT.0.into(),
        ),
        (
            "MLX5_CAP_ROCE << 1 | HCA_CAP_OPMOD_GET_CUR",
            CapabilityQuery::ROCE_CURRENT.0.into(),
        ),
        ("MLX5_EVENT_TYPE_CQ_ERROR", EventType::CQ_ERROR.0.into()),
        (
            "MLX5_EVENT_TYPE_WQ_CATAS_ERROR",
            EventType::WQ_CATASTROPHE.0.into(),
        ),
        (
            "MLX5_EVENT_TYPE_WQ_INVAL_REQ_ERROR",
            EventType::WQ_INVALID_REQUEST.0.into(),
        ),
        (
            "MLX5_EVENT_TYPE_WQ_ACCESS_ERROR",
            EventType::WQ_ACCESS_ERROR.0.into(),
        ),
        (
            "MLX5_EVENT_TYPE_SRQ_LAST_WQE",
            EventType::SRQ_LAST_WQE.0.into(),
        ),
        ("MLX5_WQ_TYPE_LINKED_LIST", WqType::LINKED_LIST.0.into()),
        ("MLX5_WQ_TYPE_CYCLIC", WqType::CYCLIC.0.into()),
        (
            "MLX5_WQ_TYPE_LINKED_LIST_STRIDING_RQ",
            WqType::LINKED_LIST_STRIDING.0.into(),
        ),
        (
            "MLX5_WQ_TYPE_CYCLIC_STRIDING_RQ",
            WqType::CYCLIC_STRIDING.0.into(),
        ),
        ("MLX5_RMPC_STATE_RDY", RmpState::RDY.0.into()),
        ("MLX5_RMPC_STATE_ERR", RmpState::ERR.0.into()),
        (
            "MLX5_TIMESTAMP_FORMAT_FREE_RUNNING",
            TimestampFormat::FREE_RUNNING.0.into(),
        ),
        (
            "MLX5_TIMESTAMP_FORMAT_DEFAULT",
            TimestampFormat::DEFAULT.0.into(),
        ),
        (
            "MLX5_TIMESTAMP_FORMAT_REAL_TIME",
            TimestampFormat::REAL_TIME.0.into(),
        ),
        (
            "MLX5_TIMESTAMP_FORMAT_CAP_FREE_RUNNING",
            TimestampFormats::FREE_RUNNING.0.into(),
        ),
        (
            "MLX5_TIMESTAMP_FORMAT_CAP_REAL_TIME",
            TimestampFormats::REAL_TIME.0.into(),
        ),
        (
            "MLX5_TIMESTAMP_FORMAT_CAP_FREE_RUNNING_AND_REAL_TIME",
            TimestampFormats::BOTH.0.into(),
        ),
        (
            "MLX5_CAP_GENERAL_2 << 1 | HCA_CAP_OPMOD_GET_CUR",
            CapabilityQuery::GENERAL_2_CURRENT.0.into(),
        ),
        (
            "MLX5_QP_OPTPAR_ALT_ADDR_PATH",
            optional(OptionalParameters::ALTERNATIVE_PATH),
        ),
        (
            "MLX5_QP_OPTPAR_RRE",
            optional(OptionalParameters::REMOTE_READ),
        ),
        (
            "MLX5_QP_OPTPAR_RAE",
            optional(OptionalParameters::REMOTE_ATOMIC),
        ),
        (
            "MLX5_QP_OPTPAR_RWE",
            optional(OptionalParameters::REMOTE_WRITE),
        ),
        (
            "MLX5_QP_OPTPAR_PKEY_INDEX",
            optional(OptionalParameters::PKEY_INDEX),
        ),
        ("MLX5_QP_OPTPAR_Q_KEY", optional(OptionalParameters::Q_KEY)),
        (
            "MLX5_QP_OPTPAR_RNR_TIMEOUT",
            optional(OptionalParameters::RNR_TIMEOUT),
        ),
        (
            "MLX5_QP_OPTPAR_PRIMARY_ADDR_PATH",
            optional(OptionalParameters::PRIMARY_PATH),
        ),
        (
            "MLX5_QP_OPTPAR_SRA_MAX",
            optional(OptionalParameters::SRA_MAX),
        ),
        (
            "MLX5_QP_OPTPAR_RRA_MAX",
            optional(OptionalParameters::RRA_MAX),
        ),
        (
            "MLX5_QP_OPTPAR_PM_STATE",
            optional(OptionalParameters::PM_STATE),
        ),
        (
            "MLX5_QP_OPTPAR_RETRY_COUNT",
            optional(OptionalParameters::RETRY_COUNT),
        ),
        (
            "MLX5_QP_OPTPAR_RNR_RETRY",
            optional(OptionalParameters::RNR_RETRY),
        ),
        (
            "MLX5_QP_OPTPAR_ACK_TIMEOUT",
            optional(OptionalParameters::ACK_TIMEOUT),
        ),
        (
            "MLX5_QP_OPTPAR_LAG_TX_AFF",
            optional(OptionalParameters::LAG_PORT),
        ),
        (
            "MLX5_QP_OPTPAR_COUNTER_SET_ID",
            optional(OptionalParameters::COUNTER_SET),
        ),
    ]);
    assert_same(&ours, &prm::values());
}

fn connection() -> impl Strategy<Value = Connection> {
    let number = || 0..1_u32 << 24;
    let numbers = (
        number(),
        number(),
        number(),
        number(),
        number(),
        number(),
        number(),
    );
    let words = (
        any::<u64>(),
        any::<u32>(),
        0..1_u32 << 20,
        any::<[u16; 3]>(),
    );
    let small = (
        any::<bool>(),
        0..16_u8,
        0..8_u8,
        0..16_u8,
        0..32_u8,
        0..32_u8,
        any::<[u8; 4]>(),
    );
    let addresses = (any::<[u8; 6]>(), any::<[u8; 16]>());
    (numbers, words, small, addresses).prop_map(|(numbers, words, small, (mac, gid))| {
        let (cqn, qpn, remote_qpn, pd, uar, user_index, psn) = numbers;
        let (record, eqn, flow_label, [pkey_index, lid, udp_sport]) = words;
        let (ethernet, log_size, log_reads, service_level, min_rnr_nak, ack_timeout, bytes) = small;
        let [port, gid_index, hop_limit, traffic_class] = bytes;
        Connection {
            record,
            cqn,
            qpn,
            remote_qpn,
            pd,
            uar,
            eqn,
            user_index,
            psn,
            flow_label,
            pkey_index,
            lid,
            udp_sport,
            ethernet: ethernet.into(),
            log_size,
            log_reads,
            port,
            gid_index,
            hop_limit,
            service_level,
            traffic_class,
            min_rnr_nak,
            ack_timeout,
            mac,
            gid,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_connection_is_brought_up_by_the_same_bytes(c in connection()) {
        let cqn = CqNumber::new(c.cqn).unwrap();
        let qpn = QpNumber::new(c.qpn).unwrap();

        let create_cq = CreateCq {
            cq_context: CqContext {
                dbr_umem_valid: true,
                cc: true,
                oi: true,
                log_cq_size: c.log_size,
                uar_page: c.uar,
                c_eqn_or_apu_element: c.eqn,
                dbr_addr: c.record,
                ..CqContext::default()
            },
            cq_umem_valid: true,
            ..CreateCq::default()
        };
        prop_assert_eq!(create_cq.to_bytes().unwrap(), prm::command(Step::CreateCq, &c));

        let create_qp = CreateQp {
            qpc: QpContext {
                st: ServiceType::RC,
                pm_state: PathMigration::MIGRATED,
                pd: c.pd,
                uar_page: c.uar,
                user_index: c.user_index,
                cqn_snd: cqn,
                cqn_rcv: cqn,
                log_sq_size: c.log_size,
                rq_type: ReceiveType::NONE,
                dbr_umem_valid: true,
                dbr_addr: c.record,
                ..QpContext::default()
            },
            wq_umem_valid: true,
            ..CreateQp::default()
        };
        prop_assert_eq!(create_qp.to_bytes().unwrap(), prm::command(Step::CreateQp, &c));

        let to_init = RstToInit {
            qpn,
            opt_param_mask: OptionalParameters::REMOTE_READ
                | OptionalParameters::REMOTE_WRITE
                | OptionalParameters::REMOTE_ATOMIC,
            qpc: QpContext {
                pm_state: PathMigration::MIGRATED,
                rre: true,
                rwe: true,
                rae: true,
                atomic_mode: AtomicMode::UP_TO_8_BYTES,
                primary_address_path: AddressPath {
                    vhca_port_num: c.port,
                    pkey_index: c.pkey_index,
                    ..AddressPath::default()
                },
                ..QpContext::default()
            },
            ..RstToInit::default()
        };
        prop_assert_eq!(to_init.to_bytes().unwrap(), prm::command(Step::RstToInit, &c));

        let path = AddressPath {
            vhca_port_num: c.port,
            src_addr_index: c.gid_index,
            hop_limit: c.hop_limit,
            rgid_rip: c.gid,
            ..AddressPath::default()
        };
        let path = if c.ethernet != 0 {
            AddressPath {
                eth_prio: c.service_level & 7,
                dscp: c.traffic_class >> 2,
                udp_sport: c.udp_sport,
                ..path
            }
            .with_mac(c.mac)
        } else {
            AddressPath {
                grh: true,
                rlid: c.lid,
                sl: c.service_level,
                tclass: c.traffic_class,
                flow_label: c.flow_label,
                ..path
            }
        };
        prop_assert_eq!(path.mac(), if c.ethernet != 0 { c.mac } else { [0; 6] });
        let to_rtr = InitToRtr {
            qpn,
            qpc: QpContext {
                mtu: Mtu::BYTES_4096,
                log_msg_max: 30,
                remote_qpn: QpNumber::new(c.remote_qpn).unwrap(),
                next_rcv_psn: c.psn,
                min_rnr_nak: c.min_rnr_nak,
                log_rra_max: c.log_reads,
                primary_address_path: path,
                ..QpContext::default()
            },
            ..InitToRtr::default()
        };
        prop_assert_eq!(to_rtr.to_bytes().unwrap(), prm::command(Step::InitToRtr, &c));

        let to_rts = RtrToRts {
            qpn,
            qpc: QpContext {
                log_sra_max: c.log_reads,
                next_send_psn: c.psn,
                retry_count: 7,
                rnr_retry: 7,
                primary_address_path: AddressPath {
                    ack_timeout: c.ack_timeout,
                    vhca_port_num: c.port,
                    ..AddressPath::default()
                },
                ..QpContext::default()
            },
            ..RtrToRts::default()
        };
        prop_assert_eq!(to_rts.to_bytes().unwrap(), prm::command(Step::RtrToRts, &c));
    }
}
