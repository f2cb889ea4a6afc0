//! Proves that every bad input ends in its own named error where the user can act, that nothing outside of
//! the allowed memory changes, that what was done before stays done, that later waits fail at once, and that
//! the queue works again after a reset.

mod damage;
mod keys;
mod receives;
mod refusals;
mod stage;

use std::process::ExitCode;
use std::time::Duration;

use warpbell_hw_tests::machine::Machine;
use warpbell_hw_tests::run::run;

pub fn test(machine: &Machine) -> ExitCode {
    run(machine, Duration::from_secs(600), |progress| {
        progress.step("keys, ranges, access rights");
        keys::every_bad_access();
        progress.step_with_orders(
            "an error given by command at the n-th request",
            keys::given_errors,
        );
        progress.step("requests that are not posted");
        refusals::bad_requests();
        progress.step("handles that are not opened");
        refusals::bad_handles();
        progress.step_with_orders("a full ring", refusals::full_ring);
        progress.step_with_orders("a queue pair in the wrong state", refusals::wrong_states);
        progress.step("receives");
        receives::too_small();
        receives::bad_key();
        receives::none_for_too_long();
        progress.step_with_orders("damaged requests", damage::every_field);
        progress.step_with_orders("requests damaged at random", damage::at_random);
        progress.step_with_orders("a completion queue that overruns", damage::overrun);
    })
}
