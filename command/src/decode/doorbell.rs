//! Doorbell records and what is stored to UAR pages.

use mlx5_wqe::decode::BLOCK;
use mlx5_wqe::{CqArm, CqDoorbellRecord, Doorbell, DoorbellRecord, UarPage};

use super::fields::{Reader, fields, is_zero, torn, undescribed};
use super::{Context, Structure, wqe};

const RECORD: usize = size_of::<DoorbellRecord>();

/// A word of native order, as it lies at a place.
fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([0, 1, 2, 3].map(|byte| bytes[at + byte]))
}

fn word64(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7].map(|byte| bytes[byte]))
}

/// The first 8 bytes by `one`, and bytes behind them as not described.
fn only(bytes: &[u8], what: &str, one: impl FnOnce(&[u8]) -> Structure) -> Vec<Structure> {
    let Some((first, rest)) = bytes.split_at_checked(RECORD) else {
        return vec![torn(what, RECORD, bytes, 0)];
    };
    let mut found = vec![one(first)];
    if !rest.is_empty() {
        let title = if is_zero(rest) {
            "zeros behind it"
        } else {
            "bytes behind it"
        };
        found.push(undescribed(title, rest, RECORD));
    }
    found
}

/// A queue pair's record.
pub(super) fn record(bytes: &[u8]) -> Vec<Structure> {
    only(bytes, "doorbell record", |bytes| {
        let mut reader = Reader::new(bytes, 0);
        let [receive, send] = [0, 4].map(|at| DoorbellRecord::producer(word32(bytes, at)));
        fields!(reader, 0, DoorbellRecord {
            receive [31:16] "reserved": "zero";
            receive [15:0] "receives posted": format!("{receive}, modulo 65,536");
            send [31:16] "reserved": "zero";
            send [15:0] "blocks posted": format!("{send}, modulo 65,536: the index behind the last block");
        });
        for at in [0, 4] {
            if !is_zero(&bytes[at..at + 2]) {
                reader.error(
                    at,
                    "the high 16 bits have to be 0: a producer index has 16 bits, big-endian",
                );
            }
        }
        let title = format!("doorbell record: {receive} receives, {send} blocks posted");
        reader.finish(title, RECORD)
    })
}

/// A completion queue's record.
pub(super) fn completion_record(bytes: &[u8]) -> Vec<Structure> {
    only(bytes, "doorbell record", |bytes| {
        let mut reader = Reader::new(bytes, 0);
        let consumer = CqDoorbellRecord::consumer(word32(bytes, 0));
        let arm = CqArm::from_word(word32(bytes, 4));
        fields!(reader, 0, CqDoorbellRecord {
            consumer [31:24] "reserved": "zero";
            consumer [23:0] "CQEs consumed": format!("{consumer}, modulo 2^24");
            arm [31:30] "reserved": "zero";
            arm [29:28] "arm number": "number of the request for an event, modulo 4";
            arm [27:25] "reserved": "zero";
            arm [24:24] "solicited only": if arm.solicited_only { "only a solicited CQE raises an event" } else { "any CQE raises an event" };
            arm [23:0] "armed at": format!("{} CQEs consumed", arm.consumer);
        });
        if bytes[0] != 0 {
            reader.warning(
                0,
                "the high 8 bits are not zero: a consumer index has 24 bits, big-endian",
            );
        }
        reader.finish(
            format!("doorbell record of a completion queue: {consumer} CQEs consumed"),
            RECORD,
        )
    })
}

/// What was stored to a send doorbell: 8 bytes, the blocks of a WQE (BlueFlame), or a whole page.
pub(super) fn uar(bytes: &[u8], context: &Context) -> Vec<Structure> {
    if bytes.len() == UarPage::SIZE {
        return page(bytes);
    }
    if bytes.len() >= BLOCK {
        let mut found = wqe::queue(bytes, context);
        for structure in &mut found {
            structure.title.insert_str(0, "pushed by BlueFlame: ");
        }
        return found;
    }
    only(bytes, "doorbell", |bytes| send(bytes, 0, "send doorbell"))
}

