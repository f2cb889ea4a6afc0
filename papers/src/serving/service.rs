//! A server that other processes join, one after the other: a kernel serves each of them, while its host sleeps until
//! the client has done or has gone.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use warpbell_bench::Error as BenchError;
use warpbell_bench::nodes;
use warpbell_bench::run::interrupt;
use warpbell_bench::run::memory;
use warpbell_bench::run::screen::Screen;
use warpbell_bench::run::{Error as RunError, StageError};
use warpbell_host_init::peer::{ExchangeError, Listener};
use warpbell_host_init::{Error as HostError, Node, Peer, QueuePair, RemoteMemory, StopWord};
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_paper_kernels::serving::{END, ServingServer};

use super::data::ServerData;
use super::model::Model;
use super::server::Site;
use super::{Architecture, Case, files, size};
use crate::Error;
use crate::cpu_time::CpuTime;
use crate::rig::{Driver, End};

/// How long a client may take to greet, and for a message once it has begun.
const STEP: Duration = Duration::from_secs(5);
/// How long it may take until its next message, before its first request: before one of them it makes its pictures
/// larger for itself.
const PREPARES: Duration = Duration::from_secs(60);
/// Between two looks at who has come or gone.
const NAP: Duration = Duration::from_millis(10);

/// What server and client tell each other before the first request, one behind the other.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Talk {
    /// The client: how large its pictures are.
    Pictures {
        /// Pixels of a row.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// The server: how it serves.
    Terms(Terms),
    /// Both: so be it.
    Agreed,
    /// The server: why it does not serve such pictures.
    Refused(String),
    /// Both.
    Room {
        /// Where messages come.
        messages: RemoteMemory,
        /// The words that tell of them.
        signals: RemoteMemory,
    },
}

/// What a client has to know of its server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Terms {
    /// The network that answers.
    pub(super) architecture: Architecture,
    /// Queues that a message goes through, a part each.
    pub(super) parts: u32,
    /// Bytes of a work request at most.
    pub(super) piece: u32,
    /// Depth of each queue.
    pub(super) depth: u32,
    /// Seed of the weights.
    pub(super) seed: u64,
}

/// What both come to when all requests are answered.
pub(super) const SERVED: &str = "served";
/// What both come to before the first one.
pub(super) const READY: &str = "ready";

/// The other process says something else than what comes next.
pub(super) fn out_of_turn(said: &Talk) -> Error {
    Error::Unfit {
        what: format!("the other process is none of this service: it says {said:?}"),
    }
}

/// Serves all who join at a path, one after the other, until Ctrl-C; pictures are as large as each client says, and all
/// else is as `case` has it. Says of each client in a line what became of it.
///
/// # Errors
/// A NIC that reaches no other process; a path that cannot be used; as [`Case::check`]; what fails here, and not at a
/// client.
pub fn serve(node: &Node, case: &Case, path: &Path, screen: &Screen) -> Result<(), Error> {
    let domain = nodes::reachable(node)?.domain()?;
    case.check(node)?;
    let mut end = End::new(node, domain, Driver::Kernel, [case.parts, 1], case.depth)?;
    let model = Model::new(case.architecture, case.seed);
    let listener = Listener::bind(path)?;
    screen.line(format_args!(
        "Waiting for clients: serving --connect {}",
        path.display()
    ));
    let mut client = 1;
    while !interrupt::requested() {
        let served = match listener.take(end.device(), STEP) {
            Ok(None) => {
                thread::sleep(NAP);
                continue;
            }
            Ok(Some(peer)) => {
                let joins =
                    |size| screen.line(format_args!("Client {client} sends pictures of {size}."));
                serve_one(node, case, &model, &mut end, peer, joins)
            }
            Err(error) => Err(error.into()),
        };
        let words = served.or_else(|error| match of_client(&error) {
            true => Ok(format!("not served: {error}")),
            false => Err(error),
        })?;
        screen.line(format_args!("Client {client}: {words}"));
        client += 1;
        // No kernel has them any more; whatever the client still sends finds nobody.
        end.reset()?;
    }
    Ok(())
}

/// Whether others may be served: all that fails of a client once it has come is its own, but for what fails of the
/// path, the kernel, the GPU, or the thread that drives the NIC.
fn of_client(error: &Error) -> bool {
    let Error::Bench(error) = error else {
        return true;
    };
    !matches!(
        error,
        BenchError::Driver(_)
            | BenchError::Run(RunError::Stage(
                StageError::Kernel { .. }
                    | StageError::Setup(
                        HostError::Launch(_)
                            | HostError::Gpu(_)
                            | HostError::Exchange(ExchangeError::Socket { .. })
                    )
            ))
    )
}

/// Waits for a client's next message, at most for as long as it may take, and until Ctrl-C.
fn listen_to(peer: &Peer) -> Result<(), Error> {
    let began = Instant::now();
    while !peer.has_spoken() {
        interrupt::check()?;
        if began.elapsed() > PREPARES {
            let what = format!("it has said nothing for {} s", PREPARES.as_secs());
            return Err(Error::Unfit { what });
        }
        thread::sleep(NAP);
    }
    Ok(())
}

