//! Any bytes that a rank sends to rank 0 end in a value: rank 0 believes all messages only if no byte was changed. Any
//! body of a message is refused, or is the same when it is written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell_ranks::fuzzing::{believed, read, said};

fuzz_target!(|input: (u8, &[u8])| {
    let (way, bytes) = input;
    match way {
        0 => assert_eq!(believed(bytes), 0, "nobody knows the secret"),
        // Good words, some of whose bytes are others.
        1 => {
            let (whole, mut changed) = (said(), said());
            assert_eq!(believed(&whole), 2);
            for change in bytes.chunks_exact(2) {
                changed[usize::from(change[0]) % whole.len()] = change[1];
            }
            assert_eq!(believed(&changed) == 2, changed == whole);
        }
        _ => read(bytes),
    }
});
