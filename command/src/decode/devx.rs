//! Commands to the card and its answers, as DEVX carries them.

use mlx5_wqe::prm::{
    AddressPath, AllocQCounter, AllocUar, AtomicCapabilities, AtomicMode, CapabilityQuery, Command,
    CommandOpcode, CommandStatus, CqContext, CqNotification, CqStatus, CreateCq, CreateQp,
    CreateRmp, CreateUmem, DeallocUar, DestroyCq, DestroyQp, DestroyUmem, Field, HcaCapabilities,
    HcaCapabilities2, InitToRtr, Mtt, Mtu, OptionalParameters, PathMigration, QpContext, QpState,
    QueryHcaCap, QueryQCounter, QueryQp, ReceiveType, Record, RmpContext, RmpState,
    RoceCapabilities, RstToInit, RtrToRts, SendDoorbellMode, ServiceType, TimestampFormat, ToError,
    ToReset, UmemContext, WorkQueue, WqType, command_opcode,
};

use super::fields::{Reader, is_zero, torn, undescribed};
use super::{Context, Structure};

/// The least bytes of a command and of an answer.
const LEAST: usize = 16;

/// A record, as a value.
#[derive(Clone, Copy)]
struct Layout {
    name: &'static str,
    bytes: usize,
    head: &'static [Field],
    fields: &'static [Field],
}

impl Layout {
    const fn of<R: Record>() -> Self {
        Self {
            name: R::NAME,
            bytes: R::BYTES,
            head: R::HEAD,
            fields: R::FIELDS,
        }
    }
}

/// The commands and their answers whose fields are known.
macro_rules! known {
    ($($command:ty),* $(,)?) => {
        fn command_layout(opcode: CommandOpcode) -> Option<Layout> {
            $(if opcode == <$command>::OPCODE {
                return Some(Layout::of::<$command>());
            })*
            None
        }

        fn answer_layout(opcode: CommandOpcode) -> Option<Layout> {
            $(if opcode == <$command>::OPCODE {
                return Some(Layout::of::<<$command as Command>::Answer>());
            })*
            None
        }
    };
}

known! {
    QueryHcaCap, CreateCq, DestroyCq, CreateQp, DestroyQp, RstToInit, InitToRtr, RtrToRts, ToError, ToReset, QueryQp,
    AllocQCounter, QueryQCounter, AllocUar, DeallocUar, CreateRmp, CreateUmem, DestroyUmem,
}

/// The record within another that a field holds.
fn nested(field: &Field) -> Option<Layout> {
    Some(match field.name() {
        "cq_context" => Layout::of::<CqContext>(),
        "qpc" => Layout::of::<QpContext>(),
        "primary_address_path" | "secondary_address_path" => Layout::of::<AddressPath>(),
        "ctx" => Layout::of::<RmpContext>(),
        "wq" => Layout::of::<WorkQueue>(),
        "umem" => Layout::of::<UmemContext>(),
        "cmd_hca_cap" => Layout::of::<HcaCapabilities>(),
        "cmd_hca_cap_2" => Layout::of::<HcaCapabilities2>(),
        "roce_cap" => Layout::of::<RoceCapabilities>(),
        "atomic_caps" => Layout::of::<AtomicCapabilities>(),
        _ => return None,
    })
}

/// A command.
pub(super) fn command(bytes: &[u8]) -> Vec<Structure> {
    if bytes.len() < LEAST {
        return vec![torn("command", LEAST, bytes, 0)];
    }
    let opcode = command_opcode(bytes).unwrap_or_default();
    let Some(layout) = command_layout(opcode) else {
        let mut reader = Reader::new(bytes, 0);
        reader.field(0, 2, None, "opcode", command_words(opcode));
        reader.field(2, 2, None, "uid", "user context");
        reader.field(4, 2, None, "reserved", "");
        reader.field(6, 2, None, "op_mod", "modifier");
        reader.field(8, bytes.len() - 8, None, "bytes", "not described");
        match opcode.name() {
            Some(name) => reader.note(0, format!("the fields of {name} are not described here")),
            None => reader.error(
                0,
                format!(
                    "{:#06x} is the opcode of no command that is known here",
                    opcode.0
                ),
            ),
        }
        return vec![reader.finish(format!("command {}", command_words(opcode)), bytes.len())];
    };
    let mut reader = Reader::new(bytes, 0);
    record(&mut reader, layout);
    let mut found = vec![reader.finish(format!("command {opcode}"), layout.bytes)];
    if opcode == CreateUmem::OPCODE {
        pages(bytes, layout.bytes, &mut found);
    } else {
        behind(bytes, layout.bytes, &mut found);
    }
    found
}

