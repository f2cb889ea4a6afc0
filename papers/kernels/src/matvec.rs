//! The product of one matrix with each of a stream of short vectors, which is GPUrdma's application (Daoud, Watad and
//! Silberstein 2016, section 7 and table 3): a server that stays and drives the network itself, one that is launched for
//! each batch and leaves the network to its host, and the client of both.

use core::mem;

use warpbell::{
    Exclusive, SendQueueHandle, Slice, Stop, Warp, Word64, block, kernel, shared_array, thread,
};

use crate::path::Path;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;

/// Rows and columns of the matrix, and values of a vector.
pub const SIDE: u32 = 32;
/// Bytes of a vector, and of its product.
pub const VECTOR_BYTES: u32 = 4 * SIDE;
/// Words of 8 bytes of a vector.
const VECTOR_WORDS: u32 = VECTOR_BYTES / 8;
/// Vectors that a block takes into its shared memory at a time: 16 KiB.
const TILE: u32 = 128;
/// Values that a thread takes from there in one load.
const QUAD: u32 = 4;
/// Parts of the client's memory for results, which take turns: while one is compared, the next one fills.
pub const TURNS: u32 = 2;
/// What a signal says behind the last batch.
pub const END: u64 = u64::MAX;

/// What a server's block multiplies: its part of a batch.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Multiply {
    /// The matrix, row after row.
    pub matrix: Place,
    /// A batch, part after part.
    pub vectors: Place,
    /// Room for its products, in the same order.
    pub products: Place,
    /// Vectors of a part.
    pub vectors_of_a_part: u32,
}

/// A server's shared memory: the matrix, column after column, so that the lanes of a warp, which have a row each, read
/// words beside each other.
#[derive(Clone, Copy)]
struct Columns(*mut f32);

/// Values of a vector beside each other.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Quad([f32; QUAD as usize]);

/// The block's part of a batch.
#[derive(Clone, Copy)]
struct Part {
    vectors: Place,
    products: Place,
    /// How many vectors it has.
    count: u32,
}

impl Multiply {
    /// The block's part, if it is there, and the whole matrix.
    #[inline(always)]
    fn part(&self) -> Result<Part, Failure> {
        self.matrix.holds(u64::from(SIDE * SIDE / 2))?;
        let count = self.vectors_of_a_part;
        let words = u64::from(count) * u64::from(VECTOR_WORDS);
        let first = u64::from(block::index()).saturating_mul(words);
        Ok(Part {
            vectors: self.vectors.part(first, words)?,
            products: self.products.part(first, words)?,
            count,
        })
    }

    /// Takes the matrix into shared memory.
    #[inline(always)]
    fn load_matrix(&self) -> Columns {
        let columns = shared_array![f32; (SIDE * SIDE) as usize];
        let mut element = block::thread_index();
        while element < SIDE * SIDE {
            let (row, column) = (element / SIDE, element % SIDE);
            let bits = self.matrix.load_value(element);
            // SAFETY: inside the array; each element is one thread's.
            unsafe { *columns.add((column * SIDE + row) as usize) = f32::from_bits(bits) };
            element += block::size();
        }
        // All elements before anybody multiplies.
        thread::sync_threads();
        Columns(columns)
    }
}

impl Part {
    /// Multiplies the block's part. A thread has a row of the matrix, and takes turns with the others that have the same
    /// one; where a block has fewer threads than there are rows, it has several, one after the other.
    #[inline(always)]
    fn run(&self, columns: Columns) {
        let tile = shared_array![Quad; (TILE * SIDE / QUAD) as usize];
        let (own, size) = (block::thread_index(), block::size());
        let teams = (size / SIDE).max(1);
        let mut rows = 0;
        while rows < SIDE {
            let row = rows + own % SIDE;
            // The threads beside whole teams, and beside the last rows, have nothing to do.
            let works = (own / SIDE < teams) & (row < SIDE);
            let values = columns.row(row % SIDE);
            let mut done = 0;
            while done < self.count {
                let vectors = TILE.min(self.count - done);
                self.load_tile(tile, done, vectors);
                let mut vector = if works { own / SIDE } else { vectors };
                while vector < vectors {
                    // SAFETY: inside the tile, which nobody writes meanwhile.
                    let product =
                        unsafe { product(&values, tile.add((vector * SIDE / QUAD) as usize)) };
                    let to = (done + vector) * SIDE + row;
                    self.products.store_value(to, product.to_bits());
                    vector += teams;
                }
                // All have read the tile before it is filled again, and all products are stored before anybody goes on.
                thread::sync_threads();
                done += vectors;
            }
            rows += size.min(SIDE);
        }
    }

    /// Takes so many vectors from the first on into shared memory.
    #[inline(always)]
    fn load_tile(&self, tile: *mut Quad, first: u32, vectors: u32) {
        let (words, size) = (vectors * VECTOR_WORDS, block::size());
        let mut index = block::thread_index();
        while index < words {
            // Four at a time: none waits for another's load.
            let at = [0, 1, 2, 3].map(|nth| index + nth * size);
            let loaded = at.map(|at| {
                let word = first * VECTOR_WORDS + at.min(words - 1);
                self.vectors.load(word)
            });
            for nth in 0..at.len() {
                if at[nth] < words {
                    // SAFETY: inside the array; each word is one thread's.
                    unsafe { *tile.cast::<u64>().add(at[nth] as usize) = loaded[nth] };
                }
            }
            index += 4 * size;
        }
        // The tile's words before anybody reads them.
        thread::sync_threads();
    }
}

