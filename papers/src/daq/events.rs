//! Events of a detector, what they are made of, and how much of it a search finds.

use std::f64::consts::TAU;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use warpbell_paper_kernels::daq::{Circle, EVENT_BYTES, HITS, Hit, Kind, Primitive, RINGS, UNITS};

/// Different events, which are sent in turn: a power of two.
pub const KINDS: u32 = 256;
/// Units by which a hit is off its circle, to each side.
pub const NOISE: u32 = UNITS as u32 / 2;
/// Units by which centre and radius of a ring that is found may be off.
pub const BOUND: u32 = 5 * UNITS as u32;
/// The fewest and the most hits of a ring.
const HITS_OF_RING: [u32; 2] = [6, 18];
/// The fewest hits of a ring that should be found.
pub const LEAST: usize = 8;
/// The most hits of an event that belong to no ring.
const STRAY: u32 = 8;

/// An event.
#[derive(Clone, Debug)]
pub struct Event {
    /// Hits, as its sender counts them.
    pub count: u32,
    /// Where they are, in no order.
    pub hits: Vec<Hit>,
    /// The rings that it was made of, and how many hits each has.
    pub rings: Vec<(Circle, usize)>,
}

/// All kinds: of each 16, 13 have one to three rings; one has only stray hits, one has hits on a line, and one says that it has
/// as many as none has, or none.
pub fn all(seed: u64) -> Vec<Event> {
    let mut random = SmallRng::seed_from_u64(seed);
    (0..KINDS)
        .map(|kind| match kind % 16 {
            3 => stray(&mut random),
            7 => line(&mut random),
            11 => Event {
                count: if kind & 16 == 0 { 0 } else { 200 },
                hits: Vec::new(),
                rings: Vec::new(),
            },
            _ => rings(&mut random, 1 + kind % RINGS),
        })
        .collect()
}

/// Between two numbers, evenly.
fn between(random: &mut SmallRng, least: f64, most: f64) -> f64 {
    least + (most - least) * random.random::<f64>()
}

/// Between two numbers of millimetres, in units.
fn millimetres(random: &mut SmallRng, least: i32, most: i32) -> f64 {
    between(random, (UNITS * least).into(), (UNITS * most).into()).round()
}

fn hit(x: f64, y: f64) -> Hit {
    Hit {
        x: x.round() as i16,
        y: y.round() as i16,
    }
}

/// A hit anywhere.
fn any(random: &mut SmallRng) -> Hit {
    let [x, y] = [(); 2].map(|()| millimetres(random, -330, 330));
    hit(x, y)
}

/// Rings with hits anywhere on them, and stray hits.
fn rings(random: &mut SmallRng, rings: u32) -> Event {
    let mut hits = Vec::new();
    let rings = (0..rings).map(|_| {
        let [least, most] = HITS_OF_RING;
        let count = least + random.random::<u32>() % (most - least + 1);
        let [x, y] = [(); 2].map(|()| millimetres(random, -150, 150));
        let radius = millimetres(random, 60, 195);
        for _ in 0..count {
            let (sine, cosine) = between(random, 0.0, TAU).sin_cos();
            let noise = f64::from(NOISE);
            let away = radius + between(random, -noise, noise);
            hits.push(hit(x + away * cosine, y + away * sine));
        }
        let circle = Circle {
            centre: hit(x, y),
            radius: radius as u16,
        };
        (circle, count as usize)
    });
    let rings = rings.collect();
    for _ in 0..random.random::<u32>() % (STRAY + 1) {
        hits.push(any(random));
    }
    shuffled(random, hits, rings)
}

fn shuffled(random: &mut SmallRng, mut hits: Vec<Hit>, rings: Vec<(Circle, usize)>) -> Event {
    for last in (1..hits.len()).rev() {
        hits.swap(last, random.random_range(0..=last));
    }
    Event {
        count: hits.len() as u32,
        hits,
        rings,
    }
}

fn line(random: &mut SmallRng) -> Event {
    let count = 12 + random.random::<u32>() % 21;
    let [x, y] = [(); 2].map(|()| millimetres(random, -100, 100));
    let (sine, cosine) = between(random, 0.0, TAU).sin_cos();
    let hits = (0..count).map(|index| {
        let along = f64::from(index * 5 * UNITS as u32);
        hit(x + along * cosine, y + along * sine)
    });
    let hits = hits.collect();
    shuffled(random, hits, Vec::new())
}

