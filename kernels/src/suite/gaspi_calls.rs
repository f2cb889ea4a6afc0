//! A kernel that makes a list of GASPI's calls and says what each returned.

use warpbell::{Scope, Sharing, Slice, kernel, thread};
use warpbell_patterns::gaspi::{Error, GASPI_BLOCK, Gaspi, GaspiHandle, Timeout};

use super::arguments::{Kernel, Output};
use super::mode::{Mode, ScopeKind, SharingKind};

/// Modes that the kernels of GASPI's tests know. Each scope and each sharing is among them; all nine would take a
/// GPU's assembler minutes.
pub const GASPI_MODES: [Mode; 5] = [
    Mode {
        sharing: SharingKind::Exclusive,
        scope: ScopeKind::Thread,
    },
    Mode {
        sharing: SharingKind::Exclusive,
        scope: ScopeKind::Warp,
    },
    Mode {
        sharing: SharingKind::Exclusive,
        scope: ScopeKind::Block,
    },
    Mode {
        sharing: SharingKind::BlockShared,
        scope: ScopeKind::Block,
    },
    Mode {
        sharing: SharingKind::GpuShared,
        scope: ScopeKind::Thread,
    },
];

/// Calls `$run::<S, C>` with the types that belong to one of [`GASPI_MODES`]; `$other` is for any other mode.
macro_rules! by_gaspi_mode {
    ($mode:expr, $run:ident($($argument:expr),*), $other:expr) => {{
        use warpbell::{Block, BlockShared, Exclusive, GpuShared, Thread, Warp};
        use $crate::suite::mode::{ScopeKind as C, SharingKind as S};
        match ($mode.sharing, $mode.scope) {
            (S::Exclusive, C::Thread) => $run::<Exclusive, Thread>($($argument),*),
            (S::Exclusive, C::Warp) => $run::<Exclusive, Warp>($($argument),*),
            (S::Exclusive, C::Block) => $run::<Exclusive, Block>($($argument),*),
            (S::BlockShared, C::Block) => $run::<BlockShared, Block>($($argument),*),
            (S::GpuShared, C::Thread) => $run::<GpuShared, Thread>($($argument),*),
            _ => $other,
        }
    }};
}

pub(super) use by_gaspi_mode;

/// Which call.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GaspiVerb {
    /// `gaspi_write`.
    Write,
    /// `gaspi_read`.
    Read,
    /// `gaspi_notify`.
    Notify,
    /// `gaspi_write_notify`.
    WriteNotify,
    /// `gaspi_wait`, for one rank.
    Wait,
    /// `gaspi_wait`, for all ranks.
    WaitAll,
    /// `gaspi_notify_waitsome`; `value` is the number of notifications.
    NotifyWaitsome,
    /// `gaspi_notify_reset`.
    NotifyReset,
}

/// A call with its arguments; those that it does not take mean nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GaspiCall {
    /// Which.
    pub verb: GaspiVerb,
    /// Which queue.
    pub queue: u32,
    /// The other rank.
    pub rank: u32,
    /// Local segment.
    pub segment_local: u32,
    /// Remote segment; for notifications that are waited for, the own one.
    pub segment_remote: u32,
    /// The notification, or the first of a range.
    pub notification: u32,
    /// Its value, or the length of the range.
    pub value: u32,
    /// Milliseconds, or [`GaspiCall::BLOCK`].
    pub timeout: u32,
    /// Where the bytes lie here.
    pub offset_local: u64,
    /// Where they lie there.
    pub offset_remote: u64,
    /// How many.
    pub size: u64,
}

impl GaspiCall {
    /// The time-out `GASPI_BLOCK`.
    pub const BLOCK: u32 = u32::MAX;

    /// A call of nothing in particular, to be filled in.
    pub const fn new(verb: GaspiVerb) -> Self {
        Self {
            verb,
            queue: 0,
            rank: 0,
            segment_local: 0,
            segment_remote: 0,
            notification: 0,
            value: 0,
            timeout: Self::BLOCK,
            offset_local: 0,
            offset_remote: 0,
            size: 0,
        }
    }
}

