//! Queue pairs that take their receives from a pool, made as UCX makes them: large CQEs, and umems that only the kernel
//! marks as such.

use std::ffi::c_int;

use mlx5_wqe::prm::{
    CommandStatus, CqContext, CreateCq, CreateCqAnswer, CreateQp, CreateRmp, CreateRmpAnswer,
    EventType, OptionalParameters, QpContext, QueryQp, QueryQpAnswer, ReceiveType, Record,
    RmpContext, RmpState, RtrToRts, TimestampFormat, ToError, WorkQueue, WqType,
};

use crate::card::bindings::{EventChannel, values};
use crate::card::opened::{Card, QueuePair, refused};
use crate::card::provider::with_engine;

/// Four receives of a segment each, at the page's start.
fn pool(card: &Card) -> CreateRmp {
    CreateRmp {
        ctx: RmpContext {
            state: RmpState::RDY,
            wq: WorkQueue {
                wq_type: WqType::CYCLIC,
                log_wq_sz: 2,
                log_wq_stride: 5,
                pd: card.domain_number(),
                dbr_umem_id: card.umem_id(),
                dbr_addr: 2056,
                wq_umem_id: card.umem_id(),
                ..WorkQueue::default()
            },
            ..RmpContext::default()
        },
        ..CreateRmp::default()
    }
}

/// A queue pair whose completions have 128 bytes, and whose receives come from the pool.
fn sharing(card: &Card, pool: u32) -> CreateQp {
    let command = CreateCq {
        cq_context: CqContext {
            cqe_sz: 1,
            dbr_umem_valid: false,
            ..card.completion_queue().cq_context
        },
        cq_umem_valid: false,
        cq_umem_offset: 1024,
        ..card.completion_queue()
    };
    let (_, made) = card.make::<CreateCqAnswer>(&command.to_bytes().unwrap());
    let cqn = made.1.unwrap().cqn;
    let plain = card.queue_pair();
    CreateQp {
        qpc: QpContext {
            rq_type: ReceiveType::SHARED,
            srqn_rmpn_xrqn: pool,
            cqn_snd: cqn,
            cqn_rcv: cqn,
            ts_format: TimestampFormat::FREE_RUNNING,
            dbr_umem_valid: false,
            ..plain.qpc
        },
        wq_umem_valid: false,
        ..plain
    }
}

fn state(pair: &QueuePair<'_>) -> QpContext {
    let command = QueryQp {
        qpn: pair.qpn,
        ..QueryQp::default()
    };
    let command = command.to_bytes().unwrap();
    let mut answer = vec![0; QueryQpAnswer::BYTES];
    // SAFETY: the queue pair lives; the bytes are there.
    let number = unsafe {
        (pair.card.functions.mlx5dv_devx_obj_query)(
            pair.object,
            command.as_ptr().cast(),
            command.len(),
            answer.as_mut_ptr().cast(),
            answer.len(),
        )
    };
    assert_eq!(number, 0);
    QueryQpAnswer::from_bytes(&answer).unwrap().qpc
}

/// Subscribes to one event of a queue pair.
fn subscribe(channel: *mut EventChannel, pair: &QueuePair<'_>, event: EventType) -> c_int {
    let mut event = u16::from(event.0);
    let bytes = size_of_val(&event) as u16;
    let cookie = pair.qpn.get().into();
    // SAFETY: channel and queue pair live; there is one number.
    unsafe {
        (pair.card.functions.mlx5dv_devx_subscribe_devx_event)(
            channel,
            pair.object,
            bytes,
            &raw mut event,
            cookie,
        )
    }
}

/// The cookie of the next event, if there is one.
fn next(card: &Card, channel: *mut EventChannel) -> Option<u32> {
    let mut cookie = 0_u64;
    // SAFETY: the channel lives, and there is room for a cookie.
    let told = unsafe {
        let get = card.functions.mlx5dv_devx_get_event;
        get(channel, (&raw mut cookie).cast(), size_of_val(&cookie))
    };
    (told > 0).then_some(cookie as u32)
}

