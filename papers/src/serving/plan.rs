//! Networks as data: their layers, and the table of steps that kernels walk, checked before they do.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use warpbell_paper_kernels::network::{Convolution, SIDES, Step, windows};

/// How much wider and higher a picture becomes by [`Architecture::Superresolution`].
pub const SCALE: u32 = 3;
/// Classes of [`Architecture::Squeeze`], with a score each.
pub const CLASSES: u32 = 16;

/// Which network is served. Its picture has one channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Architecture {
    /// Makes a picture larger, with ESPCN's shape (Shi and others 2016).
    Superresolution,
    /// Tells a picture's class by fire modules, as SqueezeNet does (Iandola and others 2016), with fewer of them.
    Squeeze,
}

/// A layer of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Channels out of all channels, each by a kernel of so many rows and columns; beside the picture is 0.
    Convolution {
        /// Channels that come out.
        outputs: u32,
        /// Rows and columns of a kernel.
        side: u32,
        /// What becomes of them.
        then: Then,
    },
    /// A fire module: a rectified convolution of side 1 that leaves few channels, and out of those two rectified
    /// convolutions beside each other.
    Fire {
        /// Channels that are left.
        squeezed: u32,
        /// Channels that come out by a side of 1, which are the first ones.
        by_one: u32,
        /// Channels that come out by a side of 3.
        by_three: u32,
    },
    /// The largest value of each window of so many rows and columns, every second pixel.
    Pool {
        /// Rows and columns.
        side: u32,
    },
    /// The mean of each channel.
    Average,
}

/// What becomes of a convolution's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// They stay.
    Same,
    /// What is negative becomes 0 (ReLU).
    Rectified,
    /// So many times as many pixels across and down, out of the square as many channels.
    Shuffled(u32),
}

impl Architecture {
    /// Its layers.
    pub fn layers(self) -> &'static [Layer] {
        const fn rectified(outputs: u32, side: u32) -> Layer {
            let then = Then::Rectified;
            Layer::Convolution {
                outputs,
                side,
                then,
            }
        }
        const fn fire(squeezed: u32, expanded: u32) -> Layer {
            Layer::Fire {
                squeezed,
                by_one: expanded,
                by_three: expanded,
            }
        }
        match self {
            Self::Superresolution => {
                &const {
                    [
                        rectified(64, 5),
                        rectified(32, 3),
                        Layer::Convolution {
                            outputs: SCALE * SCALE,
                            side: 3,
                            then: Then::Shuffled(SCALE),
                        },
                    ]
                }
            }
            Self::Squeeze => {
                &const {
                    [
                        rectified(16, 3),
                        Layer::Pool { side: 3 },
                        fire(16, 32),
                        Layer::Pool { side: 3 },
                        fire(16, 64),
                        rectified(CLASSES, 1),
                        Layer::Average,
                    ]
                }
            }
        }
    }

    /// Pixels of a row, and rows, of an answer; of scores one row.
    pub fn answer(self, [width, height]: [u32; 2]) -> [u32; 2] {
        match self {
            Self::Superresolution => [SCALE * width, SCALE * height],
            Self::Squeeze => [CLASSES, 1],
        }
    }

    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Superresolution => "superresolution",
            Self::Squeeze => "squeeze",
        }
    }
}

/// What a layer's convolutions are, out of so many channels, in the order of their weights.
pub(super) fn convolutions(layer: Layer, inputs: u32) -> Vec<Convolution> {
    let convolution = |inputs, outputs, side| Convolution {
        inputs,
        outputs,
        side,
    };
    match layer {
        Layer::Convolution { outputs, side, .. } => vec![convolution(inputs, outputs, side)],
        Layer::Fire {
            squeezed,
            by_one,
            by_three,
        } => vec![
            convolution(inputs, squeezed, 1),
            convolution(squeezed, by_one, 1),
            convolution(squeezed, by_three, 3),
        ],
        Layer::Pool { .. } | Layer::Average => Vec::new(),
    }
}

