//! A key-value table in a target's memory, and GETs from it: by one-sided READs, and by active messages.

mod ranks;

use serde::{Deserialize, Serialize};
use warpbell::wqe::{Local, Remote};
use warpbell::{SendQueueHandle, Slice, Word64};
use warpbell_bench::inbound::Who;
use warpbell_bench::party::Party;
use warpbell_bench::run::interrupt;
use warpbell_bench::run::launch::{LIMIT_US, said};
use warpbell_bench::run::memory::Memory;
use warpbell_bench::run::statistics::percentile;
use warpbell_bench::samples::{sorted, values};
use warpbell_host_init::{
    Access, Grid, Launch, Node, ProtectionDomain, QueuePair, QueuePairConfig, Shared, connect,
    entry,
};
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::kv::{
    ARGUMENT_WRITE, ARGUMENTS, BUCKET, BYTES, COUNTS, Client, ENTRIES, Entry, GetByReads,
    GetByTasks, HITS, Keys, MOST_BUCKETS, PACKETS, REQUESTS, ROUND_TRIPS, ServeGets, Traffic,
    VALUE_BYTES, WORD_WRITE, WRONG, first_bucket, kv_ask_block, kv_ask_thread, kv_ask_warp,
    kv_read_block, kv_read_thread, kv_read_warp, kv_serve_block, kv_serve_thread, kv_serve_warp,
    next_bucket,
};
use warpbell_patterns::active::host::{ActiveConfig, ActiveMessages};

use crate::Error;

/// How a value is got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// By READs of buckets, and of the value.
    Reads,
    /// By a message whose task looks the key up.
    ActiveMessage,
}

impl Way {
    /// Both of them; between processes an active message has no way.
    pub fn all(party: &Party) -> Vec<Self> {
        match party.size() {
            None => vec![Self::Reads, Self::ActiveMessage],
            Some(_) => vec![Self::Reads],
        }
    }

    /// What it is, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Reads => "one-sided READs",
            Self::ActiveMessage => "active message",
        }
    }
}

/// Who gets what.
#[derive(Clone, Copy, Debug)]
pub struct KvCase {
    /// Who a client is, and who serves him.
    pub who: Who,
    /// Threads of a block.
    pub threads: u32,
    /// How many clients there are, each with a queue or a lane.
    pub clients: u32,
    /// Keys and values.
    pub keys: Keys,
    /// How many of 100 entries are taken, 1 to 99.
    pub load: u32,
    /// GETs of each client, at least 1.
    pub gets: u32,
    /// Bytes that a packet carries.
    pub mtu: u32,
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The way.
    pub way: Way,
    /// The rank whose clients these are; none where clients and target are in one process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// Bytes of the longest value.
    pub value: u32,
    /// GETs of all clients.
    pub gets: u64,
    /// Those that brought a value.
    pub hits: u64,
    /// Answers that were not as they should be: a value of other bytes, one of a key that is not there, or none.
    pub wrong: u64,
    /// The most buckets that a GET looked at.
    pub most_buckets: u64,
    /// How often one end waited for the other, for each GET.
    pub round_trips: f64,
    /// READs and WRITEs of both ends, for each GET.
    pub requests: f64,
    /// Packets in both directions, for each GET.
    pub packets: f64,
    /// Bytes on the wire, for each GET.
    pub bytes: f64,
    /// Bytes on the wire over bytes of values; nothing where no key is there.
    pub amplification: Option<f64>,
    /// How long a GET took: the median, in nanoseconds.
    pub median_ns: u64,
    /// The same, of which one of 100 is more.
    pub p99_ns: u64,
    /// All values, all counts and the table are what the host says.
    pub verified: bool,
}

/// The columns of [`Row::line`].
pub const HEADER: &str = "way                value  round trips  requests  packets  bytes on the wire  over values  median µs  99 of 100";

