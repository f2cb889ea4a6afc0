//! A task's slot: words of 8 bytes of which each half tells for itself whether it has come, so that a message's words may
//! come in any order, and the smallest messages are one write.
//!
//! | word | low half, below its mark | high half, below its mark |
//! |---|---|---|
//! | 0 | the two highest bits of items 0 and 1 (4), function (11), number of arguments (3), has a payload (1), the value's highest bit (1) | the value's other bits (31) |
//! | 1, 2 | bits 0 to 30 of items 0 and 1 | their bits 31 to 61 |
//! | 3 | nothing (4), the two highest bits of items 2 to 5 (8) | nothing |
//! | 4 to 7 | bits 0 to 30 of items 2 to 5 | their bits 31 to 61 |
//!
//! *Items* are the payload's place, if there is one, and the arguments. What marks word 0 alternates from one of the slot's
//! messages to the next, all of which have that word. The other words do not come with every message: their marks are
//! set, and whoever has taken a message clears its words before the answer, behind which alone the slot is used again.

use super::Function;
use super::words::{COUNT_BITS, FUNCTION_BITS, Header, MAX_ARGUMENTS, MAX_FUNCTION};

/// Bytes of a slot.
pub const SLOT_BYTES: u64 = 64;
/// Words of a slot.
pub(super) const SLOT_WORDS: usize = SLOT_BYTES as usize / 8;
/// Items of a message at most.
pub(super) const MAX_ITEMS: usize = 1 + MAX_ARGUMENTS;

/// The highest bit of each half of a word.
pub(super) const MARKS: u64 = 1 << 63 | 1 << 31;
/// What each half has below its mark.
const LOW: u64 = (1 << 31) - 1;
const HIGH: u64 = LOW << 32;

/// Bits of an item that do not stand in its word, but in its [`top_word`].
const TOP_BITS: usize = 2;
const TOP_SHIFT: usize = 64 - TOP_BITS;

// Of word 0.
const FUNCTION_AT: u32 = 4;
const COUNT_AT: u32 = FUNCTION_AT + FUNCTION_BITS;
const PAYLOAD_AT: u32 = COUNT_AT + COUNT_BITS;
const VALUE_TOP_AT: u32 = PAYLOAD_AT + 1;
const VALUE_SHIFT: u32 = 32;

/// How many writes bring a message with so many items: words 0 to 2, or word 0 alone; words 3 to 5; words 6 and 7.
#[inline(always)]
pub(super) const fn writes(items: usize) -> u32 {
    match items {
        0..=2 => 1,
        3..=4 => 2,
        _ => 3,
    }
}

/// The word with an item but for its two highest bits.
#[inline(always)]
pub(super) const fn item_word(number: usize) -> usize {
    if number < 2 { 1 + number } else { 2 + number }
}

/// The word with an item's two highest bits.
#[inline(always)]
pub(super) const fn top_word(number: usize) -> usize {
    if number < 2 { 0 } else { 3 }
}

/// What marks word 0 of the message with this index, of `1 << slots_log2` slots: that of a slot's first message both bits,
/// which memory that nobody has written lacks.
#[inline(always)]
pub(super) const fn marks_of(index: u32, slots_log2: u32) -> u64 {
    match index >> slots_log2 & 1 {
        0 => MARKS,
        _ => 0,
    }
}

/// Whether both halves of a word have come that is marked so.
#[inline(always)]
pub(super) const fn is_there(word: u64, marks: u64) -> bool {
    word & MARKS == marks
}

/// An item's word.
#[inline(always)]
pub(super) const fn item(value: u64) -> u64 {
    MARKS | value & LOW | value << 1 & HIGH
}

/// An item's two highest bits, where its [`top_word`] has them.
#[inline(always)]
pub(super) const fn top(number: usize, value: u64) -> u64 {
    value >> TOP_SHIFT << (TOP_BITS * number)
}

/// An item, out of its word and its [`top_word`].
#[inline(always)]
pub(super) const fn read_item(number: usize, word: u64, tops: u64) -> u64 {
    word & LOW | (word & HIGH) >> 1 | tops >> (TOP_BITS * number) << TOP_SHIFT
}

