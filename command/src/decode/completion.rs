//! Entries of a completion queue.

use mlx5_wqe::{Cqe64, CqeError, CqeFormat, CqeOpcode, ErrorCqe, MiniCqe, Syndrome};
use zerocopy::FromBytes;

use super::fields::{Reader, fields, is_zero, torn};
use super::{Context, Structure};

const ENTRY: usize = size_of::<Cqe64>();
const MINI: usize = size_of::<MiniCqe>();

/// The CQEs in these bytes.
pub(super) fn queue(bytes: &[u8], context: &Context) -> Vec<Structure> {
    let mut found = Vec::new();
    // Small completions that belong to the compressed CQE before.
    let mut minis = 0;
    let mut before: Option<bool> = None;
    for (number, entry) in bytes.chunks(ENTRY).enumerate() {
        let at = number * ENTRY;
        let Ok(own) = <[u8; ENTRY]>::try_from(entry) else {
            found.push(torn("CQE", ENTRY, entry, at));
            break;
        };
        if minis > 0 {
            found.push(small(entry, at, minis.min(ENTRY / MINI)));
            minis = minis.saturating_sub(ENTRY / MINI);
            continue;
        }
        let cqe = Cqe64::from_bytes(own);
        if cqe.decode() == Err(CqeError::Compressed) {
            minis = cqe.byte_count.get() as usize;
        }
        found.push(one(cqe, entry, at, number, context, &mut before));
    }
    found
}

/// Whether these bytes are written like a CQE: for a guess.
pub(super) fn looks_like(entry: &[u8; ENTRY]) -> bool {
    let cqe = Cqe64::from_bytes(*entry);
    let tail = cqe.tail();
    let reserved = &entry[..28];
    match tail.cqe_opcode() {
        CqeOpcode::INVALID => is_zero(&entry[..63]),
        CqeOpcode::REQUESTER => {
            tail.opcode().name().is_some() && tail.qpn().get() != 0 && is_zero(reserved)
        }
        CqeOpcode::REQUESTER_ERROR | CqeOpcode::RESPONDER_ERROR => {
            cqe.error_word().syndrome().describe().is_some()
        }
        opcode => opcode.name().is_some() && tail.qpn().get() != 0 && is_zero(&entry[..16]),
    }
}

fn one(
    cqe: Cqe64,
    bytes: &[u8],
    at: usize,
    number: usize,
    context: &Context,
    before: &mut Option<bool>,
) -> Structure {
    let mut reader = Reader::new(bytes, at);
    let tail = cqe.tail();
    let opcode = tail.cqe_opcode();
    if tail.is_error() {
        error_fields(&mut reader, cqe);
    } else {
        plain_fields(&mut reader, cqe);
    }
    let owner = u8::from(tail.owner());
    fields!(reader, 0, Cqe64 {
        op_own [7:4] "CQE opcode": opcode_words(opcode);
        op_own [3:2] "format": match tail.format() {
            CqeFormat::Plain => "no data in the CQE",
            CqeFormat::Inline32 => "up to 32 bytes of the message are in the CQE",
            CqeFormat::Inline64 => "up to 64 bytes of the message are before the CQE",
            CqeFormat::Compressed => "compressed: small completions follow",
        };
        op_own [1:1] "solicited": if tail.is_solicited() { "yes" } else { "no" };
        op_own [0:0] "owner": format!("lap {owner}, {}, ...", owner + 2);
    });
    judge_owner(&mut reader, cqe, number, context, before);
    judge(&mut reader, cqe, context);
    let place = match context.index {
        Some(index) => format!("CQE {}", u64::from(index) + number as u64),
        None => format!("CQE in place {number}"),
    };
    let title = match cqe.decode() {
        Err(CqeError::Invalid) => format!("{place}: not written yet"),
        Err(error) => format!("{place}: {error}"),
        Ok(mlx5_wqe::Completion::Error(error)) => format!("{place}: {error}"),
        Ok(_) if opcode == CqeOpcode::REQUESTER => format!(
            "{place}: {} in send WQE {} of QP {} is done",
            tail.opcode(),
            tail.wqe_index(),
            tail.qpn()
        ),
        Ok(_) => format!(
            "{place}: {opcode}, {} bytes in receive {:#06x} of QP {}",
            cqe.byte_count.get(),
            tail.wqe_counter(),
            tail.qpn()
        ),
    };
    reader.finish(title, bytes.len())
}

