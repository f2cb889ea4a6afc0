//! GETs from a key-value table in a target's memory: by one-sided READs, as an RDMA NIC allows, and by an active message
//! whose task looks the key up at the target and answers with the value.

mod table;
mod traffic;

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{
    Block, Deadline, Exclusive, Scope, SendQueue, SendQueueHandle, Slice, Stop, Thread, Warp,
    Word64, block, kernel, thread,
};
use warpbell_patterns::active::{InitiatorHandle, Lane, Reply, TargetHandle};

use warpbell_kernels::active::next;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::place::Place;

use table::look;

pub use table::{BUCKET, ENTRIES, Entry, Keys, first_bucket, next_bucket};
pub use traffic::Traffic;

/// The task that looks a key up, its argument.
pub const GET: u32 = 0;
/// Ends the target's kernel: no arguments.
pub const END: u32 = 1;
/// How many arguments each function takes, from 0 on.
pub const ARGUMENTS: [u32; 2] = [1, 0];

/// Bytes of the WRITE of a message with one argument, and of an answer: `docs/active.md`, "On the wire".
pub const ARGUMENT_WRITE: u32 = 24;
/// See [`ARGUMENT_WRITE`].
pub const WORD_WRITE: u32 = 8;

/// Words of a bucket.
const BUCKET_WORDS: u64 = (BUCKET / 8) as u64;

/// Numbers that a client leaves, in this order.
pub const COUNTS: usize = 8;
/// Keys that were found.
pub const HITS: usize = 0;
/// GETs that were answered wrongly: a value with another byte or length, a key that is not there and was found, or one
/// that is there and was not.
pub const WRONG: usize = 1;
/// Bytes of all values that were found.
pub const VALUE_BYTES: usize = 2;
/// Of [`Traffic`], as all that follow.
pub const ROUND_TRIPS: usize = 3;
/// READs and WRITEs.
pub const REQUESTS: usize = 4;
/// Packets.
pub const PACKETS: usize = 5;
/// Bytes on the wire.
pub const BYTES: usize = 6;
/// The most buckets that a GET looked at.
pub const MOST_BUCKETS: usize = 7;

/// What all clients have in common: block n of the grid is client n, and makes one GET after the other.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Client<'a> {
    /// What is asked for.
    pub keys: Keys,
    /// GETs of each client.
    pub gets: u32,
    /// Bytes that a packet carries at most.
    pub mtu: u32,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Takes [`COUNTS`] numbers of each client.
    pub counts: Slice<'a, Word64>,
    /// Takes the nanoseconds of each GET, all of a client's one after the other.
    pub samples: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// GETs by READs: of the key's bucket, of the next ones while they are full, of the value.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GetByReads<'a> {
    /// What is asked for.
    pub client: Client<'a>,
    /// A queue for each client.
    pub queues: Slice<'a, SendQueueHandle<'a>>,
    /// The first bucket at the target.
    pub table: Remote,
    /// How many there are.
    pub buckets: u32,
    /// Where the values begin at the target.
    pub values: Remote,
    /// Room at the clients, for each a bucket and behind it the longest value.
    pub landing: Local,
    /// The same, for the threads.
    pub landing_words: Place,
    /// Bytes of one client's.
    pub stride: u32,
}

/// GETs by active messages.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GetByTasks<'a> {
    /// What is asked for.
    pub client: Client<'a>,
    /// A lane for each client.
    pub initiator: InitiatorHandle<'a>,
}

/// The target of those: block n serves lane n, until a task tells it to end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ServeGets<'a> {
    /// The lanes.
    pub target: TargetHandle<'a>,
    /// The first bucket, for the threads.
    pub table: Place,
    /// How many there are.
    pub buckets: u32,
    /// The values, for the NIC.
    pub values: Local,
    /// Ends it before.
    pub stop: Stop<'a>,
    /// Microseconds that it waits for a task.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// GETs by READs of blocks of one thread.
#[kernel]
pub fn kv_read_thread(p: GetByReads<'_>) {
    p.client.outcome.record(|| p.run::<Thread>());
}

/// The same of blocks of one warp.
#[kernel]
pub fn kv_read_warp(p: GetByReads<'_>) {
    p.client.outcome.record(|| p.run::<Warp>());
}

/// The same of blocks of any size.
#[kernel]
pub fn kv_read_block(p: GetByReads<'_>) {
    p.client.outcome.record(|| p.run::<Block>());
}

/// GETs by active messages of blocks of one thread.
#[kernel]
pub fn kv_ask_thread(p: GetByTasks<'_>) {
    p.client.outcome.record(|| p.run::<Thread>());
}

/// The same of blocks of one warp.
#[kernel]
pub fn kv_ask_warp(p: GetByTasks<'_>) {
    p.client.outcome.record(|| p.run::<Warp>());
}

