//! A client in a process of its own, which its host drives: it joins a server, sends a picture again and again, and
//! compares every answer.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpbell::wqe::Remote;
use warpbell_bench::Error as BenchError;
use warpbell_bench::nodes;
use warpbell_bench::run::interrupt;
use warpbell_bench::run::memory::Memory;
use warpbell_host_init::{Node, Peer};
use warpbell_paper_kernels::distribution::{BUCKETS, bucket};
use warpbell_paper_kernels::path::MAX_PARTS;
use warpbell_paper_kernels::serving::{END, is_near};

use super::data::{answered, bytes_of, pictures};
use super::model::{Model, Picture};
use super::server::post;
use super::service::{READY, SERVED, Talk, out_of_turn};
use super::{Architecture, Case, PICTURES, VALUE, size};
use crate::Error;
use crate::distribution::Distribution;
use crate::rig::{Driver, End, HostQueue};

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Client {
    /// Its pictures and how often they are sent. How they are served the server says.
    pub case: Case,
    /// The picture, in turn with one from the server's seed; without it both are from there.
    pub picture: Option<Picture>,
    /// How long to wait for the server.
    pub timeout: Duration,
}

/// What a client saw. Times are in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Answered {
    /// The network that answered.
    pub architecture: Architecture,
    /// Pixels of a row of a picture.
    pub width: u32,
    /// Its rows.
    pub height: u32,
    /// Requests answered.
    pub rounds: u64,
    /// Requests that were due and never sent, because the next one was due before they could be.
    pub dropped: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Requests answered in a second.
    pub per_s: f64,
    /// From post to answer, the mean.
    pub total_us: f64,
    /// The same, of all of them.
    pub distribution: Distribution,
    /// Values that were not what they should be, of all answers.
    pub wrong: u64,
    /// No value was wrong, and nothing beside pictures and answers was touched.
    pub verified: bool,
}

/// The columns of [`Answered::row`].
pub const CLIENT_HEADER: &str =
    "picture      requests   a second  total µs    median      90 %      99 %    99.9 %   longest";

impl Answered {
    /// A row of a table, for a human.
    pub fn row(&self) -> String {
        let percentiles = self.distribution.percentiles();
        let percentiles: String = percentiles.map(|us| format!(" {us:>9.1}")).concat();
        let dropped = match self.dropped {
            0 => String::new(),
            dropped => format!("  {dropped} dropped"),
        };
        format!(
            "{:<10} {:>10} {:>10.1} {:>9.1}{percentiles}{dropped}",
            size(self.width, self.height),
            self.rounds,
            self.per_s,
            self.total_us
        )
    }
}

impl Client {
    /// Joins the server at a path, and sends requests until there were enough, or time is over; with Ctrl-C until then.
    /// Gives the first picture's last answer, too.
    ///
    /// # Errors
    /// A NIC that reaches no other process; no server there; one that refuses the picture, or goes; no request that
    /// counts.
    pub fn run(&self, node: &Node, path: &Path) -> Result<(Answered, Picture), Error> {
        let domain = nodes::reachable(node)?.domain()?;
        let mut peer = Peer::join(domain.device(), path, self.timeout)?;
        let case = self.agree(&mut peer)?;
        let parts = [case.parts, 1];
        let mut end = End::new(node, domain, Driver::Host, parts, case.depth)?;
        let room = Room::new(&case, node, &end, self.picture.as_ref())?;
        end.connect_over(&mut peer)?;
        let ours = Talk::Room {
            messages: room.returned.shared(),
            signals: end.signals(),
        };
        let there = match peer.exchange(&ours)? {
            Talk::Room { messages, signals } => [
                messages.at(0, case.request().bytes)?,
                signals.at(0, 8 * case.parts)?,
            ],
            said => return Err(out_of_turn(&said)),
        };
        peer.barrier(READY)?;
        let seen = self.request(&case, &end, &room, there, &peer)?;
        peer.barrier(SERVED)?;
        seen.answered(&case, room.guarded())
    }

    /// Asks how the server serves, and whether it serves such pictures.
    fn agree(&self, peer: &mut Peer) -> Result<Case, Error> {
        let Case { width, height, .. } = self.case;
        let terms = match peer.exchange(&Talk::Pictures { width, height })? {
            Talk::Terms(terms) if (1..=MAX_PARTS).contains(&terms.parts) => terms,
            said => return Err(out_of_turn(&said)),
        };
        match peer.exchange(&Talk::Agreed)? {
            Talk::Agreed => Ok(Case {
                architecture: terms.architecture,
                parts: terms.parts,
                piece: terms.piece,
                depth: terms.depth,
                seed: terms.seed,
                ..self.case
            }),
            Talk::Refused(why) => Err(Error::Unfit {
                what: format!("the server does not serve this picture: {why}"),
            }),
            said => Err(out_of_turn(&said)),
        }
    }

