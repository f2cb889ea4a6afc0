//! Kernels that the attribute must refuse.
//!
//! Each of them is checked, not built. So what must be accepted is a test of its own, beside this one: a program that
//! passes here has trybuild build all libraries again.

#[test]
fn refuses_what_cannot_cross_the_abi() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}
