use warpbell::kernel;

#[kernel]
fn takes_a_slice(_values: &[u32]) {}

#[kernel]
fn takes_a_mutable_slice(_values: &mut [u32]) {}

#[kernel]
fn takes_a_raw_slice(_values: *const [u32]) {}

#[kernel]
fn takes_a_str(_text: &'static str) {}

#[kernel]
fn takes_a_slice_in_a_tuple(_both: (u32, &[u32])) {}

fn main() {}
