//! A kernel with its grid and parameters, for a CPU's grid or a GPU's.

use std::ffi::c_void;
use std::fmt;
use std::time::Duration;

use warpbell::{Entry, Symbol};
use warpbell_cpu_grid::Grid;

use crate::{PersistingWindow, QueuePair};

/// The [`Entry`] of a kernel: of a function with `#[warpbell::kernel]`, and of no other.
///
/// ```
/// mod kernels {
///     #[warpbell::kernel]
///     pub fn add(_: u64) {}
/// }
///
/// assert_eq!(warpbell_host_init::entry!(kernels::add).symbol().name(), "add");
/// ```
#[macro_export]
macro_rules! entry {
    ($($path:tt)+) => {
        $($path)+::ENTRY
    };
}

/// A kernel, its grid, and its parameters, which may borrow what the kernel works with.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use warpbell_host_init::{Grid, Launch, Node, entry};
///
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// struct Count<'a> {
///     threads: &'a AtomicU64,
/// }
///
/// #[warpbell::kernel]
/// fn count(p: Count<'_>) {
///     p.threads.fetch_add(1, Ordering::Relaxed);
/// }
///
/// let threads = AtomicU64::new(0);
/// let launch = Launch::new(entry!(count), Grid::new(4, 64), Count { threads: &threads });
/// Node::cpu().run(&[launch], &[])?;
/// assert_eq!(threads.into_inner(), 256);
/// # Ok::<(), warpbell_host_init::Error>(())
/// ```
pub struct Launch<'a> {
    symbol: Symbol,
    /// The symbol as a module has it.
    entry: String,
    grid: Grid,
    window: Option<PersistingWindow>,
    parameters: Box<dyn Parameters + 'a>,
}

/// A structure together with the function that takes it.
trait Parameters: Sync {
    fn run(&self);
    fn bytes(&self) -> (*const c_void, usize);
}

/// The function is called with the parameters alone: one that is `unsafe` has its caller's promise.
struct Given<P> {
    run: unsafe fn(P),
    parameters: P,
}

impl<P: Copy + Sync> Parameters for Given<P> {
    fn run(&self) {
        // SAFETY: a safe function, or `Launch::new_unsafe` was promised what this one asks for.
        unsafe { (self.run)(self.parameters) };
    }

    fn bytes(&self) -> (*const c_void, usize) {
        ((&raw const self.parameters).cast(), size_of::<P>())
    }
}

