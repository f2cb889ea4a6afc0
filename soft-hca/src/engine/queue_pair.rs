//! A queue pair: what both halves share, its states (IBTA volume 1, 10.3.1), and its errors.

use mlx5_wqe::{
    ControlFlags, CqeOpcode, Doorbell, DoorbellRecord, QpNumber, Syndrome, VendorCode, WqeIndex,
};

use super::command::{
    Access, CommandError, Counters, CrossChannel, ErrorPlace, FirstError, QueuePairAttributes,
    QueuePairOptions, QueuePairState, QueuePairStatus, ReadyToSend, SendDoorbell, Transition,
    Transport,
};
use super::completion::{Completion, CompletionQueues};
use super::list::Link;
use super::memory::Memory;
use super::packet::{Header, Opcode as PacketOpcode, PacketFlags, WireAddress};
use super::protection::Regions;
use super::receiving::Responder;
use super::send_wqe::{FLUSH, Failure, SCRATCH, SendWqe};
use super::sending::Requester;
use super::shared_receive::SharedReceives;
use super::transfer::Ring;
use super::wire::{Limits, Retract, SEND_RANGES, Wire};

/// An entry of the engine's table of queue pairs.
#[derive(Debug, Default)]
pub struct QueuePairSlot {
    pub(super) generation: u8,
    /// Its place among the queue pairs that have work.
    pub(super) active: Link,
    /// Its place among the queue pairs with events to report.
    pub(super) event: Link,
    /// Its place among the queue pairs in error.
    pub(super) failed: Link,
    /// Its place among those whose send queues wait for a CQE.
    pub(super) waiting: Link,
    /// Whether it is in its UAR page's chain.
    pub(super) listens: bool,
    /// The next queue pair of the same UAR page.
    pub(super) next_of_uar: Option<u32>,
    /// The send WQE that is not to be lent again.
    pub(super) detour: Option<u16>,
    pub(super) pair: Option<QueuePair>,
}

/// What a queue pair works with.
#[derive(Debug)]
pub(super) struct Context<'a, 't, M, W> {
    pub(super) memory: &'a M,
    pub(super) wire: &'a mut W,
    pub(super) regions: &'a mut Regions<'t>,
    pub(super) completion_queues: &'a mut CompletionQueues<'t>,
    pub(super) shared_receives: &'a mut SharedReceives<'t>,
    /// Room for one WQE.
    pub(super) scratch: &'a mut [u8; SCRATCH],
    pub(super) address: WireAddress,
    pub(super) now: u64,
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct QueuePair {
    pub(super) number: QpNumber,
    pub(super) attributes: QueuePairAttributes,
    pub(super) options: QueuePairOptions,
    /// Table indices.
    pub(super) uar: u32,
    pub(super) send_cq: u32,
    pub(super) receive_cq: u32,
    pub(super) state: QueuePairState,
    /// What peers may do.
    pub(super) access: Access,
    pub(super) remote_address: WireAddress,
    pub(super) remote_qp: QpNumber,
    /// What its packets may hold: `mtu` is the path MTU.
    pub(super) limits: Limits,
    /// What datagrams to this queue pair must carry.
    pub(super) q_key: u32,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    pub(super) counters: Counters,
    pub(super) first_error: Option<FirstError>,
    /// The owner has not been told of the error yet.
    pub(super) fatal_event: bool,
}

impl QueuePair {
    pub(super) fn new(
        number: QpNumber,
        (attributes, options): (&QueuePairAttributes, &QueuePairOptions),
        uar: u32,
        send_cq: u32,
        receive_cq: u32,
    ) -> Self {
        Self {
            number,
            attributes: *attributes,
            options: *options,
            uar,
            send_cq,
            receive_cq,
            state: QueuePairState::Reset,
            access: Access::empty(),
            remote_address: WireAddress::default(),
            remote_qp: QpNumber::default(),
            limits: Limits {
                mtu: 0,
                ranges: 0,
                extended_atomics: false,
            },
            q_key: 0,
            requester: Requester::new(),
            responder: Responder::new(),
            counters: Counters::default(),
            first_error: None,
            fatal_event: false,
        }
    }

