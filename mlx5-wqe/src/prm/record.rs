//! Records: structures whose bytes are described bit by bit, and the commands and answers among them.

use super::bits::Field;
use super::codes::{CommandOpcode, CommandStatus};
use crate::units::{CqNumber, QpNumber};

/// Why a record was not written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PrmError {
    /// A value needs more bits than its field has.
    #[error("{field} has {bits} bits, too few for {value:#x}")]
    TooWide {
        /// The field.
        field: &'static str,
        /// What it was to hold.
        value: u64,
        /// Its bits.
        bits: usize,
    },
    /// There are fewer bytes than the record has.
    #[error("{record} has {needed} bytes, but {given} were given")]
    Short {
        /// The record.
        record: &'static str,
        /// Its bytes.
        needed: usize,
        /// Bytes given.
        given: usize,
    },
    /// The bytes are another command.
    #[error("the command is {found}, not {expected}")]
    OtherCommand {
        /// The opcode of the command that was to be read.
        expected: CommandOpcode,
        /// The opcode in the bytes.
        found: CommandOpcode,
    },
    /// The card refused the command.
    #[error("{0}")]
    Refused(Refusal),
}

/// Why the card refused a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the card refused: {} (status {:#04x}), syndrome {syndrome:#010x}",
    status.name().unwrap_or("unknown"),
    status.0
)]
pub struct Refusal {
    /// What kind of fault.
    pub status: CommandStatus,
    /// The firmware's own number for it; no list of them is public.
    pub syndrome: u32,
}

impl Refusal {
    /// The answer that says so, for whoever plays the card.
    pub const fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        STATUS.set(&mut bytes, self.status.0 as u64);
        SYNDROME.set(&mut bytes, self.syndrome as u64);
        bytes
    }
}

/// A structure that the card's reference manual describes bit by bit.
///
/// Bytes of a record that no field covers are written as 0 and not read.
pub trait Record: Copy + Sized {
    /// Its name in `mlx5_ifc.h`, without `mlx5_ifc_` and `_bits`.
    const NAME: &'static str;
    /// Its size.
    const BYTES: usize;
    /// What all records of its kind begin with: a command's opcode, an answer's status and syndrome.
    const HEAD: &'static [Field];
    /// Its other fields.
    const FIELDS: &'static [Field];

    /// Writes the record to the start of `bytes`.
    ///
    /// # Errors
    /// [`PrmError::TooWide`] and [`PrmError::Short`]; the bytes may then be half written.
    fn write(&self, bytes: &mut [u8]) -> Result<(), PrmError>;

    /// Reads the record from the start of `bytes`.
    ///
    /// # Errors
    /// [`PrmError::Short`]; of a command [`PrmError::OtherCommand`]; of an answer
    /// [`PrmError::Refused`].
    fn read(bytes: &[u8]) -> Result<Self, PrmError>;
}

/// A command to the card.
pub trait Command: Record {
    /// Its opcode.
    const OPCODE: CommandOpcode;
    /// What the card answers.
    type Answer: Record;
}

pub(super) const OPCODE: Field = Field {
    name: "opcode",
    offset: 0,
    width: 16,
};
pub(super) const STATUS: Field = Field {
    name: "status",
    offset: 0,
    width: 8,
};
pub(super) const SYNDROME: Field = Field {
    name: "syndrome",
    offset: 32,
    width: 32,
};

/// The opcode of the command that these bytes are, or `None` if they are too few.
pub fn command_opcode(bytes: &[u8]) -> Option<CommandOpcode> {
    let opcode = bytes.first_chunk()?;
    Some(CommandOpcode(u16::from_be_bytes(*opcode)))
}

/// A type that a field can have.
pub(super) trait Value: Copy {
    /// Writes the value where the field is.
    fn put(self, field: &Field, bytes: &mut [u8]) -> Result<(), PrmError>;
    /// Reads the value where the field is.
    fn take(field: &Field, bytes: &[u8]) -> Result<Self, PrmError>;
}