    /// Sends request after request, and says at last that there is no more.
    fn request(
        &self,
        case: &Case,
        end: &End,
        room: &Room,
        there: [Remote; 2],
        peer: &Peer,
    ) -> Result<Seen, Error> {
        let mut queues = end.host_queues()?;
        let path = end.path_to(&[], &room.requests, there, case.request().part(case.parts));
        let limit = Duration::from_micros(case.limit_us());
        let mut seen = Seen::new();
        for number in 1.. {
            let picture = (number - 1) % u64::from(PICTURES);
            let sent = Instant::now();
            post(&mut queues, &path, case.request(), picture as u32, number)?;
            for part in 0..case.parts {
                let came = end.wait_within(part, number, limit, || peer.has_gone())?;
                came.ok_or(BenchError::Parted {
                    program: "the server",
                    why: "it has ended".into(),
                    remedy: "see what it says",
                })?;
            }
            let due = seen.count(number, case, sent);
            let answer = room.answer();
            seen.wrong += room.wrong(picture as usize, &answer);
            if picture == 0 {
                seen.first = answer;
            }
            match due {
                Some(due) if !interrupt::requested() => {
                    thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                _ => break,
            }
        }
        for (part, queue) in (0..).zip(&mut queues) {
            queue.post([path.tell(part, END)].into_iter())?;
        }
        queues.iter_mut().try_for_each(HostQueue::drain)?;
        Ok(seen)
    }
}

/// Pictures, answers, and what those should be.
struct Room {
    requests: Memory,
    returned: Memory,
    expected: Vec<Vec<f32>>,
}

impl Room {
    fn new(case: &Case, node: &Node, end: &End, first: Option<&Picture>) -> Result<Self, Error> {
        let pictures = pictures(case, first);
        let bytes = case.request().bytes as usize;
        let room = Self {
            requests: end.host_memory(node, pictures.len() * bytes)?,
            returned: end.host_memory(node, case.answer().bytes as usize)?,
            expected: answered(&Model::new(case.architecture, case.seed), &pictures),
        };
        for (index, picture) in pictures.iter().enumerate() {
            let picture = bytes_of(&picture.values);
            room.requests.write(index * bytes, &picture);
        }
        Ok(room)
    }

    /// The answer that is there now.
    fn answer(&self) -> Vec<f32> {
        let bytes = self.returned.read(0, self.returned.len());
        let (values, _) = bytes.as_chunks::<{ VALUE as usize }>();
        values
            .iter()
            .map(|value| f32::from_ne_bytes(*value))
            .collect()
    }

    /// How many of its values are not those that a picture becomes.
    fn wrong(&self, picture: usize, answer: &[f32]) -> u64 {
        let should = &self.expected[picture];
        let both = answer.iter().zip(should);
        both.filter(|&(&came, &should)| !is_near(came, should))
            .count() as u64
    }

    fn guarded(&self) -> bool {
        let all = [&self.requests, &self.returned];
        all.iter().all(|memory| memory.check_guards().is_ok())
    }
}

/// What a client sees of its requests.
struct Seen {
    /// When the first one that counts was sent, and when the last was answered.
    span: Option<(Instant, Instant)>,
    /// When the next one is due.
    next: Instant,
    rounds: u64,
    dropped: u64,
    total: Duration,
    longest: u64,
    counts: Vec<u64>,
    wrong: u64,
    /// The first picture's newest answer.
    first: Vec<f32>,
}

impl Seen {
    fn new() -> Self {
        Self {
            span: None,
            next: Instant::now(),
            rounds: 0,
            dropped: 0,
            total: Duration::ZERO,
            longest: 0,
            counts: vec![0; BUCKETS as usize],
            wrong: 0,
            first: Vec::new(),
        }
    }

    /// Request number `number`, the first being 1, sent then, is answered now. Gives when the next one is due; none if
    /// that was the last.
    fn count(&mut self, number: u64, case: &Case, sent: Instant) -> Option<Instant> {
        let now = Instant::now();
        if number <= case.warm_up.into() {
            return Some(now);
        }
        let (began, _) = self.span.unwrap_or((sent, sent));
        if self.span.is_none() {
            self.next = sent;
        }
        self.span = Some((began, now));
        let took = now - sent;
        let nanoseconds = took.as_nanos() as u64;
        self.counts[bucket(nanoseconds) as usize] += 1;
        self.longest = self.longest.max(nanoseconds);
        self.total += took;
        self.rounds += 1;
        let enough = self.rounds >= case.rounds.into() || now - began >= case.limit;
        let due = match case.rate {
            None => now,
            Some(rate) => {
                let interval = Duration::from_secs_f64(1.0 / rate);
                self.next += interval;
                let late = now.saturating_duration_since(self.next);
                let missed = (late.as_nanos() / interval.as_nanos().max(1)) as u32;
                self.next += missed * interval;
                self.dropped += u64::from(missed);
                self.next
            }
        };
        (!enough).then_some(due)
    }

    fn answered(self, case: &Case, guarded: bool) -> Result<(Answered, Picture), Error> {
        let (Some(distribution), Some((began, ended))) =
            (Distribution::new(&self.counts, self.longest), self.span)
        else {
            return Err(warpbell_bench::run::Error::Interrupted.into());
        };
        let seconds = (ended - began).as_secs_f64();
        let answered = Answered {
            architecture: case.architecture,
            width: case.width,
            height: case.height,
            rounds: self.rounds,
            dropped: self.dropped,
            seconds,
            per_s: self.rounds as f64 / seconds,
            total_us: 1e6 * self.total.as_secs_f64() / self.rounds as f64,
            distribution,
            wrong: self.wrong,
            verified: self.wrong == 0 && guarded,
        };
        let larger = Picture {
            width: case.answer_size()[0] as usize,
            values: self.first,
        };
        Ok((answered, larger))
    }
}
