//! WQEs of a fixed shape: one data segment, one value, or nothing but the control segment.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes};

use crate::opcode::{Opcode, modifier};
use crate::segment::{
    Atomic, Control, Data, InlineHeader, MaskedCompareSwap4, MaskedCompareSwap8, MaskedFetchAdd4,
    MaskedFetchAdd8, RemoteAddress, Wait,
};
use crate::units::{CqNumber, Immediate, Local, Octoword, QpNumber, Remote, RemoteKey, WqeBlock};
use crate::wqe::Wqe;

/// A value and the bits of it that take part in a masked compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Masked<T> {
    /// The value.
    pub value: T,
    /// A 1 lets the bit take part.
    pub mask: T,
}

/// The one-block form from its four octowords.
#[inline(always)]
const fn one(octowords: WqeBlock, payload: u64) -> Wqe<1> {
    Wqe {
        blocks: [octowords],
        payload,
    }
}

/// Control, remote address and one data segment: what writes and reads are made of.
#[inline(always)]
const fn rdma(opcode: Opcode, local: Local, remote: Remote, immediate: u32) -> Wqe<1> {
    one(
        [
            Control::new(opcode, 0, 3, immediate).to_octoword(),
            RemoteAddress::new(remote).to_octoword(),
            Data::new(local).to_octoword(),
            Octoword::ZERO,
        ],
        local.length as u64,
    )
}

/// Control and one data segment: what sends are made of.
#[inline(always)]
const fn message(opcode: Opcode, local: Local, immediate: u32) -> Wqe<1> {
    one(
        [
            Control::new(opcode, 0, 2, immediate).to_octoword(),
            Data::new(local).to_octoword(),
            Octoword::ZERO,
            Octoword::ZERO,
        ],
        local.length as u64,
    )
}

/// A control segment alone.
#[inline(always)]
const fn bare(opcode: Opcode, immediate: u32) -> Wqe<1> {
    one(
        [
            Control::new(opcode, 0, 1, immediate).to_octoword(),
            Octoword::ZERO,
            Octoword::ZERO,
            Octoword::ZERO,
        ],
        0,
    )
}

/// Control, remote address, one atomic segment, and where the old value goes.
#[inline(always)]
const fn atomic(
    opcode: Opcode,
    modifier: u8,
    local: Local,
    remote: Remote,
    operands: Octoword,
) -> Wqe<1> {
    one(
        [
            Control::new(opcode, modifier, 4, 0).to_octoword(),
            RemoteAddress::new(remote).to_octoword(),
            operands,
            Data::new(local).to_octoword(),
        ],
        local.length as u64,
    )
}

/// Control and one wait segment.
#[inline(always)]
const fn waiting(opcode: Opcode, wait: Wait) -> Wqe<1> {
    one(
        [
            Control::new(opcode, 0, 2, 0).to_octoword(),
            wait.to_octoword(),
            Octoword::ZERO,
            Octoword::ZERO,
        ],
        0,
    )
}

/// The forms of one block.
impl Wqe<1> {
    /// The most bytes that [`write_value`](Self::write_value) carries.
    pub const MAX_VALUE: usize = 28;

    /// Does nothing, and completes.
    ///
    /// ```
    /// # use mlx5_wqe::{Opcode, Wqe};
    /// let wqe = Wqe::nop().signalled();
    /// assert_eq!((wqe.opcode(), wqe.ds(), wqe.payload()), (Opcode::NOP, 1, 0));
    /// ```
    #[inline(always)]
    pub const fn nop() -> Self {
        bare(Opcode::NOP, 0)
    }

    /// Writes `local` to `remote`.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Opcode, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::write(local, remote).signalled();
    /// assert_eq!((wqe.opcode(), wqe.ds(), wqe.payload()), (Opcode::RDMA_WRITE, 3, 64));
    /// ```
    #[inline(always)]
    pub const fn write(local: Local, remote: Remote) -> Self {
        rdma(Opcode::RDMA_WRITE, local, remote, 0)
    }

    /// Writes `local` to `remote`, then completes a receive of the other end with `immediate`.
    ///
    /// ```
    /// # use mlx5_wqe::{Immediate, Local, LocalKey, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::write_immediate(local, remote, Immediate(7));
    /// assert_eq!(wqe.control().immediate(), Immediate(7));
    /// ```
    #[inline(always)]
    pub const fn write_immediate(local: Local, remote: Remote, immediate: Immediate) -> Self {
        rdma(Opcode::RDMA_WRITE_IMMEDIATE, local, remote, immediate.0)
    }

