//! Rings among hits, several in an event and without tracks: circles through three hits each vote, the best one is fitted to
//! its hits, and the next one is sought among the others.

use warpbell::thread::warp_size;
use warpbell::{shared_array, thread, warp};

use super::circle::{Circle, Hit, Moments};
use super::{HITS, event};
use warpbell_kernels::place::Place;

/// The most rings of an event: a kaon that decays to three charged pions makes so many.
pub const RINGS: u32 = 3;
/// The fewest hits of a ring that is found.
pub const FEWEST: u32 = 7;

/// Circles that are tried for a ring, so many by each lane.
const TRIES: u32 = 8;
/// Times that a circle is fitted to the hits on it.
const FITS: u32 = 2;

/// A ring: 8 bytes, of which three go to the trigger for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Primitive {
    /// Centre and radius; 0 of none.
    pub circle: Circle,
    /// What it is.
    pub kind: Kind,
}

/// What made a ring, if it had [50 GeV/c](Kind::of); or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Kind(pub u16);

impl Kind {
    /// No ring, or no further one.
    pub const NONE: Self = Self(0);
    /// An electron or positron.
    pub const ELECTRON: Self = Self(1);
    /// A charged pion.
    pub const PION: Self = Self(2);
    /// A charged kaon.
    pub const KAON: Self = Self(3);
    /// The event says that it has more hits than any, or none.
    pub const MALFORMED: Self = Self(4);

    /// Of a radius. A ring alone does not tell a particle: this is the nearest one if all have 50 GeV/c. In neon (refractive
    /// index 1 + 62.8e-6) and with a focal length of 17 m, electrons then have 190.5 mm, pions 184.5 mm and kaons 90 mm.
    #[inline(always)]
    pub const fn of(radius: u16) -> Self {
        // Half-way between two, in units of a 64th of a millimetre.
        if radius >= 12_000 {
            Self::ELECTRON
        } else if radius >= 8784 {
            Self::PION
        } else {
            Self::KAON
        }
    }
}

impl Primitive {
    /// Of a ring.
    #[inline(always)]
    pub const fn of(circle: Circle) -> Self {
        Self {
            circle,
            kind: Kind::of(circle.radius),
        }
    }

    /// Without a ring.
    pub const fn without(kind: Kind) -> Self {
        let centre = Hit { x: 0, y: 0 };
        Self {
            circle: Circle { centre, radius: 0 },
            kind,
        }
    }

    /// Whether there is one.
    pub const fn is_ring(self) -> bool {
        self.circle.radius > 0
    }

    /// As 8 bytes.
    #[inline(always)]
    pub const fn to_bits(self) -> u64 {
        let Circle { centre, radius } = self.circle;
        centre.to_bits() as u64 | (radius as u64) << 32 | (self.kind.0 as u64) << 48
    }

    /// Of 8 bytes.
    #[inline(always)]
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            circle: Circle {
                centre: Hit::from_bits(bits as u32),
                radius: (bits >> 32) as u16,
            },
            kind: Kind((bits >> 48) as u16),
        }
    }
}

/// The rings of an event in a slot, in bits, those with most hits first. All lanes of a warp that is a block call it.
#[inline(always)]
pub(super) fn seek(events: Place, slot: u64, hits: u32) -> [u64; RINGS as usize] {
    let none = Primitive::without(Kind::NONE).to_bits();
    let Ok(event) = event(events, slot) else {
        return [none; RINGS as usize];
    };
    if (hits == 0) | (hits > HITS) {
        return [Primitive::without(Kind::MALFORMED).to_bits(), none, none];
    }
    let all = AllHits::of(event, hits);
    let mut free = all.there();
    let mut found = [none; RINGS as usize];
    let mut rings = 0;
    for ring in 0..RINGS {
        // The same for all lanes, and so is all that follows.
        if size(free) < FEWEST {
            break;
        }
        let circle = all.best(free, ring);
        if let Some((circle, on)) = circle.and_then(|circle| all.fitted(circle, free)) {
            free = [0, 1].map(|half: usize| free[half] & !on[half]);
            let bits = Primitive::of(circle).to_bits();
            // No index that varies, for which a GPU would keep them in local memory.
            found = [0, 1, 2].map(|place: u32| match place == rings {
                true => bits,
                false => found[place as usize],
            });
            rings += 1;
        }
    }
    found
}

/// Which hits: a bit for each, those of the lanes' first hits and of their second ones.
type Set = [u32; 2];

/// An event's hits: all of them in shared memory, and two at each lane.
struct AllHits {
    shared: *mut u32,
    hits: u32,
    own: [Hit; 2],
}

impl AllHits {
    #[inline(always)]
    fn of(event: Place, hits: u32) -> Self {
        let shared = shared_array![u32; HITS as usize];
        let lane = warp::lane_id();
        // The last event's hits were read before these lie there.
        thread::sync_threads();
        let own = [lane, lane + warp_size()].map(|index| {
            let bits = event.load_value(index);
            // SAFETY: within the array, and each lane stores two of its own.
            unsafe { shared.add(index as usize).write(bits) };
            Hit::from_bits(bits)
        });
        // These lie there before they are read.
        thread::sync_threads();
        Self { shared, hits, own }
    }

    /// The hits that are there.
    #[inline(always)]
    fn there(&self) -> Set {
        let lane = warp::lane_id();
        [lane, lane + warp_size()].map(|index| ballot(index < self.hits))
    }

    /// A hit, below [`HITS`].
    #[inline(always)]
    fn hit(&self, index: u32) -> Hit {
        // SAFETY: within the array, which all lanes have stored to before, and nobody stores to it meanwhile.
        Hit::from_bits(unsafe { self.shared.add((index & (HITS - 1)) as usize).read() })
    }

