use warpbell_host_init::entry;

fn plain(_: u64) {}

fn main() {
    let _ = entry!(plain);
}