    /// Completes a receive of the other end with `immediate` and writes nothing.
    ///
    /// The card does not look at `remote`'s memory for a length of 0.
    ///
    /// ```
    /// # use mlx5_wqe::{Immediate, Remote, RemoteKey, Wqe};
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::write_immediate_only(remote, Immediate(7));
    /// assert_eq!((wqe.ds(), wqe.payload()), (2, 0));
    /// ```
    #[inline(always)]
    pub const fn write_immediate_only(remote: Remote, immediate: Immediate) -> Self {
        one(
            [
                Control::new(Opcode::RDMA_WRITE_IMMEDIATE, 0, 2, immediate.0).to_octoword(),
                RemoteAddress::new(remote).to_octoword(),
                Octoword::ZERO,
                Octoword::ZERO,
            ],
            0,
        )
    }

    /// Writes up to 28 bytes that travel in the WQE itself; one block, no memory read by the card.
    ///
    /// The bytes arrive as they lie in this end's memory. A `T` of no bytes or of more than 28 does
    /// not compile.
    ///
    /// ```
    /// # use mlx5_wqe::{QpNumber, Remote, RemoteKey, Wqe, WqeIndex};
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::write_value(0xdead_beef_u32, remote);
    /// let [block] = wqe.place(WqeIndex(0), QpNumber::new(5).unwrap());
    /// let inline = block[2].to_bytes();
    /// assert_eq!(inline[..4], [0x80, 0, 0, 4]);
    /// assert_eq!(inline[4..8], 0xdead_beef_u32.to_ne_bytes());
    /// ```
    #[inline(always)]
    pub fn write_value<T: IntoBytes + Immutable>(value: T, remote: Remote) -> Self {
        const {
            assert!(size_of::<T>() > 0, "a value of no bytes cannot be sent");
            assert!(
                size_of::<T>() <= Self::MAX_VALUE,
                "the value does not fit one block"
            );
        }
        let mut bytes = [0; Self::MAX_VALUE];
        // The size was checked above, so that this cannot fail.
        let _ = value.write_to_prefix(&mut bytes);
        // In words, each of which lies within one of the WQE's: a value across two would lie in a GPU's local memory where a
        // kernel chooses between this and another request.
        let [a, b, c, d, e, f, g]: [u32; 7] = zerocopy::transmute!(bytes);
        let header = zerocopy::transmute!(InlineHeader::new(size_of::<T>() as u32));
        let first = octoword([header, a, b, c]);
        let second = octoword([d, e, f, g]);
        let ds = 2 + (size_of::<InlineHeader>() + size_of::<T>()).div_ceil(16) as u8;
        one(
            [
                Control::new(Opcode::RDMA_WRITE, 0, ds, 0).to_octoword(),
                RemoteAddress::new(remote).to_octoword(),
                first,
                second,
            ],
            size_of::<T>() as u64,
        )
    }

    /// Reads `remote` into `local`.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Opcode, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::read(local, remote);
    /// assert_eq!((wqe.opcode(), wqe.ds(), wqe.payload()), (Opcode::RDMA_READ, 3, 64));
    /// ```
    #[inline(always)]
    pub const fn read(local: Local, remote: Remote) -> Self {
        rdma(Opcode::RDMA_READ, local, remote, 0)
    }

    /// Sends `local` into a receive of the other end.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Opcode, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// let wqe = Wqe::send(local).solicited();
    /// assert_eq!((wqe.opcode(), wqe.ds(), wqe.payload()), (Opcode::SEND, 2, 64));
    /// ```
    #[inline(always)]
    pub const fn send(local: Local) -> Self {
        message(Opcode::SEND, local, 0)
    }

    /// Sends `local` with `immediate` for the receiver's completion.
    ///
    /// ```
    /// # use mlx5_wqe::{Immediate, Local, LocalKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// let wqe = Wqe::send_immediate(local, Immediate(7));
    /// assert_eq!(wqe.control().immediate(), Immediate(7));
    /// ```
    #[inline(always)]
    pub const fn send_immediate(local: Local, immediate: Immediate) -> Self {
        message(Opcode::SEND_IMMEDIATE, local, immediate.0)
    }

    /// Sends `local`, and invalidates `key` at the receiver.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// let wqe = Wqe::send_invalidate(local, RemoteKey(0x99));
    /// assert_eq!(wqe.control().invalidated_key(), RemoteKey(0x99));
    /// ```
    #[inline(always)]
    pub const fn send_invalidate(local: Local, key: RemoteKey) -> Self {
        message(Opcode::SEND_INVALIDATE, local, key.0)
    }

