use warpbell::kernel;
use warpbell_host_init::{Entry, Grid, Launch, entry};

fn plain(_: u64) {}

#[kernel]
unsafe fn trusting(_: u64) {}

fn main() {
    let _ = Launch::new_unsafe(entry!(trusting), Grid::ONE_THREAD, 0);
    // Kernels that nobody vouches for.
    let _: Entry<fn(u64)> = Entry::new("crate::plain", 0, plain);
    let _: Entry<fn(u64)> = Entry::foreign("plain", plain);
}
