//! The engine's headers as RoCE's, and back.
//!
//! | [`Opcode`] | packet | extended headers |
//! |---|---|---|
//! | `Send` | SEND, by its place in the message | immediate data or IETH in the last packet |
//! | `Write` | RDMA WRITE, by its place | RETH in the first packet, immediate data in the last |
//! | `ReadRequest` | RDMA READ request | RETH |
//! | `Atomic`, 8 bytes without masks | CmpSwap or FetchAdd | AtomicETH |
//! | `Atomic`, others | none | |
//! | `ReadResponse` | RDMA READ response, by its place | AETH, but in the middle |
//! | `AtomicResponse` | ATOMIC acknowledge | AETH, AtomicAckETH |
//! | `Acknowledge` | acknowledge | AETH: ACK, credits invalid (0x1f) |
//! | `Refuse` | acknowledge | AETH: NAK or RNR NAK |
//! | `Datagram` | SEND only, UD | DETH, and immediate data |
//!
//! | [`Header`] | RoCE |
//! |---|---|
//! | `destination_qp`, `psn` | BTH |
//! | `FIRST`, `LAST` | the opcode's place in the message |
//! | `UNRELIABLE` | the opcode's transport: UC instead of RC |
//! | `ACKNOWLEDGE`, `SOLICITED` | BTH: AckReq, SE |
//! | `source_qp` | DETH; of others [`Header::UNKNOWN_QP`] |
//! | `address`, `rkey`, `length` | RETH, AtomicETH |
//! | `rkey` of a datagram | DETH: the Q_Key |
//! | `immediate` | immediate data, IETH |
//! | `msn` | AETH |
//! | `detail`, `length` of a refusal | AETH: NAK code, or the RNR timer that is not shorter |
//! | `operands` | AtomicETH, AtomicAckETH |
//!
//! MigReq is 0, as in packets of Linux's soft-RoCE: there is no path migration.

use mlx5_wqe::decode::{AtomicKind, AtomicOperation};
use warpbell_roce::{
    Aeth, AtomicAckEth, AtomicEth, Bth, BthFlags, Credits, Deth, Extended, Headers, Ieth, ImmDt,
    Kind, Msn, NakCode, Position, Psn, Qpn, Response, Reth, RnrTimer, Shape, Transport,
};

use crate::engine::packet::{Header, Opcode, PacketFlags, Refusal};

/// The flags of both sides that mean the same.
const SAME: [(PacketFlags, BthFlags); 2] = [
    (PacketFlags::ACKNOWLEDGE, BthFlags::ACK_REQUEST),
    (PacketFlags::SOLICITED, BthFlags::SOLICITED_EVENT),
];

