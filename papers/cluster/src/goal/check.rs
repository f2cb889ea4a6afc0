//! From a schedule to a program: messages are paired with their receives, and nothing waits for itself.

use std::collections::{HashMap, VecDeque};

use super::{Error, Operation, Schedule, Steps};

/// A schedule that ends.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// What each rank does.
    pub ranks: Vec<Rank>,
}

/// What a rank does, as the simulation reads it.
#[derive(Clone, Debug, Default)]
pub struct Rank {
    /// The operations.
    pub operations: Vec<Operation>,
    /// How many operations each waits for, without the message of a receive.
    pub waits: Vec<u32>,
    /// Those that wait for the end of each.
    pub after_end: Followers,
    /// Those that wait for the start of each.
    pub after_start: Followers,
    /// Whether each waits for the end of a receive.
    pub after_message: Vec<bool>,
    /// Whether each is a send that a NIC could do by itself: it waits for receives, and for nothing else, and these wait
    /// for nothing but their messages.
    pub relays: Vec<bool>,
    /// For a send, the number of its receive at the destination; 0 for others.
    pub partner: Vec<u32>,
}

/// For each operation a list of others, one after the other in one array.
#[derive(Clone, Debug, Default)]
pub struct Followers {
    starts: Vec<u32>,
    all: Vec<u32>,
}

impl Followers {
    /// From pairs of a follower and the operation that it follows.
    fn new(operations: usize, pairs: &[(u32, u32)]) -> Self {
        let mut starts = vec![0; operations + 1];
        for (_, earlier) in pairs {
            starts[*earlier as usize + 1] += 1;
        }
        for at in 0..operations {
            starts[at + 1] += starts[at];
        }
        let mut next = starts.clone();
        let mut all = vec![0; pairs.len()];
        for (later, earlier) in pairs {
            let place = &mut next[*earlier as usize];
            all[*place as usize] = *later;
            *place += 1;
        }
        Self { starts, all }
    }

    /// The followers of an operation.
    pub fn of(&self, operation: u32) -> &[u32] {
        let operation = operation as usize;
        &self.all[self.starts[operation] as usize..self.starts[operation + 1] as usize]
    }
}

impl Schedule {
    /// Pairs sends with receives, and looks for operations that wait for each other, over all ranks.
    ///
    /// # Errors
    ///
    /// [`Error::MissingReceive`], [`Error::MissingSend`], [`Error::TooLittleRoom`] or [`Error::Cycle`].
    pub fn check(self) -> Result<Program, Error> {
        let partners = pair(&self.ranks)?;
        let lines: Vec<Vec<u32>> = self.ranks.iter().map(|rank| rank.lines.clone()).collect();
        let ranks = self.ranks.into_iter().zip(partners);
        let ranks = ranks.map(|(steps, partner)| {
            let count = steps.operations.len();
            let mut waits = vec![0; count];
            for (later, _) in steps.requires.iter().chain(&steps.irequires) {
                waits[*later as usize] += 1;
            }
            let receives = |operation: u32| {
                let operation = steps.operations[operation as usize];
                matches!(operation, Operation::Receive { .. })
            };
            let mut after_message = vec![false; count];
            let mut others = vec![false; count];
            for (later, earlier) in &steps.requires {
                after_message[*later as usize] |= receives(*earlier);
                others[*later as usize] |= !receives(*earlier) || waits[*earlier as usize] > 0;
            }
            for (later, _) in &steps.irequires {
                others[*later as usize] = true;
            }
            let relays = steps
                .operations
                .iter()
                .enumerate()
                .map(|(number, operation)| {
                    let send = matches!(operation, Operation::Send { .. });
                    send && after_message[number] && !others[number]
                });
            Rank {
                relays: relays.collect(),
                after_message,
                waits,
                after_end: Followers::new(count, &steps.requires),
                after_start: Followers::new(count, &steps.irequires),
                operations: steps.operations,
                partner,
            }
        });
        let program = Program {
            ranks: ranks.collect(),
        };
        match program.stuck() {
            None => Ok(program),
            Some((rank, operation)) => {
                let line = lines[rank as usize].get(operation as usize);
                let line = line.copied().unwrap_or(0);
                Err(Error::Cycle { line, rank })
            }
        }
    }
}

