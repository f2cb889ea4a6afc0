//! Which threads make a team's calls together.

use warpbell::{Block, Scope, Warp, block, thread};

/// The threads that make a team's calls together: a [`Warp`], a [`Block`] or a [`Grid`].
///
/// A grid's blocks are its units, each with a channel of its own, and each does its part of the call; a warp or a block is
/// one unit. All threads make each call, at the same point and with the same arguments, and all get its result.
pub trait Extent: sealed::Sealed {
    /// The threads that share a channel.
    type Unit: Scope;

    /// Whether there may be several units.
    const WIDE: bool;

    /// How many units there are.
    fn units() -> u32;

    /// The number of this thread's unit, from 0.
    fn unit() -> u32;
}

/// All blocks of a kernel's grid together. All of them must be resident: they wait for each other.
#[derive(Clone, Copy, Debug)]
pub enum Grid {}

impl Extent for Warp {
    type Unit = Self;
    const WIDE: bool = false;

    #[inline(always)]
    fn units() -> u32 {
        1
    }

    #[inline(always)]
    fn unit() -> u32 {
        0
    }
}

impl Extent for Block {
    type Unit = Self;
    const WIDE: bool = false;

    #[inline(always)]
    fn units() -> u32 {
        1
    }

    #[inline(always)]
    fn unit() -> u32 {
        0
    }
}

impl Extent for Grid {
    type Unit = Block;
    const WIDE: bool = true;

    #[inline(always)]
    fn units() -> u32 {
        thread::grid_dim_x() * thread::grid_dim_y() * thread::grid_dim_z()
    }

    #[inline(always)]
    fn unit() -> u32 {
        block::index()
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for warpbell::Warp {}
    impl Sealed for warpbell::Block {}
    impl Sealed for super::Grid {}
}
