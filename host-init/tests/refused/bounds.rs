use warpbell::kernel;

#[kernel]
fn outlives<'a, 'b: 'a>(_one: &'a u64, _other: &'b u64) {}

#[kernel]
fn for_ever<'a>(_one: &'a u64)
where
    'a: 'static,
{
}

fn main() {}
