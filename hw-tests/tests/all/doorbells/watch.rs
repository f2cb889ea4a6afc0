//! Counts stores to pages of doorbells, each where it happens: a watched page is read-only. A store faults, is counted,
//! and is then carried out as a single step, behind which the page is read-only again. Loads by the NIC's thread do not
//! fault.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use warpbell_host_init::QueuePair;

const PAGE: usize = 4096;
/// Most pages at a time.
const PAGES: usize = 1024;
/// The processor stops behind the next instruction (TF).
const TRAP_FLAG: i64 = 1 << 8;

static WATCHED: [AtomicUsize; PAGES] = [const { AtomicUsize::new(0) }; PAGES];
static RUNG: AtomicU64 = AtomicU64::new(0);
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

thread_local! {
    /// The page to which this thread stores in a single step; 0 for none.
    static STEPPING: Cell<usize> = const { Cell::new(0) };
}

/// Pages of doorbells that are watched until this is dropped.
pub struct Watch {
    _alone: MutexGuard<'static, ()>,
}

impl Watch {
    /// Watches the doorbells of queue pairs, which outlive this, and to which one thread at a time posts.
    pub fn new<'q>(pairs: impl IntoIterator<Item = &'q QueuePair>) -> Self {
        // A test that has failed has dropped its watch all the same.
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            handle(libc::SIGSEGV, on_store);
            handle(libc::SIGTRAP, on_step);
        });
        RUNG.store(0, Ordering::Relaxed);
        let mut free = WATCHED.iter();
        for pair in pairs {
            let page = pair.send_parts().doorbell.addr() & !(PAGE - 1);
            let slot = free.next().expect("fewer queue pairs");
            // The page before its protection, because the handler looks for it.
            slot.store(page, Ordering::Release);
            protect(page, libc::PROT_READ);
        }
        Self { _alone: alone }
    }

    /// How often doorbells have rung since this was asked last.
    pub fn rung(&self) -> u64 {
        RUNG.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for slot in &WATCHED {
            let page = slot.swap(0, Ordering::Relaxed);
            if page != 0 {
                protect(page, libc::PROT_READ | libc::PROT_WRITE);
            }
        }
    }
}

fn protect(page: usize, protection: c_int) {
    // SAFETY: the page is a queue pair's own, of doorbells alone, and nobody but the handlers below finds it read-only.
    let done = unsafe { libc::mprotect(ptr::with_exposed_provenance_mut(page), PAGE, protection) };
    assert_eq!(done, 0, "mprotect");
}

type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

fn handle(signal: c_int, handler: Handler) {
    // SAFETY: an action of zeros has an empty mask. The handlers call nothing but mprotect and sigaction.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(
            libc::sigaction(signal, &raw const action, ptr::null_mut()),
            0
        );
    }
}

/// Lets a signal that is not about a doorbell end the process, when it comes again.
fn give_up(signal: c_int) {
    // SAFETY: an action of zeros is the default one.
    unsafe {
        let action: libc::sigaction = mem::zeroed();
        libc::sigaction(signal, &raw const action, ptr::null_mut());
    }
}

extern "C" fn on_store(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives the fault's own description.
    let page = unsafe { (*info).si_addr() }.addr() & !(PAGE - 1);
    let is_watched = WATCHED
        .iter()
        .any(|slot| slot.load(Ordering::Acquire) == page);
    if page == 0 || !is_watched {
        return give_up(signal);
    }
    RUNG.fetch_add(1, Ordering::Relaxed);
    STEPPING.set(page);
    protect(page, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the kernel gives the context of the thread that faulted, and takes it back.
    unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] |= TRAP_FLAG
    };
}

extern "C" fn on_step(signal: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let page = STEPPING.replace(0);
    if page == 0 {
        return give_up(signal);
    }
    protect(page, libc::PROT_READ);
    // SAFETY: as in `on_store`.
    unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_EFL as usize] &=
            !TRAP_FLAG
    };
}
