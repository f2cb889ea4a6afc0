//! Ends with a queue pair for each part of an application's data, driven by a kernel or by a thread of the host.

use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use warpbell::wqe::{Remote, Wqe};
use warpbell::{
    Deadline, Exclusive, SendQueue, SendQueueHandle, Signal, Thread, Ticket, WaitError,
};
use warpbell_host_init::{
    Device, Peer, Placement, ProtectionDomain, ProxiedQueue, Proxy, QueuePair, QueuePairConfig,
    RemoteMemory, SendDoorbell, Shared, Timers, Triggers, connect,
};
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_kernels::path::{MAX_PARTS, Path};
use warpbell_kernels::posting::{Place, Table};
use warpbell_soft_hca::engine::Reach;

use crate::Error;
use crate::launch::LIMIT_US;
use crate::memory::Memory;
use crate::world::{Devices, Nic, World};

/// Who drives an end's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// A thread of the host: it waits for messages, launches a kernel, waits for its end, and posts.
    Host,
    /// The kernel itself, which stays.
    Kernel,
}

impl Driver {
    /// Where this driver of an end reaches its signals.
    fn signals(self, world: &World) -> Placement {
        match self {
            Self::Host => world.placement(),
            Self::Kernel => world.nic_placement(),
        }
    }

    /// Queues that it reaches.
    fn queues(self, world: &World, depth: u32) -> QueuePairConfig {
        let config = QueuePairConfig {
            placement: self.signals(world),
            send_depth: depth,
            receive_depth: 0,
            timers: timers(world.nic()),
            ..QueuePairConfig::default()
        };
        match self {
            Self::Kernel => config,
            Self::Host => QueuePairConfig {
                state_placement: Some(Placement::Host),
                ..config
            },
        }
    }
}

/// How long queues wait for what they send. An engine in a kernel takes up to a millisecond for a packet of 64 KiB, and many
/// queues' may be before it; none is lost on the way, so that there is nothing to be gained by sending it again: they wait for
/// longer than any kernel or host does. All others wait as usual.
fn timers(nic: Nic) -> Timers {
    let usual = Timers::default();
    match nic {
        // 8.6 s.
        Nic::SoftGpu => Timers {
            acknowledge_timeout: 21,
            ..usual
        },
        Nic::Soft | Nic::SoftHost | Nic::Card(_) => usual,
    }
}

/// What a NIC of ends with these drivers has to reach: the queues of a host lie in pinned memory, beyond a GPU's own, and
/// fences that reach there cost the kernels more.
pub fn reach(drivers: [Driver; 2]) -> Reach {
    match drivers.contains(&Driver::Host) {
        true => Reach::System,
        false => Reach::Gpu,
    }
}

/// The doorbells that suit a NIC best: without a record a post has a fence less, and the NIC nothing more to look at.
pub fn doorbell(device: &Device) -> SendDoorbell {
    match device.limits().without_record {
        true => SendDoorbell::WithoutRecord,
        false => SendDoorbell::WithRecord,
    }
}

/// An end of all parts.
pub struct End {
    domain: ProtectionDomain,
    pairs: Vec<QueuePair>,
    signals: Memory,
}

/// Two ends, connected part by part.
pub struct Rig {
    /// The end whose kernel begins.
    pub near: End,
    /// The other end.
    pub far: End,
    world: World,
}

impl Rig {
    /// Connects so many parts between a near and a far end with these drivers, over a NIC of their own, which reaches no
    /// further than they need.
    ///
    /// # Errors
    /// As [`World::devices`]; too many parts for the NIC; a depth that is none.
    pub fn new(world: &World, drivers: [Driver; 2], parts: u32, depth: u32) -> Result<Self, Error> {
        Self::with_signals(world, drivers, parts, 1, depth)
    }

    /// The same with so many signals for each part, which lie beside each other.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with_signals(
        world: &World,
        drivers: [Driver; 2],
        parts: u32,
        signals: u32,
        depth: u32,
    ) -> Result<Self, Error> {
        let devices = world.devices_for(reach(drivers), 2 * MAX_PARTS)?;
        let [mut near, mut far] = [
            End::new(world, &devices, drivers[0], [parts, signals], depth)?,
            End::new(world, &devices, drivers[1], [parts, signals], depth)?,
        ];
        for (one, other) in near.pairs.iter_mut().zip(&mut far.pairs) {
            connect(one, other)?;
        }
        Ok(Self {
            near,
            far,
            world: *world,
        })
    }

    /// Sets all signals back, between two runs.
    pub fn clear_signals(&self) {
        self.near.clear_signals();
        self.far.clear_signals();
    }

    /// The queue pairs of both ends, for a watch.
    pub fn pairs(&self) -> Vec<&QueuePair> {
        self.near.pairs.iter().chain(&self.far.pairs).collect()
    }

    /// The kernels' handles of an end's queues.
    ///
    /// # Errors
    /// No memory for them.
    pub fn handles<'r>(&self, end: &'r End) -> Result<Shared<[SendQueueHandle<'r>]>, Error> {
        end.handles(&self.world)
    }
}