/// The headers of a packet with this payload; none if RoCE has no such packet.
#[inline]
pub(super) fn encode(header: &Header, partition_key: u16, payload: usize) -> Option<Headers> {
    let flags = header.flags();
    let place = Position::new(
        flags.contains(PacketFlags::FIRST),
        flags.contains(PacketFlags::LAST),
    );
    let transport = match flags.contains(PacketFlags::UNRELIABLE) {
        true => Transport::Uc,
        false => Transport::Rc,
    };
    let has_immediate = flags.contains(PacketFlags::IMMEDIATE);
    let immediate = ImmDt {
        data: header.immediate.into(),
    };
    let reth = Reth {
        virtual_address: header.address.into(),
        remote_key: header.rkey.into(),
        length: header.length.into(),
    };
    let aeth = |response: Response| Aeth {
        syndrome: response.syndrome(),
        msn: Msn::from_low_bits(header.msn),
    };
    let done = aeth(Response::Ack(Credits::INVALID));
    let (transport, kind, position, extended) = match Opcode::from_number(header.opcode)? {
        Opcode::Send => {
            let extended = if has_immediate {
                Extended::Immediate { immediate }
            } else if flags.contains(PacketFlags::INVALIDATE) {
                let remote_key = header.immediate.into();
                let ieth = Ieth { remote_key };
                Extended::Invalidate { ieth }
            } else {
                Extended::Bare {}
            };
            (transport, Kind::Send, place, extended)
        }
        Opcode::Write => {
            let extended = match (place.is_first(), has_immediate) {
                (true, true) => Extended::RethImmediate { reth, immediate },
                (true, false) => Extended::Reth { reth },
                (false, true) => Extended::Immediate { immediate },
                (false, false) => Extended::Bare {},
            };
            (transport, Kind::Write, place, extended)
        }
        Opcode::ReadRequest => {
            let extended = Extended::Reth { reth };
            (transport, Kind::ReadRequest, Position::Only, extended)
        }
        Opcode::Atomic => {
            let (kind, atomic) = atomic_request(header)?;
            let extended = Extended::Atomic { atomic };
            (transport, kind, Position::Only, extended)
        }
        Opcode::ReadResponse => {
            let extended = match place {
                Position::Middle => Extended::Bare {},
                _ => Extended::Aeth { aeth: done },
            };
            (transport, Kind::ReadResponse, place, extended)
        }
        Opcode::AtomicResponse => {
            let original = header.operands[0].into();
            let extended = Extended::AtomicAck {
                aeth: done,
                atomic_ack: AtomicAckEth { original },
            };
            (transport, Kind::AtomicAcknowledge, Position::Only, extended)
        }
        Opcode::Acknowledge => {
            let extended = Extended::Aeth { aeth: done };
            (transport, Kind::Acknowledge, Position::Only, extended)
        }
        Opcode::Refuse => {
            let refusal = Refusal::from_number(header.detail)?;
            let extended = Extended::Aeth {
                aeth: aeth(response(refusal, header.length)),
            };
            (transport, Kind::Acknowledge, Position::Only, extended)
        }
        Opcode::Datagram => {
            let deth = Deth {
                queue_key: header.rkey.into(),
                reserved: 0,
                source_qp: Qpn::from_low_bits(header.source_qp),
            };
            let extended = match has_immediate {
                true => Extended::DethImmediate { deth, immediate },
                false => Extended::Deth { deth },
            };
            (Transport::Ud, Kind::Send, Position::Only, extended)
        }
    };
    let shape = Shape {
        transport,
        kind,
        position,
        form: extended.form(),
    };
    let same = SAME.iter().filter(|(ours, _)| flags.contains(*ours));
    let bth = Bth {
        partition_key: partition_key.into(),
        ..Bth::new(
            shape.opcode()?,
            Qpn::from_low_bits(header.destination_qp),
            Psn::from_low_bits(header.psn),
            same.map(|(_, theirs)| *theirs).collect(),
        )
    };
    Headers::new(bth, extended, payload).ok()
}

