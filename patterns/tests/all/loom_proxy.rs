//! A queue behind a proxy in every interleaving that loom finds: kernels, the proxy's thread and the NIC; and twins
//! without a fence, in which loom must find the fault.
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::Ordering;
use loom::thread;
use warpbell::wqe::{Opcode, Wqe};
use warpbell::{CompletionKind, Deadline, Exclusive, GpuShared, LeftOut, SendDoorbell, Word64};
use warpbell_patterns::proxy::{Drain, Entry};

use crate::common::Rig;
use crate::common::model::model;

/// A front for kernels, and a NIC's queue.
struct Rigs {
    front: Rig,
    nic: Rig,
    /// What the NIC brings.
    data: Word64,
}

impl Rigs {
    fn new(depth_log2: u8) -> Arc<Self> {
        let rig = |kind| Rig::new(depth_log2, kind);
        // In this order: an acquire fence of loom's also takes what the thread saw from which it takes something, as far
        // as it lies in memory that was made later. So it would hide a fence that is missing there.
        Arc::new(Self {
            nic: rig(CompletionKind::Ordinary),
            front: rig(CompletionKind::Collapsed).with_doorbell(SendDoorbell::WithoutRecord),
            data: Word64::new(0),
        })
    }

    fn drain(&self) -> Drain<'_> {
        // SAFETY: both are fresh, and nobody else has the NIC's.
        unsafe { Drain::new(self.front.handle(), self.nic.handle()) }.expect("a pair")
    }

    /// What the NIC does when it looks once: doorbell, record, WQEs.
    fn fetch(&self) -> u16 {
        self.fetch_from(&self.nic)
    }

    /// The same where the WQEs lie in that rig's ring.
    fn fetch_from(&self, ring: &Rig) -> u16 {
        if self.nic.doorbell_index().is_none() {
            return 0;
        }
        let end = self.nic.producer_index();
        for block in 0..end {
            let found = ring.control(block as usize);
            assert_eq!(
                found,
                (block, Opcode::NOP),
                "the NIC fetched what is not there yet"
            );
        }
        end
    }
}

/// Spawns what uses the rigs.
fn spawn<T: 'static>(
    rigs: &Arc<Rigs>,
    body: impl FnOnce(&Rigs) -> T + 'static,
) -> thread::JoinHandle<T> {
    let rigs = Arc::clone(rigs);
    thread::spawn(move || body(&rigs))
}

/// Takes what is there; each is what a kernel posted.
fn check(entry: Entry<'_>) -> bool {
    assert_eq!(entry.control().opcode(), Opcode::NOP);
    true
}

/// Two kernels post to one queue while the proxy takes.
fn hand_over(without: Option<LeftOut>) {
    model(without, || {
        let rigs = Rigs::new(2);
        let kernel = |rigs: &Rigs| {
            let mut queue = rigs.front.handle().open::<GpuShared>().unwrap();
            let _ = queue.try_post(Wqe::nop()).unwrap();
        };
        let other = spawn(&rigs, kernel);
        let proxy = spawn(&rigs, |rigs| {
            let mut drain = rigs.drain();
            (drain.turn(check).posts, drain.turn(check).posts)
        });
        kernel(&rigs);
        other.join().unwrap();
        let (first, second) = proxy.join().unwrap();
        // One that the proxy did not find whole would have a NOP in its place.
        assert_eq!(
            u32::from(rigs.fetch()),
            first + second,
            "a WQE was not there yet"
        );
    });
}

#[test]
fn wqes_of_two_kernels_arrive_whole() {
    hand_over(None);
}

#[test]
#[should_panic(expected = "a WQE was not there yet")]
fn handing_over_wants_its_release_fence() {
    hand_over(Some(LeftOut::Release));
}

#[test]
#[should_panic(expected = "a WQE was not there yet")]
fn taking_wants_its_acquire_fence() {
    hand_over(Some(LeftOut::Acquire));
}

/// The proxy takes while the NIC fetches.
fn pass_on(without: Option<LeftOut>) {
    model(without, || {
        let rigs = Rigs::new(2);
        let nic = spawn(&rigs, Rigs::fetch);
        let mut queue = rigs.front.handle().open::<GpuShared>().unwrap();
        let mut drain = rigs.drain();
        for _ in 0..2 {
            let _ = queue.try_post(Wqe::nop()).unwrap();
            drain.turn(check);
        }
        nic.join().unwrap();
        assert_eq!(rigs.fetch(), 2);
    });
}

#[test]
fn the_nic_fetches_whole_wqes() {
    pass_on(None);
}

#[test]
#[should_panic(expected = "the NIC fetched what is not there yet")]
fn passing_on_wants_its_release_fences() {
    pass_on(Some(LeftOut::Release));
}

/// Producer indices alone are handed over, and the NIC fetches from the kernel's ring.
fn pass_indices_on(without: Option<LeftOut>) {
    model(without, || {
        let rigs = Rigs::new(2);
        let proxy = spawn(&rigs, |rigs| {
            let nic = rigs.nic.handle_on(&rigs.front);
            // SAFETY: both are fresh, and nobody else has them.
            let mut drain = unsafe { Drain::new(rigs.front.handle(), nic) }.expect("a pair");
            drain.turn(|_| true);
        });
        let nic = spawn(&rigs, |rigs| {
            rigs.fetch_from(&rigs.front);
        });
        let mut queue = rigs.front.handle().open::<Exclusive>().unwrap();
        // Two, because the first one looks as nothing does.
        let mut batch = queue.batch(2, Deadline::PASSED).unwrap();
        let _ = batch.post(Wqe::nop()).unwrap();
        let _ = batch.post(Wqe::nop()).unwrap();
        drop(batch);
        nic.join().unwrap();
        proxy.join().unwrap();
    });
}

#[test]
fn the_nic_fetches_whole_wqes_from_the_kernels_ring() {
    pass_indices_on(None);
}

#[test]
#[should_panic(expected = "the NIC fetched what is not there yet")]
fn passing_indices_on_wants_its_release_fences() {
    pass_indices_on(Some(LeftOut::Release));
}

/// A kernel waits for what the NIC brings; its completion comes by way of the proxy.
fn hand_back(without: Option<LeftOut>) {
    model(without, || {
        let rigs = Rigs::new(1);
        let mut queue = rigs.front.handle().open::<Exclusive>().unwrap();
        let ticket = queue.try_post(Wqe::nop().signalled()).unwrap();
        let nic = spawn(&rigs, |rigs| {
            if rigs.fetch() == 1 {
                rigs.data.store(5, Ordering::Relaxed);
                rigs.nic.complete(0, 0);
            }
        });
        let proxy = spawn(&rigs, |rigs| {
            let mut drain = rigs.drain();
            drain.turn(check);
            drain.turn(check);
        });
        if queue.is_done(ticket).unwrap() {
            let data = rigs.data.load(Ordering::Relaxed);
            assert_eq!(data, 5, "old data after the completion");
        }
        nic.join().unwrap();
        proxy.join().unwrap();
    });
}

#[test]
fn completions_bring_their_data() {
    hand_back(None);
}

#[test]
#[should_panic(expected = "old data after the completion")]
fn handing_back_wants_its_acquire_fences() {
    hand_back(Some(LeftOut::Acquire));
}