fn plain_fields(reader: &mut Reader<'_>, cqe: Cqe64) {
    let tail = cqe.tail();
    let opcode = tail.cqe_opcode();
    let responder = matches!(
        opcode,
        CqeOpcode::RESPONDER_WRITE_IMMEDIATE
            | CqeOpcode::RESPONDER_SEND
            | CqeOpcode::RESPONDER_SEND_IMMEDIATE
            | CqeOpcode::RESPONDER_SEND_INVALIDATE
    );
    if tail.format() == CqeFormat::Inline32 {
        reader.field(0, 32, None, "inline data", "the first bytes of the message");
    } else {
        fields!(reader, 0, Cqe64 {
            reserved0 "reserved": "not described";
            wqe_id "WQE id": "WQE of a striding receive queue";
            reserved4 "reserved": "offloads of Ethernet";
            ml_path "path bits": "of the LID";
            reserved18 "reserved": "not described";
            slid "source LID": "";
            flags_rqpn [31:24] "flags": "";
            flags_rqpn [23:0] "source QPN": "the sender's queue pair (datagrams)";
            hds_ip_ext "header split": "(Ethernet)";
            l4_header_type "header types": "(Ethernet)";
            vlan_info "VLAN": "(Ethernet)";
        });
    }
    let immediate = match opcode {
        CqeOpcode::RESPONDER_WRITE_IMMEDIATE | CqeOpcode::RESPONDER_SEND_IMMEDIATE => {
            format!("{}: 32 bits from the sender", cqe.immediate.get())
        }
        CqeOpcode::RESPONDER_SEND_INVALIDATE => "the key that was invalidated".into(),
        _ => "none".into(),
    };
    let bytes = cqe.byte_count.get();
    fields!(reader, 0, Cqe64 {
        srqn_uidx [31:24] "reserved": "not described";
        srqn_uidx [23:0] "user index": "of the queue pair or shared receive queue";
        immediate "immediate": immediate;
        app "application": "(tag matching)";
        app_op "app. opcode": "(tag matching)";
        app_info "app. info": "(tag matching)";
        byte_count "byte count": match (opcode, tail.format()) {
            (_, CqeFormat::Compressed) => format!("{bytes} small completions follow"),
            (CqeOpcode::REQUESTER, _) => format!("{bytes}; counts for reads and atomics"),
            _ => format!("{bytes} bytes arrived"),
        };
        timestamp "timestamp": "the card's clock";
        opcode_qpn [31:24] "WQE opcode": if responder { "not used".into() } else { super::segments::opcode_words(tail.opcode()) };
        opcode_qpn [23:0] "QPN": format!("queue pair {}", tail.qpn());
        wqe_counter "WQE counter": if responder {
            "number of the receive, modulo 65,536"
        } else {
            "first block of the send WQE; all earlier ones are done"
        };
        signature "signature": "";
    });
}

fn error_fields(reader: &mut Reader<'_>, cqe: Cqe64) {
    let (tail, word) = (cqe.tail(), cqe.error_word());
    let (syndrome, vendor) = (word.syndrome(), word.vendor());
    let of_sender = tail.cqe_opcode() == CqeOpcode::REQUESTER_ERROR;
    fields!(reader, 0, ErrorCqe {
        reserved0 "reserved": "not described";
        srqn_uidx [31:24] "reserved": "not described";
        srqn_uidx [23:0] "user index": "of the queue pair or shared receive queue";
        reserved36 "reserved": "not described";
        hardware_syndrome "HW syndrome": "the card's own; no list is public";
        hardware_type "HW type": "of the card's own syndrome";
        vendor "vendor code": match vendor.describe() {
            Some(known) => known.meaning,
            None => "not known; no list is public",
        };
        syndrome "syndrome": syndrome.name();
        opcode_qpn [31:24] "WQE opcode": if of_sender { super::segments::opcode_words(tail.opcode()) } else { "not used".into() };
        opcode_qpn [23:0] "QPN": format!("queue pair {}", tail.qpn());
        wqe_counter "WQE counter": if of_sender { "first block of the send WQE" } else { "number of the receive" };
        signature "signature": "";
    });
}