impl<'a> Launch<'a> {
    /// A kernel with what it works on. For a GPU, all that the parameters point to lies where the GPU reaches
    /// it: in a [`Buffer`](crate::Buffer), a [`Shared`](crate::Shared) value or a queue that is
    /// [pinned](crate::Placement::Pinned) or the GPU's own.
    ///
    /// The parameters are what the kernel's own types allow, as with a call of the function: a kernel that is not
    /// `unsafe` must be sound for every value of them, whatever the grid. One whose soundness rests on its parameters,
    /// as with a raw pointer, is an `unsafe fn`, which [`new_unsafe`](Self::new_unsafe) launches.
    ///
    /// A structure of queue handles, [`Slice`](warpbell::Slice)s, [`Words`](warpbell::Words), references to atomics and
    /// plain values needs no `unsafe`, in the kernel and in its host program. What the parameters borrow outlives the
    /// launch:
    ///
    /// ```compile_fail,E0505
    /// # use warpbell_host_init::{Access, Grid, Launch, Node, entry};
    /// #[warpbell::kernel]
    /// fn clear(words: warpbell::Words<'_>) {
    ///     words.store(0, 0);
    /// }
    ///
    /// let region = Node::cpu().domain()?.allocate(8, Access::LOCAL_WRITE)?;
    /// let launch = Launch::new(entry!(clear), Grid::ONE_THREAD, region.words()?);
    /// drop(region);
    /// Node::cpu().run(&[launch], &[])?;
    /// # Ok::<(), warpbell_host_init::Error>(())
    /// ```
    ///
    /// and what threads cannot share is refused:
    ///
    /// ```compile_fail,E0277
    /// # use std::cell::Cell;
    /// # use warpbell_host_init::{Grid, Launch, entry};
    /// #[warpbell::kernel]
    /// fn count(cells: warpbell::Slice<'_, Cell<u32>>) {}
    ///
    /// let cells = [Cell::new(0)];
    /// Launch::new(entry!(count), Grid::ONE_THREAD, warpbell::Slice::new(&cells));
    /// ```
    pub fn new<P: Copy + Sync + 'a>(entry: Entry<fn(P)>, grid: Grid, parameters: P) -> Self {
        Self::of(entry.symbol(), entry.function(), grid, parameters)
    }

    /// The same with a kernel that is an `unsafe fn`.
    ///
    /// # Safety
    /// What the kernel asks for holds in each thread of the grid, whenever the launch is run.
    pub unsafe fn new_unsafe<P: Copy + Sync + 'a>(
        entry: Entry<unsafe fn(P)>,
        grid: Grid,
        parameters: P,
    ) -> Self {
        Self::of(entry.symbol(), entry.function(), grid, parameters)
    }

    fn of<P>(symbol: Symbol, run: unsafe fn(P), grid: Grid, parameters: P) -> Self
    where
        P: Copy + Sync + 'a,
    {
        Self {
            symbol,
            entry: symbol.to_string(),
            grid,
            window: None,
            parameters: Box::new(Given { run, parameters }),
        }
    }

    /// The same launch, whose kernel keeps this memory in the GPU's L2 cache.
    #[must_use]
    pub fn persisting(self, window: PersistingWindow) -> Self {
        let window = Some(window);
        Self { window, ..self }
    }

    /// The memory that the kernel keeps in the L2 cache.
    pub(crate) fn window(&self) -> Option<PersistingWindow> {
        self.window
    }

    /// The kernel's name.
    pub fn name(&self) -> &'static str {
        self.symbol.name()
    }

    /// The name of its entry in a module.
    pub fn symbol(&self) -> Symbol {
        self.symbol
    }

    /// The same, written out.
    pub(crate) fn entry(&self) -> &str {
        &self.entry
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
            .field("kernel", &self.symbol)
            .field("grid", &self.grid)
            .finish_non_exhaustive()
    }
}

/// How long kernels may stand still, and what is said of one that does.
#[derive(Clone, Copy, Debug)]
pub struct Watch<'w> {
    /// How long nothing may be posted to the queues, and nothing completed; without queues, how long the
    /// kernels may run. Kernels that wait have deadlines of their own; this is for those that forget them.
    /// It is noticed late by at most a quarter.
    pub limit: Duration,
    /// Whether the host sleeps from the start, beside kernels that stay for long: it has hardly any of a core then, and
    /// may notice an end late by 10 ms.
    pub asleep: bool,
    /// The queue pairs that they use. The outstanding work requests of one that stands still are named.
    pub queue_pairs: &'w [&'w QueuePair],
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

    #[warpbell::kernel]
    fn add(p: Add<'_>) {
        p.sum.fetch_add(p.value, Ordering::Relaxed);
    }

    /// Another kernel of the same name.
    mod inner {
        pub mod most {
            #[warpbell::kernel]
            pub fn add(_: super::super::Add<'_>) {}
        }
    }

    #[test]
    fn an_entry_has_its_functions_own_path() {
        let path = entry!(add).symbol().path();
        assert_eq!(path, concat!(module_path!(), "::add"));
        let other = entry!(inner::most::add).symbol();
        assert_eq!(other.path(), concat!(module_path!(), "::inner::most::add"));
        assert_eq!(other.name(), "add");
    }

    #[test]
    fn an_unsafe_kernel_is_launched_by_an_unsafe_function() {
        #[warpbell::kernel]
        unsafe fn set(word: *mut u64, to: u64) {
            // SAFETY: the caller's promise.
            unsafe { *word = to };
        }
        let mut word = 0;
        // SAFETY: the word is there, and nobody else's.
        unsafe { entry!(set).function()(&raw mut word, 7) };
        assert_eq!(word, 7);

        #[repr(transparent)]
        #[derive(Clone, Copy)]
        struct Place(*mut u64);
        // SAFETY: a test of one thread.
        unsafe impl Sync for Place {}
        #[warpbell::kernel]
        unsafe fn clear(place: Place) {
            // SAFETY: the caller's promise.
            unsafe { *place.0 = 0 };
        }
        let place = Place(&raw mut word);
        // SAFETY: as above.
        unsafe { Launch::new_unsafe(entry!(clear), Grid::ONE_THREAD, place) }.run_thread();
        assert_eq!(word, 0);
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
