//! What the device says there is, is there.

use warpbell_proofs::bounds::{Kind, fill};

use crate::libmlx5::device::with_engine;

/// A test for each kind of object: as many go as the device says, and then it has no room.
macro_rules! what_is_advertised_is_there {
    ($($name:ident: $kind:ident;)*) => {$(
        #[test]
        fn $name() {
            with_engine(concat!("libmlx5::whole::bounds::", stringify!($name)), || {
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