/// The header that an engine understands; none if it understands no such packet. The addresses are still missing, and a
/// datagram's route header.
#[inline]
pub(super) fn decode(headers: &Headers) -> Option<Header> {
    let (bth, shape) = (headers.bth(), headers.shape());
    let mut header = Header {
        destination_qp: bth.destination_qp.get(),
        source_qp: Header::UNKNOWN_QP,
        psn: bth.psn.get(),
        ..Header::default()
    };
    let mut flags = PacketFlags::empty();
    flags.set(PacketFlags::FIRST, shape.position.is_first());
    flags.set(PacketFlags::LAST, shape.position.is_last());
    flags.set(PacketFlags::UNRELIABLE, shape.transport == Transport::Uc);
    for (ours, theirs) in SAME {
        flags.set(ours, bth.flags().contains(theirs));
    }
    let mut said = Response::Ack(Credits::INVALID);
    let mut immediate = None;
    match *headers.extended() {
        Extended::Bare {} => {}
        Extended::Immediate { immediate: data } => immediate = Some(data),
        Extended::Invalidate { ieth } => {
            header.immediate = ieth.remote_key.get();
            flags |= PacketFlags::INVALIDATE;
        }
        Extended::Reth { reth } => set_remote(&mut header, &reth),
        Extended::RethImmediate {
            reth,
            immediate: data,
        } => {
            set_remote(&mut header, &reth);
            immediate = Some(data);
        }
        Extended::Aeth { aeth } => {
            header.msn = aeth.msn.get();
            said = aeth.syndrome.response()?;
        }
        Extended::AtomicAck { aeth, atomic_ack } => {
            header.msn = aeth.msn.get();
            said = aeth.syndrome.response()?;
            header.operands[0] = atomic_ack.original.get();
        }
        Extended::Atomic { atomic } => set_atomic(&mut header, shape.kind, &atomic),
        Extended::Deth { deth } => set_source(&mut header, &deth),
        Extended::DethImmediate {
            deth,
            immediate: data,
        } => {
            set_source(&mut header, &deth);
            immediate = Some(data);
        }
        Extended::Cnp { .. } => return None,
    }
    if let Some(ImmDt { data }) = immediate {
        header.immediate = data.get();
        flags |= PacketFlags::IMMEDIATE;
    }
    let opcode = match shape.kind {
        Kind::Send if shape.transport == Transport::Ud => Opcode::Datagram,
        Kind::Send => Opcode::Send,
        Kind::Write => Opcode::Write,
        Kind::ReadRequest => Opcode::ReadRequest,
        Kind::CompareSwap | Kind::FetchAdd => Opcode::Atomic,
        Kind::Acknowledge => set_response(&mut header, said)?,
        // Refusals come in acknowledgements of their own.
        Kind::ReadResponse | Kind::AtomicAcknowledge if !matches!(said, Response::Ack(_)) => {
            return None;
        }
        Kind::ReadResponse => Opcode::ReadResponse,
        Kind::AtomicAcknowledge => Opcode::AtomicResponse,
        Kind::Cnp => return None,
    };
    header.opcode = opcode as u8;
    header.flags = flags.bits();
    Some(header)
}

fn set_remote(header: &mut Header, reth: &Reth) {
    header.address = reth.virtual_address.get();
    header.rkey = reth.remote_key.get();
    header.length = reth.length.get();
}

fn set_source(header: &mut Header, deth: &Deth) {
    header.source_qp = deth.source_qp.get();
    header.rkey = deth.queue_key.get();
}

fn set_atomic(header: &mut Header, kind: Kind, atomic: &AtomicEth) {
    let (kind, [mask, compare_mask]) = match kind {
        Kind::CompareSwap => (AtomicKind::CompareSwap, [u64::MAX; 2]),
        _ => (AtomicKind::FetchAdd, [0; 2]),
    };
    header.address = atomic.virtual_address.get();
    header.rkey = atomic.remote_key.get();
    header.detail = kind as u8;
    header.width = 8;
    let (value, compare) = (atomic.swap_or_add.get(), atomic.compare.get());
    header.operands = [value, compare, mask, compare_mask];
}

/// The request for an atomic; none if RoCE has no such request.
fn atomic_request(header: &Header) -> Option<(Kind, AtomicEth)> {
    let compares = header.detail == AtomicKind::CompareSwap as u8;
    let (kind, ours) = match compares {
        true => (Kind::CompareSwap, AtomicKind::CompareSwap),
        false => (Kind::FetchAdd, AtomicKind::FetchAdd),
    };
    let operation = AtomicOperation {
        kind: ours,
        width: header.width,
        operands: header.operands,
    };
    let [value, compare, ..] = header.operands;
    let atomic = AtomicEth {
        virtual_address: header.address.into(),
        remote_key: header.rkey.into(),
        swap_or_add: value.into(),
        compare: compare.into(),
    };
    (!operation.is_extended()).then_some((kind, atomic))
}

