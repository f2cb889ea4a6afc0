//! WQEs of several blocks: scatter/gather lists and inline data.

use zerocopy::IntoBytes;

use crate::opcode::Opcode;
use crate::segment::{Control, Data, InlineHeader, RemoteAddress};
use crate::units::{Immediate, Local, Octoword, Remote, WqeBlock};
use crate::wqe::{BuildError, MAX_WQE_BLOCKS, Wqe};

/// The forms whose length is known at run time.
impl<const BLOCKS: usize> Wqe<BLOCKS> {
    /// The most octowords, control segment included: what the blocks hold, but 63 at most, because
    /// `ds` has 6 bits.
    pub const MAX_OCTOWORDS: usize = if BLOCKS < MAX_WQE_BLOCKS {
        BLOCKS * 4
    } else {
        63
    };
    /// Segments of a gather list beside control and remote address.
    pub const MAX_RDMA_SEGMENTS: usize = Self::MAX_OCTOWORDS - 2;
    /// Segments of a gather list beside control alone.
    pub const MAX_SEND_SEGMENTS: usize = Self::MAX_OCTOWORDS - 1;
    /// Bytes of inline data beside control and remote address.
    pub const MAX_RDMA_INLINE: usize = Self::MAX_RDMA_SEGMENTS * 16 - size_of::<InlineHeader>();
    /// Bytes of inline data beside control alone.
    pub const MAX_SEND_INLINE: usize = Self::MAX_SEND_SEGMENTS * 16 - size_of::<InlineHeader>();

    /// Writes the segments, one after the other, to `remote`.
    ///
    /// An empty list is a write of no bytes.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::<1>::write_gather(&[local, local], remote)?;
    /// assert_eq!((wqe.ds(), wqe.payload()), (4, 128));
    /// # Ok::<(), mlx5_wqe::BuildError>(())
    /// ```
    #[inline]
    pub fn write_gather(list: &[Local], remote: Remote) -> Result<Self, BuildError> {
        Self::rdma_list(Opcode::RDMA_WRITE, list, remote, 0)
    }

    /// Like [`write_gather`](Self::write_gather), then completes a receive of the other end.
    ///
    /// ```
    /// # use mlx5_wqe::{Immediate, Local, LocalKey, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::<1>::write_immediate_gather(&[local, local], remote, Immediate(7))?;
    /// assert_eq!((wqe.ds(), wqe.control().immediate()), (4, Immediate(7)));
    /// # Ok::<(), mlx5_wqe::BuildError>(())
    /// ```
    #[inline]
    pub fn write_immediate_gather(
        list: &[Local],
        remote: Remote,
        immediate: Immediate,
    ) -> Result<Self, BuildError> {
        Self::rdma_list(Opcode::RDMA_WRITE_IMMEDIATE, list, remote, immediate.0)
    }

    /// Reads `remote` into the segments, one after the other.
    ///
    /// ```
    /// # use mlx5_wqe::{BuildError, Local, LocalKey, Remote, RemoteKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::<2>::read_scatter(&[local; 6], remote)?;
    /// assert_eq!((wqe.ds(), wqe.blocks(), wqe.payload()), (8, 2, 384));
    /// let limit = Wqe::<2>::read_scatter(&[local; 7], remote);
    /// assert_eq!(limit, Err(BuildError::TooManySegments { given: 7, limit: 6 }));
    /// # Ok::<(), mlx5_wqe::BuildError>(())
    /// ```
    #[inline]
    pub fn read_scatter(list: &[Local], remote: Remote) -> Result<Self, BuildError> {
        Self::rdma_list(Opcode::RDMA_READ, list, remote, 0)
    }

    /// Sends the segments as one message.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// let wqe = Wqe::<1>::send_gather(&[local; 3])?;
    /// assert_eq!((wqe.ds(), wqe.payload()), (4, 192));
    /// # Ok::<(), mlx5_wqe::BuildError>(())
    /// ```
    #[inline]
    pub fn send_gather(list: &[Local]) -> Result<Self, BuildError> {
        Self::send_list(Opcode::SEND, list, 0)
    }

    /// Sends the segments as one message with `immediate`.
    ///
    /// ```
    /// # use mlx5_wqe::{Immediate, Local, LocalKey, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// let wqe = Wqe::<1>::send_immediate_gather(&[local; 3], Immediate(7))?;
    /// assert_eq!((wqe.ds(), wqe.control().immediate()), (4, Immediate(7)));
    /// # Ok::<(), mlx5_wqe::BuildError>(())
    /// ```
    #[inline]
    pub fn send_immediate_gather(list: &[Local], immediate: Immediate) -> Result<Self, BuildError> {
        Self::send_list(Opcode::SEND_IMMEDIATE, list, immediate.0)
    }

