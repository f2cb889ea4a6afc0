//! The network's weights, and what it makes of a picture, by plain loops.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use warpbell_paper_kernels::network::{LAYERS, Layer, SCALE, WEIGHTS, rectified};

/// How large the weights of each layer are at most that come from the seed: enough for each to show in the result, too
/// little to hide the picture.
const SPREAD: [f32; LAYERS.len()] = [0.2, 1.0 / 24.0, 0.03];

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

/// Weights and biases of all layers, as they lie in the kernels' memory.
#[derive(Debug)]
pub struct Model(Vec<f32>);

impl Model {
    /// The first channel carries the picture through all layers, and the last one lays each of its pixels between its
    /// neighbours, as bilinear interpolation does; every other weight, and every bias, comes from the seed. So the result
    /// shows the picture, and whatever is wrong in any channel.
    pub fn new(seed: u64) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut model = Self(vec![0.0; WEIGHTS as usize]);
        for (number, (layer, spread)) in LAYERS.iter().zip(SPREAD).enumerate() {
            for output in 0..layer.outputs {
                let last = number == LAYERS.len() - 1;
                // The layers before the last keep their first channel.
                let kept = output == 0 && !last;
                for (input, tap) in
                    (0..layer.inputs).flat_map(|i| (0..layer.taps()).map(move |t| (i, t)))
                {
                    let from_seed = random.random_range(-spread..=spread);
                    let weight = match (input, last) {
                        (0, true) => between(output, tap),
                        (0, false) if kept && tap == layer.taps() / 2 => 1.0,
                        _ if kept => 0.0,
                        _ => from_seed,
                    };
                    let at = at(number, input, tap, output);
                    model.0[at] = weight;
                }
                let bias = random.random_range(-spread..=spread) / 4.0;
                model.0[at(number, layer.inputs, 0, output)] = if kept { 0.0 } else { bias };
            }
        }
        model
    }

    /// All values, for the kernels.
    pub fn values(&self) -> &[f32] {
        &self.0
    }

    /// The picture made larger: a value for each pixel, row after row.
    pub fn enlarge(&self, picture: &Picture) -> Vec<f32> {
        let (width, height) = (picture.width, picture.height());
        let mut planes = vec![picture.values.clone()];
        for (number, layer) in LAYERS.iter().enumerate() {
            let last = number == LAYERS.len() - 1;
            let out = |output| {
                let mut plane = self.convolve(number, *layer, output, &planes, width);
                if !last {
                    plane
                        .iter_mut()
                        .for_each(|value| *value = rectified(*value));
                }
                plane
            };
            planes = (0..layer.outputs).map(out).collect();
        }
        let scale = SCALE as usize;
        let mut larger = vec![0.0; scale * scale * width * height];
        for (output, plane) in planes.iter().enumerate() {
            let (down, right) = (output / scale, output % scale);
            for (index, value) in plane.iter().enumerate() {
                let (x, y) = (
                    scale * (index % width) + right,
                    scale * (index / width) + down,
                );
                larger[y * scale * width + x] = *value;
            }
        }
        larger
    }

    /// An output of a layer, as a plane.
    fn convolve(
        &self,
        number: usize,
        layer: Layer,
        output: u32,
        planes: &[Vec<f32>],
        width: usize,
    ) -> Vec<f32> {
        let around = layer.side as usize / 2;
        let bias = self.0[at(number, layer.inputs, 0, output)];
        let mut sums = vec![bias; planes[0].len()];
        let height = sums.len() / width;
        for (input, plane) in (0..).zip(planes) {
            for tap in 0..layer.taps() {
                let weight = self.0[at(number, input, tap, output)];
                let (down, right) = ((tap / layer.side) as usize, (tap % layer.side) as usize);
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

/// Where a weight lies among all; behind the last input lie the biases.
fn at(number: usize, input: u32, tap: u32, output: u32) -> usize {
    let before: u32 = LAYERS[..number].iter().map(|layer| layer.values()).sum();
    let layer = LAYERS[number];
    (before + (input * layer.taps() + tap) * layer.padded() + output) as usize
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
        number: usize,
        planes: &[Vec<f32>],
        width: i64,
        output: u32,
        (x, y): (i64, i64),
    ) -> f64 {
        let layer = LAYERS[number];
        let height = planes[0].len() as i64 / width;
        let around = i64::from(layer.side / 2);
        let mut sum = f64::from(model.0[at(number, layer.inputs, 0, output)]);
        for input in 0..layer.inputs {
            for tap in 0..layer.taps() {
                let right = x + i64::from(tap % layer.side) - around;
                let down = y + i64::from(tap / layer.side) - around;
                if (0..width).contains(&right) && (0..height).contains(&down) {
                    let cell = planes[input as usize][(down * width + right) as usize];
                    sum += f64::from(cell) * f64::from(model.0[at(number, input, tap, output)]);
                }
            }
        }
        sum
    }

    #[test]
    fn a_layer_is_what_its_definition_says_at_edges_too() {
        let model = Model::new(7);
        let mut random = SmallRng::seed_from_u64(3);
        // Lower than the largest kernel is wide.
        for (width, height) in [(5, 4), (1, 6), (3, 1)] {
            for (number, layer) in LAYERS.into_iter().enumerate() {
                let mut plane = || (0..width * height).map(|_| random.random()).collect();
                let planes: Vec<Vec<f32>> = (0..layer.inputs).map(|_| plane()).collect();
                for output in [0, layer.outputs / 2, layer.outputs - 1] {
                    let found = model.convolve(number, layer, output, &planes, width);
                    for (index, found) in found.iter().enumerate() {
                        let place = ((index % width) as i64, (index / width) as i64);
                        let should = pixel(&model, number, &planes, width as i64, output, place);
                        let beside = (f64::from(*found) - should).abs();
                        assert!(
                            beside < 1e-5,
                            "{number} {output} {place:?}: {found} for {should}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_pixel_becomes_nine_beside_each_other_between_its_neighbours() {
        let mut model = Model::new(1);
        // Without what comes from the seed: every weight but those of the first channels.
        for (number, layer) in LAYERS.into_iter().enumerate() {
            for input in 0..=layer.inputs {
                let taps = if input == layer.inputs {
                    1
                } else {
                    layer.taps()
                };
                for (tap, output) in (0..taps).flat_map(|t| (0..layer.outputs).map(move |o| (t, o)))
                {
                    let first = input == 0 && (number == 2 || output == 0);
                    if !first {
                        model.0[at(number, input, tap, output)] = 0.0;
                    }
                }
            }
        }
        let slope = |x: usize, y: usize| 3.0 * x as f32 + 30.0 * y as f32;
        let picture = Picture {
            width: 5,
            values: (0..20).map(|index| slope(index % 5, index / 5)).collect(),
        };
        let larger = model.enlarge(&picture);
        assert_eq!(larger.len(), 9 * 20);
        // Inside, where all neighbours are: a slope stays one, a third as steep.
        for (x, y) in (3..12).flat_map(|x| (3..9).map(move |y| (x, y))) {
            let should = x as f32 - 1.0 + 10.0 * (y as f32 - 1.0);
            assert!((larger[y * 15 + x] - should).abs() < 1e-3, "{x} {y}");
        }
    }

    #[test]
    fn the_seed_decides() {
        assert_eq!(Model::new(1).0, Model::new(1).0);
        assert_ne!(Model::new(1).0, Model::new(2).0);
    }
}
