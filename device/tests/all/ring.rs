//! The arithmetic of a ring against its definitions, at every position around the edges.
#![cfg(not(loom))]

use warpbell::Ring;
use warpbell::wqe::WqeIndex;

/// Rings of 1 to 64 blocks, under miri to 8, with their depths.
fn rings() -> impl Iterator<Item = (Ring, u64)> {
    (0..=if cfg!(miri) { 3 } else { 6 }).map(|log2| (Ring::new(log2), 1 << log2))
}

#[test]
fn limits_are_shares_of_the_depth() {
    for (log2, depth, quarter, half) in [
        (0, 1, 1, 1),
        (1, 2, 1, 1),
        (2, 4, 1, 2),
        (3, 8, 2, 4),
        (6, 64, 16, 32),
        (15, 32_768, 8_192, 16_384),
    ] {
        let ring = Ring::new(log2);
        assert_eq!(ring.depth(), depth);
        assert_eq!(ring.wqe_limit(), quarter);
        assert_eq!(ring.group_limit(), half);
    }
}

/// Room is what of the depth is not between both, and none where more is.
#[test]
fn room_is_the_depth_less_what_is_used() {
    for (ring, depth) in rings() {
        for consumed in [0, 1, depth, u64::from(u32::MAX) - 1, 1 << 40] {
            for used in 0..=2 * depth + 1 {
                let reserved = consumed + used;
                let room = depth.saturating_sub(used);
                assert_eq!(u64::from(ring.room(reserved, consumed)), room);
                for blocks in 0..=depth + 1 {
                    let fits = used + blocks <= depth;
                    assert_eq!(ring.has_room(reserved, consumed, blocks as u32), fits);
                }
            }
        }
    }
}

/// The next multiple of a quarter of the ring, counted by hand.
#[test]
fn the_next_signal_is_the_next_multiple_of_a_quarter() {
    for (ring, depth) in rings() {
        let quarter = (depth / 4).max(1);
        for base in [0, 65_536, 1 << 40] {
            for start in base..base + 2 * depth {
                let next = (start..).find(|block| block % quarter == 0).unwrap();
                assert_eq!(ring.next_signal(start), next);
                assert!(ring.must_signal(next, 1));
                for block in start..next {
                    assert!(!ring.must_signal(block, 1));
                }
            }
        }
    }
}

/// A completion at block n says that all up to it are complete: n is the first with that index from the newest known on.
#[test]
fn completions_count_from_the_newest_known() {
    let ring = Ring::new(15);
    for consumed in [1, 2, 7, 0x7fff, 0xffff, 0x1_0000, 0x1_0001, 1 << 40] {
        for ahead in [0, 1, 2, 100, 0x7fff, 0xfffe, 0xffff] {
            let newest = WqeIndex((consumed - 1 + ahead) as u16);
            assert_eq!(u64::from(ring.shown(consumed, newest)), ahead);
            assert_eq!(ring.completed(consumed, newest), consumed + ahead);
        }
    }
    // Nothing is complete yet.
    assert_eq!(ring.completed(0, WqeIndex(0)), 1);
    assert_eq!(ring.completed(0, WqeIndex(0xffff)), 0);
}
