//! What is measured: issue by issue a way to post, the floor that it is compared with, and what is wanted of it.

use warpbell_host_init::Grid;

/// A kernel that posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    ExclusiveThread,
    ExclusiveWarp,
    ExclusiveBlock,
    BlockThread,
    BlockWarp,
    GpuThread,
    GpuWarp,
    ExclusiveBatch,
    ExclusiveInline,
    ExclusiveSignal,
    GpuInline,
    GpuSignal,
    UncheckedThread,
    UncheckedBlock,
    TracedThread,
    TracedWarp,
    TracedGpuThread,
}

impl Way {
    /// The same without a trace, if it has one.
    pub const fn untraced(self) -> Option<Self> {
        match self {
            Self::TracedThread => Some(Self::ExclusiveThread),
            Self::TracedWarp => Some(Self::ExclusiveWarp),
            Self::TracedGpuThread => Some(Self::GpuThread),
            _ => None,
        }
    }

    /// Whether a post looks at the credit.
    pub const fn checks_credit(self) -> bool {
        !matches!(self, Self::UncheckedThread | Self::UncheckedBlock)
    }
}

/// A kernel that posts by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    Thread,
    Warp,
    Block,
}

/// What a figure is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wanted {
    /// At most so many times the floor of the same run.
    Ratio(f64),
    /// At most so many cycles a WQE.
    Cycles(f64),
    /// At most so many cycles a WQE more than the floor of the same run.
    More(f64),
    /// At least so many million WQEs a second.
    Rate(f64),
}

/// Threads, and how they share queues.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub grid: Grid,
    /// How many threads in a row use one queue.
    pub threads_per_queue: u32,
    /// WQEs that a thread posts under one doorbell.
    pub batch: u32,
}

impl Shape {
    const fn new(blocks: u32, threads: u32, threads_per_queue: u32) -> Self {
        let grid = Grid::new(blocks, threads);
        Self {
            grid,
            threads_per_queue,
            batch: 1,
        }
    }

    const fn batch(self, batch: u32) -> Self {
        Self { batch, ..self }
    }

    pub const fn threads(&self) -> u32 {
        self.grid.blocks * self.grid.threads_per_block
    }

    pub const fn queues(&self) -> u32 {
        self.threads().div_ceil(self.threads_per_queue)
    }

    /// WQEs of each queue for a post of each thread.
    pub const fn wqes_per_post(&self) -> u32 {
        self.threads_per_queue * self.batch
    }
}

/// A way to post.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    pub way: Way,
    pub shape: Shape,
    /// The floor's threads, where they are others.
    pub floor: Shape,
    /// What is wanted with a doorbell record.
    pub with_record: Option<Wanted>,
    /// The same without one.
    pub without_record: Option<Wanted>,
}

const ONE: Shape = Shape::new(1, 1, 1);

const fn case(name: &'static str, way: Way, shape: Shape) -> Case {
    Case {
        name,
        way,
        shape,
        floor: shape,
        with_record: None,
        without_record: None,
    }
}

impl Case {
    /// The floor's kernel: as many threads post together.
    pub fn hand(&self) -> Hand {
        match self.way {
            Way::ExclusiveWarp | Way::BlockWarp | Way::GpuWarp | Way::TracedWarp => Hand::Warp,
            Way::ExclusiveBlock | Way::UncheckedBlock => Hand::Block,
            _ => Hand::Thread,
        }
    }

    /// Whether one thread, or one that posts together with others, has each queue to itself.
    pub fn is_alone(&self) -> bool {
        self.shape.threads_per_queue == self.together()
    }

    /// How many threads post together.
    pub fn together(&self) -> u32 {
        match self.hand() {
            Hand::Thread => 1,
            Hand::Warp => 32,
            Hand::Block => self.shape.grid.threads_per_block,
        }
    }

    const fn want(self, wanted: Wanted) -> Self {
        Self {
            with_record: Some(wanted),
            ..self
        }
    }

    const fn want_without(self, wanted: Wanted) -> Self {
        Self {
            without_record: Some(wanted),
            ..self
        }
    }

    const fn over(self, floor: Shape) -> Self {
        Self { floor, ..self }
    }
}

