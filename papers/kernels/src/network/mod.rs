//! A network of layers that kernels walk: its steps are a table in memory, which the host makes and checks. Steps
//! convolve, pool and average; ReLU and the pixel shuffle are parts of a convolution.

use warpbell::{Deadline, WaitError, block, shared_array, thread};

use crate::meeting::meet_at;
use warpbell_kernels::place::Place;

mod step;

pub use step::{Convolution, SIDES, STRIDE, Step, windows};

/// The most threads of a block that computes, which are a multiple of [`COLUMNS`].
pub const MAX_THREADS: u32 = 256;
/// Columns of a tile, in which each thread has two pixels, one under the other.
pub const COLUMNS: u32 = 16;
/// Pixels of a thread.
const ROWS: u32 = 2;
/// The most rows of a tile.
const MAX_ROWS: u32 = ROWS * MAX_THREADS / COLUMNS;
/// Values from a row in shared memory to the next one: those of two rows lie in other banks for the two halves of a
/// warp.
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
/// Kernels read and write it by plain loads and stores, whose places follow from the steps alone. Who launches one
/// promises:
///
/// - The steps fit each other, and each place has as many words as they go to; no two places overlap.
/// - Nobody else touches them while the kernel runs, unless the kernel says otherwise.
/// - The grid has [`blocks`](Self::blocks) blocks, at least 1. Each has at most [`MAX_THREADS`] threads, a multiple of
///   [`COLUMNS`] and not 0.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// So many [`Step`]s, one behind the other.
    pub steps: Place,
    /// How many there are.
    pub count: u32,
    /// Values of the picture that comes in.
    pub pixels: u32,
    /// The picture, row after row.
    pub input: Place,
    /// All weights; aligned to 16 bytes.
    pub weights: Place,
    /// Room for what steps give to later ones.
    pub planes: Place,
    /// Room for the answer.
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
    /// Makes the answer of the picture, with all threads of all blocks. Each block's part of the answer is there then,
    /// the others' once they have met again. `met` counts the meetings, the first being 1.
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
        let steps = self.steps.first().cast::<Step>();
        let mut number = 0;
        while number < self.count {
            // SAFETY: the caller's promise: so many steps, which nobody writes. Not copied: a step's fields would take
            // registers while its sums need them.
            let step = unsafe { &*steps.add(number as usize) };
            number += 1;
            // All blocks read the same steps, so that they come to the same meetings and barriers.
            if step.meets != 0 {
                *met += 1;
                // SAFETY: the caller's promise: a word for each block.
                unsafe { meet_at(self.arrivals.first(), self.blocks, *met, deadline) }?;
            }
            match (step.kind, step.side) {
                (Step::POOL, _) => self.pool(step),
                (Step::AVERAGE, _) => self.average(room, step),
                (_, 1) => self.convolve::<1>(room, step),
                (_, 3) => self.convolve::<3>(room, step),
                _ => self.convolve::<5>(room, step),
            }
        }
        Ok(())
    }

    /// Where the values of a place begin.
    #[inline(always)]
    fn at(&self, place: u32) -> *mut f32 {
        match place {
            Step::INPUT => values(self.input),
            Step::OUTPUT => values(self.output),
            // Inside, as the host promises.
            offset => values(self.planes).wrapping_add(offset as usize),
        }
    }

    /// The largest value of each window.
    #[inline(always)]
    fn pool(&self, step: &Step) {
        let (from, to) = (self.at(step.from), self.at(step.to));
        // Neither is 0: the host promises windows.
        let across = windows(step.width, step.side).max(1);
        let down = windows(step.height, step.side).max(1);
        let all = step.inputs * down * across;
        let mut index = thread::index();
        while index < all {
            let (line, column) = (index / across, index % across);
            let (channel, row) = (line / down, line % down);
            let first = (channel * step.height + STRIDE * row) * step.width + STRIDE * column;
            let mut largest = f32::NEG_INFINITY;
            for y in 0..step.side {
                for x in 0..step.side {
                    // SAFETY: a pixel of the channel, which nobody writes meanwhile.
                    let value = unsafe { *from.add((first + y * step.width + x) as usize) };
                    largest = if value > largest { value } else { largest };
                }
            }
            // SAFETY: a value of the channel's result, which is one thread's.
            unsafe { *to.add(index as usize) = largest };
            index += self.blocks * block::size();
        }
    }

    /// The mean of each channel, by a block: each thread sums some of the pixels, and the first one the threads' sums.
    #[inline(always)]
    fn average(&self, room: Room, step: &Step) {
        let (from, to) = (self.at(step.from), self.at(step.to));
        let (own, size) = (block::thread_index(), block::size());
        let pixels = step.width * step.height;
        let mut channel = block::index();
        while channel < step.inputs {
            let (mut sum, mut index) = (0.0, own);
            while index < pixels {
                // SAFETY: a pixel of the channel, which nobody writes meanwhile.
                sum += unsafe { *from.add((channel * pixels + index) as usize) };
                index += size;
            }
            // SAFETY: inside the array, which has more values than a block threads; each is one thread's.
            unsafe { *room.cells.add(own as usize) = sum };
            // All sums before the first thread adds them.
            thread::sync_threads();
            if own == 0 {
                let mut all = 0.0;
                for thread in 0..size {
                    // SAFETY: as above; nobody writes before the barrier.
                    all += unsafe { *room.cells.add(thread as usize) };
                }
                // SAFETY: the channel's one value, which is this thread's.
                unsafe { *to.add(channel as usize) = all / pixels as f32 };
            }
            // All are added before the array is filled again.
            thread::sync_threads();
            channel += self.blocks;
        }
    }

    /// A convolution, a tile and some of its outputs after the other. The step's side is `SIDE`.
    #[inline(always)]
    fn convolve<const SIDE: u32>(&self, room: Room, step: &Step) {
        let layer = Convolution {
            side: SIDE,
            ..step.convolution()
        };
        let (from, to) = (self.at(step.from), self.at(step.to));
        // Inside, because the host promises its values.
        let weights = values(self.weights).wrapping_add(step.weights as usize);
        let channels = at_once(layer.inputs);
        let groups = layer.padded() / GROUP;
        // Neither is 0: the host promises threads and pixels.
        let rows = (block::size() / COLUMNS * ROWS).max(1);
        let across = step.width.div_ceil(COLUMNS).max(1);
        let items = across * step.height.div_ceil(rows) * groups;
        // Computed here: what follows from it would else take registers of a kernel that stays, while it sends.
        let own = thread::kept(block::thread_index().into()) as u32;
        let (x, y) = (own % COLUMNS, own / COLUMNS * ROWS);
        let biases = weights.wrapping_add((layer.inputs * layer.taps() * layer.padded()) as usize);
        let mut item = block::index();
        while item < items {
            // The outputs are at least 1, and so are their groups.
            let (tile, group) = (item / groups.max(1), item % groups.max(1));
            let (left, top) = (tile % across * COLUMNS, tile / across * rows);
            let (mut upper, mut lower) = (Sums::ZERO, Sums::ZERO);
            let mut channel = 0;
            while channel < layer.inputs {
                let tile = Tile { left, top, rows };
                fill::<SIDE>(room, step, from, (channel, channels), tile);
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
                let plane = (rows + SIDE - 1) * PITCH;
                for of in 0..channels {
                    for down in 0..SIDE {
                        for right in 0..SIDE {
                            let cell = of * plane + (y + down) * PITCH + x + right;
                            let tap = of * layer.taps() + down * SIDE + right;
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
            keep(step, outputs, (left + x, top + y), upper);
            keep(step, outputs, (left + x, top + y + 1), lower);
            item += self.blocks;
        }
    }
}

/// Keeps a pixel's outputs, if the picture has it.
#[inline(always)]
fn keep(step: &Step, outputs: Outputs, (x, y): (u32, u32), sums: Sums) {
    if (x < step.width) & (y < step.height) {
        let Sums([a, b, c, d]) = sums;
        keep_four(step, outputs, 0, (x, y), a);
        keep_four(step, outputs, LANES, (x, y), b);
        keep_four(step, outputs, 2 * LANES, (x, y), c);
        keep_four(step, outputs, 3 * LANES, (x, y), d);
    }
}

#[inline(always)]
fn keep_four(
    step: &Step,
    outputs: Outputs,
    behind: u32,
    pixel: (u32, u32),
    Four([a, b, c, d]): Four,
) {
    let first = outputs.first + behind;
    keep_one(step, outputs, first, pixel, a);
    keep_one(step, outputs, first + 1, pixel, b);
    keep_one(step, outputs, first + 2, pixel, c);
    keep_one(step, outputs, first + 3, pixel, d);
}

#[inline(always)]
fn keep_one(step: &Step, outputs: Outputs, output: u32, (x, y): (u32, u32), sum: f32) {
    if output < step.outputs {
        let at = match step.scale {
            1 => (output * step.height + y) * step.width + x,
            scale => shuffled(step, scale.max(1), output, (x, y)),
        };
        // SAFETY: the layer has a bias for each output, and room for each pixel of it, which is one thread's.
        unsafe {
            let value = sum + *outputs.biases.add(output as usize);
            *outputs.to.add(at as usize) = match step.rectified {
                0 => value,
                _ => rectified(value),
            };
        }
    }
}

/// Where an output of a pixel lies among the larger channels that a shuffle makes.
#[inline(always)]
fn shuffled(step: &Step, scale: u32, output: u32, (x, y): (u32, u32)) -> u32 {
    let (line, right) = (output / scale, output % scale);
    let (channel, down) = (line / scale, line % scale);
    ((channel * step.height + y) * scale + down) * scale * step.width + scale * x + right
}

/// Where a block's pixels lie.
#[derive(Clone, Copy)]
struct Tile {
    left: u32,
    top: u32,
    rows: u32,
}

/// Takes channels of a tile into shared memory, with the pixels around it; beside the picture is 0.
#[inline(always)]
fn fill<const SIDE: u32>(
    room: Room,
    step: &Step,
    from: *const f32,
    (first, channels): (u32, u32),
    tile: Tile,
) {
    let cells = channels * (tile.rows + SIDE - 1) * PITCH;
    let size = block::size();
    let cell = |index| cell::<SIDE>(step, from, first, tile, index, cells);
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
fn cell<const SIDE: u32>(
    step: &Step,
    from: *const f32,
    first: u32,
    Tile { left, top, rows }: Tile,
    index: u32,
    cells: u32,
) -> f32 {
    let (around, high) = (SIDE / 2, rows + SIDE - 1);
    let (line, column) = (index / PITCH, index % PITCH);
    let (channel, row) = (line / high, line % high);
    // Beside the picture these wrap to more than it has.
    let x = (left + column).wrapping_sub(around);
    let y = (top + row).wrapping_sub(around);
    let looked_at = (index < cells) & (column < COLUMNS + SIDE - 1);
    if looked_at & (x < step.width) & (y < step.height) {
        let at = ((first + channel) * step.height + y) * step.width + x;
        // SAFETY: a pixel of the plane.
        unsafe { *from.add(at as usize) }
    } else {
        0.0
    }
}

/// Channels that come into shared memory at a time, of so many.
const fn at_once(channels: u32) -> u32 {
    match channels {
        0 => 1,
        1..CHUNK => channels,
        _ => CHUNK,
    }
}

// A tile with the pixels around it for the largest kernel, and the threads' sums of an average.
const _: () = assert!(COLUMNS + SIDES[2] - 1 <= PITCH && MAX_THREADS <= CELLS as u32);
