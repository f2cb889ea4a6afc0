//! Numbers of collectives against the crate `half`, 64-bit floats, and the formulas of the specifications.
// The numbers have no unsafe code, and miri takes minutes for these.
#![cfg(not(any(loom, miri)))]

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell_patterns::number::{Bf16, BlockScale, E4m3, F16, Number, magnitude};

/// How many random values a test takes.
const RANDOM: usize = 1_000_000;

/// Every such value of 16 bits.
fn all_of_16() -> impl Iterator<Item = u16> {
    0..=u16::MAX
}

/// Bits of `f32` where rounding to a narrower float changes: each value of the narrower float, the middle between it
/// and the next, and the neighbours of both.
fn edges(values: impl Iterator<Item = f32>) -> impl Iterator<Item = u32> {
    let mut values: Vec<u32> = values
        .map(f32::to_bits)
        .filter(|bits| *bits <= f32::INFINITY.to_bits())
        .collect();
    values.sort_unstable();
    values.dedup();
    let next = values.clone().into_iter().skip(1);
    let middles: Vec<u32> = values
        .iter()
        .zip(next)
        .map(|(&one, next)| {
            let middle = (f64::from(f32::from_bits(one)) + f64::from(f32::from_bits(next))) / 2.0;
            // Beyond the largest value, the specification's middle is half a step up.
            let middle = if middle.is_finite() {
                middle as f32
            } else {
                f32::from_bits(one)
            };
            middle.to_bits()
        })
        .collect();
    let near = |bits: u32| bits.saturating_sub(2)..=bits + 2;
    let magnitudes = values.into_iter().chain(middles).flat_map(near);
    magnitudes.flat_map(|bits| [bits, bits | 0x8000_0000])
}

/// Random bits, half of them near the exponents of narrow floats.
fn random_bits(random: &mut SmallRng) -> u32 {
    let bits: u32 = random.random();
    if random.random() {
        bits
    } else {
        let exponent = random.random_range(95..150_u32);
        bits & 0x807f_ffff | exponent << 23
    }
}

/// The bits, where all NaNs are one.
fn comparable(value: f32) -> u32 {
    if value.is_nan() {
        f32::NAN.to_bits()
    } else {
        value.to_bits()
    }
}

#[test]
fn floats_of_16_bits_widen_as_half_does() {
    for bits in all_of_16() {
        let f16 = F16::from_bits(bits).to_f32();
        let bf16 = Bf16::from_bits(bits).to_f32();
        let of_half = half::f16::from_bits(bits).to_f32();
        assert_eq!(comparable(f16), comparable(of_half), "f16 {bits:#06x}");
        let of_half = half::bf16::from_bits(bits).to_f32();
        assert_eq!(comparable(bf16), comparable(of_half), "bf16 {bits:#06x}");
        if !f16.is_nan() {
            assert_eq!(F16::from_f32(f16).to_bits(), bits);
        }
        if !bf16.is_nan() {
            assert_eq!(Bf16::from_f32(bf16).to_bits(), bits);
        }
    }
}

/// Both narrow one value as `half` does, but for NaNs, which become one.
fn narrow_as_half_does(bits: u32) {
    let value = f32::from_bits(bits);
    let (f16, bf16) = (F16::from_f32(value), Bf16::from_f32(value));
    if value.is_nan() {
        assert_eq!(f16.to_bits(), half::f16::NAN.to_bits(), "{bits:#010x}");
        assert_eq!(bf16.to_bits(), half::bf16::NAN.to_bits(), "{bits:#010x}");
        return;
    }
    let of_half = half::f16::from_f32(value).to_bits();
    assert_eq!(f16.to_bits(), of_half, "f16 of {bits:#010x}");
    let of_half = half::bf16::from_f32(value).to_bits();
    assert_eq!(bf16.to_bits(), of_half, "bf16 of {bits:#010x}");
}

