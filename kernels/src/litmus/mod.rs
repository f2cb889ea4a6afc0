//! Litmus tests: does a doorbell, a record or a CQE overtake what it tells of?
//!
//! Some blocks of a grid post through the library, one plays the NIC for them: it looks at the doorbell, or at the
//! record, and at once reads the newest WQE that it names. Each WQE carries its number in all four of its octowords,
//! so that one that is older than its index shows, and one that is torn, too. The other way round the NIC writes
//! data and a CQE, the last word last, and the block that waited for it reads both.
//!
//! | module | role |
//! |---|---|
//! | `post` | posts, through the library |
//! | `hand` | posts by hand, with a fault on purpose: what a test must find that can fail |
//! | `nic` | plays the NIC, and counts what came too late |
//! | `noise` | stores beside them, so that stores have to wait for each other |

mod hand;
mod nic;
mod noise;
mod post;

use warpbell::wqe::{Local, LocalKey, Remote, RemoteKey, Wqe};
use warpbell::{Ring, SendQueueHandle, Slice, Word64, WordExt, block, thread};

use crate::bare::BareQueue;
use crate::outcome::{Failure, Outcome};

pub use hand::suite_litmus_hand;
pub use noise::Noise;
pub use post::{
    suite_litmus_block, suite_litmus_completions_block, suite_litmus_completions_shared,
    suite_litmus_completions_thread, suite_litmus_completions_warp, suite_litmus_lanes,
    suite_litmus_lanes_alone, suite_litmus_shared, suite_litmus_thread, suite_litmus_warp,
};

/// A queue and its NIC.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pair<'a> {
    /// What is posted to, with collapsed completions.
    pub queue: SendQueueHandle<'a>,
    /// The same places as the NIC reads them, and who posts by hand writes them.
    pub places: BareQueue,
    /// The CQE: valid for as long as the kernel runs.
    pub completion: *const [Word64; 8],
    /// Takes the data that completions tell of: as valid.
    pub data: *const [Word64; 8],
}

// SAFETY: it only names places, whose words are atomic or handed on by the queue's protocol.
unsafe impl Send for Pair<'_> {}
// SAFETY: as above.
unsafe impl Sync for Pair<'_> {}

/// What is wrong on purpose.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// No fence between a WQE and the first word that tells of it. By hand alone.
    WqeUnfenced,
    /// No fence between record and doorbell. By hand alone.
    RecordUnfenced,
    /// The WQE behind the words that tell of it. By hand alone.
    WqeLast,
    /// The record behind the doorbell. By hand alone.
    RecordLast,
    /// No fence between data and CQE, and the CQE's last word.
    CompletionUnfenced,
    /// Data and CQE behind the CQE's last word.
    CompletionFirst,
    /// No acquire fence between the CQE and the reading of the data.
    NotAcquired,
}

/// A litmus test: each queue has a block that plays the NIC, and behind it those that post.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Litmus<'a> {
    /// The queues.
    pub pairs: Slice<'a, Pair<'a>>,
    /// Blocks that post to each queue.
    pub posters: u32,
    /// WQEs under a doorbell, at most.
    pub group: u32,
    /// Whether each WQE carries its number, and not a mark of who posted it.
    pub numbered: bool,
    /// Base-2 logarithm of the number of blocks of each ring.
    pub depth_log2: u8,
    /// Number of the queue pairs.
    pub qpn: u32,
    /// Whether the fences of who posts by hand and of the NIC reach the whole system, or the GPU alone.
    pub system: bool,
    /// Whether there is a doorbell record.
    pub record: bool,
    /// Whether the NIC looks at the record, and not at the doorbell.
    pub by_record: bool,
    /// What is wrong.
    pub fault: Fault,
    /// For how long WQEs are posted, in nanoseconds.
    pub run_ns: u64,
    /// Microseconds that each wait may take, and all that the NIC does.
    pub limit_us: u64,
    /// Where threads store that have nothing else to do.
    pub noise: Noise,
    /// A word for each block: 0 as long as it posts, then one more than its WQEs, or [`FAILED`].
    pub ended: Slice<'a, Word64>,
    /// What was seen of each queue: [`FOUND`] numbers.
    pub found: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Numbers for each queue, by their place.
