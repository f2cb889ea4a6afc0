//! The segments of send and receive WQEs.

use mlx5_wqe::segment::{
    Atomic, Control, Data, InlineHeader, MaskedCompareSwap4, MaskedCompareSwap8, MaskedFetchAdd4,
    MaskedFetchAdd8, RemoteAddress, Wait,
};
use mlx5_wqe::umr::{Klm, MkeyAccess, MkeyContext, MkeyMask, UmrControl, UmrFlags};
use mlx5_wqe::{AddressVector, ControlFlags, Fence, Opcode, QpNumber};
use zerocopy::FromBytes;

use super::fields::{Reader, fields, zeros};

/// Bytes that WQEs count in.
pub(super) const OCTOWORD: usize = 16;

/// The segment at a place; zeros where bytes are missing.
pub(super) fn read<S: FromBytes + Default>(reader: &Reader<'_>, at: usize) -> S {
    let bytes = reader.bytes.get(at..).unwrap_or_default();
    S::read_from_prefix(bytes).map_or_else(|_| S::default(), |(segment, _)| segment)
}

pub(super) fn control(reader: &mut Reader<'_>, control: Control) {
    let opcode = control.opcode();
    let flags = control.fm_ce_se;
    let ds = control.ds();
    fields!(reader, 0, Control {
        opmod_idx_opcode [31:24] "opcode modifier": modifier(opcode, control.modifier());
        opmod_idx_opcode [23:8] "WQE index": format!("block {}, modulo 65,536", control.index().0);
        opmod_idx_opcode [7:0] "opcode": opcode_words(opcode);
        qpn_ds [31:8] "QPN": format!("queue pair {}", control.qpn());
        qpn_ds [7:6] "reserved": "zero";
        qpn_ds [5:0] "ds": format!("{ds} x 16 = {} bytes", 16 * usize::from(ds));
        signature "signature": if control.signature == 0 { "none" } else { "XOR of the WQE's bytes, inverted" };
        dci_stream "DCI stream": if control.dci_stream.get() == 0 { "none" } else { "stream of a DC initiator" };
        fm_ce_se [7:5] "fence": fence(flags);
        fm_ce_se [4:4] "reserved": "zero";
        fm_ce_se [3:2] "completion": completion(flags);
        fm_ce_se [1:1] "solicited": if flags.contains(ControlFlags::SOLICITED) {
            "the receiver's CQE is solicited: it may wake the receiver"
        } else {
            "no"
        };
        fm_ce_se [0:0] "reserved": "zero";
        immediate "immediate": immediate(opcode, control);
    });
    if control.qpn_ds.get() & 0xc0 != 0 {
        reader.warning(4, "bits 7:6 beside ds are reserved, and not zero");
    }
    if flags.bits() & 0x11 != 0 {
        reader.warning(11, "bits 4 and 0 of fm_ce_se are reserved, and not zero");
    }
    if flags.fence().is_none() {
        reader.error(11, "the fence mode is reserved: modes are 0 to 4");
    }
}

fn modifier(opcode: Opcode, modifier: u8) -> &'static str {
    use mlx5_wqe::opcode::modifier::{ATOMIC_4_BYTES, ATOMIC_8_BYTES};
    let masked = matches!(
        opcode,
        Opcode::MASKED_COMPARE_SWAP | Opcode::MASKED_FETCH_ADD
    );
    match modifier {
        ATOMIC_4_BYTES if masked => "4 bytes",
        ATOMIC_8_BYTES if masked => "8 bytes",
        0 => "none",
        _ => "not known for this opcode",
    }
}

