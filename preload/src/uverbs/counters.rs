//! Sets of counters: what the queue pairs that are bound to one have met.
//!
//! Of a card's counters the engine has two, duplicates and answers that a receiver was not ready; the others stay 0.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use mlx5_wqe::prm::{
    AllocQCounter, AllocQCounterAnswer, CommandStatus, QueryQCounter, QueryQCounterAnswer,
};
use warpbell_soft_hca::engine::Counters;

use super::devx::{Object, QueuePair};
use super::open::Open;
use super::prm::{Call, Failure, Syndrome, bytes, engine};
use crate::attributes::Errno;
use crate::machine::Machine;

/// The most sets; 0 is none.
pub const MAX_SETS: u8 = 127;

/// What a set has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    duplicates: u64,
    not_ready: u64,
}

impl AddAssign<Counters> for Counted {
    fn add_assign(&mut self, counters: Counters) {
        self.duplicates += counters.duplicates;
        self.not_ready += counters.receiver_not_ready;
    }
}

/// Allocates a set.
pub fn allocate(open: &mut Open, call: &Call<'_>) -> Result<(Object, Vec<u8>), Failure> {
    call.read::<AllocQCounter>()?;
    let free = (1..=MAX_SETS).find(|set| !open.counters.contains_key(set));
    let set = free.ok_or(Syndrome::Full.with(CommandStatus::NO_RESOURCES))?;
    let answer = bytes(&AllocQCounterAnswer {
        counter_set_id: set,
    })?;
    open.counters.insert(set, Counted::default());
    Ok((Object::CounterSet(set), answer))
}

/// Tells what a set has counted.
pub fn query(
    machine: &Machine,
    objects: &BTreeMap<u32, Object>,
    counted: &Counted,
    set: u8,
    call: &Call<'_>,
) -> Result<Vec<u8>, Failure> {
    let command: QueryQCounter = call.read()?;
    if command.counter_set_id != set {
        return Err(Failure::System(Errno(libc::EINVAL)));
    }
    // The engine's counters cannot be set back.
    if command.clear {
        return Err(Syndrome::Unsupported
            .with(CommandStatus::BAD_PARAMETER)
            .into());
    }
    let mut counted = *counted;
    for object in objects.values() {
        if let Object::QueuePair(pair) = object
            && pair.set.counter_set_id == set
        {
            counted += of(machine, pair)?;
        }
    }
    // As wide as a card's, and as soon round.
    bytes(&QueryQCounterAnswer {
        duplicate_request: counted.duplicates as u32,
        rnr_nak_retry_err: counted.not_ready as u32,
        ..QueryQCounterAnswer::default()
    })
}

/// What a queue pair has met since it left RESET.
pub fn of(machine: &Machine, pair: &QueuePair) -> Result<Counters, Failure> {
    let status = engine(machine, |engine| engine.query_queue_pair(pair.number))?;
    Ok(status.counters)
}

/// Keeps what a queue pair has met, which is about to forget it.
pub fn keep(
    machine: &Machine,
    counters: &mut BTreeMap<u8, Counted>,
    pair: &QueuePair,
) -> Result<(), Failure> {
    if let Some(counted) = counters.get_mut(&pair.set.counter_set_id) {
        *counted += of(machine, pair)?;
    }
    Ok(())
}
