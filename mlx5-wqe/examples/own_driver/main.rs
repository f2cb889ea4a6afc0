//! A driver of your own: this crate gives the bytes, you store them. The queue, its rules and the barriers are here in
//! full. The card is a fake (`card.rs`), which reads the ring as a card does.
//!
//! Run it with `cargo run -p mlx5-wqe --example own_driver`.

mod card;

use std::error::Error;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use card::Card;
use mlx5_wqe::{
    Completion, CqDoorbellRecord, Cqe64, CqeTail, Doorbell, DoorbellRecord, Local, LocalKey,
    QpNumber, Remote, RemoteKey, Syndrome, UarPage, Wqe, WqeIndex,
};

/// Blocks of the send ring, and CQEs of the completion queue; a power of two.
const DEPTH: usize = 4;
/// The key of all memory here.
const KEY: u32 = 0x1234;
const FULL: &str = "a free ring is full";

/// The memory that driver and card share. A real driver registers it with the card.
struct Queue {
    qpn: QpNumber,
    ring: [[AtomicU64; 8]; DEPTH],
    /// The send half of the queue pair's doorbell record.
    record: AtomicU32,
    cqes: [[AtomicU64; 8]; DEPTH],
    /// The consumer half of the completion queue's doorbell record.
    cq_record: AtomicU32,
}

/// The driver's side: where it posts next, and which CQE it reads next.
struct Driver<'a> {
    queue: &'a Queue,
    page: &'a UarPage,
    producer: WqeIndex,
    consumer: u32,
}

impl Driver<'_> {
    /// Posts a signalled WQE; `None` if the ring is full.
    fn post(&mut self, wqe: Wqe<1>) -> Option<()> {
        // Each WQE is one block and has one CQE, so that the CQEs read tell which slots are free.
        if self.producer.0.wrapping_sub(self.consumer as u16) == DEPTH as u16 {
            return None;
        }
        let blocks = wqe.signalled().place(self.producer, self.queue.qpn);
        let slot = &self.queue.ring[usize::from(self.producer.0) % DEPTH];
        let words: [u64; 8] = zerocopy::transmute!(blocks);
        for (to, word) in slot.iter().zip(words) {
            to.store(word, Ordering::Relaxed);
        }
        self.producer = self.producer.advance(1);
        // The WQE before the record: the card reads the ring up to the record's index.
        fence(Ordering::Release);
        let word = DoorbellRecord::word(self.producer.0);
        self.queue.record.store(word, Ordering::Relaxed);
        // The record before the doorbell, which makes the card look. Device memory wants a barrier of the platform here:
        // `sfence` on x86-64, `dsb st` on Arm.
        fence(Ordering::SeqCst);
        let doorbell = Doorbell::of_wqe(&blocks);
        // SAFETY: the page is a reference to memory of this process, and the fake card reads it on this thread.
        unsafe { self.page.send[0].doorbell.write(doorbell.0) };
        Some(())
    }

    /// The next completion, if it is there.
    fn poll(&mut self) -> Option<Completion> {
        let slot = &self.queue.cqes[self.consumer as usize % DEPTH];
        let tail = CqeTail(slot[7].load(Ordering::Relaxed));
        // The owner bit turns with each pass over the ring: a CQE of the last pass is not new.
        if !tail.is_new(self.consumer as usize / DEPTH % 2 == 1) {
            return None;
        }
        // The tail before the rest: the card writes it last.
        fence(Ordering::Acquire);
        let cqe = Cqe64::from_words(
            [0, 1, 2, 3, 4, 5, 6, 7].map(|word| slot[word].load(Ordering::Relaxed)),
        );
        self.consumer += 1;
        // The CQE is read before the card may write there again.
        fence(Ordering::Release);
        let word = CqDoorbellRecord::consumer_word(self.consumer);
        self.queue.cq_record.store(word, Ordering::Relaxed);
        cqe.decode().ok()
    }
}

/// Posts around both rings twice, and then a write that the card refuses.
pub fn main() -> Result<(), Box<dyn Error>> {
    let queue = Queue {
        qpn: QpNumber::new(0x2abe).ok_or("a QPN has 24 bits")?,
        ring: Default::default(),
        record: AtomicU32::new(0),
        // A CQE that was never written says so.
        cqes: [(); DEPTH].map(|()| Cqe64::INVALID.to_words().map(AtomicU64::new)),
        cq_record: AtomicU32::new(0),
    };
    let page = card::page();
    let mut card = Card::new(&queue, &page, b"hello, world....");
    let mut driver = Driver {
        queue: &queue,
        page: &page,
        producer: WqeIndex(0),
        consumer: 0,
    };
    let write = |from, to| {
        let local = Local {
            address: from,
            length: 1,
            key: LocalKey(KEY),
        };
        Wqe::write(
            local,
            Remote {
                address: to,
                key: RemoteKey(KEY),
            },
        )
    };

    // Twice around both rings.
    for pass in 0..2 {
        for letter in 0..DEPTH as u64 {
            driver.post(write(7 + letter, letter)).ok_or(FULL)?;
        }
        let refused = driver.post(write(0, 0)).is_none();
        assert!(refused, "a full ring takes nothing");
        card.work();
        for _ in 0..DEPTH {
            assert!(matches!(driver.poll(), Some(Completion::Requester(_))));
        }
        assert!(driver.poll().is_none(), "each CQE is read once");
        println!("pass {pass}: {DEPTH} writes done");
    }
    assert_eq!(&card.memory, b"worlo, world....");

    // What the card refuses comes back as a value that says why.
    driver.post(write(0, 4096)).ok_or(FULL)?;
    card.work();
    let Some(Completion::Error(error)) = driver.poll() else {
        return Err("a write out of bounds was done".into());
    };
    println!("{error}");
    assert_eq!(error.syndrome, Syndrome::REMOTE_ACCESS);
    println!("Test OK");
    Ok(())
}