pub(super) fn opcode_words(opcode: Opcode) -> String {
    let words = match opcode {
        Opcode::NOP => "does nothing, and completes",
        Opcode::SEND_INVALIDATE => "sends, and invalidates a key at the receiver",
        Opcode::RDMA_WRITE => "writes to the other end's memory",
        Opcode::RDMA_WRITE_IMMEDIATE => "writes, takes a receive there, and hands over 32 bits",
        Opcode::SEND => "sends into a receive of the other end",
        Opcode::SEND_IMMEDIATE => "sends, with 32 bits for the receiver's CQE",
        Opcode::TSO => "sends with TCP segmentation (Ethernet)",
        Opcode::WAIT => "holds the queue until a completion queue has a CQE",
        Opcode::RDMA_READ => "reads the other end's memory",
        Opcode::ATOMIC_COMPARE_SWAP => "compares and swaps 8 bytes at the other end",
        Opcode::ATOMIC_FETCH_ADD => "adds to 8 bytes at the other end, and fetches them",
        Opcode::MASKED_COMPARE_SWAP => "compares and swaps under masks",
        Opcode::MASKED_FETCH_ADD => "adds in fields, and fetches",
        Opcode::RECEIVE_ENABLE => "lets another queue pair's receive queue run",
        Opcode::SEND_ENABLE => "lets another queue pair's send queue run",
        Opcode::FMR => "registers memory (older cards)",
        Opcode::LOCAL_INVALIDATE => "invalidates a local key",
        Opcode::CONFIG_COMMAND => "configures",
        Opcode::SET_PSV => "sets a protection signature value",
        Opcode::DUMP => "reads local memory, and sends nothing",
        Opcode::UMR => "rewrites a memory key",
        Opcode::TAG_MATCHING => "matches tags",
        Opcode::FLOW_TABLE_ACCESS => "changes a flow table",
        Opcode::MMO => "works on local memory",
        _ => return "no opcode that is known".into(),
    };
    format!("{opcode}: {words}")
}

fn fence(flags: ControlFlags) -> &'static str {
    match flags.fence() {
        Some(Fence::None) => "waits for nothing",
        Some(Fence::InitiatorSmall) => "waits for earlier registrations and invalidations",
        Some(Fence::Fence) => "waits for earlier reads and atomics",
        Some(Fence::StrongOrdering) => "waits for all earlier WQEs",
        Some(Fence::SmallAndFence) => {
            "waits for earlier reads, atomics, registrations and invalidations"
        }
        None => "reserved",
    }
}

fn completion(flags: ControlFlags) -> &'static str {
    match (flags & ControlFlags::COMPLETION_FIELD).bits() {
        0x00 => "unsignalled: a CQE on an error alone",
        0x04 => "a CQE on the first error alone",
        0x08 => "signalled: a CQE in any case",
        _ => "a CQE and an event",
    }
}

fn immediate(opcode: Opcode, control: Control) -> String {
    let value = control.immediate.get();
    match opcode {
        Opcode::SEND_IMMEDIATE | Opcode::RDMA_WRITE_IMMEDIATE => {
            format!("{value} for the receiver's CQE")
        }
        Opcode::SEND_INVALIDATE => {
            format!("remote key {} to invalidate", control.invalidated_key())
        }
        Opcode::UMR => format!("memory key {value:#010x} to rewrite"),
        _ if value == 0 => "none".into(),
        _ => "not used by this opcode".into(),
    }
}

pub(super) fn remote_address(reader: &mut Reader<'_>, at: usize) {
    fields!(reader, at, RemoteAddress {
        address "remote address": "first byte at the other end";
        key "rkey": "key of the other end's memory";
    });
    zeros!(reader, at, RemoteAddress { reserved });
}

pub(super) fn atomic(reader: &mut Reader<'_>, at: usize, opcode: Opcode, width: u8) -> usize {
    match (opcode, width) {
        (Opcode::MASKED_COMPARE_SWAP, 4) => {
            fields!(reader, at, MaskedCompareSwap4 {
                swap "swap": "stored if equal";
                compare "compare": "compared with";
                swap_mask "swap mask": "the bits that are swapped";
                compare_mask "compare mask": "the bits that are compared";
            });
            size_of::<MaskedCompareSwap4>()
        }
        (Opcode::MASKED_COMPARE_SWAP, _) => {
            fields!(reader, at, MaskedCompareSwap8 {
                swap "swap": "stored if equal";
                compare "compare": "compared with";
                swap_mask "swap mask": "the bits that are swapped";
                compare_mask "compare mask": "the bits that are compared";
            });
            size_of::<MaskedCompareSwap8>()
        }
        (Opcode::MASKED_FETCH_ADD, 4) => {
            fields!(reader, at, MaskedFetchAdd4 {
                add "add": "added";
                field_boundary "field boundary": "a 1 is a field's top bit, whose carry is lost";
            });
            zeros!(reader, at, MaskedFetchAdd4 { reserved });
            size_of::<MaskedFetchAdd4>()
        }
        (Opcode::MASKED_FETCH_ADD, _) => {
            fields!(reader, at, MaskedFetchAdd8 {
                add "add": "added";
                field_boundary "field boundary": "a 1 is a field's top bit, whose carry is lost";
            });
            size_of::<MaskedFetchAdd8>()
        }
        (Opcode::ATOMIC_COMPARE_SWAP, _) => {
            fields!(reader, at, Atomic {
                swap_add "swap": "stored if equal";
                compare "compare": "compared with";
            });
            size_of::<Atomic>()
        }
        _ => {
            fields!(reader, at, Atomic {
                swap_add "add": "added";
                compare "compare": "not used by this opcode";
            });
            size_of::<Atomic>()
        }
    }
}

