//! How an HCA's thread sleeps until a packet comes from another process or machine.
//!
//! Each ring between processes has a word by which its consumer says that its thread sleeps, and the time at which
//! somebody last looked at the ring all the same (see [`SoftHca::help`](super::SoftHca::help)). The producer wakes the
//! thread if nobody looks. If somebody has just looked, it leaves that for its next step: a thread that is woken while
//! a program polls only takes the program's core away.
//!
//! A socket wakes the thread that waits for it by itself. No call waits for words and sockets: a thread with sockets says in
//! its word that it waits for the ring's *line*, a socket between the two processes, and the producer sends a byte there.
//! A word alone is cheaper to wait for and to wake by.
//!
//! Nothing hangs on the words alone: they are the other process's to write too, and a thread never sleeps for longer
//! than its nap.

use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::prelude::v1::*;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, Timespec, clock_gettime};

use super::shared::Ring;

/// How long after a look at its ring a packet still counts as seen to, in nanoseconds: a program that polls looks
/// several times in it.
const ATTENDED_NS: u64 = 3_000;
/// Between two times that a thread is woken, in nanoseconds, as cards moderate their interrupts: where it takes the
/// core from the program that sends, the program comes to send more at a time.
const MODERATION_NS: u64 = 20_000;
/// Rings that a thread can wait for at once: the system's limit.
const MOST: usize = 128;

/// The time, by a clock that all processes of the machine share.
pub(super) fn clock_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What a consumer's word says: its thread is awake; it sleeps by the word, which is a futex; it sleeps by the line.
const AWAKE: u32 = 0;
const BY_WORD: u32 = 1;
const BY_LINE: u32 = 2;

/// The words of a ring, and its line.
pub(super) struct Words<'a> {
    /// Whether the consumer's thread sleeps and wants to be woken, and how.
    pub asleep: &'a AtomicU32,
    /// When the consumer last looked while its thread slept.
    pub looked: &'a AtomicU64,
    /// A socket to the other process.
    pub line: &'a UnixStream,
}

impl Words<'_> {
    /// Wakes the consumer's thread, if it sleeps and nobody looks at the ring; false if that is left for later, because
    /// somebody has just looked, or the thread was just woken: at the time in `woken`. Called after a packet was
    /// published.
    pub fn ring(&self, woken: &mut u64) -> bool {
        // The packet before the look at the word, because the consumer writes the word before it looks for packets a
        // last time: one of the two sees the other.
        fence(Ordering::SeqCst);
        // Relaxed, here and below: the words carry nothing but themselves, and the ring's counter orders the packets.
        if self.asleep.load(Ordering::Relaxed) == AWAKE {
            return true;
        }
        let now = clock_ns();
        if now.saturating_sub(self.looked.load(Ordering::Relaxed)) < ATTENDED_NS
            || now.saturating_sub(*woken) < MODERATION_NS
        {
            return false;
        }
        *woken = now;
        match self.asleep.swap(AWAKE, Ordering::Relaxed) {
            AWAKE => {}
            BY_WORD => {
                // It fails only where there is no such memory, and this is mapped.
                let _ = futex::wake(self.asleep, futex::Flags::empty(), 1);
            }
            _ => {
                // It fails where the line is full of bytes that have woken the thread already, or the other process is gone.
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                let _ = rustix::net::send(self.line, &[0], flags);
            }
        }
        true
    }

    /// Tells the producer that somebody is about to look for packets, although the thread sleeps.
    pub fn attend(&self) {
        if self.asleep.load(Ordering::Relaxed) != AWAKE {
            self.looked.store(u64::MAX, Ordering::Relaxed);
        }
    }

    /// Tells it that he has looked now. The time is that of the end of his step, because a step with many packets takes
    /// longer than a look counts.
    pub fn attended(&self) {
        if self.asleep.load(Ordering::Relaxed) != AWAKE {
            self.looked.store(clock_ns(), Ordering::Relaxed);
        }
    }
}

/// What wakes a thread that sleeps.
#[derive(Clone)]
pub(super) enum Bell {
    /// The consumer's end of a ring, as far as its thread needs it to sleep. It keeps the memory mapped.
    Ring(Ring),
    /// A socket that has something to read.
    Socket(Arc<UdpSocket>),
}

impl Bell {
    /// Asks to be woken in this way; false if packets are waiting already.
    fn arm(&self, way: u32) -> bool {
        let Self::Ring(ring) = self else {
            return true;
        };
        let words = ring.words();
        words.looked.store(0, Ordering::Relaxed);
        words.asleep.store(way, Ordering::Relaxed);
        // See `Words::ring`.
        fence(Ordering::SeqCst);
        ring.is_empty()
    }

