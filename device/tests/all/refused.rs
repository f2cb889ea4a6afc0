//! What safe code must not be able to write.
#![cfg(not(any(loom, miri)))]

#[test]
fn safe_code_reaches_no_machinery() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
