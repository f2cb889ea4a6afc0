//! Bytes of mlx5 queues, field by field, and what is wrong with them.
//!
//! Any bytes decode. Each byte is in a field of a [`Structure`]; whatever is wrong is a [`Finding`].
//!
//! ```
//! use warpbell_command::decode::{Context, Kind, decode};
//!
//! // A NOP with index 7 in a queue whose number is 0x1234.
//! let nop = [0, 0, 7, 0, 0, 0x12, 0x34, 1, 0, 0, 0, 8, 0, 0, 0, 0];
//! let report = decode(&nop, Some(Kind::Wqe), &Context::default());
//! let field = |name: &str| report.structures[0].fields.iter().find(|field| field.name == name);
//! assert_eq!(field("WQE index").unwrap().raw, "0x0007");
//! ```

mod completion;
mod devx;
mod doorbell;
pub(crate) mod fields;
mod guess;
mod receive;
mod segments;
mod wqe;

use clap::ValueEnum;
use mlx5_wqe::decode::Transport;
use mlx5_wqe::prm::CommandOpcode;
use serde::Serialize;

pub use guess::Candidate;

/// Changes whenever a reader of the JSON would have to.
pub const FORMAT: u32 = 1;

/// What bytes can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// WQEs of a send queue
    Wqe,
    /// WQEs of a receive queue
    RecvWqe,
    /// WQEs of a shared receive queue
    SrqWqe,
    /// Entries of a completion queue
    Cqe,
    /// Doorbell record of a queue pair
    DoorbellRecord,
    /// Doorbell record of a completion queue
    CqDoorbellRecord,
    /// What was stored to a UAR's send doorbell, or a whole page of doorbells
    Uar,
    /// What was stored to a UAR's doorbell of completion queues
    CqArm,
    /// A command to the card
    Devx,
    /// The card's answer to a command
    DevxAnswer,
}

/// The transport of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Service {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Datagrams
    Ud,
}

impl From<Service> for Transport {
    fn from(service: Service) -> Self {
        match service {
            Service::Rc => Self::ReliableConnection,
            Service::Uc => Self::UnreliableConnection,
            Service::Ud => Self::Datagram,
        }
    }
}

/// What is known of the queue that the bytes are from.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Index of the first block, receive or CQE, counted since the queue was made.
    pub index: Option<u32>,
    /// Logarithm of the queue's blocks, receives or CQEs.
    pub log_size: Option<u8>,
    /// Number of the queue pair.
    pub qpn: Option<u32>,
    /// Its transport.
    pub transport: Transport,
    /// Bytes between two WQEs of a receive queue.
    pub stride: usize,
    /// The command that an answer is to.
    pub answers: Option<CommandOpcode>,
}

impl Default for Context {
    fn default() -> Self {
        Self {
            index: None,
            log_size: None,
            qpn: None,
            transport: Transport::ReliableConnection,
            stride: 16,
            answers: None,
        }
    }
}

/// What was found in some bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// How many bytes there are.
    pub bytes: usize,
    /// What they were taken for; none without a candidate.
    pub kind: Option<Kind>,
    /// What they can be, the likeliest first; empty if the caller said what they are.
    pub candidates: Vec<Candidate>,
    /// The structures, in the bytes' order.
    pub structures: Vec<Structure>,
    /// What is strange about the bytes as a whole.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether a finding is an error.
    pub fn has_errors(&self) -> bool {
        let within = self.structures.iter().flat_map(|found| &found.findings);
        let mut all = within.chain(&self.findings);
        all.any(|finding| finding.severity == Severity::Error)
    }
}

/// One structure: a WQE, a CQE, a record, a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Structure {
    /// What it is, in a few words.
    pub title: String,
    /// Its first byte.
    pub offset: usize,
    /// Its bytes; those of a WQE that wraps go on at the ring's first byte.
    pub bytes: usize,
    /// Its fields. Those with `bits` are parts of the same bytes.
    pub fields: Vec<Field>,
    /// What is strange about it.
    pub findings: Vec<Finding>,
}

/// A field, or some bits of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// Its first byte, counted from the first byte of all.
    pub offset: usize,
    /// Its bytes.
    pub bytes: usize,
    /// Highest and lowest bit, if it has not all bits of these bytes, which are a big-endian number.
    pub bits: Option<[u16; 2]>,
    /// Its name.
    pub name: String,
    /// Its value: a number after `0x`, or more than 8 bytes without.
    pub raw: String,
    /// What the value means.
    pub meaning: String,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// The card refuses it, or it cannot be what it was taken for.
    Error,
    /// It may be a mistake.
    Warning,
    /// Good to know.
    Note,
}

/// Something strange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// The byte that it is about.
    pub offset: usize,
    /// What it is.
    pub text: String,
}

/// What the bytes say, taken for `kind`, or for the likeliest kind.
pub fn decode(bytes: &[u8], kind: Option<Kind>, context: &Context) -> Report {
    let candidates = match kind {
        Some(_) => Vec::new(),
        None => guess::candidates(bytes, context),
    };
    let taken = kind.or(candidates.first().map(|candidate| candidate.kind));
    let structures = match taken {
        Some(Kind::Wqe) => wqe::queue(bytes, context),
        Some(Kind::RecvWqe) => receive::queue(bytes, context, false),
        Some(Kind::SrqWqe) => receive::queue(bytes, context, true),
        Some(Kind::Cqe) => completion::queue(bytes, context),
        Some(Kind::DoorbellRecord) => doorbell::record(bytes),
        Some(Kind::CqDoorbellRecord) => doorbell::completion_record(bytes),
        Some(Kind::Uar) => doorbell::uar(bytes, context),
        Some(Kind::CqArm) => doorbell::arm(bytes),
        Some(Kind::Devx) => devx::command(bytes),
        Some(Kind::DevxAnswer) => devx::answer(bytes, context),
        None => vec![fields::undescribed("bytes of no known kind", bytes, 0)],
    };
    Report {
        format: FORMAT,
        bytes: bytes.len(),
        kind: taken,
        candidates,
        structures,
        findings: Vec::new(),
    }
}
