//! The network processor's side of one queue. No threads, no allocation: its owner calls it again and again.

use mlx5_wqe::segment::Control;
use mlx5_wqe::{
    CqeErrorWord, CqeOpcode, CqeTail, MAX_WQE_BLOCKS, Octoword, Opcode, QpNumber, VendorCode, Wqe,
    WqeBlock, WqeIndex,
};
use warpbell_gpu::arch::{Reach, fence_acquire, fence_release, load_block, store_block};

use super::Fault;
use crate::words::{load_relaxed64, store_relaxed64};
use warpbell::{CompletionKind, MAX_DEPTH, OpenError, Ring, SendQueueHandle, held};

/// Takes the WQEs that kernels post to one send queue (the front), posts them to the queue of a NIC, and hands the
/// NIC's completions back.
///
/// Both rings have the same depth, and a WQE has the same index in both: it passes as it is, and so does the CQE that
/// completes it. A block of the NIC's ring is free whenever the one of the front is, because kernels learn of free
/// blocks from CQEs that were handed on.
///
/// Where both have one ring, which kernels write and the NIC reads, producer indices alone are taken.
#[derive(Debug)]
pub struct Drain<'a> {
    front: SendQueueHandle<'a>,
    nic: SendQueueHandle<'a>,
    /// The number of both.
    qpn: u32,
    ring: Ring,
    /// Whether the rings are two, so that WQEs are copied.
    copies: bool,
    /// Blocks that the doorbell has told of and that may be taken.
    told: u64,
    /// Blocks taken from the front.
    taken: u64,
    /// Those of them that the NIC was told of.
    given: u64,
    /// The block behind the first one of the last WQE taken that asks for a completion: `completed`, once that is there.
    signalled: u64,
    /// Blocks that the NIC has said to be complete.
    completed: u64,
    /// Number of the NIC's CQE to look at next.
    next_cqe: u32,
    state: State,
    /// The WQE under way from one ring to the other.
    wqe: [WqeBlock; MAX_WQE_BLOCKS],
    /// Its blocks; 0 if none is under way.
    wqe_blocks: usize,
}

/// How far a queue's service has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It takes what there is.
    Open,
    /// It takes no more, and says why as soon as there is room for a NOP behind what it has taken; in the kernels' own
    /// ring, where it puts none, as soon as all is complete that asks for a completion.
    Closing(Fault),
    /// The NIC has that NOP, as this block: with it, all before it is complete.
    Closed(Fault, u64),
    /// Kernels know.
    Over,
}

/// What a turn has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// WQEs given to the NIC.
    pub posts: u32,
    /// Completions handed back.
    pub completions: u32,
}

impl Turn {
    /// Whether there was anything to do.
    pub const fn was_busy(self) -> bool {
        self.posts + self.completions > 0
    }
}

/// A WQE on its way to the NIC, for whoever allows it.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'e> {
    blocks: &'e [WqeBlock],
}

impl<'e> Entry<'e> {
    /// Its control segment.
    pub const fn control(self) -> Control {
        Control::from_octoword(self.blocks[0][0])
    }

    /// All of its basic blocks, the control segment included; at least one.
    pub const fn blocks(self) -> &'e [WqeBlock] {
        self.blocks
    }

    /// The same in memory of the caller's, for whoever gives the [`Drain`] out of its hands meanwhile.
    pub fn copied(self, buffer: &mut [WqeBlock; MAX_WQE_BLOCKS]) -> Entry<'_> {
        let blocks = &mut buffer[..self.blocks.len()];
        blocks.copy_from_slice(self.blocks);
        Entry { blocks }
    }
}

/// Why two queues do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// One of the handles is not good.
    #[error("{0}")]
    Handle(OpenError),
    /// Rings of different depths, or queues with different numbers.
    #[error("the queues differ in depth or number")]
    Different,
    /// The front has a doorbell record, which nobody would read.
    #[error("a proxy reads no doorbell record")]
    Record,
    /// Completions that are collapsed where the NIC writes them, or are not where kernels read them.
    #[error("a proxy reads a ring of completions, and hands the newest of them on, collapsed")]
    Completions,
}