    /// The send ring.
    pub(super) const fn ring(&self) -> Ring {
        Ring {
            address: self.attributes.send_ring,
            log_depth: self.attributes.log_send_depth,
        }
    }

    pub(super) const fn status(&self) -> QueuePairStatus {
        QueuePairStatus {
            state: self.state,
            counters: self.counters,
            first_error: self.first_error,
            send_index: self.requester.tail,
            receive_index: self.responder.receive_tail,
        }
    }

    /// A header to the peer.
    pub(super) fn header(&self, address: WireAddress, opcode: PacketOpcode, psn: u32) -> Header {
        Header {
            destination: self.remote_address.0,
            source: address.0,
            destination_qp: self.remote_qp.get(),
            source_qp: self.number.get(),
            psn,
            opcode: opcode as u8,
            ..Header::default()
        }
    }

    /// Whether a packet to this queue pair comes from where it may.
    #[inline]
    pub(super) fn is_for_me(&self, opcode: PacketOpcode, header: &Header) -> bool {
        if self.options.transport == Transport::Datagram {
            return opcode == PacketOpcode::Datagram;
        }
        let unreliable = self.options.transport == Transport::UnreliableConnection;
        opcode != PacketOpcode::Datagram
            && [self.remote_qp.get(), Header::UNKNOWN_QP].contains(&header.source_qp)
            && self.remote_address.0 == header.source
            && header.flags().contains(PacketFlags::UNRELIABLE) == unreliable
    }

    /// Takes the step, or says why not.
    pub(super) fn modify<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        transition: Transition,
    ) -> Result<(), CommandError> {
        use QueuePairState as State;
        const MAX_PSN: u32 = super::psn::MASK;
        match (self.state, transition) {
            (_, Transition::Reset) => {
                self.forget_packets(cx);
                *self = Self::new(
                    self.number,
                    (&self.attributes, &self.options),
                    self.uar,
                    self.send_cq,
                    self.receive_cq,
                );
            }
            (State::Reset | State::Init, Transition::Init { access }) => {
                self.access = access;
                self.state = State::Init;
            }
            (State::Init, Transition::ReadyToReceive(attributes)) => {
                let mtu = attributes.path_mtu;
                let way = cx.wire.limits(attributes.remote_address);
                if attributes.receive_psn > MAX_PSN {
                    return Err(CommandError::BadPsn);
                }
                if !mtu.is_power_of_two() || mtu < 256 || mtu > way.mtu {
                    return Err(CommandError::BadMtu);
                }
                self.remote_address = attributes.remote_address;
                self.remote_qp = attributes.remote_qp;
                let reliable = self.options.transport == Transport::ReliableConnection;
                self.limits = Limits {
                    mtu,
                    // What is copied may come from anywhere.
                    ranges: if reliable { way.ranges } else { SEND_RANGES },
                    ..way
                };
                self.responder
                    .start(attributes.receive_psn, attributes.min_rnr_timer_ns);
                self.state = State::ReadyToReceive;
            }
            (State::ReadyToReceive, Transition::ReadyToSend(attributes)) => {
                if attributes.send_psn > MAX_PSN {
                    return Err(CommandError::BadPsn);
                }
                if attributes.retry_count > 7 || attributes.rnr_retry > 7 {
                    return Err(CommandError::BadRetryCount);
                }
                let reliable = self.options.transport == Transport::ReliableConnection;
                self.requester.start(&ReadyToSend {
                    // Where nobody answers nobody is waited for.
                    ack_timeout_ns: if reliable {
                        attributes.ack_timeout_ns
                    } else {
                        0
                    },
                    ..attributes
                });
                self.state = State::ReadyToSend;
            }
            (
                State::Init | State::ReadyToReceive | State::ReadyToSend | State::Error,
                Transition::Error,
            ) => {
                if self.state != State::Error {
                    // A peer that brought it there hears why.
                    self.responder.forget_answers();
                }
                self.enter_error(
                    cx,
                    FirstError {
                        syndrome: FLUSH.0,
                        vendor: FLUSH.1,
                        place: ErrorPlace::Elsewhere,
                    },
                );
                // The owner asked for it and needs no event.
                self.fatal_event = false;
            }
            (from, _) => return Err(CommandError::IllegalTransition { from }),
        }
        Ok(())
    }