fn stray(random: &mut SmallRng) -> Event {
    let count = 1 + random.random::<u32>() % (3 * STRAY);
    let hits = (0..count).map(|_| any(random)).collect();
    shuffled(random, hits, Vec::new())
}

/// As they lie at the source: a slot for each.
pub fn bytes(events: &[Event]) -> Vec<u8> {
    let slot = |event: &Event| {
        assert!(event.hits.len() <= HITS as usize, "{event:?}");
        let hits = event.hits.iter();
        let mut bytes: Vec<u8> = hits.flat_map(|hit| hit.to_bits().to_ne_bytes()).collect();
        bytes.resize(EVENT_BYTES as usize, 0);
        bytes
    };
    events.iter().flat_map(slot).collect()
}

/// What a search found, beside what there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Quality {
    /// Rings with at least 8 hits.
    pub rings: usize,
    /// Those of them that were found.
    pub found: usize,
    /// All rings that were found.
    pub all_found: usize,
    /// Those of them that are none, or one that was found before.
    pub fakes: usize,
    /// Rings found right, but as another kind of particle's.
    pub other_kind: usize,
}

impl Quality {
    /// Of the primitives of each event.
    pub fn of(events: &[Event], found: &[[Primitive; RINGS as usize]]) -> Self {
        let mut quality = Self::default();
        for (event, found) in events.iter().zip(found) {
            let mut left: Vec<_> = event.rings.iter().collect();
            quality.rings += left.iter().filter(|(_, hits)| *hits >= LEAST).count();
            for ring in found.iter().filter(|ring| ring.is_ring()) {
                quality.all_found += 1;
                match left.iter().position(|(truth, _)| near(ring.circle, *truth)) {
                    Some(at) => {
                        let (truth, hits) = left.remove(at);
                        quality.found += usize::from(*hits >= LEAST);
                        quality.other_kind += usize::from(Kind::of(truth.radius) != ring.kind);
                    }
                    None => quality.fakes += 1,
                }
            }
        }
        quality
    }

    /// Of the rings with at least 8 hits those that were found.
    pub fn efficiency(&self) -> f64 {
        self.found as f64 / self.rings as f64
    }

    /// Of the rings that were found those that are none.
    pub fn fake_rate(&self) -> f64 {
        self.fakes as f64 / self.all_found as f64
    }
}

/// Whether centre and radius differ by [`BOUND`] at most.
fn near(one: Circle, other: Circle) -> bool {
    let off = |one: i32, other: i32| one.abs_diff(other) <= BOUND;
    off(one.centre.x.into(), other.centre.x.into())
        && off(one.centre.y.into(), other.centre.y.into())
        && off(one.radius.into(), other.radius.into())
}

#[cfg(test)]
mod tests {
    use super::super::search::search;
    use super::*;
    use warpbell_host_init::Node;
    use warpbell_paper_kernels::daq::RADII;

