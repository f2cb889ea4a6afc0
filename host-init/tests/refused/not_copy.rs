use warpbell::kernel;

#[repr(C)]
struct Owned(u32);

#[kernel]
fn takes_what_is_owned(_owned: Owned) {}

fn main() {}
