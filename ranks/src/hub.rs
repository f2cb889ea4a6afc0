//! Rank 0's side: admits ranks, and answers their calls.
//!
//! One thread serves all connections, that of rank 0 itself included. So a rank that dies is noticed while rank 0
//! computes. Messages are small, and a star of 1,000 ranks is quick enough; a tree would have inner ranks that die.

use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use zerocopy::IntoBytes;

use crate::address::Door;
use crate::caller::Caller;
use crate::link::Link;
use crate::message::{Body, ToRank, ToRoot, decode, join};
use crate::secret::{Key, random};
use crate::stream::{Came, Stream, deadline, wait};
use crate::wire::{Damaged, Frames, Hello, Session};
use crate::{Collective, FailedRank, JobFailure, LARGEST_CONTRIBUTION, RanksError};

/// How long rank 0 waits at its end for ranks that take no more bytes.
const LINGER: Duration = Duration::from_secs(1);

/// Fewest connections that may be unauthenticated at once.
const FEWEST_CALLERS: usize = 64;

/// A rank that has joined.
struct Member {
    stream: Stream,
    sealer: Frames,
    opener: Frames,
    /// What is to be sent. All ranks share the body of an answer.
    outbox: VecDeque<Arc<[u8]>>,
    /// Bytes of the first one that have been sent.
    sent: usize,
}

impl Member {
    fn new(stream: Stream, session: &Session) -> Self {
        Self {
            stream,
            sealer: session.to_rank(),
            opener: session.to_root(),
            outbox: VecDeque::new(),
            sent: 0,
        }
    }

    fn say(&mut self, body: &Body) {
        let head = self.sealer.seal(body);
        self.outbox.push_back(head.as_bytes().into());
        if !body.bytes.is_empty() {
            self.outbox.push_back(body.bytes.clone());
        }
    }

    /// Sends what the system takes now; whether it took any.
    fn flush(&mut self) -> bool {
        let mut progress = false;
        while let Some(bytes) = self.outbox.front() {
            match self.stream.send_some(&bytes[self.sent..]) {
                Ok(0) => break,
                Ok(sent) => self.sent += sent,
                // What it said last may be there still: `serve` takes it, and finds the end.
                Err(_) => {
                    self.outbox.clear();
                    self.sent = 0;
                }
            }
            progress = true;
            if self
                .outbox
                .front()
                .is_some_and(|bytes| bytes.len() == self.sent)
            {
                self.outbox.pop_front();
                self.sent = 0;
            }
        }
        progress
    }

    /// The next message of what has come, and the bytes behind it.
    fn next_message(&mut self) -> Result<Option<(ToRoot, Vec<u8>)>, Damaged> {
        let Some(body) = self.opener.open(&mut self.stream.inbox)? else {
            return Ok(None);
        };
        let (message, behind) = decode(&body)?;
        Ok(Some((message, behind.into())))
    }
}

/// A rank's place.
#[derive(Default)]
struct Seat {
    member: Option<Box<Member>>,
    /// Its rank makes no more calls. One that went without a word has failed the job.
    left: bool,
}

/// The call that ranks are making.
struct Round {
    /// Who made it first, and what it is.
    first: (u32, Collective),
    /// By rank.
    contributions: Vec<Option<Vec<u8>>>,
    /// When the first timeout passes; whose, and how long it is.
    deadline: (Instant, u32, Duration),
}

/// Admits ranks, and answers their calls.
pub(crate) struct Hub {
    door: Door,
    key: Key,
    /// Connections that have not shown who they are; the oldest one first.
    callers: VecDeque<Caller>,
    /// Whether a stranger has been reported. A flood of them does not fill the log.
    warned: bool,
    seats: Vec<Seat>,
    round: Option<Round>,
    failed: Option<JobFailure>,
    /// When the hub ends, once rank 0 has.
    ending: Option<Instant>,
}

impl Hub {
    /// A hub for so many ranks, and rank 0's link to it.
    pub(crate) fn new(door: Door, size: u32, key: Key) -> Result<(Self, Link), RanksError> {
        let seats = size as usize;
        // As many again for the program.
        let needed = (seats + FEWEST_CALLERS.max(seats) + FEWEST_CALLERS) as u64;
        match getrlimit(Resource::Nofile).current {
            Some(limit) if limit < needed => {
                return Err(RanksError::TooFewFiles { needed, limit });
            }
            _ => {}
        }
        let (ours, theirs) = UnixStream::pair()?;
        let hello = Hello::new(0, size, random()?);
        let (session, _) = Session::challenge(&key, &hello, random()?);
        let mut hub = Self {
            door,
            key,
            callers: VecDeque::new(),
            warned: false,
            seats: (0..seats).map(|_| Seat::default()).collect(),
            round: None,
            failed: None,
            ending: None,
        };
        let zero = Member::new(Stream::new(theirs), &session);
        hub.seats[0].member = Some(Box::new(zero));
        Ok((hub, Link::new(Stream::new(ours), &session)))
    }