/// A network that kernels cannot walk: which layer, the first being 1, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("layer {layer} of the network: {fault}")]
pub struct PlanError {
    /// Which.
    pub layer: usize,
    /// Why.
    pub fault: PlanFault,
}

/// What does not fit of a layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanFault {
    /// No layers at all.
    #[error("it is missing")]
    Missing,
    /// Kernels or windows of another size.
    #[error("a side of {side} is none of {SIDES:?}")]
    Side {
        /// Rows and columns.
        side: u32,
    },
    /// Channels that make no whole chunks, or too many with such a kernel.
    #[error(
        "{inputs} channels do not come into shared memory in whole chunks with a side of {side}"
    )]
    Chunks {
        /// Channels that come in.
        inputs: u32,
        /// Rows and columns of a kernel.
        side: u32,
    },
    /// No channels.
    #[error("no channel comes out")]
    NoChannel,
    /// Channels that make no larger pixels.
    #[error("{outputs} channels are not as many as {scale} × {scale} pixels of each of some")]
    Shuffle {
        /// Channels that come out.
        outputs: u32,
        /// Pixels across and down.
        scale: u32,
    },
    /// No window fits.
    #[error("a picture of {width} × {height} is smaller than a window of {side} × {side}")]
    Small {
        /// Pixels of a row.
        width: u32,
        /// Rows.
        height: u32,
        /// Rows and columns of a window.
        side: u32,
    },
    /// A fire module at the end, whose two halves are no answer.
    #[error("a fire module gives no answer; put a layer behind it")]
    FireLast,
    /// More values than 32 bits count.
    #[error("its values are more than 32 bits count")]
    Large,
}

/// What lies between two layers: channels of so many pixels, at a place.
#[derive(Clone, Copy)]
struct Planes {
    at: u32,
    channels: u32,
    width: u32,
    height: u32,
}

/// A network for pictures of a size, as kernels walk it. Each step has memory of its own for what it gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// One behind the other.
    pub steps: Vec<Step>,
    /// Values of all weights.
    pub weights: u32,
    /// Values between the steps.
    pub planes: u32,
    /// Values of an answer.
    pub answer: u32,
}

impl Plan {
    /// Checks that each layer takes what the one before gives, and lays all values out.
    ///
    /// # Errors
    /// The first layer that does not fit.
    pub fn new(layers: &[Layer], [width, height]: [u32; 2]) -> Result<Self, PlanError> {
        let mut plan = Self {
            steps: Vec::new(),
            weights: 0,
            planes: 0,
            answer: 0,
        };
        let mut planes = Planes {
            at: Step::INPUT,
            channels: 1,
            width,
            height,
        };
        if layers.is_empty() {
            let fault = PlanFault::Missing;
            return Err(PlanError { layer: 1, fault });
        }
        for (number, &layer) in (1..).zip(layers) {
            let added = plan.add(layer, planes, number == layers.len());
            planes = added.map_err(|fault| PlanError {
                layer: number,
                fault,
            })?;
        }
        Ok(plan)
    }

