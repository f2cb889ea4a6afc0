//! A work request in plain numbers, from which both sides build a WQE.

use std::ffi::c_void;

/// Which parts follow the control segment, in this order; data segments come last.
pub mod parts {
    /// An address vector.
    pub const DATAGRAM: u32 = 1;
    /// A remote address segment.
    pub const REMOTE: u32 = 2;
    /// An atomic segment.
    pub const ATOMIC: u32 = 4;
    /// Inline data.
    pub const INLINE: u32 = 8;
}

/// One data segment, as `struct request` has it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Segment {
    pub address: u64,
    pub length: u32,
    pub key: u32,
}

/// `struct request` of `c/request.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Request<'a> {
    pub parts: u32,
    pub immediate: u32,
    pub qpn: u32,
    pub index: u16,
    pub opcode: u8,
    pub modifier: u8,
    pub fm_ce_se: u8,

    pub stat_rate_sl: u8,
    pub fl_mlid: u8,
    pub tclass: u8,
    pub hop_limit: u8,
    pub rmac: [u8; 6],
    pub rgid: [u8; 16],
    pub rlid: u16,
    pub destination: u32,
    pub grh_gid_fl: u32,
    pub key: u64,

    pub remote_address: u64,
    pub remote_key: u32,
    pub swap_add: u64,
    pub compare: u64,

    inline_length: u32,
    inline_data: *const u8,
    segments: u32,
    segment: *const c_void,
    lists: std::marker::PhantomData<&'a ()>,
}

impl<'a> Request<'a> {
    /// A request of nothing but a control segment of zeros.
    pub fn new() -> Self {
        Self {
            parts: 0,
            immediate: 0,
            qpn: 0,
            index: 0,
            opcode: 0,
            modifier: 0,
            fm_ce_se: 0,
            stat_rate_sl: 0,
            fl_mlid: 0,
            tclass: 0,
            hop_limit: 0,
            rmac: [0; 6],
            rgid: [0; 16],
            rlid: 0,
            destination: 0,
            grh_gid_fl: 0,
            key: 0,
            remote_address: 0,
            remote_key: 0,
            swap_add: 0,
            compare: 0,
            inline_length: 0,
            inline_data: std::ptr::null(),
            segments: 0,
            segment: std::ptr::null(),
            lists: std::marker::PhantomData,
        }
    }

    /// The request with inline data.
    pub fn with_inline(mut self, data: &'a [u8]) -> Self {
        self.parts |= parts::INLINE;
        self.inline_length = data.len() as u32;
        self.inline_data = data.as_ptr();
        self
    }

    /// The size of the WQE in bytes, all segments padded to 16.
    pub fn bytes(&self) -> usize {
        let part = |part, bytes| if self.parts & part != 0 { bytes } else { 0 };
        16 + part(parts::DATAGRAM, 48)
            + part(parts::REMOTE, 16)
            + part(parts::ATOMIC, 16)
            + part(
                parts::INLINE,
                (4 + self.inline_length as usize).next_multiple_of(16),
            )
            + self.segments as usize * 16
    }

    /// The request with data segments.
    pub fn with_segments(mut self, list: &'a [Segment]) -> Self {
        self.segments = list.len() as u32;
        self.segment = list.as_ptr().cast();
        self
    }
}

impl Default for Request<'_> {
    fn default() -> Self {
        Self::new()
    }
}
