//! A network's weights, and what it makes of a picture, by plain loops.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell_paper_kernels::network::{Convolution, STRIDE, rectified};

use super::plan::{Architecture, Layer, SCALE, Then, convolutions};

/// How large the weights of each layer of [`Architecture::Superresolution`] are at most that come from the seed: enough
/// for each to show in the result, too little to hide the picture.
const SPREAD: [f32; 3] = [0.2, 1.0 / 24.0, 0.03];

/// Values of a picture, row after row: 0 is black, 1 is white.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Pixels of a row.
    pub width: usize,
    /// One value a pixel.
    pub values: Vec<f32>,
}

impl Picture {
    /// A picture of so many pixels a row, and rows, with slopes, edges and noise.
    pub fn random([width, height]: [usize; 2], random: &mut impl Rng) -> Self {
        let (across, down) = (random.random::<f32>(), random.random::<f32>());
        let edge = random.random_range(1..=width);
        let pixel = |index: usize| {
            let (x, y) = (index % width, index / width);
            let slope = (across * x as f32 + down * y as f32) / (width + height) as f32;
            let step = if (x / edge + y / edge) % 2 == 0 {
                0.25
            } else {
                0.0
            };
            slope * 0.5 + step + random.random::<f32>() * 0.25
        };
        Self {
            width,
            values: (0..width * height).map(pixel).collect(),
        }
    }

    /// Its rows.
    pub fn height(&self) -> usize {
        self.values.len() / self.width
    }
}

/// A convolution, and where its weights begin among all.
#[derive(Clone, Copy, Debug)]
struct Weighted {
    first: u32,
    of: Convolution,
}

impl Weighted {
    /// Where a weight lies among all; behind the last input lie the biases.
    fn at(self, input: u32, tap: u32, output: u32) -> usize {
        let tap = input * self.of.taps() + tap;
        (self.first + tap * self.of.padded() + output) as usize
    }

    /// All inputs and taps.
    fn inputs(self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.of.inputs).flat_map(move |input| (0..self.of.taps()).map(move |tap| (input, tap)))
    }
}

/// Channels, as planes of values, row after row.
#[derive(Clone, Debug)]
struct Planes {
    width: usize,
    channels: Vec<Vec<f32>>,
}

impl Planes {
    fn height(&self) -> usize {
        self.channels[0].len() / self.width
    }

    /// The same pixels with other channels.
    fn with(&self, channels: Vec<Vec<f32>>) -> Self {
        Self {
            width: self.width,
            channels,
        }
    }
}

/// Weights and biases of all layers, as they lie in the kernels' memory.
#[derive(Debug)]
pub struct Model {
    architecture: Architecture,
    values: Vec<f32>,
}

impl Model {
    /// Weights from the seed.
    pub fn new(architecture: Architecture, seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let all: Vec<_> = convolutions_of(architecture)
            .into_iter()
            .flatten()
            .collect();
        let values = all.iter().map(|one| one.of.values()).sum::<u32>();
        let mut model = Self {
            architecture,
            values: vec![0.0; values as usize],
        };
        match architecture {
            Architecture::Superresolution => model.interpolate(&all, &mut random),
            Architecture::Squeeze => model.spread(&all, &mut random),
        }
        model
    }

    /// The first channel carries the picture through all layers, and the last one lays each of its pixels between its
    /// neighbours, as bilinear interpolation does; every other weight, and every bias, comes from the seed. So the
    /// result shows the picture, and whatever is wrong in any channel.
    fn interpolate(&mut self, all: &[Weighted], random: &mut impl Rng) {
        for (number, (layer, spread)) in all.iter().zip(SPREAD).enumerate() {
            for output in 0..layer.of.outputs {
                let last = number == all.len() - 1;
                // The layers before the last keep their first channel.
                let kept = output == 0 && !last;
                for (input, tap) in layer.inputs() {
                    let from_seed = random.random_range(-spread..=spread);
                    self.values[layer.at(input, tap, output)] = match (input, last) {
                        (0, true) => between(output, tap),
                        (0, false) if kept && tap == layer.of.taps() / 2 => 1.0,
                        _ if kept => 0.0,
                        _ => from_seed,
                    };
                }
                let bias = random.random_range(-spread..=spread) / 4.0;
                let at = layer.at(layer.of.inputs, 0, output);
                self.values[at] = if kept { 0.0 } else { bias };
            }
        }
    }

    /// All weights and biases from the seed, as large as keeps the values' size from layer to layer (He and others
    /// 2015).
    fn spread(&mut self, all: &[Weighted], random: &mut impl Rng) {
        for layer in all {
            let terms = layer.of.inputs * layer.of.taps();
            let spread = (6.0 / terms as f32).sqrt();
            let biases = [(layer.of.inputs, 0)];
            for (input, tap) in layer.inputs().chain(biases) {
                for output in 0..layer.of.outputs {
                    self.values[layer.at(input, tap, output)] =
                        random.random_range(-spread..=spread);
                }
            }
        }
    }

