use warpbell::kernel;

struct Within(u8, u64);

#[repr(C)]
#[derive(Clone, Copy)]
struct Outer<'a> {
    within: &'a Within,
}

// The compiler's lint sees through no reference.
#[kernel]
fn takes_a_reference(_outer: Outer<'_>) {}

fn main() {}
