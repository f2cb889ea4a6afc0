use warpbell::kernel;

#[kernel]
fn takes_a_trait_object(_action: &dyn Fn()) {}

fn main() {}
