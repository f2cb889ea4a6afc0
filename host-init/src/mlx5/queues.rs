//! Completion queues and queue pairs, by commands to the card (DEVX).

use mlx5_wqe::prm::{
    AddressPath, AtomicMode, CqContext, CreateCq, CreateQp, InitToRtr, PathMigration, QpContext,
    QpState, QueryQp, ReceiveType, RstToInit, RtrToRts, SendDoorbellMode, ServiceType, ToError,
};
use mlx5_wqe::{CqNumber, QpNumber};
use warpbell::{DoorbellPage, SendDoorbell};

use super::context::Object;
use super::counters::CounterSet;
use super::events::Queue;
use super::port::Way;
use super::resources::{Uar, Umem};
use super::{Mlx5, Mlx5Error, memory_of};
use crate::completion_queue::CommonAddresses;
use crate::config::{Checked, CheckedCompletions};
use crate::cuda::MappedRegister;
use crate::device::{Queues, Step};
use crate::placement::Area;
use crate::queue_memory::QueueAddresses;
use crate::{Access, Error, Placement};

/// All that the card has of one queue pair. It has to be [destroyed](Self::destroy); dropped, it stays.
///
/// Objects that are not made yet are none.
#[derive(Debug, Default)]
pub(super) struct Made {
    queue_pair: Option<(Object, QpNumber)>,
    send: Option<(Object, CqNumber)>,
    /// The send queue's completion queue, if it is also that of others.
    common: Option<CqNumber>,
    receive: Option<(Object, CqNumber)>,
    /// The last one is used; the others keep their page for it, see [`claim`](Self::claim).
    uars: Vec<Uar>,
    /// The UAR's register as a GPU reaches it.
    mapped: Option<MappedRegister>,
    umems: Vec<Umem>,
    /// Which of the UAR's registers is rung.
    send_doorbell: SendDoorbell,
}

/// A place in a umem.
#[derive(Clone, Copy)]
struct Place {
    umem: u32,
    offset: u64,
}

/// Registered memory that holds queues.
struct Ground {
    umem: u32,
    start: u64,
}

impl Ground {
    fn place(&self, address: u64) -> Place {
        Place {
            umem: self.umem,
            offset: address - self.start,
        }
    }
}

impl Made {
    /// Makes everything, the queue pair in RESET. If one thing cannot be made, those before it are destroyed again.
    ///
    /// # Safety
    /// As for [`Provider::create`](crate::device::Provider::create).
    pub unsafe fn create(
        card: &Mlx5,
        domain: u32,
        config: &Checked,
        at: &QueueAddresses,
    ) -> Result<Self, Error> {
        let mut made = Self::default();
        // SAFETY: the caller's promise is passed on unchanged.
        match unsafe { made.create_all(card, domain, config, at) } {
            Ok(()) => Ok(made),
            Err(first) => Err(made.undo(first)),
        }
    }

