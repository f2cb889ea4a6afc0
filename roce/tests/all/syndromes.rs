//! Syndromes and 24-bit numbers.

use warpbell_roce::{AethSyndrome, Credits, NakCode, Psn, Response, RnrTimer};

/// The names of `enum ib_rnr_timeout` in `rdma/ib_verbs.h` of Linux, by code: milliseconds.
const RNR_TIMERS: [f64; 32] = [
    655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28,
    1.92, 2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84,
    245.76, 327.68, 491.52,
];

/// The receives of each code, as the drivers of Intel's cards in Linux have them: one of 2^n and 3 × 2^(n-1) after the
/// other.
fn credits(code: u8) -> u32 {
    match code {
        0 | 1 => code.into(),
        even if even % 2 == 0 => 1 << (even / 2),
        odd => 3 << ((odd - 3) / 2),
    }
}

#[test]
fn timers_have_the_specified_times() {
    for (code, milliseconds) in (0..).zip(RNR_TIMERS) {
        let timer = RnrTimer::new(code).expect("5 bits");
        let nanoseconds = (milliseconds * 1e6).round() as u64;
        assert_eq!((timer.code(), timer.nanoseconds()), (code, nanoseconds));
        assert_eq!(RnrTimer::from_nanoseconds(nanoseconds), timer);
        assert_eq!(RnrTimer::from_nanoseconds(nanoseconds - 1), timer);
        let longer = RnrTimer::from_nanoseconds(nanoseconds + 1);
        assert_eq!(longer.nanoseconds() > nanoseconds, code != 0);
    }
    assert_eq!(RnrTimer::from_nanoseconds(0).code(), 1);
    assert_eq!(RnrTimer::from_nanoseconds(u64::MAX).code(), 0);
    assert_eq!(RnrTimer::new(32), None);
}

#[test]
fn credits_have_the_specified_counts() {
    for code in 0..31 {
        let known = Credits::new(code).expect("5 bits");
        assert_eq!(known.count(), Some(credits(code)));
        assert_eq!(Credits::from_count(credits(code)), known);
        let below_next = credits(code + 1) - 1;
        assert_eq!(Credits::from_count(below_next).code(), code);
    }
    assert_eq!(Credits::from_count(u32::MAX).code(), 30);
    assert_eq!(Credits::INVALID.count(), None);
    assert_eq!(Credits::new(31), Some(Credits::INVALID));
    assert_eq!(Credits::new(32), None);
}

#[test]
fn syndromes_say_what_they_say() {
    let ready = |code| Response::ReceiverNotReady(RnrTimer::new(code).expect("5 bits"));
    let known = [
        (0x00, Response::Ack(Credits::from_count(0))),
        (0x1f, Response::Ack(Credits::INVALID)),
        (0x20, ready(0)),
        (0x3f, ready(31)),
        (0x60, Response::Nak(NakCode::SequenceError)),
        (0x61, Response::Nak(NakCode::InvalidRequest)),
        (0x62, Response::Nak(NakCode::RemoteAccessError)),
        (0x63, Response::Nak(NakCode::RemoteOperationalError)),
        (0x64, Response::Nak(NakCode::InvalidRdRequest)),
    ];
    for (number, response) in known {
        assert_eq!(AethSyndrome(number).response(), Some(response));
    }
    let mut reserved = 0;
    for number in 0..=u8::MAX {
        match AethSyndrome(number).response() {
            Some(response) => assert_eq!(response.syndrome(), AethSyndrome(number)),
            None => reserved += 1,
        }
    }
    assert_eq!(reserved, 256 - 32 - 32 - 5);
}

#[test]
fn numbers_have_24_bits() {
    assert_eq!(Psn::new(0xff_ffff), Some(Psn::MAX));
    assert_eq!(Psn::new(0x100_0000), None);
    assert_eq!(Psn::from_low_bits(0x1200_0003).get(), 3);
    assert_eq!(format!("{:?}", Psn::from_low_bits(0x12)), "Psn(0x000012)");
}
