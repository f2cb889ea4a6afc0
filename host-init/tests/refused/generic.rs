use warpbell::kernel;

#[kernel]
fn over_a_type<T: Copy>(_value: T) {}

#[kernel]
fn over_a_number<const N: usize>() {}

#[kernel]
fn over_what_implements(_value: impl Copy) {}

fn main() {}
