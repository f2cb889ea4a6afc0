//! Rounds whose network a thread of the host drives for each rank, between kernels.

use std::thread;
use std::time::Instant;

use warpbell::wqe::{Local, Remote, Wqe};
use warpbell::{Slice, Word64};
use warpbell_host_init::{
    Access, Buffer, Entry, Launch, MemoryRegion, Node, Placement, ProtectionDomain, QueuePair,
    QueuePairConfig, Shared, entry,
};
use warpbell_kernels::experts::{
    HostRound, experts_keep, experts_route, experts_sum, experts_work,
};
use warpbell_patterns::experts::{Count, Header, Layout, Place};
use warpbell_soft_hca_gpu::MemoryScope;

use super::{Case, Model, Ran, Values, parts};
use crate::host_queue::HostQueue;
use crate::put::{failed, within_limit};
use crate::samples::values as words;
use crate::{Error, cause, nodes};

/// A rank, as its host has it.
struct Rank {
    number: u32,
    /// As the kernels' exchange has it, where kernels and NIC reach it.
    window: MemoryRegion,
    /// The counts and, behind them, the flags that come, where the host reaches them.
    signals: MemoryRegion,
    /// The place of each choice, from the kernel that routes.
    places: Shared<[Word64]>,
    /// To each other rank.
    pairs: Vec<Option<QueuePair>>,
}

/// Where the memory of a rank begins.
#[derive(Clone, Copy)]
struct Target {
    window: Remote,
    signals: Remote,
}

/// Runs a thread for each rank.
pub(super) fn run(case: &Case, node: &Node, values: Values, model: &Model) -> Result<Ran, Error> {
    let queues = QueuePairConfig {
        // Where threads of the host reach them.
        placement: Some(node.placement()),
        state_placement: Some(Placement::Host),
        access: Access::REMOTE_WRITE,
        ..case.queues()
    };
    let layout = case.config(values, queues).layout(case.ranks as usize);
    let layout = layout.map_err(warpbell_patterns::Error::from)?;
    let queue_pairs = case.ranks * (case.ranks - 1);
    let nic = nodes::with_queue_pairs(node, MemoryScope::System, queue_pairs)?;
    let domains = nic.domains(case.ranks as usize)?;
    let ranks = (0..).zip(&domains);
    let ranks = ranks.map(|(number, domain)| Rank::new(case, node, &layout, domain, number));
    let mut ranks = ranks.collect::<Result<Vec<_>, _>>()?;
    for own in 0..domains.len() {
        for other in own + 1..domains.len() {
            let (ours, theirs) = domains[own].connected(&domains[other], &queues)?;
            ranks[own].pairs[other] = Some(ours);
            ranks[other].pairs[own] = Some(theirs);
        }
    }
    for rank in &ranks {
        rank.write_inputs(&layout, model)?;
    }
    let targets: Vec<Target> = ranks.iter().map(Rank::target).collect();
    let hosts = ranks
        .iter()
        .map(|rank| Host::new(case, node, &layout, rank, &targets));
    let hosts = hosts.collect::<Result<Vec<_>, _>>()?;
    let ended: Vec<Result<_, Error>> = thread::scope(|scope| {
        let hosts = hosts.into_iter();
        let started: Vec<_> = hosts.map(|host| scope.spawn(move || host.run())).collect();
        let ended = started.into_iter().map(|thread| thread.join());
        ended
            .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let mut times = Vec::new();
    cause::first_cause(
        ended
            .into_iter()
            .map(|rank| rank.map(|rank| times.extend(rank))),
    )?;
    let results = ranks.iter().map(|rank| rank.results(case, &layout));
    Ok(Ran {
        times,
        results: results.collect::<Result<_, _>>()?,
    })
}

impl Rank {
    fn new(
        case: &Case,
        node: &Node,
        layout: &Layout,
        domain: &ProtectionDomain,
        number: u32,
    ) -> Result<Self, Error> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let region = |placement, words: u64| {
            let buffer = Buffer::placed(placement, 8 * words as usize)?;
            domain.register(buffer, access)
        };
        Ok(Self {
            number,
            window: region(node.nic_placement(), layout.words())?,
            signals: region(node.placement(), 3 * u64::from(case.experts))?,
            places: node.words((case.tokens * case.top_k) as usize)?,
            pairs: (0..case.ranks).map(|_| None).collect(),
        })
    }

    fn target(&self) -> Target {
        let begin = |region: &MemoryRegion| Remote {
            address: region.address(),
            key: region.rkey(),
        };
        Target {
            window: begin(&self.window),
            signals: begin(&self.signals),
        }
    }

    fn write_inputs(&self, layout: &Layout, model: &Model) -> Result<(), Error> {
        for (token, (row, choices)) in (0..).zip(model.inputs(self.number)) {
            let words = choices
                .iter()
                .flat_map(|choice| choice.to_bits().to_le_bytes());
            let words: Vec<u8> = words.collect();
            self.window.write(8 * layout.token(token) as usize, &row)?;
            self.window
                .write(8 * layout.choice(token, 0) as usize, &words)?;
        }
        Ok(())
    }

    fn results(&self, case: &Case, layout: &Layout) -> Result<Vec<u8>, Error> {
        let mut rows = vec![0; (2 * case.hidden * case.tokens) as usize];
        self.window.read(8 * layout.result(0) as usize, &mut rows)?;
        Ok(rows)
    }
}

/// The thread of a rank.
struct Host<'r> {
    case: &'r Case,
    node: &'r Node,
    layout: &'r Layout,
    rank: &'r Rank,
    targets: &'r [Target],
    /// To each other rank.
    queues: Vec<Option<HostQueue<'r>>>,
}