/// The same of blocks of any size.
#[kernel]
pub fn kv_ask_block(p: GetByTasks<'_>) {
    p.client.outcome.record(|| p.run::<Block>());
}

/// The target of GETs by active messages, with blocks of one thread.
#[kernel]
pub fn kv_serve_thread(p: ServeGets<'_>) {
    p.outcome.record(|| p.run::<Thread>());
}

/// The same with blocks of one warp.
#[kernel]
pub fn kv_serve_warp(p: ServeGets<'_>) {
    p.outcome.record(|| p.run::<Warp>());
}

/// The same with blocks of any size.
#[kernel]
pub fn kv_serve_block(p: ServeGets<'_>) {
    p.outcome.record(|| p.run::<Block>());
}

/// What a client has seen so far.
#[derive(Clone, Copy, Default)]
struct Seen {
    hits: u64,
    wrong: u64,
    value_bytes: u64,
    most_buckets: u64,
    traffic: Traffic,
}

impl Client<'_> {
    #[inline(always)]
    fn limit(&self) -> Deadline {
        Deadline::after_us(self.limit_us)
    }

    /// Counts a GET of the key of this number, which found so many bytes, 0 for none; `word` gives eight of them. Each
    /// thread compares its part.
    #[inline(always)]
    fn compare<C: Scope>(
        &self,
        seen: &mut Seen,
        number: u64,
        length: u32,
        word: impl Fn(u32) -> u64,
    ) {
        let key = self.keys.key(number);
        let expected = match self.keys.has(number) {
            true => self.keys.length(key),
            false => 0,
        };
        let mut wrong = length != expected;
        let mut index = C::rank();
        while !wrong & (8 * index < length) {
            // The last word may have fewer bytes.
            let behind = 64 - 8 * (length - 8 * index).min(8);
            wrong |= (word(index) ^ self.keys.word(key, index)) << behind != 0;
            index += C::size();
        }
        seen.wrong += u64::from(C::any(wrong));
        seen.hits += u64::from(length != 0);
        seen.value_bytes += u64::from(length);
    }

    /// Leaves what a client has seen.
    #[inline(always)]
    fn leave<C: Scope>(&self, seen: &Seen) {
        if !C::leads() {
            return;
        }
        self.store(HITS, seen.hits);
        self.store(WRONG, seen.wrong);
        self.store(VALUE_BYTES, seen.value_bytes);
        self.store(ROUND_TRIPS, seen.traffic.round_trips);
        self.store(REQUESTS, seen.traffic.requests);
        self.store(PACKETS, seen.traffic.packets);
        self.store(BYTES, seen.traffic.bytes);
        self.store(MOST_BUCKETS, seen.most_buckets);
    }

    /// Stores one of a client's numbers.
    #[inline(always)]
    fn store(&self, which: usize, value: u64) {
        let first = u64::from(block::index()) * COUNTS as u64;
        self.counts.store(first + which as u64, value);
    }

    /// Notes how long a GET took that began then.
    #[inline(always)]
    fn note<C: Scope>(&self, get: u32, began: u64) {
        if C::leads() {
            let place = u64::from(block::index()) * u64::from(self.gets) + u64::from(get);
            self.samples.store(place, thread::clock_ns() - began);
        }
    }
}

