use warpbell::kernel;

#[kernel]
async fn is_async() {}

#[kernel]
const fn is_const() {}

#[kernel]
extern "C" fn has_an_abi() {}

#[kernel(block_dim = 1d)]
fn with_an_argument() {}

#[kernel]
struct NotAFunction;

fn main() {}