/// Writes a number that may be too wide for its field.
pub(super) fn put_number(value: u64, field: &Field, bytes: &mut [u8]) -> Result<(), PrmError> {
    if !field.fits(value) {
        return Err(PrmError::TooWide {
            field: field.name,
            value,
            bits: field.width,
        });
    }
    field.set(bytes, value);
    Ok(())
}

/// Gives a type its passage to and from a field, by way of a `u64`.
macro_rules! number_values {
    ($($type:ty: $to:expr, $from:expr;)*) => {$(
        impl $crate::prm::record::Value for $type {
            fn put(
                self,
                field: &$crate::prm::Field,
                bytes: &mut [u8],
            ) -> Result<(), $crate::prm::PrmError> {
                let to: fn($type) -> u64 = $to;
                $crate::prm::record::put_number(to(self), field, bytes)
            }

            fn take(
                field: &$crate::prm::Field,
                bytes: &[u8],
            ) -> Result<Self, $crate::prm::PrmError> {
                let from: fn(u64) -> $type = $from;
                Ok(from(field.get(bytes)))
            }
        }
    )*};
}
pub(super) use number_values;

number_values! {
    bool: |value| value as u64, |value| value != 0;
    u8: |value| value as u64, |value| value as u8;
    u16: |value| value as u64, |value| value as u16;
    u32: |value| value as u64, |value| value as u32;
    u64: |value| value, |value| value;
    QpNumber: |value| value.get() as u64, |value| QpNumber::from_low_bits(value as u32);
    CqNumber: |value| value.get() as u64, |value| CqNumber::from_low_bits(value as u32);
}

impl Value for [u8; 16] {
    fn put(self, field: &Field, bytes: &mut [u8]) -> Result<(), PrmError> {
        for (byte, field) in self.iter().zip(bytes_of(field)) {
            field.set(bytes, u64::from(*byte));
        }
        Ok(())
    }

    fn take(field: &Field, bytes: &[u8]) -> Result<Self, PrmError> {
        let mut value = [0; 16];
        for (byte, field) in value.iter_mut().zip(bytes_of(field)) {
            *byte = field.get(bytes) as u8;
        }
        Ok(value)
    }
}

/// The bytes of a field that is one of bytes.
fn bytes_of(field: &Field) -> impl Iterator<Item = Field> {
    let Field {
        name,
        offset,
        width,
    } = *field;
    (0..width / 8).map(move |byte| Field {
        name,
        offset: offset + byte * 8,
        width: 8,
    })
}

/// Writes a record within another.
pub(super) fn put_record(
    record: impl Record,
    field: &Field,
    bytes: &mut [u8],
) -> Result<(), PrmError> {
    record.write(bytes.get_mut(place(field)).unwrap_or_default())
}

/// Reads a record within another.
pub(super) fn take_record<R: Record>(field: &Field, bytes: &[u8]) -> Result<R, PrmError> {
    R::read(bytes.get(place(field)).unwrap_or_default())
}

/// The bytes of a field that is a record; such a field begins at a byte.
fn place(field: &Field) -> core::ops::Range<usize> {
    field.offset / 8..(field.offset + field.width) / 8
}

/// Fails where there are fewer bytes than a record has.
pub(super) const fn check_length<R: Record>(given: usize) -> Result<(), PrmError> {
    if given < R::BYTES {
        return Err(PrmError::Short {
            record: R::NAME,
            needed: R::BYTES,
            given,
        });
    }
    Ok(())
}

/// Fails where bytes are another command.
pub(super) const fn check_opcode<C: Command>(bytes: &[u8]) -> Result<(), PrmError> {
    let found = CommandOpcode(OPCODE.get(bytes) as u16);
    if found.0 != C::OPCODE.0 {
        return Err(PrmError::OtherCommand {
            expected: C::OPCODE,
            found,
        });
    }
    Ok(())
}