    /// The first hit of a set from `index` on, or `index`.
    #[inline(always)]
    fn next(&self, set: Set, index: u32) -> u32 {
        let mut index = index;
        for _ in 0..self.hits {
            if has(set, index) {
                break;
            }
            index = if index + 1 < self.hits { index + 1 } else { 0 };
        }
        index
    }

    /// The circle that try number `number` makes of the hits of a set.
    #[inline(always)]
    fn attempt(&self, set: Set, number: u32) -> Option<Circle> {
        let mut random = number;
        // The finaliser of MurmurHash3, whose constants spread neighbours.
        random = (random ^ random >> 16).wrapping_mul(0x85eb_ca6b);
        random = (random ^ random >> 13).wrapping_mul(0xc2b2_ae35);
        random ^= random >> 16;
        let pick = |shift: u32| self.next(set, (((random >> shift) & 0x3ff) * self.hits) >> 10);
        Circle::through([pick(0), pick(10), pick(20)].map(|index| self.hit(index)))
    }

    /// How many hits of a set a circle passes.
    #[inline(always)]
    fn votes(&self, set: Set, circle: Circle) -> u32 {
        let mut votes = 0;
        for index in 0..self.hits {
            votes += u32::from(has(set, index) & circle.passes(self.hit(index)));
        }
        votes
    }

    /// The circle with most votes of all that are tried, and of those the first one.
    #[inline(always)]
    fn best(&self, set: Set, ring: u32) -> Option<Circle> {
        const LAST: u32 = 0xffff;
        let first = ring * TRIES * warp_size();
        let mut best = 0;
        for number in 0..TRIES {
            let number = first + number * warp_size() + warp::lane_id();
            if let Some(circle) = self.attempt(set, number) {
                best = best.max(self.votes(set, circle) << 16 | (LAST - number));
            }
        }
        let best = most(best);
        match best {
            0 => None,
            _ => self.attempt(set, LAST - (best & LAST)),
        }
    }

    /// A circle fitted to the hits of a set that it passes, and these, if they are enough.
    #[inline(always)]
    fn fitted(&self, mut circle: Circle, set: Set) -> Option<(Circle, Set)> {
        let lane = warp::lane_id();
        for _ in 0..FITS {
            let own = [0, 1].map(|half: usize| {
                let free = has(set, lane + warp_size() * half as u32);
                (self.own[half], free & circle.passes(self.own[half]))
            });
            let moments = Moments::of_warp(own);
            if moments.hits() < 3 {
                return None;
            }
            circle = moments.circle()?;
        }
        let on = [0, 1].map(|half: usize| ballot(circle.passes(self.own[half])) & set[half]);
        (size(on) >= FEWEST).then_some((circle, on))
    }
}

/// How many hits are in a set.
#[inline(always)]
const fn size(set: Set) -> u32 {
    set[0].count_ones() + set[1].count_ones()
}

/// Whether a hit is in a set.
#[inline(always)]
const fn has(set: Set, index: u32) -> bool {
    let half = if index < 32 { set[0] } else { set[1] };
    half >> (index & 31) & 1 == 1
}

#[inline(always)]
fn ballot(says: bool) -> u32 {
    // SAFETY: all lanes of a whole warp come here together.
    unsafe { warp::warp_vote_ballot(u32::MAX, says) }
}

/// The most of what the lanes of a warp bring, at each of them.
#[inline(always)]
fn most(own: u32) -> u32 {
    let mut most = own;
    let mut apart = warp_size() / 2;
    while apart > 0 {
        // SAFETY: all lanes of a whole warp come here together.
        let (other, _) = unsafe { warp::warp_shuffle_xor(u32::MAX, most, apart, warp_size()) };
        most = most.max(other);
        apart /= 2;
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_primitive_survives_its_way() {
        let centre = Hit { x: -300, y: 7 };
        let ring = Primitive::of(Circle {
            centre,
            radius: 12_345,
        });
        for primitive in [ring, Primitive::without(Kind::MALFORMED)] {
            assert_eq!(Primitive::from_bits(primitive.to_bits()), primitive);
        }
    }

    /// As the particles' masses and the detector's gas say it (n − 1 = 62.8e-6, 17 m, 50 GeV/c).
    #[test]
    fn kinds_are_those_of_the_nearest_radius() {
        let radius = |mass: f64| {
            let momentum = 50.0;
            let angle = (2.0 * 62.8e-6 - (mass / momentum) * (mass / momentum)).sqrt();
            17_000.0 * angle
        };
        let [electron, pion, kaon] = [0.000_511, 0.139_57, 0.493_68].map(radius);
        for tenth in 500..2000 {
            let millimetres = f64::from(tenth) / 10.0;
            let nearest = [
                (electron, Kind::ELECTRON),
                (pion, Kind::PION),
                (kaon, Kind::KAON),
            ];
            let off = |(of, _): &(f64, Kind)| (millimetres - of).abs();
            let nearest = nearest
                .into_iter()
                .min_by(|one, other| off(one).total_cmp(&off(other)));
            // But next to the border.
            let border = [(electron + pion) / 2.0, (pion + kaon) / 2.0];
            if border
                .iter()
                .all(|border| (border - millimetres).abs() > 0.2)
            {
                let kind = Kind::of((millimetres * 64.0) as u16);
                assert_eq!(kind, nearest.unwrap().1, "{millimetres} mm");
            }
        }
    }

    #[test]
    fn sets_have_their_hits() {
        let set = [1 << 31 | 1, 1 << 5];
        let found = (0..64).filter(|&index| has(set, index));
        assert!(found.eq([0, 31, 37]));
        assert_eq!(size(set), 3);
    }
}