/// 8 bytes of a send doorbell.
fn send(bytes: &[u8], base: usize, name: &str) -> Structure {
    let mut reader = Reader::new(bytes, base);
    let doorbell = Doorbell(word64(bytes));
    let ds = bytes[7] & 0x3f;
    let index = doorbell.index();
    let of_wqe = ds != 0;
    reader.field(
        0,
        4,
        Some([31, 24]),
        "opcode modifier",
        "of the last WQE; else 0",
    );
    reader.field(
        0,
        4,
        Some([23, 8]),
        "index",
        if of_wqe {
            "the last WQE's first block"
        } else {
            "the index behind the last block posted"
        },
    );
    reader.field(
        0,
        4,
        Some([7, 0]),
        "opcode",
        if of_wqe {
            super::segments::opcode_words(doorbell.opcode())
        } else {
            "not given".into()
        },
    );
    reader.field(
        4,
        4,
        Some([31, 8]),
        "QPN",
        format!("queue pair {}", doorbell.qpn()),
    );
    reader.field(
        4,
        4,
        Some([7, 0]),
        "ds",
        if of_wqe {
            format!("{ds} x 16 bytes: the form of libmlx5, the last WQE's first 8 bytes")
        } else {
            "0: the form of GPU libraries, next index and QPN".into()
        },
    );
    reader.note(
        0,
        format!(
            "the card takes the producer index from the doorbell record; a queue without one is posted up to {}",
            doorbell.producer()
        ),
    );
    let title = format!("{name} of queue pair {}, index {index}", doorbell.qpn());
    reader.finish(title, RECORD)
}

/// What was stored to the doorbell of completion queues.
pub(super) fn arm(bytes: &[u8]) -> Vec<Structure> {
    only(bytes, "doorbell", |bytes| armed(bytes, 0))
}

fn armed(bytes: &[u8], base: usize) -> Structure {
    let mut reader = Reader::new(bytes, base);
    let (arm, cq) = CqArm::from_doorbell(word64(bytes));
    reader.field(0, 4, Some([31, 30]), "reserved", "zero");
    reader.field(
        0,
        4,
        Some([29, 28]),
        "arm number",
        "number of the request for an event, modulo 4",
    );
    reader.field(0, 4, Some([27, 25]), "reserved", "zero");
    reader.field(
        0,
        4,
        Some([24, 24]),
        "solicited only",
        if arm.solicited_only {
            "only a solicited CQE raises an event"
        } else {
            "any CQE raises an event"
        },
    );
    reader.field(
        0,
        4,
        Some([23, 0]),
        "armed at",
        format!("{} CQEs consumed", arm.consumer),
    );
    reader.field(4, 4, Some([31, 24]), "reserved", "zero");
    reader.field(4, 4, Some([23, 0]), "CQN", format!("completion queue {cq}"));
    if bytes[4] != 0 {
        reader.error(
            4,
            "a completion queue's number has 24 bits, and this one has more",
        );
    }
    reader.finish(format!("completion queue {cq} is armed"), RECORD)
}

/// A page of doorbells.
fn page(bytes: &[u8]) -> Vec<Structure> {
    let registers = [
        (UarPage::CQ_ARM, "arms a completion queue"),
        (
            UarPage::DOORBELL_WITHOUT_RECORD,
            "send doorbell without a record",
        ),
        (UarPage::DOORBELLS[0], "first send doorbell"),
        (UarPage::DOORBELLS[1], "second send doorbell"),
    ];
    let mut found = Vec::new();
    let mut end = 0;
    for (at, name) in registers {
        gap(bytes, end, at, &mut found);
        let register = &bytes[at..at + RECORD];
        end = at + RECORD;
        if is_zero(register) {
            let mut reader = Reader::new(register, at);
            reader.field(0, RECORD, None, name, "zero: not rung since the last look");
            found.push(reader.finish(format!("{name}: not rung"), RECORD));
        } else if at == UarPage::CQ_ARM {
            found.push(armed(register, at));
        } else {
            found.push(send(register, at, name));
        }
    }
    gap(bytes, end, bytes.len(), &mut found);
    found
}

fn gap(bytes: &[u8], start: usize, end: usize, found: &mut Vec<Structure>) {
    let between = &bytes[start..end];
    if !between.is_empty() {
        let title = if is_zero(between) {
            "zeros between registers"
        } else {
            "bytes between registers"
        };
        found.push(undescribed(title, between, start));
    }
}
