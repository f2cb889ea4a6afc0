//! Any 64 bytes decode without a panic; what they decode to encodes back to the same fields; and the
//! words that a poll loads agree with the whole.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlx5_wqe::{Completion, CompletionError, Cqe64, CqeError, CqeErrorWord, CqeFormat, CqeTail};

fuzz_target!(|input: &[u8]| {
    let Some(bytes) = input.first_chunk::<64>().copied() else {
        return;
    };
    let cqe = Cqe64::from_bytes(bytes);
    assert_eq!(cqe.to_bytes(), bytes);

    let word = |at: usize| u64::from_ne_bytes(core::array::from_fn(|i| bytes[at + i]));
    let tail = CqeTail(word(56));
    let error_word = CqeErrorWord(word(48));
    assert_eq!(cqe.tail(), tail);
    assert_eq!(cqe.error_word(), error_word);
    assert_eq!(tail.is_new(bytes[63] & 1 == 1), bytes[63] < 0xf0);
    assert!(!tail.is_new(bytes[63] & 1 == 0));

    let decoded = cqe.decode();
    let error = CompletionError::from_words(error_word, tail);
    assert_eq!(error.is_some(), tail.is_error());
    match decoded {
        Ok(said) => {
            let again = said.encode(tail.owner());
            assert_eq!(again.decode(), Ok(said));
            let again = again.to_bytes();
            // QPN, counter and CQE opcode are common to all; the rest is each kind's own.
            assert_eq!(again[57..62], bytes[57..62]);
            assert_eq!(again[63] & 0xf1, bytes[63] & 0xf1);
            match said {
                Completion::Error(said) => {
                    assert_eq!(error, Some(said));
                    assert_eq!(again[54..57], bytes[54..57]);
                }
                Completion::Requester(_) => {
                    assert_eq!(bytes[63] >> 4, 0);
                    assert_eq!(again[44..48], bytes[44..48]);
                    assert_eq!(again[56], bytes[56]);
                }
                Completion::Responder(said) => {
                    assert!((1..=4).contains(&(bytes[63] >> 4)));
                    assert_eq!(again[44..48], bytes[44..48]);
                    if said.kind.immediate().is_some() || bytes[63] >> 4 == 4 {
                        assert_eq!(again[36..40], bytes[36..40]);
                    }
                }
            }
        }
        Err(CqeError::Invalid) => assert_eq!(bytes[63] >> 4, 15),
        Err(CqeError::Compressed) => assert_eq!(tail.format(), CqeFormat::Compressed),
        Err(CqeError::Unsupported(opcode)) => {
            assert_eq!(opcode.0, bytes[63] >> 4);
            assert!((5..=12).contains(&opcode.0));
        }
    }
});
