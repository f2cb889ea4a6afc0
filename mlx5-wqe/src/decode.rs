//! A send WQE's bytes and what they ask for: a pure function that never panics.

use crate::segment::{
    Atomic as AtomicSegment, Control, Data, InlineHeader, MaskedCompareSwap4, MaskedCompareSwap8,
    MaskedFetchAdd4, MaskedFetchAdd8, RemoteAddress, Wait,
};
use crate::{
    AddressVector, ControlFlags, CqNumber, Fence, Immediate, Local, Opcode, QpNumber, Remote,
    RemoteKey, Syndrome, WqeIndex, opcode::modifier,
};
use zerocopy::FromBytes;

/// Bytes in a basic block.
pub const BLOCK: usize = 64;
/// The unit in which a WQE states its size.
const OCTOWORD: usize = 16;
/// The most bytes in a WQE: `ds` has 6 bits.
pub const MAX_WQE_BYTES: usize = 63 * OCTOWORD;

/// The longest message: 1 GiB.
pub const MAX_MESSAGE_LENGTH: u32 = 1 << 30;

/// What a queue pair promises of its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transport {
    /// RC: they arrive, once and in order, or the queue pair goes to error.
    #[default]
    ReliableConnection,
    /// UC: they go to one peer; one of which a packet is lost is lost whole, and nobody is told. SEND and RDMA WRITE,
    /// both perhaps with immediate data.
    UnreliableConnection,
    /// UD: each SEND, perhaps with immediate data, is a packet of its own to wherever its address vector says, by GID
    /// A receive gets 40 bytes of global route header before the message.
    Datagram,
}

/// A WQE that is well formed. Keys and addresses are as it names them, unchecked.
#[derive(Clone, Copy, Debug)]
pub struct DecodedWqe<'a> {
    /// Basic blocks that it takes, 1 to 16.
    pub blocks: u8,
    /// Its opcode.
    pub opcode: Opcode,
    /// Completion, solicited and fence bits.
    pub flags: ControlFlags,
    /// The fence.
    pub fence: Fence,
    /// What is to be done.
    pub operation: Operation,
    /// Local data: the source, or of a READ or atomic the destination.
    pub data: DataList<'a>,
    /// Bytes of the whole message, at most [`MAX_MESSAGE_LENGTH`].
    pub length: u32,
    /// Where a datagram goes.
    pub destination: Option<&'a AddressVector>,
}

/// What a WQE asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Nothing.
    Nop,
    /// SEND.
    Send(Extra),
    /// RDMA WRITE.
    Write(Remote, Extra),
    /// RDMA READ.
    Read(Remote),
    /// An atomic.
    Atomic(Remote, AtomicOperation),
    /// What has to do with queues alone, and sends nothing.
    Queue(QueueOperation),
}

/// What concerns other queues (cross-channel).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOperation {
    /// Hold the queue until that completion queue has the CQE of that number.
    Wait {
        /// The completion queue.
        queue: CqNumber,
        /// The CQE's number, from 0, of which the low 24 bits count.
        number: u32,
    },
    /// Let that queue pair's send queue run.
    SendEnable {
        /// The queue pair.
        queue: QpNumber,
        /// The index behind the last block that may run, of which the low 16 bits count.
        end: u32,
    },
}

/// What goes along with a SEND or WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    None,
    /// Immediate data for the responder's CQE.
    Immediate(Immediate),
    /// A remote key to invalidate.
    Invalidate(RemoteKey),
}

/// An atomic with its operands; plain ones have full masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicOperation {
    /// Which.
    pub kind: AtomicKind,
    /// 4 or 8 bytes.
    pub width: u8,
    /// Swap or add, compare, swap mask or field boundary, compare mask.
    pub operands: [u64; 4],
}

/// The atomics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AtomicKind {
    /// Compare and swap, under masks.
    CompareSwap = 0,
    /// Fetch and add, by fields.
    FetchAdd = 1,
}

impl AtomicOperation {
    /// Whether it has 4 bytes, or masks that matter. InfiniBand has packets for the others alone: 8 bytes, compared,
    /// replaced and added as a whole (IBTA volume 1, 9.4.5).
    pub const fn is_extended(&self) -> bool {
        let [.., mask, compare_mask] = self.operands;
        let plain = match self.kind {
            AtomicKind::CompareSwap => mask == u64::MAX && compare_mask == u64::MAX,
            AtomicKind::FetchAdd => mask == 0,
        };
        self.width != 8 || !plain
    }

