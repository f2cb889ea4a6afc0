//! WQEs of receive queues, plain and shared.
//!
//! Sources: `mlx5_wqe_srq_next_seg` in mlx5dv.h, `mlx5_rwqe_sig` in linux/mlx5/qp.h, rdma-core
//! `providers/mlx5/{qp,srq}.c` for the end of a list.

use zerocopy::big_endian::U16;

use crate::layout::layouts;
use crate::segment::Data;
use crate::units::{Local, Octoword};
use crate::wqe::BuildError;

layouts! {
    /// First segment of an SRQ's WQE, which links it to the next free one.
    ///
    /// `mlx5_rwqe_sig`, the first segment of a signed receive WQE, has its signature at the same place.
    octoword SrqNext = "`mlx5_wqe_srq_next_seg` in mlx5dv.h", 16 {
        /// Zero.
        reserved0: [u8; 2] = 0;
        /// Index of the next WQE.
        next_wqe_index: U16 = 2;
        /// Signature.
        signature: u8 = 4;
        /// Zero.
        reserved5: [u8; 11] = 5;
    }
}

impl SrqNext {
    /// The segment that links to `next`.
    #[inline(always)]
    pub const fn new(next: u16) -> Self {
        Self {
            reserved0: [0; 2],
            next_wqe_index: U16::new(next),
            signature: 0,
            reserved5: [0; 11],
        }
    }
}

/// A WQE of a receive queue whose stride is `OCTOWORDS` × 16 bytes, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a WQE does nothing until it is stored"]
pub struct ReceiveWqe<const OCTOWORDS: usize> {
    octowords: [Octoword; OCTOWORDS],
}

impl<const OCTOWORDS: usize> ReceiveWqe<OCTOWORDS> {
    const STRIDE_IS_SOUND: () = assert!(
        OCTOWORDS.is_power_of_two() && OCTOWORDS <= 32,
        "a stride is 16 to 512 bytes, a power of two"
    );

    /// A receive of one segment.
    ///
    /// ```
    /// use mlx5_wqe::{Local, LocalKey, ReceiveWqe};
    /// let buffer = Local { address: 0x1000, length: 64, key: LocalKey(7) };
    /// let [data] = ReceiveWqe::<1>::single(buffer).to_octowords();
    /// assert_eq!(data.to_bytes(), [0, 0, 0, 64, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0x10, 0]);
    /// ```
    #[inline(always)]
    pub const fn single(local: Local) -> Self {
        const { Self::STRIDE_IS_SOUND };
        let mut octowords = [Octoword::ZERO; OCTOWORDS];
        octowords[0] = Data::new(local).to_octoword();
        if OCTOWORDS > 1 {
            octowords[1] = Data::LIST_END.to_octoword();
        }
        Self { octowords }
    }

    /// A receive into the segments, one after the other. An empty list receives messages of no
    /// bytes.
    ///
    /// ```
    /// use mlx5_wqe::{Local, LocalKey, ReceiveWqe, segment::Data};
    /// let half = Local { address: 0x1000, length: 64, key: LocalKey(7) };
    /// let wqe = ReceiveWqe::<4>::scatter(&[half, half]).unwrap().to_octowords();
    /// assert!(Data::from_octoword(wqe[2]).is_list_end());
    /// ```
    #[inline]
    pub fn scatter(list: &[Local]) -> Result<Self, BuildError> {
        Self::list(None, list)
    }

    /// A receive of an SRQ: links to the WQE `next`, then the segments.
    ///
    /// ```
    /// use mlx5_wqe::{Local, LocalKey, ReceiveWqe, SrqNext};
    /// let buffer = Local { address: 0x1000, length: 64, key: LocalKey(7) };
    /// let wqe = ReceiveWqe::<4>::linked(8, &[buffer]).unwrap().to_octowords();
    /// assert_eq!(SrqNext::from_octoword(wqe[0]).next_wqe_index.get(), 8);
    /// ```
    #[inline]
    pub fn linked(next: u16, list: &[Local]) -> Result<Self, BuildError> {
        Self::list(Some(SrqNext::new(next)), list)
    }

    #[inline]
    fn list(first: Option<SrqNext>, list: &[Local]) -> Result<Self, BuildError> {
        const { Self::STRIDE_IS_SOUND };
        let limit = OCTOWORDS - first.is_some() as usize;
        if list.len() > limit {
            return Err(BuildError::TooManySegments {
                given: list.len(),
                limit,
            });
        }
        let mut octowords = [Octoword::ZERO; OCTOWORDS];
        let mut slots = octowords.iter_mut();
        if let Some(next) = first
            && let Some(slot) = slots.next()
        {
            *slot = next.to_octoword();
        }
        for (local, slot) in list.iter().zip(slots.by_ref()) {
            Data::check_listed(*local)?;
            *slot = Data::new(*local).to_octoword();
        }
        if let Some(slot) = slots.next() {
            *slot = Data::LIST_END.to_octoword();
        }
        Ok(Self { octowords })
    }

    /// The WQE as it is stored.
    #[inline(always)]
    pub const fn to_octowords(self) -> [Octoword; OCTOWORDS] {
        self.octowords
    }
}