    /// Serves until rank 0 has ended.
    pub(crate) fn run(mut self) {
        while !self.is_over() {
            if let Err(error) = self.turn() {
                tracing::error!(%error, "the hub of the ranks ends");
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        let empty = self.seats.iter().all(|seat| seat.member.is_none());
        self.ending
            .is_some_and(|end| empty || Instant::now() >= end)
    }

    fn turn(&mut self) -> io::Result<()> {
        let mut sockets = Vec::with_capacity(1 + self.callers.len() + self.seats.len());
        let listens = self.ending.is_none();
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, listens);
        sockets.push(PollFd::new(&self.door.socket, flags));
        let callers = self.callers.iter().map(|caller| &caller.stream.socket);
        sockets.extend(callers.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let mut ranks = Vec::with_capacity(self.seats.len());
        for (rank, seat) in (0..).zip(&self.seats) {
            if let Some(member) = &seat.member {
                let mut flags = PollFlags::IN;
                flags.set(PollFlags::OUT, !member.outbox.is_empty());
                sockets.push(PollFd::new(&member.stream.socket, flags));
                ranks.push(rank);
            }
        }
        wait(&mut sockets, self.next_deadline())?;

        let ready: Vec<_> = sockets
            .iter()
            .map(|one| !one.revents().is_empty())
            .collect();
        let (callers, members) = ready[1..].split_at(self.callers.len());
        for (rank, ready) in ranks.into_iter().zip(members) {
            if *ready {
                self.serve(rank);
            }
        }
        // Those who are there are heard before more come.
        self.hear(callers);
        if ready[0] && listens {
            self.accept();
        }
        self.expire();
        self.flush();
        Ok(())
    }

    fn next_deadline(&self) -> Option<Instant> {
        let callers = self.callers.iter().map(|caller| caller.deadline);
        let round = self.round.iter().map(|round| round.deadline.0);
        callers.chain(round).chain(self.ending).min()
    }

    /// Takes those who call. If there are too many, the oldest is dropped: ranks answer at once, and try again.
    fn accept(&mut self) {
        let most = FEWEST_CALLERS.max(self.seats.len());
        for _ in 0..FEWEST_CALLERS {
            match self.door.accept() {
                Ok(None) => {}
                Ok(Some(socket)) => {
                    if self.callers.len() == most {
                        self.callers.pop_front();
                    }
                    self.callers.push_back(Caller::new(socket));
                }
                Err(Errno::AGAIN) => return,
                Err(error @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)) => {
                    tracing::debug!(%error, "a connection to the ranks was not accepted");
                    self.callers.pop_front();
                    return std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => tracing::debug!(%error, "a caller went before it was accepted"),
            }
        }
    }

    fn hear(&mut self, ready: &[bool]) {
        let callers = std::mem::take(&mut self.callers);
        for (mut caller, ready) in callers.into_iter().zip(ready) {
            let heard = if *ready {
                caller.hear(&self.key)
            } else {
                Ok(None)
            };
            match heard {
                Ok(None) => self.callers.push_back(caller),
                Ok(Some((hello, session))) => self.admit(caller.stream, &hello, &session),
                Err(Some(stranger)) if !self.warned => {
                    self.warned = true;
                    tracing::warn!(
                        ?stranger,
                        "a stranger called the ranks; no other one is reported"
                    );
                }
                Err(_) => {}
            }
        }
    }

    /// Gives a rank that knows the secret its seat.
    fn admit(&mut self, stream: Stream, hello: &Hello, session: &Session) {
        let (rank, size) = (hello.rank.get(), self.seats.len() as u32);
        let seat = self.seats.get_mut(rank as usize);
        let seat = seat.filter(|seat| hello.size == size && seat.member.is_none() && !seat.left);
        let admitted = seat.is_some();
        let mut member = Member::new(stream, session);
        member.say(&Body::new(&ToRank::Verdict { size, admitted }, &[]));
        if let Some(seat) = seat {
            if let Some(failure) = &self.failed {
                member.say(&Body::new(&ToRank::Failed(failure.clone()), &[]));
            }
            seat.member = Some(Box::new(member));
        } else {
            tracing::warn!(rank, size = hello.size.get(), "a rank was refused");
            // The socket is fresh, so the system has room for the few bytes.
            member.flush();
        }
    }

    /// Takes what a rank has said.
    fn serve(&mut self, rank: u32) {
        let Some(member) = &mut self.seats[rank as usize].member else {
            return;
        };
        let came = member.stream.receive_some(usize::MAX);
        let mut messages = Vec::new();
        let damaged = loop {
            match member.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break false,
                Err(Damaged) => break true,
            }
        };
        for (message, behind) in messages {
            self.take(rank, message, behind);
        }
        if damaged {
            self.fail(rank, FailedRank::Damaged);
        }
        if damaged || came == Came::End {
            self.close(rank);
        }
    }

    fn take(&mut self, rank: u32, message: ToRoot, behind: Vec<u8>) {
        match message {
            ToRoot::Abort(reason) => self.fail(rank, FailedRank::Aborted(reason)),
            ToRoot::Bye => {
                self.seats[rank as usize].left = true;
                // Those who wait would wait for ever.
                if self.round.is_some() {
                    self.fail(rank, FailedRank::Left);
                }
            }
            ToRoot::Call(call, timeout) if self.failed.is_none() => {
                self.call(rank, call, timeout, behind);
            }
            ToRoot::Call(..) => {}
        }
    }

    fn call(&mut self, rank: u32, call: Collective, timeout: Duration, bytes: Vec<u8>) {
        let ends = (deadline(timeout), rank, timeout);
        let seats = self.seats.len();
        let round = self.round.get_or_insert_with(|| Round {
            first: (rank, call),
            contributions: vec![None; seats],
            deadline: ends,
        });
        let (other, other_call) = round.first;
        if other_call != call {
            let why = FailedRank::OutOfStep {
                call,
                other,
                other_call,
            };
            return self.fail(rank, why);
        }
        if ends.0 < round.deadline.0 {
            round.deadline = ends;
        }
        let place = &mut round.contributions[rank as usize];
        // A rank that calls waits for the answer before it calls again.
        if place.is_some() || bytes.len() > LARGEST_CONTRIBUTION {
            return self.fail(rank, FailedRank::Damaged);
        }
        *place = Some(bytes);
        if let Some(left) = self.seats.iter().position(|seat| seat.left) {
            return self.fail(left as u32, FailedRank::Left);
        }
        if round.contributions.iter().all(Option::is_some) {
            let all = std::mem::take(&mut round.contributions);
            self.round = None;
            let behind = match call {
                Collective::Allgather => join(all.into_iter().flatten()),
                Collective::Barrier => Vec::new(),
            };
            self.say_to_all(&ToRank::Done, &behind);
        }
    }

    fn say_to_all(&mut self, message: &ToRank, behind: &[u8]) {
        let body = Body::new(message, behind);
        for member in self
            .seats
            .iter_mut()
            .filter_map(|seat| seat.member.as_mut())
        {
            member.say(&body);
        }
    }

    /// Tells all ranks the first cause, now or when they join.
    fn fail(&mut self, rank: u32, why: FailedRank) {
        if self.failed.is_some() {
            return;
        }
        let failure = JobFailure { rank, why };
        tracing::debug!(%failure, "the job of the ranks failed");
        self.round = None;
        self.say_to_all(&ToRank::Failed(failure.clone()), &[]);
        self.failed = Some(failure);
    }

    fn close(&mut self, rank: u32) {
        let seat = &mut self.seats[rank as usize];
        seat.member = None;
        if !std::mem::replace(&mut seat.left, true) {
            self.fail(rank, FailedRank::Lost);
        }
        if rank == 0 {
            self.fail(rank, FailedRank::Left);
            self.ending = Some(Instant::now() + LINGER);
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        self.callers.retain(|caller| caller.deadline > now);
        if let Some(round) = self.round.take_if(|round| round.deadline.0 <= now) {
            let ((_, rank, timeout), (_, call)) = (round.deadline, round.first);
            let ranks = (0..).zip(&round.contributions);
            let missing = ranks
                .filter(|one| one.1.is_none())
                .map(|one| one.0)
                .collect();
            let why = FailedRank::TimedOut {
                call,
                timeout,
                missing,
            };
            self.fail(rank, why);
        }
    }

    /// Sends what is due: to rank 0 last, because its process may end with its answer.
    fn flush(&mut self) {
        for seat in self.seats.iter_mut().rev() {
            if seat.member.as_mut().is_some_and(|member| member.flush()) {
                self.ending = self.ending.and(Some(Instant::now() + LINGER));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpStream;

    use super::*;

    /// The oldest caller makes room for one too many, and a caller that says nothing is sent away in time.
    #[test]
    fn callers_are_few_and_do_not_stay() {
        let (door, port) = Door::tcp(Some([127, 0, 0, 1].into()), 0).unwrap();
        let (mut hub, _zero) = Hub::new(door, 2, Key::of(None)).unwrap();
        let call = |_| TcpStream::connect(("127.0.0.1", port)).unwrap();
        let mut callers: Vec<_> = (0..FEWEST_CALLERS + 2).map(call).collect();
        let last = callers.last().unwrap().local_addr().unwrap();
        let newest = |hub: &Hub| {
            let socket = hub.callers.back()?.stream.socket.try_clone().unwrap();
            TcpStream::from(socket).peer_addr().ok()
        };
        while newest(&hub) != Some(last) {
            hub.turn().unwrap();
        }
        assert_eq!(hub.callers.len(), FEWEST_CALLERS);
        let mut ended = |at: usize| {
            callers[at].set_nonblocking(true).unwrap();
            callers[at].read(&mut [0]).is_ok()
        };
        assert!(ended(0) && ended(1) && !ended(2));
        for caller in &mut hub.callers {
            caller.deadline = Instant::now();
        }
        hub.turn().unwrap();
        assert!(hub.callers.is_empty() && ended(2));
    }
}