    /// Writes `data`, which travel in the WQE, to `remote`.
    ///
    /// ```
    /// # use mlx5_wqe::{BuildError, Remote, RemoteKey, Wqe};
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::<2>::write_inline(&[0xaa; 92], remote)?;
    /// assert_eq!((wqe.ds(), wqe.blocks(), wqe.payload()), (8, 2, 92));
    /// let long = Wqe::<2>::write_inline(&[0xaa; 93], remote);
    /// assert_eq!(long, Err(BuildError::InlineTooLong { length: 93, limit: 92 }));
    /// # Ok::<(), mlx5_wqe::BuildError>(())
    /// ```
    #[inline]
    pub fn write_inline(data: &[u8], remote: Remote) -> Result<Self, BuildError> {
        Self::rdma_inline(Opcode::RDMA_WRITE, data, remote, 0)
    }

    /// Like [`write_inline`](Self::write_inline), then completes a receive of the other end.
    ///
    /// ```
    /// # use mlx5_wqe::{Immediate, Remote, RemoteKey, Wqe};
    /// # let remote = Remote { address: 0x2000, key: RemoteKey(2) };
    /// let wqe = Wqe::<1>::write_immediate_inline(b"ready", remote, Immediate(7))?;
    /// assert_eq!((wqe.ds(), wqe.payload()), (3, 5));
    /// # Ok::<(), mlx5_wqe::BuildError>(())
    /// ```
    #[inline]
    pub fn write_immediate_inline(
        data: &[u8],
        remote: Remote,
        immediate: Immediate,
    ) -> Result<Self, BuildError> {
        Self::rdma_inline(Opcode::RDMA_WRITE_IMMEDIATE, data, remote, immediate.0)
    }

    /// Sends `data`, which travel in the WQE.
    ///
    /// ```
    /// # use mlx5_wqe::{Wqe};
    /// let wqe = Wqe::<1>::send_inline(b"hello")?;
    /// assert_eq!((wqe.ds(), wqe.payload()), (2, 5));
    /// # Ok::<(), mlx5_wqe::BuildError>(())
    /// ```
    #[inline]
    pub fn send_inline(data: &[u8]) -> Result<Self, BuildError> {
        Self::message_inline(Opcode::SEND, data, 0)
    }

    /// Sends `data`, which travel in the WQE, with `immediate`.
    ///
    /// ```
    /// # use mlx5_wqe::{Immediate, Wqe};
    /// let wqe = Wqe::<1>::send_immediate_inline(b"hello", Immediate(7))?;
    /// assert_eq!((wqe.ds(), wqe.control().immediate()), (2, Immediate(7)));
    /// # Ok::<(), mlx5_wqe::BuildError>(())
    /// ```
    #[inline]
    pub fn send_immediate_inline(data: &[u8], immediate: Immediate) -> Result<Self, BuildError> {
        Self::message_inline(Opcode::SEND_IMMEDIATE, data, immediate.0)
    }

    /// A WQE of any opcode from its segments: what the named forms do not cover (datagrams, UMR).
    ///
    /// `segments` follow the control segment; the caller answers for them. `immediate` is the
    /// control segment's last word, whatever the opcode has there; `payload` is what
    /// [`payload`](Self::payload) shall say.
    ///
    /// ```
    /// # use mlx5_wqe::{Local, LocalKey, Opcode, QpNumber, Wqe};
    /// # let local = Local { address: 0x1000, length: 64, key: LocalKey(1) };
    /// // A datagram.
    /// use mlx5_wqe::{AddressVector, segment::Data};
    /// # let qpn = QpNumber::new(9).unwrap();
    /// let [a, b, c] = AddressVector::datagram(qpn, 0x1111_1111).to_octowords();
    /// let data = Data::new(local).to_octoword();
    /// let wqe = Wqe::<2>::from_segments(Opcode::SEND, 0, 0, &[a, b, c, data], 64)?;
    /// assert_eq!((wqe.ds(), wqe.blocks()), (5, 2));
    /// # Ok::<(), mlx5_wqe::BuildError>(())
    /// ```
    #[inline]
    pub fn from_segments(
        opcode: Opcode,
        modifier: u8,
        immediate: u32,
        segments: &[Octoword],
        payload: u64,
    ) -> Result<Self, BuildError> {
        const { Self::BLOCKS_ARE_SOUND };
        let limit = Self::MAX_SEND_SEGMENTS;
        if segments.len() > limit {
            return Err(BuildError::TooManySegments {
                given: segments.len(),
                limit,
            });
        }
        let mut blocks = [[Octoword::ZERO; 4]; BLOCKS];
        for (slot, segment) in blocks.as_flattened_mut().iter_mut().skip(1).zip(segments) {
            *slot = *segment;
        }
        let ds = 1 + segments.len() as u8;
        blocks[0][0] = Control::new(opcode, modifier, ds, immediate).to_octoword();
        Ok(Self { blocks, payload })
    }