    /// All values, for the kernels.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// What the network makes of the picture: a larger one, row after row, or a score of each class.
    pub fn answer(&self, picture: &Picture) -> Vec<f32> {
        let mut planes = Planes {
            width: picture.width,
            channels: vec![picture.values.clone()],
        };
        let layers = self.architecture.layers().iter();
        for (layer, of) in layers.zip(convolutions_of(self.architecture)) {
            planes = match *layer {
                Layer::Convolution { then, .. } => self.convolve(of[0], &planes, then),
                Layer::Fire { .. } => {
                    let few = self.convolve(of[0], &planes, Then::Rectified);
                    let halves =
                        [of[1], of[2]].map(|half| self.convolve(half, &few, Then::Rectified));
                    planes.with(halves.into_iter().flat_map(|half| half.channels).collect())
                }
                Layer::Pool { side } => pooled(&planes, side as usize),
                Layer::Average => averaged(&planes),
            };
        }
        planes.channels.concat()
    }

    /// A convolution of all channels.
    fn convolve(&self, layer: Weighted, planes: &Planes, then: Then) -> Planes {
        let outputs = (0..layer.of.outputs).map(|output| self.output(layer, output, planes));
        let channels: Vec<Vec<f32>> = outputs.collect();
        match then {
            Then::Same => planes.with(channels),
            Then::Rectified => {
                let channels = channels.into_iter();
                let rectify = |plane: Vec<f32>| plane.into_iter().map(rectified).collect();
                planes.with(channels.map(rectify).collect())
            }
            Then::Shuffled(scale) => shuffled(&planes.with(channels), scale as usize),
        }
    }

    /// An output of a layer, as a plane.
    fn output(&self, layer: Weighted, output: u32, planes: &Planes) -> Vec<f32> {
        let Planes { width, .. } = *planes;
        let side = layer.of.side;
        let around = side as usize / 2;
        let bias = self.values[layer.at(layer.of.inputs, 0, output)];
        let mut sums = vec![bias; planes.channels[0].len()];
        let height = planes.height();
        for (input, plane) in (0..).zip(&planes.channels) {
            for tap in 0..layer.of.taps() {
                let weight = self.values[layer.at(input, tap, output)];
                let (down, right) = ((tap / side) as usize, (tap % side) as usize);
                // What is beside the picture is 0: those pixels get nothing.
                let end = (width + around).saturating_sub(right).min(width);
                let columns = around.saturating_sub(right)..end;
                if columns.is_empty() {
                    continue;
                }
                let bottom = (height + around).saturating_sub(down).min(height);
                for y in around.saturating_sub(down)..bottom {
                    let row = (y + down - around) * width;
                    let sums = &mut sums[y * width..][columns.clone()];
                    let from = &plane[row + columns.start + right - around..][..sums.len()];
                    for (sum, cell) in sums.iter_mut().zip(from) {
                        *sum += weight * cell;
                    }
                }
            }
        }
        sums
    }
}

/// The convolutions of each layer, and where their weights begin.
fn convolutions_of(architecture: Architecture) -> Vec<Vec<Weighted>> {
    let (mut channels, mut end) = (1, 0);
    let layers = architecture.layers().iter();
    let weighted = layers.map(|&layer| {
        let all = convolutions(layer, channels).into_iter();
        let all = all.map(|of| {
            let first = end;
            end += of.values();
            Weighted { first, of }
        });
        let all = all.collect();
        channels = match layer {
            Layer::Convolution { outputs, .. } => outputs,
            Layer::Fire {
                by_one, by_three, ..
            } => by_one + by_three,
            Layer::Pool { .. } | Layer::Average => channels,
        };
        all
    });
    weighted.collect()
}

/// Larger pixels out of more channels, beside each other.
fn shuffled(planes: &Planes, scale: usize) -> Planes {
    let Planes { width, .. } = *planes;
    let wide = scale * width;
    let larger = planes.channels.chunks(scale * scale).map(|of_one| {
        let mut larger = vec![0.0; of_one.len() * of_one[0].len()];
        for (output, plane) in of_one.iter().enumerate() {
            let (down, right) = (output / scale, output % scale);
            for (index, value) in plane.iter().enumerate() {
                let (x, y) = (
                    scale * (index % width) + right,
                    scale * (index / width) + down,
                );
                larger[y * wide + x] = *value;
            }
        }
        larger
    });
    Planes {
        width: wide,
        channels: larger.collect(),
    }
}