/// Word 0 below its marks, with the highest bits of items 0 and 1: function, value, number of arguments, whether there is
/// a payload.
#[inline(always)]
pub(super) const fn first_word(
    function: Function,
    value: u32,
    arguments: u32,
    has_payload: bool,
    tops: u64,
) -> u64 {
    let low = value >> 31 << VALUE_TOP_AT
        | (has_payload as u32) << PAYLOAD_AT
        | arguments << COUNT_AT
        | function << FUNCTION_AT;
    (value as u64) << VALUE_SHIFT & HIGH | low as u64 | tops
}

/// What word 0 of the message with this index says.
#[inline(always)]
pub(super) const fn read_first(word: u64, index: u32) -> Header {
    let low = word as u32;
    let value = (word >> VALUE_SHIFT) as u32 & LOW as u32 | (low >> VALUE_TOP_AT & 1) << 31;
    Header::new(
        index,
        low >> FUNCTION_AT & MAX_FUNCTION,
        value,
        low >> COUNT_AT & ((1 << COUNT_BITS) - 1),
        low >> PAYLOAD_AT & 1 != 0,
    )
}

const _: () = {
    assert!(item_word(MAX_ITEMS - 1) == SLOT_WORDS - 1);
    assert!(writes(MAX_ITEMS) as usize * 3 >= SLOT_WORDS);
    assert!(FUNCTION_AT as usize == 2 * TOP_BITS);
    assert!(VALUE_TOP_AT < 31);
    assert!(MARKS & (LOW | HIGH) == 0 && MARKS | LOW | HIGH == u64::MAX);
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    #[test]
    fn what_is_packed_is_read_again() {
        let mut random = SmallRng::seed_from_u64(5);
        for _ in 0..if cfg!(miri) { 20 } else { 5000 } {
            let (index, slots_log2): (u32, u32) = (random.random(), random.random_range(0..16));
            let function = random.random_range(0..=MAX_FUNCTION);
            let (value, has_payload) = (random.random(), random.random());
            let arguments = random.random_range(0..8);
            let mut items: [u64; MAX_ITEMS] = random.random();
            items[random.random_range(0..MAX_ITEMS)] = u64::MAX;
            let marks = marks_of(index, slots_log2);
            let tops = |word| {
                let of_it = (0..MAX_ITEMS).filter(|&number| top_word(number) == word);
                of_it.fold(0, |tops, number| tops | top(number, items[number]))
            };
            let mut words = [0; SLOT_WORDS];
            words[0] = marks | first_word(function, value, arguments, has_payload, tops(0));
            words[3] = MARKS | tops(3);
            for (number, &value) in items.iter().enumerate() {
                words[item_word(number)] = item(value);
            }
            assert!(is_there(words[0], marks) && !is_there(words[0], marks ^ MARKS));
            assert!(words[1..].iter().all(|&word| is_there(word, MARKS)));
            let header = Header::new(index, function, value, arguments, has_payload);
            assert_eq!(read_first(words[0], index), header);
            for (number, &value) in items.iter().enumerate() {
                let found = read_item(number, words[item_word(number)], words[top_word(number)]);
                assert_eq!(found, value, "item {number}");
            }
        }
    }

    #[test]
    fn half_a_word_is_none() {
        for marks in [0, MARKS] {
            let (new, old) = (marks | LOW, marks ^ MARKS);
            let (low, high) = (u64::from(u32::MAX), u64::from(u32::MAX) << 32);
            assert!(is_there(new, marks) && !is_there(old, marks));
            assert!(!is_there(new & low | old & high, marks));
            assert!(!is_there(new & high | old & low, marks));
        }
    }

    #[test]
    fn marks_tell_a_slot_s_message_from_the_one_before() {
        for slots_log2 in 0..=15 {
            assert_eq!(marks_of((1 << slots_log2) - 1, slots_log2), MARKS);
            for index in [0, 1 << 16, u32::MAX, 0xffff_8000] {
                let next = index.wrapping_add(1 << slots_log2);
                let both = marks_of(index, slots_log2) ^ marks_of(next, slots_log2);
                assert_eq!(both, MARKS);
            }
        }
    }
}
