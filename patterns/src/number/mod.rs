//! The numbers that collectives add up, and the 8-bit floats of the expert-parallel exchange.
//!
//! | type | width (bits) | sum |
//! |---|---|---|
//! | `f32` | 32 | rounded to nearest, ties to even |
//! | [`F16`] | 16 | rounded to nearest, ties to even |
//! | [`Bf16`] | 16 | rounded to nearest, ties to even |
//! | `i32` | 32 | wraps |
//! | `u64` | 64 | wraps |
//!
//! [`E4m3`] has no sums: values travel in it. [`BlockScale`] packs blocks of `f32`, and [`E4m3::unpack`] unpacks them.
//!
//! Sums, and values rounded to fewer bits, are the same on every processor, bit for bit. IEEE 754 leaves open which NaN
//! comes of a sum. Here it is always the same quiet NaN.

mod e4m3;
mod float16;

pub use e4m3::{BlockScale, E4m3, magnitude};
pub use float16::{Bf16, F16};

/// A type whose values collectives add up.
pub trait Number: Copy + 'static + sealed::Sealed {
    /// Names the type where ranks compare what they call. It never changes for a type.
    const KIND: u32;

    /// The size of a value in bytes: 2, 4 or 8.
    const BYTES: u32;

    /// Adds each value of a word to the value in the same place of another. The first value is in the lowest bytes.
    ///
    /// The order of the two words makes no difference, for NaNs either.
    fn add_word(one: u64, other: u64) -> u64;
}

impl Number for f32 {
    const KIND: u32 = 1;
    const BYTES: u32 = 4;

    #[inline(always)]
    fn add_word(one: u64, other: u64) -> u64 {
        add_halves(one, other, |one, other| {
            one_nan(f32::from_bits(one) + f32::from_bits(other)).to_bits()
        })
    }
}

impl Number for F16 {
    const KIND: u32 = 2;
    const BYTES: u32 = 2;

    /// The correctly rounded sums, although each is rounded twice, first to `f32`. Rounding twice makes no difference
    /// if the wider type has 2p + 2 bits of significand or more, for p bits of the narrower type (S. A. Figueroa, *When
    /// is double rounding innocuous?*, 1995). Here 24 = 2 · 11 + 2.
    #[inline(always)]
    fn add_word(one: u64, other: u64) -> u64 {
        F16::pack(add_four(F16::unpack(one), F16::unpack(other)))
    }
}

impl Number for Bf16 {
    const KIND: u32 = 3;
    const BYTES: u32 = 2;

    /// The correctly rounded sums, as for [`F16`]: 24 bits are more than 2 · 8 + 2. A subnormal sum in `f32` is exact.
    #[inline(always)]
    fn add_word(one: u64, other: u64) -> u64 {
        Bf16::pack(add_four(Bf16::unpack(one), Bf16::unpack(other)))
    }
}

impl Number for i32 {
    const KIND: u32 = 4;
    const BYTES: u32 = 4;

    #[inline(always)]
    fn add_word(one: u64, other: u64) -> u64 {
        add_halves(one, other, u32::wrapping_add)
    }
}

impl Number for u64 {
    const KIND: u32 = 5;
    const BYTES: u32 = 8;

    #[inline(always)]
    fn add_word(one: u64, other: u64) -> u64 {
        one.wrapping_add(other)
    }
}

/// Adds the lower halves of two words, and the upper halves.
#[inline(always)]
fn add_halves(one: u64, other: u64, add: impl Fn(u32, u32) -> u32) -> u64 {
    let low = add(one as u32, other as u32);
    let high = add((one >> 32) as u32, (other >> 32) as u32);
    u64::from(high) << 32 | u64::from(low)
}

/// The sums of four values each.
#[inline(always)]
fn add_four([a, b, c, d]: [f32; 4], [e, f, g, h]: [f32; 4]) -> [f32; 4] {
    [a + e, b + f, c + g, d + h]
}

/// The same number, or the one NaN.
#[inline(always)]
fn one_nan(value: f32) -> f32 {
    if value.is_nan() { f32::NAN } else { value }
}

/// Everything but the sign of an `f32`.
const MAGNITUDE: u32 = 0x7fff_ffff;

/// Infinity's bits. Those of NaNs are greater, those of numbers less.
const INFINITY: u32 = f32::INFINITY.to_bits();

/// Where an `f32` has its exponent.
const MANTISSA: u32 = f32::MANTISSA_DIGITS - 1;

/// Rounds an `f32` without sign, given as its bits, to a float with a `mantissa` of so many bits; ties go to even.
///
/// `bias` is that of the narrower exponent. The value is at most a power of two beyond the narrower float's largest.
#[inline(always)]
const fn narrowed(magnitude: u32, mantissa: u32, bias: u32) -> u32 {
    // The exponent of the smallest normal number; subnormal numbers have its steps.
    let least = 128 - bias;
    let exponent = magnitude >> MANTISSA;
    let exponent = if exponent > least { exponent } else { least };
    // A power of two so large that the sum's last bit is the last bit to keep. So the addition rounds.
    let large = (exponent + MANTISSA - mantissa) << MANTISSA;
    let sum = f32::from_bits(magnitude) + f32::from_bits(large);
    sum.to_bits() - large + ((exponent - least) << mantissa)
}

/// The value of a narrower number without sign, given as its bits, with the sign of an `f32`'s bits. `mantissa` and
/// `bias` are as for `narrowed`.
#[inline(always)]
const fn widened(sign: u32, magnitude: u32, mantissa: u32, bias: u32) -> f32 {
    // Moved up, the bits are those of an `f32` that is too small by the difference of the biases, for subnormal numbers
    // as well. A product with a power of two is exact.
    let small = f32::from_bits(sign | magnitude << (MANTISSA - mantissa));
    small * f32::from_bits((254 - bias) << MANTISSA)
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for f32 {}
    impl Sealed for super::F16 {}
    impl Sealed for super::Bf16 {}
    impl Sealed for i32 {}
    impl Sealed for u64 {}
}
