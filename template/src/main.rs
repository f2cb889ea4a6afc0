//! The host: `cargo run` on a CPU, `cargo run --features gpu` on a GPU.
use my_app::{Sums, block_sums};
use warpbell::Slice;
use warpbell_host_init::{Access, Error, Grid, Launch, Node, QueuePairConfig, built, entry};

fn main() -> Result<(), Error> {
    let node = Node::for_kernels(built!())?;
    let [near, far] = node.ends()?;
    let numbers = node.shared_slice(4 * 64, |index| index as u64)?;
    let sums = near.allocate(4 * 8, Access::LOCAL_WRITE)?;
    let arrived = far.allocate(4 * 16, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let (ours, _theirs) = near.connected(&far, &QueuePairConfig::granting(Access::REMOTE_WRITE))?;
    let parameters = Sums {
        numbers: Slice::new(&numbers),
        sums: sums.words()?,
        queue: ours.send_queue()?,
        to: arrived.remote().at(0, 4 * 16)?,
    };
    node.run(&[Launch::new(entry!(block_sums), Grid::new(4, 64), parameters)], &[&ours])?;
    let arrived = arrived.read_words(0, 2 * 4)?;
    assert!((0..4).all(|block| arrived[2 * block + 1] == 1), "a sum did not come");
    println!("sums {:?}\nTest OK", [0, 1, 2, 3].map(|block| arrived[2 * block]));
    Ok(())
}
