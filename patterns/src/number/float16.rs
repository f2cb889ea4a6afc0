//! Floats of 16 bits.

use super::{INFINITY, MAGNITUDE, narrowed, shifted, widened};

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

    /// The exponent of infinities and NaNs.
    const NO_NUMBER: u16 = 0x7c00;

    /// Rounds to nearest, ties to even. From 65,520 on, this is infinity.
    #[inline(always)]
    pub const fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let magnitude = bits & MAGNITUDE;
        if magnitude > INFINITY {
            return Self(0x7e00);
        }
        let rounded = narrowed(magnitude, Self::FORM.0, Self::FORM.1);
        let number = if rounded < Self::NO_NUMBER as u32 {
            rounded as u16
        } else {
            Self::NO_NUMBER
        };
        Self((bits >> 16) as u16 & 0x8000 | number)
    }

    /// The same value, exactly.
    #[inline(always)]
    pub const fn to_f32(self) -> f32 {
        let magnitude = self.0 & 0x7fff;
        if magnitude > Self::NO_NUMBER {
            return f32::NAN;
        }
        let bits = if magnitude == Self::NO_NUMBER {
            INFINITY
        } else {
            widened(magnitude as u32, Self::FORM.0, Self::FORM.1)
        };
        f32::from_bits((self.0 as u32 & 0x8000) << 16 | bits)
    }
}

impl Bf16 {
    /// Rounds to nearest, ties to even. Beyond the largest number, this is infinity.
    #[inline(always)]
    pub const fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let magnitude = bits & MAGNITUDE;
        if magnitude > INFINITY {
            return Self(0x7fc0);
        }
        Self((bits >> 16) as u16 & 0x8000 | shifted(magnitude, 16) as u16)
    }

    /// The same value, exactly.
    #[inline(always)]
    pub const fn to_f32(self) -> f32 {
        let bits = (self.0 as u32) << 16;
        if bits & MAGNITUDE > INFINITY {
            return f32::NAN;
        }
        f32::from_bits(bits)
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
