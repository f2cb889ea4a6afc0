//! A connection to rank 0 that has not shown yet who it is.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use zerocopy::{FromBytes, IntoBytes};

use crate::secret::{Code, Key, random};
use crate::stream::{Came, Stream};
use crate::wire::{Challenge, Hello, Session, Start, Stranger};

/// How long a connection may take to authenticate. A rank that misses it tries again.
const GREETING: Duration = Duration::from_secs(10);

/// A connection that has not shown yet who it is. It holds at most one message of fixed length.
pub(crate) struct Caller {
    pub stream: Stream,
    pub deadline: Instant,
    /// What it said, once it was challenged.
    challenged: Option<(Hello, Session)>,
}

impl Caller {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self {
            stream: Stream::new(socket),
            deadline: Instant::now() + GREETING,
            challenged: None,
        }
    }

    /// Takes what has come: a hello and the session, once it has shown that it knows the secret. The error is the reason
    /// to hang up, and nothing if the caller did.
    pub(crate) fn hear(&mut self, key: &Key) -> Result<Option<(Hello, Session)>, Option<Stranger>> {
        let most = match self.challenged {
            Some(_) => size_of::<Code>(),
            None => size_of::<Hello>(),
        };
        match self.stream.receive_some(most) {
            Came::Bytes => {}
            Came::Nothing => return Ok(None),
            Came::End => return Err(None),
        }
        let inbox = &mut self.stream.inbox;
        if let Some((_, session)) = &self.challenged {
            let Ok(proof) = Code::read_from_bytes(inbox) else {
                return Ok(None);
            };
            session.check_proof(&proof)?;
            inbox.clear();
            return Ok(self.challenged.take());
        }
        if let Err(stranger) = Start::check(inbox) {
            if let Stranger::Version(_) = stranger {
                // It learns our version from the answer. If it takes none, it is gone all the same.
                let _ = self.stream.send_some(Challenge::VERSION_ALONE.as_bytes());
            }
            return Err(Some(stranger));
        }
        let Ok(hello) = Hello::read_from_bytes(inbox) else {
            return Ok(None);
        };
        inbox.clear();
        let (session, challenge) = Session::challenge(key, &hello, random().or(Err(None))?);
        self.challenged = Some((hello, session));
        // The socket is fresh: if it does not take these few bytes, its end is gone.
        match self.stream.send_some(challenge.as_bytes()) {
            Ok(sent) if sent == size_of::<Challenge>() => Ok(None),
            _ => Err(None),
        }
    }
}