    /// Completes a receive of the other end and carries nothing.
    ///
    /// ```
    /// # use mlx5_wqe::{Wqe};
    /// let wqe = Wqe::send_empty();
    /// assert_eq!((wqe.ds(), wqe.payload()), (1, 0));
    /// ```
    #[inline(always)]
    pub const fn send_empty() -> Self {
        bare(Opcode::SEND, 0)
    }

    /// Completes a receive of the other end with `immediate` and carries nothing else.
    ///
    /// ```
    /// # use mlx5_wqe::{Immediate, Wqe};
    /// let wqe = Wqe::send_immediate_only(Immediate(7));
    /// assert_eq!((wqe.ds(), wqe.payload()), (1, 0));
    /// ```
    #[inline(always)]
    pub const fn send_immediate_only(immediate: Immediate) -> Self {
        bare(Opcode::SEND_IMMEDIATE, immediate.0)
    }

    /// Adds `add` to the 8 bytes at `remote`; the old value goes to `local`, which is 8 bytes.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Opcode, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 8, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::fetch_add(local, remote, 1);
    /// assert_eq!((wqe.opcode(), wqe.ds(), wqe.payload()), (Opcode::ATOMIC_FETCH_ADD, 4, 8));
    /// ```
    #[inline(always)]
    pub const fn fetch_add(local: Local, remote: Remote, add: u64) -> Self {
        let operands = Atomic {
            swap_add: U64::new(add),
            compare: U64::new(0),
        };
        atomic(
            Opcode::ATOMIC_FETCH_ADD,
            0,
            local,
            remote,
            operands.to_octoword(),
        )
    }

    /// Puts `swap` into the 8 bytes at `remote` if they hold `compare`; the old value goes to
    /// `local`, which is 8 bytes.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Opcode, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 8, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::compare_swap(local, remote, 0, 1);
    /// assert_eq!((wqe.opcode(), wqe.ds()), (Opcode::ATOMIC_COMPARE_SWAP, 4));
    /// ```
    #[inline(always)]
    pub const fn compare_swap(local: Local, remote: Remote, compare: u64, swap: u64) -> Self {
        let operands = Atomic {
            swap_add: U64::new(swap),
            compare: U64::new(compare),
        };
        atomic(
            Opcode::ATOMIC_COMPARE_SWAP,
            0,
            local,
            remote,
            operands.to_octoword(),
        )
    }

    /// Adds `add` to the 4 bytes at `remote`, field by field: a 1 in `field_boundary` marks the top
    /// bit of a field. The old value goes to `local`, which is 4 bytes.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Opcode, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 4, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// // Two counters of 16 bits each, counted up together; neither carries into the other.
    /// let wqe = Wqe::masked_fetch_add_u32(local, remote, 0x0001_0001, 0x8000_8000);
    /// assert_eq!((wqe.opcode(), wqe.control().modifier()), (Opcode::MASKED_FETCH_ADD, 8));
    /// ```
    #[inline(always)]
    pub const fn masked_fetch_add_u32(
        local: Local,
        remote: Remote,
        add: u32,
        field_boundary: u32,
    ) -> Self {
        let operands = MaskedFetchAdd4 {
            add: U32::new(add),
            field_boundary: U32::new(field_boundary),
            reserved: U64::new(0),
        };
        atomic(
            Opcode::MASKED_FETCH_ADD,
            modifier::ATOMIC_4_BYTES,
            local,
            remote,
            operands.to_octoword(),
        )
    }

    /// Adds `add` to the 8 bytes at `remote`, field by field: a 1 in `field_boundary` marks the top
    /// bit of a field. The old value goes to `local`, which is 8 bytes.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Opcode, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 8, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// // One counter of 64 bits: the card's plain fetch-and-add, in its masked form.
    /// let wqe = Wqe::masked_fetch_add_u64(local, remote, 1, 0);
    /// assert_eq!((wqe.opcode(), wqe.control().modifier()), (Opcode::MASKED_FETCH_ADD, 9));
    /// ```
    #[inline(always)]
    pub const fn masked_fetch_add_u64(
        local: Local,
        remote: Remote,
        add: u64,
        field_boundary: u64,
    ) -> Self {
        let operands = MaskedFetchAdd8 {
            add: U64::new(add),
            field_boundary: U64::new(field_boundary),
        };
        atomic(
            Opcode::MASKED_FETCH_ADD,
            modifier::ATOMIC_8_BYTES,
            local,
            remote,
            operands.to_octoword(),
        )
    }

