//! A program of libibverbs and libmlx5 (`c/verbs.c`) whose rings can be looked at.
//!
//! It wants a device: a test runs itself again with `warpbell-preload` under it, and there no engine touches the
//! rings, so that what libmlx5 posts stays as posted.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::slice;
use std::time::Duration;

use mlx5_wqe::{Cqe64, Octoword, WqeBlock};

use crate::facts::{self, Facts, RawFact};

mod oracle {
    use super::{Completion, Options, Post, RawFact, RawRings, Segment, c_int, c_void};

    unsafe extern "C" {
        pub static verbs_values: RawFact;
        pub fn verbs_open(options: *const Options, error: *mut c_int) -> *mut c_void;
        pub fn verbs_close(verbs: *mut c_void) -> c_int;
        pub fn verbs_abandon(verbs: *mut c_void) -> c_int;
        pub fn verbs_query(verbs: *mut c_void, found: *mut u32) -> c_int;
        pub fn verbs_connect(verbs: *mut c_void, destination: u32) -> c_int;
        pub fn verbs_stop(verbs: *mut c_void, error: c_int) -> c_int;
        pub fn verbs_register(
            verbs: *mut c_void,
            start: *mut c_void,
            length: u64,
            keys: *mut [u32; 2],
        ) -> c_int;
        pub fn verbs_rings(verbs: *const c_void, rings: *mut RawRings);
        pub fn verbs_post(verbs: *mut c_void, post: *const Post<'_>) -> c_int;
        pub fn verbs_post_extended(verbs: *mut c_void, post: *const Post<'_>) -> c_int;
        pub fn verbs_write_many(
            verbs: *mut c_void,
            local: *const Segment,
            remote_address: u64,
            remote_key: u32,
            count: u32,
            extended: c_int,
        ) -> c_int;
        pub fn verbs_receive(
            verbs: *mut c_void,
            id: u64,
            segments: u32,
            segment: *const Segment,
        ) -> c_int;
        pub fn verbs_poll(verbs: *mut c_void, said: *mut Completion) -> c_int;
        pub fn verbs_arm(verbs: *mut c_void, solicited_only: c_int) -> c_int;
        pub fn verbs_event(verbs: *mut c_void, milliseconds: c_int, kind: *mut u32) -> c_int;
    }
}

pub use crate::request::Segment;

/// Where the datagrams of a queue pair go (`struct verbs_path`).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Path {
    pub flow_label: u32,
    pub service_level: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub reserved: u8,
    pub gid: [u8; 16],
}

/// What to make (`struct verbs_options`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Options {
    pub sends: u32,
    pub send_segments: u32,
    pub inline_bytes: u32,
    pub receives: u32,
    pub receive_segments: u32,
    pub completions: u32,
    pub vector: u32,
    pub datagrams: bool,
    pub shared: bool,
    pub signatures: bool,
    pub unconnected: bool,
    pub one_register: bool,
    pub path: Path,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            sends: 8,
            send_segments: 4,
            inline_bytes: 0,
            receives: 8,
            receive_segments: 4,
            completions: 16,
            vector: 0,
            datagrams: false,
            shared: false,
            signatures: false,
            unconnected: false,
            one_register: false,
            path: Path::default(),
        }
    }
}

/// A request for `ibv_post_send` or its extended sister (`struct verbs_post`).
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Post<'a> {
    pub id: u64,
    pub remote_address: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub remote_key: u32,
    pub opcode: u32,
    pub flags: u32,
    /// Or the key that a send invalidates.
    pub immediate: u32,
    pub destination: u32,
    pub queue_key: u32,
    inline: u32,
    segments: u32,
    segment: *const Segment,
    list: PhantomData<&'a [Segment]>,
}

impl<'a> Post<'a> {
    /// A request of nothing.
    pub fn new(opcode: u64) -> Self {
        Self {
            id: 0,
            remote_address: 0,
            compare_add: 0,
            swap: 0,
            remote_key: 0,
            opcode: opcode as u32,
            flags: 0,
            immediate: 0,
            destination: 0,
            queue_key: 0,
            inline: 0,
            segments: 0,
            segment: std::ptr::null(),
            list: PhantomData,
        }
    }