    /// Adds a layer's steps, and gives what comes out of them.
    fn add(&mut self, layer: Layer, from: Planes, last: bool) -> Result<Planes, PlanFault> {
        let Planes {
            channels,
            width,
            height,
            ..
        } = from;
        let convolutions = convolutions(layer, channels);
        match layer {
            Layer::Convolution { outputs, then, .. } => {
                let scale = match then {
                    Then::Shuffled(scale) => scale,
                    Then::Same | Then::Rectified => 1,
                };
                let square = scale.checked_mul(scale).ok_or(PlanFault::Large)?;
                if square == 0 || !outputs.is_multiple_of(square) {
                    return Err(PlanFault::Shuffle { outputs, scale });
                }
                let size = [width, height].map(|pixels| pixels.checked_mul(scale));
                let [Some(width), Some(height)] = size else {
                    return Err(PlanFault::Large);
                };
                let to = self.room([outputs / square, width, height], last)?;
                self.convolve(convolutions[0], from, to.at, then)?;
                Ok(to)
            }
            Layer::Fire { .. } if last => Err(PlanFault::FireLast),
            Layer::Fire {
                squeezed,
                by_one,
                by_three,
            } => {
                let few = self.room([squeezed, width, height], false)?;
                self.convolve(convolutions[0], from, few.at, Then::Rectified)?;
                let outputs = by_one.checked_add(by_three).ok_or(PlanFault::Large)?;
                let to = self.room([outputs, width, height], false)?;
                self.convolve(convolutions[1], few, to.at, Then::Rectified)?;
                // Inside, because all of them are.
                let behind = to.at + by_one * width * height;
                self.convolve(convolutions[2], few, behind, Then::Rectified)?;
                // Both halves read what was there before the first one.
                self.steps.last_mut().expect("it was added").meets = 0;
                Ok(to)
            }
            Layer::Pool { side } => {
                if side == 0 || width.min(height) < side {
                    return Err(PlanFault::Small {
                        width,
                        height,
                        side,
                    });
                }
                let [across, down] = [width, height].map(|pixels| windows(pixels, side));
                let to = self.room([channels, across, down], last)?;
                self.step(Step::POOL, side, from, to);
                Ok(to)
            }
            Layer::Average => {
                let to = self.room([channels, 1, 1], last)?;
                self.step(Step::AVERAGE, 0, from, to);
                Ok(to)
            }
        }
    }

    /// Room for so many channels of so many pixels of a row and rows.
    fn room(
        &mut self,
        [channels, width, height]: [u32; 3],
        last: bool,
    ) -> Result<Planes, PlanFault> {
        let values = width.checked_mul(height);
        let values = values.and_then(|pixels| pixels.checked_mul(channels));
        let values = values.ok_or(PlanFault::Large)?;
        if channels == 0 {
            return Err(PlanFault::NoChannel);
        }
        let at = match last {
            true => {
                self.answer = values;
                Step::OUTPUT
            }
            false => {
                let at = self.planes;
                let end = at.checked_add(values).filter(|&end| end < Step::OUTPUT);
                self.planes = end.ok_or(PlanFault::Large)?;
                at
            }
        };
        Ok(Planes {
            at,
            channels,
            width,
            height,
        })
    }

    fn convolve(
        &mut self,
        convolution: Convolution,
        from: Planes,
        to: u32,
        then: Then,
    ) -> Result<(), PlanFault> {
        let Convolution {
            inputs,
            outputs,
            side,
        } = convolution;
        if !SIDES.contains(&side) {
            return Err(PlanFault::Side { side });
        }
        if !convolution.has_room() {
            return Err(PlanFault::Chunks { inputs, side });
        }
        if outputs == 0 {
            return Err(PlanFault::NoChannel);
        }
        // As `Convolution::values`, in numbers that are large enough for any.
        let terms = u64::from(inputs) * u64::from(side * side) + 1;
        let values = terms.saturating_mul(u64::from(outputs).next_multiple_of(16));
        let end = u64::from(self.weights).saturating_add(values);
        let weights = self.weights;
        self.weights = u32::try_from(end).map_err(|_| PlanFault::Large)?;
        self.steps.push(Step {
            kind: Step::CONVOLVE,
            inputs,
            outputs,
            side,
            width: from.width,
            height: from.height,
            from: from.at,
            to,
            weights,
            scale: match then {
                Then::Shuffled(scale) => scale,
                Then::Same | Then::Rectified => 1,
            },
            rectified: u32::from(then == Then::Rectified),
            meets: u32::from(!self.steps.is_empty()),
        });
        Ok(())
    }