fn opcode_words(opcode: CqeOpcode) -> String {
    let words = match opcode {
        CqeOpcode::REQUESTER => "a WQE of the send queue is done",
        CqeOpcode::RESPONDER_WRITE_IMMEDIATE => "a write with immediate arrived",
        CqeOpcode::RESPONDER_SEND => "a send arrived",
        CqeOpcode::RESPONDER_SEND_IMMEDIATE => "a send with immediate arrived",
        CqeOpcode::RESPONDER_SEND_INVALIDATE => "a send arrived, and invalidated a key",
        CqeOpcode::RESIZE => "the queue was resized",
        CqeOpcode::NO_PACKET => "no packet (tag matching)",
        CqeOpcode::SIGNATURE_ERROR => "a data signature did not match",
        CqeOpcode::REQUESTER_ERROR => "a WQE of the send queue failed",
        CqeOpcode::RESPONDER_ERROR => "a receive failed",
        CqeOpcode::INVALID => "the entry was not written yet",
        _ => return "no opcode that is known".into(),
    };
    format!("{opcode}: {words}")
}

/// Whether the entry is of the lap that its place should have.
fn judge_owner(
    reader: &mut Reader<'_>,
    cqe: Cqe64,
    number: usize,
    context: &Context,
    before: &mut Option<bool>,
) {
    let tail = cqe.tail();
    if tail.cqe_opcode() == CqeOpcode::INVALID {
        return;
    }
    let owner = tail.owner();
    if let (Some(index), Some(log)) = (context.index, context.log_size) {
        let lap = (u64::from(index) + number as u64) >> log;
        if owner != (lap & 1 == 1) {
            reader.warning(
                63,
                format!(
                    "the owner bit is {}, but lap {lap} writes {}: the entry is of another lap, so it is not new",
                    u8::from(owner),
                    lap & 1
                ),
            );
        }
        return;
    }
    if before.is_some_and(|before| before != owner) {
        reader.note(
            63,
            "the owner bit is not that of the entry before: the newest CQE is right before, or the ring begins here",
        );
    }
    *before = Some(owner);
}

fn judge(reader: &mut Reader<'_>, cqe: Cqe64, context: &Context) {
    let tail = cqe.tail();
    match cqe.decode() {
        Ok(mlx5_wqe::Completion::Error(error)) => {
            match error.syndrome.describe() {
                Some(known) if error.syndrome == Syndrome::FLUSHED => {
                    reader.note(55, format!("{} {}", known.meaning, known.look_at));
                }
                Some(known) => reader.warning(55, format!("{} {}", known.meaning, known.look_at)),
                None => reader.warning(55, "this syndrome is in no public header"),
            }
            let known = error.vendor.describe().and_then(|known| known.syndrome);
            if let Some(usual) = known.filter(|usual| *usual != error.syndrome) {
                reader.note(54, format!("this vendor code is known with another syndrome: {usual}"));
            }
        }
        Ok(_) | Err(CqeError::Invalid) => {}
        Err(CqeError::Compressed) => reader.warning(
            63,
            "the CQE is compressed; Warpbell's queues have compression off (cqe_comp_en = 0), and do not read it",
        ),
        Err(CqeError::Unsupported(opcode)) => match opcode.name() {
            Some(name) => reader.note(63, format!("{name} is no completion of a work request")),
            None => reader.error(63, format!("there is no CQE opcode {:#x}", opcode.0)),
        },
    }
    if let Some(qpn) = context.qpn
        && qpn != tail.qpn().get()
        && tail.cqe_opcode() != CqeOpcode::INVALID
    {
        reader.note(
            57,
            format!("the CQE is of QP {}, not of {qpn:#08x}", tail.qpn()),
        );
    }
}

/// An entry of small completions.
fn small(bytes: &[u8], base: usize, count: usize) -> Structure {
    let mut reader = Reader::new(bytes, base);
    for (number, mini) in bytes.chunks(MINI).enumerate() {
        let at = number * MINI;
        if number >= count {
            reader.field(at, MINI, None, "rest", "not used");
            continue;
        }
        let (mini, _) = MiniCqe::read_from_prefix(mini).unwrap_or_default();
        let (index, opcode) = mini.wqe_index_and_opcode();
        fields!(reader, at, MiniCqe {
            info "info": format!("receive hash, checksum and stride, or send WQE {index}, {opcode}: by the queue's setting");
            byte_count "byte count": format!("{} bytes arrived", mini.byte_count.get());
        });
    }
    reader.finish(format!("{count} small completions"), bytes.len())
}
