//! A proxy: threads that post for kernels which may not ring the NIC's doorbell.
//!
//! The kernels' side, and that of the threads without the threads, is [`crate::proxy`].

mod crew;
mod error;
mod front;
mod job;
mod lines;
mod pulse;
mod queue;
mod worker;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crate::proxy::Entry;

use crate::Error;
use warpbell_host_init::{Placement, QueuePair};

pub use error::ProxyError;
pub use lines::ProducerLines;
pub use queue::{Proxied, ProxiedQueue};

use crew::Crew;
use job::Job;
use queue::Served;

/// The most threads of a proxy.
pub const MAX_PROXY_THREADS: usize = 64;

/// Says of a WQE whether the NIC may have it.
type Allow = Box<dyn FnMut(Entry<'_>) -> bool + Send>;

/// Threads, each of which serves some queues: takes what kernels post to them, posts it to the NIC, and hands
/// completions back.
///
/// A thread with nothing to do spins, then yields its core between looks, and sleeps 30 µs at a time after some
/// thousand of them. When a proxy is dropped, it carries out what it was handed until then, as long as that takes no
/// more than a second; later posts fail with [`Fault::Stopped`](crate::proxy::Fault::Stopped).
///
/// ```
/// use warpbell::wqe::Wqe;
/// use warpbell::{Deadline, Exclusive, SendQueueHandle, Thread, WaitError};
/// use warpbell_patterns::proxy::host::Proxy;
/// use warpbell_host_init::soft::SoftOptions;
/// use warpbell_patterns::Error;
/// use warpbell_host_init::{Access, Buffer, Device, Nic, Placement, QueuePairConfig, connect};
///
/// // A kernel, which does not know that there is a proxy.
/// fn kernel(queue: SendQueueHandle<'_>) -> Result<(), WaitError> {
///     let mut queue = queue.open::<Exclusive>().expect("a good handle");
///     let ticket = queue
///         .post(Wqe::nop().signalled(), Deadline::after_ms(5000))
///         .expect("room");
///     queue.wait(ticket, Deadline::after_ms(5000))
/// }
///
/// fn main() -> Result<(), Error> {
///     let device = Device::open(Nic::Soft(SoftOptions::default()))?;
///     let domain = device.protection_domain()?;
///     let mut pair = domain.queue_pair(&QueuePairConfig::default())?;
///     let mut other = domain.queue_pair(&QueuePairConfig::default())?;
///     connect(&mut pair, &mut other)?;
///
///     let proxy = Proxy::start(1)?;
///     let queue = proxy.serve(pair, Placement::Host)?;
///     kernel(queue.send_queue()).expect("a NOP");
///     Ok(())
/// }
/// ```
pub struct Proxy {
    crew: Arc<Crew>,
    /// Looks after the crew. Some until it is dropped.
    watch: Option<JoinHandle<()>>,
    /// For the queues that it serves, if somebody wants them there.
    lines: Option<ProducerLines>,
}

impl Proxy {
    /// Starts so many threads.
    ///
    /// # Errors
    /// [`ProxyError::Threads`] for none or more than [`MAX_PROXY_THREADS`]; [`ProxyError::Thread`].
    pub fn start(threads: usize) -> Result<Self, Error> {
        // Before there is room for so many.
        check_threads(threads)?;
        Self::start_each(&vec![None; threads])
    }

    /// Starts a thread for each of these cores, counted from 0 as Linux does, and keeps it there. A core that comes
    /// twice has two threads. If a thread has to be replaced, the new one stays on the same core.
    ///
    /// On a core of its own a thread is not moved, and its first look behind a pause finds warm caches. The thread that
    /// looks after the others goes where the system puts it.
    ///
    /// # Errors
    /// As [`start`](Self::start); [`ProxyError::Core`] for one that the calling thread may not use.
    pub fn start_on(cores: &[usize]) -> Result<Self, Error> {
        check_threads(cores.len())?;
        Self::start_each(&cores.iter().copied().map(Some).collect::<Vec<_>>())
    }

    fn start_each(cores: &[Option<usize>]) -> Result<Self, Error> {
        let crew = Crew::start(cores)?;
        let watch = thread::Builder::new().name("warpbell-watch".into());
        Ok(Self::watched(crew, |look| watch.spawn(look))?)
    }

    /// A crew, and a thread that looks after it.
    fn watched(
        crew: Arc<Crew>,
        spawn: impl FnOnce(Box<dyn FnOnce() + Send>) -> io::Result<JoinHandle<()>>,
    ) -> Result<Self, ProxyError> {
        let looks = Arc::clone(&crew);
        match spawn(Box::new(move || looks.look_after())) {
            Ok(watch) => Ok(Self {
                crew,
                watch: Some(watch),
                lines: None,
            }),
            Err(error) => {
                crew.stop();
                // Here, until its threads have ended: the last one would have the crew otherwise, and join itself.
                crew.look_after();
                Err(ProxyError::Thread(error))
            }
        }
    }

    /// The same proxy. Kernels have their own words of the queues that it serves from now on in these lines: each queue
    /// takes one, and does not give it back.
    #[must_use]
    pub fn with_lines(mut self, lines: ProducerLines) -> Self {
        self.lines = Some(lines);
        self
    }

    /// The lines of [`with_lines`](Self::with_lines).
    pub fn lines(&self) -> Option<&ProducerLines> {
        self.lines.as_ref()
    }

    /// Serves a connected queue pair: kernels get [`ProxiedQueue::send_queue`] instead of its own. What they share
    /// with the proxy lies at `kernels`: host memory for kernels on the CPU, pinned memory for those on a GPU.
    ///
    /// The threads take queues in turn. One that is shared by many threads of a kernel is one thread's work.
    ///
    /// # Errors
    /// [`NotReady`](warpbell_host_init::Error::NotReady) for a queue pair that is not connected;
    /// [`OutOfReach`](warpbell_host_init::Error::OutOfReach) for one whose queues or doorbell do not lie in host
    /// memory, and for such a `kernels`; [`ProxyError`]. The queue pair is dropped then.
    pub fn serve(&self, pair: QueuePair, kernels: Placement) -> Result<ProxiedQueue, Error> {
        self.serve_with(pair, Some(kernels), None)
    }

    /// The same without a copy: kernels write to the queue pair's own ring, from which the NIC reads, and hand producer
    /// indices alone over. So the queue pair lies where kernels reach it.
    ///
    /// When the service ends, [`Fault::Stopped`](crate::proxy::Fault::Stopped) says that all is complete that was
    /// handed over and asks for a completion; of requests behind that which ask for none it says nothing.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_indices(&self, pair: QueuePair) -> Result<ProxiedQueue, Error> {
        self.serve_with(pair, None, None)
    }

    /// The same, and `allow` sees each WQE before the NIC does. The first one that it refuses is the queue's error,
    /// [`Fault::Refused`](crate::proxy::Fault::Refused); all before it are carried out, none behind it is.
    ///
    /// `allow` runs on the thread that serves the queue. While it waits, so do all queues of that thread. If it panics,
    /// or does not answer within two seconds, that is the queue's error, too:
    /// [`Fault::Died`](crate::proxy::Fault::Died) or [`Fault::Hung`](crate::proxy::Fault::Hung), at the request that
    /// it was asked about; another thread takes the place of that one, and goes on with its other queues.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_if(
        &self,
        pair: QueuePair,
        kernels: Placement,
        allow: impl FnMut(Entry<'_>) -> bool + Send + 'static,
    ) -> Result<ProxiedQueue, Error> {
        self.serve_with(pair, Some(kernels), Some(Box::new(allow)))
    }

    fn serve_with(
        &self,
        pair: QueuePair,
        kernels: Option<Placement>,
        allow: Option<Allow>,
    ) -> Result<ProxiedQueue, Error> {
        let served = Arc::new(Served::new(pair, kernels, self.lines.as_ref())?);
        self.crew.give(Job::new(&served, allow)?);
        Ok(ProxiedQueue::new(served))
    }
}