impl Columns {
    /// A row, in registers.
    #[inline(always)]
    fn row(self, row: u32) -> [f32; SIDE as usize] {
        let mut values = [0.0; SIDE as usize];
        let mut column = 0;
        while column < SIDE {
            // SAFETY: inside the array, which nobody writes any more.
            values[column as usize] = unsafe { *self.0.add((column * SIDE + row) as usize) };
            column += 1;
        }
        values
    }
}

/// An element of a product: the sum over the columns in their order, each product and each sum rounded to nearest: the same
/// bits everywhere.
///
/// # Safety
/// `vector` is valid for a vector's reads, and nobody writes there meanwhile.
#[inline(always)]
unsafe fn product(row: &[f32; SIDE as usize], vector: *const Quad) -> f32 {
    let (mut sum, mut quad) = (0.0, 0);
    while quad < SIDE / QUAD {
        // SAFETY: the caller's promise.
        let Quad([a, b, c, d]) = unsafe { *vector.add(quad as usize) };
        let column = (quad * QUAD) as usize;
        sum += row[column] * a;
        sum += row[column + 1] * b;
        sum += row[column + 2] * c;
        sum += row[column + 3] * d;
        quad += 1;
    }
    sum
}

/// The server that stays: each of its blocks waits for its part of a batch, multiplies, and sends the products.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MatvecServer<'a> {
    /// What is multiplied.
    pub multiply: Multiply,
    /// To the client and back.
    pub path: Path<'a>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Serves until the client says that there is no more.
#[kernel]
pub fn matvec_server(p: MatvecServer<'_>) {
    p.outcome.record(|| serve(&p));
}

#[inline(always)]
fn serve(p: &MatvecServer<'_>) -> Result<(), Failure> {
    let own = p.multiply.part()?;
    let Some(queue) = p.path.queues.get(block::index().into()) else {
        return Ok(());
    };
    // Once, as long as batches come.
    let matrix = p.multiply.load_matrix();
    // Whole warps part here, never the lanes of one: each may come to a barrier of its own.
    if block::thread_index() < thread::warp_size() {
        let served = p.lead(*queue, own, matrix);
        // However that ended.
        thread::sync_threads_or(OVER);
        served
    } else {
        while thread::sync_threads_or(0) != OVER {
            own.run(matrix);
        }
        Ok(())
    }
}

/// What the first warp tells the others in place of a batch.
const OVER: u32 = 1;

impl MatvecServer<'_> {
    /// The first warp, which alone waits and sends: the others meet it before and behind each product, and for nothing else.
    #[inline(always)]
    fn lead(&self, queue: SendQueueHandle<'_>, own: Part, matrix: Columns) -> Result<(), Failure> {
        let (path, part) = (&self.path, block::index());
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { queue.open_together::<Exclusive, Warp>() }?;
        let signal = path.signal(part)?;
        let leads = block::thread_index() == 0;
        let mut round = 0;
        loop {
            // Prepared while the part is on its way, so that only publishing is left to do behind the product.
            let mut both = queue.batch(2, path.limit())?;
            let products = path.write_part(part, 0, round % TURNS);
            let told = path.tell(part, u64::from(round) + 1);
            let _ = both.post_if(leads.then_some(products))?;
            let _ = both.post_if(leads.then_some(told))?;
            let told = signal.wait_together::<Warp>(u64::from(round) + 1, path.limit());
            if !matches!(told, Ok(number) if number != END) {
                // What is prepared is not to be posted.
                mem::forget(both);
                told?;
                break;
            }
            // The part is there before anybody reads it.
            thread::sync_threads_or(0);
            // Which ends with a meeting: all products are stored before they are sent.
            own.run(matrix);
            drop(both);
            round += 1;
        }
        Ok(queue.drain(path.limit())?)
    }
}

/// The server that is launched for a batch: the matrix is loaded anew each time, and nobody sends. A
/// part that does not lie in the batch is left alone.
#[kernel]
pub fn matvec_batch(p: Multiply) {
    if let Ok(part) = p.part() {
        let matrix = p.load_matrix();
        part.run(matrix);
    }
}

/// The client: one block. The first lanes of its first warp send a part of each batch each, and wait for its products; the
/// other warps compare what came with what it should be, while the next batch is under way.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MatvecClient<'a> {
    /// To the server and back.
    pub path: Path<'a>,
    /// How many batches lie at the source, which are sent in turn.
    pub batches: u32,
    /// What comes back, for the threads: [`TURNS`] batches of products.
    pub products: Place,
    /// What should come back: the products of all batches at the source.
    pub expected: Place,
    /// Rounds before those that count.
    pub warm_up: u32,
    /// The most rounds that count, at least 1.
    pub rounds: u32,
    /// Nanoseconds after which no round begins.
    pub nanoseconds: u64,
    /// Ends it before.
    pub stop: Stop<'a>,
    /// Takes [`Self::ROUNDS`] and the others, then how many words each thread found wrong.
    pub numbers: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Rounds between two looks at the host's stop.
