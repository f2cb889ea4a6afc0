//! Minimum, median and the like.

/// The value below which `percent` of the sorted values lie: the nearest rank.
///
/// # Panics
/// Without values.
pub fn percentile<T: Copy>(sorted: &[T], percent: usize) -> T {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted[rank.max(1) - 1]
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn takes_the_nearest_rank() {
        assert_eq!(percentile(&[7], 50), 7);
        assert_eq!(percentile(&[1, 2], 50), 1);
        assert_eq!(percentile(&[1, 2, 3], 50), 2);
        let hundred: Vec<u32> = (1..=100).collect();
        assert_eq!(percentile(&hundred, 1), 1);
        assert_eq!(percentile(&hundred, 50), 50);
        assert_eq!(percentile(&hundred, 99), 99);
        assert_eq!(percentile(&hundred, 100), 100);
        let thousand: Vec<u32> = (1..=1000).collect();
        assert_eq!(percentile(&thousand, 99), 990);
    }
}