    #[inline]
    fn rdma_list(
        opcode: Opcode,
        list: &[Local],
        remote: Remote,
        immediate: u32,
    ) -> Result<Self, BuildError> {
        let payload = Self::check_list(2, list)?;
        let mut blocks = Self::list(2, list);
        blocks[0][0] = Control::new(opcode, 0, 2 + list.len() as u8, immediate).to_octoword();
        blocks[0][1] = RemoteAddress::new(remote).to_octoword();
        Ok(Self { blocks, payload })
    }

    #[inline]
    fn send_list(opcode: Opcode, list: &[Local], immediate: u32) -> Result<Self, BuildError> {
        let payload = Self::check_list(1, list)?;
        let mut blocks = Self::list(1, list);
        blocks[0][0] = Control::new(opcode, 0, 1 + list.len() as u8, immediate).to_octoword();
        Ok(Self { blocks, payload })
    }

    /// Whether `list` fits from octoword `first` on, and the sum of its lengths.
    #[inline]
    fn check_list(first: usize, list: &[Local]) -> Result<u64, BuildError> {
        let limit = Self::MAX_OCTOWORDS - first;
        if list.len() > limit {
            return Err(BuildError::TooManySegments {
                given: list.len(),
                limit,
            });
        }
        let mut payload = 0;
        for local in list {
            Data::check_listed(*local)?;
            payload += local.length as u64;
        }
        Ok(payload)
    }

    /// Blocks that hold `list`, which fits, from octoword `first` on.
    #[inline]
    fn list(first: usize, list: &[Local]) -> [WqeBlock; BLOCKS] {
        const { Self::BLOCKS_ARE_SOUND };
        let mut blocks = [[Octoword::ZERO; 4]; BLOCKS];
        for (slot, local) in blocks.as_flattened_mut().iter_mut().skip(first).zip(list) {
            *slot = Data::new(*local).to_octoword();
        }
        blocks
    }

    #[inline]
    fn rdma_inline(
        opcode: Opcode,
        data: &[u8],
        remote: Remote,
        immediate: u32,
    ) -> Result<Self, BuildError> {
        let (mut blocks, ds) = Self::inline(2, data)?;
        blocks[0][0] = Control::new(opcode, 0, ds, immediate).to_octoword();
        blocks[0][1] = RemoteAddress::new(remote).to_octoword();
        Ok(Self {
            blocks,
            payload: data.len() as u64,
        })
    }

    #[inline]
    fn message_inline(opcode: Opcode, data: &[u8], immediate: u32) -> Result<Self, BuildError> {
        let (mut blocks, ds) = Self::inline(1, data)?;
        blocks[0][0] = Control::new(opcode, 0, ds, immediate).to_octoword();
        Ok(Self {
            blocks,
            payload: data.len() as u64,
        })
    }

    /// Blocks that hold `data` inline from octoword `first` on, and the size of the whole in
    /// octowords.
    #[inline]
    fn inline(first: usize, data: &[u8]) -> Result<([WqeBlock; BLOCKS], u8), BuildError> {
        const { Self::BLOCKS_ARE_SOUND };
        const HEADER: usize = size_of::<InlineHeader>();
        if data.is_empty() {
            return Err(BuildError::EmptyInline);
        }
        let limit = (Self::MAX_OCTOWORDS - first) * 16 - HEADER;
        let too_long = BuildError::InlineTooLong {
            length: data.len(),
            limit,
        };
        if data.len() > limit {
            return Err(too_long);
        }
        let mut blocks = [[Octoword::ZERO; 4]; BLOCKS];
        let (_, rest) = blocks
            .as_mut_bytes()
            .split_at_mut_checked(first * 16)
            .ok_or(too_long)?;
        let (header, rest) = rest.split_at_mut_checked(HEADER).ok_or(too_long)?;
        InlineHeader::new(data.len() as u32)
            .write_to(header)
            .map_err(|_| too_long)?;
        data.write_to_prefix(rest).map_err(|_| too_long)?;
        let ds = first + (HEADER + data.len()).div_ceil(16);
        Ok((blocks, ds as u8))
    }
}