    /// The request with memory to gather from or scatter to.
    ///
    /// # Panics
    /// If there are more than 64 segments.
    pub fn with_segments(mut self, list: &'a [Segment]) -> Self {
        assert!(list.len() <= 64);
        self.segments = list.len() as u32;
        self.segment = list.as_ptr();
        self
    }

    /// The request with bytes that travel in the WQE, gathered from pieces of this process's memory.
    ///
    /// # Safety
    /// Each segment must name memory of this process that is there while the request is posted.
    pub unsafe fn with_inline(mut self, pieces: &'a [Segment]) -> Self {
        self.inline = 1;
        self.with_segments(pieces)
    }
}

/// What `ibv_poll_cq` says (`struct verbs_completion`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)]
pub struct Completion {
    pub id: u64,
    pub status: u32,
    pub opcode: u32,
    pub vendor: u32,
    pub bytes: u32,
    pub qpn: u32,
    pub flags: u32,
    /// Or the key that was invalidated.
    pub immediate: u32,
}

/// `struct verbs_rings`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawRings {
    send: *mut WqeBlock,
    receive: *mut Octoword,
    record: *mut u32,
    shared_record: *mut u32,
    doorbell: *mut u8,
    completions: *mut Cqe64,
    completion_record: *mut u32,
    completion_uar: *mut u64,
    send_blocks: u32,
    receive_stride: u32,
    receive_count: u32,
    doorbell_bytes: u32,
    completion_count: u32,
    qpn: u32,
    cqn: u32,
}

/// Where a queue pair's memory is, for an engine to work on, and its depths.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct Addresses {
    pub send_ring: u64,
    pub send_blocks: u32,
    pub receive_ring: u64,
    pub receives: u32,
    pub record: u64,
    pub completion_ring: u64,
    pub completions: u32,
    pub completion_record: u64,
    /// The first send register.
    pub doorbell: u64,
    /// The page of the send registers.
    pub uar: u64,
    /// The page through which the completion queue is armed.
    pub completion_uar: u64,
}

/// An open device with one queue pair.
pub struct Verbs {
    verbs: *mut c_void,
    rings: RawRings,
}

/// Numbers of verbs' enums.
pub fn values() -> Facts {
    // SAFETY: the oracle's table ends with a row without a name, and its names are literals.
    unsafe { facts::read(&raw const oracle::verbs_values) }
}

/// An error number as a result.
fn result(error: c_int) -> Result<(), c_int> {
    if error == 0 { Ok(()) } else { Err(error) }
}

impl Verbs {
    /// Opens the first device and makes a queue pair that is ready to send.
    ///
    /// # Errors
    /// The error number of the call that failed.
    pub fn open(options: &Options) -> Result<Self, c_int> {
        let mut error = 0;
        // SAFETY: both are there for the call.
        let verbs = unsafe { oracle::verbs_open(options, &raw mut error) };
        result(error)?;
        let mut rings = std::mem::MaybeUninit::uninit();
        // SAFETY: the oracle fills the structure.
        let rings = unsafe {
            oracle::verbs_rings(verbs, rings.as_mut_ptr());
            rings.assume_init()
        };
        Ok(Self { verbs, rings })
    }

    /// The queue pair's state, its peer's number and its access flags, as `ibv_query_qp` tells them.
    ///
    /// # Errors
    /// The errno.
    pub fn query(&self) -> Result<[u32; 3], c_int> {
        let mut found = [0; 3];
        // SAFETY: the queue pair lives as long as `self`; the array is as long as promised.
        result(unsafe { oracle::verbs_query(self.verbs, found.as_mut_ptr()) })?;
        Ok(found)
    }

    /// Brings the queue pair to ready to send, connected with another.
    ///
    /// # Errors
    /// The error number of the step that failed.
    pub fn connect(&mut self, destination: u32) -> Result<(), c_int> {
        // SAFETY: the device is open.
        result(unsafe { oracle::verbs_connect(self.verbs, destination) })
    }

