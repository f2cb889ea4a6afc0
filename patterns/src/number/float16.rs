//! Floats of 16 bits.

use super::{INFINITY, MAGNITUDE, narrowed, widened};

/// IEEE 754's binary16: 5 bits of exponent, 10 of mantissa.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub struct F16(u16);

/// The upper half of an `f32`: 8 bits of exponent, 7 of mantissa.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Bf16(u16);

impl F16 {
    /// How many bits the mantissa has, and the exponent's bias.
    const FORM: (u32, u32) = (10, 15);

    /// The bits of infinity. Those of NaNs are greater.
    const INFINITY: u32 = 0x7c00;

    /// 2^16, which would follow the largest number. It rounds to the bits of infinity.
    const LIMIT: u32 = 65_536.0_f32.to_bits();

    /// Rounds to nearest, ties to even. From 65,520 on, this is infinity.
    #[inline(always)]
    pub const fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let magnitude = bits & MAGNITUDE;
        let limited = if magnitude < Self::LIMIT {
            magnitude
        } else {
            Self::LIMIT
        };
        let number = narrowed(limited, Self::FORM.0, Self::FORM.1);
        let (sign, nan) = if magnitude > INFINITY {
            (0, 0x7e00)
        } else {
            (bits >> 16 & 0x8000, 0)
        };
        Self((sign | number | nan) as u16)
    }

    /// The same value, exactly. A NaN stays one.
    #[inline(always)]
    pub const fn to_f32(self) -> f32 {
        let (sign, magnitude) = ((self.0 as u32 & 0x8000) << 16, self.0 as u32 & 0x7fff);
        let number = widened(sign, magnitude, Self::FORM.0, Self::FORM.1);
        if magnitude < Self::INFINITY {
            number
        } else {
            f32::from_bits(sign | magnitude << 13 | INFINITY)
        }
    }
}

impl Bf16 {
    /// Rounds to nearest, ties to even. Beyond the largest number, this is infinity.
    #[inline(always)]
    pub const fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let magnitude = bits & MAGNITUDE;
        // Half of the last bit that stays, or just less if that bit is 0. A carry into the exponent is right.
        let number = (magnitude + 0x7fff + (magnitude >> 16 & 1)) >> 16;
        Self(if magnitude > INFINITY {
            0x7fc0
        } else {
            (bits >> 16 & 0x8000 | number) as u16
        })
    }

    /// The same value, exactly. A NaN stays one.
    #[inline(always)]
    pub const fn to_f32(self) -> f32 {
        f32::from_bits((self.0 as u32) << 16)
    }
}

/// What both have.
macro_rules! float16 {
    ($($float:ident)*) => { $(
        impl $float {
            /// The float that these bits are.
            #[inline(always)]
            pub const fn from_bits(bits: u16) -> Self {
                Self(bits)
            }

            /// Its bits.
            #[inline(always)]
            pub const fn to_bits(self) -> u16 {
                self.0
            }

            /// Four values in a word, the first in the lowest bytes.
            #[inline(always)]
            pub const fn pack([a, b, c, d]: [f32; 4]) -> u64 {
                let low = Self::from_f32(a).0 as u32 | (Self::from_f32(b).0 as u32) << 16;
                let high = Self::from_f32(c).0 as u32 | (Self::from_f32(d).0 as u32) << 16;
                (high as u64) << 32 | low as u64
            }

            /// The four values of a word.
            #[inline(always)]
            pub const fn unpack(word: u64) -> [f32; 4] {
                let (low, high) = (word as u32, (word >> 32) as u32);
                [
                    Self(low as u16).to_f32(),
                    Self((low >> 16) as u16).to_f32(),
                    Self(high as u16).to_f32(),
                    Self((high >> 16) as u16).to_f32(),
                ]
            }
        }
    )* };
}

float16! { F16 Bf16 }
