//! What a rank may say, for tests and the fuzz target.

use std::fmt::Debug;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use zerocopy::{FromBytes, IntoBytes};

use crate::message::{Body, ToRank, ToRoot, decode, join, split};
use crate::secret::{Code, Key};
use crate::wire::{Challenge, Frames, Hello, Session, Start, Stranger};
use crate::{Collective, Secret};

pub(crate) fn key() -> Key {
    Key::of(Secret::new("a long and random secret").ok().as_ref())
}

/// That of rank 3 of 4.
pub(crate) fn hello() -> Hello {
    Hello::new(3, 4, [7; 32])
}

pub(crate) fn conversation() -> (Session, Challenge) {
    Session::challenge(&key(), &hello(), [9; 32])
}

pub(crate) fn message() -> ToRoot {
    ToRoot::Call(Collective::Allgather, Duration::from_millis(1500))
}

pub(crate) fn body() -> Body {
    Body::new(&message(), b"bytes")
}

pub(crate) fn sealed(frames: &mut Frames) -> Vec<u8> {
    [frames.seal(&body()).as_bytes(), &body().bytes].concat()
}

/// All that a rank says that makes one call twice.
///
/// # Panics
/// If a challenge is not taken from the one who knows the secret.
pub fn said() -> Vec<u8> {
    let Ok((session, proof)) = Session::prove(&key(), &hello(), &conversation().1) else {
        panic!("the secrets are the same");
    };
    let mut frames = session.to_root();
    let calls = [(); 2].map(|()| sealed(&mut frames));
    [hello().as_bytes(), &proof, &calls.concat()].concat()
}

/// The messages of a rank that rank 0 believes.
pub(crate) fn heard(said: &[u8]) -> Result<Vec<ToRoot>, Stranger> {
    Start::check(said)?;
    let (hello, rest) = Hello::read_from_prefix(said).or(Err(Stranger::NotOurs))?;
    let (proof, rest) = Code::read_from_prefix(rest).or(Err(Stranger::NotOurs))?;
    let session = Session::challenge(&key(), &hello, [9; 32]).0;
    session.check_proof(&proof)?;
    let (mut frames, mut inbox) = (session.to_root(), rest.to_vec());
    let mut messages = Vec::new();
    while let Ok(Some(body)) = frames.open(&mut inbox) {
        messages.extend(decode(&body).map(|(message, _)| message));
    }
    Ok(messages)
}

/// How many messages of a rank rank 0 believes.
pub fn believed(said: &[u8]) -> usize {
    heard(said).map_or(0, |messages| messages.len())
}

/// Reads a body in both directions.
///
/// # Panics
/// If a message is not the same after it was written and read again.
pub fn read(body: &[u8]) {
    again::<ToRoot>(body);
    again::<ToRank>(body);
    if let Ok(all) = split(body) {
        assert_eq!(join(all.into_iter()), body);
    }
}

pub(crate) fn again<T: Serialize + DeserializeOwned + PartialEq + Debug>(body: &[u8]) {
    if let Ok((message, behind)) = decode::<T>(body) {
        let written = Body::new(&message, behind);
        assert_eq!(decode(&written.bytes), Ok((message, behind)));
    }
}
