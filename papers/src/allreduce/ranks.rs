//! The ranks that this process runs, and who drives them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use warpbell::wqe::Remote;
use warpbell::{SendQueueHandle, Slice};
use warpbell_bench::party::Party;
use warpbell_bench::run::interrupt;
use warpbell_bench::run::launch::LIMIT_US;
use warpbell_bench::run::memory::Memory;
use warpbell_bench::{cause, nodes};
use warpbell_host_init::{
    Launch, Node, QueuePair, QueuePairConfig, RemoteMemory, Shared, World, entry,
};
use warpbell_kernels::outcome::Outcome;
use warpbell_kernels::place::Place;
use warpbell_paper_kernels::allreduce::{
    AllReduce, AllReduceStep, AllReduceTriggered, Message, Plan, Rank, allreduce_posted,
    allreduce_step, allreduce_triggered,
};
use warpbell_paper_kernels::path::Path;
use warpbell_patterns::proxy::host::{ProxiedQueue, Proxy};
use warpbell_patterns::trigger::host::Triggers;
use warpbell_soft_hca_gpu::MemoryScope;

use super::{Case, Reference, WORD, Way};
use crate::Error;
use crate::rig::{self, End, HostQueue};

/// The ranks of this process, connected with all.
pub(super) struct Ranks<'c> {
    case: &'c Case,
    /// Places in which ranks run, in equal runs.
    nodes: &'c [Node],
    plan: Plan,
    /// Which they are: all, or one.
    own: Range<u32>,
    queues: Queues,
    /// Behind the queues, whose requests go to it.
    ends: Vec<End>,
    memories: Vec<Memory>,
    /// Where memory and signals of each rank begin, those in other processes as well.
    there: Vec<[Remote; 2]>,
}

/// In whose hands the queues of each rank are.
enum Queues {
    /// In the ends'.
    Hosts,
    Kernel,
    Triggered(Vec<Triggers>),
    /// Dropped before their proxy.
    Proxied(
        Vec<Vec<ProxiedQueue>>,
        #[expect(dead_code, reason = "it serves them")] Proxy,
    ),
}

/// In which of several places a rank runs: neighbours together, so that a ring crosses as seldom as it can.
fn place_of(rank: u32, ranks: u32, places: usize) -> usize {
    rank as usize * places / ranks as usize
}

impl<'c> Ranks<'c> {
    /// Connects each part of each rank with its peers'. There are no more places than ranks, and one at least; they have one
    /// NIC.
    pub fn new(
        case: &'c Case,
        party: &Party,
        nodes: &'c [Node],
        plan: Plan,
        way: Way,
    ) -> Result<Self, Error> {
        let own = party.own_ranks(plan.ranks)?;
        let reach = match nodes.len() {
            1 => rig::reach([way.driver(); 2]),
            // To the other GPUs' memory.
            _ => MemoryScope::System,
        };
        let all = plan.ranks * queues(&plan);
        let nic = nodes::with_queue_pairs(&nodes[0], reach, all)?;
        let bytes = WORD as usize * case.words(&plan)? as usize;
        let (mut ends, memories, there) = match party.world(&nic)? {
            None => all_in_one(case, nodes, plan, way, &nic, bytes)?,
            Some(world) => one_of_all(case, party, world, plan, way, bytes)?,
        };
        let node = |at: u32| &nodes[place_of(at, own.len() as u32, nodes.len())];
        let queues = match way {
            Way::Host => Queues::Hosts,
            Way::Posted => Queues::Kernel,
            Way::Triggered => {
                let triggers = ends.iter_mut().map(End::triggers);
                Queues::Triggered(triggers.collect::<Result<_, _>>()?)
            }
            Way::Proxied => {
                let proxy = Proxy::start(1)?;
                let served = (0..).zip(&mut ends);
                let served = served.map(|(at, end)| end.served(node(at), &proxy));
                Queues::Proxied(served.collect::<Result<_, _>>()?, proxy)
            }
        };
        Ok(Self {
            case,
            nodes,
            plan,
            own,
            queues,
            ends,
            memories,
            there,
        })
    }

