//! Small writes between two queue pairs of one HCA, without packets.
//!
//! On a wire that brings each packet straight back, a write is executed where its WQE is read: the same
//! checks, copy and completion, and afterwards both queue pairs are as if its packet and the acknowledgement
//! had travelled. Whatever is not plain takes the ordinary way: other verbs, more than one packet or data
//! segment, a key that does not fit, a WQE still under way, a packet that was refused. So every error and
//! every retry has one place in the code.

use mlx5_wqe::segment::{Control, InlineHeader};
use mlx5_wqe::{ControlFlags, Opcode, QpNumber, Remote, RemoteKey};

use super::command::{Access, ProtectionDomain, QueuePairState};
use super::decode::BLOCK;
use super::memory::Memory;
use super::packet::Range;
use super::protection::{Regions, Window};
use super::queue_pair::{Context, QueuePair, SendWqe};
use super::transfer::Ring;
use super::wire::Wire;

/// A block of the send ring: control, remote address and data segment are two words each.
type Block = [u64; 8];

/// Where inline data begin in their block.
const INLINE_AT: u64 = 2 * 16 + size_of::<InlineHeader>() as u64;

/// A plain write.
struct Write {
    wqe: SendWqe,
    /// None for inline data.
    key: Option<u32>,
    source: Range,
    remote: Remote,
}

/// The region that a key names, looked up once for all writes in a row that name it.
struct Known<'t> {
    key: u32,
    region: Option<Window<'t>>,
}

impl<'t> Known<'t> {
    const NONE: Self = Self {
        key: 0,
        region: None,
    };

    /// Whether all of `range` may be accessed with this key.
    #[inline(always)]
    fn allows(
        &mut self,
        regions: &Regions<'t>,
        pd: ProtectionDomain,
        key: u32,
        access: Access,
        range: Range,
    ) -> bool {
        if self.region.is_none() || self.key != key {
            self.key = key;
            self.region = regions.window(pd, key, access);
        }
        self.region
            .as_ref()
            .is_some_and(|window| window.holds(range))
    }
}

impl QueuePair {
    /// Whether a write to `peer` now is one that could not but be executed at once.
    pub(super) fn may_write_directly(&self, peer: &Self) -> bool {
        self.state == QueuePairState::ReadyToSend
            && self.requester.is_at_rest()
            && matches!(
                peer.state,
                QueuePairState::ReadyToReceive | QueuePairState::ReadyToSend
            )
            && (self.remote_qp, self.number) == (peer.number, peer.remote_qp)
            && self.remote_address == peer.remote_address
            && peer.access.contains(Access::REMOTE_WRITE)
            && peer.responder.expects(self.requester.next_psn())
    }

    /// Executes up to `budget` plain writes from the queue's front on; gives how many there were.
    #[inline(never)]
    pub(super) fn write_directly<M: Memory, W: Wire>(
        &mut self,
        peer: &mut Self,
        cx: &mut Context<'_, '_, M, W>,
        budget: u16,
    ) -> u16 {
        let ring = self.ring();
        let first = self.requester.tail;
        let posted = self.requester.producer.wrapping_sub(first);
        // A block that is not posted is not looked at: its owner may be writing it.
        if posted == 0 || posted > 1 << ring.log_depth {
            return 0;
        }
        let budget = budget.min(posted);
        let domains = [&*self, &*peer].map(|pair| pair.attributes.protection_domain);
        let (number, mtu) = (self.number, self.path_mtu);
        let (mut local, mut remote) = (Known::NONE, Known::NONE);
        // What is done, and what of it the queue pairs know.
        let (mut done, mut counted) = (0, 0);
        let mut next = block(cx.memory, ring, first);
        while done < budget {
            let current = next;
            let index = first.wrapping_add(done);
            // The one behind it is read ahead, because the time of both is that of one.
            if done + 1 < budget {
                next = block(cx.memory, ring, index.wrapping_add(1));
            }
            let Some(write) = plain_write(&current, index, ring, number, mtu) else {
                break;
            };
            let target = Range {
                address: write.remote.address,
                length: write.source.length,
            };
            let (regions, key) = (&*cx.regions, write.remote.key.0);
            let allowed =
                write.key.is_none_or(|key| {
                    local.allows(regions, domains[0], key, Access::empty(), write.source)
                }) && remote.allows(regions, domains[1], key, Access::REMOTE_WRITE, target);
            if !allowed {
                break;
            }
            // SAFETY: both ranges were just checked against registered memory, or the source lies in the ring.
            unsafe {
                cx.memory
                    .copy(write.source.address, target.address, target.length as usize);
            };
            done += 1;
            if write.wqe.flags.is_signalled() {
                self.count_direct(peer, done - counted);
                // This one counts itself.
                self.counters.completed += u64::from(done - counted - 1);
                counted = done;
                self.complete_send(cx, &write.wqe, None);
                if self.state != QueuePairState::ReadyToSend {
                    return done;
                }
            }
        }
        self.count_direct(peer, done - counted);
        self.counters.completed += u64::from(done - counted);
        if done > 0 {
            self.requester.progress(cx.now);
        }
        done
    }

    /// Counts so many WQEs of one block that were executed, as if their packets had been acknowledged.
    fn count_direct(&mut self, peer: &mut Self, writes: u16) {
        self.requester.count_direct(writes);
        peer.responder.count_direct(writes);
    }
}

/// The block with this index.
#[inline(always)]
fn block<M: Memory>(memory: &M, ring: Ring, index: u16) -> Block {
    // SAFETY: the owner vouched for the ring when the queue pair was created.
    unsafe { memory.read_block(ring.address + at(ring, index)) }
}

/// Where the block with this index begins, from the ring's start.
#[inline(always)]
const fn at(ring: Ring, index: u16) -> u64 {
    (index as u64 * BLOCK as u64) & (ring.bytes() - 1)
}

/// What a block asks for, if it is a plain write with this index of this queue pair.
#[inline(always)]
fn plain_write(block: &Block, index: u16, ring: Ring, number: QpNumber, mtu: u32) -> Option<Write> {
    let [
        first,
        second,
        remote_address,
        remote_key,
        data,
        data_address,
        ..,
    ] = block.map(u64::from_be);
    let (word, local_key) = ((data >> 32) as u32, data as u32);
    let inline = word & InlineHeader::MARK != 0;
    let length = word & !InlineHeader::MARK;
    let (key, address, octowords) = if inline {
        let bytes = size_of::<InlineHeader>() as u32 + length.min(mtu);
        let address = ring.address + at(ring, index) + INLINE_AT;
        (None, address, 2 + bytes.div_ceil(16))
    } else {
        (Some(local_key), data_address, 3)
    };
    // Modifier 0, index, opcode; number and size, with nothing in the bits between.
    let expected = [
        u32::from(index) << 8 | u32::from(Opcode::RDMA_WRITE.0),
        number.get() << 8 | octowords & Control::DS_MASK,
    ];
    let flags = ControlFlags::from_bits_retain((second >> 32) as u8);
    // A WQE of 3 or 4 octowords lies in one block, all of which was read.
    let plain = [(first >> 32) as u32, first as u32] == expected
        && octowords <= 4
        && length.wrapping_sub(1) < mtu
        && flags.fence().is_some();
    plain.then(|| Write {
        wqe: SendWqe {
            index,
            blocks: 1,
            opcode: Opcode::RDMA_WRITE,
            flags,
            length,
        },
        key,
        source: Range {
            address,
            length: length.into(),
        },
        remote: Remote {
            address: remote_address,
            key: RemoteKey((remote_key >> 32) as u32),
        },
    })
}
