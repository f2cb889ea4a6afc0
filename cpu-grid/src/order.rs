//! Which lane of a warp runs next.

/// The order in which a warp's lanes run. A lane runs until it waits, so the order decides how lanes
/// interleave; a kernel that is right gives the same in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LaneOrder {
    /// Round and round, from the lowest lane to the highest.
    #[default]
    Ascending,
    /// Round and round, from the highest lane to the lowest.
    Descending,
    /// At each switch any lane that can run, drawn from this seed and the warp's place in the grid.
    Random(u64),
}

/// A warp's order, under way.
pub(crate) enum Picker {
    Ascending { last: u32 },
    Descending { last: u32 },
    Random { state: u64 },
}

impl Picker {
    /// The order of warp `warp` of block `block`.
    pub(crate) fn new(order: LaneOrder, block: u32, warp: u32) -> Self {
        match order {
            LaneOrder::Ascending => Self::Ascending { last: 31 },
            LaneOrder::Descending => Self::Descending { last: 0 },
            LaneOrder::Random(seed) => {
                let place = u64::from(block) << 32 | u64::from(warp);
                Self::Random {
                    state: mix(seed ^ mix(place)),
                }
            }
        }
    }

    /// The next of the lanes in `ready`; `None` if there is none.
    pub(crate) fn pick(&mut self, ready: u32) -> Option<u32> {
        if ready == 0 {
            return None;
        }
        Some(match self {
            Self::Ascending { last } => {
                let above = ready & !lanes_up_to(*last);
                *last = if above != 0 { above } else { ready }.trailing_zeros();
                *last
            }
            Self::Descending { last } => {
                let below = ready & (lanes_up_to(*last) >> 1);
                *last = 31 - if below != 0 { below } else { ready }.leading_zeros();
                *last
            }
            Self::Random { state } => {
                *state = state.wrapping_add(GOLDEN);
                let skip = mix(*state) % u64::from(ready.count_ones());
                let rest = (0..skip).fold(ready, |rest, _| rest & (rest - 1));
                rest.trailing_zeros()
            }
        })
    }
}

/// The lanes 0 to `lane`.
fn lanes_up_to(lane: u32) -> u32 {
    u32::MAX >> (31 - lane)
}

/// 2^64 divided by the golden ratio: the step of splitmix64.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output function of splitmix64.
fn mix(mut value: u64) -> u64 {
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picks(order: LaneOrder, ready: u32, count: usize) -> Vec<u32> {
        let mut picker = Picker::new(order, 0, 0);
        (0..count).map(|_| picker.pick(ready).unwrap()).collect()
    }

    #[test]
    fn goes_round_in_both_directions() {
        let ready = 1 << 31 | 1 << 30 | 1 << 5 | 1;
        assert_eq!(picks(LaneOrder::Ascending, ready, 6), [0, 5, 30, 31, 0, 5]);
        assert_eq!(
            picks(LaneOrder::Descending, ready, 6),
            [31, 30, 5, 0, 31, 30]
        );
        assert_eq!(Picker::new(LaneOrder::Ascending, 0, 0).pick(0), None);
    }

    #[test]
    fn random_reaches_every_lane_that_can_run_and_repeats_with_its_seed() {
        let ready = 0xf00f_0f01;
        let seen = picks(LaneOrder::Random(1), ready, 1000)
            .iter()
            .fold(0, |seen, lane| seen | 1 << lane);
        assert_eq!(seen, ready);
        assert_eq!(
            picks(LaneOrder::Random(1), ready, 100),
            picks(LaneOrder::Random(1), ready, 100)
        );
        assert_ne!(
            picks(LaneOrder::Random(1), ready, 100),
            picks(LaneOrder::Random(2), ready, 100)
        );
    }
}
