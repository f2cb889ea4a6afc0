use warpbell::kernel;

#[kernel]
fn returns_a_number() -> u32 {
    7
}

fn main() {}