const LOOK: u32 = 64;

impl MatvecClient<'_> {
    /// Rounds that counted.
    pub const ROUNDS: u64 = 0;
    /// How long they took together, in nanoseconds.
    pub const NANOSECONDS: u64 = 1;
    /// How long the longest of them took.
    pub const LONGEST: u64 = 2;
    /// Where the threads' counts begin.
    pub const WRONG: u64 = 3;

    /// Whether all that is compared is there.
    #[inline(always)]
    fn fits(&self) -> Result<(), Failure> {
        let words = u64::from(self.path.parts) * u64::from(self.path.bytes / 8);
        let batches = |count: u32| words.saturating_mul(count.into());
        self.products.holds(batches(TURNS))?;
        self.expected.holds(batches(self.batches.max(1)))
    }

    /// Sends part after part and waits for its products.
    #[inline(always)]
    fn drive(&self, part: u32) -> Result<(), Failure> {
        let path = &self.path;
        let Some(queue) = path.queues.get(part.into()) else {
            return Ok(());
        };
        let mut queue = queue.open::<Exclusive>()?;
        let signal = path.signal(part)?;
        let leads = part == 0;
        let end = self.warm_up.saturating_add(self.rounds);
        let (mut round, mut batch) = (0, 0);
        let (mut began, mut before, mut longest) = (0, 0, 0);
        loop {
            // Prepared while the batch before is under way, so that only publishing is left to do behind it.
            let mut both = queue.batch(2, path.limit())?;
            let _ = both.post(path.write_part(part, batch, 0))?;
            let _ = both.post(path.tell(part, u64::from(round) + 1))?;
            if round > 0 {
                let goes_on = match signal.wait(u64::from(round), path.limit()) {
                    Ok(_) => {
                        let now = thread::clock_ns();
                        let counted = round > self.warm_up;
                        if counted & (now - before > longest) {
                            longest = now - before;
                        }
                        before = now;
                        let late = now - began >= self.nanoseconds;
                        let last = (counted & late) | (round >= end);
                        let stopped = round.is_multiple_of(LOOK) && self.stop.requested();
                        !(leads & (last | stopped))
                    }
                    Err(error) => {
                        mem::forget(both);
                        return Err(error.into());
                    }
                };
                // All parts' products are there before anybody compares them, and before the next batch begins.
                if thread::sync_threads_count(goes_on.into()) != path.parts {
                    // What is prepared is not to be posted.
                    mem::forget(both);
                    break;
                }
            }
            if round == self.warm_up {
                began = thread::clock_ns();
                before = began;
            }
            drop(both);
            round += 1;
            batch = if batch + 1 < self.batches {
                batch + 1
            } else {
                0
            };
        }
        let _ = queue.post(path.tell(part, END), path.limit())?;
        if leads {
            let counted = round.saturating_sub(self.warm_up);
            self.numbers.store(Self::ROUNDS, counted.into());
            self.numbers.store(Self::NANOSECONDS, before - began);
            self.numbers.store(Self::LONGEST, longest);
        }
        Ok(queue.drain(path.limit())?)
    }

    /// Compares the products of each round with what they should be, as one of `threads` threads. A sender that fails is
    /// missed here: then all end.
    #[inline(always)]
    fn compare(&self, thread: u32, threads: u32) {
        let words = self.path.parts * (self.path.bytes / 8);
        let (mut round, mut batch, mut wrong) = (0, 0, 0);
        loop {
            let all = thread::sync_threads_count(0);
            let (products, expected) = ((round % TURNS) * words, batch * words);
            let came = |index| self.products.load(products + index);
            let should = |index| self.expected.load(expected + index);
            let mut index = thread;
            // Four at a time: none waits for another's loads.
            while index + 3 * threads < words {
                let at = [0, 1, 2, 3].map(|nth| index + nth * threads);
                let (came, should) = (at.map(came), at.map(should));
                for nth in 0..at.len() {
                    wrong += u64::from(came[nth] != should[nth]);
                }
                index += 4 * threads;
            }
            while index < words {
                wrong += u64::from(came(index) != should(index));
                index += threads;
            }
            if all != self.path.parts {
                break;
            }
            round += 1;
            batch = if batch + 1 < self.batches {
                batch + 1
            } else {
                0
            };
        }
        self.numbers.store(Self::WRONG + u64::from(thread), wrong);
    }
}

/// Sends batches until there were enough, or time is over.
#[kernel]
pub fn matvec_client(p: MatvecClient<'_>) {
    let (own, first) = (block::thread_index(), thread::warp_size());
    // Whole warps part here, never the lanes of one: each may come to a barrier of its own.
    p.outcome.record(|| {
        p.fits()?;
        if own < first {
            return p.drive(own);
        }
        p.compare(own - first, block::size() - first);
        Ok(())
    });
}
