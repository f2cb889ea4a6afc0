//! A piece of memory that two processes of one machine share, and its way from
//! one to the other over a Unix socket.
//!
//! The memory is a sealed memfd: neither side can shrink it, so no access to it
//! can fault, whatever the other process does. Its *content* is the other
//! side's to write at any moment, so nothing in it is trusted: the shape is read
//! once, checked and kept in private memory, and no reference to the content is
//! ever made, only raw pointers.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketType, sockopt,
};

/// Why two processes could not share memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// The system refused a step.
    #[error("{step} failed: {source}; check the memory limits of this process and of /dev/shm")]
    System {
        /// The system call.
        step: &'static str,
        /// What it answered.
        source: Errno,
    },
    /// The other side did not answer in time.
    #[error("the other process did not {what} within {timeout:?}; check that it still runs")]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// For how long.
        timeout: Duration,
    },
    /// The other side closed the socket.
    #[error("the other process closed the socket instead of sending its memory; see its output")]
    Closed,
    /// The message carried no file descriptor.
    #[error("the message of {bytes} bytes carried no shared memory; connect to a Warpbell process")]
    NoMemory {
        /// Bytes of the message.
        bytes: usize,
    },
    /// The message carried memory, but no socket by which to wake each other.
    #[error("the shared memory came without a socket; run the same version on both sides")]
    NoLine,
    /// The memory can still be shrunk by its owner.
    #[error("the shared memory is not sealed against shrinking; its owner must seal it")]
    NotSealed,
    /// The memory has another size than its header says.
    #[error(
        "the shared memory has {found} bytes where its header needs {expected}; both sides must run the same version"
    )]
    WrongSize {
        /// Bytes found.
        found: u64,
        /// Bytes needed.
        expected: u64,
    },
    /// The header does not start with our magic.
    #[error(
        "the shared memory starts with {found:#018x}, which is no Warpbell wire; connect to a Warpbell process"
    )]
    WrongMagic {
        /// The first eight bytes.
        found: u64,
    },
    /// The header is of another version.
    #[error(
        "the shared memory has version {found}, this side speaks {expected}; run the same version on both sides"
    )]
    WrongVersion {
        /// Version found.
        found: u32,
        /// Version spoken here.
        expected: u32,
    },
    /// The header names a shape outside the limits.
    #[error(
        "the shared memory claims rings of {slots} slots of {slot_bytes} bytes, outside the limits; both sides must run the same version"
    )]
    WrongShape {
        /// Slots of each ring.
        slots: u32,
        /// Bytes of each slot.
        slot_bytes: u32,
    },
}

fn system(step: &'static str) -> impl FnOnce(Errno) -> SegmentError {
    move |source| SegmentError::System { step, source }
}

/// Shared memory, mapped readable and writable until dropped.
pub(super) struct Segment {
    start: NonNull<u8>,
    bytes: usize,
    descriptor: OwnedFd,
}

// SAFETY: the mapping belongs to the process, not to a thread; all access to its
// content goes through raw pointers whose users answer for their races.
unsafe impl Send for Segment {}
// SAFETY: as above; `Segment` itself is never changed after its creation.
unsafe impl Sync for Segment {}

