//! Events of a detector, and what they are made of.

use std::f64::consts::TAU;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell_paper_kernels::daq::{EVENT_BYTES, HITS, Hit, Primitive, Status, UNITS};

/// Different events, which are sent in turn: a power of two.
pub const KINDS: u32 = 1024;
/// Units by which a hit is off its circle, to each side.
pub const NOISE: u32 = UNITS as u32 / 2;
/// Units by which centre and radius may be off: with at least [`LEAST`] hits all around, the largest noise in all of them
/// moves a centre by twice as much.
pub const BOUND: u32 = 5 * NOISE / 2;
/// The fewest hits of a circle.
const LEAST: u32 = 12;

/// An event, and what should be found in it.
#[derive(Clone, Debug)]
pub struct Event {
    /// Hits, as its sender counts them.
    pub count: u32,
    /// Where they are.
    pub hits: Vec<Hit>,
    /// What it was made of.
    pub truth: Primitive,
}

/// All kinds: of each 16, 13 are circles; one has too few hits, one has them on a line, and one says that it has as many as
/// none has, or none.
pub fn all(seed: u64) -> Vec<Event> {
    let mut random = SmallRng::seed_from_u64(seed);
    (0..KINDS)
        .map(|kind| match kind % 16 {
            3 => few(&mut random),
            7 => line(&mut random),
            11 => Event {
                count: if kind & 16 == 0 { 0 } else { 200 },
                hits: Vec::new(),
                truth: Primitive::without(Status::MALFORMED),
            },
            _ => circle(&mut random),
        })
        .collect()
}

/// Between two numbers, evenly.
fn between(random: &mut SmallRng, least: f64, most: f64) -> f64 {
    least + (most - least) * random.random::<f64>()
}

/// Between two numbers of millimetres, to each side, in units.
fn millimetres(random: &mut SmallRng, least: i32, most: i32) -> f64 {
    between(random, (UNITS * least).into(), (UNITS * most).into()).round()
}

fn hit(x: f64, y: f64) -> Hit {
    Hit {
        x: x.round() as i16,
        y: y.round() as i16,
    }
}

/// Hits all around, one in each of as many equal parts.
fn circle(random: &mut SmallRng) -> Event {
    let count = LEAST + random.random::<u32>() % (HITS - LEAST + 1);
    let [x, y] = [(); 2].map(|()| millimetres(random, -150, 150));
    let radius = millimetres(random, 60, 180);
    let hits = (0..count).map(|index| {
        let part = f64::from(index) + random.random::<f64>();
        let (sine, cosine) = (TAU * part / f64::from(count)).sin_cos();
        let noise = f64::from(NOISE);
        let away = radius + between(random, -noise, noise);
        hit(x + away * cosine, y + away * sine)
    });
    Event {
        count,
        hits: hits.collect(),
        truth: Primitive {
            centre: hit(x, y),
            radius: radius as u16,
            status: Status::CIRCLE,
        },
    }
}

fn line(random: &mut SmallRng) -> Event {
    let count = LEAST + random.random::<u32>() % (HITS - LEAST + 1);
    let [x, y] = [(); 2].map(|()| millimetres(random, -100, 100));
    let (sine, cosine) = between(random, 0.0, TAU).sin_cos();
    let hits = (0..count).map(|index| {
        let along = f64::from(index * 5 * UNITS as u32);
        hit(x + along * cosine, y + along * sine)
    });
    Event {
        count,
        hits: hits.collect(),
        truth: Primitive::without(Status::LINE),
    }
}

fn few(random: &mut SmallRng) -> Event {
    let count = 1 + random.random::<u32>() % 2;
    let mut any = || {
        let [x, y] = [(); 2].map(|()| millimetres(random, -200, 200));
        hit(x, y)
    };
    Event {
        count,
        hits: (0..count).map(|_| any()).collect(),
        truth: Primitive::without(Status::FEW),
    }
}

/// As they lie at the source: a slot for each.
pub fn bytes(events: &[Event]) -> Vec<u8> {
    let slot = |event: &Event| {
        let hits = event.hits.iter();
        let mut bytes: Vec<u8> = hits.flat_map(|hit| hit.to_bits().to_ne_bytes()).collect();
        bytes.resize(EVENT_BYTES as usize, 0);
        bytes
    };
    events.iter().flat_map(slot).collect()
}