    /// Gives the ranks what they sum.
    pub fn give(&self, reference: &Reference) {
        for (rank, memory) in self.own.clone().zip(&self.memories) {
            memory.write(0, reference.input(rank as usize));
        }
    }

    fn sums(&self) -> (usize, usize) {
        let bytes = |words: u32| (WORD * words) as usize;
        let first = WORD as usize * self.plan.sum(0) as usize;
        (first, self.plan.rounds as usize * bytes(self.plan.words))
    }

    /// Sets signals and sums back.
    pub fn clear(&self) {
        let (first, bytes) = self.sums();
        let nothing = vec![0; bytes];
        for (end, memory) in self.ends.iter().zip(&self.memories) {
            end.clear_signals();
            memory.write(first, &nothing);
        }
    }

    /// A number that other sums of the first rank here would hardly have.
    pub fn digest(&self) -> u64 {
        let (first, bytes) = self.sums();
        let mut hasher = DefaultHasher::new();
        let sums = self
            .memories
            .first()
            .map(|memory| memory.read(first, bytes));
        sums.hash(&mut hasher);
        hasher.finish()
    }

    /// Whether all ranks here have the same sums, those that they should have, and nothing beside their memory has changed.
    pub fn are_right(&self, reference: &Reference) -> bool {
        let (first, bytes) = self.sums();
        let mut memories = self.memories.iter();
        let sums = |memory: &Memory| memory.read(first, bytes);
        let rank_0 = memories.next().map(sums).unwrap_or_default();
        let guarded = self
            .memories
            .iter()
            .all(|memory| memory.check_guards().is_ok());
        reference.is(&rank_0) && memories.all(|memory| sums(memory) == rank_0) && guarded
    }

    /// Sums all rounds' vectors; gives how long that took.
    pub fn run(&self) -> Result<Duration, Error> {
        match &self.queues {
            Queues::Hosts => self.by_hosts(),
            Queues::Kernel => {
                let ends = self.own.clone().zip(&self.ends);
                let handles = ends.map(|(rank, end)| end.handles(self.node(rank)));
                self.within(&handles.collect::<Result<Vec<_>, _>>()?, &[])
            }
            Queues::Proxied(served, _) => {
                let handles = self.own.clone().zip(served).map(|(rank, queues)| {
                    let handle = |at: usize| queues[at].send_queue();
                    Shared::slice(self.node(rank).placement(), queues.len(), handle)
                });
                self.within(&handles.collect::<Result<Vec<_>, _>>()?, &[])
            }
            Queues::Triggered(triggers) => self.within(&[], triggers),
        }
    }

    /// Which of the ranks here it is; none for one in another process.
    fn here(&self, rank: u32) -> Option<usize> {
        let here = self.own.contains(&rank);
        here.then(|| (rank - self.own.start) as usize)
    }