    /// Compares the bits of `compare` with the 4 bytes at `remote`, and where they agree swaps in
    /// the bits of `swap`. The old value goes to `local`, which is 4 bytes.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Masked, Opcode, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 4, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// // Sets the low byte, whatever stood there.
    /// let anything = Masked { value: 0, mask: 0 };
    /// let byte = Masked { value: 0x2a, mask: 0xff };
    /// let wqe = Wqe::masked_compare_swap_u32(local, remote, anything, byte);
    /// assert_eq!((wqe.opcode(), wqe.control().modifier()), (Opcode::MASKED_COMPARE_SWAP, 8));
    /// ```
    #[inline(always)]
    pub const fn masked_compare_swap_u32(
        local: Local,
        remote: Remote,
        compare: Masked<u32>,
        swap: Masked<u32>,
    ) -> Self {
        let operands = MaskedCompareSwap4 {
            swap: U32::new(swap.value),
            compare: U32::new(compare.value),
            swap_mask: U32::new(swap.mask),
            compare_mask: U32::new(compare.mask),
        };
        atomic(
            Opcode::MASKED_COMPARE_SWAP,
            modifier::ATOMIC_4_BYTES,
            local,
            remote,
            operands.to_octoword(),
        )
    }

    /// Holds the queue until completion queue `queue` has the CQE number `index`, from 0, of which 24 bits count.
    ///
    /// ```
    /// # use mlx5_wqe::{CqNumber, Opcode, Wqe};
    /// let wqe = Wqe::wait(CqNumber::new(9).unwrap(), 100);
    /// assert_eq!((wqe.opcode(), wqe.ds()), (Opcode::WAIT, 2));
    /// ```
    #[inline(always)]
    pub const fn wait(queue: CqNumber, index: u32) -> Self {
        waiting(Opcode::WAIT, Wait::completion(queue, index))
    }

    /// Lets the send queue of `queue` run up to `index`, that of the block behind the last one that may run.
    ///
    /// ```
    /// # use mlx5_wqe::{Opcode, QpNumber, Wqe};
    /// let wqe = Wqe::send_enable(QpNumber::new(9).unwrap(), 100);
    /// assert_eq!((wqe.opcode(), wqe.ds()), (Opcode::SEND_ENABLE, 2));
    /// ```
    #[inline(always)]
    pub const fn send_enable(queue: QpNumber, index: u32) -> Self {
        waiting(Opcode::SEND_ENABLE, Wait::enable(queue, index))
    }

    /// Lets the receive queue of `queue` run up to `index`.
    ///
    /// ```
    /// # use mlx5_wqe::{Opcode, QpNumber, Wqe};
    /// let wqe = Wqe::receive_enable(QpNumber::new(9).unwrap(), 100);
    /// assert_eq!((wqe.opcode(), wqe.ds()), (Opcode::RECEIVE_ENABLE, 2));
    /// ```
    #[inline(always)]
    pub const fn receive_enable(queue: QpNumber, index: u32) -> Self {
        waiting(Opcode::RECEIVE_ENABLE, Wait::enable(queue, index))
    }
}

/// Four words as they lie in memory.
#[inline(always)]
const fn octoword(words: [u32; 4]) -> Octoword {
    zerocopy::transmute!(words)
}

/// The form of two blocks.
impl Wqe<2> {
    /// Compares the bits of `compare` with the 8 bytes at `remote`, and where they agree swaps in
    /// the bits of `swap`. The old value goes to `local`, which is 8 bytes.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Masked, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 8, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// // Takes a lock in the top bit, whatever the other bits hold.
    /// let free = Masked { value: 0, mask: 1 << 63 };
    /// let taken = Masked { value: 1 << 63, mask: 1 << 63 };
    /// let wqe = Wqe::masked_compare_swap_u64(local, remote, free, taken);
    /// assert_eq!((wqe.ds(), wqe.blocks()), (5, 2));
    /// ```
    #[inline(always)]
    pub const fn masked_compare_swap_u64(
        local: Local,
        remote: Remote,
        compare: Masked<u64>,
        swap: Masked<u64>,
    ) -> Self {
        let control = Control::new(Opcode::MASKED_COMPARE_SWAP, modifier::ATOMIC_8_BYTES, 5, 0);
        let operands = MaskedCompareSwap8 {
            swap: U64::new(swap.value),
            compare: U64::new(compare.value),
            swap_mask: U64::new(swap.mask),
            compare_mask: U64::new(compare.mask),
        };
        let [values, masks] = operands.to_octowords();
        Self {
            blocks: [
                [
                    control.to_octoword(),
                    RemoteAddress::new(remote).to_octoword(),
                    values,
                    masks,
                ],
                [
                    Data::new(local).to_octoword(),
                    Octoword::ZERO,
                    Octoword::ZERO,
                    Octoword::ZERO,
                ],
            ],
            payload: local.length as u64,
        }
    }
}