impl<'a> Drain<'a> {
    /// A drain from `front`, which kernels post to, into `nic`.
    ///
    /// # Errors
    /// Queues that do not go together.
    ///
    /// # Safety
    /// Nothing has been posted to either queue since it was made or reset. As long as this lives, nobody else posts
    /// to `nic` or polls it, and nobody else takes from `front`. The calling thread reaches all of both, and `front`
    /// has [`FenceReach::System`](warpbell::FenceReach::System) if its kernels do not run where this thread does. Where
    /// both have one ring, its WQEs are the NIC's as they are: what `allow` saw may have changed since.
    pub unsafe fn new(front: SendQueueHandle<'a>, nic: SendQueueHandle<'a>) -> Result<Self, Unfit> {
        front.check().map_err(Unfit::Handle)?;
        nic.check().map_err(Unfit::Handle)?;
        let (front_parts, nic_parts) = (front.parts(), nic.parts());
        if front_parts.depth_log2 != nic_parts.depth_log2 || front_parts.qpn != nic_parts.qpn {
            return Err(Unfit::Different);
        }
        if front.has_record() {
            return Err(Unfit::Record);
        }
        let kinds = [front_parts, nic_parts].map(|parts| parts.completions.kind);
        if kinds != [CompletionKind::Collapsed, CompletionKind::Ordinary] {
            return Err(Unfit::Completions);
        }
        Ok(Self {
            front,
            nic,
            qpn: nic_parts.qpn,
            ring: Ring::new(front_parts.depth_log2),
            copies: front_parts.ring != nic_parts.ring,
            told: 0,
            taken: 0,
            given: 0,
            signalled: 0,
            completed: 0,
            next_cqe: 0,
            state: State::Open,
            wqe: [[Octoword::ZERO; 4]; MAX_WQE_BLOCKS],
            wqe_blocks: 0,
        })
    }

    /// Gives the NIC what kernels have posted since, with one doorbell, and hands back what it has completed.
    /// `allow` sees each WQE before the NIC does: the first one that it refuses ends the queue's service, because
    /// what stands behind may rely on it.
    ///
    /// Its steps may be taken one by one: [`look`](Self::look), then [`next`](Self::next) and [`decide`](Self::decide)
    /// for each WQE, then [`pass_on`](Self::pass_on). Between any two of them the drain is whole: another thread may go
    /// on with it.
    pub fn turn(&mut self, mut allow: impl FnMut(Entry<'_>) -> bool) -> Turn {
        let completions = self.look();
        let mut posts = 0;
        // Ends after a lap at the latest: each WQE takes a block.
        while let Some(entry) = self.next() {
            let allowed = allow(entry);
            self.decide(allowed);
            posts += u32::from(allowed);
        }
        self.pass_on();
        Turn { posts, completions }
    }

    /// Hands back what the NIC has completed, and listens to the kernels' doorbell. Returns how many completions.
    pub fn look(&mut self) -> u32 {
        // Completions first, because kernels may wait for the room that they tell of.
        let completions = self.complete();
        match self.state {
            State::Open => self.listen(),
            State::Closing(fault) => self.announce(fault),
            State::Closed(..) | State::Over => {}
        }
        completions
    }

    /// The next WQE that the last look has told of. It is taken once it is [decided](Self::decide) on.
    #[expect(clippy::should_implement_trait, reason = "what it lends is its own")]
    pub fn next(&mut self) -> Option<Entry<'_>> {
        if self.state != State::Open || self.taken == self.told {
            return None;
        }
        let Some(blocks) = self.load_wqe() else {
            self.conclude(Fault::Damaged);
            return None;
        };
        self.wqe_blocks = blocks;
        let blocks = &self.wqe[..blocks];
        Some(Entry { blocks })
    }