    /// All circles through three hits that are big enough and far enough apart, by the equation of their perpendicular
    /// bisectors; the one nearest to most hits, and so on among the others. Each stays as three hits tell it.
    fn plain(event: &Event) -> Vec<Circle> {
        let mut left: Vec<[f64; 2]> = event
            .hits
            .iter()
            .map(|hit| [hit.x.into(), hit.y.into()])
            .collect();
        let mut rings = Vec::new();
        let distance =
            |one: [f64; 2], other: [f64; 2]| (one[0] - other[0]).hypot(one[1] - other[1]);
        while rings.len() < RINGS as usize {
            let mut best: (usize, [f64; 3]) = (0, [0.0; 3]);
            for c in 2..left.len() {
                for b in 1..c {
                    for a in 0..b {
                        let [p, q, r] = [left[a], left[b], left[c]];
                        if [distance(p, q), distance(q, r), distance(p, r)]
                            .iter()
                            .any(|&apart| apart < 64.0 * 20.0)
                        {
                            continue;
                        }
                        let rows = [[q[0] - p[0], q[1] - p[1]], [r[0] - p[0], r[1] - p[1]]];
                        let right = rows.map(|[x, y]| (x * x + y * y) / 2.0);
                        let determinant = rows[0][0] * rows[1][1] - rows[0][1] * rows[1][0];
                        let x = (right[0] * rows[1][1] - right[1] * rows[0][1]) / determinant;
                        let y = (right[1] * rows[0][0] - right[0] * rows[1][0]) / determinant;
                        let (centre, radius) = ([p[0] + x, p[1] + y], x.hypot(y));
                        if !(f64::from(RADII[0])..=f64::from(RADII[1])).contains(&radius) {
                            continue;
                        }
                        let on = left
                            .iter()
                            .filter(|&&hit| (distance(hit, centre) - radius).abs() <= 64.0);
                        let votes = on.count();
                        if votes > best.0 {
                            best = (votes, [centre[0], centre[1], radius]);
                        }
                    }
                }
            }
            let (votes, [x, y, radius]) = best;
            if votes < 7 {
                break;
            }
            rings.push(Circle {
                centre: hit(x, y),
                radius: radius.round() as u16,
            });
            left.retain(|&hit| (distance(hit, [x, y]) - radius).abs() > 96.0);
        }
        rings
    }

    fn found(node: &Node, events: &[Event]) -> Vec<[Primitive; RINGS as usize]> {
        let words = search(node, events).unwrap();
        words
            .iter()
            .map(|words| words.map(Primitive::from_bits))
            .collect()
    }

    #[test]
    fn a_warp_finds_the_rings_and_few_others() {
        let node = Node::cpu();
        for seed in 1..=4 {
            let events = all(seed);
            let found = found(&node, &events);
            let quality = Quality::of(&events, &found);
            assert!(quality.rings > 300, "{quality:?}");
            assert!(quality.efficiency() >= 0.95, "{quality:?}");
            assert!(quality.fake_rate() < 0.05, "{quality:?}");
            for (event, found) in events.iter().zip(&found) {
                let malformed = event.hits.is_empty();
                assert_eq!(found[0].kind == Kind::MALFORMED, malformed, "{event:?}");
                // No ring comes behind none.
                assert!(found.is_sorted_by_key(|ring| !ring.is_ring()), "{found:?}");
                let rings = found.iter().filter(|ring| ring.is_ring());
                assert!(rings.clone().count() == 0 || event.hits.len() >= 7);
            }
        }
    }

    #[test]
    fn a_warp_finds_what_a_plain_search_of_all_circles_finds() {
        let node = Node::cpu();
        let events = &all(5)[..64];
        let found = found(&node, events);
        let mut both = 0;
        let mut apart = 0;
        for (event, found) in events.iter().zip(found) {
            let mut plain = plain(event);
            for ring in found.iter().filter(|ring| ring.is_ring()) {
                let at = plain.iter().position(|&other| near(ring.circle, other));
                match at {
                    Some(at) => drop((plain.remove(at), both += 1)),
                    // One of seven hits, which that one leaves.
                    None => apart += 1,
                }
            }
            apart += plain.len();
        }
        assert!(both > 80 && apart * 20 < both, "{both} and {apart}");
    }

    #[test]
    fn quality_counts_each_ring_once() {
        let circle = |x: i16, radius: u16| Circle {
            centre: Hit { x, y: 0 },
            radius,
        };
        let event = |rings: &[(i16, usize)]| Event {
            count: 0,
            hits: Vec::new(),
            rings: rings
                .iter()
                .map(|&(x, hits)| (circle(x, 9000), hits))
                .collect(),
        };
        let none = Primitive::without(Kind::NONE);
        let ring = |x, radius| Primitive::of(circle(x, radius));
        let events = [event(&[(0, 8), (5000, 7)]), event(&[(0, 20)]), event(&[])];
        let found = [
            [ring(100, 9000), ring(5000, 9000), ring(-100, 9000)],
            [ring(400, 9000), ring(0, 8700), none],
            [none; 3],
        ];
        let expected = Quality {
            rings: 2,
            found: 2,
            all_found: 5,
            fakes: 2,
            other_kind: 1,
        };
        assert_eq!(Quality::of(&events, &found), expected);
    }
}
