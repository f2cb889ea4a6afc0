use warpbell::kernel;
use warpbell_host_init::{Grid, Launch, entry};

#[kernel]
fn safe(_: u64) {}

#[kernel]
unsafe fn trusting(_: u64) {}

fn main() {
    // An unsafe kernel, as if it were safe.
    let _ = Launch::new(entry!(trusting), Grid::ONE_THREAD, 0);
    // A kernel with other parameters.
    let _ = Launch::new(entry!(safe), Grid::ONE_THREAD, [0u32; 2]);
}
