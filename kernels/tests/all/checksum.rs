//! The checksum on grids of every shape against a plain sum.

use proptest::prelude::*;
use warpbell_cpu_grid::{Grid, LaneOrder, Options, launch};
use warpbell_kernels::checksum::{Checksum, checksum};

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn all_blocks_together_have_added_every_word_once(
        words in prop::collection::vec(any::<u64>(), 0..700),
        blocks in 1u32..4,
        threads_per_block in prop_oneof![1u32..200, Just(1024)],
        seed: u64,
    ) {
        let mut sums = vec![0u64; blocks as usize];
        let mut done = vec![0u64; blocks as usize];
        let parameters = Checksum {
            words: words.as_ptr(),
            count: words.len() as u64,
            sums: sums.as_mut_ptr(),
            done: done.as_mut_ptr(),
        };
        let options = Options { order: LaneOrder::Random(seed), ..Options::default() };
        launch(Grid { blocks, threads_per_block }, options, || {
            // SAFETY: the vectors outlive the launch and are as long as the parameters say.
            unsafe { checksum(parameters) };
        })
        .unwrap();
        let wanted = words.iter().fold(0u64, |sum, &word| sum.wrapping_add(word));
        let found = sums.iter().fold(0u64, |sum, &word| sum.wrapping_add(word));
        prop_assert_eq!(found, wanted);
        prop_assert!(done.iter().all(|&done| done == 1));
    }
}
