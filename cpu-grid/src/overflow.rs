//! A lane that overflows its stack says so before the process ends: it would else be a bare SIGSEGV.

use std::ffi::{c_int, c_void};
use std::fmt::{self, Write};
use std::io;
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::OnceLock;

use warpbell_gpu::cpu::LANES;

use crate::lane::Current;
use crate::stacks::STACK_BYTES;

/// What handled SIGSEGV before, and gets all faults but a lane's overflow.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Has SIGSEGV come here first, from now on.
pub(crate) fn watch() {
    PREVIOUS.get_or_init(|| {
        let mut previous = MaybeUninit::zeroed();
        // SAFETY: an action of zeros is the default one, with an empty mask; the kernel reads `action` and writes
        // `previous`. The handler does what a handler may: it looks, writes a line, aborts or hands on.
        unsafe {
            let mut action: libc::sigaction = mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGSEGV, &raw const action, previous.as_mut_ptr());
            previous.assume_init()
        }
    });
}

/// The handler. It runs on the thread that faulted, on the stack for signals.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives the fault's own description.
    let address = unsafe { (*info).si_addr() } as usize;
    if let Some(lane) = Current::get()
        && lane.guard.holds(address)
    {
        say(lane);
        // SAFETY: ends the process, which has no stack to go on with.
        unsafe { libc::abort() };
    }
    // SAFETY: an action of zeros is the default one, as which the fault comes again once this returns; what was
    // installed before has the type that its flags say.
    unsafe {
        match PREVIOUS.get() {
            Some(previous) if previous.sa_sigaction > libc::SIG_IGN => {
                let handler = previous.sa_sigaction as *const ();
                if previous.sa_flags & libc::SA_SIGINFO == 0 {
                    mem::transmute::<*const (), extern "C" fn(c_int)>(handler)(signal);
                } else {
                    type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                    mem::transmute::<*const (), Handler>(handler)(signal, info, context);
                }
            }
            _ => {
                let action: libc::sigaction = mem::zeroed();
                libc::sigaction(signal, &raw const action, ptr::null_mut());
            }
        }
    }
}

/// Writes the line, without memory from the heap.
fn say(lane: Current) {
    let mut line = Line::default();
    let place = lane.position;
    let (warp, of_warp) = (place.thread / LANES as u32, place.thread % LANES as u32);
    let _ = writeln!(
        line,
        "\nwarpbell: block {} warp {warp} lane {of_warp} overflowed its stack of {} KiB, all that a lane of the CPU \
         grid has",
        place.block,
        STACK_BYTES >> 10
    );
    // SAFETY: the bytes are the line's.
    unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len) };
}

struct Line {
    bytes: [u8; 256],
    len: usize,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            bytes: [0; 256],
            len: 0,
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        let room = self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// The page below a stack, which nobody may touch.
#[derive(Clone, Copy)]
pub(crate) struct Guard {
    start: usize,
    end: usize,
}

impl Guard {
    /// That of a stack whose mapping begins here.
    pub(crate) fn at(start: usize) -> Self {
        // SAFETY: only a number is asked for.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        Self {
            start,
            end: start + page,
        }
    }

    fn holds(self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// A stack for the handlers of a thread's signals, until it is dropped: that of Rust's own threads, or one that they
/// lack, where Rust does not have the program's `main`.
pub(crate) struct SignalStack(Option<Box<[u8]>>);

/// Room for what the processor's registers take, and for the handler.
const SIGNAL_STACK_BYTES: usize = 64 << 10;

impl SignalStack {
    /// The calling thread's.
    pub(crate) fn for_this_thread() -> io::Result<Self> {
        let mut there = MaybeUninit::<libc::stack_t>::zeroed();
        // SAFETY: the kernel writes what there is; zeros are no stack.
        let there = unsafe {
            libc::sigaltstack(ptr::null(), there.as_mut_ptr());
            there.assume_init()
        };
        if there.ss_flags & libc::SS_DISABLE == 0 {
            return Ok(Self(None));
        }
        let mut bytes = vec![0; SIGNAL_STACK_BYTES].into_boxed_slice();
        let stack = libc::stack_t {
            ss_sp: bytes.as_mut_ptr().cast(),
            ss_flags: 0,
            ss_size: bytes.len(),
        };
        // SAFETY: the memory is this value's, whose drop takes it from the kernel before it goes.
        match unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) } {
            0 => Ok(Self(Some(bytes))),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for SignalStack {
    fn drop(&mut self) {
        if self.0.is_some() {
            let none = libc::stack_t {
                ss_sp: ptr::null_mut(),
                ss_flags: libc::SS_DISABLE,
                ss_size: 0,
            };
            // SAFETY: the thread had none before, and runs on no other now.
            unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) };
        }
    }
}
