//! Every warp-wide and block-wide function against what it is defined to give, worked out from all
//! threads' values at once.

use std::sync::Mutex;

use proptest::prelude::*;
use warpbell_cpu_grid::{Grid, LaneOrder, Options, launch};
use warpbell_gpu::{block, shared_array, thread, warp};

/// What each thread of a grid returns from `kernel`, by its index.
fn gather<T: Send + Clone>(
    dim: Grid,
    order: LaneOrder,
    kernel: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let results = Mutex::new(vec![None; (dim.blocks * dim.threads_per_block) as usize]);
    launch(
        dim,
        Options {
            order,
            ..Options::default()
        },
        || {
            let index = thread::index() as usize;
            let result = kernel(index);
            let former = results.lock().unwrap()[index].replace(result);
            assert!(former.is_none(), "thread {index} ran twice");
        },
    )
    .unwrap();
    results
        .into_inner()
        .unwrap()
        .into_iter()
        .map(|result| result.expect("every thread ran"))
        .collect()
}

/// The lanes of a thread's warp, as indices in the grid.
fn warp_of(index: usize, threads: usize) -> std::ops::Range<usize> {
    let block = index / threads * threads;
    let first = block + (index - block) / 32 * 32;
    first..(first + 32).min(block + threads)
}

fn orders() -> impl Strategy<Value = LaneOrder> {
    prop_oneof![
        Just(LaneOrder::Ascending),
        Just(LaneOrder::Descending),
        any::<u64>().prop_map(LaneOrder::Random)
    ]
}

