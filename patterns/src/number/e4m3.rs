//! Floats of 8 bits, and the blocks of values that share a scale.

use super::{INFINITY, MAGNITUDE, narrowed, widened};

/// OCP's FP8 E4M3 (*OCP 8-bit Floating Point Specification*, revision 1.0): 4 bits of exponent, 3 of mantissa. It has
/// no infinities, and one NaN of each sign.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub struct E4m3(u8);

impl E4m3 {
    /// The largest number.
    pub const MAX: f32 = 448.0;

    /// How many values share a scale, as in DeepEP.
    pub const BLOCK: u32 = 128;

    /// How many bits the mantissa has, and the exponent's bias.
    const FORM: (u32, u32) = (3, 7);

    /// All bits but the sign are set in a NaN.
    const NAN: u32 = 0x7f;

    /// The float that these bits are.
    #[inline(always)]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Its bits.
    #[inline(always)]
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// Rounds to nearest, ties to even. Beyond [`E4m3::MAX`], infinities included, this is [`E4m3::MAX`] of the same
    /// sign. A NaN stays one.
    #[inline(always)]
    pub const fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let magnitude = bits & MAGNITUDE;
        let largest = Self::MAX.to_bits();
        let limited = if magnitude < largest {
            magnitude
        } else {
            largest
        };
        let number = narrowed(limited, Self::FORM.0, Self::FORM.1);
        let (sign, nan) = if magnitude > INFINITY {
            (0, Self::NAN)
        } else {
            (bits >> 24 & 0x80, 0)
        };
        Self((sign | number | nan) as u8)
    }

    /// The same value, exactly. A NaN stays one.
    #[inline(always)]
    pub const fn to_f32(self) -> f32 {
        let (sign, magnitude) = ((self.0 as u32 & 0x80) << 24, self.0 as u32 & 0x7f);
        let number = widened(sign, magnitude, Self::FORM.0, Self::FORM.1);
        if magnitude == Self::NAN {
            f32::NAN
        } else {
            number
        }
    }

    /// The eight values of a word of [`BlockScale::pack`], with their block's [`BlockScale::scale`].
    #[inline(always)]
    pub const fn unpack(word: u64, scale: f32) -> [f32; 8] {
        let (low, high) = (word as u32, (word >> 32) as u32);
        [
            Self(low as u8).to_f32() * scale,
            Self((low >> 8) as u8).to_f32() * scale,
            Self((low >> 16) as u8).to_f32() * scale,
            Self((low >> 24) as u8).to_f32() * scale,
            Self(high as u8).to_f32() * scale,
            Self((high >> 8) as u8).to_f32() * scale,
            Self((high >> 16) as u8).to_f32() * scale,
            Self((high >> 24) as u8).to_f32() * scale,
        ]
    }
}

/// The bits of a value without its sign.
///
/// As integers, magnitudes have the order of the values without sign, and NaNs come last. So a block's largest is the
/// greatest of its integers.
#[inline(always)]
pub const fn magnitude(value: f32) -> u32 {
    value.to_bits() & MAGNITUDE
}

/// The divisor of a block of [`E4m3::BLOCK`] values. It makes [`E4m3::MAX`] of the largest.
///
/// Each value is multiplied by the inverse, as in DeepEP: a block takes one such division instead of 128. Product and
/// exact quotient differ by less than one part in 2^22. They round to different values only if the quotient is that
/// close to the middle between the two.
#[derive(Clone, Copy, Debug)]
pub struct BlockScale {
    scale: f32,
    inverse: f32,
}

impl BlockScale {
    /// 2^-100. Below it a block counts as zero, because the inverse could become infinite.
    const LEAST: f32 = f32::from_bits(27 << 23);

    /// The scale of a block whose largest [`magnitude`] this is.
    ///
    /// If all magnitudes are less than 2^-100, the scale is 1 and all values become zero. If a value of the block is
    /// infinite or NaN, all values unpack as NaN.
    #[inline(always)]
    pub const fn of(largest: u32) -> Self {
        let largest = f32::from_bits(largest);
        if largest < Self::LEAST {
            return Self {
                scale: 1.0,
                inverse: 1.0,
            };
        }
        Self {
            scale: largest / E4m3::MAX,
            inverse: E4m3::MAX / largest,
        }
    }

    /// The factor by which a reader multiplies each value.
    #[inline(always)]
    pub const fn scale(self) -> f32 {
        self.scale
    }

    /// Eight values of the block as [`E4m3`] in a word, the first in the lowest byte.
    #[inline(always)]
    pub const fn pack(self, [a, b, c, d, e, f, g, h]: [f32; 8]) -> u64 {
        let low = self.four(a, b, c, d);
        let high = self.four(e, f, g, h);
        (high as u64) << 32 | low as u64
    }

    /// Four values, the first in the lowest byte.
    #[inline(always)]
    const fn four(self, a: f32, b: f32, c: f32, d: f32) -> u32 {
        self.one(a) | self.one(b) << 8 | self.one(c) << 16 | self.one(d) << 24
    }

    #[inline(always)]
    const fn one(self, value: f32) -> u32 {
        E4m3::from_f32(value * self.inverse).0 as u32
    }
}
