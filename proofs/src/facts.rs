//! Tables of names and numbers: what the headers say, and what we say under the same names.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char};

/// Numbers by name: `structure` for a size, `structure.field` for an offset, `structure.field size`, or the name
/// of a constant. Sizes and offsets are in bytes, unless the table says bits.
pub type Facts = BTreeMap<String, u64>;

/// One row of an oracle's table, as `c/facts.h` has it.
#[repr(C)]
pub struct RawFact {
    name: *const c_char,
    value: u64,
}

/// Reads an oracle's table.
///
/// # Safety
/// `row` must be the first of a table that a row without a name ends; names must be C strings that live on.
pub unsafe fn read(mut row: *const RawFact) -> Facts {
    let mut facts = Facts::new();
    loop {
        // SAFETY: the caller says that rows follow until one without a name, at which the loop ends.
        let RawFact { name, value } = unsafe { row.read() };
        if name.is_null() {
            return facts;
        }
        // SAFETY: the caller says that a name is a C string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let earlier = facts.insert(name.clone().into_owned(), value);
        assert!(earlier.is_none(), "{name} stands in the table twice");
        // SAFETY: a row with a name is not the table's last.
        row = unsafe { row.add(1) };
    }
}

/// Every difference between our facts and theirs, a line each: other numbers, and names that one side lacks.
pub fn differences(ours: &Facts, theirs: &Facts) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, value) in theirs {
        match ours.get(name) {
            Some(our) if our == value => {}
            Some(our) => lines.push(format!("{name}: ours is {our:#x}, theirs is {value:#x}")),
            None => lines.push(format!(
                "{name}: theirs is {value:#x}, and nothing of ours is compared"
            )),
        }
    }
    for name in ours.keys().filter(|name| !theirs.contains_key(*name)) {
        lines.push(format!("{name}: theirs is not asked"));
    }
    lines
}

/// Panics with every difference, if there is one.
#[track_caller]
pub fn assert_same(ours: &Facts, theirs: &Facts) {
    assert!(!theirs.is_empty(), "the oracle says nothing");
    let lines = differences(ours, theirs);
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

/// Facts from a list of constants.
pub fn constants<const N: usize>(list: [(&str, u64); N]) -> Facts {
    let facts: Facts = list
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    assert_eq!(facts.len(), N, "a name stands in the list twice");
    facts
}

/// The size of what a function gives a reference to, in bytes.
pub fn field_size<Layout, Field>(_: fn(&Layout) -> &Field) -> u64 {
    size_of::<Field>() as u64
}

/// Sizes and offsets of layouts of ours under the names that a header has for them:
/// `Ours = "theirs" { our_field, our_field = "their_field" }`.
#[macro_export]
macro_rules! layouts {
    ($($layout:ty = $name:literal { $($field:ident $(= $theirs:literal)?),* $(,)? })*) => {{
        let mut facts = $crate::facts::Facts::new();
        $(
            facts.insert($name.to_owned(), size_of::<$layout>() as u64);
            $(
                let name = concat!($name, ".", $crate::layouts!(@name $field $($theirs)?));
                facts.insert(name.to_owned(), std::mem::offset_of!($layout, $field) as u64);
                let size = $crate::facts::field_size(|layout: &$layout| &layout.$field);
                facts.insert(format!("{name} size"), size);
            )*
        )*
        facts
    }};
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $theirs:literal) => { $theirs };
}
