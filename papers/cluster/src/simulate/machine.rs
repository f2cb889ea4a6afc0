//! One machine that all ranks share: the engines of its software NIC, and its cores.

use super::time::{Server, Time};
use crate::parameters::Parameters;

/// What all ranks of a machine share. A cluster has neither engines nor a limit of cores.
#[derive(Debug, Default)]
pub(super) struct Machine {
    /// Engines of a software NIC, each of which carries one message after the other.
    engines: Vec<Server>,
    /// When each core is free; none, where everything that runs has a core of its own.
    cores: Vec<Time>,
}

impl Machine {
    pub(super) fn new(parameters: &Parameters) -> Self {
        Self {
            engines: vec![Server::default(); parameters.engines as usize],
            cores: vec![Time::ZERO; parameters.cores as usize],
        }
    }

    /// A rank computes for `duration`, from `at` or as soon as a core is free; gives the start.
    pub(super) fn compute(&mut self, at: Time, duration: Time) -> Time {
        // The core that was busy last of those that are free, so that earlier gaps stay for what begins earlier. If none
        // is free, the one that is free first.
        let order = |core: &&mut Time| match **core <= at {
            true => (true, **core),
            false => (false, Time::LAST - **core),
        };
        let core = self.cores.iter_mut().max_by_key(order);
        let Some(core) = core else {
            return at;
        };
        let start = at.max(*core);
        *core = start + duration;
        start
    }

    /// An engine carries a message of this rank; gives the end. None, if the machine has no engines.
    pub(super) fn carry(&mut self, rank: u32, at: Time, duration: Time) -> Option<Time> {
        let count = self.engines.len();
        let engine = self.engines.get(rank as usize % count.max(1))?;
        // The engine is a thread, too.
        let start = self.compute(engine.free_from(at), duration);
        self.engines[rank as usize % count].serve(start, duration);
        Some(start + duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(engines: f64, cores: f64) -> Machine {
        Machine::new(&Parameters {
            engines,
            cores,
            ..Parameters::default()
        })
    }

    fn nanoseconds(number: u64) -> Time {
        Time::from_nanoseconds(number as f64)
    }

    /// Two cores: the third task waits for the first of both, and a later one fills what is free.
    #[test]
    fn cores_are_shared() {
        let mut two = machine(0.0, 2.0);
        let mut start = |at, duration| two.compute(nanoseconds(at), nanoseconds(duration));
        assert_eq!(start(0, 100), nanoseconds(0));
        assert_eq!(start(0, 40), nanoseconds(0));
        assert_eq!(start(10, 10), nanoseconds(40));
        // From 60 on the second core, which was free last; the first one is free only from 100.
        assert_eq!(start(60, 100), nanoseconds(60));
        assert_eq!(start(60, 10), nanoseconds(100));
        let mut many = machine(0.0, 0.0);
        assert_eq!(many.compute(nanoseconds(7), nanoseconds(5)), nanoseconds(7));
        assert_eq!(many.carry(0, Time::ZERO, nanoseconds(5)), None);
    }

    /// Ranks 0 and 2 have the first engine, rank 1 the second. With one core both engines wait for each other.
    #[test]
    fn engines_carry_one_after_the_other() {
        for (cores, ends) in [(0.0, [10, 10, 20]), (1.0, [10, 20, 30])] {
            let mut two = machine(2.0, cores);
            for (rank, end) in ends.into_iter().enumerate() {
                let carried = two.carry(rank as u32, Time::ZERO, nanoseconds(10));
                assert_eq!(carried, Some(nanoseconds(end)));
            }
        }
    }
}