impl End {
    /// An end of so many parts, and signals of each, with this driver, on a device of its own where the NIC has several;
    /// not connected.
    ///
    /// # Errors
    /// Too many parts for the NIC; a depth that is none; no memory.
    pub fn new(
        world: &World,
        devices: &Devices,
        driver: Driver,
        [parts, signals]: [u32; 2],
        depth: u32,
    ) -> Result<Self, Error> {
        let device = devices.open()?;
        let domain = device.protection_domain()?;
        let config = QueuePairConfig {
            send_doorbell: doorbell(&device),
            ..driver.queues(world, depth)
        };
        let pairs = (0..parts).map(|_| domain.queue_pair(&config));
        let pairs = pairs.collect::<Result<Vec<_>, _>>()?;
        let bytes = 8 * parts as usize * signals as usize;
        let signals = Memory::new(&domain, driver.signals(world), bytes)?;
        Ok(Self {
            domain,
            pairs,
            signals,
        })
    }

    /// Connects a part of this end with one of another end.
    ///
    /// # Errors
    /// As [`connect`].
    ///
    /// # Panics
    /// For a part that is not there.
    pub fn connect(&mut self, part: u32, other: &mut Self, to: u32) -> Result<(), Error> {
        let (own, theirs) = (
            &mut self.pairs[part as usize],
            &mut other.pairs[to as usize],
        );
        Ok(connect(own, theirs)?)
    }

    /// Connects all parts with those of an end in another process, which does the same.
    ///
    /// # Errors
    /// As [`Peer::connect`].
    pub fn connect_over(&mut self, peer: &mut Peer) -> Result<(), Error> {
        let mut pairs = self.pairs.iter_mut();
        Ok(pairs.try_for_each(|pair| peer.connect(pair))?)
    }

    /// Takes its queues from whatever they are in to where they can be connected anew, and sets all signals back.
    ///
    /// # Errors
    /// As [`QueuePair::reset`].
    pub fn reset(&mut self) -> Result<(), Error> {
        self.pairs.iter_mut().try_for_each(QueuePair::reset)?;
        // Behind the queues, through which the other end could still have told.
        self.clear_signals();
        Ok(())
    }

    /// The device that it is on.
    pub fn device(&self) -> &Device {
        self.domain.device()
    }

    /// What an end in another process needs to know of its signals.
    pub fn signals(&self) -> RemoteMemory {
        self.signals.shared()
    }