    /// Takes the WQE that was shown last, or ends the queue's service at it. Nothing if there is none, or the service
    /// has ended since.
    pub fn decide(&mut self, allowed: bool) {
        let blocks = core::mem::take(&mut self.wqe_blocks);
        if self.state != State::Open || blocks == 0 {
            return;
        }
        if !allowed {
            self.conclude(Fault::Refused);
            return;
        }
        if self.copies {
            for offset in 0..blocks {
                self.store(self.taken + offset as u64, self.wqe[offset]);
            }
        }
        let control = Control::from_octoword(self.wqe[0][0]);
        if control.fm_ce_se.is_signalled() {
            self.signalled = self.taken + 1;
        }
        self.taken += blocks as u64;
    }

    /// Rings the NIC's doorbell for all that was taken, if it does not know of it.
    pub fn pass_on(&mut self) {
        if self.given != self.taken {
            self.given = self.taken;
            // SAFETY: `new` has checked the handle; all before this index was stored, and nobody else posts to the NIC's
            // queue, by the promise of `new`.
            unsafe { held::publish(&self.nic, WqeIndex(self.taken as u16)) };
        }
    }

    /// Takes no more. Once all is complete that was taken, kernels see `fault`, unless they know of another end. Turns
    /// are still needed, until the service [is over](Self::is_over).
    pub fn close(&mut self, fault: Fault) {
        if self.state == State::Open {
            self.pass_on();
            self.state = State::Closing(fault);
        }
    }

    /// Ends the service at once: kernels see `fault`, unless they know of another end. What was taken and is not known
    /// to be complete may be carried out or not.
    pub fn end(&mut self, fault: Fault) {
        if self.state != State::Over {
            // All before this block is complete; of it and what follows nothing is known.
            self.tell_fault(fault, self.completed);
        }
    }

    /// Whether kernels know that the service has ended.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Looks for WQEs that the kernels' doorbell tells of.
    fn listen(&mut self) {
        // SAFETY: the handle's pointers are valid, by the promise of its `new`.
        let word = load_relaxed64(unsafe { &*self.front.parts().doorbell }, Reach::System);
        let word = u64::from_be(word);
        let index = (word >> 40) as u16;
        let ahead = u32::from(index.wrapping_sub(self.taken as u16));
        // One further ahead than any ring is deep came late, and takes nothing back.
        if word == 0 || ahead == 0 || ahead > MAX_DEPTH {
            return;
        }
        let end = self.taken + u64::from(ahead);
        let fits = end <= self.completed + u64::from(self.ring.depth());
        if !fits || (word as u32) >> 8 != self.qpn {
            self.conclude(Fault::Damaged);
            return;
        }
        self.told = end;
        // The doorbell before the WQEs, because it tells that they are there.
        fence_acquire(Reach::System);
    }

    /// Reads the next WQE. Returns its blocks, or none if it is no WQE of this queue that ends where the doorbell told
    /// or before.
    fn load_wqe(&mut self) -> Option<usize> {
        // Each block is read once, so that what is checked is what the NIC gets.
        self.wqe[0] = self.load(self.taken);
        let control = Control::from_octoword(self.wqe[0][0]);
        let blocks = usize::from(control.blocks());
        let is_ours = control.index() == self.ring.index(self.taken)
            && control.qpn() == QpNumber::from_low_bits(self.qpn);
        let fits = (1..=self.ring.wqe_limit() as usize).contains(&blocks)
            && self.taken + blocks as u64 <= self.told;
        if !is_ours || !fits {
            return None;
        }
        for offset in 1..blocks {
            self.wqe[offset] = self.load(self.taken + offset as u64);
        }
        Some(blocks)
    }

    /// Ends the service at the next block.
    fn conclude(&mut self, fault: Fault) {
        self.pass_on();
        self.announce(fault);
    }

