//! Send queues made by hand, whose completions are written ahead: no NIC takes part.

use warpbell::wqe::{CqeOpcode, CqeTail, Local, LocalKey, Opcode, QpNumber, Remote, RemoteKey};
use warpbell::{
    CompletionKind, CompletionParts, DoorbellPage, FenceReach, SendDoorbell, SendParts,
    SendQueueHandle, Word64,
};
use warpbell_host_init::{Buffer, Error, Kernels, Placement, Shared};
use warpbell_hw_tests::here;
use warpbell_kernels::bare::BareQueue;
use warpbell_kernels::place::Place;
use warpbell_kernels::posting::Write;

/// Blocks of each ring.
pub const DEPTH: u32 = 32_768;
const DEPTH_LOG2: u8 = DEPTH.ilog2() as u8;
/// Number of all queue pairs.
pub const QPN: QpNumber = QpNumber::from_low_bits(0x123);
/// Bytes of a ring.
const RING: usize = 64 * DEPTH as usize;
/// Each queue's words: doorbell record, the completion queue's record, state (`docs/abi.md`), CQE.
const WORDS: usize = 1024;
const SEND_RECORD: usize = 4;
const COMPLETION_RECORD: usize = 64;
const STATE: usize = 256;
const CQE: usize = 512;
/// Where the CQE says that it is not there yet.
const OP_OWN: usize = CQE + 63;
/// The state's words: blocks handed out, published, and known complete.
const RESERVED: usize = STATE;
const READY: usize = STATE + 8;
const CONSUMED: usize = STATE + 128;
/// Bytes between two doorbell registers.
const APART: usize = 4096;

/// How far the queues have come before a kernel begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lap {
    /// Nothing was posted yet.
    First,
    /// The ring is full, and who finds no room has to look at the CQE.
    Steady,
}

impl Lap {
    /// Both.
    pub const ALL: [Self; 2] = [Self::First, Self::Steady];

    /// Blocks that were posted before.
    pub const fn posted(self) -> u64 {
        match self {
            Self::First => 0,
            Self::Steady => 4 * DEPTH as u64,
        }
    }

    /// The newest WQE that is complete where so many of a full ring are.
    pub const fn newest(self, completed: u32) -> u16 {
        (self.posted() as u16)
            .wrapping_sub(DEPTH as u16)
            .wrapping_add(completed as u16)
            .wrapping_sub(1)
    }

    /// Its name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Steady => "steady",
        }
    }
}

/// So many queues.
pub struct Rig {
    queues: usize,
    rings: Buffer,
    words: Buffer,
    doorbells: Buffer,
    /// What a queue's completions are.
    kind: CompletionKind,
    /// Those of all queues, where they are not among the words.
    completions: Option<Buffer>,
}

/// Where kernels have their own memory, or memory of the host's.
fn placement(pinned: bool) -> Placement {
    match here::kernels() {
        Kernels::Cpu(_) => Placement::Host,
        Kernels::Gpu(module) if pinned => Placement::Pinned(module.gpu()),
        Kernels::Gpu(module) => Placement::Gpu(module.gpu()),
    }
}

impl Rig {
    /// Rings, records and completions where kernels have their own memory, doorbells there or in pinned memory.
    pub fn new(queues: u32, pinned_doorbells: bool) -> Result<Self, Error> {
        let queues = queues as usize;
        Ok(Self {
            queues,
            rings: Buffer::placed(placement(false), queues * RING)?,
            words: Buffer::placed(placement(false), queues * WORDS)?,
            doorbells: Buffer::placed(placement(pinned_doorbells), queues * APART)?,
            kind: CompletionKind::Collapsed,
            completions: None,
        })
    }

    /// The same, with completions of this kind, in pinned memory or among all else. Only [`Lap::First`] knows a ring
    /// and pinned memory.
    pub fn completing(self, kind: CompletionKind, pinned: bool) -> Result<Self, Error> {
        let bytes = match kind {
            CompletionKind::Collapsed => 64,
            CompletionKind::Ordinary => RING,
        };
        let apart = pinned || kind == CompletionKind::Ordinary;
        let completions = apart.then(|| Buffer::placed(placement(pinned), self.queues * bytes));
        Ok(Self {
            kind,
            completions: completions.transpose()?,
            ..self
        })
    }

    /// Makes all queues as they are at the beginning of a lap; in a steady one the CQE tells that the first
    /// `completed` blocks of a full ring are complete.
    pub fn renew(&self, lap: Lap, completed: u32) -> Result<(), Error> {
        let mut words = vec![0; WORDS];
        match lap {
            Lap::First => words[OP_OWN] = 0xf0,
            Lap::Steady => {
                let posted = lap.posted();
                let mut store = |at: usize, word: u64| {
                    words[at..at + 8].copy_from_slice(&word.to_ne_bytes());
                };
                store(RESERVED, posted);
                store(READY, posted);
                store(CONSUMED, posted - u64::from(DEPTH));
                let newest = lap.newest(completed);
                let opcode = CqeOpcode::REQUESTER;
                let tail = CqeTail::new(opcode, false, Opcode::RDMA_WRITE, QPN, newest);
                store(CQE + 56, tail.0);
            }
        }
        if let Some(completions) = &self.completions {
            let mut unused = [0; 64];
            unused[63] = 0xf0;
            completions.write(0, &unused.repeat(completions.len() / 64))?;
        }
        self.words.write(0, &words.repeat(self.queues))?;
        self.doorbells.write(0, &vec![0; self.doorbells.len()])
    }

