//! The oracle `c/prm.c`: what the kernel's `linux/mlx5/mlx5_ifc.h` says of commands.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};

use mlx5_wqe::prm::Record;

use crate::facts::{self, Facts, RawFact};

mod oracle {
    use super::{Connection, RawFact, RawField, c_void};

    unsafe extern "C" {
        pub static prm_fields: RawField;
        pub static prm_sizes: RawFact;
        pub static prm_reserved: RawFact;
        pub static prm_values: RawFact;
        pub fn prm_create_cq(command: *mut c_void, connection: *const Connection);
        pub fn prm_create_qp(command: *mut c_void, connection: *const Connection);
        pub fn prm_rst2init(command: *mut c_void, connection: *const Connection);
        pub fn prm_init2rtr(command: *mut c_void, connection: *const Connection);
        pub fn prm_rtr2rts(command: *mut c_void, connection: *const Connection);
    }
}

/// One row of the oracle's table of fields (`struct field` of `c/prm.c`).
#[derive(Clone, Copy)]
#[repr(C)]
struct RawField {
    record: *const c_char,
    name: *const c_char,
    offset: u64,
    width: u64,
    set: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    get: Option<unsafe extern "C" fn(*const c_void) -> u64>,
}

/// The fields of one record, as the header has them.
pub struct Theirs {
    fields: BTreeMap<String, RawField>,
    bytes: usize,
}

/// The header's fields of the record that ours has the name of.
pub fn theirs<R: Record>() -> Theirs {
    let mut fields = BTreeMap::new();
    let mut row = &raw const oracle::prm_fields;
    loop {
        // SAFETY: the oracle's table ends with a row without a record, at which the loop ends.
        let field = unsafe { row.read() };
        if field.record.is_null() {
            break;
        }
        // SAFETY: the table's names are literals.
        let [record, name] = [field.record, field.name].map(|name| unsafe { CStr::from_ptr(name) });
        if record.to_str() == Ok(R::NAME) {
            fields.insert(name.to_string_lossy().into_owned(), field);
        }
        // SAFETY: a row with a record is not the table's last.
        row = unsafe { row.add(1) };
    }
    Theirs {
        fields,
        bytes: sizes()[R::NAME] as usize,
    }
}

impl Theirs {
    /// The record's size in bytes, and each field's offset and width in bits.
    pub fn facts(&self) -> Facts {
        let places = self.fields.iter().flat_map(|(name, field)| {
            [
                (name.clone(), field.offset),
                (format!("{name} width"), field.width),
            ]
        });
        places
            .chain([("bytes".to_owned(), self.bytes as u64)])
            .collect()
    }

    /// Writes a number with `MLX5_SET`; false where the field is none of numbers.
    ///
    /// # Panics
    /// If the header has no such field, or the bytes are too few.
    pub fn set(&self, name: &str, bytes: &mut Aligned, value: u64) -> bool {
        assert!(self.bytes <= bytes.0.len());
        let Some(set) = self.fields[name].set else {
            return false;
        };
        // SAFETY: MLX5_SET writes within the record's bytes, which are there and aligned to 8.
        unsafe { set(bytes.0.as_mut_ptr().cast(), value) };
        true
    }

    /// Reads a number with `MLX5_GET`; `None` where the field is none of numbers.
    ///
    /// # Panics
    /// If the header has no such field, or the bytes are too few.
    pub fn get(&self, name: &str, bytes: &Aligned) -> Option<u64> {
        assert!(self.bytes <= bytes.0.len());
        // SAFETY: MLX5_GET reads within the record's bytes, which are there and aligned to 8.
        self.fields[name]
            .get
            .map(|get| unsafe { get(bytes.0.as_ptr().cast()) })
    }

    /// Whether the header has the field.
    pub fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }
}

/// Room for the longest record, aligned as the header's macros want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(8))]
pub struct Aligned(pub [u8; 4112]);

/// Sizes of the records, in bytes.
pub fn sizes() -> Facts {
    // SAFETY: the oracle's table ends with a row without a name, and its names are literals.
    unsafe { facts::read(&raw const oracle::prm_sizes) }
}

/// Bits that the header reserves, in bits.
pub fn reserved() -> Facts {
    // SAFETY: as above.
    unsafe { facts::read(&raw const oracle::prm_reserved) }
}

/// Enum values.
pub fn values() -> Facts {
    // SAFETY: as above.
    unsafe { facts::read(&raw const oracle::prm_values) }
}

/// What the commands of a reliable connection are built from (`struct connection` of `c/connection.h`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Connection {
    pub record: u64,
    pub cqn: u32,
    pub qpn: u32,
    pub remote_qpn: u32,
    pub pd: u32,
    pub uar: u32,
    pub eqn: u32,
    pub user_index: u32,
    pub psn: u32,
    pub flow_label: u32,
    pub pkey_index: u16,
    pub lid: u16,
    pub udp_sport: u16,
    pub ethernet: u8,
    pub log_size: u8,
    pub log_reads: u8,
    pub port: u8,
    pub gid_index: u8,
    pub hop_limit: u8,
    pub service_level: u8,
    pub traffic_class: u8,
    pub min_rnr_nak: u8,
    pub ack_timeout: u8,
    pub mac: [u8; 6],
    pub gid: [u8; 16],
}

/// The commands that bring a connection up, as the oracle writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// `create_cq_in`.
    CreateCq,
    /// `create_qp_in`.
    CreateQp,
    /// `rst2init_qp_in`.
    RstToInit,
    /// `init2rtr_qp_in`.
    InitToRtr,
    /// `rtr2rts_qp_in`.
    RtrToRts,
}

/// One command's bytes.
pub fn command(step: Step, connection: &Connection) -> [u8; 272] {
    let build = match step {
        Step::CreateCq => oracle::prm_create_cq,
        Step::CreateQp => oracle::prm_create_qp,
        Step::RstToInit => oracle::prm_rst2init,
        Step::InitToRtr => oracle::prm_init2rtr,
        Step::RtrToRts => oracle::prm_rtr2rts,
    };
    let mut bytes = Aligned([0; 4112]);
    // SAFETY: each of these commands has 272 bytes, which are there and aligned to 8.
    unsafe { build(bytes.0.as_mut_ptr().cast(), connection) };
    let (command, rest) = bytes.0.split_at(272);
    assert!(
        rest.iter().all(|byte| *byte == 0),
        "the oracle wrote past the command"
    );
    command.try_into().unwrap_or([0; 272])
}