    /// The newest number that any of its signals tells.
    pub fn newest(&self) -> u64 {
        let bytes = self.signals.read(0, self.signals.len());
        let (words, _) = bytes.as_chunks();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word));
        words.max().unwrap_or(0)
    }

    /// The newest number that all of its first signals tell, one for each of so many parts.
    pub fn whole(&self, parts: u32) -> u64 {
        let bytes = self.signals.read(0, 8 * parts as usize);
        let (words, _) = bytes.as_chunks();
        let words = words.iter().map(|word| u64::from_ne_bytes(*word));
        words.min().unwrap_or(0)
    }

    /// Sets all signals back, between two runs.
    pub fn clear_signals(&self) {
        self.signals.write(0, &vec![0; self.signals.len()]);
    }

    /// Its queue pairs, for a watch.
    pub fn pairs(&self) -> &[QueuePair] {
        &self.pairs
    }

    /// The kernels' handles of its queues.
    ///
    /// # Errors
    /// No memory for them.
    pub fn handles(&self, world: &World) -> Result<Shared<[SendQueueHandle<'_>]>, Error> {
        let handles = self.pairs.iter().map(QueuePair::send_queue);
        let handles = handles.collect::<Result<Vec<_>, _>>()?;
        let count = handles.len();
        Ok(Shared::slice(world.placement(), count, |at| handles[at])?)
    }

    /// Has a proxy serve its queues; it has none of its own any more.
    ///
    /// # Errors
    /// As [`Proxy::serve`].
    pub fn served(&mut self, world: &World, proxy: &Proxy) -> Result<Vec<ProxiedQueue>, Error> {
        let pairs = std::mem::take(&mut self.pairs).into_iter();
        let served = pairs.map(|pair| proxy.serve(pair, world.placement()));
        Ok(served.collect::<Result<_, _>>()?)
    }

    /// Registers memory of that end where kernels and NIC reach it.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn memory(&self, world: &World, bytes: usize) -> Result<Memory, Error> {
        Ok(Memory::new(&self.domain, world.nic_placement(), bytes)?)
    }

    /// The same where the host reaches it, for a host that takes part in what is done with it.
    ///
    /// # Errors
    /// As [`Memory::new`].
    pub fn host_memory(&self, world: &World, bytes: usize) -> Result<Memory, Error> {
        Ok(Memory::new(&self.domain, world.placement(), bytes)?)
    }

    /// Waits, on the host, until a part's message of that number has come to this end, and gives what its signal says;
    /// nothing once `over` says that none will.
    ///
    /// # Errors
    /// [`Error::Silent`] when a kernel would have lost patience, too.
    pub fn wait(
        &self,
        part: u32,
        number: u64,
        over: impl Fn() -> bool,
    ) -> Result<Option<u64>, Error> {
        self.wait_within(part, number, Duration::from_micros(LIMIT_US), over)
    }

    /// The same with a limit of one's own.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn wait_within(
        &self,
        part: u32,
        number: u64,
        limit: Duration,
        over: impl Fn() -> bool,
    ) -> Result<Option<u64>, Error> {
        let limit = Instant::now() + limit;
        loop {
            // Before the look: what came last is seen.
            let (over, late) = (over(), Instant::now() > limit);
            match self.told(part) {
                value if value >= number => return Ok(Some(value)),
                _ if over => return Ok(None),
                _ if late => return Err(Error::Silent { part }),
                _ => thread::yield_now(),
            }
        }
    }

    /// What a signal says now, to a host that drives this end.
    pub fn told(&self, signal: u32) -> u64 {
        let word = self.signals.word(8 * signal as usize);
        // SAFETY: the word lives as long as `self`, where the host reaches it, because the host drives this end; only the NIC
        // writes it.
        unsafe { Signal::new(word) }.read()
    }

    /// Its queues, for the host.
    ///
    /// # Errors
    /// A queue that failed before.
    pub fn host_queues(&self) -> Result<Vec<HostQueue<'_>>, Error> {
        let opened = self.pairs.iter().map(|pair| {
            let queue = pair.send_queue()?.open::<Exclusive, Thread>();
            Ok(HostQueue {
                queue: queue.map_err(failed)?,
                newest: None,
            })
        });
        opened.collect()
    }

    /// Tells this end of a part, as if its message had come.
    #[cfg(test)]
    pub(crate) fn tell(&self, part: usize, number: u64) {
        self.signals.write(8 * part, &number.to_ne_bytes());
    }

    /// Its queues as operations that kernels trigger, a tag for each part; it has no queues of its own any more.
    ///
    /// # Errors
    /// As [`Triggers::new`].
    pub fn triggers(&mut self) -> Result<Triggers, Error> {
        Ok(Triggers::new(std::mem::take(&mut self.pairs))?)
    }

    /// What its kernel, or its host, sends: parts of `bytes` bytes from `source` here to `target` at the other end.
    pub fn path<'a>(
        &'a self,
        other: &Self,
        queues: &'a [SendQueueHandle<'a>],
        (source, target): (&'a Memory, &'a Memory),
        bytes: u32,
    ) -> Path<'a> {
        let there = [target.remote(0), other.signals.remote(0)];
        self.path_to(queues, source, there, bytes)
    }

    /// The same to an end in another process, where targets and signals begin there.
    pub fn path_to<'a>(
        &'a self,
        queues: &'a [SendQueueHandle<'a>],
        source: &'a Memory,
        [target, told]: [Remote; 2],
        bytes: u32,
    ) -> Path<'a> {
        Path {
            queues: Table::new(queues),
            source: source.local(0, bytes as usize),
            target,
            told,
            signals: Place(self.signals.word(0)),
            bytes,
            parts: self.pairs.len() as u32,
            limit_us: LIMIT_US,
        }
    }
}

/// A queue in the host's hands.
pub struct HostQueue<'q> {
    queue: SendQueue<'q, Exclusive, Thread>,
    /// The newest request, whose completion tells of all before.
    newest: Option<Ticket>,
}

