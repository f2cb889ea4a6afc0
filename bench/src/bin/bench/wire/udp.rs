//! Bare UDP between two threads of this process.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quinn_udp::{RecvMeta, Transmit, UdpSocketState};
use warpbell_bench::samples::Samples;

use super::place::Place;

/// Round trips in a repetition.
const ROUNDS: u32 = 2000;
/// A datagram that has not come by then is lost, and another is sent.
const LOST: Duration = Duration::from_millis(20);
/// How long a stream is measured.
const LAP: Duration = Duration::from_millis(50);
/// Bytes that one call takes at most.
const MOST: usize = 65_000;
/// Bytes that a socket may hold.
const BUFFER: usize = 8 << 20;

/// A thread, which ends when this is dropped.
struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Calls `work` again and again.
    fn start(mut work: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                work();
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A thread that sends back what it gets.
pub struct Echo {
    socket: UdpSocket,
    to: SocketAddr,
    _worker: Worker,
}

impl Echo {
    /// A thread that spins until something comes.
    pub fn spinning(ends: &[Place; 2]) -> io::Result<Self> {
        Self::new(ends, true)
    }

    /// A thread that sleeps until something comes.
    pub fn sleeping(ends: &[Place; 2]) -> io::Result<Self> {
        Self::new(ends, false)
    }

    fn new([near, far]: &[Place; 2], spins: bool) -> io::Result<Self> {
        let [socket, other] = [near.socket()?, far.socket()?];
        let to = other.local_addr()?;
        socket.set_nonblocking(true)?;
        other.set_nonblocking(spins)?;
        // So that it sees when it is to end.
        other.set_read_timeout(Some(LOST))?;
        let mut bytes = [0; 2048];
        let worker = Worker::start(move || {
            if let Ok((length, from)) = other.recv_from(&mut bytes) {
                let _ = other.send_to(&bytes[..length], from);
            }
        });
        Ok(Self {
            socket,
            to,
            _worker: worker,
        })
    }

    /// Microseconds of a round trip: the median of many.
    pub fn round_trip(&self, bytes: usize) -> io::Result<f64> {
        let datagram = vec![0; bytes];
        let mut back = [0; 2048];
        let mut laps = Samples::default();
        for _ in 0..ROUNDS {
            let start = Instant::now();
            self.socket.send_to(&datagram, self.to)?;
            while start.elapsed() < LOST {
                match self.socket.recv_from(&mut back) {
                    Ok(_) => break,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            laps.push(start.elapsed().as_secs_f64() * 1e6);
        }
        Ok(laps.median())
    }
}

/// A thread that counts what comes. Datagrams go out and come in many at a time, as far as the system can.
pub struct Stream {
    socket: UdpSocket,
    state: UdpSocketState,
    to: SocketAddr,
    received: Arc<AtomicU64>,
    _worker: Worker,
}

impl Stream {
    pub fn new([near, far]: &[Place; 2]) -> io::Result<Self> {
        let [socket, other] = [near.socket()?, far.socket()?];
        let state = UdpSocketState::new((&socket).into())?;
        let other_state = UdpSocketState::new((&other).into())?;
        other_state.set_recv_buffer_size((&other).into(), BUFFER)?;
        let to = other.local_addr()?;
        let received = Arc::<AtomicU64>::default();
        let count = received.clone();
        let mut bytes = vec![0; 8 << 16];
        let worker = Worker::start(move || {
            let mut metas = [RecvMeta::default(); 8];
            let mut buffers = bytes.chunks_exact_mut(1 << 16).map(IoSliceMut::new);
            let mut buffers: [IoSliceMut<'_>; 8] =
                std::array::from_fn(|_| buffers.next().unwrap_or_else(|| IoSliceMut::new(&mut [])));
            let filled = other_state.recv((&other).into(), &mut buffers, &mut metas);
            let datagrams = |meta: &RecvMeta| meta.len.div_ceil(meta.stride.max(1)) as u64;
            let come = metas[..filled.unwrap_or(0)].iter().map(datagrams).sum();
            count.fetch_add(come, Ordering::Relaxed);
        });
        Ok(Self {
            socket,
            state,
            to,
            received,
            _worker: worker,
        })
    }

    /// Million datagrams of this size that come in a second.
    pub fn rate(&self, bytes: usize) -> io::Result<f64> {
        let most = self.state.max_gso_segments().min(MOST / bytes).max(1);
        let datagrams = vec![0; most * bytes];
        let transmit = Transmit {
            destination: self.to,
            ecn: None,
            contents: &datagrams,
            segment_size: Some(bytes),
            src_ip: None,
        };
        let before = self.received.load(Ordering::Relaxed);
        let start = Instant::now();
        while start.elapsed() < LAP {
            match self.state.try_send((&self.socket).into(), &transmit) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let come = self.received.load(Ordering::Relaxed) - before;
        Ok(come as f64 / seconds / 1e6)
    }
}
