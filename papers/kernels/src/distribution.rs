//! How kernels count what many things took: in buckets, of which each is wider than the one before it.

/// Base-2 logarithm of the buckets for each doubling.
const FINE: u32 = 6;
/// Base-2 logarithm of the nanoseconds that no bucket has: 68 s.
const LONGEST: u32 = 36;
/// Buckets of a histogram of nanoseconds, 64 for each doubling: 1.6 % at most.
pub const BUCKETS: u32 = (LONGEST - FINE + 1) << FINE;

/// The bucket of so many nanoseconds.
#[inline(always)]
pub const fn bucket(nanoseconds: u64) -> u32 {
    let most = (1 << LONGEST) - 1;
    let nanoseconds = if nanoseconds < most {
        nanoseconds
    } else {
        most
    };
    // In 32 bits, which have room for it: Rust-CUDA counts the zeros of 64 wrongly.
    let doublings = ((nanoseconds >> FINE) as u32).checked_ilog2();
    match doublings {
        None => nanoseconds as u32,
        Some(doublings) => {
            let fine = (nanoseconds >> doublings) as u32 & ((1 << FINE) - 1);
            (doublings + 1) << FINE | fine
        }
    }
}

/// The least nanoseconds of a bucket.
pub const fn least_of_bucket(bucket: u32) -> u64 {
    match (bucket >> FINE).checked_sub(1) {
        None => bucket as u64,
        Some(doublings) => ((1 << FINE) | (bucket as u64 & ((1 << FINE) - 1))) << doublings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        assert_eq!((bucket(0), bucket(63), bucket(64)), (0, 63, 64));
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        for number in 0..BUCKETS {
            let least = least_of_bucket(number);
            assert_eq!(bucket(least), number);
            // The nanosecond before is in the bucket before.
            if let Some(before) = least.checked_sub(1) {
                assert_eq!(bucket(before) + 1, number);
            }
            // Narrower than a 64th of what it holds.
            let width = least_of_bucket(number + 1) - least;
            assert!(width == 1 || width * 64 <= least, "{number}");
        }
    }
}