    /// The index that each queue's doorbell tells.
    pub fn rung(&self) -> Result<Vec<u16>, Error> {
        (0..self.queues)
            .map(|queue| {
                let mut word = [0; 8];
                self.doorbells.read(queue * APART, &mut word)?;
                Ok((u64::from_be_bytes(word) >> 40) as u16)
            })
            .collect()
    }

    /// The index in each queue's doorbell record.
    pub fn recorded(&self) -> Result<Vec<u16>, Error> {
        (0..self.queues)
            .map(|queue| {
                let mut word = [0; 4];
                self.words.read(queue * WORDS + SEND_RECORD, &mut word)?;
                Ok(u32::from_be_bytes(word) as u16)
            })
            .collect()
    }

    fn word<T>(&self, queue: usize, at: usize) -> *mut T {
        // SAFETY: each queue's words lie inside.
        unsafe { self.words.as_ptr().add(queue * WORDS + at) }.cast()
    }

    fn ring<T>(&self, queue: usize) -> *mut T {
        // SAFETY: each queue's ring lies inside.
        unsafe { self.rings.as_ptr().add(queue * RING) }.cast()
    }

    fn doorbell(&self, queue: usize) -> *const Word64 {
        // SAFETY: each queue's register lies inside.
        unsafe { self.doorbells.as_ptr().add(queue * APART) }.cast()
    }

    /// A queue's first CQE.
    fn cqe<T>(&self, queue: usize) -> *mut T {
        match &self.completions {
            Some(completions) => {
                let at = queue * (64 << self.completions_log2());
                // SAFETY: each queue's completions lie inside.
                unsafe { completions.as_ptr().add(at) }.cast()
            }
            None => self.word(queue, CQE),
        }
    }

    /// The last word of that.
    pub fn completion(&self, queue: usize) -> *const Word64 {
        // SAFETY: a CQE has 64 bytes.
        unsafe { self.cqe::<u8>(queue).add(56) }.cast()
    }

    /// Base-2 logarithm of a queue's CQEs.
    pub fn completions_log2(&self) -> u8 {
        match self.kind {
            CompletionKind::Collapsed => 0,
            CompletionKind::Ordinary => DEPTH_LOG2,
        }
    }

    /// The same of all queues.
    pub fn completions(&self) -> Result<Shared<[Place]>, Error> {
        // SAFETY: a completion's last word, which outlives the launch; the kernels alone write it meanwhile.
        let place = |queue| unsafe { Place::new(self.completion(queue), 1) };
        Shared::slice(here::kernels().placement(), self.queues, place)
    }

    /// The queues, for kernels that post.
    pub fn handles(
        &self,
        reach: FenceReach,
        send_doorbell: SendDoorbell,
    ) -> Result<Shared<[SendQueueHandle<'_>]>, Error> {
        Shared::slice(here::kernels().placement(), self.queues, |queue| {
            let parts = SendParts {
                ring: self.ring(queue),
                record: self.word(queue, SEND_RECORD),
                doorbell: self.doorbell(queue),
                completions: CompletionParts {
                    ring: self.cqe(queue),
                    record: self.word(queue, COMPLETION_RECORD),
                    depth_log2: self.completions_log2(),
                    kind: self.kind,
                },
                state: self.word(queue, STATE),
                qpn: QPN.get(),
                max_message: 1 << 30,
                depth_log2: DEPTH_LOG2,
                reach,
                send_doorbell,
                doorbell_page: DoorbellPage::Memory,
            };
            // SAFETY: all of it lives in `self`, which the handle borrows, with the sizes given here; there is no
            // NIC, so that every reach is far enough.
            unsafe { SendQueueHandle::new(parts) }
        })
    }

    /// The same for those that do it by hand.
    pub fn bare(&self) -> Result<Shared<[BareQueue]>, Error> {
        Shared::slice(here::kernels().placement(), self.queues, |queue| {
            BareQueue {
                ring: self.ring(queue),
                record: self.word(queue, SEND_RECORD),
                doorbell: self.doorbell(queue),
            }
        })
    }
}

/// Writes of 64 bytes; nobody carries them out.
pub const fn write() -> Write {
    Write {
        local: Local {
            address: 0x10_0000,
            length: 64,
            key: LocalKey(0x1000),
        },
        remote: Remote {
            address: 0x20_0000,
            key: RemoteKey(0x2000),
        },
    }
}

/// Words for kernels to write.
pub fn numbers(count: usize) -> Result<Shared<[Word64]>, Error> {
    Shared::slice(here::kernels().placement(), count, |_| Word64::new(0))
}