pub(super) fn wait(reader: &mut Reader<'_>, at: usize, opcode: Opcode) {
    let segment: Wait = read(reader, at);
    let (index, queue) = (segment.index.get(), segment.queue.get());
    let (index, number) = match opcode {
        Opcode::WAIT => (
            format!("until the CQE of number {} is there", index & 0xff_ffff),
            format!("completion queue {queue:#08x}"),
        ),
        _ => (
            format!("up to the block before index {:#06x}", index as u16),
            format!("queue pair {queue:#08x}"),
        ),
    };
    zeros!(reader, at, Wait { reserved });
    fields!(reader, at, Wait {
        index "index": index;
        queue "queue": number;
    });
    if QpNumber::new(queue).is_none() {
        reader.error(
            at + 12,
            "a queue's number has 24 bits, and this one has more",
        );
    }
}

pub(super) fn address_vector(reader: &mut Reader<'_>, at: usize) {
    let vector: AddressVector = read(reader, at);
    let rmac = vector.rmac.map(|byte| format!("{byte:02x}")).join(":");
    let grh = vector.grh_gid_fl.get();
    fields!(reader, at, AddressVector {
        key [63:32] "Q_Key": "key of the datagram queue, or high half of a DC access key";
        key [31:0] "DC key": "low half of a DC access key";
        dqp_dct [31:31] "extended": if vector.is_extended() { "all 48 bytes are there" } else { "16 bytes alone" };
        dqp_dct [30:24] "reserved": "zero";
        dqp_dct [23:0] "destination": format!("queue pair {}", vector.qpn());
        stat_rate_sl [7:4] "static rate": "";
        stat_rate_sl [3:0] "service level": "or Ethernet priority";
        fl_mlid [7:7] "force loopback": if vector.fl_mlid & 0x80 == 0 { "no" } else { "yes" };
        fl_mlid [6:0] "source LID": "its low bits";
        rlid "remote LID": format!("or UDP source port {}", vector.rlid.get());
    });
    zeros!(reader, at, AddressVector { reserved16 });
    fields!(reader, at, AddressVector {
        rmac "remote MAC": rmac;
        tclass "traffic class": "";
        hop_limit "hop limit": format!("{} hops", vector.hop_limit);
        grh_gid_fl [31:31] "reserved": "zero";
        grh_gid_fl [30:30] "GRH": if grh >> 30 & 1 == 0 { "no global route header" } else { "global route header" };
        grh_gid_fl [29:28] "reserved": "zero";
        grh_gid_fl [27:20] "source GID": format!("number {} of the port's table", grh >> 20 & 0xff);
        grh_gid_fl [19:0] "flow label": "";
        rgid "remote GID": std::net::Ipv6Addr::from(vector.rgid).to_string();
    });
    if !vector.is_extended() {
        reader.error(
            at + 8,
            "the address vector is not extended (bit 31), so it names no GID",
        );
    }
}

