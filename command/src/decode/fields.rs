//! How structures are put together from the fields of `mlx5-wqe`'s layouts.

use std::fmt::Write;

use super::{Field, Finding, Severity, Structure};

/// A structure that is being read. Places count from its first byte.
pub(super) struct Reader<'a> {
    /// The structure's bytes, and perhaps more.
    pub bytes: &'a [u8],
    /// Where they begin.
    base: usize,
    /// Bytes of a ring, behind which places go on at its first byte.
    wrap: Option<usize>,
    fields: Vec<Field>,
    findings: Vec<Finding>,
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8], base: usize) -> Self {
        Self {
            bytes,
            base,
            wrap: None,
            fields: Vec::new(),
            findings: Vec::new(),
        }
    }

    /// The same in a ring of so many bytes.
    pub fn in_ring(bytes: &'a [u8], base: usize, ring: usize) -> Self {
        Self {
            wrap: Some(ring),
            ..Self::new(bytes, base)
        }
    }

    fn offset(&self, at: usize) -> usize {
        match self.wrap {
            Some(ring) => (self.base + at) % ring,
            None => self.base + at,
        }
    }

    /// Adds a field of `len` bytes at `at`, or some bits of it. What lies behind the bytes is left out.
    pub fn field(
        &mut self,
        at: usize,
        len: usize,
        bits: Option<[u16; 2]>,
        name: impl Into<String>,
        meaning: impl Into<String>,
    ) {
        let end = (at + len).min(self.bytes.len());
        let Some(own) = self.bytes.get(at..end).filter(|own| !own.is_empty()) else {
            return;
        };
        let (name, raw) = (name.into(), raw(own, bits));
        let is_set = name == "reserved" && !is_zeros(&raw);
        self.fields.push(Field {
            offset: self.offset(at),
            bytes: own.len(),
            bits,
            name,
            raw,
            meaning: match meaning.into() {
                words if is_set && words == "zero" => "should be zero".into(),
                words => words,
            },
        });
    }

    /// Adds bytes that should be zero; says so if they are not.
    pub fn zero(&mut self, at: usize, len: usize) {
        let end = (at + len).min(self.bytes.len());
        let is_zero = self.bytes.get(at..end).is_none_or(is_zero);
        self.field(at, len, None, "reserved", "zero");
        if !is_zero {
            self.warning(at, "reserved bytes are not zero");
        }
    }

    /// Adds a finding about a byte; about the last one, if the byte is missing.
    pub fn finding(&mut self, severity: Severity, at: usize, text: impl Into<String>) {
        let at = at.min(self.bytes.len().saturating_sub(1));
        self.findings.push(Finding {
            severity,
            offset: self.offset(at),
            text: text.into(),
        });
    }

    pub fn error(&mut self, at: usize, text: impl Into<String>) {
        self.finding(Severity::Error, at, text);
    }

    pub fn warning(&mut self, at: usize, text: impl Into<String>) {
        self.finding(Severity::Warning, at, text);
    }

    pub fn note(&mut self, at: usize, text: impl Into<String>) {
        self.finding(Severity::Note, at, text);
    }

    pub fn has_errors(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.severity == Severity::Error)
    }

    /// The structure, of so many bytes.
    pub fn finish(self, title: impl Into<String>, bytes: usize) -> Structure {
        Structure {
            title: title.into(),
            offset: self.offset(0),
            bytes: bytes.min(self.bytes.len()),
            fields: self.fields,
            findings: self.findings,
        }
    }
}

/// Adds fields of a layout at a place: offsets and sizes are the layout's own.
macro_rules! fields {
    ($to:ident, $at:expr, $layout:ident {
        $($field:ident $([$high:literal:$low:literal])? $name:literal: $meaning:expr;)*
    }) => {$({
        let bits: &[u16] = &[$($high, $low)?];
        $to.field(
            $at + std::mem::offset_of!($layout, $field),
            $crate::decode::fields::size_of_field(|layout: &$layout| &layout.$field),
            bits.try_into().ok(),
            $name,
            $meaning,
        );
    })*};
}
pub(super) use fields;

/// Adds fields of a layout that should be zero.
macro_rules! zeros {
    ($to:ident, $at:expr, $layout:ident { $($field:ident)* }) => {$(
        $to.zero(
            $at + std::mem::offset_of!($layout, $field),
            $crate::decode::fields::size_of_field(|layout: &$layout| &layout.$field),
        );
    )*};
}
pub(super) use zeros;

pub(super) fn size_of_field<L, F>(_: fn(&L) -> &F) -> usize {
    size_of::<F>()
}

/// The value of a field, or of some bits of it.
fn raw(bytes: &[u8], bits: Option<[u16; 2]>) -> String {
    if bytes.len() > 8 {
        return hex(bytes);
    }
    let number = bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    let (number, width) = match bits {
        Some([high, low]) if usize::from(high) < 8 * bytes.len() => {
            let width = u32::from(high - low) + 1;
            let mask = u64::MAX >> (64 - width);
            (number >> low & mask, width.div_ceil(4) as usize)
        }
        _ => (number, 2 * bytes.len()),
    };
    format!("{number:#0width$x}", width = width + 2)
}

/// Bytes as hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes {
        // A string takes all that is written to it.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

pub(super) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Whether a field's value is 0.
pub(crate) fn is_zeros(raw: &str) -> bool {
    raw.trim_start_matches("0x")
        .bytes()
        .all(|digit| digit == b'0')
}

/// Bytes that no layout describes.
pub(super) fn undescribed(title: &str, bytes: &[u8], base: usize) -> Structure {
    let mut reader = Reader::new(bytes, base);
    reader.field(0, bytes.len(), None, "bytes", "not described");
    reader.finish(title, bytes.len())
}

/// The end of a queue's bytes that is less than one entry.
pub(super) fn torn(what: &str, needed: usize, bytes: &[u8], base: usize) -> Structure {
    let mut reader = Reader::new(bytes, base);
    reader.field(
        0,
        bytes.len(),
        None,
        "bytes",
        format!("the beginning of a {what}"),
    );
    reader.error(
        0,
        format!(
            "{} {} left, but a {what} has {needed}: the bytes end in the middle of one",
            bytes.len(),
            if bytes.len() == 1 {
                "byte is"
            } else {
                "bytes are"
            },
        ),
    );
    reader.finish(format!("torn {what}"), bytes.len())
}