    /// Ends what was lent to the wire: the WQEs' payloads go back to their owner.
    pub(super) fn take_back<M, W: Wire>(&mut self, cx: &mut Context<'_, '_, M, W>) {
        cx.wire.retract(Retract::Requests {
            source_qp: self.number.get(),
        });
    }

    /// Leaves the connection: nothing that was sent in it is to arrive any more.
    pub(super) fn forget_packets<M, W: Wire>(&mut self, cx: &mut Context<'_, '_, M, W>) {
        cx.wire.retract(Retract::QueuePair {
            source_qp: self.number.get(),
        });
    }

    /// Goes to error: nothing more is executed, everything posted is flushed.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_error<M, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        error: FirstError,
    ) {
        self.first_error.get_or_insert(error);
        if self.state == QueuePairState::Error {
            return;
        }
        self.state = QueuePairState::Error;
        self.fatal_event = true;
        self.take_back(cx);
        self.requester.stop();
        self.responder.stop();
    }

    /// The peer put this queue pair into error.
    pub(super) fn fail_for_peer<M, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        (syndrome, vendor): Failure,
    ) {
        let error = FirstError {
            syndrome,
            vendor,
            place: ErrorPlace::Elsewhere,
        };
        self.enter_error(cx, error);
    }

    /// A completion queue of this queue pair is dead.
    #[cold]
    #[inline(never)]
    pub(super) fn fail_for_completion_queue<M, W: Wire>(&mut self, cx: &mut Context<'_, '_, M, W>) {
        let error = FirstError {
            syndrome: Syndrome::LOCAL_QP_OPERATION,
            vendor: VendorCode::NONE,
            place: ErrorPlace::CompletionQueue,
        };
        self.enter_error(cx, error);
    }

    /// Writes a send WQE's CQE, if `flags` ask for one, and moves past the WQE.
    #[inline]
    pub(super) fn complete_send<M: Memory, W: Wire>(
        &mut self,
        cx: &mut Context<'_, '_, M, W>,
        wqe: &SendWqe,
        error: Option<Failure>,
    ) {
        self.requester.tail = wqe.index.wrapping_add(u16::from(wqe.blocks));
        let mut wanted = wqe.flags.is_signalled();
        if let Some((syndrome, vendor)) = error {
            self.counters.errors += 1;
            // Mode 1 wants the first error only, mode 0 and the signalled ones every error.
            let first = self.first_error.is_none();
            let mode = wqe.flags.intersection(ControlFlags::COMPLETION_FIELD);
            wanted = first || mode != ControlFlags::COMPLETION_ON_FIRST_ERROR;
            let error = FirstError {
                syndrome,
                vendor,
                place: ErrorPlace::Send(WqeIndex(wqe.index)),
            };
            self.enter_error(cx, error);
        } else {
            self.counters.completed += 1;
        }
        if !wanted {
            return;
        }
        let completion = Completion {
            qpn: self.number,
            opcode: match error {
                None => CqeOpcode::REQUESTER,
                Some(_) => CqeOpcode::REQUESTER_ERROR,
            },
            wqe_opcode: wqe.opcode,
            wqe_counter: wqe.index,
            byte_count: match error {
                None => wqe.length,
                Some(_) => 0,
            },
            immediate: 0,
            solicited: false,
            user_index: self.options.user_index,
            source: 0,
            error,
        };
        let posted = cx
            .completion_queues
            .post(cx.memory, self.send_cq, &completion);
        if posted.is_err() {
            self.fail_for_completion_queue(cx);
        }
    }

    /// Brings nearer what a post changes: the record, and the block behind the newest one.
    pub(super) fn expect_post<M: Memory>(&self, memory: &M) {
        let [next, _] = self.ring().ranges(self.requester.producer, 0, 64);
        memory.prefetch(next.address);
        if let Some(record) = self.send_record() {
            memory.prefetch(record);
        }
    }

    /// Address of the send queue's half of the doorbell record, if it has one.
    pub(super) fn send_record(&self) -> Option<u64> {
        let has_one = self.attributes.send_doorbell == SendDoorbell::WithRecord;
        has_one.then_some(self.attributes.record + 4)
    }

    /// Whether doorbells count: of a managed queue they never do. A SEND_EN alone tells it what it may run, as a
    /// driver relies on that stores its WQEs and writes neither record nor doorbell.
    fn listens(&self) -> bool {
        let managed = CrossChannel::MANAGED_SEND;
        self.is_running() && !self.attributes.cross_channel.contains(managed)
    }

    /// Whether its send queue executes or flushes what it is told of.
    const fn is_running(&self) -> bool {
        matches!(
            self.state,
            QueuePairState::ReadyToSend | QueuePairState::Error
        )
    }

    /// Lets a managed send queue run up to the index behind its last block that may; false if this is none, not ready,
    /// or has no such block. What is enabled already stays so.
    pub(super) fn enable_send(&mut self, end: u16) -> bool {
        let (managed, running) = (CrossChannel::MANAGED_SEND, self.is_running());
        let requester = &mut self.requester;
        let [told, known] = [end, requester.producer].map(|end| end.wrapping_sub(requester.tail));
        let inside = told <= 1 << self.attributes.log_send_depth;
        // One behind the tail, of before, looks like one that is far ahead.
        let beyond = !inside && told < 1 << 15;
        let managed = self.attributes.cross_channel.contains(managed);
        if !managed || !running || beyond {
            return false;
        }
        if inside && told > known {
            requester.producer = end;
        }
        true
    }

    /// Takes the producer index from the doorbell of a queue without a record; true if it moved.
    pub(super) fn hear(&mut self, doorbell: Doorbell) -> bool {
        if !self.listens() || doorbell.qpn() != self.number {
            return false;
        }
        let requester = &mut self.requester;
        let producer = doorbell.producer().0;
        let [told, known] =
            [producer, requester.producer].map(|end| end.wrapping_sub(requester.tail));
        // One that is not ahead is an old one that came late; one that is too far ahead is none of this queue.
        let moved = told > known && told <= 1 << self.attributes.log_send_depth;
        if moved {
            requester.producer = producer;
        }
        moved
    }

    /// Whether the record, as it was read last, tells of less than a doorbell does.
    pub(super) fn is_behind(&self, doorbell: Doorbell) -> bool {
        let requester = &self.requester;
        let [told, known] =
            [doorbell.producer().0, requester.producer].map(|end| end.wrapping_sub(requester.tail));
        doorbell.qpn() == self.number
            && self.send_record().is_some()
            && self.listens()
            && told > known
            && told <= 1 << self.attributes.log_send_depth
    }

    /// Reads the producer index of the send queue from the record, if there is one; true if it moved.
    pub(super) fn look_at_record<M: Memory>(&mut self, memory: &M) -> bool {
        let Some(record) = self.send_record().filter(|_| self.listens()) else {
            return false;
        };
        // SAFETY: the owner vouched for the record when the queue pair was created. Acquire: the
        // WQEs were written before the record, and are read after it.
        let word = unsafe { memory.load_u32(record) };
        let producer = DoorbellRecord::producer(word);
        let moved = producer != self.requester.producer;
        self.requester.producer = producer;
        moved
    }

    /// Whether anything is left to do without a packet or doorbell coming.
    pub(super) fn is_busy(&self) -> bool {
        let sends = self.requester.producer != self.requester.tail && !self.requester.is_held();
        (self.is_running() && sends) || self.responder.has_answers()
    }
}