    /// The value to store where `found` was; `None` to store nothing.
    ///
    /// CompareSwap: where the bits of `compare` under its mask agree with `found`, the bits of
    /// `swap` under its mask replace those of `found`. FetchAdd: adds, and no carry leaves a bit
    /// that is set in the field boundary.
    pub const fn apply(&self, found: u64) -> Option<u64> {
        let [value, compare, mask, compare_mask] = self.operands;
        match self.kind {
            AtomicKind::CompareSwap => {
                if (found ^ compare) & compare_mask != 0 {
                    return None;
                }
                Some((found & !mask) | (value & mask))
            }
            AtomicKind::FetchAdd => {
                // Added without the fields' top bits no carry can leave a field; the top bits are
                // then added without carry.
                let low = (found & !mask).wrapping_add(value & !mask);
                Some(low ^ ((found ^ value) & mask))
            }
        }
    }
}

/// Why bytes are no WQE of their queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Fewer bytes than `ds` says, or than a control segment has.
    #[error("fewer bytes than the WQE's size says")]
    Truncated,
    /// More blocks than are posted, or more posted than the ring holds. Found by the queue walk.
    #[error("the WQE reaches past the producer index, or the producer index past the ring")]
    PastProducer,
    /// `ds` is 0.
    #[error("a size of 0")]
    Empty,
    /// The index in the control segment is not the slot's.
    #[error("the index is not that of the slot")]
    WrongIndex,
    /// The QPN in the control segment is not the queue's.
    #[error("the QPN is not that of the queue")]
    WrongQueue,
    /// An opcode that this HCA does not execute.
    #[error("the opcode is not supported")]
    UnsupportedOpcode,
    /// A modifier that the opcode does not know.
    #[error("the opcode does not know the modifier")]
    UnsupportedModifier,
    /// A fence mode that is reserved.
    #[error("the fence mode is reserved")]
    ReservedFence,
    /// A segment reaches past the end of the WQE.
    #[error("a segment reaches past the end of the WQE")]
    SegmentPastEnd,
    /// Inline data where the HCA has to write.
    #[error("inline data where the HCA has to write")]
    InlineDestination,
    /// An atomic's result needs one data segment of its width.
    #[error("an atomic's result needs one data segment of its width")]
    AtomicResult,
    /// An address vector without the half that names a GID.
    #[error("the address vector names no GID")]
    ShortAddress,
    /// A queue's number of more than 24 bits.
    #[error("a queue's number has 24 bits")]
    UnknownQueue,
    /// Longer than [`MAX_MESSAGE_LENGTH`].
    #[error("the message is longer than the maximum")]
    TooLong,
}

impl DecodeError {
    /// The syndrome of its CQE.
    pub const fn syndrome(self) -> Syndrome {
        match self {
            Self::TooLong => Syndrome::LOCAL_LENGTH,
            _ => Syndrome::LOCAL_QP_OPERATION,
        }
    }
}

/// The WQE in `bytes`, which start with its control segment and hold at least all of it.
///
/// `index` is the slot's index and `qpn` the queue's number: both must be in the control segment.
#[inline]
pub fn decode(bytes: &[u8], index: WqeIndex, qpn: QpNumber) -> Result<DecodedWqe<'_>, DecodeError> {
    decode_for(Transport::ReliableConnection, bytes, index, qpn)
}

/// The same of a queue pair of any transport: a datagram has an address vector behind its control segment.
#[inline]
pub fn decode_for(
    transport: Transport,
    bytes: &[u8],
    index: WqeIndex,
    qpn: QpNumber,
) -> Result<DecodedWqe<'_>, DecodeError> {
    let (control, _) = Control::read_from_prefix(bytes).map_err(|_| DecodeError::Truncated)?;
    let ds = control.ds();
    if ds == 0 {
        return Err(DecodeError::Empty);
    }
    if control.index() != index {
        return Err(DecodeError::WrongIndex);
    }
    if control.qpn() != qpn {
        return Err(DecodeError::WrongQueue);
    }
    let opcode = control.opcode();
    let mut rest = bytes
        .get(OCTOWORD..usize::from(ds) * OCTOWORD)
        .ok_or(DecodeError::Truncated)?;
    let fence = control.fm_ce_se.fence().ok_or(DecodeError::ReservedFence)?;
    let mut destination = None;
    let sends_nothing = matches!(opcode, Opcode::NOP | Opcode::WAIT | Opcode::SEND_ENABLE);
    if transport == Transport::Datagram && !sends_nothing {
        destination = Some(address(&mut rest)?);
    }
    let operation = operation(&control, opcode, &mut rest)?;
    if !transport_has(transport, &operation) {
        return Err(DecodeError::UnsupportedOpcode);
    }
    let data = match operation {
        Operation::Nop | Operation::Queue(_) => DataList::EMPTY,
        _ => DataList {
            bytes: rest,
            offset: usize::from(ds) * OCTOWORD - rest.len(),
        },
    };
    Ok(DecodedWqe {
        blocks: control.blocks(),
        opcode,
        flags: control.fm_ce_se,
        fence,
        operation,
        data,
        length: data.check(&operation)?,
        destination,
    })
}

