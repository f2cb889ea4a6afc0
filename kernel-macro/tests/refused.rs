//! Kernels that the attribute must refuse, and one of each kind that it must take.

#[test]
fn refuses_what_cannot_cross_the_abi() {
    let tests = trybuild::TestCases::new();
    tests.pass("tests/accepted/*.rs");
    tests.compile_fail("tests/refused/*.rs");
}
