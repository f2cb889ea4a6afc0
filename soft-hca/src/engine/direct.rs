//! Small writes between two queue pairs of one HCA, without packets.
//!
//! On a wire that brings each packet straight back, a write is executed where its WQE is read: the same
//! checks, copy and completion, and afterwards both queue pairs are as if its packet and the acknowledgement
//! had travelled. Whatever is not plain takes the ordinary way: other verbs, more than one packet or data
//! segment, a key that does not fit, a WQE still under way, a packet that was refused. So every error and
//! every retry has one place in the code.

use mlx5_wqe::segment::{Control, Data, InlineHeader, RemoteAddress};
use mlx5_wqe::{Opcode, Remote, WqeIndex};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::command::{Access, QueuePairState};
use super::decode::BLOCK;
use super::memory::Memory;
use super::packet::Range;
use super::queue_pair::{Context, QueuePair, SendWqe};
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
    source: Range,
    remote: Remote,
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
        budget: usize,
    ) -> usize {
        let depth = 1 << self.attributes.log_send_depth;
        let posted = self.requester.producer.wrapping_sub(self.requester.tail);
        if posted > depth {
            return 0;
        }
        let budget = budget.min(posted.into());
        let mut done = 0;
        let mut next = self.block(cx.memory, 0);
        while done < budget {
            let block = next;
            // The one behind it is read ahead, because the time of both is that of one.
            if done + 1 < budget {
                next = self.block(cx.memory, 1);
            }
            let Some(write) = self.plain_write(&block) else {
                break;
            };
            let remote = Range {
                address: write.remote.address,
                length: write.source.length,
            };
            let (ours, theirs) = (
                self.attributes.protection_domain,
                peer.attributes.protection_domain,
            );
            let regions = &*cx.regions;
            let local = match block.data.is_inline() {
                true => Ok(()),
                false => regions.check(ours, block.data.key.get(), write.source, Access::empty()),
            };
            let key = write.remote.key.0;
            let allowed = regions.check(theirs, key, remote, Access::REMOTE_WRITE);
            if local.is_err() || allowed.is_err() {
                break;
            }
            let length = remote.length as usize;
            // SAFETY: both ranges were just checked against registered memory, or the source lies in the ring.
            unsafe { cx.memory.copy(write.source.address, remote.address, length) };
            done += 1;
            self.requester.count_direct();
            peer.responder.count_direct();
            self.complete_send(cx, &write.wqe, None);
            if self.state != QueuePairState::ReadyToSend {
                break;
            }
        }
        if done > 0 {
            self.requester.progress(cx.now);
        }
        done
    }

    /// The block so many behind the queue's front.
    #[inline]
    fn block<M: Memory>(&self, memory: &M, ahead: u16) -> Block {
        let index = self.requester.tail.wrapping_add(ahead);
        let [range, _] = self.ring().ranges(index, 0, BLOCK as u64);
        let mut bytes = [0; BLOCK];
        // SAFETY: the owner vouched for the ring when the queue pair was created.
        unsafe { memory.read(range.address, &mut bytes) };
        zerocopy::transmute!(bytes)
    }

    /// What a block at the queue's front asks for, if it is a plain write.
    #[inline]
    fn plain_write(&self, block: &Block) -> Option<Write> {
        let index = self.requester.tail;
        let control = block.control;
        let fits = control.opcode() == Opcode::RDMA_WRITE
            && control.modifier() == 0
            && control.index() == WqeIndex(index)
            && control.qpn() == self.number
            && control.fm_ce_se.fence().is_some();
        let word = block.data.byte_count.get();
        let (source, octowords) = if block.data.is_inline() {
            let length = word & !InlineHeader::MARK;
            let [at, _] = self.ring().ranges(index, INLINE_AT as u64, 1);
            let bytes = size_of::<InlineHeader>() as u64 + u64::from(length);
            (at.address, 2 + bytes.div_ceil(16))
        } else {
            (block.data.address.get(), 3)
        };
        let length = word & !InlineHeader::MARK;
        // A WQE of 3 or 4 octowords lies in one block, all of which was read.
        let plain = fits
            && u64::from(control.ds()) == octowords
            && matches!(octowords, 3 | 4)
            && (1..=self.path_mtu).contains(&length);
        plain.then(|| Write {
            wqe: SendWqe {
                index,
                blocks: 1,
                opcode: control.opcode(),
                flags: control.fm_ce_se,
                length,
            },
            source: Range {
                address: source,
                length: length.into(),
            },
            remote: block.remote.remote(),
        })
    }
}
