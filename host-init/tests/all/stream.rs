//! Steps of a stream under a driver that is a fake: it runs each at once, and has the NIC of software fetch what it
//! publishes.

use std::sync::atomic::AtomicU64;

use warpbell::wqe::{Doorbell, DoorbellRecord, QpNumber, Wqe, WqeIndex};
use warpbell::{SendDoorbell, held};
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::stream::Step;
use warpbell_host_init::{
    Access, Buffer, Device, Entry, Error, GpuError, Grid, Launch, MemoryRegion, Nic, Node,
    Placement, QueuePair, QueuePairConfig, connect,
};

use crate::fake::{module, watch, with_fake};

const DEPTH: u32 = 4;

#[repr(C)]
#[derive(Clone, Copy)]
struct Store<'a> {
    word: &'a AtomicU64,
    value: u64,
}

/// A kernel that stores a value and 1 into the first word of a region.
fn store(region: &MemoryRegion, value: u64) -> Launch<'_> {
    fn kernel(_: Store<'_>) {}
    // SAFETY: the fake driver's kernel stores the value and the number of threads there; the word outlives the launch.
    let (entry, word) = unsafe {
        let word = &*region.as_ptr().cast::<AtomicU64>();
        (Entry::foreign("kernel", kernel as fn(_)), word)
    };
    Launch::new(entry, Grid::ONE_THREAD, Store { word, value })
}

/// Two ends in pinned memory, and a word at each.
struct Ends {
    near: QueuePair,
    _far: QueuePair,
    source: MemoryRegion,
    target: MemoryRegion,
}

impl Ends {
    fn new(module: &warpbell_host_init::cuda::Module, send_doorbell: SendDoorbell) -> Self {
        let placement = Placement::Pinned(module.gpu());
        let domain = Device::open(Nic::Soft(SoftOptions::default()))
            .and_then(|device| device.protection_domain())
            .unwrap();
        let config = QueuePairConfig {
            placement: Some(placement),
            send_depth: DEPTH,
            receive_depth: 0,
            send_doorbell,
            ..QueuePairConfig::granting(Access::REMOTE_WRITE)
        };
        let pair = || domain.queue_pair(&config).unwrap();
        let region = || {
            let buffer = Buffer::placed(placement, 8).unwrap();
            domain
                .register(buffer, Access::LOCAL_WRITE | Access::REMOTE_WRITE)
                .unwrap()
        };
        let (mut near, mut far) = (pair(), pair());
        connect(&mut near, &mut far).unwrap();
        Self {
            near,
            _far: far,
            source: region(),
            target: region(),
        }
    }

    /// Holds a write at an index, and gives the index behind it.
    fn hold(&self, start: u16) -> u16 {
        let write = Wqe::write(
            self.source.local(0, 8).unwrap(),
            self.target.remote().at(0, 8).unwrap(),
        );
        let queue = self.near.held_queue().unwrap();
        // SAFETY: nothing is under way, and the test alone stores to the ring.
        unsafe { held::hold(queue, WqeIndex(start), [write]) }
            .unwrap()
            .0
    }