/// Grids with block sizes at and around the edges of a warp, and values for their threads.
fn grids() -> impl Strategy<Value = (Grid, LaneOrder, Vec<u64>)> {
    let sizes = prop_oneof![
        4 => 1..=130u32,
        1 => 1..=1024u32,
        1 => prop::sample::select(vec![1, 31, 32, 33, 63, 64, 65, 96, 1023, 1024]),
    ];
    (1..=3u32, sizes, orders()).prop_flat_map(|(blocks, threads_per_block, order)| {
        let threads = (blocks * threads_per_block) as usize;
        let values = prop::collection::vec(any::<u64>(), threads);
        (
            Just(Grid::new(blocks, threads_per_block)),
            Just(order),
            values,
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn places((dim, order, _) in grids()) {
        let threads = dim.threads_per_block;
        let seen = gather(dim, order, |_| {
            assert_eq!([thread::thread_idx_y(), thread::thread_idx_z(), thread::block_idx_y(), thread::block_idx_z()], [0; 4]);
            assert_eq!([thread::block_dim_y(), thread::block_dim_z(), thread::grid_dim_y(), thread::grid_dim_z()], [1; 4]);
            assert_eq!(thread::index(), thread::index_1d());
            [
                thread::block_idx_x(), thread::thread_idx_x(), warp::lane_id(), warp::full_mask().count_ones(),
                thread::block_dim_x(), thread::grid_dim_x(), u32::from(thread::first()), warp::full_mask().trailing_ones(),
            ]
        });
        for (index, seen) in seen.into_iter().enumerate() {
            let lanes = warp_of(index, threads as usize);
            let in_block = index as u32 % threads;
            prop_assert_eq!(seen, [
                index as u32 / threads, in_block, in_block % 32, lanes.len() as u32,
                threads, dim.blocks, u32::from(index == 0), lanes.len() as u32,
            ]);
        }
    }

    #[test]
    fn warp_wide((dim, order, values) in grids()) {
        let seen = gather(dim, order, |index| {
            let value = values[index];
            (warp::rank_and_count(value % 3 == 0), warp::broadcast(value))
        });
        for (index, seen) in seen.into_iter().enumerate() {
            let lanes = warp_of(index, dim.threads_per_block as usize);
            let present = |lanes: std::ops::Range<usize>| lanes.filter(|&lane| values[lane] % 3 == 0).count() as u32;
            let rank = present(lanes.start..index);
            prop_assert_eq!(seen, ((rank, present(lanes.clone())), values[lanes.start]));
        }
    }

    /// Lanes of a warp split into two masks, each of which meets on its own; `part` says who is where.
    #[test]
    fn votes_and_shuffles_of_a_mask((dim, order, values) in grids(), part: u32, operand in 0..70u32, log_width in 0..6u32) {
        let width = 1 << log_width;
        let seen = gather(dim, order, |index| {
            let value = values[index];
            let full = warp::full_mask();
            let mask = if part >> warp::lane_id() & 1 == 1 { full & part } else { full & !part };
            // SAFETY: each lane is in its mask, and all lanes of the mask come here with it.
            unsafe {
                warp::sync_warp(mask);
                (
                    warp::warp_vote_ballot(mask, value & 1 == 1),
                    warp::warp_vote_all(mask, value % 8 != 0),
                    warp::warp_vote_any(mask, value % 8 == 0),
                    warp::warp_match_any_64(mask, value % 3),
                    warp::warp_shuffle_idx(mask, value, operand, width),
                    warp::warp_shuffle_up(mask, value as u32, operand, width),
                    warp::warp_shuffle_down(mask, value as i64, operand, width),
                    warp::warp_shuffle_xor(mask, value as i32, operand, width),
                )
            }
        });
        for (index, (ballot, all, any, alike, idx, up, down, xor)) in seen.into_iter().enumerate() {
            let warp = warp_of(index, dim.threads_per_block as usize);
            let own = index - warp.start;
            let together = |lane: usize| lane < warp.len() && (part >> lane & 1) == (part >> own & 1);
            let value = |lane: usize| values[warp.start + lane];
            let lanes = || (0..32).filter(|&lane| together(lane));
            prop_assert_eq!(ballot, lanes().map(|lane| (value(lane) as u32 & 1) << lane).sum::<u32>());
            prop_assert_eq!(all, lanes().all(|lane| value(lane) % 8 != 0));
            prop_assert_eq!(any, lanes().any(|lane| value(lane) % 8 == 0));
            let same = |lane: &usize| value(*lane) % 3 == values[index] % 3;
            prop_assert_eq!(alike, lanes().filter(same).map(|lane| 1 << lane).sum::<u32>());

            // The groups of a shuffle are whole: [0, width), [width, 2 width) ...
            let width = width as i64;
            let group = own as i64 / width;
            let delta = i64::from(operand % 32);
            let same_group = |from: i64| (from >= 0 && from / width == group).then_some(from as usize);
            // Flipping bits may lead to a lower group too, but not to a higher one.
            let flipped = own as i64 ^ delta;
            let sources = [
                Some((group * width + delta % width) as usize),
                same_group(own as i64 - delta),
                same_group(own as i64 + delta),
                (flipped / width <= group).then_some(flipped as usize),
            ];
            let got = [
                (idx.0, idx.1),
                (u64::from(up.0), up.1),
                (down.0 as u64, down.1),
                (u64::from(xor.0 as u32), xor.1),
            ];
            for (shuffle, (source, (bits, in_range))) in sources.into_iter().zip(got).enumerate() {
                prop_assert_eq!(in_range, source.is_some(), "shuffle {}", shuffle);
                let source = source.unwrap_or(own);
                if together(source) {
                    let low = if shuffle % 2 == 0 { u64::MAX } else { u64::from(u32::MAX) };
                    prop_assert_eq!(bits, value(source) & low, "shuffle {}", shuffle);
                }
            }
        }
    }

    /// Several meetings back to back, so that one must not disturb the next.
    #[test]
    fn block_wide((dim, order, values) in grids()) {
        let seen = gather(dim, order, |index| {
            let value = values[index];
            block::sync();
            (
                block::rank_and_count(value % 3 == 0),
                block::rank_and_count(value % 5 == 0),
                block::broadcast(value),
                block::broadcast(!value),
                thread::sync_threads_count((value % 7) as u32),
                thread::sync_threads_and((value % 128) as u32),
                thread::sync_threads_or(u32::from(value % 128 == 0)),
            )
        });
        let threads = dim.threads_per_block as usize;
        for (index, seen) in seen.into_iter().enumerate() {
            let first = index / threads * threads;
            let count = |lanes: std::ops::Range<usize>, of: &dyn Fn(u64) -> bool| {
                values[lanes].iter().filter(|&&value| of(value)).count() as u32
            };
            let block = first..first + threads;
            let ranked = |by: u64| {
                let present = |value: u64| value.is_multiple_of(by);
                (count(first..index, &present), count(block.clone(), &present))
            };
            let zeros = count(block.clone(), &|value| value % 128 == 0);
            prop_assert_eq!(seen, (
                ranked(3), ranked(5), values[first], !values[first],
                count(block.clone(), &|value| value % 7 != 0),
                u32::from(zeros == 0), u32::from(zeros != 0),
            ));
        }
    }
}

/// 64 bits of every kind of value go through a shuffle unharmed.
#[test]
fn shuffles_carry_every_type() {
    let dim = Grid::new(1, 32);
    let seen = gather(dim, LaneOrder::Ascending, |index| {
        let minus = -(index as i64) - 1;
        // SAFETY: all lanes come here.
        unsafe {
            (
                warp::warp_shuffle_xor(u32::MAX, minus as i32, 1, 32).0,
                warp::warp_shuffle_xor(u32::MAX, minus, 1, 32).0,
                warp::warp_shuffle_xor(u32::MAX, minus as f32 / 3.0, 1, 32).0,
                warp::warp_shuffle_xor(u32::MAX, minus as f64 / 3.0, 1, 32).0,
            )
        }
    });
    for (index, seen) in seen.into_iter().enumerate() {
        let minus = -((index ^ 1) as i64) - 1;
        assert_eq!(
            seen,
            (minus as i32, minus, minus as f32 / 3.0, minus as f64 / 3.0)
        );
    }
}

/// A barrier does without the threads that have exited, as on a GPU.
#[test]
fn a_barrier_does_not_wait_for_the_exited() {
    let dim = Grid::new(2, 70);
    for order in [
        LaneOrder::Ascending,
        LaneOrder::Descending,
        LaneOrder::Random(7),
    ] {
        let counts = gather(dim, order, |_| {
            let thread = thread::thread_idx_x();
            let mut counts = Vec::new();
            for round in 0..70 {
                if thread == round {
                    break;
                }
                block::sync();
                counts.push(thread::sync_threads_count(1));
            }
            counts
        });
        for (index, counts) in counts.into_iter().enumerate() {
            let rounds = index as u32 % 70;
            assert_eq!(
                counts,
                (1..=rounds).map(|gone| 70 - gone).collect::<Vec<_>>()
            );
        }
    }
}

/// Each thread leaves its index in one array and ten times that in another, and reads its neighbour's.
#[test]
fn shared_arrays_are_a_blocks_own_and_a_places_own() {
    let threads = 70;
    let dim = Grid::new(3, threads);
    for order in [LaneOrder::Ascending, LaneOrder::Random(7)] {
        let got = gather(dim, order, |index| {
            let (one, other) = (shared_array![u64; 1024], shared_array![u64; 1024]);
            let own = thread::thread_idx_x() as usize;
            // SAFETY: a block has at most 1,024 threads; each writes its own word before the barrier, and all
            // only read after it.
            unsafe {
                one.add(own).write(index as u64);
                other.add(own).write(10 * index as u64);
                thread::sync_threads();
                let next = (own + 1) % threads as usize;
                (one.add(next).read(), other.add(next).read())
            }
        });
        for (index, got) in got.into_iter().enumerate() {
            let block = index as u64 / 70 * 70;
            let next = block + (index as u64 - block + 1) % 70;
            assert_eq!(got, (next, 10 * next), "{order:?}, thread {index}");
        }
    }
}

#[test]
fn a_loop_finds_the_same_array_again() {
    let dim = Grid::new(1, 2);
    let got = gather(dim, LaneOrder::Ascending, |_| {
        let mut starts = (0..3).map(|_| shared_array![u32; 8] as usize);
        let first = starts.next();
        starts.all(|start| Some(start) == first)
    });
    assert_eq!(got, [true, true]);
}
