//! A convolutional network that makes a picture larger, with ESPCN's shape (Shi and others 2016): 5 × 5 to 64 channels,
//! 3 × 3 to 32, 3 × 3 to as many as a pixel becomes pixels, which are then put beside each other.

use warpbell::{Deadline, WaitError, block, shared_array, thread};

use crate::meeting::meet_at;
use warpbell_kernels::place::Place;

/// How much wider and higher the picture becomes.
pub const SCALE: u32 = 3;

/// What a layer is. Its weights lie input channel after input channel, tap after tap of each, [`PADDED`](Self::padded)
/// outputs of each; then come as many biases.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Channels that come in.
    pub inputs: u32,
    /// Channels that come out.
    pub outputs: u32,
    /// Rows and columns of a kernel: odd.
    pub side: u32,
}

impl Layer {
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
}

/// The network's layers.
pub const LAYERS: [Layer; 3] = [
    layer(1, 64, 5),
    layer(64, 32, 3),
    layer(32, SCALE * SCALE, 3),
];

const fn layer(inputs: u32, outputs: u32, side: u32) -> Layer {
    Layer {
        inputs,
        outputs,
        side,
    }
}

/// Values of all layers' weights and biases.
pub const WEIGHTS: u32 = LAYERS[0].values() + LAYERS[1].values() + LAYERS[2].values();

/// The most threads of a block that computes, which are a multiple of [`COLUMNS`].
pub const MAX_THREADS: u32 = 256;
/// Columns of a tile, in which each thread has two pixels, one under the other.
pub const COLUMNS: u32 = 16;
/// Pixels of a thread.
const ROWS: u32 = 2;
/// The most rows of a tile.
const MAX_ROWS: u32 = ROWS * MAX_THREADS / COLUMNS;
/// Values from a row in shared memory to the next one: those of two rows lie in other banks for the two halves of a warp.
const PITCH: u32 = 24;
/// Channels that come into shared memory at a time.
const CHUNK: u32 = 8;
/// Outputs that a thread sums at a time.
const GROUP: u32 = 16;
/// Values of a weight that are loaded at once.
const LANES: u32 = 4;
/// How often that is.
const QUADS: u32 = GROUP / LANES;

/// Room for [`CHUNK`] channels of a tile with the pixels around it.
const CELLS: usize = (CHUNK * (MAX_ROWS + 2) * PITCH) as usize;
/// Room for their weights.
const ROOM: usize = (CHUNK * 9 * QUADS) as usize;

/// Four outputs beside each other.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Four([f32; LANES as usize]);

impl Four {
    const ZERO: Self = Self([0.0; LANES as usize]);

    /// What there was, and a cell times these weights.
    #[inline(always)]
    fn plus(self, cell: f32, Self(weights): Self) -> Self {
        let Self([a, b, c, d]) = self;
        Self([
            multiply_add(cell, weights[0], a),
            multiply_add(cell, weights[1], b),
            multiply_add(cell, weights[2], c),
            multiply_add(cell, weights[3], d),
        ])
    }
}

/// A pixel's outputs. Nothing here counts through them, so that they stay in registers.
#[derive(Clone, Copy)]
struct Sums([Four; QUADS as usize]);

impl Sums {
    const ZERO: Self = Self([Four::ZERO; QUADS as usize]);

    #[inline(always)]
    fn plus(self, cell: f32, weights: [Four; QUADS as usize]) -> Self {
        let Self([a, b, c, d]) = self;
        Self([
            a.plus(cell, weights[0]),
            b.plus(cell, weights[1]),
            c.plus(cell, weights[2]),
            d.plus(cell, weights[3]),
        ])
    }
}

/// The product and the sum; a GPU rounds once.
#[inline(always)]
fn multiply_add(one: f32, other: f32, sum: f32) -> f32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let result: f32;
        // SAFETY: arithmetic in registers.
        unsafe {
            core::arch::asm!(
                "fma.rn.f32 {}, {}, {}, {};",
                out(reg32) result,
                in(reg32) one,
                in(reg32) other,
                in(reg32) sum,
                options(nomem, nostack, preserves_flags)
            );
        }
        result
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        one * other + sum
    }
}

