//! Two ends answer each other's sends. The other end may be a program of somebody else's that does the same.

use warpbell::wqe::{Arrival, Local, Wqe};
use warpbell::{
    Deadline, Exclusive, ReceiveQueueHandle, SendQueueHandle, Slice, Stop, Word64, kernel, thread,
};

use crate::outcome::Outcome;

/// Rounds between two looks at a stop, which would add its microsecond to the round.
const LOOK_EVERY: u64 = 64;

/// One side of the game. [`sink_prepare`](crate::bandwidth::sink_prepare) has posted `slots` buffers, the first at
/// `incoming`, before the other end could send.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SendPingPong<'a> {
    /// Where to send.
    pub send: SendQueueHandle<'a>,
    /// Where the other end's messages arrive.
    pub receive: ReceiveQueueHandle<'a>,
    /// The first message to send; the others follow, and after `slots` it starts again.
    pub outgoing: Local,
    /// The first message's buffer; likewise.
    pub incoming: Local,
    /// Messages that lie beside each other, at least 1.
    pub slots: u64,
    /// How many rounds, at least `slots`.
    pub rounds: u64,
    /// 1 for the side that sends first, 0 for the other one.
    pub starts: u32,
    /// Ends the game early. The other end is not told.
    pub stop: Stop<'a>,
    /// Microseconds that each wait may take.
    pub limit_us: u64,
    /// Microseconds to wait at the end for a message that should not come.
    pub linger_us: u64,
    /// Takes the nanoseconds of each round.
    pub samples: Slice<'a, Word64>,
    /// Takes the number of rounds that were played.
    pub played: Slice<'a, Word64>,
    /// Takes what came instead of the message that ended the game: its bytes, plus 1.
    pub odd: Slice<'a, Word64>,
    /// What became of it.
    pub outcome: &'a Outcome,
}

/// Plays one side, with one thread.
#[kernel]
pub fn send_pingpong(p: SendPingPong<'_>) {
    p.outcome.record(|| {
        let limit = Deadline::after_us(p.limit_us);
        let mut sends = p.send.open::<Exclusive>()?;
        let mut receives = p.receive.open::<Exclusive>()?;
        let length = u64::from(p.outgoing.length);
        let (mut outgoing, mut incoming) = (p.outgoing, p.incoming);
        let (mut played, mut slot) = (0, 0);
        while played < p.rounds && !(played % LOOK_EVERY == 0 && p.stop.requested()) {
            let begin = thread::clock_ns();
            if p.starts == 1 {
                let _ = sends.post(Wqe::send(outgoing), limit)?;
            }
            let received = receives.receive(limit)?;
            if received.kind != Arrival::Send || received.bytes != p.incoming.length {
                p.odd.store(0, u64::from(received.bytes) + 1);
                return Ok(());
            }
            // Before the answer, which may bring the next message. One more than there are rounds, for a message
            // that should not come.
            if played + p.slots <= p.rounds {
                receives.try_post(incoming)?;
            }
            if p.starts == 0 {
                let _ = sends.post(Wqe::send(outgoing), limit)?;
            }
            p.samples.store(played, thread::clock_ns() - begin);
            played += 1;
            p.played.store(0, played);
            slot += 1;
            outgoing.address += length;
            incoming.address += length;
            if slot == p.slots {
                (slot, outgoing, incoming) = (0, p.outgoing, p.incoming);
            }
        }
        sends.drain(limit)?;
        if played == p.rounds
            && let Ok(received) = receives.receive(Deadline::after_us(p.linger_us))
        {
            p.odd.store(0, u64::from(received.bytes) + 1);
        }
        Ok(())
    });
}