    fn arrived(&self) -> u64 {
        let mut bytes = [0; 8];
        self.target.read(0, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }
}

/// What the fake driver's streams did: bits written, or 0 for a wait; address; value; flags.
fn words() -> Vec<[u64; 4]> {
    // SAFETY: nothing runs when it is loaded.
    let driver = unsafe { libloading::Library::new("libcuda.so.1") }.unwrap();
    let mut words = [[0; 4]; 64];
    // SAFETY: so it is declared there, and it writes so many.
    let count = unsafe {
        let words_of = driver.get::<extern "C" fn(*mut [u64; 4]) -> i32>(b"fakeWords");
        words_of.unwrap()(words.as_mut_ptr())
    };
    words[..count as usize].to_vec()
}

#[test]
fn a_stream_sends_what_the_kernel_before_stored() {
    with_fake(
        "stream::a_stream_sends_what_the_kernel_before_stored",
        "works",
        || {
            let module = module();
            let ends = Ends::new(&module, SendDoorbell::WithRecord);
            // Three laps of the ring: both owner bits.
            for round in 0..3 * DEPTH as u16 {
                let end = ends.hold(round);
                // SAFETY: the completions are a ring of the same depth; the stream alone publishes what was just held.
                let held = unsafe { ends.near.held_send(end) };
                let [first, second] =
                    [10, 20].map(|value| store(&ends.source, value + u64::from(round)));
                let steps = [
                    Step::Run(&first),
                    Step::Send(held),
                    Step::Await(held),
                    Step::Run(&second),
                ];
                module.run_in_order(&steps, &watch()).unwrap();
                assert_eq!(ends.arrived(), 11 + u64::from(round), "round {round}");
            }
            // The owner bit, in the last byte, is waited for until it is 0 (3) in even laps, and 1 (2) in odd ones.
            let waits = words().into_iter().filter(|word| word[0] == 0);
            let found: Vec<_> = waits.map(|[_, _, value, flags]| (value, flags)).collect();
            let laps = [(!(1 << 56), 3), (1 << 56, 2), (!(1 << 56), 3)];
            assert_eq!(found, laps.map(|lap| [lap; DEPTH as usize]).concat());
        },
    );
}

#[test]
fn the_record_is_written_before_the_doorbell() {
    let name = "stream::the_record_is_written_before_the_doorbell";
    with_fake(name, "works", || {
        let module = module();
        let ends = Ends::new(&module, SendDoorbell::WithRecord);
        let parts = ends.near.send_parts();
        // SAFETY: as above.
        let held = unsafe { ends.near.held_send(ends.hold(0)) };
        module
            .run_in_order(&[Step::Send(held), Step::Await(held)], &watch())
            .unwrap();
        let doorbell = Doorbell::of_producer(WqeIndex(1), QpNumber::from_low_bits(parts.qpn));
        let tail = parts.completions.ring as u64 + 56;
        // Flags 0: behind a fence. Then 3: until the owner bit, in the last byte, is 0.
        let wanted = [
            [32, parts.record as u64, DoorbellRecord::word(1).into(), 0],
            [64, parts.doorbell as u64, doorbell.0, 0],
            [0, tail, !(1 << 56), 3],
        ];
        assert_eq!(words(), wanted);
    });
}

#[test]
fn a_queue_without_a_record_has_one_write() {
    with_fake(
        "stream::a_queue_without_a_record_has_one_write",
        "works",
        || {
            let module = module();
            let ends = Ends::new(&module, SendDoorbell::WithoutRecord);
            ends.source.write(0, &5u64.to_ne_bytes()).unwrap();
            // SAFETY: as above.
            let held = unsafe { ends.near.held_send(ends.hold(0)) };
            module
                .run_in_order(&[Step::Send(held), Step::Await(held)], &watch())
                .unwrap();
            assert_eq!(ends.arrived(), 5);
            let bits: Vec<_> = words().iter().map(|word| word[0]).collect();
            assert_eq!(bits, [64, 0]);
        },
    );
}

#[test]
fn a_completion_that_does_not_come_is_named() {
    let name = "stream::a_completion_that_does_not_come_is_named";
    with_fake(name, "hang", || {
        let module = module();
        let ends = Ends::new(&module, SendDoorbell::WithRecord);
        // SAFETY: as above.
        let held = unsafe { ends.near.held_send(ends.hold(0)) };
        let error = module
            .run_in_order(&[Step::Await(held)], &watch())
            .unwrap_err();
        assert!(matches!(error, GpuError::Hangs { .. }), "{error}");
        assert!(
            error.to_string().starts_with("the stream did not end"),
            "{error}"
        );
        assert!(module.gpu().is_lost());
    });
}

#[test]
fn a_gpu_without_such_streams_is_named() {
    for what in ["no-stream-words", "no-stream-nor"] {
        with_fake("stream::a_gpu_without_such_streams_is_named", what, || {
            let module = module();
            let ends = Ends::new(&module, SendDoorbell::WithRecord);
            // SAFETY: as above.
            let held = unsafe { ends.near.held_send(ends.hold(0)) };
            let kernel = store(&ends.source, 6);
            let refused = module.run_in_order(&[Step::Run(&kernel), Step::Send(held)], &watch());
            let gpu = "Fake GPU".into();
            assert_eq!(refused, Err(GpuError::NoStreamWords { gpu }));
            // Nothing ran; kernels alone may.
            assert_eq!(module.run_in_order(&[Step::Run(&kernel)], &watch()), Ok(()));
            assert_eq!(words(), [[0; 4]; 0]);
        });
    }
}

#[test]
fn a_word_that_the_driver_refuses_is_named() {
    with_fake(
        "stream::a_word_that_the_driver_refuses_is_named",
        "refuses-words",
        || {
            let module = module();
            let ends = Ends::new(&module, SendDoorbell::WithRecord);
            // SAFETY: as above.
            let held = unsafe { ends.near.held_send(ends.hold(0)) };
            for (step, call) in [
                (Step::Send(held), "cuStreamWriteValue32"),
                (Step::Await(held), "cuStreamWaitValue64"),
            ] {
                let kernel = store(&ends.source, 6);
                let error = module
                    .run_in_order(&[Step::Run(&kernel), step], &watch())
                    .unwrap_err();
                assert!(
                    matches!(error, GpuError::Driver { call: found, .. } if found == call),
                    "{error}"
                );
                // The kernel before it has ended, and others may follow.
                assert!(!module.gpu().is_lost());
            }
        },
    );
}

#[test]
fn a_cpu_has_no_streams() {
    let error = Node::cpu().run_in_order(&[], &[]).unwrap_err();
    assert!(matches!(error, Error::NoStream), "{error}");
}