/// What is not negative stays. Plain comparisons: no function of a library, and the same bits everywhere.
#[inline(always)]
pub fn rectified(value: f32) -> f32 {
    if value > 0.0 { value } else { 0.0 }
}

/// A block's shared memory.
#[derive(Clone, Copy)]
struct Room {
    cells: *mut f32,
    weights: *mut Four,
}

/// Where a tile's outputs go.
#[derive(Clone, Copy)]
struct Outputs {
    biases: *const f32,
    to: *mut f32,
    /// The first of them.
    first: u32,
}

/// A network in memory of the kernels' own, for all blocks of a kernel together. Values are floats of 4 bytes.
///
/// # Safety of its kernels
/// Kernels read and write it by plain loads and stores, whose places follow from numbers alone. Who launches one promises:
///
/// - Each place has as many words as its field says, for `width` × `height` pixels, and no two places overlap.
/// - Nobody else touches them while the kernel runs, unless the kernel says otherwise.
/// - The grid has [`blocks`](Self::blocks) blocks, at least 1. Each has at most [`MAX_THREADS`] threads, a multiple of
///   [`COLUMNS`] and not 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Pixels of a row of the picture that comes in.
    pub width: u32,
    /// Its rows.
    pub height: u32,
    /// The picture, row after row.
    pub input: Place,
    /// [`WEIGHTS`] values, layer after layer; aligned to 16 bytes.
    pub weights: Place,
    /// Room for the first two layers' channels, one plane after the other.
    pub planes: [Place; 2],
    /// Room for the larger picture.
    pub output: Place,
    /// A word for each block, 0 before the first meeting.
    pub arrivals: Place,
    /// Blocks of the kernel.
    pub blocks: u32,
}

#[inline(always)]
fn values(place: Place) -> *mut f32 {
    place.first().cast_mut().cast()
}

impl Network {
    /// How often the blocks meet while they make a picture larger.
    pub const MEETINGS: u64 = 2;

    /// Makes the picture larger, with all threads of all blocks. Each block's part of the output is there then, the
    /// others' once they have met again. `met` counts the meetings, the first being 1.
    ///
    /// # Errors
    /// `Deadline`, where a block does not come.
    ///
    /// # Safety
    /// As [`Network`] says.
    #[inline(always)]
    pub(crate) unsafe fn run(&self, met: &mut u64, deadline: Deadline) -> Result<(), WaitError> {
        let room = Room {
            cells: shared_array![f32; CELLS],
            weights: shared_array![Four; ROOM],
        };
        let weights = values(self.weights);
        // Inside, because the host promises `WEIGHTS` of them.
        let second = weights.wrapping_add(LAYERS[0].values() as usize);
        let third = second.wrapping_add(LAYERS[1].values() as usize);
        let [one, other] = self.planes.map(values);
        self.layer::<0>(room, values(self.input), weights, one);
        *met += 1;
        // SAFETY: the caller's promise: a word for each block.
        unsafe { meet_at(self.arrivals.first(), self.blocks, *met, deadline) }?;
        self.layer::<1>(room, one, second, other);
        *met += 1;
        // SAFETY: the caller's promise: a word for each block.
        unsafe { meet_at(self.arrivals.first(), self.blocks, *met, deadline) }?;
        self.layer::<2>(room, other, third, values(self.output));
        Ok(())
    }