    /// A step without weights.
    fn step(&mut self, kind: u32, side: u32, from: Planes, to: Planes) {
        self.steps.push(Step {
            kind,
            inputs: from.channels,
            outputs: to.channels,
            side,
            width: from.width,
            height: from.height,
            from: from.at,
            to: to.at,
            weights: 0,
            scale: 1,
            rectified: 0,
            meets: u32::from(!self.steps.is_empty()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(layers: &[Layer], size: [u32; 2]) -> (usize, PlanFault) {
        let error = Plan::new(layers, size).unwrap_err();
        (error.layer, error.fault)
    }

    const fn convolution(outputs: u32, side: u32) -> Layer {
        let then = Then::Same;
        Layer::Convolution {
            outputs,
            side,
            then,
        }
    }

    #[test]
    fn each_layer_takes_what_the_one_before_gives_and_has_room_of_its_own() {
        for architecture in [Architecture::Superresolution, Architecture::Squeeze] {
            for size in [[8, 8], [9, 17], [1024, 1024]] {
                let plan = Plan::new(architecture.layers(), size).unwrap();
                let [width, height] = architecture.answer(size);
                assert_eq!(plan.answer, width * height);
                assert_eq!(plan.steps[0].from, Step::INPUT);
                assert_eq!(plan.steps.last().unwrap().to, Step::OUTPUT);
                let mut end = 0;
                for step in &plan.steps {
                    assert!(step.from == Step::INPUT || step.from < end, "{step:?}");
                    if step.to != Step::OUTPUT {
                        assert_eq!(step.to, end);
                        let [across, down] = match step.kind {
                            Step::POOL => [step.width, step.height].map(|of| (of - 3) / 2 + 1),
                            _ => [step.width, step.height],
                        };
                        end += step.outputs * across * down;
                    }
                }
                assert_eq!(end, plan.planes);
            }
        }
        // A side of 1 and one of 3 of a fire module read the same, and need no meeting between them.
        let plan = Plan::new(Architecture::Squeeze.layers(), [8, 8]).unwrap();
        let meets: Vec<_> = plan.steps.iter().map(|step| step.meets).collect();
        assert_eq!(meets, [0, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1]);
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_layer() {
        let size = [8, 8];
        assert_eq!(fault(&[], size), (1, PlanFault::Missing));
        let side = PlanFault::Side { side: 7 };
        assert_eq!(
            fault(&[convolution(4, 3), convolution(4, 7)], size),
            (2, side)
        );
        let chunks = |inputs, side| PlanFault::Chunks { inputs, side };
        assert_eq!(
            fault(&[convolution(12, 3), convolution(4, 3)], size),
            (2, chunks(12, 3))
        );
        assert_eq!(
            fault(&[convolution(8, 3), convolution(4, 5)], size),
            (2, chunks(8, 5))
        );
        assert_eq!(fault(&[convolution(0, 3)], size), (1, PlanFault::NoChannel));
        let fire = |squeezed| Layer::Fire {
            squeezed,
            by_one: 16,
            by_three: 16,
        };
        assert_eq!(
            fault(&[fire(0), Layer::Average], size),
            (1, PlanFault::NoChannel)
        );
        assert_eq!(fault(&[fire(8)], size), (1, PlanFault::FireLast));
        let shuffled = |outputs, scale| Layer::Convolution {
            outputs,
            side: 3,
            then: Then::Shuffled(scale),
        };
        for (outputs, scale) in [(8, 3), (8, 0)] {
            let why = PlanFault::Shuffle { outputs, scale };
            assert_eq!(fault(&[shuffled(outputs, scale)], size), (1, why));
        }
        let pool = Layer::Pool { side: 3 };
        let small = PlanFault::Small {
            width: 1,
            height: 1,
            side: 3,
        };
        assert_eq!(fault(&[pool, pool, pool], size), (3, small));
        assert_eq!(
            fault(&[convolution(8, 3)], [1 << 16, 1 << 16]),
            (1, PlanFault::Large)
        );
        let many = [convolution(1 << 24, 1), convolution(1 << 24, 1)];
        assert_eq!(fault(&many, size), (2, PlanFault::Large));
        let error = Plan::new(&[pool], [2, 9]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "layer 1 of the network: a picture of 2 × 9 is smaller than a window of 3 × 3"
        );
    }
}