impl<'r> Host<'r> {
    fn new(
        case: &'r Case,
        node: &'r Node,
        layout: &'r Layout,
        rank: &'r Rank,
        targets: &'r [Target],
    ) -> Result<Self, Error> {
        let open = |pair: &'r Option<QueuePair>| pair.as_ref().map(HostQueue::open).transpose();
        Ok(Self {
            case,
            node,
            layout,
            rank,
            targets,
            queues: rank.pairs.iter().map(open).collect::<Result<_, _>>()?,
        })
    }

    /// Makes all rounds; gives the times of those that count.
    fn run(mut self) -> Result<Vec<Vec<u64>>, Error> {
        let begin = Instant::now();
        let now = || begin.elapsed().as_nanos() as u64;
        let mut counted = Vec::new();
        for round in 0..self.case.all() {
            // Rounds of an exchange begin with 1.
            let number = u64::from(round) + 1;
            let mut times = vec![now()];
            self.launch(entry!(experts_route), number)?;
            times.push(now());
            self.send(number)?;
            times.push(now());
            // While the NIC works.
            self.launch(entry!(experts_keep), number)?;
            let counts = self.receive(number)?;
            times.push(now());
            if round + 1 == self.case.all() {
                self.launch(entry!(experts_work), number)?;
            }
            self.send_back(number, &counts)?;
            times.push(now());
            self.receive_back(number)?;
            times.push(now());
            self.launch(entry!(experts_sum), number)?;
            times.push(now());
            if self.case.counts(round) {
                counted.push(parts(&times));
            }
        }
        Ok(counted)
    }

