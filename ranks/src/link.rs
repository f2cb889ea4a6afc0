//! A rank's connection to rank 0.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use zerocopy::{FromBytes, IntoBytes};

use crate::address::{self, Attempt};
use crate::message::{Body, ToRank, ToRoot, decode};
use crate::secret::{Key, random};
use crate::stream::{Came, Stream};
use crate::wire::{Challenge, Frames, Hello, Session, Start, Stranger};
use crate::{Config, RanksError};

/// How long a rank waits between two attempts to reach rank 0: first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(250));

/// A connection to rank 0, which has admitted this rank.
pub(crate) struct Link {
    /// The others have gone on without this rank, and have to take it in.
    pub returned: bool,
    stream: Stream,
    sealer: Frames,
    opener: Frames,
}

impl Link {
    pub(crate) fn new(stream: Stream, session: &Session) -> Self {
        Self {
            returned: false,
            stream,
            sealer: session.to_root(),
            opener: session.to_rank(),
        }
    }

    /// Tries until rank 0 has admitted this rank. Rank 0 may start later, and may be short of room for a moment.
    pub(crate) fn join(
        config: &Config,
        until: Instant,
        timeout: Duration,
    ) -> Result<Self, RanksError> {
        let mut pause = PAUSES.0;
        loop {
            let connected = address::connect(&config.root, until);
            let greeted = connected.and_then(|socket| Self::greet(socket, config, until));
            let last = match greeted {
                Ok(link) => return Ok(link),
                Err(Attempt::Refused(error)) => return Err(error),
                Err(Attempt::Again(last)) => last,
            };
            if Instant::now() >= until {
                let address = config.root.to_string();
                return Err(RanksError::Unreachable {
                    address,
                    timeout,
                    last,
                });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn greet(socket: OwnedFd, config: &Config, until: Instant) -> Result<Self, Attempt> {
        let stranger = |stranger| {
            Attempt::Refused(match stranger {
                Stranger::NotOurs => RanksError::NotOurs(config.root.to_string()),
                Stranger::Version(found) => RanksError::Version(found),
                Stranger::WrongSecret => RanksError::WrongSecret(config.root.to_string()),
            })
        };
        let mut stream = Stream::new(socket);
        let hello = Hello::new(config.rank, config.size, random()?);
        stream.send(hello.as_bytes(), until)?;
        let challenge = loop {
            Start::check(&stream.inbox).map_err(stranger)?;
            if let Ok(challenge) = Challenge::read_from_bytes(&stream.inbox) {
                break challenge;
            }
            stream.receive(size_of::<Challenge>(), until)?;
        };
        stream.inbox.clear();
        let key = Key::of(config.secret.as_ref());
        let (session, proof) = Session::prove(&key, &hello, &challenge).map_err(stranger)?;
        stream.send(&proof, until)?;
        let mut link = Self::new(stream, &session);
        let (rank, ours) = (config.rank, config.size);
        Err(Attempt::Refused(match link.receive(until)?.0 {
            ToRank::Verdict {
                admitted: true,
                returned,
                ..
            } => {
                link.returned = returned;
                return Ok(link);
            }
            ToRank::Verdict { size: root, .. } if root != ours => {
                RanksError::OtherSize { root, ours }
            }
            _ => RanksError::Duplicate(rank),
        }))
    }

    /// Sends a message, and bytes behind it. That rank 0 does not take it shows when its answer is received.
    pub(crate) fn send(&mut self, message: &ToRoot, behind: &[u8], until: Instant) {
        let body = Body::new(message, behind);
        let frame = [self.sealer.seal(&body).as_bytes(), &body.bytes].concat();
        if let Err(error) = self.stream.send(&frame, until) {
            tracing::debug!(%error, "rank 0 takes no message");
        }
    }

    /// Receives a message, and the bytes behind it. The error is `InvalidData` for bytes that are damaged, and `TimedOut`
    /// at the deadline.
    pub(crate) fn receive(&mut self, until: Instant) -> io::Result<(ToRank, Vec<u8>)> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(message);
            }
            self.stream.receive(usize::MAX, until)?;
        }
    }

    /// The next message, if it has come. The error is that of [`receive`](Self::receive).
    pub(crate) fn look(&mut self) -> io::Result<Option<(ToRank, Vec<u8>)>> {
        loop {
            if let Some(message) = self.next()? {
                return Ok(Some(message));
            }
            match self.stream.receive_some(usize::MAX) {
                Came::Bytes => {}
                Came::Nothing => return Ok(None),
                Came::End => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    fn next(&mut self) -> io::Result<Option<(ToRank, Vec<u8>)>> {
        let Some(body) = self.opener.open(&mut self.stream.inbox)? else {
            return Ok(None);
        };
        let (message, behind) = decode(&body)?;
        Ok(Some((message, behind.into())))
    }
}
