//! A server in all of its ways.

use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpbell::SendQueueHandle;
use warpbell::wqe::Remote;
use warpbell_bench::run::launch::said;
use warpbell_bench::run::memory;
use warpbell_bench::{cause, nodes};
use warpbell_host_init::{Launch, Node, QueuePair, Shared, StopWord, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::network::Network;
use warpbell_paper_kernels::path::Path;
use warpbell_paper_kernels::serving::{
    Copied, END, Inference, Message, ServingServer, serving_inference, serving_server,
};

use super::data::{ServerData, place};
use super::model::Model;
use super::{Case, Way};
use crate::Error;
use crate::cpu_time::CpuTime;
use crate::rig::{Driver, End, HostQueue};

/// What a server says of all requests that it answered.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct Served {
    pub(super) count: u64,
    pub(super) copied_in: Duration,
    pub(super) computed: Duration,
    pub(super) copied_out: Duration,
    pub(super) sent: Duration,
    pub(super) core_percent: f64,
    /// Whether nothing beside its memory was touched.
    pub(super) guarded: bool,
}

/// How a thread of the host waits for what it runs.
type Beside = dyn Fn(&(dyn Fn() -> Result<(), Error> + Sync)) -> Result<(), Error>;

/// Runs it on another thread, and looks all the time whether it is done: so a synchronising call of a GPU's driver waits,
/// unless it is told otherwise.
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

/// For how long a launch of a server's kernel serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stays {
    /// Until nothing is left to do.
    Always,
    /// For one request; then a graph launches it again.
    ForOne,
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
    pub(super) fn launch(&self, stays: Stays, stop: &'s StopWord) -> Launch<'s> {
        let server = self.server(stays, stop);
        // SAFETY: the rooms are as large as the case wants, no two of them are the same, and of the picture and the answer
        // that are registered the NIC alone has a part; the case's grid has its blocks, and threads that fit.
        unsafe { Launch::new_unsafe(entry!(serving_server), self.case.grid(), server) }
    }

    fn server(&self, stays: Stays, stop: &'s StopWord) -> ServingServer<'s> {
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
            looks: match stays {
                Stays::Always => u64::MAX,
                Stays::ForOne => 1,
            },
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
            data: ServerData::new(case, node, end, driver, &Model::new(case.seed))?,
            handles: end.handles(node)?,
            outcome: node.shared(Outcome::new())?,
        })
    }

    /// Serves until the client says that there is no more, where answers and signals begin there. The client is a kernel beside
    /// it, or a rank of its own. Calls `ready` before the first picture may come.
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
        let served = match way {
            Way::Host => self.by_host(&site, client, pairs, ready),
            Way::Asleep | Way::Spinning | Way::Graph => {
                ready()?;
                let beside: &Beside = match way {
                    Way::Spinning => &spin_beside,
                    _ => &|run| run(),
                };
                let stays = match way {
                    Way::Graph => Stays::ForOne,
                    _ => Stays::Always,
                };
                self.by_kernel(&site, client, pairs, stays, beside)
            }
        };
        Ok(Served {
            guarded: self.data.guarded(),
            ..served?
        })
    }

    fn by_kernel(
        &self,
        site: &Site<'_>,
        client: Option<Launch<'_>>,
        pairs: &[&QueuePair],
        stays: Stays,
        wait: &Beside,
    ) -> Result<Served, Error> {
        // The client ends it, with Ctrl-C, too.
        let stop = StopWord::new(self.node.placement())?;
        let server = [site.launch(stays, &stop)];
        let (node, meant) = (self.node.asleep(), self.case.meant());
        let time = CpuTime::begin();
        match stays {
            Stays::Always => {
                let all: Vec<_> = server.into_iter().chain(client).collect();
                wait(&|| Ok(node.run_for(&all, pairs, meant)?))?;
            }
            Stays::ForOne => {
                let client = client.as_slice();
                wait(&|| Ok(node.run_repeating(&server, &stop, client, pairs, meant)?))?;
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
        let network = data.rooms.network(case);
        let infer = || {
            let inference = Inference {
                network,
                limit_us: case.limit_us(),
                outcome: site.outcome,
            };
            // SAFETY: as for the server that drives itself.
            let launch =
                unsafe { Launch::new_unsafe(entry!(serving_inference), case.grid(), inference) };
            node.run(&[launch], &[])?;
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

    #[test]
    fn all_blocks_end_together_when_no_request_comes() {
        let node = Node::cpu();
        let case = Case {
            blocks: 3,
            parts: 2,
            ..Case::small(8, 8)
        };
        let rig = Rig::new(&node, [Driver::Kernel; 2], case.parts, case.depth).unwrap();
        let model = Model::new(case.seed);
        let data = ServerData::new(&case, &node, &rig.far, Driver::Kernel, &model).unwrap();
        let handles = rig.handles(&rig.far).unwrap();
        // No answer goes anywhere.
        let back = (&data.answer, &data.arrived);
        let part = case.answer().part(case.parts);
        let stop = StopWord::new(node.placement()).unwrap();
        let outcome = node.shared(Outcome::new()).unwrap();
        // The second part never comes.
        rig.far.tell(0, 1);
        let site = Site {
            case: &case,
            node: &node,
            data: &data,
            path: rig.far.path(&rig.near, &handles, back, part),
            outcome: &outcome,
        };
        let server = ServingServer {
            patience_us: 50_000,
            ..site.server(Stays::Always, &stop)
        };
        // SAFETY: as in `Site::launch`.
        let launch = unsafe { Launch::new_unsafe(entry!(serving_server), case.grid(), server) };
        node.run(&[launch], &[]).unwrap();
        let late = Failure::Wait(WaitError::Deadline);
        assert_eq!(outcome.result(), Err(late));
        assert!(stop.stop().requested(), "nobody launches it again");
        // No block went to a meeting to which the others did not come.
        let mut met = vec![0; data.rooms.arrivals.len()];
        data.rooms.arrivals.read(0, &mut met).unwrap();
        let (met, _) = met.as_chunks::<8>();
        assert!(met.iter().all(|times| times == &met[0]), "{met:?}");
    }
}
