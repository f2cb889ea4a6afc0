//! How long events or requests took: a distribution that a kernel counted in buckets.

use serde::Serialize;
use warpbell_paper_kernels::distribution::{BUCKETS, least_of_bucket};

/// How many events took how long.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Distribution {
    /// Events that count.
    pub events: u64,
    /// What the fastest of so many events in 100, or 1,000, took at most, in microseconds: 1.6 % too much at most.
    pub p50_us: f64,
    /// 90 of 100.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p999_us: f64,
    /// The longest of all.
    pub longest_us: f64,
    /// Of so many events one took longer than so many microseconds.
    pub one_of: Vec<(u64, f64)>,
    /// From how many microseconds on, and how many events took so long but less than the next one: those of which there are
    /// any.
    pub histogram: Vec<(f64, u64)>,
}

impl Distribution {
    /// Of counts in buckets, of one way after the other, where the longest took so many nanoseconds; none of no events.
    pub fn new(counts: &[u64], longest: u64) -> Option<Self> {
        let mut all = vec![0; BUCKETS as usize];
        for way in counts.chunks(BUCKETS as usize) {
            for (sum, count) in all.iter_mut().zip(way) {
                *sum += count;
            }
        }
        let events: u64 = all.iter().sum();
        // What all but `beyond` events took at most.
        let at_most = |beyond: u64| {
            let mut left = events.checked_sub(beyond)?;
            let bucket = all.iter().position(|&count| {
                let found = left <= count;
                left = left.saturating_sub(count);
                found
            })?;
            let most = least_of_bucket(bucket as u32 + 1) - 1;
            Some(most.min(longest) as f64 / 1e3)
        };
        if events == 0 {
            return None;
        }
        let decades = (0..).map(|power| 10u64.pow(power));
        let steps = decades.flat_map(|decade| [1, 2, 5].map(|step| step * decade));
        let one_of = steps.skip(1).take_while(|&step| step <= events);
        Some(Self {
            events,
            p50_us: at_most(events / 2)?,
            p90_us: at_most(events / 10)?,
            p99_us: at_most(events / 100)?,
            p999_us: at_most(events / 1000)?,
            longest_us: longest as f64 / 1e3,
            one_of: one_of
                .filter_map(|step| Some((step, at_most(events / step)?)))
                .collect(),
            histogram: (0..)
                .map(|bucket| least_of_bucket(bucket) as f64 / 1e3)
                .zip(all.iter().copied())
                .filter(|&(_, count)| count > 0)
                .collect(),
        })
    }

    /// The percentiles, the longest behind them.
    pub fn percentiles(&self) -> [f64; 5] {
        [
            self.p50_us,
            self.p90_us,
            self.p99_us,
            self.p999_us,
            self.longest_us,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell_paper_kernels::distribution::bucket;

    #[test]
    fn percentiles_are_those_of_all_ways_together() {
        let mut counts = vec![0; 2 * BUCKETS as usize];
        // 1,000 events: the last of each share of them is longer than all before.
        for (way, nanoseconds, events) in [
            (0, 36, 300),
            (1, 36, 199),
            (1, 40, 1),
            (0, 46, 399),
            (1, 50, 1),
            (1, 52, 89),
            (0, 55, 1),
            (0, 58, 8),
            (1, 60, 1),
            (0, 1_000_000, 1),
        ] {
            let bucket = way * BUCKETS + bucket(nanoseconds);
            counts[bucket as usize] += events;
        }
        let found = Distribution::new(&counts, 1_000_000).unwrap();
        assert_eq!(found.events, 1000);
        let percentiles = found.percentiles();
        assert_eq!(percentiles, [0.04, 0.05, 0.055, 0.06, 1000.0]);
        let steps: Vec<u64> = found.one_of.iter().map(|&(step, _)| step).collect();
        assert_eq!(steps, [2, 5, 10, 20, 50, 100, 200, 500, 1000]);
        assert_eq!(found.one_of[8].1, 0.06);
        let [first, .., last] = &found.histogram[..] else {
            panic!("ten buckets");
        };
        assert_eq!((first, last.1), (&(0.036, 499), 1));
        // 64 buckets for each doubling.
        assert!((983.0..=1000.0).contains(&last.0), "{}", last.0);
        let counts = found.histogram.iter().map(|(_, count)| count);
        assert_eq!((counts.sum::<u64>(), found.histogram.len()), (1000, 9));
        assert!(Distribution::new(&vec![0; BUCKETS as usize], 0).is_none());
    }
}
