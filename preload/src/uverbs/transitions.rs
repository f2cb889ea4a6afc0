//! Which attributes a queue pair needs at a step from state to state, and which it takes.

use warpbell_soft_hca::engine::{QueuePairState, Transport};

use super::modify::mask;

/// Whether a request with these attributes may take a queue pair from one state to another, or change it within a state:
/// what Linux's core asks of every driver (`ib_modify_qp_is_ok`), after InfiniBand's table of transitions.
pub fn is_allowed(
    transport: Transport,
    from: QueuePairState,
    to: QueuePairState,
    attributes: u32,
) -> bool {
    let Some((needed, taken)) = attributes_of(transport, from, to) else {
        return false;
    };
    attributes & needed == needed && attributes & !(needed | taken | mask::STATE) == 0
}

/// The attributes that a step needs, and those that it takes; none where there is no such step.
fn attributes_of(
    transport: Transport,
    from: QueuePairState,
    to: QueuePairState,
) -> Option<(u32, u32)> {
    use QueuePairState::{Error, Init, ReadyToReceive, ReadyToSend, Reset};
    let is_datagram = transport == Transport::Datagram;
    let connected = |attributes| if is_datagram { 0 } else { attributes };
    let reliable = |attributes| match transport {
        Transport::ReliableConnection => attributes,
        _ => 0,
    };
    let rights = if is_datagram {
        mask::QKEY
    } else {
        mask::ACCESS_FLAGS
    };
    let port = mask::PKEY_INDEX | mask::PORT | rights;
    let under_way = mask::CUR_STATE
        | rights
        | connected(mask::ALT_PATH | mask::PATH_MIG_STATE)
        | reliable(mask::MIN_RNR_TIMER);
    let peer = mask::AV | mask::PATH_MTU | mask::DEST_QPN | mask::RQ_PSN;
    let answers = mask::MAX_DEST_RD_ATOMIC | mask::MIN_RNR_TIMER;
    let asks = mask::TIMEOUT | mask::RETRY_CNT | mask::RNR_RETRY | mask::MAX_QP_RD_ATOMIC;
    Some(match (from, to) {
        (Reset, Init) => (port, 0),
        (Init, Init) => (0, port),
        (Init, ReadyToReceive) => (
            connected(peer) | reliable(answers),
            mask::PKEY_INDEX | rights | connected(mask::ALT_PATH),
        ),
        (ReadyToReceive, ReadyToSend) => (mask::SQ_PSN | reliable(asks), under_way),
        (ReadyToSend, ReadyToSend) => (0, under_way),
        (_, Reset) | (Init | ReadyToReceive | ReadyToSend | Error, Error) => (0, 0),
        _ => return None,
    })
}