    /// Layer number `NUMBER`, a tile and some of its outputs after the other.
    #[inline(always)]
    fn layer<const NUMBER: usize>(
        &self,
        room: Room,
        from: *const f32,
        weights: *const f32,
        to: *mut f32,
    ) {
        let layer = const { LAYERS[NUMBER] };
        let channels = const { at_once(LAYERS[NUMBER].inputs) };
        let groups = layer.padded() / GROUP;
        // Neither is 0: the host promises threads and pixels.
        let rows = (block::size() / COLUMNS * ROWS).max(1);
        let across = self.width.div_ceil(COLUMNS).max(1);
        let items = across * self.height.div_ceil(rows) * groups;
        let own = block::thread_index();
        let (x, y) = (own % COLUMNS, own / COLUMNS * ROWS);
        let biases = weights.wrapping_add((layer.inputs * layer.taps() * layer.padded()) as usize);
        let mut item = block::index();
        while item < items {
            let (tile, group) = (item / groups, item % groups);
            let (left, top) = (tile % across * COLUMNS, tile / across * rows);
            let (mut upper, mut lower) = (Sums::ZERO, Sums::ZERO);
            let mut channel = 0;
            while channel < layer.inputs {
                self.fill(
                    room,
                    from,
                    (channel, channels),
                    layer.side,
                    (left, top, rows),
                );
                let taps = channels * layer.taps();
                let mut index = own;
                while index < taps * QUADS {
                    let tap = channel * layer.taps() + index / QUADS;
                    let at = (tap * groups + group) * QUADS + index % QUADS;
                    // SAFETY: inside the layer's weights and the array; each is one thread's.
                    unsafe {
                        *room.weights.add(index as usize) =
                            *weights.cast::<Four>().add(at as usize);
                    }
                    index += block::size();
                }
                // All cells and weights before anybody sums.
                thread::sync_threads();
                let plane = (rows + layer.side - 1) * PITCH;
                for of in 0..channels {
                    for down in 0..layer.side {
                        for right in 0..layer.side {
                            let cell = of * plane + (y + down) * PITCH + x + right;
                            let tap = of * layer.taps() + down * layer.side + right;
                            // SAFETY: inside the arrays, which nobody writes meanwhile.
                            let (one, other, weights) = unsafe {
                                (
                                    *room.cells.add(cell as usize),
                                    *room.cells.add((cell + PITCH) as usize),
                                    *room.weights.add((tap * QUADS) as usize).cast(),
                                )
                            };
                            upper = upper.plus(one, weights);
                            lower = lower.plus(other, weights);
                        }
                    }
                }
                // All have summed before the arrays are filled again.
                thread::sync_threads();
                channel += channels;
            }
            let outputs = Outputs {
                biases,
                to,
                first: group * GROUP,
            };
            self.keep::<NUMBER>(outputs, (left + x, top + y), upper);
            self.keep::<NUMBER>(outputs, (left + x, top + y + 1), lower);
            item += self.blocks;
        }
    }

    /// Keeps a pixel's outputs, if the picture has it.
    #[inline(always)]
    fn keep<const NUMBER: usize>(&self, outputs: Outputs, (x, y): (u32, u32), sums: Sums) {
        if (x < self.width) & (y < self.height) {
            let Sums([a, b, c, d]) = sums;
            self.keep_four::<NUMBER>(outputs, 0, (x, y), a);
            self.keep_four::<NUMBER>(outputs, LANES, (x, y), b);
            self.keep_four::<NUMBER>(outputs, 2 * LANES, (x, y), c);
            self.keep_four::<NUMBER>(outputs, 3 * LANES, (x, y), d);
        }
    }

    #[inline(always)]
    fn keep_four<const NUMBER: usize>(
        &self,
        outputs: Outputs,
        behind: u32,
        pixel: (u32, u32),
        Four([a, b, c, d]): Four,
    ) {
        let first = outputs.first + behind;
        self.keep_one::<NUMBER>(outputs, first, pixel, a);
        self.keep_one::<NUMBER>(outputs, first + 1, pixel, b);
        self.keep_one::<NUMBER>(outputs, first + 2, pixel, c);
        self.keep_one::<NUMBER>(outputs, first + 3, pixel, d);
    }

