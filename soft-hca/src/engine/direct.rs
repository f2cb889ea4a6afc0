//! Small writes between two queue pairs of one HCA, without packets.
//!
//! On a wire that brings each packet straight back, a write is executed where its WQE is read: the same
//! checks, copy and completion, and afterwards both queue pairs are as if its packet and the acknowledgement
//! had travelled. Whatever is not plain takes the ordinary way: other verbs, more than one packet or data
//! segment, a key that does not fit, a WQE still under way, a packet that was refused. So every error and
//! every retry has one place in the code.

use mlx5_wqe::segment::{Control, Data, InlineHeader, RemoteAddress};
use mlx5_wqe::{Opcode, QpNumber, Remote};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::{Access, ProtectionDomain, QueuePairState};
use super::decode::BLOCK;
use super::memory::Memory;
use super::packet::Range;
use super::protection::{Regions, Window};
use super::queue_pair::{Context, QueuePair, SendWqe};
use super::transfer::Ring;
use super::wire::Wire;

/// A write with one data segment, as it lies in its block.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    control: Control,
    remote: RemoteAddress,
    /// Or an [`InlineHeader`] and the first bytes behind it.
    data: Data,
    /// Further inline bytes, if there are any.
    rest: [u8; 16],
}

const _: () = assert!(size_of::<Block>() == BLOCK);

/// Where inline data begin in their block.
const INLINE_AT: usize = 2 * 16 + size_of::<InlineHeader>();

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
        if posted > 1 << ring.log_depth {
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
    let [range, _] = ring.ranges(index, 0, BLOCK as u64);
    let mut bytes = [0; BLOCK];
    // SAFETY: the owner vouched for the ring when the queue pair was created.
    unsafe { memory.read(range.address, &mut bytes) };
    zerocopy::transmute!(bytes)
}

/// What a block asks for, if it is a plain write with this index of this queue pair.
#[inline(always)]
fn plain_write(block: &Block, index: u16, ring: Ring, number: QpNumber, mtu: u32) -> Option<Write> {
    /// The control segment's first word: modifier 0, the index, the opcode.
    const OPCODE: u32 = Opcode::RDMA_WRITE.0 as u32;
    let control = block.control;
    let word = block.data.byte_count.get();
    let length = word & !InlineHeader::MARK;
    let inline = block.data.is_inline();
    let (key, address, octowords) = if inline {
        let [at, _] = ring.ranges(index, INLINE_AT as u64, 1);
        let bytes = size_of::<InlineHeader>() as u32 + length.min(mtu);
        (None, at.address, 2 + bytes.div_ceil(16))
    } else {
        (Some(block.data.key.get()), block.data.address.get(), 3)
    };
    // A WQE of 3 or 4 octowords lies in one block, all of which was read.
    let plain = control.opmod_idx_opcode.get() == u32::from(index) << 8 | OPCODE
        && control.qpn() == number
        && u32::from(control.ds()) == octowords
        && octowords <= 4
        && length.wrapping_sub(1) < mtu
        && control.fm_ce_se.fence().is_some();
    plain.then(|| Write {
        wqe: SendWqe {
            index,
            blocks: 1,
            opcode: Opcode::RDMA_WRITE,
            flags: control.fm_ce_se,
            length,
        },
        key,
        source: Range {
            address,
            length: length.into(),
        },
        remote: block.remote.remote(),
    })
}