    fn disarm(&self) {
        if let Self::Ring(ring) = self {
            ring.words().asleep.store(AWAKE, Ordering::Relaxed);
        }
    }

    fn wait(&self) -> Option<Wait> {
        let Self::Ring(ring) = self else {
            return None;
        };
        let mut wait = Wait::new();
        wait.val = BY_WORD.into();
        wait.uaddr = WaitPtr::new(ring.words().asleep.as_ptr().cast());
        wait.flags = WaitFlags::SIZE_U32;
        Some(wait)
    }

    fn poll(&self) -> PollFd<'_> {
        match self {
            Self::Ring(ring) => PollFd::new(ring.line(), PollFlags::IN),
            Self::Socket(socket) => PollFd::new(socket, PollFlags::IN),
        }
    }

    /// Takes what came on the line, after it has woken this thread. What is left wakes it again.
    fn answer(&self) {
        if let Self::Ring(ring) = self {
            let mut bytes = [0; 64];
            let _ = rustix::net::recv(ring.line(), &mut bytes[..], RecvFlags::DONTWAIT);
        }
    }
}

/// The bells of an HCA, which its links add and take away.
#[derive(Clone, Default)]
pub(super) struct Bells(Arc<Mutex<Vec<Bell>>>);

impl Bells {
    fn lock(&self) -> MutexGuard<'_, Vec<Bell>> {
        // Nothing panics with the lock held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These from now on.
    pub fn set(&self, bells: Vec<Bell>) {
        *self.lock() = bells;
    }

    /// Appends them, sockets only if these are wanted.
    pub fn extend(&self, bells: &mut Vec<Bell>, sockets: bool) {
        let own = self.lock();
        let wanted = own
            .iter()
            .filter(|bell| sockets || !matches!(bell, Bell::Socket(_)));
        bells.extend(wanted.cloned());
    }
}

fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: (ns / 1_000_000_000) as _,
        tv_nsec: (ns % 1_000_000_000) as _,
    }
}