pub const FOUND: usize = 8;
/// How often the NIC found a doorbell or a record that was new.
pub const LOOKS: u64 = 0;
/// Of these, how often the WQE was older than it.
pub const OLD_WQE: u64 = 1;
/// How often the record was older than the doorbell.
pub const OLD_RECORD: u64 = 2;
/// How often doorbell or record went back.
pub const WENT_BACK: u64 = 3;
/// How often data or CQE were older than the CQE's last word.
pub const OLD_DATA: u64 = 4;
/// The multiprocessor of the NIC.
pub const NIC_SM: u64 = 5;
/// That of the first block that posts.
pub const POSTER_SM: u64 = 6;

/// The word of a block that could not go on.
pub const FAILED: u64 = u64::MAX;

/// WQEs, or groups of them, between two looks at the clock.
const STRETCH: u32 = 64;

/// The WQE that carries `tag` in each octoword but the first, which has its index. Nobody executes it.
#[inline(always)]
fn marked(tag: u64) -> Wqe<1> {
    let local = Local {
        address: tag,
        length: 8,
        key: LocalKey(0x1000),
    };
    let remote = Remote {
        address: target_of(tag),
        key: RemoteKey(0x2000),
    };
    Wqe::compare_swap(local, remote, tag, tag)
}

/// The remote address of [`marked`], which must be a multiple of 8.
#[inline(always)]
const fn target_of(tag: u64) -> u64 {
    tag << 3
}

/// The multiprocessor that the thread runs on; on a CPU, its block.
#[inline(always)]
fn multiprocessor() -> u64 {
    #[cfg(not(target_arch = "nvptx64"))]
    return u64::from(block::index());
    #[cfg(target_arch = "nvptx64")]
    {
        let number: u32;
        // SAFETY: reads a special register.
        unsafe {
            core::arch::asm!("mov.u32 {number}, %smid;", number = out(reg32) number,
                options(nomem, preserves_flags, nostack));
        }
        u64::from(number)
    }
}

impl<'a> Litmus<'a> {
    #[inline(always)]
    const fn ring(&self) -> Ring {
        Ring::new(self.depth_log2)
    }

    /// Plays the block's role; `members` threads of a block that posts do `post`, which counts its WQEs.
    #[inline(always)]
    fn run(
        &self,
        members: u32,
        brings: bool,
        post: impl FnOnce(Poster<'_, 'a>, &mut u64) -> Result<(), Failure>,
    ) {
        let roles = self.posters.saturating_add(1);
        let (index, role) = (block::index() / roles, block::index() % roles);
        let Some(pair) = self.pairs.get(index.into()) else {
            return;
        };
        let thread = block::thread_index();
        if role == 0 && thread == 0 {
            self.note(index, NIC_SM, multiprocessor());
            self.outcome.record(|| self.play(pair, index, brings));
        } else if role > 0 && thread < members {
            let poster = Poster {
                test: self,
                pair,
                index,
                number: role - 1,
            };
            let mut posted = 0;
            let mut ended = FAILED;
            self.outcome.record(|| {
                post(poster, &mut posted)?;
                ended = posted + 1;
                Ok(())
            });
            if thread == 0 {
                if role == 1 {
                    self.note(index, POSTER_SM, multiprocessor());
                }
                if let Some(word) = self.ended.get(block::index().into()) {
                    word.store_relaxed(ended);
                }
            }
        } else if thread >= thread::warp_size() {
            self.noise.make(self.run_ns);
        }
    }

    #[inline(always)]
    fn note(&self, index: u32, which: u64, number: u64) {
        self.found
            .store(u64::from(index) * FOUND as u64 + which, number);
    }
}

/// A block that posts.
#[derive(Clone, Copy)]
struct Poster<'t, 'a> {
    test: &'t Litmus<'a>,
    pair: &'t Pair<'a>,
    /// Number of the pair.
    index: u32,
    /// Its own number among those that post to the queue.
    number: u32,
}
