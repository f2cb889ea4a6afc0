use warpbell::kernel;

type Values<'a> = &'a [u32];

#[kernel]
fn takes_a_slice(_values: Values<'_>) {}

#[derive(Clone, Copy)]
struct RustLayout(*mut u32, u32);

#[kernel]
fn takes_a_rust_layout(_values: RustLayout) {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Outer<'a>(&'a str);

#[kernel]
fn takes_a_str_in_a_structure(_values: Outer<'_>) {}

#[kernel]
fn takes_an_array(_values: [u32; 2]) {}

fn main() {}
