//! Circles through hits: through three of them, and the algebraic fit of Kåsa (1976) to many, which minimises the sum of
//! (x² + y² − 2ax − 2by − c)², by sums alone.

use warpbell::thread::warp_size;
use warpbell::warp;

/// Units of a millimetre: all coordinates and radii are in these.
pub const UNITS: i32 = 64;

/// Where a tube was hit: x and y.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit {
    /// To the right.
    pub x: i16,
    /// Up.
    pub y: i16,
}

impl Hit {
    /// As 4 bytes of an event.
    pub const fn to_bits(self) -> u32 {
        self.x as u16 as u32 | (self.y as u16 as u32) << 16
    }

    /// Of 4 bytes of an event.
    #[inline(always)]
    pub const fn from_bits(bits: u32) -> Self {
        Self {
            x: bits as i16,
            y: (bits >> 16) as i16,
        }
    }
}

/// A circle, in units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circle {
    /// Its centre.
    pub centre: Hit,
    /// Its radius.
    pub radius: u16,
}

impl Circle {
    /// The circle through three hits, if they are far enough apart to tell one, and it is one that the detector sees.
    #[inline(always)]
    pub fn through(hits: [Hit; 3]) -> Option<Self> {
        let [first, second, third] = hits;
        let from = |hit: Hit| {
            let [x, y] = [(hit.x, first.x), (hit.y, first.y)]
                .map(|(to, from)| f64::from(i32::from(to) - i32::from(from)));
            (x, y, x * x + y * y)
        };
        let (x, y, square) = from(second);
        let (u, v, other) = from(third);
        let doubled = (x * v - u * y) * 2.0;
        // Comparisons: the absolute value is a function of a library for Rust-CUDA.
        if (doubled < SLENDER) & (doubled > -SLENDER) {
            return None;
        }
        let a = (v * square - y * other) / doubled;
        let b = (x * other - u * square) / doubled;
        Self::about(
            f64::from(first.x) + a,
            f64::from(first.y) + b,
            a * a + b * b,
        )
    }

    /// The circle with that centre and square of the radius, if the detector sees such.
    #[inline(always)]
    fn about(x: f64, y: f64, square: f64) -> Option<Self> {
        let [least, most] = RADII.map(f64::from);
        // What is no number is none of these.
        let seen = (square >= least * least) & (square <= most * most);
        let near = |value: f64| (value < FAR) & (value > -FAR);
        (seen & near(x) & near(y)).then(|| Self {
            centre: Hit {
                x: rounded(x) as i16,
                y: rounded(y) as i16,
            },
            radius: rounded(root(square)) as u16,
        })
    }

    /// Whether a hit lies on it, to [`BAND`] units.
    #[inline(always)]
    pub fn passes(self, hit: Hit) -> bool {
        let [x, y] = [(hit.x, self.centre.x), (hit.y, self.centre.y)]
            .map(|(hit, centre)| i64::from(i32::from(hit) - i32::from(centre)));
        let radius = i64::from(self.radius);
        let off = x * x + y * y - radius * radius;
        off.abs() <= 2 * radius * i64::from(BAND)
    }
}

/// Units by which a hit may be off its circle.
pub const BAND: i32 = UNITS;
/// The smallest and the largest radius of a ring, in units.
pub const RADII: [u16; 2] = [50 * UNITS as u16, 200 * UNITS as u16];
/// Twice the least area between three hits that tell a circle, twice over: 25 mm × 25 mm.
const SLENDER: f64 = (2 * 25 * 25 * UNITS * UNITS) as f64;
/// No centre is as far to a side: 500 mm.
const FAR: f64 = (500 * UNITS) as f64;

/// Sums over an event's hits, about a point near their middle, so that they are exact in whatever order they are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moments {
    hits: u32,
    /// The point.
    middle: [i64; 2],
    /// Of the distances from it to the right, and up.
    first: [i64; 2],
    /// Of their squares, and between the two of their products.
    second: [i64; 3],
    /// Of their products with the sum of both squares.
    third: [i64; 2],
}

impl Moments {
    /// The sums over the hits of a whole warp: each lane brings two, and those count that it says.
    #[inline(always)]
    pub fn of_warp(own: [(Hit, bool); 2]) -> Self {
        let of = |value: fn(i64, i64) -> i64, middle: [i64; 2]| {
            let of = |(hit, counts): (Hit, bool)| match counts {
                true => value(i64::from(hit.x) - middle[0], i64::from(hit.y) - middle[1]),
                false => 0,
            };
            sum(of(own[0]) + of(own[1]))
        };
        let hits = of(|_, _| 1, [0; 2]) as u32;
        // Both sums in one word: neither takes more than half of it.
        let both = of(|x, y| (x << 32) + y, [0; 2]);
        let up = i64::from(both as i32);
        let sums = [(both - up) >> 32, up];
        let middle = sums.map(|sum| (sum as f64 / f64::from(hits)) as i64);
        let first = [0, 1].map(|axis: usize| sums[axis] - middle[axis] * i64::from(hits));
        Self {
            hits,
            middle,
            first,
            second: [
                of(|u, _| u * u, middle),
                of(|u, v| u * v, middle),
                of(|_, v| v * v, middle),
            ],
            third: [
                of(|u, v| u * (u * u + v * v), middle),
                of(|u, v| v * (u * u + v * v), middle),
            ],
        }
    }