    /// To each of the peers of a rank that is here, by queues with these handles.
    fn paths<'a>(&'a self, rank: u32, handles: &'a [SendQueueHandle<'a>]) -> Vec<Path<'a>> {
        let at = (rank - self.own.start) as usize;
        let path = |way| {
            let there = self.there[self.plan.peer(rank, way) as usize];
            let bytes = WORD * self.plan.chunk().min(self.plan.slice);
            self.ends[at].path_to(handles, &self.memories[at], there, bytes)
        };
        (0..self.plan.ways()).map(path).collect()
    }

    /// The memory of the rank that comes so many behind the first one here.
    fn place(&self, at: usize) -> Place {
        // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
        unsafe { self.memories[at].place() }
    }

    /// Where a rank that is here runs.
    fn node(&self, rank: u32) -> &'c Node {
        &self.nodes[self.place_of(rank)]
    }

    fn place_of(&self, rank: u32) -> usize {
        place_of(
            rank - self.own.start,
            self.own.len() as u32,
            self.nodes.len(),
        )
    }

    /// Has kernels sum, whose ranks' queues have these handles, or are triggered: one in each place, with its ranks.
    fn within(
        &self,
        handles: &[Shared<[SendQueueHandle<'_>]>],
        triggers: &[Triggers],
    ) -> Result<Duration, Error> {
        let peers = self.own.clone().zip(0..).map(|(rank, at): (u32, usize)| {
            let handles = handles.get(at);
            let paths = self.paths(rank, handles.map_or(&[], |handles| &handles[..]));
            Shared::slice(self.node(rank).placement(), paths.len(), |way| paths[way])
        });
        let peers = peers.collect::<Result<Vec<_>, _>>()?;
        let there = (0..self.nodes.len()).map(|place| self.ranks_in(place, &peers));
        let there = there.collect::<Result<Vec<_>, _>>()?;
        let outcomes = self.nodes.iter();
        let outcomes = outcomes.map(|node| node.shared(Outcome::new()));
        let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
        let grid = self.case.grid(self.plan.ranks);
        let all = there
            .iter()
            .zip(&outcomes)
            .map(|(ranks, outcome)| AllReduce {
                plan: self.plan,
                ranks: Slice::new(ranks),
                outcome,
            });
        let places = self.nodes.iter();
        let ran = match triggers.is_empty() {
            true => {
                let pairs: Vec<_> = self.ends.iter().flat_map(End::pairs).collect();
                let launch = |all| Launch::new(entry!(allreduce_posted), grid, all);
                self.run_kernels(places.zip(all.map(launch)).collect(), &pairs)
            }
            false => {
                let pairs: Vec<_> = triggers.iter().flat_map(Triggers::queue_pairs).collect();
                let handles = self.nodes.iter().map(|node| {
                    // Nobody uses those of ranks that are elsewhere.
                    let handle =
                        |rank: usize| triggers[self.here(rank as u32).unwrap_or(0)].handle();
                    Shared::slice(node.placement(), self.plan.ranks as usize, handle)
                });
                let handles = handles.collect::<Result<Vec<_>, _>>()?;
                let launch = |(all, triggers)| {
                    let triggers = Slice::new(triggers);
                    let all = AllReduceTriggered { all, triggers };
                    Launch::new(entry!(allreduce_triggered), grid, all)
                };
                let launches = all.zip(handles.iter().map(|of| &**of)).map(launch);
                self.run_kernels(places.zip(launches).collect(), &pairs)
            }
        };
        let took = ran?;
        let ranks = outcomes.iter().map(|outcome| ("the ranks", &**outcome));
        cause::ended::<Error>(Ok(()), ranks)?;
        Ok(took)
    }

    /// All ranks as the kernel of a place sees them: those elsewhere have no peers, so that their blocks have nothing to do,
    /// not even with the memory.
    fn ranks_in<'r>(
        &'r self,
        place: usize,
        peers: &'r [Shared<[Path<'r>]>],
    ) -> Result<Shared<[Rank<'r>]>, Error> {
        let rank = |rank: usize| {
            let here = self.here(rank as u32);
            let runs = |_: &usize| self.place_of(rank as u32) == place;
            Rank {
                memory: self.place(here.unwrap_or(0)),
                peers: here
                    .filter(runs)
                    .map_or(Slice::new(&[]), |at| Slice::new(&peers[at])),
                delay_us: self.case.delay_us(rank as u32),
            }
        };
        Ok(Shared::slice(
            self.nodes[place].placement(),
            self.plan.ranks as usize,
            rank,
        )?)
    }

    /// Gives how long it took. It may take as long as all waits of all steps may: whoever waits in vain ends itself, long
    /// before a grid's own limit would tell a kernel that is stuck from one that has many steps to go.
    fn run_kernels(
        &self,
        launches: Vec<(&Node, Launch<'_>)>,
        pairs: &[&QueuePair],
    ) -> Result<Duration, Error> {
        let waits = self.plan.rounds * self.plan.steps();
        let meant = Duration::from_micros(LIMIT_US).saturating_mul(waits);
        let began = Instant::now();
        Node::run_each(launches, pairs, meant)?;
        Ok(began.elapsed())
    }

    /// As in as many nodes, each rank has a thread of its own. All queues are open before one begins, and the time counts from
    /// there: a NIC on a GPU calls all queues back for each look at a queue pair's state, and cuts what is posted meanwhile
    /// into packets, as long as one follows another.
    fn by_hosts(&self) -> Result<Duration, Error> {
        let queues = self.ends.iter().map(End::host_queues);
        let queues = queues.collect::<Result<Vec<_>, _>>()?;
        let failed = &AtomicBool::new(false);
        let run = |rank, queues| {
            let result = self.by_host(rank, queues, failed);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        let began = Instant::now();
        thread::scope(|scope| {
            let start = |(rank, queues)| scope.spawn(move || run(rank, queues));
            let started: Vec<_> = self.own.clone().zip(queues).map(start).collect();
            let ended = started.into_iter().map(|thread| thread.join());
            let results =
                ended.map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            cause::first_cause(results.collect::<Vec<_>>())
        })?;
        Ok(began.elapsed())
    }

    /// All of a rank's rounds, or those until Ctrl-C, or until another one has failed, which says why.
    fn by_host(
        &self,
        rank: u32,
        mut queues: Vec<HostQueue<'_>>,
        other_failed: &AtomicBool,
    ) -> Result<(), Error> {
        let plan = self.plan;
        let at = (rank - self.own.start) as usize;
        let (end, paths) = (&self.ends[at], self.paths(rank, &[]));
        // Half a ring under a doorbell, a slice and its signal at a time.
        let group = (self.case.depth as usize / 4).max(1);
        for round in 0..plan.rounds {
            for step in 0..=plan.steps() {
                if step > 0 && !self.take(rank, round, step - 1, end, other_failed)? {
                    return Ok(());
                }
                if step == plan.steps() {
                    break;
                }
                let way = plan.way(step);
                let path = &paths[way as usize];
                for part in 0..plan.parts {
                    let queue = way * plan.parts + part;
                    let what = plan.outgoing(rank, part, round, step);
                    let slices = (0..plan.slices()).map(|slice| {
                        let message = Message {
                            plan: &plan,
                            path,
                            queue,
                            what,
                            slice,
                            number: plan.number(round, step, slice),
                            last: plan.is_last(round, step, slice),
                        };
                        [message.write(), message.tell()]
                    });
                    let slices: Vec<_> = slices.collect();
                    for slices in slices.chunks(group) {
                        queues[queue as usize].post(slices.as_flattened().iter().copied())?;
                    }
                }
            }
        }
        Ok(queues.iter_mut().try_for_each(HostQueue::drain)?)
    }

    /// Waits for what comes in a step, and launches its sums, if there are any; says whether it came.
    ///
    /// # Errors
    /// Ctrl-C before it came; a kernel failed; nothing came.
    fn take(
        &self,
        rank: u32,
        round: u32,
        step: u32,
        end: &End,
        other_failed: &AtomicBool,
    ) -> Result<bool, Error> {
        let plan = self.plan;
        thread::sleep(Duration::from_micros(self.case.delay_us(rank)));
        let over = || interrupt::requested() || other_failed.load(Ordering::Relaxed);
        let last = plan.number(round, step, plan.slices() - 1);
        for part in 0..plan.parts {
            let queue = plan.way(step) * plan.parts + part;
            if end.wait(queue, last, over)?.is_none() {
                interrupt::check()?;
                return Ok(false);
            }
        }
        if plan.incoming(rank, 0, round, step).adds {
            let sums = AllReduceStep {
                plan,
                memory: self.place((rank - self.own.start) as usize),
                rank,
                round,
                step,
            };
            let launch = Launch::new(entry!(allreduce_step), self.case.grid(1), sums);
            self.node(rank).run(&[launch], &[])?;
        }
        Ok(true)
    }
}

/// Queues of a rank: in a ring as many more, at which the messages from the rank before arrive.
fn queues(plan: &Plan) -> u32 {
    match plan.doubling {
        true => plan.ways() * plan.parts,
        false => 2 * plan.parts,
    }
}

/// The ends and memories of ranks, and where those of all begin.
type Connected = (Vec<End>, Vec<Memory>, Vec<[Remote; 2]>);

/// All ranks, each with a device of its own where the NIC has several.
fn all_in_one(
    case: &Case,
    nodes: &[Node],
    plan: Plan,
    way: Way,
    nic: &Node,
    bytes: usize,
) -> Result<Connected, Error> {
    let (ranks, parts, queues) = (plan.ranks, plan.parts, queues(&plan));
    // A rank's signals and memory behind each other, so that their keys are neighbours: a crew of an engine has one place
    // for all keys that are 8 apart, and most requests of a queue want both of these.
    let rank = |(rank, domain)| {
        let node = &nodes[place_of(rank, ranks, nodes.len())];
        let end = End::new(node, domain, way.driver(), [queues, 1], case.depth)?;
        let memory = end.memory(node, bytes)?;
        Ok((end, memory))
    };
    let domains = nic.domains(ranks as usize)?;
    let all = (0..).zip(domains).map(rank);
    let (mut ends, memories): (Vec<_>, Vec<_>) =
        all.collect::<Result<Vec<_>, Error>>()?.into_iter().unzip();
    for rank in 0..ranks {
        for queue in 0..plan.ways() * parts {
            let peer = plan.peer(rank, queue / parts);
            let to = match plan.doubling {
                // Both ends of a pair send.
                true if peer < rank => continue,
                true => queue,
                false => parts + queue,
            };
            let pair = ends.get_disjoint_mut([rank as usize, peer as usize]);
            let [one, other] = pair.expect("a rank has no queue to itself");
            one.connect(queue, other, to)?;
        }
    }
    let there = ends.iter().zip(&memories);
    let there = there.map(|(end, memory)| end.begin(memory)).collect();
    Ok((ends, memories, there))
}

/// This process's rank among those of a world.
fn one_of_all(
    case: &Case,
    party: &Party,
    mut world: World,
    plan: Plan,
    way: Way,
    bytes: usize,
) -> Result<Connected, Error> {
    let (node, rank, driver) = (party.node(), world.rank(), way.driver());
    let domain = world.domain().clone();
    let config = party.queues(driver.queues(node, &domain, case.depth));
    let (mut pairs, mut from_before) = (Vec::new(), Vec::new());
    for queue in 0..plan.ways() * plan.parts {
        let next = plan.peer(rank, queue / plan.parts);
        if plan.doubling {
            pairs.push(connected(&mut world, next, &config)?);
        } else {
            let [to_next, from] = in_ring(&mut world, next, &config)?;
            pairs.push(to_next);
            from_before.push(from);
        }
    }
    pairs.extend(from_before);
    let end = End::with_pairs(node, domain, driver, pairs, 1)?;
    let memory = end.memory(node, bytes)?;
    let all: Vec<[RemoteMemory; 2]> = world.exchange(&[memory.shared(), end.signals()])?;
    let begin = |[memory, signals]: &[RemoteMemory; 2]| {
        let signals = signals.at(0, 8 * queues(&plan))?;
        Ok([memory.at(0, bytes as u32)?, signals])
    };
    let there = all.iter().map(begin).collect::<Result<_, Error>>()?;
    Ok((vec![end], vec![memory], there))
}

/// A queue pair with another rank, which asks for one, too.
fn connected(world: &mut World, other: u32, config: &QueuePairConfig) -> Result<QueuePair, Error> {
    let mut pairs = world.connect([other], config)?;
    Ok(pairs
        .remove(&other)
        .expect("a queue pair for each neighbour"))
}

/// A queue pair to the next rank of a ring, and one from the rank before.
fn in_ring(
    world: &mut World,
    next: u32,
    config: &QueuePairConfig,
) -> Result<[QueuePair; 2], Error> {
    let (rank, ranks) = (world.rank(), world.size());
    if ranks == 2 {
        // They are one rank, and either pair will do.
        let mut pair = || connected(world, next, config);
        return Ok([pair()?, pair()?]);
    }
    let before = (rank + ranks - 1) % ranks;
    let mut pairs = world.connect([next, before], config)?;
    Ok([next, before].map(|rank| {
        pairs
            .remove(&rank)
            .expect("a queue pair for each neighbour")
    }))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::super::{Algorithm, Element};
    use super::*;

    const CASE: Case = Case {
        ranks: 3,
        blocks: 1,
        threads: 2,
        bytes: 48,
        element: Element::U32,
        slice: 8,
        rounds: 2,
        repetitions: 1,
        limit: Duration::from_secs(1),
        depth: 16,
        straggler: None,
        seed: 1,
    };

    fn alone() -> Party {
        Party::alone(&Node::cpu())
    }

    #[test]
    fn each_wrong_value_of_each_rank_is_found() {
        let nodes = [Node::cpu()];
        let reference = Reference::new(&CASE).unwrap();
        let plan = CASE.plan(Algorithm::Ring);
        let ranks = Ranks::new(&CASE, &alone(), &nodes, plan, Way::Posted).unwrap();
        ranks.give(&reference);
        ranks.run().unwrap();
        assert!(ranks.are_right(&reference));
        let (first, bytes) = ranks.sums();
        assert_eq!((first, bytes), (2 * 48, 2 * 48));
        let digest = ranks.digest();
        for memory in &ranks.memories {
            for at in [first, first + bytes - 1] {
                let right = memory.read(at, 1);
                memory.write(at, &[!right[0]]);
                assert!(!ranks.are_right(&reference));
                memory.write(at, &right);
            }
        }
        assert!(ranks.are_right(&reference));
        // Nothing of them is left to the next repetition.
        ranks.clear();
        assert!(!ranks.are_right(&reference));
        assert_ne!(ranks.digest(), digest);
        ranks.run().unwrap();
        assert!(ranks.are_right(&reference));
        assert_eq!(ranks.digest(), digest);
    }

    #[test]
    fn places_have_as_many_neighbours_each() {
        let places = |ranks, places| -> Vec<_> {
            let place = |rank| place_of(rank, ranks, places);
            (0..ranks).map(place).collect()
        };
        assert_eq!(places(8, 1), [0; 8]);
        assert_eq!(places(2, 2), [0, 1]);
        assert_eq!(places(8, 2), [0, 0, 0, 0, 1, 1, 1, 1]);
        assert_eq!(places(5, 3), [0, 0, 1, 1, 2]);
    }

    #[test]
    fn ranks_in_several_places_sum_in_every_way() {
        let node = Node::cpu();
        let four = Case { ranks: 4, ..CASE };
        for (case, algorithm, places) in [
            (CASE, Algorithm::Ring, 2),
            (CASE, Algorithm::Ring, 3),
            (four, Algorithm::Doubling, 2),
        ] {
            let reference = Reference::new(&case).unwrap();
            let nodes = vec![node.clone(); places];
            for &way in Way::value_variants() {
                let plan = case.plan(algorithm);
                let ranks = Ranks::new(&case, &alone(), &nodes, plan, way).unwrap();
                ranks.give(&reference);
                ranks.run().unwrap();
                assert!(ranks.are_right(&reference), "{way:?} in {places}");
            }
        }
    }

    #[test]
    fn a_place_says_why_all_failed() {
        let nodes = [Node::cpu(), Node::cpu()];
        let plan = CASE.plan(Algorithm::Ring);
        let ranks = Ranks::new(&CASE, &alone(), &nodes, plan, Way::Posted).unwrap();
        // One in the second place, for which those of the first wait in vain.
        let used = ranks.ends[2].host_queues().unwrap();
        let error = ranks.run().unwrap_err();
        assert!(error.to_string().contains("open elsewhere"), "{error}");
        drop(used);
    }

    #[test]
    fn hosts_do_not_wait_for_one_that_failed() {
        let nodes = [Node::cpu()];
        let ranks = Ranks::new(
            &CASE,
            &alone(),
            &nodes,
            CASE.plan(Algorithm::Ring),
            Way::Host,
        )
        .unwrap();
        // What the other ranks would send never comes.
        let queues = ranks.ends[0].host_queues().unwrap();
        ranks.by_host(0, queues, &AtomicBool::new(true)).unwrap();
        // A queue that is in use is why all fail.
        let used = ranks.ends[1].host_queues().unwrap();
        let error = ranks.by_hosts().unwrap_err();
        assert!(error.to_string().contains("open elsewhere"), "{error}");
        drop(used);
    }
}
