use warpbell::kernel;

type Values<'a> = &'a [u32];

#[kernel]
fn takes_a_slice(_values: Values<'_>) {}

// A macro makes it, so that the attribute does not see its definition.
macro_rules! make {
    ($name:ident) => {
        #[derive(Clone, Copy)]
        struct $name(*mut u32, u32);
    };
}
make!(RustLayout);

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