    /// Takes no more, and posts a NOP whose completion says that all before it is complete. Where the NIC's ring has
    /// no room for it, a later turn does.
    fn announce(&mut self, fault: Fault) {
        if !self.copies {
            // Kernels may be writing to the next block. What asks for no completion they cannot wait for.
            match self.completed >= self.signalled {
                true => self.tell_fault(fault, self.completed),
                false => self.state = State::Closing(fault),
            }
            return;
        }
        if !self.ring.has_room(self.taken, self.completed, 1) {
            self.state = State::Closing(fault);
            return;
        }
        let number = QpNumber::from_low_bits(self.qpn);
        let nop = Wqe::nop().signalled();
        let [block] = nop.place(self.ring.index(self.taken), number);
        self.store(self.taken, block);
        self.state = State::Closed(fault, self.taken);
        self.taken += 1;
        self.pass_on();
    }

    /// Hands the newest of the NIC's CQEs on that report success; once kernels have that one, the first error. Returns how
    /// many: 0 or 1.
    fn complete(&mut self) -> u32 {
        if self.state == State::Over {
            return 0;
        }
        // SAFETY: `new` has checked the handle.
        let next = |number| unsafe { self.nic.completion(number) };
        let succeeded = |(_, tail): &(_, CqeTail)| tail.cqe_opcode() == CqeOpcode::REQUESTER;
        let (mut newest, mut number) = (None, self.next_cqe);
        // Ends after a lap at the latest: the blocks that it finds complete are posted again only once kernels know.
        while let Some(found) = next(number).filter(succeeded) {
            newest = Some(found);
            number = number.wrapping_add(1);
        }
        self.next_cqe = number;
        let Some((slot, tail)) = newest.or_else(|| next(number)) else {
            return 0;
        };
        // The CQE's last word before the rest of it, and before what it vouches for: data that kernels read because of
        // the CQE that they get from here.
        fence_acquire(self.nic.reach());
        if tail.cqe_opcode() != CqeOpcode::REQUESTER {
            // The queue's error, which stays: flushes behind it tell nothing new.
            self.state = State::Over;
            self.tell(load_relaxed64(&slot.words()[6], Reach::System), tail);
            return 1;
        }
        self.completed = self.ring.completed(self.completed, tail.wqe_index());
        match self.state {
            State::Closed(fault, block) if self.completed > block => self.tell_fault(fault, block),
            _ => self.tell(0, tail),
        }
        1
    }

    /// Makes a fault the error of a block; all before it is complete.
    fn tell_fault(&mut self, fault: Fault, block: u64) {
        let word = CqeErrorWord::new(fault.syndrome(), VendorCode::NONE);
        let number = QpNumber::from_low_bits(self.qpn);
        let index = self.ring.index(block);
        let opcode = CqeOpcode::REQUESTER_ERROR;
        let tail = CqeTail::new(opcode, false, Opcode::NOP, number, index.0);
        self.state = State::Over;
        self.tell(word.0, tail);
    }

    /// Writes the front's CQE.
    fn tell(&self, error: u64, tail: CqeTail) {
        // SAFETY: `new` has checked the handle. Its number does not matter: there is one entry.
        let slot = unsafe { self.front.completion_slot(0) };
        store_relaxed64(&slot.words()[6], error, Reach::System);
        // Our reading of the WQEs before the CQE, because kernels overwrite them once they see it; the error before
        // the last word, because that says it is there; and all that the NIC's CQE vouches for.
        fence_release(Reach::System);
        store_relaxed64(&slot.words()[7], tail.0, Reach::System);
    }

    fn load(&self, block: u64) -> WqeBlock {
        // SAFETY: the handle's `new` promises a ring of `depth` blocks, and `slot` is below the depth. The doorbell
        // has told of the block, so that kernels do not touch it until they are told that it is complete.
        unsafe { load_block(self.front.parts().ring.add(self.ring.slot(block))) }
    }

    fn store(&self, block: u64, value: WqeBlock) {
        // SAFETY: as above; the block is free in the NIC's ring, because it is in the front's, and nobody else posts
        // there, by the promise of `new`.
        unsafe { store_block(self.nic.parts().ring.add(self.ring.slot(block)), value) }
    }
}