impl HostQueue<'_> {
    /// Posts requests under one doorbell. The last one is signalled, beside those that the queue needs for its own room.
    ///
    /// # Errors
    /// The queue failed, or has no room for too long.
    pub fn post(&mut self, wqes: impl ExactSizeIterator<Item = Wqe<1>>) -> Result<(), Error> {
        let last = wqes.len().saturating_sub(1);
        let mut batch = self.queue.batch(wqes.len() as u32, LIMIT).map_err(failed)?;
        for (index, wqe) in wqes.enumerate() {
            let wqe = if index == last { wqe.signalled() } else { wqe };
            self.newest = Some(batch.post(wqe).map_err(failed)?);
        }
        Ok(())
    }

    /// Waits until all is done.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub fn drain(&mut self) -> Result<(), Error> {
        match self.newest.take() {
            Some(newest) => self.queue.wait(newest, LIMIT).map_err(failed),
            None => Ok(()),
        }
    }
}

/// What ends kernels and hosts that wait for one another: the first failure that is more than a wait in vain, because such a
/// wait is mostly for somebody who failed; the first of all where none is more.
///
/// # Errors
/// That failure.
pub fn first_cause(results: impl IntoIterator<Item = Result<(), Error>>) -> Result<(), Error> {
    let mut vain = Ok(());
    for result in results {
        match result {
            Err(
                error @ (Error::Silent { .. }
                | Error::Kernel {
                    failure: Failure::Wait(WaitError::Deadline),
                    ..
                }),
            ) => vain = vain.and(Err(error)),
            other => other?,
        }
    }
    vain
}

/// The same of two ends: of what ran them, and of what became of the kernels with these names.
///
/// # Errors
/// As [`first_cause`].
pub fn ended(ran: Result<(), Error>, kernels: [(&str, &Outcome); 2]) -> Result<(), Error> {
    let said = kernels.map(|(what, outcome)| {
        outcome.result().map_err(|failure| Error::Kernel {
            what: what.into(),
            failure,
        })
    });
    first_cause([ran].into_iter().chain(said))
}

const LIMIT: Deadline = Deadline::after_us(LIMIT_US);

fn failed(error: impl Into<Failure>) -> Error {
    Error::Kernel {
        what: "what the host posts".into(),
        failure: error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell::OpenError;

    #[test]
    fn a_nic_reaches_beyond_its_gpu_for_a_host_alone() {
        use Driver::{Host, Kernel};
        assert_eq!(reach([Kernel, Kernel]), Reach::Gpu);
        for drivers in [[Kernel, Host], [Host, Kernel], [Host, Host]] {
            assert_eq!(reach(drivers), Reach::System);
        }
    }

    #[test]
    fn queues_of_a_nic_that_is_a_kernel_outwait_all_others() {
        let microseconds = |nic| 4.096 * f64::powi(2.0, timers(nic).acknowledge_timeout.into());
        assert!(microseconds(Nic::SoftGpu) > LIMIT_US as f64);
        for nic in [Nic::Soft, Nic::SoftHost, Nic::Card("mlx5_0")] {
            assert_eq!(timers(nic), Timers::default());
        }
    }

    #[test]
    fn the_cause_comes_before_those_who_waited_for_it() {
        let kernel = |what: &str, failure| {
            let what = what.into();
            Err(Error::Kernel { what, failure })
        };
        let late = Failure::Wait(WaitError::Deadline);
        let cause = Failure::Open(OpenError::InUse);
        let silent = || Err(Error::Silent { part: 3 });
        let said = |results: Vec<Result<(), Error>>| first_cause(results).unwrap_err().to_string();
        let first = said(vec![
            silent(),
            kernel("a", late),
            kernel("b", cause),
            kernel("c", cause),
        ]);
        assert_eq!(first, format!("b: {cause}"));
        assert_eq!(
            said(vec![Ok(()), silent(), kernel("a", late)]),
            "part 3 does not come"
        );
        assert_eq!(
            said(vec![kernel("a", late), silent(), Ok(())]),
            format!("a: {late}")
        );
        assert!(first_cause([Ok(()), Ok(())]).is_ok());
    }

    #[test]
    fn what_a_kernel_says_of_the_cause_comes_before_a_silent_host() {
        let world = World::cpu().unwrap();
        let outcomes = [world.outcome().unwrap(), world.outcome().unwrap()];
        outcomes[1].record(|| Err(Failure::Open(OpenError::InUse)));
        let kernels = || [("one", &*outcomes[0]), ("other", &*outcomes[1])];
        for ran in [Ok(()), Err(Error::Silent { part: 0 })] {
            let error = ended(ran, kernels()).unwrap_err().to_string();
            assert!(error.starts_with("other: "), "{error}");
        }
        assert!(matches!(
            ended(Err(Error::Alone), kernels()),
            Err(Error::Alone)
        ));
    }
}
