//! A circle through hits: the algebraic fit of Kåsa (1976), which minimises the sum of (x² + y² − 2ax − 2by − c)², by sums
//! alone.

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

/// What was found in an event: 8 bytes, as they go to the trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Primitive {
    /// The circle's centre; 0 without a circle, and so are the others.
    pub centre: Hit,
    /// Its radius.
    pub radius: u16,
    /// Whether there is one.
    pub status: Status,
}

/// What an event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Status(pub u16);

impl Status {
    /// A circle was found.
    pub const CIRCLE: Self = Self(1);
    /// Two hits or one: any circle goes through them.
    pub const FEW: Self = Self(2);
    /// The hits lie on a line, or nearly.
    pub const LINE: Self = Self(3);
    /// So many hits as no event has.
    pub const MALFORMED: Self = Self(4);
}

impl Primitive {
    /// Without a circle.
    pub const fn without(status: Status) -> Self {
        Self {
            centre: Hit { x: 0, y: 0 },
            radius: 0,
            status,
        }
    }

    /// As 8 bytes.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        let status = (self.status.0 as u64) << 48;
        self.centre.to_bits() as u64 | (self.radius as u64) << 32 | status
    }

    /// Of 8 bytes.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            centre: Hit::from_bits(bits as u32),
            radius: (bits >> 32) as u16,
            status: Status((bits >> 48) as u16),
        }
    }

    /// Whether both say the same, centre and radius within `bound` units.
    #[inline(always)]
    pub const fn agrees(self, other: Self, bound: u32) -> bool {
        let x = (self.centre.x as i32).abs_diff(other.centre.x as i32);
        let y = (self.centre.y as i32).abs_diff(other.centre.y as i32);
        let radius = (self.radius as i32).abs_diff(other.radius as i32);
        (self.status.0 == other.status.0) & (x <= bound) & (y <= bound) & (radius <= bound)
    }
}

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
    /// The sums over the hits of a whole warp: each lane brings one, and the first `hits` lanes' count.
    #[inline(always)]
    pub fn of_warp(hits: u32, own: Hit) -> Self {
        let counts = warp::lane_id() < hits;
        let among = |value: i64| if counts { value } else { 0 };
        let [x, y] = [own.x, own.y].map(i64::from);
        // Both sums in one word: neither takes more than half of it.
        let both = sum(among((x << 32) + y));
        let up = i64::from(both as i32);
        let sums = [(both - up) >> 32, up];
        let middle = sums.map(|sum| (sum as f64 / f64::from(hits)) as i64);
        let first = [0, 1].map(|axis: usize| sums[axis] - middle[axis] * i64::from(hits));
        let (u, v) = (among(x - middle[0]), among(y - middle[1]));
        let square = u * u + v * v;
        Self {
            hits,
            middle,
            first,
            second: [sum(u * u), sum(u * v), sum(v * v)],
            third: [sum(u * square), sum(v * square)],
        }
    }

    /// The circle, in double precision, each step rounded: the same bits everywhere.
    #[inline(always)]
    pub fn circle(&self) -> Primitive {
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
            return Primitive::without(Status::LINE);
        }
        let a = (cuz * cvv - cvz * cuv) / determinant / 2.0;
        let b = (cvz * cuu - cuz * cuv) / determinant / 2.0;
        let c = (z - 2.0 * (u * a + v * b)) / count;
        let [x, y] = self.middle.map(|value| value as f64);
        Primitive {
            centre: Hit {
                x: rounded(x + a) as i16,
                y: rounded(y + b) as i16,
            },
            radius: rounded(root(c + a * a + b * b)) as u16,
            status: Status::CIRCLE,
        }
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

    const FOUND: Primitive = Primitive {
        centre: Hit { x: -300, y: 7 },
        radius: 65_000,
        status: Status::CIRCLE,
    };

    #[test]
    fn a_primitive_survives_its_way() {
        for primitive in [FOUND, Primitive::without(Status::MALFORMED)] {
            assert_eq!(Primitive::from_bits(primitive.to_bits()), primitive);
        }
        for hit in [Hit { x: i16::MIN, y: -1 }, Hit { x: -1, y: i16::MAX }] {
            assert_eq!(Hit::from_bits(hit.to_bits()), hit);
        }
    }

    #[test]
    fn primitives_agree_within_the_bound_in_all_that_they_say() {
        let moved = |x: i16, y: i16, radius: i32| Primitive {
            centre: Hit {
                x: FOUND.centre.x + x,
                y: FOUND.centre.y + y,
            },
            radius: (i32::from(FOUND.radius) + radius) as u16,
            ..FOUND
        };
        assert!(FOUND.agrees(moved(3, -3, 3), 3));
        for off in [moved(4, 0, 0), moved(0, -4, 0), moved(0, 0, -4)] {
            assert!(!FOUND.agrees(off, 3));
        }
        let status = Status::LINE;
        assert!(!FOUND.agrees(Primitive { status, ..FOUND }, 3));
    }

    #[test]
    fn roots_are_right_to_the_last_places() {
        for value in [1.0, 2.0, 3.99, 4.0, 1e3, 65_535.0 * 65_535.0, 1e12] {
            assert!((root(value) / value.sqrt() - 1.0).abs() < 1e-15, "{value}");
        }
    }
}
