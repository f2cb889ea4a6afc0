//! ComP-Net's example by its own calls: each work-group pings its counterpart at another PE.

use warpbell::{Deadline, block, kernel};
use warpbell_patterns::cpnet::{
    CpnetHandle, Error, Symmetric, cpnet_ctx_create, cpnet_ctx_destroy, cpnet_shmem_char_p,
    cpnet_shmem_char_wait_until,
};

use crate::outcome::Outcome;

/// One PE of the example.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CpnetPing<'a> {
    /// This PE.
    pub cpnet: CpnetHandle<'a>,
    /// A byte for each work-group.
    pub wg_buffer: Symmetric<'a>,
    /// The other PE.
    pub peer: u32,
    /// 1 for the initiator, 0 for the target.
    pub initiates: u32,
    /// How often each work-group goes there and back; at least 1.
    pub rounds: u32,
    /// Microseconds that each call may take.
    pub limit_us: u64,
    /// What became of it.
    pub outcome: &'a Outcome,
}

impl CpnetPing<'_> {
    /// What a work-group puts in a round, from 1. Its byte has the value of round 0 at first.
    pub const fn value(group: u32, round: u32) -> u8 {
        group.wrapping_add(round) as u8
    }
}

/// Plays one PE, with a block for each work-group. The target answers each ping with the same byte.
#[kernel]
pub fn suite_cpnet_ping(p: CpnetPing<'_>) {
    p.outcome.record(|| Ok(ping(&p)?));
}

#[inline(always)]
fn ping(p: &CpnetPing<'_>) -> Result<(), Error> {
    let limit = Deadline::after_us(p.limit_us);
    let group = block::index();
    let mut ctx = cpnet_ctx_create(p.cpnet)?;
    let own = p.wg_buffer.at(group.into())?;
    for round in 1..=p.rounds {
        let value = CpnetPing::value(group, round);
        if p.initiates == 0 {
            cpnet_shmem_char_wait_until(own, value, limit)?;
        }
        cpnet_shmem_char_p(&mut ctx, own, value, p.peer, limit)?;
        if p.initiates == 1 {
            cpnet_shmem_char_wait_until(own, value, limit)?;
        }
    }
    cpnet_ctx_destroy(ctx, limit)
}