/// All ways, on a GPU with so many SMs.
pub fn all(multiprocessors: u32) -> Vec<Case> {
    use Wanted::{Cycles, More, Rate, Ratio};
    use Way as W;
    let warp = Shape::new(1, 32, 32);
    let block = |threads| Shape::new(1, threads, threads);
    let one_queue = |blocks, threads| Shape::new(blocks, threads, blocks * threads);
    let own_queues = |warps: u32| Shape::new(1, 32 * warps, 32);
    vec![
        case("thread, exclusive", W::ExclusiveThread, ONE)
            .want(Ratio(1.08))
            .want_without(Ratio(1.08)),
        // gpunetio's.
        case("thread, exclusive, unchecked", W::UncheckedThread, ONE)
            .want(Cycles(1333.0))
            .want_without(Cycles(741.0)),
        case("thread, exclusive, traced / untraced", W::TracedThread, ONE)
            .want(More(60.0))
            .want_without(More(60.0)),
        case(
            "thread, GPU-shared, traced / untraced",
            W::TracedGpuThread,
            ONE,
        )
        .want(More(60.0))
        .want_without(More(60.0)),
        // For a warp's 32 WQEs there is one event.
        case(
            "warp, one doorbell, exclusive, traced / untraced",
            W::TracedWarp,
            warp,
        )
        .want(More(60.0 / 32.0)),
        case("thread, block-shared", W::BlockThread, ONE),
        case("thread, GPU-shared", W::GpuThread, ONE)
            .want(Cycles(2050.0))
            .want_without(Cycles(1500.0)),
        case("warp, one doorbell, exclusive", W::ExclusiveWarp, warp).want(Cycles(46.0)),
        case("warp, one doorbell, block-shared", W::BlockWarp, warp).want(Cycles(60.0)),
        case("warp, one doorbell, GPU-shared", W::GpuWarp, warp).want(Cycles(70.0)),
        case("block of 128, one doorbell", W::ExclusiveBlock, block(128)).want(Cycles(12.0)),
        // gpunetio's.
        case(
            "block of 128, one doorbell, unchecked",
            W::UncheckedBlock,
            block(128),
        )
        .want(Cycles(15.0)),
        case("block of 256, one doorbell", W::ExclusiveBlock, block(256)),
        case(
            "8 warps of a block, one queue, block-shared",
            W::BlockWarp,
            one_queue(1, 256),
        )
        .over(warp),
        case(
            "8 warps of a block, one queue, GPU-shared",
            W::GpuWarp,
            one_queue(1, 256),
        )
        .over(warp),
        case(
            "32 threads of a warp, each its own, GPU-shared",
            W::GpuThread,
            warp,
        )
        .over(ONE)
        .want(Cycles(100.0)),
        case(
            "256 threads of a block, each its own, GPU-shared",
            W::GpuThread,
            block(256),
        )
        .over(ONE),
        case(
            "8 blocks, one queue, a thread each",
            W::GpuThread,
            one_queue(8, 1),
        )
        .over(ONE),
        case(
            "8 blocks of 32 threads, each its own, one queue",
            W::GpuThread,
            one_queue(8, 32),
        )
        .over(ONE),
        case(
            "16 blocks, one queue, a thread each",
            W::GpuThread,
            one_queue(16, 1),
        )
        .over(ONE),
        case(
            "16 blocks, one queue, a warp each",
            W::GpuWarp,
            one_queue(16, 32),
        )
        .over(warp),
        case("thread, batch of 8", W::ExclusiveBatch, ONE.batch(8)),
        case("thread, batch of 32", W::ExclusiveBatch, ONE.batch(32)),
        case("thread, 8 bytes inline", W::ExclusiveInline, ONE),
        case("thread, 8 bytes inline, GPU-shared", W::GpuInline, ONE),
        case("thread, write and signal", W::ExclusiveSignal, ONE.batch(2)),
        case(
            "thread, write and signal, GPU-shared",
            W::GpuSignal,
            ONE.batch(2),
        ),
        case(
            "8 warps of one SM, own queues",
            W::ExclusiveWarp,
            own_queues(8),
        )
        .want(Rate(250.0)),
        case(
            "20 warps of one SM, own queues",
            W::ExclusiveWarp,
            // As many as fitted when a thread of this kernel took 84 registers: 768 threads have 85 each.
            own_queues(20),
        )
        .want(Rate(450.0)),
        case(
            "all SMs, a warp and a queue each",
            W::ExclusiveWarp,
            Shape::new(multiprocessors, 32, 32),
        ),
        case(
            "all SMs × 8 warps, own queues",
            W::ExclusiveWarp,
            Shape::new(multiprocessors, 256, 32),
        )
        .want(Rate(15_000.0)),
    ]
}