/// Serves a client to its end, and says what became of it; `joins` hears how large its pictures are, once they may
/// come.
fn serve_one(
    node: &Node,
    case: &Case,
    model: &Model,
    end: &mut End,
    mut peer: Peer,
    joins: impl Fn(String),
) -> Result<String, Error> {
    let terms = Terms {
        architecture: case.architecture,
        parts: case.parts,
        piece: case.piece,
        depth: case.depth,
        seed: case.seed,
    };
    listen_to(&peer)?;
    let (width, height) = match peer.exchange(&Talk::Terms(terms))? {
        Talk::Pictures { width, height } => (width, height),
        said => return Err(out_of_turn(&said)),
    };
    let case = Case {
        width,
        height,
        ..*case
    };
    let agreed = files::check_size(width, height).map_err(|what| Error::Unfit { what });
    let agreed = agreed.and_then(|()| case.check(node));
    // With its memory, for which there may be no room.
    let session = agreed.and_then(|()| Session::new(&case, node, model, end));
    let answer = match &session {
        Ok(_) => Talk::Agreed,
        Err(why) => Talk::Refused(why.to_string()),
    };
    listen_to(&peer)?;
    let _: Talk = peer.exchange(&answer)?;
    let session = session.map_err(|why| Error::Unfit {
        what: why.to_string(),
    })?;
    listen_to(&peer)?;
    end.connect_over(&mut peer)?;
    session.run(end, &mut peer, joins)
}

/// A client's share of the server.
struct Session<'s> {
    node: &'s Node,
    case: &'s Case,
    data: ServerData,
}

impl<'s> Session<'s> {
    fn new(case: &'s Case, node: &'s Node, model: &Model, end: &End) -> Result<Self, Error> {
        Ok(Self {
            node,
            case,
            data: ServerData::new(case, node, end, Driver::Kernel, model)?,
        })
    }

    /// Has a kernel serve until the client has done or has gone.
    fn run(&self, end: &End, peer: &mut Peer, joins: impl Fn(String)) -> Result<String, Error> {
        let Self { node, case, data } = self;
        let ours = Talk::Room {
            messages: data.arrived.shared(),
            signals: end.signals(),
        };
        listen_to(peer)?;
        let (messages, signals) = match peer.exchange(&ours)? {
            Talk::Room { messages, signals } => (messages, signals),
            said => return Err(out_of_turn(&said)),
        };
        let answer = case.answer();
        let there = [
            messages.at(0, answer.bytes)?,
            signals.at(0, 8 * case.parts)?,
        ];
        let handles = end.handles(node)?;
        let part = answer.part(case.parts);
        let path = end.path_to(&handles, &data.answer, there, part);
        let stop = StopWord::new(node.placement())?;
        let outcome = node.shared(Outcome::new())?;
        let site = Site {
            case,
            node,
            data,
            path: warpbell_paper_kernels::path::Path {
                limit_us: case.limit_us(),
                ..path
            },
            outcome: &outcome,
        };
        let server = [site.launch(&stop)];
        let pairs: Vec<&QueuePair> = end.pairs().iter().collect();
        listen_to(peer)?;
        peer.barrier(READY)?;
        joins(size(case.width, case.height));
        let time = CpuTime::begin();
        let (ran, waited_percent) = thread::scope(|scope| {
            let kernel = scope.spawn(|| {
                let time = CpuTime::begin();
                let ran = node.asleep().run_for(&server, &pairs, Duration::MAX);
                // This thread waits for the kernel; on a CPU the kernel has threads of its own.
                (ran, time.percent())
            });
            while !kernel.is_finished() {
                if interrupt::requested() || peer.has_gone() {
                    stop.request();
                }
                thread::sleep(NAP);
            }
            let ran = kernel.join();
            ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let core_percent = time.percent() + waited_percent;
        ran?;
        let served = memory::words(&data.rooms.state)?[ServingServer::SERVED as usize];
        let told = end.newest();
        let whole = end.whole(case.parts);
        let mut parted = parted(&outcome, peer, [told, whole], served)?;
        if told == END
            && let Err(error) = peer.barrier(SERVED)
        {
            parted = format!("; {error}");
        }
        Ok(format!(
            "{served} answers, {core_percent:.2} % of a core asleep{parted}"
        ))
    }
}

/// How a client has parted, in words to be added; no words for one that has said that there is no more. Of its newest
/// request any part was told by the one number, and all parts by the other. A wait that it has not kept waiting is the
/// server's own.
fn parted(
    outcome: &Outcome,
    peer: &Peer,
    [told, whole]: [u64; 2],
    served: u64,
) -> Result<String, Error> {
    let gone = match peer.has_gone() {
        true => "it has vanished",
        false => "it does not go on",
    };
    let within = match told > served {
        true => "in mid-request",
        false => "between two requests",
    };
    match outcome.result() {
        Ok(()) if told == END => Ok(String::new()),
        Ok(()) if interrupt::requested() => Ok("; ended by Ctrl-C".into()),
        Ok(()) => Ok(format!("; {gone} {within}")),
        Err(failure @ (Failure::Wait(_) | Failure::Post(_)))
            if peer.has_gone() || failure.queue_error().is_some() || whole <= served =>
        {
            Ok(format!("; {gone} {within} ({failure})"))
        }
        Err(failure) => {
            let what = "the server".into();
            Err(StageError::Kernel { what, failure }.into())
        }
    }
}