#[test]
fn floats_of_16_bits_narrow_as_half_does() {
    edges(all_of_16().map(|bits| half::f16::from_bits(bits).to_f32()))
        .for_each(narrow_as_half_does);
    edges(all_of_16().map(|bits| half::bf16::from_bits(bits).to_f32()))
        .for_each(narrow_as_half_does);
    // From here on the nearest value is infinity.
    let f16 = [65_519.996_f32, 65_520.0].map(|value| F16::from_f32(value).to_bits());
    assert_eq!(f16, [0x7bff, 0x7c00]);
    let bf16 =
        [0x7f7f_7fff, 0x7f7f_8000].map(|bits| Bf16::from_f32(f32::from_bits(bits)).to_bits());
    assert_eq!(bf16, [0x7f7f, 0x7f80]);
    let random = &mut SmallRng::seed_from_u64(1);
    for _ in 0..RANDOM {
        narrow_as_half_does(random_bits(random));
    }
}

#[test]
fn four_values_are_in_a_word_from_its_lowest_bytes() {
    let values = [1.0, -2.5, 0.0, 65_504.0];
    assert_eq!(F16::pack(values), 0x7bff_0000_c100_3c00);
    assert_eq!(F16::unpack(0x7bff_0000_c100_3c00), values);
    let values = [1.0, -2.5, 0.0, 256.0];
    assert_eq!(Bf16::pack(values), 0x4380_0000_c020_3f80);
    assert_eq!(Bf16::unpack(0x4380_0000_c020_3f80), values);
}

/// The sums of two words by `add_word` in both orders, which are equal.
fn sums<T: Number>(one: u64, other: u64) -> [u8; 8] {
    let sums = T::add_word(one, other);
    assert_eq!(sums, T::add_word(other, one), "{one:#018x} {other:#018x}");
    sums.to_le_bytes()
}

/// Compares the sums of two words with `add`, which adds two values given as their bytes.
fn add_as<T: Number, const BYTES: usize>(
    one: u64,
    other: u64,
    add: impl Fn([u8; BYTES], [u8; BYTES]) -> [u8; BYTES],
) {
    assert_eq!(T::BYTES as usize, BYTES);
    let sums = sums::<T>(one, other);
    let (ones, others) = (one.to_le_bytes(), other.to_le_bytes());
    let lanes = ones.as_chunks().0.iter().zip(others.as_chunks().0);
    for ((&a, &b), &sum) in lanes.zip(sums.as_chunks().0) {
        assert_eq!(sum, add(a, b), "{a:02x?} and {b:02x?}, KIND {}", T::KIND);
    }
}

/// The number as `f32` such that a narrower float rounds it as it would round the number itself: if it is between two,
/// the odd one of them. (`from_f64` of `half` ignores the lowest 32 bits, which may decide a tie.)
fn to_odd(number: f64) -> f32 {
    let near = number as f32;
    if f64::from(near) == number {
        return near;
    }
    let beyond = f64::from(near).abs() > number.abs();
    f32::from_bits((near.to_bits() - u32::from(beyond)) | 1)
}

/// Adds two words as each kind of number.
fn add_as_each(one: u64, other: u64) {
    // An `f64` holds the sum of any two `f16`. It rounds some sums of `bf16`, but its 53 bits are more than 2 · 8 + 2,
    // so that rounding twice makes no difference.
    add_as::<F16, 2>(one, other, |a, b| {
        let sum = half::f16::from_le_bytes(a).to_f64() + half::f16::from_le_bytes(b).to_f64();
        let sum = if sum.is_nan() {
            half::f16::NAN
        } else {
            half::f16::from_f32(to_odd(sum))
        };
        sum.to_le_bytes()
    });
    add_as::<Bf16, 2>(one, other, |a, b| {
        let sum = half::bf16::from_le_bytes(a).to_f64() + half::bf16::from_le_bytes(b).to_f64();
        let sum = if sum.is_nan() {
            half::bf16::NAN
        } else {
            half::bf16::from_f32(to_odd(sum))
        };
        sum.to_le_bytes()
    });
    // 53 bits are more than 2 · 24 + 2.
    add_as::<f32, 4>(one, other, |a, b| {
        let sum = (f64::from(f32::from_le_bytes(a)) + f64::from(f32::from_le_bytes(b))) as f32;
        comparable(sum).to_le_bytes()
    });
    add_as::<i32, 4>(one, other, |a, b| {
        let sum = i64::from(i32::from_le_bytes(a)) + i64::from(i32::from_le_bytes(b));
        (sum as i32).to_le_bytes()
    });
    add_as::<u64, 8>(one, other, |a, b| {
        let sum = u128::from(u64::from_le_bytes(a)) + u128::from(u64::from_le_bytes(b));
        (sum as u64).to_le_bytes()
    });
}

