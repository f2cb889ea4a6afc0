//! How a queue is opened, as data; a kernel picks the type that belongs to it.

/// Who else uses a queue: the value for a type that implements [`warpbell::Sharing`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharingKind {
    /// [`warpbell::Exclusive`].
    Exclusive,
    /// [`warpbell::BlockShared`].
    BlockShared,
    /// [`warpbell::GpuShared`].
    GpuShared,
}

impl SharingKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Exclusive, Self::BlockShared, Self::GpuShared];
}

/// Who calls together: the value for a type that implements [`warpbell::Scope`].
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeKind {
    /// [`warpbell::Thread`].
    Thread,
    /// [`warpbell::Warp`].
    Warp,
    /// [`warpbell::Block`].
    Block,
}

impl ScopeKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Thread, Self::Warp, Self::Block];
}

/// What rings the doorbell.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoorbellKind {
    /// Each post.
    Now,
    /// By a [`warpbell::Batch`] for each request (of each thread of the scope).
    Batch,
}

impl DoorbellKind {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Now, Self::Batch];
}

/// How a queue is opened.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Who else uses it.
    pub sharing: SharingKind,
    /// Who calls together.
    pub scope: ScopeKind,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 9] = {
        let mut all = [Self {
            sharing: SharingKind::Exclusive,
            scope: ScopeKind::Thread,
        }; 9];
        let mut at = 0;
        while at < 9 {
            all[at] = Self {
                sharing: SharingKind::ALL[at / 3],
                scope: ScopeKind::ALL[at % 3],
            };
            at += 1;
        }
        all
    };
}

/// Calls `$run::<S, C>` with the types that belong to a [`Mode`].
macro_rules! by_mode {
    ($mode:expr, $run:ident($($argument:expr),*)) => {{
        use warpbell::{Block, BlockShared, Exclusive, GpuShared, Thread, Warp};
        use $crate::suite::mode::{ScopeKind as C, SharingKind as S};
        match ($mode.sharing, $mode.scope) {
            (S::Exclusive, C::Thread) => $run::<Exclusive, Thread>($($argument),*),
            (S::Exclusive, C::Warp) => $run::<Exclusive, Warp>($($argument),*),
            (S::Exclusive, C::Block) => $run::<Exclusive, Block>($($argument),*),
            (S::BlockShared, C::Thread) => $run::<BlockShared, Thread>($($argument),*),
            (S::BlockShared, C::Warp) => $run::<BlockShared, Warp>($($argument),*),
            (S::BlockShared, C::Block) => $run::<BlockShared, Block>($($argument),*),
            (S::GpuShared, C::Thread) => $run::<GpuShared, Thread>($($argument),*),
            (S::GpuShared, C::Warp) => $run::<GpuShared, Warp>($($argument),*),
            (S::GpuShared, C::Block) => $run::<GpuShared, Block>($($argument),*),
        }
    }};
}

pub(super) use by_mode;