impl Row {
    /// A row of a table, for a human, without what became of its checks.
    pub fn line(&self) -> String {
        let amplification = match self.amplification {
            Some(times) => format!("{times:.2}"),
            None => "-".into(),
        };
        format!(
            "{:<15} {:>8} {:>12.2} {:>9.2} {:>8.2} {:>18.1} {:>12} {:>10.2} {:>10.2}",
            self.way.words(),
            self.value,
            self.round_trips,
            self.requests,
            self.packets,
            self.bytes,
            amplification,
            self.median_ns as f64 / 1e3,
            self.p99_ns as f64 / 1e3,
        )
    }
}

/// The table as the host fills it.
struct Filled {
    buckets: u32,
    /// Key and entry, four times for each bucket.
    entries: Vec<[u64; 2]>,
    values: Vec<u8>,
}

impl Filled {
    fn new(keys: &Keys, load: u32) -> Self {
        let room = u64::from(keys.keys) * 100;
        let buckets = room.div_ceil(u64::from(load * ENTRIES)) as u32;
        let mut filled = Self {
            buckets,
            entries: vec![[0, 0]; (buckets * ENTRIES) as usize],
            values: Vec::new(),
        };
        for number in 0..keys.keys.into() {
            filled.insert(keys, keys.key(number));
        }
        filled
    }

    fn insert(&mut self, keys: &Keys, key: u64) {
        let length = keys.length(key);
        let entry = Entry::new(self.values.len() as u64, length);
        let words = (0..length.div_ceil(8)).flat_map(|word| keys.word(key, word).to_le_bytes());
        self.values.extend(words.take(length as usize));
        // Aligned, as kernels and NICs like it best.
        self.values.resize(self.values.len().next_multiple_of(8), 0);
        let mut bucket = first_bucket(key, self.buckets);
        loop {
            let free = |entry: &&mut [u64; 2]| entry[1] == 0;
            match self.bucket(bucket).iter_mut().find(free) {
                Some(place) => return *place = [key, entry.0],
                None => bucket = next_bucket(bucket, self.buckets),
            }
        }
    }

    fn bucket(&mut self, bucket: u32) -> &mut [[u64; 2]] {
        let first = (bucket * ENTRIES) as usize;
        &mut self.entries[first..first + ENTRIES as usize]
    }

    /// How many buckets must be looked at for a key, and whether it is there.
    fn search(&mut self, key: u64) -> (u32, bool) {
        let mut bucket = first_bucket(key, self.buckets);
        for looked in 1..=self.buckets {
            let entries = self.bucket(bucket);
            if entries.iter().any(|entry| entry[0] == key && entry[1] != 0) {
                return (looked, true);
            }
            if entries.iter().any(|entry| entry[1] == 0) {
                return (looked, false);
            }
            bucket = next_bucket(bucket, self.buckets);
        }
        (self.buckets, false)
    }

    fn bytes(&self) -> Vec<u8> {
        let words = self.entries.iter().flatten();
        words.flat_map(|word| word.to_le_bytes()).collect()
    }
}

/// The table at the target.
struct Target {
    table: Memory,
    values: Memory,
}

impl Target {
    fn new(node: &Node, domain: &ProtectionDomain, filled: &Filled) -> Result<Self, Error> {
        let memory = |bytes: &[u8]| -> Result<Memory, Error> {
            let memory = Memory::new(domain, node.nic_placement(), bytes.len())?;
            memory.write(0, bytes);
            Ok(memory)
        };
        Ok(Self {
            table: memory(&filled.bytes())?,
            values: memory(&filled.values)?,
        })
    }

    /// Whether it is still as the host has filled it.
    fn is_untouched(&self, filled: &Filled) -> bool {
        self.table.holds(&filled.bytes()) && self.values.holds(&filled.values)
    }
}

/// A table, and clients that ask for its values.
pub struct Store {
    clients: Clients,
    far: Far,
}