    /// # Safety
    /// As for [`create`](Self::create).
    unsafe fn create_all(
        &mut self,
        card: &Mlx5,
        domain: u32,
        config: &Checked,
        at: &QueueAddresses,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise is passed on unchanged.
        let (queues, completions) = unsafe {
            (
                self.register(card, at.queues)?,
                self.register(card, at.completions)?,
            )
        };
        self.send_doorbell = config.send_doorbell;
        let by_gpu = matches!(config.placement, Placement::Gpu(_) | Placement::Pinned(_));
        let uar = self.claim(card, by_gpu)?;
        let page = uar.page();
        if let Placement::Gpu(gpu) | Placement::Pinned(gpu) = config.placement {
            self.mapped = Some(gpu.map_register(uar.register(config.send_doorbell))?);
        }
        let completion_queue = |ring, record, completed| {
            let (ring, record) = (completions.place(ring), completions.place(record));
            // SAFETY: the caller keeps the memory until the queue is destroyed.
            unsafe { completion_queue(card, page, ring, record, completed) }
        };
        self.common = config.common_cqn.map(CqNumber::from_low_bits);
        let send = match self.common {
            Some(common) => common,
            None => {
                let (ring, record) = (at.send_completions, at.send_completion_record);
                let made = completion_queue(ring, record, config.send_completions)?;
                self.send.insert(made).1
            }
        };
        let mut receive = send;
        if let Some(config) = config.receive {
            let (ring, record) = (at.receive_completions, at.receive_completion_record);
            let made = completion_queue(ring, record, config.completions)?;
            receive = self.receive.insert(made).1;
        }
        // The receive ring comes first, then the send ring.
        let rings = match config.receive {
            Some(_) => at.receive_ring,
            None => at.send_ring,
        };
        let context = QpContext {
            pd: domain,
            uar_page: page,
            cqn_snd: send,
            cqn_rcv: receive,
            ts_format: card.clock,
            ..context_of(config, queues.place(at.record))
        };
        let rings = queues.place(rings);
        let command = CreateQp {
            qpc: context,
            wq_umem_valid: true,
            wq_umem_id: rings.umem,
            wq_umem_offset: rings.offset,
            ..CreateQp::default()
        };
        // SAFETY: the caller keeps the memory until the queue pair is destroyed.
        let (object, answer) =
            unsafe { Object::create(&card.context, "make a queue pair", &command)? };
        hear(card, &object, &Queue::Pair(answer.qpn));
        self.queue_pair = Some((object, answer.qpn));
        Ok(())
    }

    /// Makes a completion queue for many send queues.
    ///
    /// # Safety
    /// As for [`Provider::create_completion_queue`](crate::device::Provider::create_completion_queue).
    pub unsafe fn create_common(
        card: &Mlx5,
        completions: CheckedCompletions,
        at: &CommonAddresses,
    ) -> Result<Self, Error> {
        let mut made = Self::default();
        let mut create = || {
            // SAFETY: the caller's promise is passed on unchanged.
            let ground = unsafe { made.register(card, at.area)? };
            let page = made.claim(card, false)?.page();
            let (ring, record) = (ground.place(at.ring), ground.place(at.record));
            // SAFETY: as above.
            made.send = Some(unsafe { completion_queue(card, page, ring, record, completions)? });
            Ok(())
        };
        match create() {
            Ok(()) => Ok(made),
            Err(first) => Err(made.undo(first)),
        }
    }

    /// Destroys what was made before this error.
    fn undo(self, first: Error) -> Error {
        match self.destroy() {
            Ok(()) => first,
            Err(second) => {
                let (first, second) = (Box::new(first), Box::new(second));
                Mlx5Error::Stuck { first, second }.into()
            }
        }
    }

    /// The number of the send queues' completion queue.
    pub fn send_cqn(&self) -> u32 {
        let own = self.send.as_ref().map(|(_, cqn)| *cqn);
        own.or(self.common).expect("made by `create`").get()
    }

    /// # Safety
    /// The memory stays until the umem is ended.
    unsafe fn register(&mut self, card: &Mlx5, area: Area) -> Result<Ground, Error> {
        let memory = memory_of(area)?;
        // SAFETY: the caller's promise is passed on unchanged.
        let umem = unsafe { Umem::register(&card.context, &memory)? };
        let ground = Ground {
            umem: umem.number(),
            start: memory.address,
        };
        self.umems.push(umem);
        Ok(ground)
    }

    fn queue_pair(&self) -> (&Object, QpNumber) {
        let (object, number) = self.queue_pair.as_ref().expect("made by `create`");
        (object, *number)
    }

    /// Its numbers, and where kernels ring.
    pub fn queues(&self) -> Queues {
        let number = |queue: &Option<(Object, CqNumber)>| queue.as_ref().map(|(_, cqn)| cqn.get());
        let send_cqn = self.send_cqn();
        let uar = self.uars.last().expect("made by `create`");
        let doorbell = match &self.mapped {
            // The driver maps registers for a GPU uncached, whatever they are for a CPU.
            Some(mapped) => (mapped.address(), DoorbellPage::Uncached),
            None => (uar.register(self.send_doorbell), uar.kind().doorbell()),
        };
        Queues {
            qpn: self.queue_pair().1.get(),
            send_cqn,
            common_sends: self.common.is_some(),
            receive_cqn: number(&self.receive).unwrap_or(send_cqn),
            doorbell: Some(doorbell),
        }
    }