#[test]
fn sums_are_rounded_once() {
    let random = &mut SmallRng::seed_from_u64(2);
    for round in 0..RANDOM / 4 {
        let one: u64 = random.random();
        let mut other: u64 = random.random();
        // Otherwise few values are near each other, and fewer cancel.
        if round % 2 == 0 {
            other = one ^ other & 0x83ff_83ff_83ff_83ff;
        }
        add_as_each(one, other);
    }
}

#[test]
fn sums_of_limits_are_right() {
    // Zeros of both signs, the smallest and largest numbers, infinities and NaNs, of `f16` and of `bf16`.
    let words = [
        0x0000_8000_0001_8001,
        0x3c00_bc00_3c01_0400,
        0x7bff_fbff_7c00_fc00,
        0x7c01_fe00_7fff_ffff,
        0x7f7f_ff7f_7f80_ff80,
        0x7f81_ffc0_7fc0_0080,
        u64::MAX,
        0x8000_0000_8000_0000,
        0x7fff_ffff_7fff_ffff,
        0x7f7f_ffff_ff7f_ffff,
        0x3f80_0000_0000_0001,
    ];
    for one in words {
        for other in words
            .into_iter()
            .flat_map(|word| (0..4).map(move |lane| word.rotate_left(16 * lane)))
        {
            add_as_each(one, other);
        }
    }
}

#[test]
fn kinds_differ() {
    let mut kinds = [f32::KIND, F16::KIND, Bf16::KIND, i32::KIND, u64::KIND];
    kinds.sort_unstable();
    assert!(kinds.windows(2).all(|pair| pair[0] < pair[1]));
}

/// A power of two from 2^-126 to 2^127, to the bit, which `powi` does not promise.
fn two_to(exponent: i32) -> f32 {
    f32::from_bits(((127 + exponent) as u32) << 23)
}

/// The value of an E4M3 as the specification has it.
fn e4m3_formula(code: u8) -> f64 {
    let sign = if code >> 7 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::from(code >> 3 & 15);
    let mantissa = f64::from(code & 7) / 8.0;
    match (exponent, code & 7) {
        (15, 7) => f64::NAN,
        (0, _) => sign * f64::from(two_to(-6)) * mantissa,
        _ => sign * f64::from(two_to(exponent - 7)) * (1.0 + mantissa),
    }
}

#[test]
fn e4m3_has_the_values_of_the_specification() {
    for code in 0..=u8::MAX {
        let (value, formula) = (E4m3::from_bits(code).to_f32(), e4m3_formula(code));
        assert_eq!(value.is_nan(), formula.is_nan(), "{code:#04x}");
        if !value.is_nan() {
            // Signs of zeros count.
            assert_eq!(f64::from(value).to_bits(), formula.to_bits(), "{code:#04x}");
            assert_eq!(E4m3::from_f32(value).to_bits(), code);
        }
    }
    assert_eq!(E4m3::from_bits(0x7e).to_f32(), E4m3::MAX);
}

/// The code of the nearest number, found among all; of two that are as near, the even one.
fn nearest_e4m3(value: f32, numbers: &[f64]) -> u8 {
    let distance = |code: u8| (numbers[usize::from(code)] - f64::from(value).abs()).abs();
    let nearest = (0..0x7f_u8).min_by(|&one, &other| {
        let by_distance = distance(one).total_cmp(&distance(other));
        by_distance.then((one & 1).cmp(&(other & 1)))
    });
    nearest.expect("there are numbers") | if value.is_sign_negative() { 0x80 } else { 0 }
}

#[test]
fn e4m3_is_the_nearest_number() {
    let numbers: Vec<f64> = (0..0x7f).map(e4m3_formula).collect();
    let random = &mut SmallRng::seed_from_u64(3);
    let random = (0..RANDOM / 20).map(|_| random_bits(random));
    let edges = edges(numbers.iter().map(|number| *number as f32));
    // All that is too large.
    let large = [
        463.9,
        464.0,
        464.1,
        480.0,
        1e9,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ];
    for bits in edges.chain(random).chain(large.map(f32::to_bits)) {
        let value = f32::from_bits(bits);
        let code = E4m3::from_f32(value).to_bits();
        if value.is_nan() {
            assert_eq!(code, 0x7f, "{bits:#010x}");
        } else {
            // From too far away, differences of distances are lost.
            let value = value.clamp(-512.0, 512.0);
            assert_eq!(code, nearest_e4m3(value, &numbers), "{bits:#010x}");
        }
    }
    assert_eq!(E4m3::from_f32(-f32::NAN).to_bits(), 0x7f);
}

