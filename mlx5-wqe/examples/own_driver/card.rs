//! A card that moves bytes within 16 bytes of memory.

use std::sync::atomic::Ordering;

use mlx5_wqe::decode::{self, Operation};
use mlx5_wqe::{
    Completion, CompletionError, CqDoorbellRecord, Doorbell, DoorbellRecord, Local, LocalKey,
    Opcode, Remote, RemoteKey, Requester, Side, Syndrome, UarPage, VendorCode, WqeBlock, WqeIndex,
};
use zerocopy::IntoBytes;

use super::{DEPTH, KEY, Queue};

/// A page of memory in place of the card's registers.
pub fn page() -> Box<UarPage> {
    // SAFETY: the page is integers, of which all bits may be zero.
    unsafe { Box::<UarPage>::new_zeroed().assume_init() }
}

/// The card, and the memory that it moves bytes in.
pub struct Card<'a> {
    queue: &'a Queue,
    page: &'a UarPage,
    pub memory: [u8; 16],
    done: u16,
}

impl<'a> Card<'a> {
    pub fn new(queue: &'a Queue, page: &'a UarPage, memory: &[u8; 16]) -> Self {
        Self {
            queue,
            page,
            memory: *memory,
            done: 0,
        }
    }

    /// Carries out what the doorbell and the record tell of.
    pub fn work(&mut self) {
        let register = (&raw const self.page.send[0].doorbell).cast::<u64>();
        // SAFETY: the register is memory of this process, which only this thread writes.
        let rung = Doorbell(unsafe { register.read_volatile() });
        assert_eq!(
            rung.qpn(),
            self.queue.qpn,
            "a doorbell names its queue pair"
        );
        let end = DoorbellRecord::producer(self.queue.record.load(Ordering::Acquire));
        while self.done != end {
            let completion = self.execute(WqeIndex(self.done));
            let consumed = CqDoorbellRecord::consumer(self.queue.cq_record.load(Ordering::Acquire));
            let number = usize::from(self.done);
            assert!(
                number - (consumed as usize) < DEPTH,
                "the completion queue has room"
            );
            let cqe = completion.encode(number / DEPTH % 2 == 1);
            for (to, word) in self.queue.cqes[number % DEPTH].iter().zip(cqe.to_words()) {
                // The last word is the tail, which a poll goes by.
                to.store(word, Ordering::Release);
            }
            self.done += 1;
        }
    }

    fn execute(&mut self, index: WqeIndex) -> Completion {
        let slot = &self.queue.ring[usize::from(index.0) % DEPTH];
        let words = [0, 1, 2, 3, 4, 5, 6, 7].map(|word: usize| slot[word].load(Ordering::Relaxed));
        let block: WqeBlock = zerocopy::transmute!(words);
        let qpn = self.queue.qpn;
        let moved = decode::decode(block.as_bytes(), index, qpn)
            .ok()
            .and_then(|wqe| {
                let Operation::Write(remote, _) = wqe.operation else {
                    return None;
                };
                self.copy(wqe.data.single()?, remote)
            });
        match moved {
            Some(()) => Completion::Requester(Requester {
                qpn,
                wqe_index: index,
                opcode: Opcode::RDMA_WRITE,
                byte_count: 0,
            }),
            None => Completion::Error(CompletionError {
                side: Side::Requester,
                syndrome: Syndrome::REMOTE_ACCESS,
                vendor: VendorCode(0),
                wqe_index: index,
                opcode: Opcode::RDMA_WRITE,
                qpn,
            }),
        }
    }

    fn copy(&mut self, from: Local, to: Remote) -> Option<()> {
        let bytes = |address: u64| {
            let start = usize::try_from(address).ok()?;
            Some(start..start.checked_add(from.length as usize)?)
        };
        let (source, target) = (bytes(from.address)?, bytes(to.address)?);
        let keys = from.key == LocalKey(KEY) && to.key == RemoteKey(KEY);
        if !keys || source.end > self.memory.len() || target.end > self.memory.len() {
            return None;
        }
        self.memory.copy_within(source, target.start);
        Some(())
    }
}
