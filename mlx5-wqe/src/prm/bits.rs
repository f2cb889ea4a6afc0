//! Fields of a record as the card's reference manual counts them: from the first bit, which is the highest
//! of the first byte.

/// Where a field lies in its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Field {
    pub(super) name: &'static str,
    pub(super) offset: usize,
    pub(super) width: usize,
}

impl Field {
    /// Its name in `mlx5_ifc.h`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Its first bit, counted from the record's first.
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Its bits.
    pub const fn width(&self) -> usize {
        self.width
    }

    /// The value in a record's bytes, of the field's low 64 bits; bits that lie behind the bytes are 0.
    pub const fn get(&self, bytes: &[u8]) -> u64 {
        let mut value = 0;
        let mut bit = self.offset;
        while bit < self.offset + self.width {
            let set = bit / 8 < bytes.len() && bytes[bit / 8] & mask(bit) != 0;
            value = value << 1 | set as u64;
            bit += 1;
        }
        value
    }

    /// Puts a value's low bits into a record's bytes; bits that lie behind the bytes are lost.
    pub const fn set(&self, bytes: &mut [u8], mut value: u64) {
        let mut bit = self.offset + self.width;
        while bit > self.offset {
            bit -= 1;
            if bit / 8 < bytes.len() {
                let byte = &mut bytes[bit / 8];
                *byte = if value & 1 == 1 {
                    *byte | mask(bit)
                } else {
                    *byte & !mask(bit)
                };
            }
            value >>= 1;
        }
    }

    /// Whether a value fits the field.
    pub const fn fits(&self, value: u64) -> bool {
        self.width >= 64 || value >> self.width == 0
    }
}

/// A bit of its byte.
const fn mask(bit: usize) -> u8 {
    0x80 >> (bit % 8)
}

/// Whether fields lie within `bytes` bytes, none on another.
pub(super) const fn are_sound(fields: &[Field], bytes: usize) -> bool {
    let mut first = 0;
    while first < fields.len() {
        let one = &fields[first];
        if one.width == 0 || one.offset + one.width > bytes * 8 {
            return false;
        }
        let mut second = 0;
        while second < first {
            let other = &fields[second];
            if one.offset < other.offset + other.width && other.offset < one.offset + one.width {
                return false;
            }
            second += 1;
        }
        first += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{Field, are_sound};

    const fn field(offset: usize, width: usize) -> Field {
        Field {
            name: "a field",
            offset,
            width,
        }
    }

    /// Every two fields in the bits of two bytes and one byte more.
    #[test]
    fn fields_are_sound_where_they_lie_within_and_apart() {
        let fields =
            || (0..24).flat_map(|offset| (0..=24 - offset).map(move |width| (offset, width)));
        for (one_offset, one_width) in fields() {
            let one = field(one_offset, one_width);
            let lies_within = one_width > 0 && one_offset + one_width <= 16;
            assert_eq!(are_sound(&[one], 2), lies_within, "{one:?}");
            for (offset, width) in fields() {
                let other = field(offset, width);
                let both_within = lies_within && width > 0 && offset + width <= 16;
                let common = (offset..offset + width)
                    .any(|bit| (one_offset..one_offset + one_width).contains(&bit));
                assert_eq!(are_sound(&[one, other], 2), both_within && !common);
            }
        }
        assert!(are_sound(&[], 0));
    }

    /// The third is compared with both before it.
    #[test]
    fn each_field_is_compared_with_all_before() {
        let fields = |last| [field(0, 4), field(4, 4), field(last, 4)];
        for (last, sound) in [(0, false), (3, false), (4, false), (7, false), (8, true)] {
            assert_eq!(are_sound(&fields(last), 2), sound);
        }
    }
}