/// Fails where an answer is a refusal.
pub(super) const fn check_status(bytes: &[u8]) -> Result<(), PrmError> {
    let status = CommandStatus(STATUS.get(bytes) as u8);
    if status.0 != CommandStatus::OK.0 {
        let syndrome = SYNDROME.get(bytes) as u32;
        return Err(PrmError::Refused(Refusal { status, syndrome }));
    }
    Ok(())
}

/// Declares records in the form of [`layouts!`](crate::layout): the source, the size in bytes, and where each field
/// lies. Fields of records are rarely whole bytes, so that their offsets and widths are in bits.
///
/// There are three kinds: `command`, with its opcode and answer; `answer`; and `plain` for what lies within these.
macro_rules! records {
    ($(
        $(#[$doc:meta])*
        $kind:ident $(($opcode:ident => $answer:ty))? $name:ident = $theirs:literal, $bytes:literal {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $offset:literal, $width:literal;)*
        }
    )*) => {$(
        $(#[$doc])*
        #[doc = concat!("\n\n`", $theirs, "` of mlx5_ifc.h, ", $bytes, " bytes.")]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        const _: () = assert!($crate::prm::bits::are_sound($name::FIELDS, $bytes));

        impl $name {
            /// The record's bytes.
            ///
            /// # Errors
            /// [`PrmError::TooWide`] names the field whose value does not fit.
            pub fn to_bytes(&self) -> Result<[u8; $bytes], PrmError> {
                let mut bytes = [0; $bytes];
                self.write(&mut bytes)?;
                Ok(bytes)
            }

            /// The record that bytes begin with.
            ///
            /// # Errors
            /// As of [`Record::read`].
            pub fn from_bytes(bytes: &[u8]) -> Result<Self, PrmError> {
                Self::read(bytes)
            }
        }

        impl Record for $name {
            const NAME: &'static str = $theirs;
            const BYTES: usize = $bytes;
            const HEAD: &'static [Field] = records!(@head $kind);
            const FIELDS: &'static [Field] = &[
                $(Field { name: stringify!($field), offset: $offset, width: $width },)*
            ];

            fn write(&self, bytes: &mut [u8]) -> Result<(), PrmError> {
                record::check_length::<Self>(bytes.len())?;
                bytes[..$bytes].fill(0);
                records!(@write_head $kind, bytes);
                $({
                    const FIELD: Field =
                        Field { name: stringify!($field), offset: $offset, width: $width };
                    record::Value::put(self.$field, &FIELD, bytes)?;
                })*
                Ok(())
            }

            fn read(bytes: &[u8]) -> Result<Self, PrmError> {
                records!(@check_head $kind, bytes);
                record::check_length::<Self>(bytes.len())?;
                Ok(Self {
                    $($field: {
                        const FIELD: Field =
                            Field { name: stringify!($field), offset: $offset, width: $width };
                        record::Value::take(&FIELD, bytes)?
                    },)*
                })
            }
        }

        $(impl Command for $name {
            const OPCODE: CommandOpcode = CommandOpcode::$opcode;
            type Answer = $answer;
        })?

        records!(@value $kind $name);
    )*};

    (@head plain) => { &[] };
    (@head command) => { &[record::OPCODE] };
    (@head answer) => { &[record::STATUS, record::SYNDROME] };

    (@write_head command, $bytes:ident) => {
        record::OPCODE.set($bytes, Self::OPCODE.0 as u64);
    };
    (@write_head $other:ident, $bytes:ident) => {};

    (@check_head plain, $bytes:ident) => {};
    (@check_head command, $bytes:ident) => { record::check_opcode::<Self>($bytes)?; };
    (@check_head answer, $bytes:ident) => { record::check_status($bytes)?; };

    (@value plain $name:ident) => {
        impl record::Value for $name {
            fn put(self, field: &Field, bytes: &mut [u8]) -> Result<(), PrmError> {
                record::put_record(self, field, bytes)
            }

            fn take(field: &Field, bytes: &[u8]) -> Result<Self, PrmError> {
                record::take_record(field, bytes)
            }
        }
    };
    (@value $other:ident $name:ident) => {};
}
pub(super) use records;