/// What a refusal says, and after how many nanoseconds the peer may try again.
fn response(refusal: Refusal, delay_ns: u32) -> Response {
    Response::Nak(match refusal {
        Refusal::Sequence => NakCode::SequenceError,
        Refusal::InvalidRequest => NakCode::InvalidRequest,
        Refusal::RemoteAccess => NakCode::RemoteAccessError,
        Refusal::RemoteOperation => NakCode::RemoteOperationalError,
        Refusal::ReceiverNotReady => {
            return Response::ReceiverNotReady(RnrTimer::from_nanoseconds(delay_ns.into()));
        }
    })
}

/// The opcode of an acknowledgement; none if it is of a service that no engine has.
fn set_response(header: &mut Header, said: Response) -> Option<Opcode> {
    let refusal = match said {
        Response::Ack(_) => return Some(Opcode::Acknowledge),
        Response::ReceiverNotReady(timer) => {
            // The longest is 655 ms.
            header.length = timer.nanoseconds() as u32;
            Refusal::ReceiverNotReady
        }
        Response::Nak(NakCode::SequenceError) => Refusal::Sequence,
        Response::Nak(NakCode::InvalidRequest) => Refusal::InvalidRequest,
        Response::Nak(NakCode::RemoteAccessError) => Refusal::RemoteAccess,
        Response::Nak(NakCode::RemoteOperationalError) => Refusal::RemoteOperation,
        Response::Nak(NakCode::InvalidRdRequest) => return None,
    };
    header.detail = refusal as u8;
    Some(Opcode::Refuse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::prelude::v1::*;

    const NUMBERS: Header = Header {
        destination: 0,
        source: 0,
        destination_qp: 0x12_3456,
        source_qp: Header::UNKNOWN_QP,
        psn: 0xff_fffe,
        opcode: 0,
        flags: 0,
        detail: 0,
        width: 0,
        address: 0,
        rkey: 0,
        length: 0,
        immediate: 0,
        msn: 0,
        operands: [0; 4],
    };

    /// Through RoCE's headers and back.
    fn through(header: &Header) -> Option<Header> {
        decode(&encode(header, 0xffff, 0)?)
    }

    fn header(opcode: Opcode, flags: PacketFlags) -> Header {
        Header {
            opcode: opcode as u8,
            flags: flags.bits(),
            ..NUMBERS
        }
    }

    /// Every combination of flags that an engine sends: what RoCE carries comes back, and the rest has no packet.
    #[test]
    fn what_an_engine_says_comes_back() {
        use PacketFlags as Flags;
        let mut carried = 0;
        for bits in 0..0x80 {
            let flags = Flags::from_bits_truncate(bits);
            let [first, last] = [Flags::FIRST, Flags::LAST].map(|flag| flags.contains(flag));
            let unreliable = flags.contains(Flags::UNRELIABLE);
            let immediate = flags.contains(Flags::IMMEDIATE);
            let invalidate = flags.contains(Flags::INVALIDATE);
            if immediate && invalidate {
                continue;
            }
            let mut send = header(Opcode::Send, flags);
            let mut write = header(Opcode::Write, flags);
            for header in [&mut send, &mut write] {
                header.immediate = if immediate || invalidate {
                    0x8765_4321
                } else {
                    0
                };
            }
            if first {
                (write.address, write.rkey, write.length) = (1 << 40 | 5, 0x1122_3344, 77);
            }
            let ends = last || !(immediate || invalidate);
            let sends = ends && !(unreliable && invalidate);
            assert_eq!(through(&send), sends.then_some(send), "{flags:?}");
            let writes = ends && !invalidate;
            if !invalidate {
                assert_eq!(through(&write), writes.then_some(write), "{flags:?}");
            }
            carried += u32::from(sends) + u32::from(writes);
        }
        assert!(carried > 60);
        let middle = header(Opcode::ReadResponse, Flags::empty());
        for flags in [Flags::FIRST, Flags::LAST, Flags::FIRST | Flags::LAST] {
            let mut response = header(Opcode::ReadResponse, flags);
            response.msn = 0x00ab_cdef;
            assert_eq!(through(&response), Some(response));
        }
        assert_eq!(through(&middle), Some(middle));
    }

    #[test]
    fn requests_of_one_packet_and_their_answers_come_back() {
        let whole = PacketFlags::FIRST | PacketFlags::LAST;
        let mut read = header(Opcode::ReadRequest, whole | PacketFlags::ACKNOWLEDGE);
        (read.address, read.rkey, read.length) = (9, 8, 7);
        let mut add = header(Opcode::Atomic, whole | PacketFlags::ACKNOWLEDGE);
        (add.address, add.rkey, add.width) = (16, 5, 8);
        add.detail = AtomicKind::FetchAdd as u8;
        add.operands = [u64::MAX - 1, 0, 0, 0];
        let swap = Header {
            detail: AtomicKind::CompareSwap as u8,
            operands: [3, 4, u64::MAX, u64::MAX],
            ..add
        };
        let mut found = header(Opcode::AtomicResponse, whole);
        (found.operands[0], found.msn) = (1 << 63 | 1, 2);
        let mut done = header(Opcode::Acknowledge, whole);
        done.msn = 1;
        let mut datagram = header(Opcode::Datagram, whole | PacketFlags::SOLICITED);
        (datagram.rkey, datagram.source_qp) = (0x8000_0001, 0x00fe_dcba);
        let mut with_immediate = datagram;
        with_immediate.flags |= PacketFlags::IMMEDIATE.bits();
        with_immediate.immediate = 6;
        for header in [read, add, swap, found, done, datagram, with_immediate] {
            assert_eq!(through(&header), Some(header));
        }
        let extended = [
            Header { width: 4, ..add },
            Header {
                operands: [1, 0, 1 << 31, 0],
                ..add
            },
            Header {
                operands: [3, 4, u64::MAX, 1],
                ..swap
            },
        ];
        for header in extended {
            assert_eq!(through(&header), None);
        }
    }

    #[test]
    fn refusals_come_back_and_the_time_to_wait_is_not_shorter() {
        let whole = PacketFlags::FIRST | PacketFlags::LAST;
        for number in 1..=5 {
            let refusal = Refusal::from_number(number).unwrap();
            let mut refused = header(Opcode::Refuse, whole);
            (refused.detail, refused.msn) = (number, 3);
            if refusal == Refusal::ReceiverNotReady {
                refused.length = 50_000;
            }
            let back = through(&refused).unwrap();
            let waits = match refusal {
                // IBTA volume 1, 9.7.5.2.8: 40 and 60 microseconds have codes.
                Refusal::ReceiverNotReady => 60_000,
                _ => 0,
            };
            assert_eq!(
                back,
                Header {
                    length: waits,
                    ..refused
                }
            );
        }
    }

    /// A READ response that is no good news, and an acknowledgement whose syndrome is reserved.
    #[test]
    fn what_no_engine_understands_is_none() {
        let whole = PacketFlags::FIRST | PacketFlags::LAST;
        for (opcode, syndrome) in [
            (Opcode::ReadResponse, 0x60),
            (Opcode::AtomicResponse, 0x20),
            (Opcode::Acknowledge, 0x40),
            (Opcode::Acknowledge, 0x64),
            (Opcode::Acknowledge, 0x7f),
        ] {
            let headers = encode(&header(opcode, whole), 0xffff, 0).unwrap();
            let mut extended = *headers.extended();
            match &mut extended {
                Extended::Aeth { aeth } | Extended::AtomicAck { aeth, .. } => {
                    aeth.syndrome = warpbell_roce::AethSyndrome(syndrome);
                }
                _ => unreachable!("answers have an AETH"),
            }
            let headers = Headers::new(*headers.bth(), extended, 0).unwrap();
            assert_eq!(decode(&headers), None, "{opcode:?} {syndrome:#x}");
        }
    }
}
