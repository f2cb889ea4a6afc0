//! Every transition of the state machine, legal or not.

use super::{by_hand, resident};
use crate::state::Endpoint;
use crate::{Error, ProtectionDomain, QueuePair, QueuePairConfig, State, connect};

const STATES: [State; 5] = [
    State::Reset,
    State::Init,
    State::ReadyToReceive,
    State::ReadyToSend,
    State::Error,
];

fn go(pair: &mut QueuePair, to: State, remote: &Endpoint) -> Result<(), Error> {
    match to {
        State::Reset => pair.reset(),
        State::Init => pair.to_init(),
        State::ReadyToReceive => pair.to_ready_to_receive(remote),
        State::ReadyToSend => pair.to_ready_to_send(),
        State::Error => pair.to_error(),
    }
}

/// A queue pair in this state, and one of the same device to connect to.
fn pair_in(domain: &ProtectionDomain, state: State) -> (QueuePair, QueuePair) {
    let config = QueuePairConfig::granting(crate::Access::all());
    let mut pair = domain.queue_pair(&config).unwrap();
    let other = domain.queue_pair(&config).unwrap();
    let way: &[State] = match state {
        State::Reset => &[],
        State::Init => &[State::Init],
        State::ReadyToReceive => &[State::Init, State::ReadyToReceive],
        State::ReadyToSend => &[State::Init, State::ReadyToReceive, State::ReadyToSend],
        State::Error => &[State::Init, State::Error],
    };
    for step in way {
        go(&mut pair, *step, &other.endpoint()).unwrap();
    }
    assert_eq!(pair.state().unwrap(), state);
    (pair, other)
}

#[test]
fn every_transition_is_taken_or_refused() {
    use State::{Error as Err, Init, ReadyToReceive, ReadyToSend, Reset};
    let legal = [
        (Reset, Init),
        (Init, ReadyToReceive),
        (ReadyToReceive, ReadyToSend),
        (Init, Err),
        (ReadyToReceive, Err),
        (ReadyToSend, Err),
        (Err, Err),
        (Reset, Reset),
        (Init, Reset),
        (ReadyToReceive, Reset),
        (ReadyToSend, Reset),
        (Err, Reset),
    ];
    for device in [by_hand(), resident()] {
        let domain = device.protection_domain().unwrap();
        for from in STATES {
            for to in STATES {
                let (mut pair, other) = pair_in(&domain, from);
                let qpn = pair.qpn();
                let went = go(&mut pair, to, &other.endpoint());
                if legal.contains(&(from, to)) {
                    went.unwrap();
                    assert_eq!(pair.state().unwrap(), to);
                    continue;
                }
                let error = went.expect_err("an illegal step");
                assert_matches!(
                    error =>
                        Error::WrongState { qpn: q, from: f, to: t } if (q, f, t) == (qpn, from, to)
                );
                assert_eq!(pair.state().unwrap(), from, "unchanged");
            }
        }
    }
}

#[test]
fn handles_are_given_where_their_queue_works() {
    for device in [by_hand(), resident()] {
        let domain = device.protection_domain().unwrap();
        for state in STATES {
            let (pair, _other) = pair_in(&domain, state);
            let sends = state == State::ReadyToSend;
            let receives = matches!(
                state,
                State::Init | State::ReadyToReceive | State::ReadyToSend
            );
            assert_eq!(pair.send_queue().is_ok(), sends, "{state}");
            assert_eq!(pair.receive_queue().is_ok(), receives, "{state}");
            if let Err(error) = pair.send_queue() {
                assert_matches!(error => Error::NotReady { state: found, .. } if found == state);
            }
            for handle in [pair.send_queue().ok()].into_iter().flatten() {
                handle.check().unwrap();
            }
        }
    }
}

#[test]
fn connect_changes_neither_end_if_one_is_further() {
    for device in [by_hand(), resident()] {
        let domain = device.protection_domain().unwrap();
        for state in [State::ReadyToReceive, State::ReadyToSend, State::Error] {
            let (mut further, mut fresh) = pair_in(&domain, state);
            for further_first in [false, true] {
                let error = match further_first {
                    false => connect(&mut fresh, &mut further),
                    true => connect(&mut further, &mut fresh),
                }
                .unwrap_err();
                assert_matches!(error => Error::WrongState { from, .. } if from == state);
                assert_eq!(fresh.state().unwrap(), State::Reset);
                assert_eq!(further.state().unwrap(), state);
            }
            further.reset().unwrap();
            connect(&mut fresh, &mut further).unwrap();
            assert_eq!(fresh.state().unwrap(), State::ReadyToSend);
            assert_eq!(further.state().unwrap(), State::ReadyToSend);
        }
    }
}

#[test]
fn connect_takes_ends_in_init() {
    for device in [by_hand(), resident()] {
        let domain = device.protection_domain().unwrap();
        let (mut one, mut other) = pair_in(&domain, State::Init);
        connect(&mut one, &mut other).unwrap();
        assert_eq!(one.state().unwrap(), State::ReadyToSend);
    }
}
