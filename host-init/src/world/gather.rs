//! Values of all ranks, however long, from contributions that are not.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;
use warpbell_ranks::{Bootstrap, LARGEST_CONTRIBUTION, RanksError};

use super::WorldError;

/// Most bytes of a value, as JSON.
pub(super) const MOST_BYTES: usize = 16 << 20;

/// Bytes before the first piece: how long the value is.
const LENGTH: usize = size_of::<u64>();

/// Gives a value to all ranks that take part, and returns those of all, in their order.
pub(super) fn values<T: Serialize + DeserializeOwned>(
    bootstrap: &mut dyn Bootstrap,
    ours: &T,
    timeout: Duration,
) -> Result<Vec<T>, WorldError> {
    let malformed = |rank, reason: serde_json::Error| WorldError::Malformed {
        rank,
        reason: reason.to_string(),
    };
    let rank = bootstrap.rank();
    let ours = serde_json::to_vec(ours).map_err(|error| malformed(rank, error))?;
    let all = bytes(bootstrap, &ours, timeout)?;
    let value = |(rank, bytes): (&u32, &Vec<u8>)| {
        serde_json::from_slice(bytes).map_err(|error| malformed(*rank, error))
    };
    bootstrap.ranks().iter().zip(&all).map(value).collect()
}

/// The same, by rank.
pub(super) fn by_rank<T: Serialize + DeserializeOwned>(
    bootstrap: &mut dyn Bootstrap,
    ours: &T,
    timeout: Duration,
) -> Result<BTreeMap<u32, T>, WorldError> {
    let values = values(bootstrap, ours, timeout)?;
    Ok(bootstrap.ranks().into_iter().zip(values).collect())
}

/// The first contribution says how long the value is, so that most values take no other one.
fn bytes(
    bootstrap: &mut dyn Bootstrap,
    ours: &[u8],
    timeout: Duration,
) -> Result<Vec<Vec<u8>>, WorldError> {
    let (bytes, limit) = (ours.len(), MOST_BYTES);
    if bytes > limit {
        return Err(WorldError::TooLong { bytes, limit });
    }
    let (first, mut rest) = ours.split_at(bytes.min(LARGEST_CONTRIBUTION - LENGTH));
    let first = [&(bytes as u64).to_le_bytes()[..], first].concat();
    let mut all = Vec::new();
    let mut lengths = Vec::new();
    let parts = bootstrap.allgather(&first, timeout)?;
    let ranks = bootstrap.ranks();
    for (&rank, part) in ranks.iter().zip(parts) {
        let stated = part.split_first_chunk::<LENGTH>();
        let length = stated.map(|(length, part)| (u64::from_le_bytes(*length) as usize, part));
        let Some((length, part)) = length.filter(|(length, _)| *length <= limit) else {
            return Err(wrong_length(rank));
        };
        lengths.push(length);
        all.push(part.to_vec());
    }
    while all
        .iter()
        .zip(&lengths)
        .any(|(value, length)| value.len() < *length)
    {
        let piece = rest.split_off(..rest.len().min(LARGEST_CONTRIBUTION));
        let pieces = bootstrap.allgather(piece.unwrap_or_default(), timeout)?;
        let values = all.iter_mut().zip(&lengths).zip(pieces);
        for (&rank, ((value, length), piece)) in ranks.iter().zip(values) {
            if piece.is_empty() && value.len() < *length {
                return Err(wrong_length(rank));
            }
            value.extend(piece);
        }
    }
    let mut values = ranks.iter().zip(all.iter().zip(&lengths));
    match values.find(|(_, (value, length))| value.len() != **length) {
        Some((&rank, _)) => Err(wrong_length(rank)),
        None => Ok(all),
    }
}

fn wrong_length(rank: u32) -> WorldError {
    WorldError::Malformed {
        rank,
        reason: "its length is not what it says".into(),
    }
}

/// The error of the ranks, if it is one: they know of it.
pub(super) const fn is_known(error: &WorldError) -> bool {
    matches!(error, WorldError::Ranks(RanksError::Failed(_)))
}