/// The card's answer.
pub(super) fn answer(bytes: &[u8], context: &Context) -> Vec<Structure> {
    if bytes.len() < LEAST {
        return vec![torn("answer", LEAST, bytes, 0)];
    }
    let layout = context.answers.and_then(answer_layout);
    let name = match context.answers {
        Some(opcode) => format!("answer to {opcode}"),
        None => "answer to a command".into(),
    };
    let Some(layout) = layout else {
        let mut reader = Reader::new(bytes, 0);
        let mut head = Layout::of::<mlx5_wqe::prm::Done>();
        head.bytes = LEAST.min(bytes.len());
        record(&mut reader, head);
        reader.note(
            8,
            "what follows depends on the command: name it with --answers, such as --answers CREATE_QP",
        );
        let mut found = vec![reader.finish(name, head.bytes)];
        behind(bytes, head.bytes, &mut found);
        return found;
    };
    let mut reader = Reader::new(bytes, 0);
    record(&mut reader, layout);
    let mut found = vec![reader.finish(name, layout.bytes)];
    behind(bytes, layout.bytes, &mut found);
    found
}

/// The pages of a umem.
fn pages(bytes: &[u8], start: usize, found: &mut Vec<Structure>) {
    for (number, page) in bytes
        .get(start..)
        .unwrap_or_default()
        .chunks(Mtt::BYTES)
        .enumerate()
    {
        let at = start + number * Mtt::BYTES;
        let layout = Layout::of::<Mtt>();
        let mut reader = Reader::new(page, at);
        record(&mut reader, layout);
        found.push(reader.finish(format!("page {number} of the umem"), page.len()));
    }
}

fn behind(bytes: &[u8], end: usize, found: &mut Vec<Structure>) {
    let rest = bytes.get(end..).unwrap_or_default();
    if !rest.is_empty() {
        let title = if is_zero(rest) {
            "zeros behind it"
        } else {
            "bytes behind it"
        };
        found.push(undescribed(title, rest, end));
    }
}

/// All of a record that begins at the first byte.
fn record(reader: &mut Reader<'_>, layout: Layout) {
    let given = reader.bytes.len();
    if given < layout.bytes {
        reader.error(
            0,
            format!(
                "{} has {} bytes, but there are {given}: the end is missing",
                layout.name, layout.bytes
            ),
        );
    }
    let mut covered = vec![false; 8 * layout.bytes];
    for field in layout.head {
        put(reader, field, 0, "", layout.name, &mut covered);
    }
    put_all(reader, layout, 0, "", &mut covered);
    rest(reader, &covered);
}

fn put_all(
    reader: &mut Reader<'_>,
    layout: Layout,
    base: usize,
    prefix: &str,
    covered: &mut [bool],
) {
    for field in layout.fields {
        match nested(field) {
            Some(inner) => {
                let prefix = format!("{prefix}{}.", field.name());
                put_all(reader, inner, base + field.offset(), &prefix, covered);
            }
            None => put(reader, field, base, prefix, layout.name, covered),
        }
    }
}

/// Adds a field of a record that begins at bit `base`.
fn put(
    reader: &mut Reader<'_>,
    field: &Field,
    base: usize,
    prefix: &str,
    record: &str,
    covered: &mut [bool],
) {
    let (first, width) = (base + field.offset(), field.width());
    if let Some(own) = covered.get_mut(first..first + width) {
        own.fill(true);
    }
    let (at, end) = (first / 8, (first + width).div_ceil(8));
    let within = reader.bytes.get(base / 8..).unwrap_or_default();
    let value = field.get(within);
    let is_whole = first % 8 == 0 && width % 8 == 0;
    let low = (8 * end - first - width) as u16;
    let bits = (!is_whole).then_some([low + width as u16 - 1, low]);
    let words = match width {
        65.. => bytes_words(within, field),
        _ => meaning(field, record, value),
    };
    if at < reader.bytes.len() {
        reader.field(
            at,
            end - at,
            bits,
            format!("{prefix}{}", field.name()),
            words,
        );
    }
    if field.name() == "status" && prefix.is_empty() && record.ends_with("_out") && value != 0 {
        let syndrome = reader
            .bytes
            .get(4..8)
            .map(super::fields::hex)
            .unwrap_or_default();
        let status = CommandStatus(value as u8);
        reader.error(
            0,
            format!(
                "the card refused the command: {} (status {value:#04x}), syndrome 0x{syndrome}, which is the firmware's \
                 own number",
                status.name().unwrap_or("unknown status"),
            ),
        );
    }
}

