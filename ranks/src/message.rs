//! The messages in the frames between a rank and rank 0.

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::wire::Damaged;
use crate::{Collective, JobFailure};

/// What a rank says to rank 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToRoot {
    /// It makes a call. The bytes behind the message are what it brings; for the barrier of a group, the ranks of the group
    /// (u32 each).
    Call(Collective, Duration),
    Abort(String),
    /// It makes no calls any more.
    Bye,
}

/// What rank 0 says to a rank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToRank {
    /// The first message: how many ranks rank 0 expects, and whether this one is admitted.
    Verdict {
        size: u32,
        admitted: bool,
        /// The others have gone on without this rank, which waits until they take it in.
        returned: bool,
    },
    /// All ranks have made the call. The bytes behind the message are [what they brought](join), if it was an allgather.
    Done,
    /// These ranks take part from now on. The bytes behind the message are what they brought.
    Group(Vec<u32>),
    Failed(JobFailure),
}

/// A message as it is sent: the length of its JSON (u32), the JSON, and other bytes. Many ranks may share it.
pub(crate) struct Body {
    pub bytes: Arc<[u8]>,
    /// SHA-256 of the bytes.
    pub hash: [u8; 32],
}

impl Body {
    pub(crate) fn new(message: &impl Serialize, behind: &[u8]) -> Self {
        let json = serde_json::to_vec(message).expect("numbers and words have a JSON form");
        let bytes = [&(json.len() as u32).to_le_bytes()[..], &json, behind].concat();
        Self {
            hash: Sha256::digest(&bytes).into(),
            bytes: bytes.into(),
        }
    }
}

/// A message, and the bytes behind it.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<(T, &[u8]), Damaged> {
    let (json, behind) = first(body)?;
    let message = serde_json::from_slice(json).or(Err(Damaged))?;
    Ok((message, behind))
}

/// What all ranks brought, one behind the other.
pub(crate) fn join(all: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let pieces = all.flat_map(|one| [(one.len() as u32).to_le_bytes().to_vec(), one]);
    Vec::from_iter(pieces).concat()
}

/// The other way round.
pub(crate) fn split(mut joined: &[u8]) -> Result<Vec<Vec<u8>>, Damaged> {
    let mut all = Vec::new();
    while !joined.is_empty() {
        let (one, rest) = first(joined)?;
        all.push(one.to_vec());
        joined = rest;
    }
    Ok(all)
}

/// Bytes behind their length, and the rest.
fn first(bytes: &[u8]) -> Result<(&[u8], &[u8]), Damaged> {
    let (length, rest) = bytes.split_first_chunk().ok_or(Damaged)?;
    let length = u32::from_le_bytes(*length) as usize;
    rest.split_at_checked(length).ok_or(Damaged)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::prelude::*;

    use super::*;
    use crate::FailedRank;
    use crate::fuzzing::read;

    fn sent<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: T) {
        let body = Body::new(&message, b"behind");
        assert_eq!(decode(&body.bytes), Ok((message, &b"behind"[..])));
        read(&body.bytes);
    }

    #[test]
    fn messages_come_as_they_were_sent() {
        sent(ToRoot::Call(Collective::TakeIn(7), Duration::MAX));
        sent(ToRoot::Abort("wh\"y\n".into()));
        sent(ToRoot::Bye);
        sent(ToRank::Done);
        sent(ToRank::Verdict {
            size: 3,
            admitted: true,
            returned: false,
        });
        sent(ToRank::Group(vec![0, 2]));
        let why = FailedRank::TimedOut {
            call: Collective::Allgather,
            timeout: Duration::from_millis(1500),
            missing: vec![2, 5],
        };
        sent(ToRank::Failed(JobFailure { rank: 1, why }));
        let all = vec![vec![1; 300], vec![], vec![2]];
        assert_eq!(split(&join(all.clone().into_iter())), Ok(all));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_value(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            read(&bytes);
        }
    }
}