    /// Runs a kernel of this rank to its end.
    fn launch(&self, kernel: Entry<fn(HostRound<'_>)>, round: u64) -> Result<(), Error> {
        let parameters = HostRound {
            window: self.rank.window.words()?,
            layout: *self.layout,
            counts: self.rank.signals.words()?,
            places: Slice::new(&self.rank.places),
            round,
            rank: self.rank.number,
            tokens: self.case.tokens,
        };
        Ok(self
            .node
            .run(&[Launch::new(kernel, self.case.grid(), parameters)], &[])?)
    }

    /// The tokens for all other ranks, and behind them how many there are for each expert.
    fn send(&mut self, round: u64) -> Result<(), Error> {
        let layout = self.layout;
        let (shape, own) = (layout.shape(), self.rank.number);
        let mut requests: Vec<Vec<Wqe<1>>> = self.targets.iter().map(|_| Vec::new()).collect();
        let mut counts = vec![0; shape.experts() as usize];
        for (pair, place) in (0..).zip(words(&self.rank.places[..])) {
            let place = Place(place);
            if place.is_none() {
                continue;
            }
            counts[place.expert() as usize] += 1;
            let (rank, local) = (place.expert() / shape.local, place.expert() % shape.local);
            if rank != own {
                let header = self.local(layout.header(pair), Header::WORDS)?;
                let row = layout.travelling(pair / shape.top_k);
                let row = self.local(row, shape.row_words())?;
                let to = layout.received(round, local, own, place.slot());
                let to = self.targets[rank as usize].window.at(8 * to);
                requests[rank as usize]
                    .push(Wqe::write_gather(&[header, row], to).map_err(failed)?);
            }
        }
        for (expert, wanted) in (0..).zip(counts) {
            let (rank, local) = (expert / shape.local, expert % shape.local);
            let Count(count) = Count::new(round, wanted, false);
            let word = HostRound::count(layout, round, local, own);
            if rank == own {
                self.rank.signals.words()?.store(word, count);
            } else {
                let to = self.targets[rank as usize].signals.at(8 * word);
                requests[rank as usize].push(Wqe::write_value(count, to));
            }
        }
        self.post(&requests)
    }

    /// Waits for what each rank has for each expert here, and until all is sent; gives how much that is, by expert and rank.
    fn receive(&mut self, round: u64) -> Result<Vec<Count>, Error> {
        let shape = self.layout.shape();
        let mut counts = Vec::new();
        for local in 0..shape.local {
            for rank in 0..shape.ranks {
                let word = HostRound::count(self.layout, round, local, rank);
                let count = self.hear(rank, word, |word| Count(word).is_of(round))?;
                counts.push(Count(count));
            }
        }
        self.drain()?;
        Ok(counts)
    }

    /// The outputs for all other ranks, and behind those of each expert its flag.
    fn send_back(&mut self, round: u64, counts: &[Count]) -> Result<(), Error> {
        let layout = self.layout;
        let (shape, own) = (layout.shape(), self.rank.number);
        let mut requests: Vec<Vec<Wqe<1>>> = self.targets.iter().map(|_| Vec::new()).collect();
        for (number, count) in (0..).zip(counts) {
            let (local, rank) = (number / shape.ranks, number % shape.ranks);
            let (rows, expert) = (count.sent(shape.capacity), own * shape.local + local);
            if rank == own || rows == 0 {
                continue;
            }
            let outputs = layout.output(local, rank, 0);
            let outputs = self.local(outputs, rows * shape.hidden_words())?;
            let Target { window, signals } = self.targets[rank as usize];
            requests[rank as usize].extend([
                Wqe::write(outputs, window.at(8 * layout.landing(expert, 0))),
                Wqe::write_value(round, signals.at(8 * flag(layout, expert))),
            ]);
        }
        self.post(&requests)
    }

    /// Waits for the outputs of all experts that got a token from here, and until all is sent.
    fn receive_back(&mut self, round: u64) -> Result<(), Error> {
        let shape = self.layout.shape();
        let mut asked = vec![false; shape.experts() as usize];
        for place in words(&self.rank.places[..]).into_iter().map(Place) {
            if !place.is_none() {
                asked[place.expert() as usize] = true;
            }
        }
        for (expert, asked) in (0..).zip(asked) {
            let rank = expert / shape.local;
            if asked && rank != self.rank.number {
                self.hear(rank, flag(self.layout, expert), |word| word == round)?;
            }
        }
        self.drain()
    }

    /// Words of the window, for a request.
    fn local(&self, first: u64, count: u32) -> Result<Local, Error> {
        Ok(self.rank.window.local(8 * first as usize, 8 * count)?)
    }

    /// Posts the requests for each rank, beginning with the next one, so that not all begin with the same.
    fn post(&mut self, requests: &[Vec<Wqe<1>>]) -> Result<(), Error> {
        let ranks = requests.len();
        for next in 1..ranks {
            let rank = (self.rank.number as usize + next) % ranks;
            if let Some(queue) = &mut self.queues[rank] {
                queue.post_all(&requests[rank])?;
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<(), Error> {
        let mut queues = self.queues.iter_mut().flatten();
        queues.try_for_each(HostQueue::drain)
    }

    /// Waits for a word of a rank's, and gives it.
    fn hear(&self, rank: u32, word: u64, said: impl Fn(u64) -> bool) -> Result<u64, Error> {
        let signals = self.rank.signals.words()?;
        let silent = Error::Silent { part: rank };
        let Some(signal) = signals.signal(word) else {
            return Err(silent);
        };
        let mut found = 0;
        let heard = within_limit(|| {
            found = signal.read();
            said(found)
        });
        match heard {
            true => Ok(found),
            false => Err(silent),
        }
    }
}

/// The place of an expert's flag among the signals.
fn flag(layout: &Layout, expert: u32) -> u64 {
    u64::from(2 * layout.shape().experts() + expert)
}
