//! The table of a network's steps, and how the weights of a convolution lie.

use super::{CELLS, GROUP, MAX_ROWS, PITCH, QUADS, ROOM, at_once};

/// The weights of a convolution: input channel after input channel, tap after tap of each, [`padded`](Self::padded)
/// outputs of each; then come as many biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Channels that come in.
    pub inputs: u32,
    /// Channels that come out.
    pub outputs: u32,
    /// Rows and columns of a kernel: one of [`SIDES`].
    pub side: u32,
}

impl Convolution {
    /// Outputs in memory: a multiple of 16, the last ones not used.
    pub const fn padded(self) -> u32 {
        self.outputs.next_multiple_of(GROUP)
    }

    /// Taps of a kernel.
    pub const fn taps(self) -> u32 {
        self.side * self.side
    }

    /// Values of weights and biases.
    pub const fn values(self) -> u32 {
        (self.inputs * self.taps() + 1) * self.padded()
    }

    /// Whether a block's shared memory has room for it: whole chunks of channels, with the pixels around a tile.
    pub const fn has_room(self) -> bool {
        let channels = at_once(self.inputs);
        self.inputs.is_multiple_of(channels)
            && channels * (MAX_ROWS + self.side - 1) * PITCH <= CELLS as u32
            && channels * self.taps() * QUADS <= ROOM as u32
    }
}

/// Rows and columns that a convolution's kernel may have.
pub const SIDES: [u32; 3] = [1, 3, 5];

/// Pixels from one window of a [`Step::POOL`] to the next, across and down.
pub const STRIDE: u32 = 2;

/// A step of a network, as it lies in memory. Channels lie one plane after the other. Places of values are
/// [`INPUT`](Self::INPUT), [`OUTPUT`](Self::OUTPUT), or offsets into [`Network::planes`](super::Network::planes).
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// [`CONVOLVE`](Self::CONVOLVE), [`POOL`](Self::POOL) or [`AVERAGE`](Self::AVERAGE).
    pub kind: u32,
    /// Channels that come in.
    pub inputs: u32,
    /// Channels that come out, before a shuffle.
    pub outputs: u32,
    /// Rows and columns of a convolution's kernel, or of a pool's window.
    pub side: u32,
    /// Pixels of a row that comes in.
    pub width: u32,
    /// Rows that come in.
    pub height: u32,
    /// Where the values come from.
    pub from: u32,
    /// Where they go.
    pub to: u32,
    /// Where a convolution's weights begin, in values: a multiple of 16.
    pub weights: u32,
    /// How many pixels of a row, and rows, a shuffle makes of the outputs of a pixel; 1 for no shuffle.
    pub scale: u32,
    /// 1 for a convolution whose outputs are rectified (ReLU).
    pub rectified: u32,
    /// 1 where all blocks meet before this step, because it reads what other blocks wrote since the last meeting.
    pub meets: u32,
}

impl Step {
    /// Each output is the sum of a window around its pixel in all inputs, beside the picture 0, and a bias.
    pub const CONVOLVE: u32 = 0;
    /// Each channel becomes the largest values of its windows, which lie [`STRIDE`] pixels apart and inside the
    /// picture.
    pub const POOL: u32 = 1;
    /// Each channel becomes its mean.
    pub const AVERAGE: u32 = 2;
    /// The place of the picture that comes in.
    pub const INPUT: u32 = u32::MAX;
    /// The place of the answer.
    pub const OUTPUT: u32 = u32::MAX - 1;
    /// Words of 8 bytes of a step in memory.
    pub const WORDS: u32 = (size_of::<Self>() / 8) as u32;

    pub(super) const fn convolution(&self) -> Convolution {
        Convolution {
            inputs: self.inputs,
            outputs: self.outputs,
            side: self.side,
        }
    }
}

/// Windows of a pool along so many pixels, which are at least `side`.
pub const fn windows(pixels: u32, side: u32) -> u32 {
    pixels.saturating_sub(side) / STRIDE + 1
}
