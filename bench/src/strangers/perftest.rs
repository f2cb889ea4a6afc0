//! Writes into the memory of perftest's `ib_write_bw`.

use std::sync::atomic::Ordering;
use warpbell::Slice;

use crate::run::launch::{Job, LIMIT_US, try_run};
use crate::run::setup::{End, config};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use warpbell::wqe::{Remote, RemoteKey};
use warpbell_host_init::state::{Endpoint, Gid};
use warpbell_host_init::{Node, entry};
use warpbell_kernels::bandwidth::{Stream, stream_write};
use warpbell_kernels::outcome::Outcome;
use warpbell_strangers::Conversation;
use warpbell_strangers::perftest::{Client, Destination, Mtu, Report};

use super::{connect, parted, port, unready};
use crate::{Error, nodes};

const PROGRAM: &str = "ib_write_bw";
const REMEDY: &str = "see whether it still runs, and start it with messages as long as ours (--size, -s), for one queue pair (no -q) and one direction (no -b)";
/// 2^20 bytes, in which perftest counts.
const MIB: f64 = (1 << 20) as f64;

/// What is written, and how.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Bytes of a message.
    pub bytes: u64,
    /// Messages; all go to the same place.
    pub messages: u64,
    /// Messages under one doorbell.
    pub batch: u32,
    /// One message in this many asks for a completion.
    pub signal_every: u64,
    /// Depth of the queue.
    pub depth: u32,
    /// Seed of the data.
    pub seed: u64,
}

/// What was written.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Written {
    /// Bytes of a message.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
    /// Where the server has them.
    pub address: u64,
    /// 10⁹ bytes a second.
    pub gb_per_s: f64,
    /// The same in the server's unit, 2^20 bytes a second: it prints this number.
    pub mib_per_s: f64,
    /// 10⁶ messages a second.
    pub million_per_s: f64,
}

impl Written {
    /// Its row in the server's table.
    pub fn row(&self) -> String {
        let Self {
            bytes,
            messages,
            mib_per_s,
            million_per_s,
            ..
        } = self;
        format!("{bytes:>10} {messages:>12} {mib_per_s:>18.2} {million_per_s:>16.6}")
    }
}

/// The columns of [`Written::row`].
pub const HEADER: &str = "    #bytes  #iterations  BW average[MB/sec]    MsgRate[Mpps]";

/// The data that a server's memory has then.
pub fn data(seed: u64, bytes: u64) -> Vec<u8> {
    let mut data = vec![0; bytes as usize];
    SmallRng::seed_from_u64(seed).fill(&mut data[..]);
    data
}

/// Writes, and tells the server of it.
///
/// # Errors
/// A NIC that reaches no other process; those of start-up; the other end does not speak like the program, or stops.
pub fn write(node: &Node, case: Case, server: impl Conversation) -> Result<Written, Error> {
    let domain = nodes::reachable(node)?.domain()?;
    let mut end = End::new(node, domain, &config(case.depth))?;
    let memory = end.memory(case.bytes as usize)?;
    let data = data(case.seed, case.bytes);
    memory.write(0, &data);
    let own = end.pair.endpoint();
    // No memory of ours is open to the server.
    let ours = Destination {
        lid: own.card.map_or(0, |port| port.lid),
        reads: 1,
        qpn: own.qpn,
        psn: own.psn,
        rkey: 0,
        address: 0,
        gid: own.gid.0,
        srqn: 0,
    };
    let mtu = own.card.and_then(|port| Mtu::new(port.mtu));
    let mut client = Client::call(server, ours, mtu.unwrap_or(Mtu::LARGEST))?;
    let theirs = *client.theirs();
    let endpoint = Endpoint {
        gid: Gid(theirs.gid),
        qpn: theirs.qpn,
        psn: theirs.psn,
        card: port(&own, theirs.lid, client.mtu().bytes(), theirs.reads),
    };
    connect(&mut end.pair, &endpoint)?;
    client.begin()?;

    let times = node.words(2)?;
    let outcome = node.shared(Outcome::new())?;
    let stream = Stream {
        queue: end
            .pair
            .send_queue()
            .map_err(|error| unready(PROGRAM, REMEDY, &end.pair, error))?,
        local: memory.local(0, case.bytes as usize),
        remote: Remote {
            address: theirs.address,
            key: RemoteKey(theirs.rkey),
        },
        slots: 1,
        messages: case.messages,
        batch: case.batch,
        signal_every: case.signal_every,
        limit_us: LIMIT_US,
        times: Slice::new(&times),
        outcome: &outcome,
    };
    let job = Job::new(entry!(stream_write), stream, &outcome);
    try_run(job, &end)?.map_err(|failure| parted(PROGRAM, REMEDY, &end.pair, failure))?;

    let [begin, over] = [0, 1].map(|which: usize| times[which].load(Ordering::Relaxed));
    let seconds = (over - begin).max(1) as f64 / 1e9;
    let bytes_per_s = (case.bytes * case.messages) as f64 / seconds;
    let written = Written {
        bytes: case.bytes,
        messages: case.messages,
        address: theirs.address,
        gb_per_s: bytes_per_s / 1e9,
        mib_per_s: bytes_per_s / MIB,
        million_per_s: case.messages as f64 / seconds / 1e6,
    };
    let ended = client.end(Report {
        bytes: written.bytes,
        messages: written.messages,
        peak_mib_per_s: 0.0,
        average_mib_per_s: written.mib_per_s,
        million_per_s: written.million_per_s,
    });
    // A server that writes, too, was refused: its queue pair is in error, and so is ours.
    if let Some(error) = end.pair.nic_error()? {
        return Err(Error::Parted {
            program: PROGRAM,
            why: error.to_string(),
            remedy: REMEDY,
        });
    }
    ended?;
    crate::run::Error::if_wrong(memory.check(&data).is_err().into(), 1)?;
    Ok(written)
}