    /// Puts the queue pair in error, or else resets it.
    ///
    /// # Errors
    /// The error number.
    pub fn stop(&mut self, error: bool) -> Result<(), c_int> {
        // SAFETY: the device is open.
        result(unsafe { oracle::verbs_stop(self.verbs, error.into()) })
    }

    /// Registers memory with all rights, until the device is closed; its local and its remote key.
    ///
    /// # Errors
    /// The error number; there is room for four.
    ///
    /// # Safety
    /// The memory must be there until the device is closed, and whoever looks at it must expect others to write.
    pub unsafe fn register(&mut self, start: *mut c_void, length: u64) -> Result<[u32; 2], c_int> {
        let mut keys = [0; 2];
        // SAFETY: the caller says so.
        result(unsafe { oracle::verbs_register(self.verbs, start, length, &raw mut keys) })?;
        Ok(keys)
    }

    /// The queue pair's number.
    pub fn qpn(&self) -> u32 {
        self.rings.qpn
    }

    /// The completion queue's number.
    pub fn cqn(&self) -> u32 {
        self.rings.cqn
    }

    /// Where its memory is.
    pub fn addresses(&self) -> Addresses {
        let rings = &self.rings;
        Addresses {
            send_ring: rings.send as u64,
            send_blocks: rings.send_blocks,
            receive_ring: rings.receive as u64,
            receives: rings.receive_count,
            record: rings.record as u64,
            completion_ring: rings.completions as u64,
            completions: rings.completion_count,
            completion_record: rings.completion_record as u64,
            doorbell: rings.doorbell as u64,
            uar: rings.doorbell as u64 & !0xfff,
            completion_uar: rings.completion_uar as u64 & !0xfff,
        }
    }

    /// Octowords of a receive.
    pub fn receive_stride(&self) -> usize {
        self.rings.receive_stride as usize / size_of::<Octoword>()
    }

    /// The send queue's ring.
    pub fn send_ring(&mut self) -> &mut [WqeBlock] {
        // SAFETY: the ring lives as long as the queue pair; nobody touches it but libmlx5, in calls of this structure.
        unsafe { slice::from_raw_parts_mut(self.rings.send, self.rings.send_blocks as usize) }
    }

    /// The receive queue's ring, or the shared one's.
    pub fn receive_ring(&mut self) -> &mut [Octoword] {
        let octowords = self.receive_stride() * self.rings.receive_count as usize;
        // SAFETY: as of the send queue's.
        unsafe { slice::from_raw_parts_mut(self.rings.receive, octowords) }
    }

    /// The completion queue's ring.
    pub fn completion_ring(&mut self) -> &mut [Cqe64] {
        // SAFETY: as of the send queue's.
        unsafe {
            slice::from_raw_parts_mut(self.rings.completions, self.rings.completion_count as usize)
        }
    }

    /// The queue pair's doorbell record: receive, send.
    pub fn record(&self) -> [u32; 2] {
        // SAFETY: the record lives as long as the queue pair, and is two words.
        unsafe { self.rings.record.cast::<[u32; 2]>().read_volatile() }
    }

    /// The shared receive queue's record.
    pub fn shared_record(&self) -> Option<u32> {
        // SAFETY: as above, where there is such a queue.
        unsafe { self.rings.shared_record.as_ref().copied() }
    }

    /// The completion queue's doorbell record: consumer, arm.
    pub fn completion_record(&self) -> [u32; 2] {
        // SAFETY: as above.
        unsafe {
            self.rings
                .completion_record
                .cast::<[u32; 2]>()
                .read_volatile()
        }
    }

    /// What the two send registers hold.
    pub fn doorbells(&mut self) -> [&mut [WqeBlock; 4]; 2] {
        assert_eq!(
            self.rings.doorbell_bytes as usize,
            size_of::<[WqeBlock; 4]>()
        );
        // libmlx5 alternates, and what it gives out is the first.
        let first = self.rings.doorbell.cast::<[WqeBlock; 4]>();
        // SAFETY: both registers lie in the queue pair's UAR page, which here is plain memory; nobody else looks.
        unsafe { [&mut *first, &mut *first.add(1)] }
    }

