//! A kernel with its grid and parameters, for a CPU's grid or a GPU's.

use std::ffi::c_void;
use std::fmt;

/// A kernel that takes one structure by value: as a function for a CPU, and as the name of its entry in a PTX
/// module. Made by [`entry!`](crate::entry).
#[derive(Clone, Copy)]
pub struct Entry<F> {
    name: &'static str,
    run: F,
}

impl<F> Entry<F> {
    /// A kernel and its name.
    ///
    /// # Safety
    /// In every module that it is launched from, the entry `name` was built from the source of `run`, a
    /// function of one `repr(C)` structure.
    pub const unsafe fn new(name: &'static str, run: F) -> Self {
        Self { name, run }
    }

    /// The name of its entry.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl<F> fmt::Debug for Entry<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.name).finish()
    }
}

/// The [`Entry`] of a kernel: a function that `#[warpbell::kernel]` made an entry of the same name.
///
/// ```
/// mod kernels {
///     pub fn add(_: [u64; 2]) {}
/// }
///
/// assert_eq!(warpbell_host_init::entry!(kernels::add).name(), "add");
/// ```
#[macro_export]
macro_rules! entry {
    ($name:ident) => {
        // SAFETY: the attribute gives the entry the function's own name.
        unsafe { $crate::Entry::new(::core::stringify!($name), $name) }
    };
    ($($path:ident)::+) => {
        // SAFETY: as above.
        unsafe { $crate::Entry::new($crate::last_name(::core::stringify!($($path)::+)), $($path)::+) }
    };
}

/// The last name of a path, as `stringify!` writes it.
#[doc(hidden)]
pub const fn last_name(path: &'static str) -> &'static str {
    let bytes = path.as_bytes();
    let mut start = bytes.len();
    while start > 0 && bytes[start - 1] != b':' && bytes[start - 1] != b' ' {
        start -= 1;
    }
    path.split_at(start).1
}

/// How many threads run a kernel, in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Blocks of the grid.
    pub blocks: u32,
    /// Threads of each block.
    pub threads_per_block: u32,
}

impl Grid {
    /// One thread.
    pub const ONE_THREAD: Self = Self {
        blocks: 1,
        threads_per_block: 1,
    };

    /// Threads of all blocks.
    pub const fn threads(self) -> u64 {
        self.blocks as u64 * self.threads_per_block as u64
    }
}

/// A kernel, its grid, and its parameters, which may borrow what the kernel works with.
pub struct Launch<'a> {
    name: &'static str,
    grid: Grid,
    parameters: Box<dyn Parameters + 'a>,
}

/// A structure together with the function that takes it.
trait Parameters: Sync {
    fn run(&self);
    fn bytes(&self) -> (*const c_void, usize);
}

struct Given<F, P> {
    run: F,
    parameters: P,
}

impl<F: Fn(P) + Sync, P: Copy + Sync> Parameters for Given<F, P> {
    fn run(&self) {
        (self.run)(self.parameters);
    }

    fn bytes(&self) -> (*const c_void, usize) {
        ((&raw const self.parameters).cast(), size_of::<P>())
    }
}

impl<'a> Launch<'a> {
    /// A kernel with what it works on. For a GPU, all that the parameters point to lies where the GPU reaches
    /// it: in a [`Buffer`](crate::Buffer), a [`Shared`](crate::Shared) value or a queue that is
    /// [pinned](crate::Placement::Pinned) or the GPU's own.
    pub fn new<F, P>(entry: Entry<F>, grid: Grid, parameters: P) -> Self
    where
        F: Fn(P) + Sync + 'a,
        P: Copy + Sync + 'a,
    {
        let run = entry.run;
        Self {
            name: entry.name,
            grid,
            parameters: Box::new(Given { run, parameters }),
        }
    }

    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its grid.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// What each thread of a CPU's grid runs.
    pub fn run_thread(&self) {
        self.parameters.run();
    }

    /// The parameters as a GPU takes them: where they lie, and how many bytes they are.
    pub(crate) fn parameters(&self) -> (*const c_void, usize) {
        self.parameters.bytes()
    }
}

impl fmt::Debug for Launch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launch")
            .field("name", &self.name)
            .field("grid", &self.grid)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Add<'a> {
        sum: &'a AtomicU64,
        value: u64,
    }

    fn add(p: Add<'_>) {
        p.sum.fetch_add(p.value, Ordering::Relaxed);
    }

    mod inner {
        pub mod most {
            pub(in super::super) use super::super::add;
        }
    }

    #[test]
    fn an_entry_has_its_functions_own_name() {
        assert_eq!(entry!(add).name(), "add");
        assert_eq!(entry!(inner::most::add).name(), "add");
        assert_eq!(last_name("crate :: inner :: add"), "add");
    }

    #[test]
    fn every_thread_gets_the_parameters() {
        let sum = AtomicU64::new(0);
        let launch = Launch::new(
            entry!(add),
            Grid::ONE_THREAD,
            Add {
                sum: &sum,
                value: 7,
            },
        );
        launch.run_thread();
        launch.run_thread();
        assert_eq!(sum.load(Ordering::Relaxed), 14);
        let (start, bytes) = launch.parameters();
        assert_eq!(bytes, 16);
        // SAFETY: the bytes are those of the structure, which lives in `launch`.
        let words = unsafe { start.cast::<[u64; 2]>().read() };
        assert_eq!(words, [&raw const sum as u64, 7]);
    }
}