pub(super) fn umr(reader: &mut Reader<'_>, at: usize) {
    let control: UmrControl = read(reader, at);
    fields!(reader, at, UmrControl {
        flags "UMR flags": flag_names(UmrFlags::from_bits_retain(control.flags));
    });
    zeros!(reader, at, UmrControl { reserved1 });
    fields!(reader, at, UmrControl {
        klm_octowords "KLMs": format!("{} x 16 bytes", control.klm_octowords.get());
        translation_offset "translation offset": "in 16 bytes, low bits; or size of the byte stream format";
        mkey_mask "mkey mask": flag_names(MkeyMask::from_bits_retain(control.mkey_mask.get()));
        translation_offset_high "translation offset": "high bits";
    });
    zeros!(reader, at, UmrControl { reserved20 });

    let at = at + size_of::<UmrControl>();
    let context: MkeyContext = read(reader, at);
    fields!(reader, at, MkeyContext {
        free "free": if context.free & MkeyContext::FREE == 0 { "in use" } else { "may not be used" };
        pcie_control "PCIe control": "";
        access_flags "access": flag_names(MkeyAccess::from_bits_retain(context.access_flags));
        sf "small fence": "";
        qpn_mkey [31:8] "QPN": match context.qpn_mkey.get() >> 8 {
            0xff_ffff => "any queue pair".to_string(),
            qpn => format!("queue pair {qpn:#08x}"),
        };
        qpn_mkey [7:0] "key variant": "low byte of the key";
    });
    zeros!(reader, at, MkeyContext { reserved8 });
    fields!(reader, at, MkeyContext {
        flags_pd [31:24] "flags": "";
        flags_pd [23:0] "PD": "protection domain";
        start_address "start address": "first address of the key";
        length "length": format!("{} bytes", context.length.get());
        bsf_octowords "byte stream": format!("{} x 16 bytes", context.bsf_octowords.get());
    });
    zeros!(reader, at, MkeyContext { reserved36 });
    fields!(reader, at, MkeyContext {
        translation_octowords "translation": format!("{} x 16 bytes", context.translation_octowords.get());
    });
    zeros!(reader, at, MkeyContext { reserved56 });
    fields!(reader, at, MkeyContext {
        log_page_size "log page size": "";
    });
    zeros!(reader, at, MkeyContext { reserved60 });
}

pub(super) fn klm(reader: &mut Reader<'_>, at: usize) {
    let klm: Klm = read(reader, at);
    fields!(reader, at, Klm {
        byte_count "KLM length": format!("{} bytes", klm.byte_count.get());
        mkey "KLM key": "key of the region beneath";
        address "KLM address": "first address";
    });
}

fn flag_names<F: bitflags::Flags>(flags: F) -> String {
    let names: Vec<_> = flags.iter_names().map(|(name, _)| name).collect();
    match names.is_empty() {
        true => "none".into(),
        false => names.join(", "),
    }
}

/// What a data segment was.
pub(super) enum Listed {
    /// Registered memory, of so many bytes.
    Memory(u64),
    /// Data in the WQE.
    Inline(u64),
    /// The end of a list.
    End,
}

/// Adds one data segment, of the bytes up to `end`; gives what it was, and where the next one begins.
pub(super) fn data(reader: &mut Reader<'_>, at: usize, end: usize) -> (Listed, usize) {
    let header: InlineHeader = read(reader, at);
    let word = header.byte_count.get();
    if word & InlineHeader::MARK == 0 {
        let segment: Data = read(reader, at);
        let length = match word {
            0 => 1 << 31,
            length => u64::from(length),
        };
        let words = match (segment.is_list_end(), word) {
            (true, _) => "end of the list".into(),
            (false, 0) => "0 means 2,147,483,648 bytes".into(),
            (false, length) => format!("{length} bytes"),
        };
        fields!(reader, at, Data {
            byte_count [31:31] "inline": "no: registered memory";
            byte_count [30:0] "length": words;
            key "lkey": if segment.is_list_end() { "ends the list" } else { "key of local memory" };
            address "local address": "first byte";
        });
        let next = at + size_of::<Data>();
        return match segment.is_list_end() {
            true => (Listed::End, next),
            false => (Listed::Memory(length), next),
        };
    }
    let length = (word & !InlineHeader::MARK) as usize;
    fields!(reader, at, InlineHeader {
        byte_count [31:31] "inline": "yes: the bytes follow";
        byte_count [30:0] "length": format!("{length} bytes");
    });
    if word & !InlineHeader::MARK > InlineHeader::LENGTH_MASK {
        reader.error(
            at,
            format!("an inline length has 10 bits, up to 1,023 bytes; this one says {length}"),
        );
    }
    let first = at + size_of::<InlineHeader>();
    let room = end.saturating_sub(first);
    if length > room {
        reader.error(
            at,
            format!("{length} bytes of inline data do not fit: ds leaves room for {room}"),
        );
    }
    let there = length.min(room);
    reader.field(
        first,
        there,
        None,
        "inline data",
        format!("{there} bytes of the message"),
    );
    let next = (first + there).next_multiple_of(OCTOWORD).min(end);
    reader.field(
        first + there,
        next - (first + there),
        None,
        "padding",
        "not read",
    );
    (Listed::Inline(length as u64), next)
}
