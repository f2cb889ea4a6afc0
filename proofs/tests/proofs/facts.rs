//! How two sides are compared.

use warpbell_proofs::facts::{constants, differences};
use warpbell_proofs::layouts;

#[test]
fn a_difference_is_a_number_or_a_name() {
    let ours = constants([("same", 1), ("other", 2), ("only ours", 3)]);
    let theirs = constants([("same", 1), ("other", 4), ("only theirs", 5)]);
    assert_eq!(
        differences(&ours, &theirs),
        [
            "only theirs: theirs is 0x5, and nothing of ours is compared",
            "other: ours is 0x2, theirs is 0x4",
            "only ours: theirs is not asked",
        ]
    );
    assert!(differences(&ours, &ours).is_empty());
}

#[test]
fn layouts_are_told_by_their_names() {
    #[repr(C)]
    struct Pair {
        first: u8,
        second: u32,
    }
    let facts = layouts!(Pair = "their_pair" { first, second = "their_second" });
    let expected = constants([
        ("their_pair", 8),
        ("their_pair.first", 0),
        ("their_pair.first size", 1),
        ("their_pair.their_second", 4),
        ("their_pair.their_second size", 4),
    ]);
    assert_eq!(facts, expected);
}