/// Sleeps until a packet comes that nobody else sees to, at most for `nap`. Does not sleep if `is_due` says that there is
/// something to do: it is asked once the bells are armed, and told whether packets have come already.
pub(super) fn sleep(bells: &[Bell], nap: Duration, is_due: impl FnOnce(bool) -> bool) {
    let by_line = bells.iter().any(|bell| matches!(bell, Bell::Socket(_)));
    // Beyond the limit of futexes the nap has to do.
    let most = if by_line { bells.len() } else { MOST };
    let bells = &bells[..bells.len().min(most)];
    let way = if by_line { BY_LINE } else { BY_WORD };
    let mut packets = false;
    for bell in bells {
        packets |= !bell.arm(way);
    }
    if is_due(packets) {
        // Awake.
    } else if by_line {
        let mut sockets: Vec<PollFd<'_>> = bells.iter().map(Bell::poll).collect();
        // It fails only without memory, and then the nap is short.
        let _ = poll(&mut sockets, Some(&timespec(nap.as_nanos() as u64)));
        for (bell, socket) in bells.iter().zip(sockets) {
            if !socket.revents().is_empty() {
                bell.answer();
            }
        }
    } else {
        let waits: Vec<Wait> = bells.iter().filter_map(Bell::wait).collect();
        let end = timespec(clock_ns() + nap.as_nanos() as u64);
        let waited = futex::waitv(&waits, WaitvFlags::empty(), Some(&end), ClockId::Monotonic);
        match waited {
            // Woken, before it slept or after; or the nap is over.
            Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
            // No bell to wait for, or a system that has no such call (before Linux 5.16) or forbids it.
            Err(_) => std::thread::sleep(nap),
        }
    }
    for bell in bells {
        bell.disarm();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::WireAddress;
    use crate::engine::packet::Header;
    use crate::shell::shared_link::{SharedLink, accept, offer};
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::thread;
    use std::time::Instant;

    /// Longer than anything here takes.
    const NAP: Duration = Duration::from_secs(600);
    /// What a thread needs at most to wake up on a machine that is busy with other things.
    const SOON: Duration = Duration::from_secs(300);

    /// The two ends of a link.
    fn link() -> (SharedLink, SharedLink) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let [a, b] = [1, 2].map(WireAddress);
        let maker = offer(&ours, a, b).unwrap();
        (maker, accept(&theirs, b, a, SOON).unwrap())
    }

    fn send(link: &mut SharedLink) {
        let header = Header {
            source: 1,
            destination: 2,
            ..Header::default()
        };
        // SAFETY: there is no payload.
        assert!(unsafe { link.send(&header, &[]) });
    }

    fn words(bell: &Bell) -> Words<'_> {
        match bell {
            Bell::Ring(ring) => ring.words(),
            Bell::Socket(_) => unreachable!("a socket has none"),
        }
    }

    fn is_asleep(bell: &Bell) -> bool {
        words(bell).asleep.load(Ordering::Relaxed) != AWAKE
    }

    /// Sleeps on a thread by these bells, the first of which is a ring's; calls `then` once it does, and tells how long it
    /// slept.
    fn sleeping(bells: &[Bell], then: impl FnOnce()) -> Duration {
        thread::scope(|scope| {
            let start = Instant::now();
            let sleeper = scope.spawn(|| sleep(bells, NAP, |packets| packets));
            while !is_asleep(&bells[0]) {
                assert!(start.elapsed() < SOON, "it does not sleep");
                thread::yield_now();
            }
            // From the word to the sleep it is not far.
            thread::sleep(Duration::from_millis(20));
            then();
            sleeper.join().unwrap();
            start.elapsed()
        })
    }

    #[test]
    fn a_packet_wakes_a_thread_that_sleeps() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let (mut from, mut to) = link();
        let bells = [to.bell(), Bell::Socket(Arc::new(socket))];
        for bells in [&bells[..1], &bells] {
            for _ in 0..3 {
                let slept = sleeping(bells, || send(&mut from));
                assert!(slept < SOON, "{slept:?}");
                assert!(!is_asleep(&bells[0]));
                assert!(to.receive().is_some());
                to.end_step();
            }
        }
    }

    /// The other process may ring as often as it likes.
    #[test]
    fn bytes_that_have_woken_a_thread_do_not_wake_it_again() {
        let (from, to) = link();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let bells = [to.bell(), Bell::Socket(Arc::new(socket))];
        let Bell::Ring(theirs) = from.bell() else {
            unreachable!("a link has a ring");
        };
        theirs.line().write_all(&[0; 3]).unwrap();
        let start = Instant::now();
        sleep(&bells, NAP, |packets| packets);
        assert!(start.elapsed() < SOON);
        let (start, nap) = (Instant::now(), Duration::from_millis(20));
        sleep(&bells, nap, |packets| packets);
        assert!(start.elapsed() >= nap);
    }

    #[test]
    fn a_datagram_wakes_a_thread_that_sleeps() {
        let [from, to] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let address = to.local_addr().unwrap();
        let bells = [Bell::Socket(Arc::new(to))];
        let start = Instant::now();
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| sleep(&bells, NAP, |packets| packets));
            // It sleeps by then, or finds the datagram when it wants to.
            thread::sleep(Duration::from_millis(20));
            assert!(!sleeper.is_finished());
            from.send_to(&[1], address).unwrap();
        });
        assert!(start.elapsed() < SOON);
    }

    #[test]
    fn a_thread_does_not_sleep_over_packets_or_over_what_is_due() {
        let (mut from, to) = link();
        let bells = [to.bell()];
        let start = Instant::now();
        sleep(&bells, NAP, |packets| !packets);
        send(&mut from);
        sleep(&bells, NAP, |packets| packets);
        assert!(start.elapsed() < SOON);
        assert!(!is_asleep(&bells[0]));
    }

    #[test]
    fn a_thread_that_was_just_woken_is_left_alone_for_a_while() {
        let (_from, to) = link();
        let bell = to.bell();
        assert!(bell.arm(BY_WORD));
        // As if it had been woken at the very moment of the question, whenever that is.
        let mut woken = u64::MAX;
        assert!(!words(&bell).ring(&mut woken) && is_asleep(&bell));
        woken = clock_ns() - MODERATION_NS;
        assert!(words(&bell).ring(&mut woken) && !is_asleep(&bell));
        assert!(words(&bell).ring(&mut woken), "awake");
    }

    /// While somebody looks, the thread sleeps on; when he looks no longer, the next step of the other side wakes it.
    #[test]
    fn who_looks_lets_the_thread_sleep_until_he_stops() {
        let (mut from, mut to) = link();
        let bell = to.bell();
        let slept = sleeping(std::slice::from_ref(&bell), || {
            to.attend();
            send(&mut from);
            from.end_step();
            assert!(is_asleep(&bell), "somebody is at it");
            to.end_step();
            thread::sleep(Duration::from_millis(1));
            assert!(is_asleep(&bell), "nobody was asked");
            from.end_step();
            assert!(!is_asleep(&bell));
        });
        assert!(slept < SOON, "{slept:?}");
        assert!(to.receive().is_some());
    }
}