/// What a call returned, in a word; 0 if it was not made.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Returned(u64);

/// Above all numbers that a call returns, and no error's.
const OK: u64 = 1 << 56;

impl Returned {
    /// The word of a result.
    pub const fn new(result: Result<u32, Error>) -> Self {
        Self(match result {
            Ok(value) => OK | value as u64,
            Err(error) => error.to_bits(),
        })
    }

    /// The result, if the call was made.
    pub fn result(self) -> Option<Result<u32, Error>> {
        match Error::from_bits(self.0) {
            Some(error) => Some(Err(error)),
            None => (self.0 & OK != 0).then_some(Ok(self.0 as u32)),
        }
    }
}

/// Makes all calls, each with all threads of the scope; there is one scope in the grid.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct GaspiCalls<'a> {
    /// The rank.
    pub gaspi: GaspiHandle<'a>,
    /// How queues are opened: one of [`GASPI_MODES`], or no call is made.
    pub mode: Mode,
    /// What is called.
    pub calls: Slice<'a, GaspiCall>,
    /// What each thread got, one thread's results after the other's.
    pub returned: Output<'a, Returned>,
}

impl Kernel for GaspiCalls<'_> {
    #[cfg(not(target_arch = "nvptx64"))]
    const ENTRY: warpbell::Entry<fn(Self)> = suite_gaspi_calls::ENTRY;

    fn run(&self) {
        by_gaspi_mode!(self.mode, all(self), ());
    }
}

/// Runs [`GaspiCalls`].
#[kernel]
pub fn suite_gaspi_calls(kernel: GaspiCalls<'_>) {
    kernel.run();
}

fn all<S: Sharing, C: Scope>(kernel: &GaspiCalls<'_>) {
    let gaspi = kernel.gaspi.open();
    for number in 0..kernel.calls.len() {
        let Some(call) = kernel.calls.get(number) else {
            break;
        };
        let result = match gaspi {
            Ok(gaspi) => one::<S, C>(gaspi, call),
            Err(error) => Err(error),
        };
        let place = u64::from(thread::index()) * kernel.calls.len() + number;
        // SAFETY: each thread has places of its own.
        unsafe { kernel.returned.write(place, Returned::new(result)) };
    }
}

#[inline(always)]
fn one<S: Sharing, C: Scope>(gaspi: Gaspi<'_>, call: &GaspiCall) -> Result<u32, Error> {
    let timeout = match call.timeout {
        GaspiCall::BLOCK => GASPI_BLOCK,
        milliseconds => Timeout::ms(milliseconds),
    };
    let GaspiCall {
        segment_local: local,
        segment_remote: remote,
        offset_local: from,
        offset_remote: to,
        size,
        notification: id,
        value,
        ..
    } = *call;
    match call.verb {
        GaspiVerb::NotifyWaitsome => {
            return gaspi.notify_waitsome::<C>(remote, id, value, timeout);
        }
        GaspiVerb::NotifyReset => return gaspi.notify_reset::<C>(remote, id),
        GaspiVerb::WaitAll => {
            gaspi.wait::<S, C>(call.queue, timeout)?;
            return Ok(0);
        }
        _ => {}
    }
    let mut queue = gaspi.queue::<S, C>(call.queue, call.rank)?;
    match call.verb {
        GaspiVerb::Write => queue.write(local, from, remote, to, size, timeout)?,
        GaspiVerb::Read => queue.read(local, from, remote, to, size, timeout)?,
        GaspiVerb::Notify => queue.notify(remote, id, value, timeout)?,
        GaspiVerb::WriteNotify => {
            queue.write_notify(local, from, remote, to, size, id, value, timeout)?;
        }
        _ => queue.wait(timeout)?,
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_survive_their_word() {
        for result in [Ok(0), Ok(u32::MAX), Err(Error::Timeout), Err(Error::InUse)] {
            assert_eq!(Returned::new(result).result(), Some(result));
        }
        assert_eq!(Returned::default().result(), None);
    }
}