/// For each send of each rank the number of its receive.
fn pair(ranks: &[Steps]) -> Result<Vec<Vec<u32>>, Error> {
    let mut receives: HashMap<(u32, u32, u32), VecDeque<u32>> = HashMap::new();
    for (to, steps) in ranks.iter().enumerate() {
        for (number, operation) in steps.operations.iter().enumerate() {
            if let Operation::Receive { from, tag, .. } = *operation {
                let queue = receives.entry((from, to as u32, tag)).or_default();
                queue.push_back(number as u32);
            }
        }
    }
    let mut partners = Vec::with_capacity(ranks.len());
    for (from, steps) in ranks.iter().enumerate() {
        let from = from as u32;
        let mut partner = vec![0; steps.operations.len()];
        for (number, operation) in steps.operations.iter().enumerate() {
            let Operation::Send { bytes, to, tag } = *operation else {
                continue;
            };
            let line = steps.line(number as u32);
            let queue = receives.get_mut(&(from, to, tag));
            let Some(receive) = queue.and_then(VecDeque::pop_front) else {
                return Err(Error::MissingReceive {
                    line,
                    from,
                    to,
                    tag,
                });
            };
            partner[number] = receive;
            let target = &ranks[to as usize];
            if let Operation::Receive { bytes: room, .. } = target.operations[receive as usize]
                && room < bytes
            {
                return Err(Error::TooLittleRoom {
                    line: target.line(receive),
                    sender: line,
                    room,
                    bytes,
                });
            }
        }
        partners.push(partner);
    }
    // The least place, because a map has no order.
    let rest = receives.iter().filter_map(|(&(from, to, tag), queue)| {
        let receive = *queue.front()?;
        Some((to, receive, from, tag))
    });
    match rest.min() {
        None => Ok(partners),
        Some((to, receive, from, tag)) => Err(Error::MissingSend {
            line: ranks[to as usize].line(receive),
            from,
            to,
            tag,
        }),
    }
}

impl Program {
    /// An operation on a cycle, as its rank and number.
    fn stuck(&self) -> Option<(u32, u32)> {
        let mut waits: Vec<Vec<u32>> = self.ranks.iter().map(|rank| rank.waits.clone()).collect();
        for rank in &self.ranks {
            for (operation, partner) in rank.operations.iter().zip(&rank.partner) {
                if let Operation::Send { to, .. } = operation {
                    waits[*to as usize][*partner as usize] += 1;
                }
            }
        }
        let mut ready = Vec::new();
        for (rank, waits) in waits.iter().enumerate() {
            for (operation, waits) in waits.iter().enumerate() {
                if *waits == 0 {
                    ready.push((rank as u32, operation as u32));
                }
            }
        }
        while let Some((rank, operation)) = ready.pop() {
            self.followers(rank, operation, |rank, operation| {
                let waits = &mut waits[rank as usize][operation as usize];
                *waits -= 1;
                if *waits == 0 {
                    ready.push((rank, operation));
                }
            });
        }
        self.on_a_cycle(&waits)
    }

    /// Finds an operation on a cycle among those that still wait. Operations behind a cycle wait, too. From any of them,
    /// a walk back over operations that wait ends on a cycle.
    fn on_a_cycle(&self, waits: &[Vec<u32>]) -> Option<(u32, u32)> {
        let mut before: HashMap<(u32, u32), (u32, u32)> = HashMap::new();
        let mut first = None;
        for (rank, waits_here) in waits.iter().enumerate() {
            for (operation, count) in waits_here.iter().enumerate() {
                if *count == 0 {
                    continue;
                }
                let here = (rank as u32, operation as u32);
                first.get_or_insert(here);
                self.followers(here.0, here.1, |rank, operation| {
                    before.entry((rank, operation)).or_insert(here);
                });
            }
        }
        let mut place = first?;
        for _ in 0..before.len() {
            place = *before.get(&place)?;
        }
        // Now on the cycle: its least place, so that an error is always the same.
        let (mut least, start) = (place, place);
        loop {
            place = *before.get(&place)?;
            least = least.min(place);
            if place == start {
                return Some(least);
            }
        }
    }

    /// Calls with each operation that waits for this one, at any rank.
    fn followers(&self, rank: u32, operation: u32, mut call: impl FnMut(u32, u32)) {
        let here = &self.ranks[rank as usize];
        let local = here.after_end.of(operation).iter();
        for later in local.chain(here.after_start.of(operation)) {
            call(rank, *later);
        }
        if let Operation::Send { to, .. } = here.operations[operation as usize] {
            call(to, here.partner[operation as usize]);
        }
    }
}