    /// How many hits count.
    pub const fn hits(&self) -> u32 {
        self.hits
    }

    /// The circle, in double precision, each step rounded: the same bits everywhere. None for hits on a line, and for a
    /// circle that the detector does not see.
    #[inline(always)]
    pub fn circle(&self) -> Option<Circle> {
        let count = f64::from(self.hits);
        let [u, v] = self.first.map(|sum| sum as f64);
        let [uu, uv, vv] = self.second.map(|sum| sum as f64);
        let [uz, vz] = self.third.map(|sum| sum as f64);
        let z = uu + vv;
        // About the hits' own middle.
        let (cuu, cuv, cvv) = (uu - u * u / count, uv - u * v / count, vv - v * v / count);
        let (cuz, cvz) = (uz - u * z / count, vz - v * z / count);
        let determinant = cuu * cvv - cuv * cuv;
        let spread = cuu + cvv;
        // A quarter of the square for a whole circle, nothing for a line.
        if determinant * LINE <= spread * spread {
            return None;
        }
        let a = (cuz * cvv - cvz * cuv) / determinant / 2.0;
        let b = (cvz * cuu - cuz * cuv) / determinant / 2.0;
        let c = (z - 2.0 * (u * a + v * b)) / count;
        let [x, y] = self.middle.map(|value| value as f64);
        Circle::about(x + a, y + b, c + a * a + b * b)
    }
}

/// How much more than the determinant the square of the spread is at least where hits count as a line.
const LINE: f64 = 256.0;

/// What becomes the nearest integer when it is cut off, which also keeps it within an integer's range.
#[inline(always)]
fn rounded(value: f64) -> f64 {
    value + if value < 0.0 { -0.5 } else { 0.5 }
}

/// The square root of a value of at least 1, which core has not: Newton's steps from half its exponent.
#[inline(always)]
fn root(square: f64) -> f64 {
    let mut root = f64::from_bits((square.to_bits() >> 1) + (1023 << 51));
    for _ in 0..5 {
        root = (root + square / root) * 0.5;
    }
    root
}

/// The sum over all lanes of a warp, at each of them.
#[inline(always)]
fn sum(own: i64) -> i64 {
    let mut sum = own;
    let mut apart = warp_size() / 2;
    while apart > 0 {
        // SAFETY: all lanes of a whole warp come here together.
        let (other, _) = unsafe { warp::warp_shuffle_xor(u32::MAX, sum, apart, warp_size()) };
        sum += other;
        apart /= 2;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_survives_its_way() {
        for hit in [Hit { x: i16::MIN, y: -1 }, Hit { x: -1, y: i16::MAX }] {
            assert_eq!(Hit::from_bits(hit.to_bits()), hit);
        }
    }

    #[test]
    fn three_hits_tell_a_circle_unless_they_are_too_near_or_on_a_line() {
        let circle = Circle {
            centre: Hit { x: -3000, y: 700 },
            radius: 6400,
        };
        // At 0, 90, 180 and 233.13 degrees, where all is whole.
        let at = [(6400, 0), (0, 6400), (-6400, 0), (-3840, -5120)];
        let at = at.map(|(x, y)| Hit {
            x: circle.centre.x + x,
            y: circle.centre.y + y,
        });
        for [a, b, c] in [[0, 1, 2], [2, 0, 1], [3, 1, 0], [1, 2, 3]] {
            assert_eq!(Circle::through([at[a], at[b], at[c]]), Some(circle));
            assert!(at.iter().all(|&hit| circle.passes(hit)));
        }
        assert_eq!(Circle::through([at[0], at[1], at[1]]), None);
        assert_eq!(
            Circle::through([at[0], at[2], Hit { y: 700, ..at[0] }]),
            None
        );
        // 10 mm and 300 mm.
        for size in [640, 19_200] {
            let hits = [(size, 0), (0, size), (-size, 0)].map(|(x, y)| Hit { x, y });
            assert_eq!(Circle::through(hits), None);
        }
        for (off, passes) in [
            (0, true),
            (63, true),
            (66, false),
            (-63, true),
            (-66, false),
        ] {
            let hit = Hit {
                x: at[0].x + off,
                ..at[0]
            };
            assert_eq!(circle.passes(hit), passes, "{off}");
        }
    }

    #[test]
    fn roots_are_right_to_the_last_places() {
        for value in [1.0, 2.0, 3.99, 4.0, 1e3, 65_535.0 * 65_535.0, 1e12] {
            assert!((root(value) / value.sqrt() - 1.0).abs() < 1e-15, "{value}");
        }
    }
}
