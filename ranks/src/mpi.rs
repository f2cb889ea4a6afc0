//! Ranks that are the processes of an MPI program.
//!
//! MPI's collectives cannot be the whole [`Bootstrap`](crate::Bootstrap): a collective that has begun cannot be cancelled
//! (MPI 4.0, section 6.12), none says which process is missing, and a failed process ends the program. So MPI carries only
//! rank 0's address and a secret, and the ranks meet over TCP.

use std::mem::forget;
use std::os::unix::ffi::OsStrExt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use mpi::request::{Request, StaticScope};
use mpi::traits::{Communicator, CommunicatorCollectives, Root as _};
use sha2::{Digest, Sha256};

use crate::rendezvous::{Offer, host};
use crate::stream::deadline;
use crate::{Config, Environment, Launcher, RanksError, Rendezvous, Root};

/// How often a collective under way is tried again.
const TICK: Duration = Duration::from_millis(1);

/// Bytes of the message with rank 0's address and secret; the rest is zeros.
const OFFER: usize = 512;

impl Rendezvous {
    /// Joins the processes of an MPI communicator, with the same numbers. All of them call this, after `MPI_Init`, from a
    /// thread that may call MPI. Later calls of this value use no MPI.
    ///
    /// Rank 0 listens on loopback if all processes share a machine and a network namespace. Otherwise the others reach it
    /// by its host name, or at the address of `WARPBELL_BIND`. Rank 0 sends a random secret through MPI; `WARPBELL_SECRET` replaces it.
    ///
    /// The buffers of the collectives are never freed: 544 bytes, and 32 for each process.
    ///
    /// # Errors
    /// [`RanksError::MpiLate`] if a process does not call within `timeout`; then MPI has collectives under way, and
    /// `MPI_Finalize` may wait for ever, so end the program with `MPI_Abort`. [`RanksError::MpiOffer`] if rank 0 has failed.
    /// Otherwise as [`Config::read`] and [`join`](Self::join).
    pub fn over_mpi(
        communicator: &impl Communicator,
        timeout: Duration,
    ) -> Result<Self, RanksError> {
        let until = deadline(timeout);
        // MPI has no negative ranks or sizes.
        let number = |number: i32| number.try_into().unwrap_or(u32::MAX);
        let (rank, size) = (number(communicator.rank()), number(communicator.size()));
        let (bind, secret) = Config::own(&Environment::of_process())?;
        let mut config = Config {
            launcher: Launcher::Mpi,
            rank,
            size,
            local_rank: None,
            root: Root::Alone,
            bind,
            secret,
        };
        let late = || RanksError::MpiLate { size, timeout };
        if size == 1 {
            return Self::join(&config, timeout);
        }
        // Each collective has the deadline: a process that was here may have given up since.
        let own: &'static [u8] = Box::leak(Box::new(loopback()));
        let all = vec![0; own.len() * size as usize];
        let gather = communicator.immediate_all_gather_into(StaticScope, own, leak(all));
        let all = finish(gather, until).ok_or_else(late)?;
        let one_host = all.chunks_exact(own.len()).all(|other| other == own);
        let mut message = [0; OFFER];
        let mut offer = None;
        if rank == 0 {
            // If this fails, the others hear of it by a message without words.
            offer = Some(Offer::new(config.bind, one_host));
            if let Some(Ok(offer)) = &offer
                && let Some(place) = message.get_mut(..offer.words.len())
            {
                place.copy_from_slice(offer.words.as_bytes());
            }
        }
        let broadcast = communicator
            .process_at_rank(0)
            .immediate_broadcast_into(StaticScope, leak(message.into()));
        let message = finish(broadcast, until).ok_or_else(late)?;
        let offer = offer.transpose()?;
        let end = message.iter().position(|byte| *byte == 0);
        let words = std::str::from_utf8(&message[..end.unwrap_or(OFFER)]);
        let taken = words.ok().and_then(|words| config.take(words));
        taken.ok_or(RanksError::MpiOffer)?;
        let left = until.saturating_duration_since(Instant::now());
        Self::join_at(&config, offer.map(|offer| offer.door), left)
    }
}

/// A buffer for a collective: MPI writes to it until the collective has ended, which may be later than the call.
fn leak(bytes: Vec<u8>) -> &'static mut [u8] {
    Box::leak(bytes.into_boxed_slice())
}

/// The same on all processes that share a loopback interface: those of a machine and a network namespace.
fn loopback() -> [u8; 32] {
    let namespace = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let words = [&host(), namespace.as_os_str().as_bytes()];
    Sha256::digest(words.concat()).into()
}

/// Waits until a collective has ended; gives its buffer, or nothing after the deadline.
fn finish<D: ?Sized>(
    mut request: Request<'static, D, StaticScope>,
    until: Instant,
) -> Option<&'static D> {
    loop {
        match request.test_with_data() {
            Ok((_, data)) => return Some(data),
            Err(unfinished) => request = unfinished,
        }
        if Instant::now() >= until {
            // It cannot be cancelled. Dropping it would panic; its buffer lives for ever.
            forget(request);
            return None;
        }
        sleep(TICK);
    }
}