fn check_threads(threads: usize) -> Result<(), ProxyError> {
    match threads {
        1..=MAX_PROXY_THREADS => Ok(()),
        _ => Err(ProxyError::Threads {
            threads,
            limit: MAX_PROXY_THREADS,
        }),
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.crew.stop();
        // It ends behind the crew.
        let _ = self.watch.take().map(JoinHandle::join);
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use warpbell::wqe::Wqe;
    use warpbell::{Deadline, Exclusive};
    use warpbell_host_init::cores::{self, CoreError};
    use warpbell_host_init::{Node, QueuePairConfig};

    use super::job::tests::fault;
    use super::*;
    use crate::proxy::Fault;

    /// Whoever is asked is a thread of the proxy: it tells where it may run.
    #[test]
    fn threads_stay_on_their_cores_and_so_do_those_that_replace_them() {
        let allowed = cores::allowed().unwrap();
        // A thread without a core of its own has others, too, where there are several.
        let chosen = [allowed[allowed.len() - 1], allowed[0]];
        let proxy = Proxy::start_on(&chosen).unwrap();
        let [near, far] = Node::cpu().ends().unwrap();
        let mut others = Vec::new();
        // Threads take queues in turn: the third one has the thread of the first one, which dies, or its replacement.
        let ends = [Err(Fault::Died), Ok(()), Ok(())];
        let served = ends.map(|end: Result<(), Fault>| {
            let connected = near.connected(&far, &QueuePairConfig::default());
            let (pair, other) = connected.unwrap();
            others.push(other);
            let (tell, told) = mpsc::channel();
            let allow = move |_: Entry<'_>| {
                tell.send(cores::allowed().unwrap()).unwrap();
                if end.is_err() {
                    std::panic::resume_unwind(Box::new("on purpose"));
                }
                true
            };
            let queue = proxy.serve_if(pair, Placement::Host, allow).unwrap();
            (queue, told, end)
        });
        for (at, (queue, told, end)) in served.iter().enumerate() {
            let mut view = queue.send_queue().open::<Exclusive>().unwrap();
            let ticket = view.try_post(Wqe::nop().signalled()).unwrap();
            let ended = view.wait(ticket, Deadline::after_ms(300_000));
            match end {
                Ok(()) => assert_eq!(ended, Ok(())),
                Err(expected) => assert_eq!(fault(ended), *expected),
            }
            assert_eq!(told.recv().unwrap(), [chosen[at % 2]], "queue {at}");
        }
        assert_eq!(cores::allowed().unwrap(), allowed, "not the caller's");
    }

    #[test]
    fn a_core_that_no_thread_may_use_is_named() {
        let allowed = cores::allowed().unwrap();
        let count = allowed.len();
        let refused = Proxy::start_on(&[allowed[0], usize::MAX]);
        let expected = usize::MAX;
        assert_matches!(
            refused => Err(Error::Proxy(ProxyError::Core(CoreError::NotAllowed { core, count: of })))
                if (core, of) == (expected, count)
        );
        assert_matches!(
            Proxy::start_on(&[]) => Err(Error::Proxy(ProxyError::Threads { threads: 0, .. }))
        );
    }

    #[test]
    fn threads_that_nobody_can_look_after_have_ended_when_that_is_told() {
        let crew = Crew::start(&[None; 3]).unwrap();
        let failed = Proxy::watched(Arc::clone(&crew), |_| Err(io::ErrorKind::WouldBlock.into()));
        assert_matches!(failed => Err(ProxyError::Thread(_)));
        assert_eq!(Arc::strong_count(&crew), 1, "none of them has it");
    }
}