impl Segment {
    /// New memory, all zero, sealed against any change of its size.
    pub fn create(bytes: usize) -> Result<Self, SegmentError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor =
            rustix::fs::memfd_create("warpbell-wire", flags).map_err(system("memfd_create"))?;
        rustix::fs::ftruncate(&descriptor, bytes as u64).map_err(system("ftruncate"))?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&descriptor, seals).map_err(system("F_ADD_SEALS"))?;
        Self::map(descriptor, bytes)
    }

    /// Maps memory that another process made, after checking that it cannot shrink.
    pub fn adopt(descriptor: OwnedFd) -> Result<Self, SegmentError> {
        // A descriptor that cannot be sealed answers EINVAL: not sealed either.
        let seals = rustix::fs::fcntl_get_seals(&descriptor).unwrap_or(SealFlags::empty());
        if !seals.contains(SealFlags::SHRINK) {
            return Err(SegmentError::NotSealed);
        }
        let bytes = rustix::fs::fstat(&descriptor)
            .map_err(system("fstat"))?
            .st_size as u64;
        let page = rustix::param::page_size() as u64;
        if bytes < page || bytes > super::shared::LARGEST_SEGMENT {
            return Err(SegmentError::WrongSize {
                found: bytes,
                expected: page,
            });
        }
        Self::map(descriptor, bytes as usize)
    }

    fn map(descriptor: OwnedFd, bytes: usize) -> Result<Self, SegmentError> {
        // SAFETY: a null hint lets the kernel choose a free range, so no memory
        // of ours is replaced; the range is unmapped by `drop` alone.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                &descriptor,
                0,
            )
        }
        .map_err(system("mmap"))?;
        // After the mapping, because these addresses may have been another segment's (see `UNMAPPED`).
        UNMAPPED.load(Ordering::Acquire);
        let start = NonNull::new(start.cast()).expect("mmap without a fixed address is never null");
        Ok(Self {
            start,
            bytes,
            descriptor,
        })
    }

    /// Where the mapping starts; page-aligned.
    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Bytes mapped.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the memory to the process at the other end of `socket`, with the other end of a socket that belongs to it.
    pub fn send(&self, socket: &UnixStream, line: &UnixStream) -> Result<(), SegmentError> {
        let descriptors = [self.descriptor.as_fd(), line.as_fd()];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        // The space was sized for exactly this one message.
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)));
        let byte = [IoSlice::new(b"W")];
        rustix::net::sendmsg(socket, &byte, &mut ancillary, SendFlags::NOSIGNAL)
            .map_err(system("sendmsg"))?;
        Ok(())
    }

    /// Takes the memory that the process at the other end of `socket` gives, and the socket that belongs to it.
    pub fn receive(
        socket: &UnixStream,
        timeout: Duration,
    ) -> Result<(Self, UnixStream), SegmentError> {
        // A zero timeout would mean "wait for ever" to the system.
        let bounded = timeout.max(Duration::from_micros(1));
        sockopt::set_socket_timeout(socket, sockopt::Timeout::Recv, Some(bounded))
            .map_err(system("SO_RCVTIMEO"))?;
        let mut byte = [0u8; 1];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
        .map_err(|error| match error {
            Errno::AGAIN => SegmentError::TimedOut {
                what: "send its memory",
                timeout,
            },
            source => SegmentError::System {
                step: "recvmsg",
                source,
            },
        })?;
        let mut descriptors = ancillary.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let mut descriptors = descriptors.next().into_iter().flatten();
        match (descriptors.next(), descriptors.next()) {
            (Some(memory), Some(line)) if is_line(&line) => Ok((Self::adopt(memory)?, line.into())),
            (Some(_), _) => Err(SegmentError::NoLine),
            (None, _) if received.bytes == 0 => Err(SegmentError::Closed),
            (None, _) => Err(SegmentError::NoMemory {
                bytes: received.bytes,
            }),
        }
    }
}

/// Whether it is one end of a connection within this machine. A thread that waits for anything else might never sleep.
fn is_line(line: &OwnedFd) -> bool {
    sockopt::socket_domain(line) == Ok(AddressFamily::UNIX)
        && sockopt::socket_type(line) == Ok(SocketType::STREAM)
        && sockopt::socket_acceptconn(line) == Ok(false)
}

/// How many segments were unmapped. The kernel may give their addresses out again, and then whatever was done there comes
/// before whatever is done next. The kernel sees to that; this word shows it to ThreadSanitizer, which sees no system call
/// that does not go through libc.
static UNMAPPED: AtomicUsize = AtomicUsize::new(0);

impl Drop for Segment {
    fn drop(&mut self) {
        // Before the unmapping, because another thread may have the addresses right after it.
        UNMAPPED.fetch_add(1, Ordering::Release);
        // SAFETY: the range was mapped by `map`, and whoever keeps a pointer into
        // it also keeps this value alive.
        let unmapped = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap of our own range: {unmapped:?}");
    }
}