#[test]
fn queue_pairs_share_a_pool_and_hear_of_its_last_receive() {
    with_engine(
        "card::shared_receive::queue_pairs_share_a_pool_and_hear_of_its_last_receive",
        || {
            let card = Card::open();
            let (object, made) = card.make::<CreateRmpAnswer>(&pool(&card).to_bytes().unwrap());
            let number = made.1.unwrap().rmpn;
            let pair = card.make_queue_pair(&sharing(&card, number));
            let own = card.make_queue_pair(&card.queue_pair());

            // SAFETY: what the calls name lives.
            let channel = unsafe {
                // A pool stays while it is used.
                let destroy = card.functions.mlx5dv_devx_obj_destroy;
                assert_eq!(destroy(object), libc::EBUSY);
                let create = card.functions.mlx5dv_devx_create_event_channel;
                let channel = create(card.context, values::EVENT_CHANNEL_WITHOUT_DATA);
                assert_eq!(
                    libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK),
                    0
                );
                channel
            };
            for pair in [&pair, &own] {
                assert_eq!(subscribe(channel, pair, EventType::SRQ_LAST_WQE), 0);
                let mut init = pair.rst_to_init();
                init.qpc.rwe = true;
                assert_eq!(pair.modify(&init).0, 0);
                // The rights that come with the step beside those that came before.
                let mut rtr = pair.init_to_rtr();
                rtr.opt_param_mask =
                    OptionalParameters::REMOTE_READ | OptionalParameters::REMOTE_ATOMIC;
                (rtr.qpc.rre, rtr.qpc.rae) = (true, true);
                assert_eq!(pair.modify(&rtr).0, 0);
                let rts = RtrToRts {
                    qpn: pair.qpn,
                    ..RtrToRts::default()
                };
                assert_eq!(pair.modify(&rts).0, 0);
                let set = state(pair);
                assert_eq!([set.rwe, set.rre, set.rae], [true; 3]);
            }
            // Once, of that which shares.
            for (pair, events) in [(&own, 0), (&pair, 1), (&pair, 0)] {
                let error = ToError {
                    qpn: pair.qpn,
                    ..ToError::default()
                };
                assert_eq!(pair.modify(&error).0, 0);
                let told = std::iter::from_fn(|| next(&card, channel));
                assert_eq!(told.collect::<Vec<_>>(), vec![pair.qpn.get(); events]);
            }
        },
    );
}

#[test]
fn pools_that_cannot_be_are_refused() {
    with_engine(
        "card::shared_receive::pools_that_cannot_be_are_refused",
        || {
            let card = Card::open();
            let refuse = |status, change: fn(&mut RmpContext)| {
                let mut command = pool(&card);
                change(&mut command.ctx);
                let (object, given) = card.create(&command.to_bytes().unwrap());
                assert!(object.is_null() && refused(status)(&given), "{given:?}");
            };
            let parameter = CommandStatus::BAD_PARAMETER;
            refuse(parameter, |pool| pool.state = RmpState::ERR);
            refuse(parameter, |pool| pool.basic_cyclic_rcv_wqe = true);
            refuse(parameter, |pool| pool.wq.wq_signature = true);
            refuse(parameter, |pool| pool.wq.lwm = 1);
            refuse(parameter, |pool| pool.wq.wq_type = WqType::CYCLIC_STRIDING);
            // No room for a link and a segment; more than the page holds; records outside it.
            refuse(parameter, |pool| pool.wq.log_wq_stride = 4);
            refuse(parameter, |pool| pool.wq.log_wq_stride = 0);
            refuse(parameter, |pool| pool.wq.log_wq_sz = 8);
            refuse(parameter, |pool| pool.wq.dbr_addr = 4092);
            refuse(parameter, |pool| pool.wq.wq_umem_id += 1);
            let resource = CommandStatus::BAD_RESOURCE;
            refuse(resource, |pool| pool.wq.pd += 1);
            let (object, given) = card.create(&sharing(&card, 0x99).to_bytes().unwrap());
            assert!(object.is_null() && refused(resource)(&given), "{given:?}");
        },
    );
}