    #[inline(always)]
    fn keep_one<const NUMBER: usize>(
        &self,
        outputs: Outputs,
        output: u32,
        (x, y): (u32, u32),
        sum: f32,
    ) {
        let last = const { NUMBER == LAYERS.len() - 1 };
        if output < const { LAYERS[NUMBER].outputs } {
            let at = match last {
                true => self.pixel(output, x, y),
                false => (output * self.height + y) * self.width + x,
            };
            // SAFETY: the layer has a bias for each output, and room for each pixel of it, which is one thread's.
            unsafe {
                let value = sum + *outputs.biases.add(output as usize);
                *outputs.to.add(at as usize) = if last { value } else { rectified(value) };
            }
        }
    }

    /// Takes channels of a tile into shared memory, with the pixels around it; beside the picture is 0.
    #[inline(always)]
    fn fill(
        &self,
        room: Room,
        from: *const f32,
        (first, channels): (u32, u32),
        side: u32,
        (left, top, rows): (u32, u32, u32),
    ) {
        let cells = channels * (rows + side - 1) * PITCH;
        let size = block::size();
        let cell = |index| self.cell(from, first, side, (left, top, rows), index, cells);
        let keep = |index: u32, value: f32| {
            if index < cells {
                // SAFETY: a value inside the array, which is one thread's.
                unsafe { *room.cells.add(index as usize) = value };
            }
        };
        let mut index = block::thread_index();
        while index < cells {
            // All loads before the first store, because that waits for its load, and nothing behind it begins before.
            let one = cell(index);
            let two = cell(index + size);
            let three = cell(index + 2 * size);
            let four = cell(index + 3 * size);
            let five = cell(index + 4 * size);
            let six = cell(index + 5 * size);
            let seven = cell(index + 6 * size);
            let eight = cell(index + 7 * size);
            keep(index, one);
            keep(index + size, two);
            keep(index + 2 * size, three);
            keep(index + 3 * size, four);
            keep(index + 4 * size, five);
            keep(index + 5 * size, six);
            keep(index + 6 * size, seven);
            keep(index + 7 * size, eight);
            index += 8 * size;
        }
    }

    /// What belongs into a cell of shared memory: a pixel, or 0 beside the picture and where nobody looks.
    #[inline(always)]
    fn cell(
        &self,
        from: *const f32,
        first: u32,
        side: u32,
        (left, top, rows): (u32, u32, u32),
        index: u32,
        cells: u32,
    ) -> f32 {
        let (around, high) = (side / 2, rows + side - 1);
        let (line, column) = (index / PITCH, index % PITCH);
        let (channel, row) = (line / high, line % high);
        // Beside the picture these wrap to more than it has.
        let x = (left + column).wrapping_sub(around);
        let y = (top + row).wrapping_sub(around);
        let looked_at = (index < cells) & (column < COLUMNS + side - 1);
        if looked_at & (x < self.width) & (y < self.height) {
            let at = ((first + channel) * self.height + y) * self.width + x;
            // SAFETY: a pixel of the plane.
            unsafe { *from.add(at as usize) }
        } else {
            0.0
        }
    }

    /// Where an output of a pixel lies in the larger picture.
    #[inline(always)]
    fn pixel(&self, output: u32, x: u32, y: u32) -> u32 {
        let (down, right) = (output / SCALE, output % SCALE);
        (SCALE * y + down) * SCALE * self.width + SCALE * x + right
    }
}

/// Channels that come into shared memory at a time, of so many.
const fn at_once(channels: u32) -> u32 {
    if channels < CHUNK { channels } else { CHUNK }
}

const _: () = {
    let (first, second, third) = (LAYERS[0], LAYERS[1], LAYERS[2]);
    // What `Room` has room for.
    assert!((MAX_ROWS + first.side - 1) * PITCH <= CELLS as u32);
    assert!(first.taps() * QUADS <= ROOM as u32);
    assert!(second.side == 3 && third.side == 3 && COLUMNS + first.side - 1 <= PITCH);
    // Whole chunks.
    assert!(second.inputs.is_multiple_of(CHUNK) && third.inputs.is_multiple_of(CHUNK));
    // Each layer takes what the one before gives.
    assert!(first.inputs == 1 && second.inputs == first.outputs);
    assert!(third.inputs == second.outputs && third.outputs == SCALE * SCALE);
};