    /// Brings the queue pair to another state; to RTR it needs the way to the other end.
    pub fn modify(&self, card: &Mlx5, step: &Step, way: Option<Way>) -> Result<(), Mlx5Error> {
        let (object, qpn) = self.queue_pair();
        match step {
            Step::Init { access } => object
                .modify(
                    "bring a queue pair to INIT",
                    &rst_to_init(qpn, *access, card),
                )
                .map(drop),
            Step::ReadyToReceive { remote, config } => {
                let way = way.expect("given with this step");
                let command = InitToRtr {
                    qpn,
                    qpc: QpContext {
                        mtu: way.mtu,
                        log_msg_max: card.capabilities.log_max_msg.min(30),
                        remote_qpn: QpNumber::from_low_bits(remote.qpn),
                        next_rcv_psn: remote.psn,
                        min_rnr_nak: config.timers.rnr_timer,
                        log_rra_max: way.reads.answered(),
                        primary_address_path: way.path,
                        ..QpContext::default()
                    },
                    ..InitToRtr::default()
                };
                let step = "bring a queue pair to RTR (the way to the other end)";
                object.modify(step, &command).map(drop)
            }
            Step::ReadyToSend {
                psn,
                remote,
                config,
            } => {
                let theirs = remote.card.expect("asked for at RTR");
                let command = RtrToRts {
                    qpn,
                    qpc: QpContext {
                        next_send_psn: *psn,
                        retry_count: config.timers.retry_count,
                        rnr_retry: config.timers.rnr_retry,
                        log_sra_max: card.port.reads_with(&theirs).asked(),
                        primary_address_path: AddressPath {
                            ack_timeout: config.timers.acknowledge_timeout,
                            ..AddressPath::default()
                        },
                        ..QpContext::default()
                    },
                    ..RtrToRts::default()
                };
                object
                    .modify("bring a queue pair to RTS", &command)
                    .map(drop)
            }
            Step::Error => {
                let command = ToError {
                    qpn,
                    ..ToError::default()
                };
                object
                    .modify("bring a queue pair to ERROR", &command)
                    .map(drop)
            }
        }
    }

    /// Allocates the UAR whose register is rung: for a GPU one that no other queue rings. Without a record nobody else
    /// rings on its page: where rdma-core has no dedicated pages it puts two UARs on one, and a card in software has a
    /// word where a card has a register, in which the second ring would take the place of the first.
    fn claim(&mut self, card: &Mlx5, by_gpu: bool) -> Result<&Uar, Mlx5Error> {
        let shared = !by_gpu && self.send_doorbell == SendDoorbell::WithRecord;
        loop {
            let uar = Uar::allocate(&card.context, shared)?;
            tracing::debug!(page = uar.page(), kind = ?uar.kind(), by_gpu, "a queue pair rings here");
            let alone = self.send_doorbell == SendDoorbell::WithRecord
                || !card.rings_without_record(uar.page());
            // Kept either way, so that the next one is another.
            self.uars.push(uar);
            if alone {
                return Ok(&self.uars[self.uars.len() - 1]);
            }
        }
    }

    /// Whether its doorbell without a record is on this page.
    pub fn rings_without_record(&self, page: u32) -> bool {
        let uar = self.uars.last();
        self.send_doorbell == SendDoorbell::WithoutRecord
            && uar.is_some_and(|uar| uar.page() == page)
    }

    /// The queue pair's state.
    pub fn state(&self) -> Result<QpState, Mlx5Error> {
        let (object, qpn) = self.queue_pair();
        let query = QueryQp {
            qpn,
            ..QueryQp::default()
        };
        Ok(object
            .query("ask for a queue pair's state", &query)?
            .qpc
            .state)
    }