/// Where the table is.
enum Far {
    /// In this process.
    Here(ProtectionDomain, Box<Target>),
    /// At the first rank.
    Ranks(Box<ranks::Ranks>),
}

/// The clients of this process.
struct Clients {
    case: KvCase,
    node: Node,
    domain: ProtectionDomain,
    filled: Filled,
}

impl Store {
    /// Fills a table: at the first of the ranks that a launcher has started, whose others have the clients, or here.
    ///
    /// # Errors
    /// No memory; a device that has stopped; a rank that failed.
    pub fn new(party: &Party, case: KvCase) -> Result<Self, Error> {
        let node = party.node();
        let filled = Filled::new(&case.keys, case.load);
        let (domain, far) = match party.world(node)? {
            None => {
                let [near, far] = node.ends()?;
                let target = Target::new(node, &far, &filled)?;
                (near, Far::Here(far, target.into()))
            }
            Some(world) => {
                let domain = world.domain().clone();
                (
                    domain,
                    Far::Ranks(ranks::Ranks::new(party, world, &filled)?.into()),
                )
            }
        };
        let clients = Clients {
            case,
            node: node.clone(),
            domain,
            filled,
        };
        Ok(Self { clients, far })
    }

    /// How many of 100 entries are taken, and how many buckets there are.
    pub fn load(&self) -> (f64, u32) {
        let Clients { case, filled, .. } = &self.clients;
        let entries = f64::from(filled.buckets * ENTRIES);
        (100.0 * f64::from(case.keys.keys) / entries, filled.buckets)
    }

    /// Makes all GETs one way: a row for the clients here, or for those of each rank.
    ///
    /// # Errors
    /// A kernel that failed; too many clients for the NIC; a rank that failed; Ctrl-C before, at any rank.
    pub fn get(&mut self, party: &Party, way: Way) -> Result<Vec<Row>, Error> {
        party.check()?;
        let clients = &mut self.clients;
        match &mut self.far {
            Far::Ranks(ranks) => ranks.get(party, clients),
            Far::Here(domain, target) => {
                let mut row = clients.get(way, |clients, client| match way {
                    Way::Reads => clients.read_here(client, domain, target),
                    Way::ActiveMessage => Ok((clients.ask_by_tasks(client, domain, target)?, true)),
                })?;
                row.verified &= target.is_untouched(&clients.filled);
                Ok(vec![row])
            }
        }
    }
}

