//! A server in all of its ways.

use std::thread;
use std::time::{Duration, Instant};

use warpbell_bench::run::launch::said;
use warpbell_bench::run::memory::{self, Memory};
use warpbell_bench::{cause, nodes};
use warpbell_host_init::{Launch, Node, StopWord, entry};
use warpbell_kernels::outcome::Outcome;
use warpbell_paper_kernels::network::Network;
use warpbell_paper_kernels::path::Path;
use warpbell_paper_kernels::serving::{
    Copied, END, Inference, Message, ServingServer, serving_inference, serving_server,
};

use super::Case;
use super::data::{Data, Rooms, place};
use crate::Error;
use crate::cpu_time::CpuTime;
use crate::rig::{HostQueue, Rig};

/// What a server says of all requests that it answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Served {
    pub(super) count: u64,
    pub(super) copied_in: Duration,
    pub(super) computed: Duration,
    pub(super) copied_out: Duration,
    pub(super) sent: Duration,
    pub(super) core_percent: f64,
}

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

/// The server, whoever drives it.
pub(super) struct Server<'s> {
    pub(super) case: &'s Case,
    pub(super) node: &'s Node,
    pub(super) rig: &'s Rig,
    pub(super) data: &'s Data,
    pub(super) path: Path<'s>,
    pub(super) outcome: &'s Outcome,
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
    pub(super) rooms: &'s Rooms,
    /// Where pictures come.
    pub(super) arrived: &'s Memory,
    /// Where answers are sent from.
    pub(super) answer: &'s Memory,
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
            picture: unsafe { self.arrived.place() },
            // SAFETY: this memory outlives the launch; kernels and NICs alone use it meanwhile.
            answer: unsafe { self.answer.place() },
        };
        let network = self.rooms.network(case);
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
            state: place(&self.rooms.state),
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

impl Server<'_> {
    pub(super) fn by_kernel(
        &self,
        client: Launch<'_>,
        stays: Stays,
        wait: impl Fn(&(dyn Fn() -> Result<(), Error> + Sync)) -> Result<(), Error>,
    ) -> Result<Served, Error> {
        let Self {
            case, node, data, ..
        } = *self;
        // The client ends it, with Ctrl-C, too.
        let stop = StopWord::new(node.placement())?;
        let site = Site {
            case,
            node,
            rooms: &data.rooms,
            arrived: &data.arrived,
            answer: &data.answer,
            path: self.path,
            outcome: self.outcome,
        };
        let server = site.launch(stays, &stop);
        let pairs = self.rig.pairs();
        let node = node.asleep();
        let time = CpuTime::begin();
        match stays {
            Stays::Always => {
                let both = [server, client];
                wait(&|| Ok(node.run_for(&both, &pairs, case.meant())?))?;
            }
            Stays::ForOne => {
                let (server, client) = ([server], [client]);
                wait(&|| Ok(node.run_repeating(&server, &stop, &client, &pairs, case.meant())?))?;
            }
        }
        let core_percent = time.percent();
        let state = memory::words(&data.rooms.state)?;
        let number = |word: u32| state[word as usize];
        Ok(Served {
            count: number(ServingServer::SERVED),
            copied_in: Duration::from_nanos(number(ServingServer::COPIED_IN)),
            computed: Duration::from_nanos(number(ServingServer::COMPUTED)),
            copied_out: Duration::from_nanos(number(ServingServer::COPIED_OUT)),
            sent: Duration::from_nanos(number(ServingServer::SENT)),
            core_percent,
        })
    }

    pub(super) fn by_host(&self, client: Launch<'_>) -> Result<Served, Error> {
        let Self {
            case,
            node,
            data,
            rig,
            ..
        } = *self;
        let pairs = rig.pairs();
        let (input, output) = (&data.rooms.picture, &data.rooms.answer);
        let network = data.rooms.network(case);
        let infer = || {
            let inference = Inference {
                network,
                limit_us: case.limit_us(),
                outcome: self.outcome,
            };
            // SAFETY: as for the server that drives itself.
            let launch =
                unsafe { Launch::new_unsafe(entry!(serving_inference), case.grid(), inference) };
            node.run(&[launch], &[])?;
            // Before anybody copies what it did not compute.
            said("the network", self.outcome)
        };
        // Once ahead, so that no first launch counts.
        infer()?;
        let mut queues = rig.far.host_queues()?;
        let client = [client];
        thread::scope(|scope| {
            let client =
                scope.spawn(|| Ok::<_, Error>(node.run_for(&client, &pairs, case.meant())?));
            let time = CpuTime::begin();
            let mut served = Served::default();
            let mut serve = || {
                for number in 1.. {
                    for part in 0..case.parts {
                        let told = rig.far.wait(part, number, || client.is_finished())?;
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
                    post(&mut queues, &self.path, case.answer(), 0, number)?;
                    clock.add(&mut served.sent);
                    queues.iter_mut().try_for_each(HostQueue::drain)?;
                    served.count += 1;
                }
                Ok(())
            };
            let ended = serve();
            served.core_percent = time.percent();
            let client = client.join();
            let client = client.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
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
    use crate::rig::Driver;
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
        let data = Data::new(&case, &node, &rig, Driver::Kernel, None).unwrap();
        let handles = rig.handles(&rig.far).unwrap();
        let back = (&data.answer, &data.returned);
        let part = case.answer().part(case.parts);
        let stop = StopWord::new(node.placement()).unwrap();
        let outcome = node.shared(Outcome::new()).unwrap();
        // The second part never comes.
        rig.far.tell(0, 1);
        let site = Site {
            case: &case,
            node: &node,
            rooms: &data.rooms,
            arrived: &data.arrived,
            answer: &data.answer,
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