impl GetByReads<'_> {
    #[inline(always)]
    fn run<C: Scope>(&self) -> Result<(), Failure> {
        let own = block::index();
        // The client's room, and behind the bucket's that of the longest value: no length that is read makes it longer.
        let room = u64::from(self.stride / 8);
        let room = self.landing_words.part(u64::from(own) * room, room)?;
        let bucket = room.part(0, BUCKET_WORDS)?;
        let longest = u64::from(self.client.keys.longest.div_ceil(8));
        let value = room.part(BUCKET_WORDS, longest)?;
        let Some(handle) = self.queues.get(own.into()) else {
            return Ok(());
        };
        // SAFETY: all threads of the scope run this with the same parameters, and make the queue's calls together.
        let mut queue = unsafe { handle.open_together::<Exclusive, C>() }?;
        let mut seen = Seen::default();
        for get in 0..self.client.gets {
            let number = self.client.keys.asked(own, get);
            let began = thread::clock_ns();
            let length = self.get(&mut queue, bucket, self.client.keys.key(number), &mut seen)?;
            self.client.note::<C>(get, began);
            self.client
                .compare::<C>(&mut seen, number, length, |index| value.load(index));
        }
        self.client.leave::<C>(&seen);
        Ok(())
    }

    /// Brings a key's value behind the bucket's room; gives its length, 0 if there is none.
    #[inline(always)]
    fn get<C: Scope>(
        &self,
        queue: &mut SendQueue<'_, Exclusive, C>,
        bucket_words: Place,
        key: u64,
        seen: &mut Seen,
    ) -> Result<u32, Failure> {
        let limit = self.client.limit();
        let landing = self
            .landing
            .at(u64::from(block::index()) * u64::from(self.stride), BUCKET);
        let mut bucket = first_bucket(key, self.buckets);
        let (mut looked, mut length) = (0, 0);
        loop {
            // One place that posts, for buckets and values.
            let (local, remote) = match length {
                0 => {
                    let address = self.table.address + u64::from(bucket) * u64::from(BUCKET);
                    let remote = Remote {
                        address,
                        ..self.table
                    };
                    (landing, remote)
                }
                _ => (self.value(landing, length), self.entry(bucket_words, key)),
            };
            let read = Wqe::read(local, remote).signalled();
            let ticket = queue.post_if(C::leads().then_some(read), limit)?;
            queue.wait(ticket, limit)?;
            seen.traffic.round_trips += 1;
            seen.traffic.read(local.length, self.client.mtu);
            if length != 0 {
                break;
            }
            looked += 1;
            let (entry, has_room) = look(bucket_words, key);
            // No table has longer ones; what does, is found wrong.
            length = entry.length().min(self.client.keys.longest);
            if (length == 0) & (has_room | (looked == self.buckets)) {
                break;
            }
            bucket = next_bucket(bucket, self.buckets);
        }
        seen.most_buckets = seen.most_buckets.max(looked.into());
        Ok(length)
    }

    /// Room for a value of this length.
    #[inline(always)]
    fn value(&self, landing: Local, length: u32) -> Local {
        Local {
            address: landing.address + u64::from(BUCKET),
            length,
            ..landing
        }
    }

    /// Where the value lies of a key that the bucket has.
    #[inline(always)]
    fn entry(&self, bucket_words: Place, key: u64) -> Remote {
        let (entry, _) = look(bucket_words, key);
        self.values.at(entry.offset())
    }
}

impl GetByTasks<'_> {
    #[inline(always)]
    fn run<C: Scope>(&self) -> Result<(), Failure> {
        let own = block::index();
        let limit = self.client.limit();
        let mut lane: Lane<'_, C> = self.initiator.lane(own)?;
        let mut seen = Seen::default();
        for get in 0..self.client.gets {
            let number = self.client.keys.asked(own, get);
            let began = thread::clock_ns();
            let sent = lane.send(GET, get, [self.client.keys.key(number)], limit)?;
            let reply = lane.wait_reply(sent, limit)?;
            self.client.note::<C>(get, began);
            self.account(&mut seen, &reply);
            self.client
                .compare::<C>(&mut seen, number, reply.length(), |index| reply.word(index));
        }
        let sent = lane.send(END, 0, [], limit)?;
        lane.wait(sent, limit)?;
        self.client.leave::<C>(&seen);
        Ok(())
    }

    /// Counts what went for a reply, whose value is the number of buckets that the task looked at.
    #[inline(always)]
    fn account(&self, seen: &mut Seen, reply: &Reply<'_>) {
        let (traffic, mtu) = (&mut seen.traffic, self.client.mtu);
        traffic.round_trips += 1;
        traffic.write(ARGUMENT_WRITE, mtu);
        if reply.length() != 0 {
            traffic.write(reply.length(), mtu);
        }
        traffic.write(WORD_WRITE, mtu);
        seen.most_buckets = seen.most_buckets.max(reply.value().into());
    }
}

impl ServeGets<'_> {
    #[inline(always)]
    fn run<C: Scope>(&self) -> Result<(), Failure> {
        let limit = Deadline::after_us(self.limit_us);
        self.table.holds(u64::from(self.buckets) * BUCKET_WORDS)?;
        let mut server = self.target.serve::<C>(block::index())?;
        loop {
            let task = next(&mut server, self.stop, self.limit_us)?;
            match task.function() {
                GET => {
                    let (entry, looked) = self.find(task.argument(0));
                    if entry.is_taken() {
                        // As it lies: nobody copies it.
                        let value = self.values.at(entry.offset(), entry.length());
                        server.answer_with(task, looked, value, limit)?;
                    } else {
                        server.answer(task, Ok(looked), limit)?;
                    }
                }
                END => return Ok(server.answer(task, Ok(0), limit)?),
                // Registered, and forgotten here.
                _ => server.answer(task, Err(0), limit)?,
            }
        }
    }

    /// A key's entry, a free one if it is not there, and how many buckets were looked at.
    #[inline(always)]
    fn find(&self, key: u64) -> (Entry, u32) {
        let mut bucket = first_bucket(key, self.buckets);
        let mut looked = 0;
        loop {
            // `run` has asked for all of them.
            let words = self
                .table
                .part(u64::from(bucket) * BUCKET_WORDS, BUCKET_WORDS);
            let (entry, has_room) = words.map_or((Entry(0), true), |words| look(words, key));
            looked += 1;
            if entry.is_taken() | has_room | (looked == self.buckets) {
                return (entry, looked);
            }
            bucket = next_bucket(bucket, self.buckets);
        }
    }
}
