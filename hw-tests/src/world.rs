//! Where kernels run.

use std::thread;

use warpbell_cpu_grid::{Dim, LaneOrder, Options};
use warpbell_kernels::suite::Kernel;

/// Where kernels run, and how.
#[derive(Clone, Copy, Debug)]
pub enum World {
    /// On the CPU, a warp's lanes in this order.
    Cpu(LaneOrder),
}

impl World {
    /// A CPU whose lanes run from the lowest to the highest.
    pub const CPU: Self = Self::Cpu(LaneOrder::Ascending);

    /// The same CPU in all its lane orders.
    pub const CPU_ORDERS: [Self; 3] = [
        Self::CPU,
        Self::Cpu(LaneOrder::Descending),
        Self::Cpu(LaneOrder::Random(0x5eed)),
    ];

    /// Runs a kernel to its end; one that panics, diverges or hangs ends the test.
    pub fn launch(self, grid: Dim, kernel: &impl Kernel) {
        let Self::Cpu(order) = self;
        let options = Options {
            order,
            ..Options::default()
        };
        if let Err(error) = warpbell_cpu_grid::launch(grid, options, || kernel.run()) {
            panic!("{}: {error}", name(kernel));
        }
    }

    /// Runs two kernels at the same time, as on two streams.
    pub fn launch_both(self, one: (Dim, &impl Kernel), other: (Dim, &impl Kernel)) {
        thread::scope(|scope| {
            scope.spawn(|| self.launch(one.0, one.1));
            self.launch(other.0, other.1);
        });
    }
}

fn name<K: Kernel>(_: &K) -> &'static str {
    K::NAME
}

/// A grid of one dimension.
pub const fn grid(blocks: u32, threads_per_block: u32) -> Dim {
    Dim {
        blocks,
        threads_per_block,
    }
}

/// The grid of one thread.
pub const ONE_THREAD: Dim = grid(1, 1);
