//! What the last word of a cell says of the cell.

/// How a cell tells that it is whole. The upper half of its last word is the message's sequence number in any case.
pub trait Seal: sealed::Sealed {
    /// How many values of 32 bits the last word has room for beside the sequence number.
    const SPARE: u32;

    /// What is known of a cell before its first word.
    #[doc(hidden)]
    fn begin(sequence: u32) -> u32;

    /// The same behind one more word.
    #[doc(hidden)]
    fn add(sum: u32, word: u64) -> u32;
}

/// The number alone: a cell is there once its last word has it. It holds where a cell comes whole, as a word of 8 bytes
/// does that is aligned.
#[derive(Clone, Copy, Debug)]
pub enum Sequence {}

/// The number, and a CRC-32 over it and all other words of the cell. It holds however the bytes of a cell come, but for
/// one chance in 2^32 each time that a reader finds old and new bytes mixed behind the new number.
///
/// The CRC is that of IEEE 802.3: polynomial 0x04c11db7, reflected, begun with all ones and inverted at the end.
#[derive(Clone, Copy, Debug)]
pub enum Checksum {}

impl Seal for Sequence {
    const SPARE: u32 = 1;

    #[inline(always)]
    fn begin(_sequence: u32) -> u32 {
        0
    }

    #[inline(always)]
    fn add(sum: u32, _word: u64) -> u32 {
        sum
    }
}

impl Seal for Checksum {
    const SPARE: u32 = 0;

    #[inline(always)]
    fn begin(sequence: u32) -> u32 {
        crc_add(!0, sequence)
    }

    #[inline(always)]
    fn add(sum: u32, word: u64) -> u32 {
        crc_add(crc_add(sum, word as u32), (word >> 32) as u32)
    }
}

/// The polynomial, its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// What a byte does to a CRC.
static TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let mut rest = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            rest = (rest >> 1) ^ (POLYNOMIAL * (rest & 1));
            bit += 1;
        }
        table[byte] = rest;
        byte += 1;
    }
    table
};

/// The CRC behind four more bytes, the lowest first. It is inverted at neither end: [`Checksum`] begins with all ones,
/// and who compares two sums need not invert both.
#[inline(always)]
fn crc_add(crc: u32, bytes: u32) -> u32 {
    let mut rest = crc ^ bytes;
    let mut byte = 0;
    while byte < 4 {
        rest = (rest >> 8) ^ TABLE[(rest & 0xff) as usize];
        byte += 1;
    }
    rest
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Sequence {}
    impl Sealed for super::Checksum {}
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// The published check value of CRC-32/ISO-HDLC is for nine bytes; the ninth goes in here by the definition.
    #[test]
    fn the_check_value_is_the_published_one() {
        let word = u64::from_le_bytes(*b"12345678");
        let mut crc = Checksum::add(!0, word) ^ u32::from(b'9');
        for _ in 0..8 {
            crc = (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
        }
        assert_eq!(!crc, 0xcbf4_3926);
    }

    #[test]
    fn it_is_what_another_implementation_gives() {
        let mut word = 0x0123_4567_89ab_cdef_u64;
        for length in 0..40u32 {
            let mut theirs = crc32fast::Hasher::new();
            theirs.update(&length.to_le_bytes());
            let mut ours = Checksum::begin(length);
            for _ in 0..length {
                word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
                theirs.update(&word.to_le_bytes());
                ours = Checksum::add(ours, word);
            }
            assert_eq!(!ours, theirs.finalize(), "{length} words");
        }
    }
}