/// Whether a transport knows an operation.
const fn transport_has(transport: Transport, operation: &Operation) -> bool {
    match (transport, operation) {
        (Transport::ReliableConnection, _) | (_, Operation::Nop) => true,
        (_, Operation::Queue(_)) => true,
        (_, Operation::Send(extra)) => !matches!(extra, Extra::Invalidate(_)),
        (Transport::UnreliableConnection, Operation::Write(..)) => true,
        _ => false,
    }
}

/// Takes an address vector off the front.
fn address<'a>(rest: &mut &'a [u8]) -> Result<&'a AddressVector, DecodeError> {
    let (vector, tail) =
        AddressVector::ref_from_prefix(rest).map_err(|_| DecodeError::SegmentPastEnd)?;
    if !vector.is_extended() {
        return Err(DecodeError::ShortAddress);
    }
    *rest = tail;
    Ok(vector)
}

/// What the opcode and its own segments ask for; leaves the data segments in `rest`.
fn operation(
    control: &Control,
    opcode: Opcode,
    rest: &mut &[u8],
) -> Result<Operation, DecodeError> {
    let masked = matches!(
        opcode,
        Opcode::MASKED_COMPARE_SWAP | Opcode::MASKED_FETCH_ADD
    );
    let width = match control.modifier() {
        0 if !masked => 8,
        modifier::ATOMIC_4_BYTES if masked => 4,
        modifier::ATOMIC_8_BYTES if masked => 8,
        _ => return Err(DecodeError::UnsupportedModifier),
    };
    let immediate = Extra::Immediate(control.immediate());
    Ok(match opcode {
        Opcode::NOP => Operation::Nop,
        Opcode::SEND => Operation::Send(Extra::None),
        Opcode::SEND_IMMEDIATE => Operation::Send(immediate),
        Opcode::SEND_INVALIDATE => Operation::Send(Extra::Invalidate(control.invalidated_key())),
        Opcode::RDMA_WRITE => Operation::Write(remote(rest)?, Extra::None),
        Opcode::RDMA_WRITE_IMMEDIATE => Operation::Write(remote(rest)?, immediate),
        Opcode::RDMA_READ => Operation::Read(remote(rest)?),
        Opcode::ATOMIC_COMPARE_SWAP
        | Opcode::ATOMIC_FETCH_ADD
        | Opcode::MASKED_COMPARE_SWAP
        | Opcode::MASKED_FETCH_ADD => {
            Operation::Atomic(remote(rest)?, atomic(opcode, width, rest)?)
        }
        Opcode::WAIT => {
            let segment: Wait = take(rest)?;
            Operation::Queue(QueueOperation::Wait {
                queue: CqNumber::new(segment.queue.get()).ok_or(DecodeError::UnknownQueue)?,
                number: segment.index.get(),
            })
        }
        Opcode::SEND_ENABLE => {
            let segment: Wait = take(rest)?;
            Operation::Queue(QueueOperation::SendEnable {
                queue: QpNumber::new(segment.queue.get()).ok_or(DecodeError::UnknownQueue)?,
                end: segment.index.get(),
            })
        }
        _ => return Err(DecodeError::UnsupportedOpcode),
    })
}

/// An atomic's operands.
fn atomic(opcode: Opcode, width: u8, rest: &mut &[u8]) -> Result<AtomicOperation, DecodeError> {
    let (kind, operands) = match (opcode, width) {
        (Opcode::MASKED_COMPARE_SWAP, 4) => {
            let segment: MaskedCompareSwap4 = take(rest)?;
            let operands = [
                u64::from(segment.swap.get()),
                u64::from(segment.compare.get()),
                u64::from(segment.swap_mask.get()),
                u64::from(segment.compare_mask.get()),
            ];
            (AtomicKind::CompareSwap, operands)
        }
        (Opcode::MASKED_COMPARE_SWAP, _) => {
            let segment: MaskedCompareSwap8 = take(rest)?;
            let operands = [
                segment.swap.get(),
                segment.compare.get(),
                segment.swap_mask.get(),
                segment.compare_mask.get(),
            ];
            (AtomicKind::CompareSwap, operands)
        }
        (Opcode::MASKED_FETCH_ADD, 4) => {
            let segment: MaskedFetchAdd4 = take(rest)?;
            let (add, boundary) = (segment.add.get(), segment.field_boundary.get());
            let operands = [u64::from(add), 0, u64::from(boundary), 0];
            (AtomicKind::FetchAdd, operands)
        }
        (Opcode::MASKED_FETCH_ADD, _) => {
            let segment: MaskedFetchAdd8 = take(rest)?;
            let operands = [segment.add.get(), 0, segment.field_boundary.get(), 0];
            (AtomicKind::FetchAdd, operands)
        }
        (Opcode::ATOMIC_COMPARE_SWAP, _) => {
            let segment: AtomicSegment = take(rest)?;
            let (swap, compare) = (segment.swap_add.get(), segment.compare.get());
            (AtomicKind::CompareSwap, [swap, compare, u64::MAX, u64::MAX])
        }
        _ => {
            let segment: AtomicSegment = take(rest)?;
            (AtomicKind::FetchAdd, [segment.swap_add.get(), 0, 0, 0])
        }
    };
    Ok(AtomicOperation {
        kind,
        width,
        operands,
    })
}

