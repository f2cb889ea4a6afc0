//! Why kernels and hosts that wait for one another ended.

use crate::run::StageError;
use crate::run::error::{Error as RunError, Nested};
use crate::run::launch::said;
use warpbell::WaitError;
use warpbell_kernels::outcome::{Failure, Outcome};
use warpbell_patterns::gaspi::Error::Timeout;
use warpbell_patterns::{active, team};

use crate::Error;

/// An error that may be a wait in vain, mostly for somebody who failed.
pub trait Vain: Nested {
    /// Whether it is.
    fn is_vain(&self) -> bool;
}

impl Vain for Error {
    fn is_vain(&self) -> bool {
        matches!(
            self,
            Self::Silent { .. }
                | Self::Run(RunError::Stage(StageError::Kernel {
                    failure: Failure::Wait(WaitError::Deadline)
                        | Failure::Gaspi(Timeout)
                        | Failure::Active(active::Error::Timeout)
                        | Failure::Team(team::Error::Late { .. }),
                    ..
                }))
        )
    }
}

/// What ends kernels and hosts that wait for one another: the first failure that is more than a wait in vain; the first
/// of all where none is more.
///
/// # Errors
/// That failure.
pub fn first_cause<E: Vain>(results: impl IntoIterator<Item = Result<(), E>>) -> Result<(), E> {
    let mut vain = Ok(());
    for result in results {
        match result {
            Err(error) if error.is_vain() => vain = vain.and(Err(error)),
            other => other?,
        }
    }
    vain
}

/// The same of what ran kernels, and of what became of those with these names.
///
/// # Errors
/// As [`first_cause`].
pub fn ended<'k, E: Vain>(
    ran: Result<(), E>,
    kernels: impl IntoIterator<Item = (&'k str, &'k Outcome)>,
) -> Result<(), E> {
    let said = |(what, outcome)| said(what, outcome).map_err(E::from);
    first_cause([ran].into_iter().chain(kernels.into_iter().map(said)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbell::OpenError;
    use warpbell_host_init::Node;

    #[test]
    fn the_cause_comes_before_those_who_waited_for_it() {
        let kernel = |what: &str, failure| {
            let what = what.into();
            Err(StageError::Kernel { what, failure }.into())
        };
        let late = Failure::Wait(WaitError::Deadline);
        let cause = Failure::Open(OpenError::InUse);
        let silent = || Err(Error::Silent { part: 3 });
        let timeout = Failure::Gaspi(Timeout);
        let unanswered = Failure::Active(active::Error::Timeout);
        let away = Failure::Team(team::Error::Late { rank: 1 });
        let said = |results: Vec<Result<(), Error>>| first_cause(results).unwrap_err().to_string();
        let first = said(vec![
            silent(),
            kernel("a", late),
            kernel("a", timeout),
            kernel("a", unanswered),
            kernel("a", away),
            kernel("b", cause),
            kernel("c", cause),
        ]);
        assert_eq!(first, format!("b: {cause}"));
        assert_eq!(
            said(vec![Ok(()), silent(), kernel("a", late)]),
            "part 3 does not come"
        );
        assert_eq!(
            said(vec![kernel("a", late), silent(), Ok(())]),
            format!("a: {late}")
        );
        assert!(first_cause::<Error>([Ok(()), Ok(())]).is_ok());
    }

    #[test]
    fn what_a_kernel_says_of_the_cause_comes_before_a_silent_host() {
        let node = Node::cpu();
        let outcomes = [
            node.shared(Outcome::new()).unwrap(),
            node.shared(Outcome::new()).unwrap(),
        ];
        outcomes[1].record(|| Err(Failure::Open(OpenError::InUse)));
        let kernels = || [("one", &*outcomes[0]), ("other", &*outcomes[1])];
        for ran in [Ok(()), Err(Error::Silent { part: 0 })] {
            let error = ended(ran, kernels()).unwrap_err().to_string();
            assert!(error.starts_with("other: "), "{error}");
        }
        assert!(matches!(
            ended(Err(Error::Alone), kernels()),
            Err(Error::Alone)
        ));
    }
}