/// The block's scale, its words, and what they unpack to.
fn through_e4m3(block: &[f32]) -> (BlockScale, Vec<u64>, Vec<f32>) {
    let largest = block.iter().copied().map(magnitude).max();
    let scale = BlockScale::of(largest.expect("a block has values"));
    let words: Vec<u64> = block
        .as_chunks()
        .0
        .iter()
        .map(|&eight| scale.pack(eight))
        .collect();
    let back = words
        .iter()
        .flat_map(|&word| E4m3::unpack(word, scale.scale()))
        .collect();
    (scale, words, back)
}

/// A block of random values, the largest of which is near `size`.
fn random_block(random: &mut SmallRng, size: f32) -> Vec<f32> {
    let block = (0..E4m3::BLOCK).map(|_| size * random.random_range(-1.0..1.0_f32));
    block.collect()
}

#[test]
fn blocks_keep_their_values_within_half_a_step() {
    let random = &mut SmallRng::seed_from_u64(4);
    for exponent in -99..=127 {
        let block = random_block(random, two_to(exponent));
        let largest = block
            .iter()
            .fold(0.0, |most: f32, value| most.max(value.abs()));
        let (scale, words, back) = through_e4m3(&block);
        assert_eq!(scale.scale(), largest / 448.0);
        for (index, (&value, &back)) in block.iter().zip(&back).enumerate() {
            let code = words[index / 8].to_le_bytes()[index % 8];
            let scale = f64::from(scale.scale());
            assert_eq!(
                f64::from(back),
                f64::from((e4m3_formula(code) * scale) as f32)
            );
            // Half a step is a 16th of a normal number, and 2^-10 of a subnormal one; a little for scale and product.
            let (value, back) = (f64::from(value), f64::from(back));
            let allowed = (value.abs() / 16.0).max(scale / 1024.0) * (1.0 + 1e-6);
            assert!(
                (value - back).abs() <= allowed,
                "{value} is {back} in a block to {largest}"
            );
            if value.abs() as f32 == largest {
                assert_eq!(code & 0x7f, 0x7e);
            }
        }
    }
}

#[test]
fn blocks_of_zeros_and_of_nearly_nothing_are_zeros() {
    let random = &mut SmallRng::seed_from_u64(5);
    for size in [0.0, f32::from_bits(1), f32::MIN_POSITIVE, two_to(-100)] {
        let (scale, words, back) = through_e4m3(&random_block(random, size));
        assert_eq!(scale.scale(), 1.0);
        assert!(words.iter().all(|word| word & 0x7f7f_7f7f_7f7f_7f7f == 0));
        assert!(back.iter().all(|value| *value == 0.0));
    }
    let least = BlockScale::of(magnitude(two_to(-100)));
    assert_eq!(least.pack([two_to(-100); 8]), 0x7e7e_7e7e_7e7e_7e7e);
}

#[test]
fn a_block_with_an_infinity_or_nan_is_nan() {
    let random = &mut SmallRng::seed_from_u64(6);
    for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
        let mut block = random_block(random, 1.0);
        block[77] = bad;
        let (_, _, back) = through_e4m3(&block);
        assert!(back.iter().all(|value| value.is_nan()), "{bad}");
    }
}

#[test]
fn magnitudes_have_the_order_of_values() {
    let random = &mut SmallRng::seed_from_u64(7);
    for _ in 0..RANDOM / 10 {
        let [one, other] = [(); 2].map(|()| f32::from_bits(random_bits(random)));
        let order = magnitude(one).cmp(&magnitude(other));
        match one.abs().partial_cmp(&other.abs()) {
            Some(of_values) => assert_eq!(order, of_values, "{one} {other}"),
            None if !one.is_nan() => assert!(order.is_lt(), "{one} {other}"),
            None if !other.is_nan() => assert!(order.is_gt(), "{one} {other}"),
            None => {}
        }
    }
}
