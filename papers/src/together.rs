//! What ranks that are processes come to together.

use serde::Serialize;
use serde::de::DeserializeOwned;
use warpbell_bench::Error as BenchError;
use warpbell_bench::cause::Vain;
use warpbell_bench::party::Party;
use warpbell_bench::run::StageError;
use warpbell_bench::run::error::{Error as RunError, Nested};

use crate::Error;

/// Gives all ranks what this one came to, and returns that of all, by rank. A rank that waited in vain, or
/// whose queue failed, asks the others first, and so learns which one is gone.
///
/// # Errors
/// That of this rank; another rank failed.
pub fn together<T: Serialize + DeserializeOwned>(
    party: &Party,
    ours: Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let (value, vain) = match ours {
        Ok(value) => (Ok(value), Ok(())),
        Err(error) if error.is_vain() || is_of_queue(&error) => (Err(()), Err(error)),
        Err(error) => return Err(error),
    };
    // No option, whose nothing would be that of a `T` that is one.
    let all: Vec<Result<T, ()>> = party.exchange(value)?;
    vain?;
    if all.iter().any(Result::is_err) {
        // That rank ends, and says why.
        party.all(true)?;
    }
    let all: Result<Vec<T>, ()> = all.into_iter().collect();
    all.map_err(|()| Error::other_program())
}

/// What this rank has made ahead, as each rank did for itself, unless Ctrl-C came to one of them meanwhile.
///
/// # Errors
/// That of this rank; Ctrl-C, at all ranks; another rank failed.
pub fn unless_interrupted<T>(party: &Party, made: Result<T, Error>) -> Result<T, Error> {
    match &made {
        Err(error) if !matches!(error.own(), Some(RunError::Interrupted)) => {}
        _ => party.check()?,
    }
    made
}

/// Whether a queue failed, as it does when nobody answers.
fn is_of_queue(error: &Error) -> bool {
    matches!(
        error,
        Error::Bench(BenchError::Run(RunError::Stage(StageError::Kernel { failure, .. })))
            if failure.queue_error().is_some()
    )
}