/// The largest value of each window.
fn pooled(planes: &Planes, side: usize) -> Planes {
    let Planes { width, .. } = *planes;
    let firsts = |pixels: usize| (0..=pixels - side).step_by(STRIDE as usize);
    let window = |plane: &[f32], x: usize, y: usize| {
        let rows = plane.chunks(width).skip(y).take(side);
        rows.flat_map(|row| &row[x..x + side])
            .copied()
            .reduce(f32::max)
    };
    let channels = planes.channels.iter().map(|plane| {
        let all = firsts(planes.height()).flat_map(|y| firsts(width).map(move |x| (x, y)));
        all.filter_map(|(x, y)| window(plane, x, y)).collect()
    });
    Planes {
        channels: channels.collect(),
        width: firsts(width).count(),
    }
}

/// The mean of each channel.
fn averaged(planes: &Planes) -> Planes {
    let mean = |plane: &Vec<f32>| {
        let sum: f64 = plane.iter().map(|&value| f64::from(value)).sum();
        vec![(sum / plane.len() as f64) as f32]
    };
    Planes {
        width: 1,
        channels: planes.channels.iter().map(mean).collect(),
    }
}

/// What a pixel's neighbour gives to one of the pixels that it becomes.
fn between(output: u32, tap: u32) -> f32 {
    let share = |part: u32, tap: u32| {
        let towards = part as f32 - 1.0;
        let neighbour = tap as f32 - 1.0;
        // A third of the way to the neighbour on its side.
        match neighbour {
            0.0 => 1.0 - towards.abs() / 3.0,
            _ if neighbour == towards => 1.0 / 3.0,
            _ => 0.0,
        }
    };
    share(output / SCALE, tap / SCALE) * share(output % SCALE, tap % SCALE)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One kernel at one pixel of one output, in the words of the definition.
    fn pixel(
        model: &Model,
        layer: Weighted,
        value: &dyn Fn(u32, i64, i64) -> f64,
        output: u32,
        (x, y): (i64, i64),
    ) -> f64 {
        let side = layer.of.side;
        let around = i64::from(side / 2);
        let mut sum = f64::from(model.values[layer.at(layer.of.inputs, 0, output)]);
        for (input, tap) in layer.inputs() {
            let right = x + i64::from(tap % side) - around;
            let down = y + i64::from(tap / side) - around;
            let weight = f64::from(model.values[layer.at(input, tap, output)]);
            sum += value(input, right, down) * weight;
        }
        sum
    }

    #[test]
    fn a_layer_is_what_its_definition_says_at_edges_too() {
        let model = Model::new(Architecture::Superresolution, 7);
        let mut random = SmallRng::seed_from_u64(3);
        // Lower than the largest kernel is wide.
        for (width, height) in [(5, 4), (1, 6), (3, 1)] {
            for layer in convolutions_of(model.architecture).into_iter().flatten() {
                let mut plane = || (0..width * height).map(|_| random.random()).collect();
                let channels = (0..layer.of.inputs).map(|_| plane()).collect();
                let planes = Planes { width, channels };
                let value = |channel: u32, x: i64, y: i64| {
                    let inside = (0..width as i64).contains(&x) && (0..height as i64).contains(&y);
                    let at = (y * width as i64 + x) as usize;
                    match inside {
                        true => f64::from(planes.channels[channel as usize][at]),
                        false => 0.0,
                    }
                };
                for output in [0, layer.of.outputs / 2, layer.of.outputs - 1] {
                    let found = model.output(layer, output, &planes);
                    for (index, found) in found.iter().enumerate() {
                        let place = ((index % width) as i64, (index / width) as i64);
                        let should = pixel(&model, layer, &value, output, place);
                        let beside = (f64::from(*found) - should).abs();
                        assert!(
                            beside < 1e-5,
                            "{layer:?} {output} {place:?}: {found} for {should}"
                        );
                    }
                }
            }
        }
    }

    /// Values by channel, column and row, and how many columns and rows; beside them is 0.
    type Map = (std::collections::HashMap<(u32, i64, i64), f64>, [i64; 2]);

    fn mapped(channels: u32, size: [i64; 2], value: impl Fn(u32, (i64, i64)) -> f64) -> Map {
        let [width, height] = size;
        let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let all =
            (0..channels).flat_map(|channel| places.clone().map(move |place| (channel, place)));
        let all = all.map(|(channel, (x, y))| ((channel, x, y), value(channel, (x, y))));
        (all.collect(), size)
    }

    fn convolved(model: &Model, layer: Weighted, (from, size): &Map) -> Map {
        let value = |channel, x, y| from.get(&(channel, x, y)).copied().unwrap_or(0.0);
        mapped(layer.of.outputs, *size, |output, place| {
            pixel(model, layer, &value, output, place).max(0.0)
        })
    }

    fn largest((from, [width, height]): &Map, channels: u32) -> Map {
        let size = [(width - 3) / 2 + 1, (height - 3) / 2 + 1];
        mapped(channels, size, |channel, (x, y)| {
            let window = (0..9).map(|at| from[&(channel, 2 * x + at % 3, 2 * y + at / 3)]);
            window.fold(f64::NEG_INFINITY, f64::max)
        })
    }

    fn expanded(model: &Model, [one, three]: [Weighted; 2], few: &Map) -> Map {
        let [first, behind] = [one, three].map(|half| convolved(model, half, few));
        mapped(2 * one.of.outputs, few.1, |channel, (x, y)| {
            match channel.checked_sub(one.of.outputs) {
                None => first.0[&(channel, x, y)],
                Some(channel) => behind.0[&(channel, x, y)],
            }
        })
    }

    #[test]
    fn the_scores_of_squeeze_are_what_its_layers_define() {
        let model = Model::new(Architecture::Squeeze, 11);
        let all: Vec<_> = convolutions_of(model.architecture)
            .into_iter()
            .flatten()
            .collect();
        // The layers by hand: 3 × 3, pool, fire, pool, fire, 1 × 1, mean.
        let shapes: Vec<_> = all
            .iter()
            .map(|one| (one.of.inputs, one.of.outputs, one.of.side))
            .collect();
        let fire = |inputs, expanded| [(inputs, 16, 1), (16, expanded, 1), (16, expanded, 3)];
        let should = [
            &[(1, 16, 3)][..],
            &fire(16, 32),
            &fire(64, 64),
            &[(128, 16, 1)],
        ];
        assert_eq!(shapes, should.concat());
        let picture = Picture::random([9, 12], &mut SmallRng::seed_from_u64(5));
        let map = mapped(1, [9, 12], |_, (x, y)| {
            f64::from(picture.values[(9 * y + x) as usize])
        });
        let map = largest(&convolved(&model, all[0], &map), 16);
        let map = expanded(&model, [all[2], all[3]], &convolved(&model, all[1], &map));
        let map = largest(&map, 64);
        let map = expanded(&model, [all[5], all[6]], &convolved(&model, all[4], &map));
        let (map, [width, height]) = convolved(&model, all[7], &map);
        let scores = model.answer(&picture);
        assert_eq!(scores.len(), 16);
        for (class, score) in (0..).zip(&scores) {
            let values = map.iter().filter(|((channel, ..), _)| *channel == class);
            let sum: f64 = values.map(|(_, value)| value).sum();
            let should = sum / (width * height) as f64;
            assert!(
                (f64::from(*score) - should).abs() < 1e-5,
                "{class}: {score} for {should}"
            );
        }
        // They tell classes apart, and pictures.
        assert!(scores.iter().any(|score| *score > 0.1));
        let other = Picture::random([9, 12], &mut SmallRng::seed_from_u64(6));
        assert_ne!(scores, model.answer(&other));
    }

    #[test]
    fn a_pixel_becomes_nine_beside_each_other_between_its_neighbours() {
        let mut model = Model::new(Architecture::Superresolution, 1);
        let all = convolutions_of(model.architecture).into_iter().flatten();
        // Without what comes from the seed: every weight but those of the first channels.
        for (number, layer) in all.enumerate() {
            for (input, tap) in layer.inputs().chain([(layer.of.inputs, 0)]) {
                for output in 0..layer.of.outputs {
                    let first = input == 0 && (number == 2 || output == 0);
                    if !first {
                        model.values[layer.at(input, tap, output)] = 0.0;
                    }
                }
            }
        }
        let slope = |x: usize, y: usize| 3.0 * x as f32 + 30.0 * y as f32;
        let picture = Picture {
            width: 5,
            values: (0..20).map(|index| slope(index % 5, index / 5)).collect(),
        };
        let larger = model.answer(&picture);
        assert_eq!(larger.len(), 9 * 20);
        // Inside, where all neighbours are: a slope stays one, a third as steep.
        for (x, y) in (3..12).flat_map(|x| (3..9).map(move |y| (x, y))) {
            let should = x as f32 - 1.0 + 10.0 * (y as f32 - 1.0);
            assert!((larger[y * 15 + x] - should).abs() < 1e-3, "{x} {y}");
        }
    }

    #[test]
    fn the_seed_decides() {
        for architecture in [Architecture::Superresolution, Architecture::Squeeze] {
            let values = |seed| Model::new(architecture, seed).values;
            assert_eq!(values(1), values(1));
            assert_ne!(values(1), values(2));
        }
    }
}