    /// What the register that arms a completion queue holds.
    pub fn arm_register(&self) -> u64 {
        // SAFETY: the page is there as long as the device; the register is its fifth word.
        unsafe { self.rings.completion_uar.add(0x20 / 8).read_volatile() }
    }

    /// Posts by `ibv_post_send`.
    ///
    /// # Errors
    /// Its error number.
    pub fn post(&mut self, post: &Post<'_>) -> Result<(), c_int> {
        // SAFETY: the request borrows its list.
        result(unsafe { oracle::verbs_post(self.verbs, post) })
    }

    /// Posts by `ibv_wr_start` to `ibv_wr_complete`.
    ///
    /// # Errors
    /// Their error number.
    pub fn post_extended(&mut self, post: &Post<'_>) -> Result<(), c_int> {
        // SAFETY: the request borrows its list.
        result(unsafe { oracle::verbs_post_extended(self.verbs, post) })
    }

    /// Posts signalled writes of one segment, one doorbell each, each to where the one before ended; by
    /// `ibv_post_send` or by `ibv_wr_start` to `ibv_wr_complete`.
    ///
    /// # Errors
    /// Not 0 where one was refused.
    pub fn write_many(
        &mut self,
        local: Segment,
        (remote_address, remote_key): (u64, u32),
        count: u32,
        extended: bool,
    ) -> Result<(), c_int> {
        // SAFETY: the segment is there for the call.
        result(unsafe {
            oracle::verbs_write_many(
                self.verbs,
                &raw const local,
                remote_address,
                remote_key,
                count,
                extended.into(),
            )
        })
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The error number.
    ///
    /// # Panics
    /// If there are more than 64 segments.
    pub fn receive(&mut self, id: u64, list: &[Segment]) -> Result<(), c_int> {
        assert!(list.len() <= 64);
        // SAFETY: the list is there for the call.
        result(unsafe { oracle::verbs_receive(self.verbs, id, list.len() as u32, list.as_ptr()) })
    }

    /// Polls once: a completion, none, or -1 where libmlx5 could make nothing of it.
    pub fn poll(&mut self) -> Result<Option<Completion>, c_int> {
        let mut said = Completion::default();
        // SAFETY: the oracle writes the structure.
        match unsafe { oracle::verbs_poll(self.verbs, &raw mut said) } {
            1 => Ok(Some(said)),
            0 => Ok(None),
            other => Err(other),
        }
    }

    /// Arms the completion queue.
    ///
    /// # Errors
    /// The error number.
    pub fn arm(&mut self, solicited_only: bool) -> Result<(), c_int> {
        // SAFETY: the device is open.
        result(unsafe { oracle::verbs_arm(self.verbs, solicited_only.into()) })
    }

    /// Waits for an asynchronous event of the queue pair or of its completion queue, and acknowledges it: its type.
    ///
    /// # Errors
    /// `ETIMEDOUT` if there is none, `ENOENT` if it is of another queue.
    pub fn event(&mut self, within: Duration) -> Result<u32, c_int> {
        let milliseconds = c_int::try_from(within.as_millis()).unwrap_or(c_int::MAX);
        let mut kind = 0;
        // SAFETY: the device is open; the oracle writes the number.
        result(unsafe { oracle::verbs_event(self.verbs, milliseconds, &raw mut kind) })?;
        Ok(kind)
    }

    /// Closes the device as a careless program does: nothing is destroyed, and the memory of the queues is lost.
    ///
    /// # Errors
    /// Not 0 where the device could not be closed.
    pub fn abandon(self) -> Result<(), c_int> {
        // SAFETY: the device is open, and nobody uses it after.
        result(unsafe { oracle::verbs_abandon(self.verbs) })
    }

    /// Destroys all, and closes the device.
    ///
    /// # Errors
    /// Not 0 where something could not be destroyed.
    pub fn close(self) -> Result<(), c_int> {
        // SAFETY: the device is open, and nobody uses it after.
        result(unsafe { oracle::verbs_close(self.verbs) })
    }
}
