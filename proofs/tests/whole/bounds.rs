//! What the device says there is, is there; what a kernel refuses, it refuses.

use warpbell_proofs::bounds::{Kind, fill, refusals};

use crate::device::with_engine;

/// A test for each kind of object: as many go as the device says, and then it has no room.
macro_rules! what_is_advertised_is_there {
    ($($name:ident: $kind:ident;)*) => {$(
        #[test]
        fn $name() {
            with_engine(concat!("whole::bounds::", stringify!($name)), || {
                let [advertised, made, error] = fill(Kind::$kind);
                assert_eq!((made, error), (advertised, libc::ENOMEM as u32));
            });
        }
    )*};
}

what_is_advertised_is_there! {
    regions: Region;
    completion_queues: CompletionQueue;
    domains: Domain;
    shared_receive_queues: SharedReceiveQueue;
    queue_pairs: QueuePair;
}

#[test]
fn bad_arguments() {
    with_engine("whole::bounds::bad_arguments", || {
        let table = [
            ("memory to write", 0),
            ("memory to read, with no right to write", 0),
            ("memory to read, with the right to write", libc::EFAULT),
            ("memory that is unmapped in part", libc::EFAULT),
            ("remote writes without local ones", libc::EINVAL),
            ("port 1, P_Key 0", 0),
            ("port 7 of 1", libc::EINVAL),
            ("P_Key 5 of 1", libc::EINVAL),
            ("a question about port 7 of 1", libc::EINVAL),
            ("completion vector 3 of 1", libc::EINVAL),
        ];
        let found = refusals();
        let told = table
            .iter()
            .zip(found)
            .map(|((what, _), found)| (*what, found));
        assert_eq!(told.collect::<Vec<_>>(), table);
    });
}
