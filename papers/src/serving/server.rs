//! A server in all of its ways.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpbell::SendQueueHandle;
use warpbell::wqe::Remote;
use warpbell_bench::run::launch::said;
use warpbell_bench::run::memory;
use warpbell_bench::{cause, nodes};
use warpbell_host_init::{Grid, Launch, Node, QueuePair, Shared, StopWord, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::network::Network;
use warpbell_paper_kernels::path::Path;
use warpbell_paper_kernels::serving::{
    Copied, END, Message, ServingServer, serving_process, serving_send, serving_server,
    serving_wait,
};

use super::data::{ServerData, place};
use super::model::Model;
use super::{Case, Way};
use crate::Error;
use crate::cpu_time::{CpuTime, shares};
use crate::rig::{Driver, End, HostQueue};

/// What a server says of all requests that it answered.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Served {
    pub(super) count: u64,
    pub(super) copied_in: Duration,
    pub(super) computed: Duration,
    pub(super) copied_out: Duration,
    pub(super) sent: Duration,
    pub(super) core_percent: f64,
    /// The same in each span of time.
    pub(super) shares: Vec<f64>,
    /// Whether nothing beside its memory was touched.
    pub(super) guarded: bool,
}

/// Runs it on another thread, and looks all the time whether it is done: so a synchronising call of a GPU's driver
/// waits, unless it is told otherwise.
pub(super) fn spin_beside(run: &(dyn Fn() -> Result<(), Error> + Sync)) -> Result<(), Error> {
    thread::scope(|scope| {
        let running = scope.spawn(run);
        while !running.is_finished() {
            std::hint::spin_loop();
        }
        let ended = running.join();
        ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The server of a case, whoever drives it.
pub(super) struct Server<'s> {
    case: &'s Case,
    node: &'s Node,
    end: &'s End,
    pub(super) data: ServerData,
    handles: Shared<[SendQueueHandle<'s>]>,
    pub(super) outcome: Shared<Outcome>,
}

/// What a server works with, but for who drives it.
#[derive(Clone, Copy)]
pub(super) struct Site<'s> {
    pub(super) case: &'s Case,
    pub(super) node: &'s Node,
    pub(super) data: &'s ServerData,
    pub(super) path: Path<'s>,
    pub(super) outcome: &'s Outcome,
}

impl<'s> Site<'s> {
    /// The kernel that serves, until `stop` or what comes says that there is no more.
    pub(super) fn launch(&self, stop: &'s StopWord) -> Launch<'s> {
        let server = self.server(stop);
        // SAFETY: the rooms are as large as the case's plan wants, no two of them are the same, and of the picture and
        // the answer that are registered the NIC alone has a part; the case's grid has its blocks, and threads that
        // fit.
        unsafe { Launch::new_unsafe(entry!(serving_server), self.case.grid(), server) }
    }

    /// The kernels of a graph, of which the last one launches it again: they wait for a request, compute its answer and
    /// send it.
    fn steps(&self, stop: &'s StopWord) -> [Launch<'s>; 3] {
        self.steps_of(self.server(stop))
    }

    fn steps_of(&self, server: ServingServer<'s>) -> [Launch<'s>; 3] {
        let senders = Grid {
            blocks: self.case.parts,
            ..self.case.grid()
        };
        [
            Launch::new(entry!(serving_wait), Grid::ONE_THREAD, server),
            self.process(server),
            Launch::new(entry!(serving_send), senders, server),
        ]
    }

    /// The kernel that computes an answer.
    fn process(&self, server: ServingServer<'s>) -> Launch<'s> {
        // SAFETY: as in `launch`.
        unsafe { Launch::new_unsafe(entry!(serving_process), self.case.grid(), server) }
    }

    fn server(&self, stop: &'s StopWord) -> ServingServer<'s> {
        let case = self.case;
        let copied = Copied {
            wanted: nodes::nic_is_on_host(self.node),
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            picture: unsafe { self.data.arrived.place() },
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            answer: unsafe { self.data.answer.place() },
        };
        let network = self.data.rooms.network(case);
        ServingServer {
            network: match copied.wanted {
                true => network,
                false => Network {
                    input: copied.picture,
                    output: copied.answer,
                    ..network
                },
            },
            path: self.path,
            answer: case.answer(),
            copied,
            state: place(&self.data.rooms.state),
            patience_us: case.limit_us(),
            stop: stop.stop(),
            outcome: self.outcome,
        }
    }
}

impl<'s> Server<'s> {
    /// Prepares it at this end.
    pub(super) fn new(
        case: &'s Case,
        node: &'s Node,
        end: &'s End,
        driver: Driver,
    ) -> Result<Self, Error> {
        Ok(Self {
            case,
            node,
            end,
            data: ServerData::new(
                case,
                node,
                end,
                driver,
                &Model::new(case.architecture, case.seed),
            )?,
            handles: end.handles(node)?,
            outcome: node.shared(Outcome::new())?,
        })
    }

    /// Serves until the client says that there is no more, where answers and signals begin there. The client is a
    /// kernel beside it, or a rank of its own. Calls `ready` before the first picture may come.
    pub(super) fn serve(
        &self,
        way: Way,
        there: [Remote; 2],
        client: Option<Launch<'_>>,
        pairs: &[&QueuePair],
        ready: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Served, Error> {
        let case = self.case;
        let part = case.answer().part(case.parts);
        let path = self
            .end
            .path_to(&self.handles, &self.data.answer, there, part);
        let site = Site {
            case,
            node: self.node,
            data: &self.data,
            path: Path {
                limit_us: case.limit_us(),
                ..path
            },
            outcome: &self.outcome,
        };
        let serve = || match way {
            Way::Host => self.by_host(&site, client, pairs, ready),
            Way::Asleep | Way::Spinning | Way::Graph => {
                ready()?;
                self.by_kernels(&site, way, client, pairs)
            }
        };
        let (served, shares) = match case.every {
            None => (serve(), Vec::new()),
            Some(span) => shares(span, serve)?,
        };
        Ok(Served {
            guarded: self.data.guarded(),
            shares,
            ..served?
        })
    }

    fn by_kernels(
        &self,
        site: &Site<'_>,
        way: Way,
        client: Option<Launch<'_>>,
        pairs: &[&QueuePair],
    ) -> Result<Served, Error> {
        // The client ends it, with Ctrl-C, too.
        let stop = StopWord::new(self.node.placement())?;
        let (node, meant) = (self.node.asleep(), self.case.meant());
        let time = CpuTime::begin();
        if way == Way::Graph {
            let client = client.as_slice();
            node.run_repeating(&site.steps(&stop), &stop, client, pairs, meant)?;
        } else {
            let server = site.launch(&stop);
            let all: Vec<_> = [server].into_iter().chain(client).collect();
            let run = || Ok(node.run_for(&all, pairs, meant)?);
            match way {
                Way::Spinning => spin_beside(&run)?,
                _ => run()?,
            }
        }
        let core_percent = time.percent();
        let state = memory::words(&self.data.rooms.state)?;
        let number = |word: u32| state[word as usize];
        Ok(Served {
            count: number(ServingServer::SERVED),
            copied_in: Duration::from_nanos(number(ServingServer::COPIED_IN)),
            computed: Duration::from_nanos(number(ServingServer::COMPUTED)),
            copied_out: Duration::from_nanos(number(ServingServer::COPIED_OUT)),
            sent: Duration::from_nanos(number(ServingServer::SENT)),
            core_percent,
            ..Served::default()
        })
    }

    fn by_host(
        &self,
        site: &Site<'_>,
        client: Option<Launch<'_>>,
        pairs: &[&QueuePair],
        ready: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Served, Error> {
        let Self {
            case,
            node,
            end,
            data,
            ..
        } = self;
        let (input, output) = (&data.rooms.picture, &data.rooms.answer);
        let stop = StopWord::new(node.placement())?;
        let server = site.server(&stop);
        // The host copies, and the kernel has its own picture and answer.
        let server = ServingServer {
            network: data.rooms.network(case),
            copied: Copied {
                wanted: false,
                ..server.copied
            },
            ..server
        };
        let told = 8 * ServingServer::TOLD as usize;
        data.rooms.state.write(told, &1_u64.to_ne_bytes())?;
        let infer = || {
            node.run(&[site.process(server)], &[])?;
            // Before anybody copies what it did not compute.
            said("the network", site.outcome)
        };
        // Once ahead, so that no first launch counts.
        infer()?;
        let mut queues = end.host_queues()?;
        ready()?;
        let client = client.as_slice();
        thread::scope(|scope| {
            // None of a client that is a rank of its own.
            let beside = (!client.is_empty()).then(|| {
                scope.spawn(|| Ok::<_, Error>(node.run_for(client, pairs, case.meant())?))
            });
            let over = || beside.as_ref().is_some_and(|client| client.is_finished());
            let time = CpuTime::begin();
            let mut served = Served::default();
            let mut serve = || {
                for number in 1.. {
                    for part in 0..case.parts {
                        let told = end.wait(part, number, over)?;
                        if told.is_none_or(|told| told == END) {
                            return Ok(());
                        }
                    }
                    let mut clock = Lap(Instant::now());
                    // SAFETY: the message is there, and its sender waits for the answer before it sends another one.
                    input.write(0, unsafe { data.arrived.bytes() })?;
                    clock.add(&mut served.copied_in);
                    infer()?;
                    clock.add(&mut served.computed);
                    // SAFETY: the answer before has gone, and nobody else has the memory.
                    output.read(0, unsafe { data.answer.bytes_mut() })?;
                    clock.add(&mut served.copied_out);
                    post(&mut queues, &site.path, case.answer(), 0, number)?;
                    clock.add(&mut served.sent);
                    queues.iter_mut().try_for_each(HostQueue::drain)?;
                    served.count += 1;
                }
                Ok(())
            };
            let ended = serve();
            served.core_percent = time.percent();
            let client = beside.map_or(Ok(()), |client| {
                let client = client.join();
                client.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            cause::first_cause([client, ended])?;
            Ok(served)
        })
    }
}

/// Posts all parts of a message, which is that of number `from` at this end, and behind each what tells of it.
pub(super) fn post(
    queues: &mut [HostQueue<'_>],
    path: &Path<'_>,
    message: Message,
    from: u32,
    number: u64,
) -> Result<(), Error> {
    for (part, queue) in (0..).zip(queues) {
        let pieces = 0..message.pieces(path.parts);
        let pieces = pieces.filter_map(|piece| message.write(path, part, from, piece));
        let all: Vec<_> = pieces.chain([path.tell(part, number)]).collect();
        queue.post(all.into_iter())?;
    }
    Ok(())
}

/// When the step before ended.
struct Lap(Instant);

impl Lap {
    /// Another step has ended.
    fn add(&mut self, all: &mut Duration) {
        let now = Instant::now();
        *all += now - std::mem::replace(&mut self.0, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::Rig;
    use warpbell::WaitError;
    use warpbell_kernels::outcome::Failure;

    /// Runs a server to which both parts of so many requests have come, as a graph or as a kernel that stays, until its
    /// patience is over; the test sees what it leaves behind.
    fn late(graph: bool, came: [u64; 2], check: impl FnOnce(&ServerData)) {
        let node = Node::cpu();
        let case = Case {
            blocks: 3,
            parts: 2,
            ..Case::small(8, 8)
        };
        let rig = Rig::new(&node, [Driver::Kernel; 2], case.parts, case.depth).unwrap();
        // No answer goes anywhere.
        let rig = rig.completed().unwrap();
        let model = Model::new(case.architecture, case.seed);
        let data = ServerData::new(&case, &node, &rig.far, Driver::Kernel, &model).unwrap();
        let handles = rig.handles(&rig.far).unwrap();
        let back = (&data.answer, &data.arrived);
        let part = case.answer().part(case.parts);
        let stop = StopWord::new(node.placement()).unwrap();
        let outcome = node.shared(Outcome::new()).unwrap();
        for (part, number) in came.into_iter().enumerate() {
            rig.far.tell(part, number);
        }
        let site = Site {
            case: &case,
            node: &node,
            data: &data,
            path: rig.far.path(&rig.near, &handles, back, part),
            outcome: &outcome,
        };
        let server = ServingServer {
            patience_us: 50_000,
            ..site.server(&stop)
        };
        if graph {
            let steps = site.steps_of(server);
            let limit = Duration::ZERO;
            node.run_repeating(&steps, &stop, &[], &[], limit).unwrap();
        } else {
            // SAFETY: as in `Site::launch`.
            let launch = unsafe { Launch::new_unsafe(entry!(serving_server), case.grid(), server) };
            node.run(&[launch], &[]).unwrap();
        }
        let late = Failure::Wait(WaitError::Deadline);
        assert_eq!(outcome.result(), Err(late));
        assert!(stop.stop().requested(), "nobody launches it again");
        check(&data);
    }

    fn meetings(data: &ServerData) -> Vec<u64> {
        memory::words(&data.rooms.arrivals).unwrap()
    }

    #[test]
    fn all_blocks_end_together_when_no_request_comes() {
        late(false, [1, 0], |data| {
            // No block went to a meeting to which the others did not come.
            let met = meetings(data);
            assert!(met.iter().all(|times| times == &met[0]), "{met:?}");
        });
    }

    #[test]
    fn a_graph_computes_and_sends_nothing_when_no_request_comes() {
        late(true, [1, 0], |data| {
            assert_eq!(meetings(data), [0; 3]);
            let state = memory::words(&data.rooms.state).unwrap();
            let words = [
                ServingServer::SERVED,
                ServingServer::COMPUTED,
                ServingServer::SENT,
            ];
            assert_eq!(words.map(|word| state[word as usize]), [0; 3]);
        });
    }

    #[test]
    fn requests_that_are_all_there_are_answered_one_by_one() {
        for graph in [false, true] {
            late(graph, [3, 4], |data| {
                let state = memory::words(&data.rooms.state).unwrap();
                assert_eq!(state[ServingServer::SERVED as usize], 3, "{graph}");
            });
        }
    }
}