/// The bytes and bits that no field describes.
fn rest(reader: &mut Reader<'_>, covered: &[bool]) {
    let bytes = reader.bytes;
    let mut at = 0;
    let end = bytes.len().min(covered.len() / 8);
    let mut set = Vec::new();
    while at < end {
        let bits = &covered[8 * at..8 * at + 8];
        let open = bits.iter().rev().enumerate();
        let open = open.fold(0, |mask, (bit, covered)| mask | u8::from(!covered) << bit);
        if bytes[at] & open != 0 {
            set.push(at);
        }
        if open != 0xff {
            at += 1;
            continue;
        }
        let run = covered[8 * at..8 * end].iter().position(|covered| *covered);
        let len = run.map_or(end - at, |bits| bits / 8);
        let own = &bytes[at..at + len];
        let words = if is_zero(own) {
            "zero"
        } else {
            "not described here"
        };
        set.extend((at + 1..at + len).filter(|at| bytes[*at] != 0));
        reader.field(at, len, None, "reserved", words);
        at += len;
    }
    let Some(first) = set.first().copied() else {
        return;
    };
    let bytes = match set.len() {
        1 => format!("byte {first:#x} has bits"),
        count => format!("{count} bytes from {first:#x} on have bits"),
    };
    reader.note(first, format!("{bytes} that no field here describes"));
}

/// A field of bytes: an address.
fn bytes_words(within: &[u8], field: &Field) -> String {
    let at = field.offset() / 8;
    match within
        .get(at..at + 16)
        .and_then(|bytes| <[u8; 16]>::try_from(bytes).ok())
    {
        Some(bytes) if field.width() == 128 => std::net::Ipv6Addr::from(bytes).to_string(),
        _ => String::new(),
    }
}

fn command_words(opcode: CommandOpcode) -> String {
    match opcode.name() {
        Some(name) => name.into(),
        None => format!("{:#06x}, not known", opcode.0),
    }
}

/// What a value means: by its field's name, which the header gives, and that of its record.
fn meaning(field: &Field, record: &str, value: u64) -> String {
    let byte = value as u8;
    match (record, field.name()) {
        (_, "opcode") => command_words(CommandOpcode(value as u16)),
        ("query_hca_cap_in", "op_mod") => CapabilityQuery(value as u16).to_string(),
        ("cqc", "status") => CqStatus(byte).to_string(),
        (_, "status") => CommandStatus(byte).to_string(),
        ("cqc", "st") => CqNotification(byte).to_string(),
        ("qpc", "st") => ServiceType(byte).to_string(),
        ("qpc", "state") => QpState(byte).to_string(),
        ("rmpc", "state") => RmpState(byte).to_string(),
        (_, "pm_state") => PathMigration(byte).to_string(),
        (_, "mtu") => Mtu(byte).to_string(),
        (_, "rq_type") => ReceiveType(byte).to_string(),
        (_, "atomic_mode") => AtomicMode(byte).to_string(),
        (_, "send_dbr_mode") => SendDoorbellMode(byte).to_string(),
        ("qpc", "ts_format") => TimestampFormat(byte).to_string(),
        (_, "wq_type") => WqType(byte).to_string(),
        (_, "opt_param_mask") => {
            let mask = OptionalParameters::from_bits_retain(value as u32);
            match mask.iter_names().map(|(name, _)| name).collect::<Vec<_>>() {
                names if names.is_empty() => "none".into(),
                names => names.join(", "),
            }
        }
        (_, "log_page_size" | "log_wq_pg_sz") => {
            format!("pages of {} bytes", 1_u128 << (value + 12))
        }
        (_, "log_rq_stride") => format!("{} bytes", 1_u64 << (value + 4)),
        (_, "ack_timeout") if value == 0 => "waits for ever".into(),
        (_, "ack_timeout") => format!("4.096 µs x 2^{value}"),
        (_, "rnr_retry" | "cur_rnr_retry") if value == 7 => "7: for ever".into(),
        (_, name) if name.starts_with("log_") => format!("2^{value}"),
        _ if field.width() == 1 => if value == 1 { "yes" } else { "no" }.into(),
        _ => value.to_string(),
    }
}

/// How well bytes look like a command, and like an answer: for a guess.
pub(super) fn looks_like_command(bytes: &[u8]) -> Option<CommandOpcode> {
    let opcode = command_opcode(bytes)?;
    let layout = command_layout(opcode)?;
    (bytes.len() >= LEAST && is_zero(&bytes[4..6]) && bytes.len() >= layout.bytes).then_some(opcode)
}