/// Takes one segment off the front.
fn take<S: FromBytes>(rest: &mut &[u8]) -> Result<S, DecodeError> {
    let (segment, tail) = S::read_from_prefix(rest).map_err(|_| DecodeError::SegmentPastEnd)?;
    *rest = tail;
    Ok(segment)
}

/// Takes a remote address segment off the front.
fn remote(rest: &mut &[u8]) -> Result<Remote, DecodeError> {
    take::<RemoteAddress>(rest).map(RemoteAddress::remote)
}

/// The data segments of a WQE, whole and checked.
#[derive(Clone, Copy, Debug)]
pub struct DataList<'a> {
    bytes: &'a [u8],
    /// Where `bytes` start in the WQE.
    offset: usize,
}

/// One entry of a [`DataList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataItem {
    /// Registered memory.
    Memory(Local),
    /// Bytes of the WQE itself.
    Inline {
        /// Where they start, from the WQE's first byte.
        offset: usize,
        /// How many.
        length: usize,
    },
}

impl DataItem {
    /// Its length in bytes. A memory segment of 0 means 2³¹.
    pub const fn length(&self) -> u64 {
        match self {
            Self::Memory(Local { length: 0, .. }) => 1 << 31,
            Self::Memory(local) => local.length as u64,
            Self::Inline { length, .. } => *length as u64,
        }
    }
}

impl<'a> DataList<'a> {
    const EMPTY: Self = Self {
        bytes: &[],
        offset: 0,
    };

    /// Checks every segment; gives the bytes of all.
    #[inline]
    fn check(&self, operation: &Operation) -> Result<u32, DecodeError> {
        let mut walk = *self;
        let (mut items, mut length) = (0, 0);
        while !walk.bytes.is_empty() {
            let item = walk.next_item()?;
            let inline = matches!(item, DataItem::Inline { .. });
            if inline && matches!(operation, Operation::Read(_) | Operation::Atomic(..)) {
                return Err(DecodeError::InlineDestination);
            }
            items += 1;
            // At most 62 segments of at most 2³¹ bytes: no overflow in 64 bits.
            length += item.length();
        }
        if let Operation::Atomic(_, atomic) = operation
            && (items != 1 || length != u64::from(atomic.width))
        {
            return Err(DecodeError::AtomicResult);
        }
        match u32::try_from(length) {
            Ok(length) if length <= MAX_MESSAGE_LENGTH => Ok(length),
            _ => Err(DecodeError::TooLong),
        }
    }

    /// Takes the first entry off; `bytes` must not be empty.
    #[inline]
    fn next_item(&mut self) -> Result<DataItem, DecodeError> {
        let (header, _) =
            InlineHeader::read_from_prefix(self.bytes).map_err(|_| DecodeError::SegmentPastEnd)?;
        let word = header.byte_count.get();
        let (item, size) = if word & InlineHeader::MARK != 0 {
            // All 31 bits count, so that a length over the field's 10 bits is caught here.
            let length = (word & !InlineHeader::MARK) as usize;
            let size = (size_of::<InlineHeader>() + length).next_multiple_of(OCTOWORD);
            let offset = self.offset + size_of::<InlineHeader>();
            (DataItem::Inline { offset, length }, size)
        } else {
            let (data, _) =
                Data::read_from_prefix(self.bytes).map_err(|_| DecodeError::SegmentPastEnd)?;
            (DataItem::Memory(data.local()), OCTOWORD)
        };
        self.bytes = self.bytes.get(size..).ok_or(DecodeError::SegmentPastEnd)?;
        self.offset += size;
        Ok(item)
    }

    /// The only entry, if it is one of memory.
    #[inline]
    pub fn single(&self) -> Option<Local> {
        if self.bytes.len() != OCTOWORD {
            return None;
        }
        match { *self }.next_item() {
            Ok(DataItem::Memory(local)) => Some(local),
            _ => None,
        }
    }
}

impl Iterator for DataList<'_> {
    type Item = DataItem;

    #[inline]
    fn next(&mut self) -> Option<DataItem> {
        if self.bytes.is_empty() {
            return None;
        }
        self.next_item().ok()
    }
}
