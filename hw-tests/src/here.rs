//! The node that this process tests, and what tests do with its kernels.

use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use warpbell_cpu_grid::{LaneOrder, Options};
use warpbell_host_init::{Error, Grid, Kernels, Launch, Nic, Node, QueuePair, Shared};
use warpbell_kernels::suite::{EndingWords, Kernel};
use warpbell_soft_hca_gpu::MemoryScope;

/// What the command line chose.
struct Here {
    node: Node,
    slower: u32,
}

static HERE: OnceLock<Here> = OnceLock::new();

/// How long a kernel on a GPU may take. Its own waits end before.
const LIMIT: Duration = Duration::from_secs(300);

/// Makes this the node that the process tests, with all time limits multiplied by `slower`. Returns false if the process
/// has a node already.
pub fn choose(node: &Node, slower: u32) -> bool {
    let node = node.with_limit(LIMIT * slower);
    HERE.set(Here { node, slower }).is_ok()
}

/// The chosen node. Without a choice, as in a benchmark: CPU threads, and a NIC on another thread.
fn here() -> &'static Here {
    HERE.get_or_init(|| Here {
        node: Node::cpu(),
        slower: 1,
    })
}

/// The node that this process tests. On CPU threads, lanes run from the lowest to the highest.
pub fn node() -> &'static Node {
    &here().node
}

/// Its kernels.
pub fn kernels() -> Kernels {
    node().kernels()
}

/// Its kernels in all lane orders that can be chosen.
pub fn in_each_order() -> Vec<Kernels> {
    match kernels() {
        Kernels::Cpu(options) => {
            let orders = [
                LaneOrder::Ascending,
                LaneOrder::Descending,
                LaneOrder::Random(0x5eed),
            ];
            let with = |order| Kernels::Cpu(Options { order, ..options });
            orders.map(with).to_vec()
        }
        gpu => vec![gpu],
    }
}

/// Whether the NIC is a software HCA that a CPU thread drives, to which tests give orders and which they ask.
pub fn takes_orders() -> bool {
    matches!(node().nic(), Nic::Soft(_))
}

/// How far a NIC whose engine is a kernel must reach: beyond its GPU where the other kernels are on another one.
pub fn reach() -> MemoryScope {
    match node().nic() {
        Nic::SoftGpu(options) => options.reach,
        _ => MemoryScope::Gpu,
    }
}

/// A time limit, as many times as long as the options say.
pub fn patient(limit: Duration) -> Duration {
    limit * here().slower
}

/// Values where kernels reach them.
pub fn shared<T>(count: usize, value: impl FnMut(usize) -> T) -> Shared<[T]> {
    node().shared_slice(count, value).expect("memory")
}

/// `count` times the same value, where kernels reach it; one at least, because an empty slice has no address.
pub fn values<T: Copy>(count: usize, value: T) -> Shared<[T]> {
    shared(count.max(1), |_| value)
}

/// `count` outcomes for a kernel to fill in.
pub fn outcomes(count: usize) -> Shared<[EndingWords]> {
    values(count, EndingWords::default())
}

/// Runs a kernel to its end; one that panics, diverges or hangs ends the test.
pub fn launch<K: Kernel>(kernels: Kernels, grid: Grid, kernel: &K) {
    if let Err(error) = run(kernels, &Launch::new(K::ENTRY, grid, *kernel)) {
        panic!("{}: {error}", K::ENTRY.symbol().name());
    }
}

/// Runs two kernels at the same time, as on two streams.
pub fn launch_both<K: Kernel, L: Kernel>(kernels: Kernels, one: (Grid, &K), other: (Grid, &L)) {
    match kernels {
        Kernels::Cpu(_) => thread::scope(|scope| {
            scope.spawn(|| launch(kernels, one.0, one.1));
            launch(kernels, other.0, other.1);
        }),
        Kernels::Gpu(_) => {
            let launches = [
                Launch::new(K::ENTRY, one.0, *one.1),
                Launch::new(L::ENTRY, other.0, *other.1),
            ];
            if let Err(error) = node().run(&launches, &[]) {
                let (one, other) = (K::ENTRY.symbol(), L::ENTRY.symbol());
                panic!("{} and {}: {error}", one.name(), other.name());
            }
        }
    }
}

/// Runs a kernel that may be none of the suite's to its end.
///
/// # Errors
/// A kernel that panics, diverges or hangs.
pub fn run(kernels: Kernels, launch: &Launch<'_>) -> Result<(), String> {
    let node = node().with_kernels(kernels);
    let ran = node.and_then(|node| node.run(std::slice::from_ref(launch), &[]));
    ran.map_err(|error| error.to_string())
}

/// Runs a kernel on this process's GPU. The kernel may stand still for at most `limit`.
///
/// # Errors
/// The fault that the watch found.
pub fn launch_watched<K: Kernel>(
    grid: Grid,
    kernel: &K,
    limit: Duration,
    queue_pairs: &[&QueuePair],
) -> Result<(), Error> {
    let launch = Launch::new(K::ENTRY, grid, *kernel);
    node().with_limit(limit).run(&[launch], queue_pairs)
}