    /// Destroys all that was made, users before what they use. When this succeeds, the card uses the memory no longer.
    pub fn destroy(self) -> Result<(), Mlx5Error> {
        if let Some((object, _)) = self.queue_pair {
            object.destroy("destroy a queue pair")?;
        }
        for (object, _) in [self.send, self.receive].into_iter().flatten() {
            object.destroy("destroy a completion queue")?;
        }
        // Before the register that it maps.
        drop(self.mapped);
        for uar in self.uars {
            uar.end();
        }
        for umem in self.umems {
            umem.end().map_err(|source| Mlx5Error::System {
                step: "give the memory of queues back",
                remedy: super::error::remedy(&source),
                source,
            })?;
        }
        Ok(())
    }
}

/// Makes a completion queue, and has the card's events of it reported.
///
/// # Safety
/// The memory stays until the queue is destroyed.
unsafe fn completion_queue(
    card: &Mlx5,
    page: u32,
    ring: Place,
    record: Place,
    completions: CheckedCompletions,
) -> Result<(Object, CqNumber), Mlx5Error> {
    let command = create_cq(card.event_queue, page, ring, record, completions);
    // SAFETY: the caller's promise is passed on unchanged.
    let (object, answer) =
        unsafe { Object::create(&card.context, "make a completion queue", &command)? };
    hear(card, &object, &Queue::Completion(answer.cqn));
    Ok((object, answer.cqn))
}

/// Has events of a queue reported, where the card can.
fn hear(card: &Mlx5, object: &Object, queue: &Queue) {
    if let Some(events) = &card.events {
        events.subscribe(object, queue);
    }
}

fn create_cq(
    event_queue: u32,
    page: u32,
    ring: Place,
    record: Place,
    completions: CheckedCompletions,
) -> CreateCq {
    CreateCq {
        cq_context: CqContext {
            cc: completions.collapsed,
            oi: completions.ignore_overrun,
            log_cq_size: completions.depth_log2,
            uar_page: page,
            c_eqn_or_apu_element: event_queue,
            dbr_umem_valid: true,
            dbr_umem_id: record.umem,
            dbr_addr: record.offset,
            ..CqContext::default()
        },
        cq_umem_valid: true,
        cq_umem_id: ring.umem,
        cq_umem_offset: ring.offset,
        ..CreateCq::default()
    }
}

/// The context of a queue pair, but for what it is made with.
fn context_of(config: &Checked, record: Place) -> QpContext {
    let rings = match config.receive {
        Some(receive) => QpContext {
            rq_type: ReceiveType::REGULAR,
            log_rq_size: receive.depth_log2,
            log_rq_stride: receive.stride_log2,
            ..QpContext::default()
        },
        None => QpContext {
            rq_type: ReceiveType::NONE,
            ..QpContext::default()
        },
    };
    QpContext {
        st: ServiceType::RC,
        pm_state: PathMigration::MIGRATED,
        log_sq_size: config.send_depth_log2,
        cd_master: config.cross_channel,
        cd_slave_send: config.managed_send,
        send_dbr_mode: match config.send_doorbell {
            SendDoorbell::WithRecord => SendDoorbellMode::WITH_RECORD,
            SendDoorbell::WithoutRecord => SendDoorbellMode::WITHOUT_RECORD,
        },
        dbr_umem_valid: true,
        dbr_umem_id: record.umem,
        dbr_addr: record.offset,
        ..rings
    }
}

fn rst_to_init(qpn: QpNumber, access: Access, card: &Mlx5) -> RstToInit {
    let granted = |right| access.contains(right);
    RstToInit {
        qpn,
        qpc: QpContext {
            pm_state: PathMigration::MIGRATED,
            counter_set_id: card.counters.as_ref().map_or(0, CounterSet::number),
            rwe: granted(Access::REMOTE_WRITE),
            rre: granted(Access::REMOTE_READ),
            rae: granted(Access::REMOTE_ATOMIC),
            // Masked ones of 4 bytes too.
            atomic_mode: match granted(Access::REMOTE_ATOMIC) && card.capabilities.atomic {
                true => AtomicMode::UP_TO_8_BYTES,
                false => AtomicMode::NONE,
            },
            primary_address_path: AddressPath {
                vhca_port_num: card.port.number(),
                pkey_index: card.port.partition_key_index(),
                ..AddressPath::default()
            },
            ..QpContext::default()
        },
        ..RstToInit::default()
    }
}
