//! Rank 0's side: admits ranks, and answers their calls.
//!
//! One thread serves all connections, that of rank 0 itself included. So a rank that dies is noticed while rank 0
//! computes. Messages are small, and a star of 1,000 ranks is quick enough; a tree would have inner ranks that die.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::address::Door;
use crate::caller::Caller;
use crate::link::Link;
use crate::member::Member;
use crate::message::{Body, ToRank, ToRoot, join};
use crate::seat::{Part, Round, Seat, group, is_among};
use crate::secret::{Key, random};
use crate::stream::{Came, Stream, deadline, wait};
use crate::wire::{Damaged, Hello, Session};
use crate::{Collective, FailedRank, JobFailure, LARGEST_CONTRIBUTION, RanksError};

/// How long rank 0 waits at its end for ranks that take no more bytes.
const LINGER: Duration = Duration::from_secs(1);

/// Fewest connections that may be unauthenticated at once.
const FEWEST_CALLERS: usize = 64;

/// Admits ranks, and answers their calls.
pub(crate) struct Hub {
    door: Door,
    key: Key,
    /// Connections that have not shown who they are; the oldest one first.
    callers: VecDeque<Caller>,
    /// Whether a stranger has been reported. A flood of them does not fill the log.
    warned: bool,
    seats: Vec<Seat>,
    /// One of all ranks, or several of groups.
    rounds: Vec<Round>,
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
            rounds: Vec::new(),
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
        let ready_ranks = ranks.into_iter().zip(members).filter(|(_, ready)| **ready);
        let mut ready_ranks: Vec<u32> = ready_ranks.map(|(rank, _)| rank).collect();
        // A new process that has given up is not taken in.
        ready_ranks.sort_by_key(|rank| !matches!(self.seats[*rank as usize].part, Part::Back(_)));
        for rank in ready_ranks {
            self.serve(rank);
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
        let rounds = self.rounds.iter().map(|round| round.deadline.0);
        callers.chain(rounds).chain(self.ending).min()
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
        let seat = seat.filter(|seat| hello.size == size && seat.member.is_none());
        // A rank that said goodbye while calls fail is one that failed, and its new process may be here before the others
        // shrink.
        let fails = self.failed.is_some();
        let has_failed = |seat: &Seat| seat.part == Part::Out || fails && seat.part == Part::Left;
        let seat = seat.filter(|seat| seat.part == Part::In || has_failed(seat));
        let admitted = seat.is_some();
        let returned = seat.as_deref().is_some_and(has_failed);
        let mut member = Member::new(stream, session);
        let verdict = ToRank::Verdict {
            size,
            admitted,
            returned,
        };
        member.say(&Body::new(&verdict, &[]));
        let Some(seat) = seat else {
            tracing::warn!(rank, size = hello.size.get(), "a rank was refused");
            // The socket is fresh, so the system has room for the few bytes.
            member.flush();
            return;
        };
        if returned {
            seat.part = Part::Back(None);
        } else if let Some(failure) = &self.failed {
            member.say(&Body::new(&ToRank::Failed(failure.clone()), &[]));
        }
        seat.member = Some(Box::new(member));
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
            self.close(rank, FailedRank::Damaged);
        } else if came == Came::End {
            self.close(rank, FailedRank::Lost);
        }
    }

    fn take(&mut self, rank: u32, message: ToRoot, behind: Vec<u8>) {
        let seat = &mut self.seats[rank as usize];
        match (&mut seat.part, message) {
            (Part::Back(brought), ToRoot::Call(call, _)) if call == Collective::TakeIn(rank) => {
                *brought = Some(behind);
                self.settle();
            }
            (Part::Back(_), _) => self.close(rank, FailedRank::Left),
            // The end of its connection follows.
            (Part::Left | Part::Out, _) => {}
            (Part::In, ToRoot::Abort(reason)) => self.fail(rank, FailedRank::Aborted(reason)),
            (Part::In, ToRoot::Bye) => {
                seat.part = Part::Left;
                // Those who wait would wait for ever.
                self.settle();
            }
            (Part::In, ToRoot::Call(call, timeout)) => self.call(rank, call, timeout, behind),
        }
    }

    fn call(&mut self, rank: u32, call: Collective, timeout: Duration, bytes: Vec<u8>) {
        match &self.failed {
            None if call == Collective::Shrink => self.fail(rank, FailedRank::Shrinks),
            // It has been told.
            Some(_) if call != Collective::Shrink => return,
            _ => {}
        }
        let of = (call == Collective::BarrierOf).then(|| group(&bytes));
        let size = self.seats.len() as u32;
        let is_wrong = bytes.len() > LARGEST_CONTRIBUTION
            || matches!(call, Collective::TakeIn(rank) if rank >= size)
            || of.as_ref().is_some_and(|of| !of.contains(&rank) || of.last() >= Some(&size))
            // A rank that calls waits for the answer before it calls again.
            || self.rounds.iter().any(|round| round.contributions[rank as usize].is_some());
        if is_wrong {
            return self.close(rank, FailedRank::Damaged);
        }
        if let Some((other, other_call)) = self.circle(rank, call, of.as_ref()) {
            let why = FailedRank::OutOfStep {
                call,
                other,
                other_call,
            };
            return self.fail(rank, why);
        }
        let ends = (deadline(timeout), rank, timeout);
        let at = self
            .rounds
            .iter()
            .position(|round| round.is(call, of.as_ref()));
        let at = at.unwrap_or_else(|| {
            self.rounds.push(Round {
                call,
                of,
                contributions: vec![None; size as usize],
                deadline: ends,
            });
            self.rounds.len() - 1
        });
        let round = &mut self.rounds[at];
        if ends.0 < round.deadline.0 {
            round.deadline = ends;
        }
        round.contributions[rank as usize] = Some(bytes);
        self.settle();
    }

    /// Another rank that waits for this one in another call, and for which this call of this one would wait.
    fn circle(
        &self,
        rank: u32,
        call: Collective,
        of: Option<&BTreeSet<u32>>,
    ) -> Option<(u32, Collective)> {
        let others = self.rounds.iter().filter(|round| !round.is(call, of));
        others.filter(|round| round.awaits(rank)).find_map(|round| {
            let other = round.callers().find(|other| is_among(of, *other))?;
            Some((other, round.call))
        })
    }

    /// Answers the calls that all have made, and fails one that waits for a rank that has left.
    fn settle(&mut self) {
        let mut at = 0;
        while let Some(round) = self.rounds.get(at) {
            let shrinks = round.call == Collective::Shrink;
            let missing = |part: &Part| {
                let seats = (0..).zip(&self.seats);
                let missing =
                    seats.filter(|(rank, seat)| seat.part == *part && round.awaits(*rank));
                missing.map(|(rank, _)| rank).next()
            };
            if let (false, Some(left)) = (shrinks, missing(&Part::Left)) {
                return self.fail(left, FailedRank::Left);
            }
            let is_ready = match round.call {
                // Without rank 0 nobody goes on.
                Collective::Shrink => self.seats[0].part == Part::In,
                Collective::TakeIn(rank) => match &self.seats[rank as usize].part {
                    Part::Back(brought) => brought.is_some(),
                    part => *part == Part::In,
                },
                _ => true,
            };
            if missing(&Part::In).is_some() || !is_ready {
                at += 1;
                continue;
            }
            let round = self.rounds.remove(at);
            self.finish(round);
        }
    }

    /// Answers a call.
    fn finish(&mut self, mut round: Round) {
        match round.call {
            Collective::Allgather => {
                let all = round.contributions.into_iter().flatten();
                self.say_to(|_| true, &ToRank::Done, &join(all));
            }
            Collective::Barrier | Collective::BarrierOf => {
                let of = round.of.as_ref();
                self.say_to(|rank| is_among(of, rank), &ToRank::Done, &[]);
            }
            Collective::Shrink => {
                for seat in &mut self.seats {
                    if seat.part == Part::Left {
                        seat.part = Part::Out;
                    }
                }
                self.failed = None;
                self.regroup(round.contributions);
            }
            Collective::TakeIn(rank) => {
                let part = &mut self.seats[rank as usize].part;
                if let Part::Back(brought) = part
                    && brought.is_some()
                {
                    round.contributions[rank as usize] = brought.take();
                    *part = Part::In;
                }
                self.regroup(round.contributions);
            }
        }
    }

    /// Says who takes part from now on, and what they brought.
    fn regroup(&mut self, contributions: Vec<Option<Vec<u8>>>) {
        let seats = (0..).zip(&self.seats).zip(contributions);
        let taking_part = seats.filter(|((_, seat), _)| seat.part == Part::In);
        let (ranks, brought): (Vec<u32>, Vec<_>) = taking_part
            .map(|((rank, _), brought)| (rank, brought))
            .unzip();
        let brought = join(brought.into_iter().flatten());
        self.say_to(|_| true, &ToRank::Group(ranks), &brought);
    }

    fn say_to(&mut self, to: impl Fn(u32) -> bool, message: &ToRank, behind: &[u8]) {
        let body = Body::new(message, behind);
        for (rank, seat) in (0..).zip(&mut self.seats) {
            if let Some(member) = seat.hears().filter(|_| to(rank)) {
                member.say(&body);
            }
        }
    }

    /// Tells all ranks the first cause, now or when they join; after it, who else is gone.
    fn fail(&mut self, rank: u32, why: FailedRank) {
        let is_first = self.failed.is_none();
        if !is_first && !matches!(why, FailedRank::Lost | FailedRank::Damaged) {
            return;
        }
        let failure = JobFailure { rank, why };
        tracing::debug!(%failure, "the calls of the ranks fail");
        self.say_to(|_| true, &ToRank::Failed(failure.clone()), &[]);
        if is_first {
            self.rounds.clear();
            self.failed = Some(failure);
        }
    }

    fn close(&mut self, rank: u32, why: FailedRank) {
        let seat = &mut self.seats[rank as usize];
        seat.member = None;
        match seat.part {
            Part::In => {
                seat.part = Part::Out;
                self.fail(rank, why);
            }
            Part::Back(_) => seat.part = Part::Out,
            Part::Left | Part::Out => {}
        }
        if rank == 0 {
            self.fail(rank, FailedRank::Left);
            self.ending = Some(Instant::now() + LINGER);
        }
        self.settle();
    }

    /// Goes on without a rank that did not call in time. Without rank 0 nobody goes on.
    fn leave_out(&mut self, rank: u32, timeout: Duration) {
        let seat = &mut self.seats[rank as usize];
        seat.part = Part::Out;
        if let Some(mut member) = seat.member.take() {
            let why = FailedRank::LeftOut(timeout);
            let failure = ToRank::Failed(JobFailure { rank, why });
            member.say(&Body::new(&failure, &[]));
            // A rank that takes nothing any more finds the end of its connection.
            member.flush();
        }
        if rank == 0 {
            self.ending = Some(Instant::now());
        }
    }

    fn expire(&mut self) {
        let now = Instant::now();
        self.callers.retain(|caller| caller.deadline > now);
        let late = |round: &Round| round.deadline.0 <= now;
        while let Some(at) = self.rounds.iter().position(late) {
            let (_, rank, timeout) = self.rounds[at].deadline;
            let call = self.rounds[at].call;
            let seats = (0..).zip(&self.seats);
            let missing = seats.filter(|(rank, seat)| {
                let here = matches!(seat.part, Part::In | Part::Left);
                here && self.rounds[at].awaits(*rank)
            });
            let missing: Vec<u32> = missing.map(|(rank, _)| rank).collect();
            let round = self.rounds.remove(at);
            match call {
                Collective::Shrink => {
                    for &rank in &missing {
                        self.leave_out(rank, timeout);
                    }
                    if self.seats[0].part == Part::In {
                        self.finish(round);
                    }
                }
                // The new process alone is missing.
                Collective::TakeIn(_) if missing.is_empty() => self.finish(round),
                _ => {
                    let why = FailedRank::TimedOut {
                        call,
                        timeout,
                        missing,
                    };
                    self.fail(rank, why);
                }
            }
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