/// What is to be found, as the trigger has it: two words for each.
pub fn truths(events: &[Event]) -> Vec<u8> {
    let words = events
        .iter()
        .flat_map(|event| [event.count.into(), event.truth.to_bits()]);
    words.flat_map(u64::to_ne_bytes).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use warpbell_host_init::{Grid, Launch, Node, entry};
    use warpbell_kernels::place::Place;
    use warpbell_paper_kernels::daq::{DaqBatch, Entry, daq_batch};

    use super::*;

    /// Kåsa's fit as it is written down: the normal equations of all hits as they are, solved by elimination.
    fn plain(hits: &[Hit]) -> Option<[f64; 3]> {
        let mut rows = [[0.0; 4]; 3];
        for hit in hits {
            let (x, y) = (f64::from(hit.x), f64::from(hit.y));
            let factors = [x, y, 1.0];
            for (row, factor) in rows.iter_mut().zip(factors) {
                for (sum, other) in row.iter_mut().zip([x, y, 1.0, x * x + y * y]) {
                    *sum += factor * other;
                }
            }
        }
        for pivot in 0..3 {
            let largest = (pivot..3).max_by(|&one, &other| {
                let [one, other] = [one, other].map(|row: usize| rows[row][pivot].abs());
                one.total_cmp(&other)
            })?;
            rows.swap(pivot, largest);
            for row in 0..3 {
                if row != pivot {
                    let factor = rows[row][pivot] / rows[pivot][pivot];
                    let of = rows[pivot];
                    for (value, of) in rows[row].iter_mut().zip(of) {
                        *value -= factor * of;
                    }
                }
            }
        }
        let [a, b, c] = [0, 1, 2].map(|row| rows[row][3] / rows[row][row]);
        let (x, y) = (a / 2.0, b / 2.0);
        Some([x, y, (c + x * x + y * y).sqrt()])
    }

    #[test]
    fn a_plain_fit_finds_what_events_are_made_of() {
        for seed in 0..20 {
            let events = all(seed);
            let circles = events
                .iter()
                .filter(|event| event.truth.status == Status::CIRCLE);
            assert_eq!(circles.clone().count(), KINDS as usize / 16 * 13);
            for event in circles {
                assert_eq!(event.hits.len(), event.count as usize);
                let truth = event.truth;
                let truth = [
                    truth.centre.x.into(),
                    truth.centre.y.into(),
                    f64::from(truth.radius),
                ];
                let found = plain(&event.hits).unwrap();
                for (found, truth) in found.into_iter().zip(truth) {
                    assert!((found - truth).abs() <= f64::from(BOUND), "{event:?}");
                }
            }
        }
    }
    #[test]
    fn a_warp_finds_what_a_plain_fit_finds() {
        let node = Node::cpu();
        // Two of each 16 have other than circles in them.
        let events = &all(5)[..48];
        let words = |bytes: &[u8]| {
            let found = node.words(bytes.len() / 8).unwrap();
            for (word, bytes) in found.iter().zip(bytes.chunks_exact(8)) {
                let value = u64::from_ne_bytes(bytes.try_into().unwrap());
                word.store(value, Ordering::Relaxed);
            }
            found
        };
        let (ring, list) = (words(&bytes(events)), node.words(48).unwrap());
        let primitives = node.words(48).unwrap();
        for (slot, event) in (0..).zip(events) {
            let entry = Entry::new(slot, event.count);
            list[slot as usize].store(entry.0, Ordering::Relaxed);
        }
        let batch = DaqBatch {
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            events: unsafe { Place::new(ring.as_ptr(), ring.len() as u64) },
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            list: unsafe { Place::new(list.as_ptr(), list.len() as u64) },
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            primitives: unsafe { Place::new(primitives.as_ptr(), primitives.len() as u64) },
        };
        let grid = Grid {
            blocks: 48,
            threads_per_block: HITS,
        };
        let launch = Launch::new(entry!(daq_batch), grid, batch);
        node.run(&[launch], &[]).unwrap();
        for (event, found) in events.iter().zip(&primitives[..]) {
            let found = Primitive::from_bits(found.load(Ordering::Relaxed));
            assert_eq!(found.status, event.truth.status, "{event:?}");
            assert!(found.agrees(event.truth, BOUND), "{found:?} of {event:?}");
            if found.status == Status::CIRCLE {
                let [x, y, radius] = plain(&event.hits).unwrap();
                let rounded = Primitive {
                    centre: hit(x, y),
                    radius: radius.round() as u16,
                    ..found
                };
                assert_eq!(found, rounded, "{event:?}");
            } else {
                assert_eq!(found, event.truth);
            }
        }
    }
}