impl Clients {
    /// Has clients get, by `ask`, which gives how many requests were posted, and whether nothing beside the clients' memory was
    /// written.
    fn get(
        &mut self,
        way: Way,
        ask: impl FnOnce(&Self, Client<'_>) -> Result<(u64, bool), Error>,
    ) -> Result<Row, Error> {
        let counts = self.node.words(COUNTS * self.case.clients as usize)?;
        let gets = self.case.clients as usize * self.case.gets as usize;
        let samples = self.node.words(gets)?;
        let outcome = self.node.shared(Outcome::new())?;
        let client = Client {
            keys: self.case.keys,
            gets: self.case.gets,
            mtu: self.case.mtu,
            limit_us: LIMIT_US,
            counts: Slice::new(&counts),
            samples: Slice::new(&samples),
            outcome: &outcome,
        };
        let (posted, kept) = ask(self, client)?;
        let mut row = self.row(way, &counts, &samples, posted)?;
        row.verified &= kept;
        Ok(row)
    }

    fn grid(&self) -> Grid {
        Grid {
            blocks: self.case.clients,
            threads_per_block: match self.case.who {
                Who::Thread => 1,
                Who::Warp => 32,
                Who::Block => self.case.threads,
            },
        }
    }

    fn run(
        &self,
        what: Way,
        launches: &[Launch<'_>],
        pairs: &[&QueuePair],
        outcomes: &[&Outcome],
    ) -> Result<(), Error> {
        self.node.run(launches, pairs)?;
        for outcome in outcomes {
            said(&format!("GETs by {}", what.words()), outcome)?;
        }
        Ok(())
    }

    /// By READs from a table in this process.
    fn read_here(
        &self,
        client: Client<'_>,
        domain: &ProtectionDomain,
        target: &Target,
    ) -> Result<(u64, bool), Error> {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for _ in 0..self.case.clients {
            let mut one = self.domain.queue_pair(&queues())?;
            let mut other = domain.queue_pair(&queues())?;
            connect(&mut one, &mut other)?;
            near.push(one);
            far.push(other);
        }
        let there = [target.table.remote(0), target.values.remote(0)];
        self.read(client, &near, there)
    }

    /// By READs through these queues, a client's each, where table and values begin there. Gives how many requests were posted,
    /// and whether nothing beside the clients' memory was written.
    fn read(
        &self,
        client: Client<'_>,
        pairs: &[QueuePair],
        [table, values]: [Remote; 2],
    ) -> Result<(u64, bool), Error> {
        let clients = pairs.len();
        let handles: Vec<SendQueueHandle<'_>> = pairs
            .iter()
            .map(QueuePair::send_queue)
            .collect::<Result<_, _>>()?;
        let queues = Shared::slice(self.node.placement(), clients, |index| handles[index])?;
        // Whole cache lines for each client.
        let stride = BUCKET + self.case.keys.longest.next_multiple_of(64);
        let room = clients * stride as usize;
        let landing = Memory::new(&self.domain, self.node.nic_placement(), room)?;
        let get = GetByReads {
            client,
            queues: Slice::new(&queues),
            table,
            buckets: self.filled.buckets,
            values,
            landing: landing.local(0, room),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            landing_words: unsafe { landing.place() },
            stride,
        };
        let launch = match self.case.who {
            Who::Thread => Launch::new(entry!(kv_read_thread), self.grid(), get),
            Who::Warp => Launch::new(entry!(kv_read_warp), self.grid(), get),
            Who::Block => Launch::new(entry!(kv_read_block), self.grid(), get),
        };
        let all: Vec<&QueuePair> = pairs.iter().collect();
        self.run(Way::Reads, &[launch], &all, &[client.outcome])?;
        Ok((posted(all), landing.check_guards().is_ok()))
    }

    /// By messages to a table in this process. Gives how many requests were posted.
    fn ask_by_tasks(
        &self,
        client: Client<'_>,
        domain: &ProtectionDomain,
        target: &Target,
    ) -> Result<u64, Error> {
        let config = ActiveConfig {
            lanes: self.case.clients,
            slots: 2,
            functions: ARGUMENTS.len() as u32,
            max_result: self.case.keys.longest,
            queue_pair: queues(),
            ..ActiveConfig::default()
        };
        let mut active = ActiveMessages::new(&self.domain, domain, &config)?;
        for (function, arguments) in (0..).zip(ARGUMENTS) {
            active.register(function, arguments)?;
        }
        let served = self.node.shared(Outcome::new())?;
        let ask = GetByTasks {
            client,
            initiator: active.initiator(),
        };
        let serve = ServeGets {
            target: active.target(),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            table: unsafe { target.table.place() },
            buckets: self.filled.buckets,
            values: Local {
                // Each value has a length of its own.
                length: 0,
                ..target.values.local(0, target.values.len())
            },
            stop: interrupt::stop(self.node.placement())?,
            limit_us: LIMIT_US,
            outcome: &served,
        };
        let grid = self.grid();
        let launches = match self.case.who {
            Who::Thread => [
                Launch::new(entry!(kv_ask_thread), grid, ask),
                Launch::new(entry!(kv_serve_thread), grid, serve),
            ],
            Who::Warp => [
                Launch::new(entry!(kv_ask_warp), grid, ask),
                Launch::new(entry!(kv_serve_warp), grid, serve),
            ],
            Who::Block => [
                Launch::new(entry!(kv_ask_block), grid, ask),
                Launch::new(entry!(kv_serve_block), grid, serve),
            ],
        };
        let all: Vec<&QueuePair> = active.queue_pairs().collect();
        let outcomes = [client.outcome, &*served];
        self.run(Way::ActiveMessage, &launches, &all, &outcomes)?;
        // But for the end of each lane's target, and its answer.
        Ok(posted(all) - 2 * u64::from(self.case.clients))
    }

    /// Compares what the kernels have counted with what the table should say, and with what was posted.
    fn row(
        &mut self,
        way: Way,
        counts: &[Word64],
        samples: &[Word64],
        posted: u64,
    ) -> Result<Row, Error> {
        let counts = values(counts);
        let expected: Vec<u64> = (0..self.case.clients)
            .flat_map(|client| self.expected(way, client))
            .collect();
        let sum = |which: usize| counts.iter().skip(which).step_by(COUNTS).sum::<u64>();
        let sorted = sorted(samples);
        let gets = u64::from(self.case.clients) * u64::from(self.case.gets);
        let each = |which: usize| sum(which) as f64 / gets as f64;
        let value_bytes = sum(VALUE_BYTES);
        Ok(Row {
            way,
            rank: None,
            value: self.case.keys.longest,
            gets,
            hits: sum(HITS),
            wrong: sum(WRONG),
            most_buckets: *counts
                .iter()
                .skip(MOST_BUCKETS)
                .step_by(COUNTS)
                .max()
                .unwrap_or(&0),
            round_trips: each(ROUND_TRIPS),
            requests: each(REQUESTS),
            packets: each(PACKETS),
            bytes: each(BYTES),
            amplification: (value_bytes != 0).then(|| sum(BYTES) as f64 / value_bytes as f64),
            median_ns: percentile(&sorted, 50),
            p99_ns: percentile(&sorted, 99),
            verified: counts == expected && posted == sum(REQUESTS),
        })
    }

    /// The numbers that a client must leave, in their order.
    fn expected(&mut self, way: Way, client: u32) -> [u64; COUNTS] {
        let mut expected = [0; COUNTS];
        let mut traffic = Traffic::default();
        for get in 0..self.case.gets {
            let keys = self.case.keys;
            let number = keys.asked(client, get);
            let key = keys.key(number);
            let (looked, found) = self.filled.search(key);
            let length = if found { keys.length(key) } else { 0 };
            expected[HITS] += u64::from(found);
            expected[VALUE_BYTES] += u64::from(length);
            expected[MOST_BUCKETS] = expected[MOST_BUCKETS].max(looked.into());
            let lengths =
                std::iter::repeat_n(BUCKET, looked as usize).chain(found.then_some(length));
            match way {
                Way::Reads => lengths.for_each(|bytes| {
                    traffic.round_trips += 1;
                    traffic.read(bytes, self.case.mtu);
                }),
                Way::ActiveMessage => {
                    traffic.round_trips += 1;
                    let writes = [ARGUMENT_WRITE, WORD_WRITE].into_iter();
                    for bytes in writes.chain(found.then_some(length)) {
                        traffic.write(bytes, self.case.mtu);
                    }
                }
            }
        }
        expected[ROUND_TRIPS] = traffic.round_trips;
        expected[REQUESTS] = traffic.requests;
        expected[PACKETS] = traffic.packets;
        expected[BYTES] = traffic.bytes;
        expected
    }
}

fn queues() -> QueuePairConfig {
    QueuePairConfig {
        send_depth: 16,
        ..QueuePairConfig::granting(Access::REMOTE_READ)
    }
}

/// Requests that kernels posted to these queues, each of one block.
fn posted(pairs: Vec<&QueuePair>) -> u64 {
    let published = pairs.iter().map(|pair| pair.send_progress().published);
    published.sum()
}
