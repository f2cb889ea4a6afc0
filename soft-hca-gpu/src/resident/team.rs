//! The host's side of several engines that are one HCA.
//!
//! Every engine has every object, under the same number: they carry out the same commands in the same
//! order, and give numbers away in the same manner. Of a queue pair one engine is the home, and no other
//! takes it past INIT; only there its doorbell is heard. Both ends of a connection have the same home,
//! because packets travel within one engine: whoever is connected first goes to the engine with the fewest
//! queue pairs, and its peer follows. Queue pairs that wait for others or are started by them, or that have
//! a completion queue in common with others, and their peers, all have the first engine: no engine sees the
//! completions of another.
//!
//! What must hold among all of them at once is one thing: a key that a peer's SEND takes away. They share the
//! words that say so.

use std::collections::{HashMap, HashSet};
use std::ops::Deref;
use std::prelude::v1::*;

use mlx5_wqe::{CqNumber, QpNumber};

use super::client::{Client, ClientError};
use super::mailbox::Mailbox;
use warpbell_soft_hca::engine::{Command, Reply, Transition};

/// Gives commands to several engines as if they were one.
#[derive(Debug)]
pub struct Team<B> {
    clients: Vec<Client<B>>,
    /// The engine that works for a queue pair.
    homes: HashMap<QpNumber, usize>,
    /// Queue pairs that have to do with the queues of others: they and their peers have the first engine.
    bound: HashSet<QpNumber>,
    /// Where the completions of queue pairs go.
    completions: HashMap<QpNumber, [CqNumber; 2]>,
}

impl<B: Deref<Target = Mailbox>> Team<B> {
    /// The engines behind these clients. None of them has carried out a command yet.
    pub fn new(clients: Vec<Client<B>>) -> Self {
        Self {
            clients,
            homes: HashMap::new(),
            bound: HashSet::new(),
            completions: HashMap::new(),
        }
    }

    /// Waits until all engines run.
    ///
    /// # Errors
    /// As [`Client::wait_for_start`], of the first that has one.
    pub fn wait_for_start(&self) -> Result<(), ClientError> {
        self.clients.iter().try_for_each(Client::wait_for_start)
    }

    /// Carries out a command; gives its reply's content.
    ///
    /// # Errors
    /// As [`Client::execute`], of the first engine that has one; [`ClientError::Disagree`], [`ClientError::Elsewhere`].
    ///
    /// # Safety
    /// As for [`Client::execute`].
    pub unsafe fn execute(&mut self, command: Command) -> Result<Reply, ClientError> {
        let one = match command {
            Command::PollEvent => return self.poll_event(),
            Command::CreateQueuePair(made) => {
                let mut others = self.others([made.send_cq, made.receive_cq]);
                if others.any(|other| self.home(other) != 0) {
                    return Err(ClientError::Elsewhere);
                }
                None
            }
            Command::ModifyQueuePair(_, Transition::Init { .. } | Transition::Reset) => None,
            Command::ModifyQueuePair(qp, Transition::ReadyToReceive(with)) => {
                Some((qp, self.home_of([qp, with.remote_qp])))
            }
            Command::ModifyQueuePair(qp, _)
            | Command::QueryQueuePair(qp)
            | Command::FailSend { queue_pair: qp, .. } => Some((qp, self.home(qp))),
            _ => None,
        };
        let Some((qp, engine)) = one else {
            // SAFETY: the caller's promise is passed on unchanged.
            return unsafe { self.execute_on_all(command) };
        };
        // SAFETY: as above.
        let reply = unsafe { self.clients[engine].execute(command)? };
        if matches!(command, Command::ModifyQueuePair(..)) {
            self.homes.insert(qp, engine);
        }
        Ok(reply)
    }

    /// # Safety
    /// As for `execute`.
    unsafe fn execute_on_all(&mut self, command: Command) -> Result<Reply, ClientError> {
        // All before the first, because a command that not all carry out would set them apart.
        self.clients.iter().try_for_each(Client::wait_for_reply)?;
        for client in &mut self.clients {
            // SAFETY: the caller's promise is passed on unchanged.
            unsafe { client.send(&command) };
        }
        let mut replies = self.clients.iter().map(Client::reply);
        let first = replies.next().ok_or(ClientError::Ended)?;
        // All are waited for, whatever the first one says.
        let others: Vec<_> = replies.collect();
        if let Command::DestroyQueuePair(qp) | Command::ModifyQueuePair(qp, Transition::Reset) =
            command
            && first.is_ok()
        {
            self.homes.remove(&qp);
        }
        match (command, &first) {
            (Command::CreateQueuePair(made), &Ok(Reply::QueuePair(qp))) => {
                let completions = [made.send_cq, made.receive_cq];
                let others: Vec<_> = self.others(completions).collect();
                if !made.cross_channel.is_empty() || !others.is_empty() {
                    self.bound.insert(qp);
                }
                self.bound.extend(others);
                self.completions.insert(qp, completions);
            }
            (Command::DestroyQueuePair(qp), Ok(_)) => {
                self.bound.remove(&qp);
                self.completions.remove(&qp);
            }
            _ => {}
        }
        for other in others {
            if other != first {
                // One that did not answer says more than that it differs.
                other?;
                first?;
                return Err(ClientError::Disagree);
            }
        }
        first
    }

    /// The next event of any engine.
    fn poll_event(&mut self) -> Result<Reply, ClientError> {
        for client in &mut self.clients {
            // SAFETY: the command names no memory.
            match unsafe { client.execute(Command::PollEvent)? } {
                Reply::Event(None) => {}
                event => return Ok(event),
            }
        }
        Ok(Reply::Event(None))
    }

    /// The home of a queue pair; the first engine will do for one that has none yet.
    fn home(&self, qp: QpNumber) -> usize {
        self.homes.get(&qp).copied().unwrap_or(0)
    }

    /// The queue pairs with a completion queue that is one of these.
    fn others(&self, completions: [CqNumber; 2]) -> impl Iterator<Item = QpNumber> + '_ {
        let has = move |of: &[CqNumber; 2]| of.iter().any(|cq| completions.contains(cq));
        let others = self.completions.iter().filter(move |(_, of)| has(of));
        others.map(|(&other, _)| other)
    }

    /// Where a queue pair goes that is connected with `peer`.
    fn home_of(&self, [own, peer]: [QpNumber; 2]) -> usize {
        if [own, peer].iter().any(|qp| self.bound.contains(qp)) {
            return 0;
        }
        let busy = |engine: &usize| self.homes.values().filter(|home| *home == engine).count();
        let idlest = || (0..self.clients.len()).min_by_key(busy);
        let home = self.homes.get(&peer).copied();
        home.or_else(idlest).unwrap_or(0)
    }

    /// Asks all engines to end, and waits until they have touched their last byte.
    ///
    /// # Errors
    /// As [`Client::stop`], of the first that has one: their memory must not be freed.
    pub fn stop(&mut self) -> Result<(), ClientError> {
        // All before the first is waited for.
        for client in &self.clients {
            client.mailbox.stop();
        }
        let ended: Vec<_> = self.clients.iter_mut().map(Client::stop).collect();
        ended.into_iter().collect()
    }
}
