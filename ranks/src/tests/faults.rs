//! Ranks that fail, those that go on, and those that come back.

use super::*;

/// What the ranks that take part do together, if they are these.
fn exchange_among(ranks: &mut Rendezvous, expected: &[u32]) {
    assert_eq!(ranks.ranks(), expected);
    for round in 0..3 {
        let brought = |rank: &u32| vec![*rank as u8; (*rank as usize + round) % 5];
        let all = ranks.allgather(&brought(&ranks.rank()), PATIENCE).unwrap();
        assert!(all.into_iter().eq(expected.iter().map(brought)));
        ranks.barrier(PATIENCE).unwrap();
    }
}

/// Ranks 0 and 1 take in a new process as rank 2, and all three talk.
fn take_in_2(address: &Root, others: [Rendezvous; 2]) {
    std::thread::scope(|scope| {
        scope.spawn(|| exchange_among(&mut join(address, 2, 3), &[0, 1, 2]));
        for mut ranks in others {
            scope.spawn(move || {
                ranks.take_in(2, PATIENCE).unwrap();
                exchange_among(&mut ranks, &[0, 1, 2]);
            });
        }
    });
}

fn lost(rank: u32) -> (u32, FailedRank) {
    (rank, FailedRank::Lost)
}

fn set(ranks: impl IntoIterator<Item = u32>) -> Vec<u32> {
    ranks.into_iter().collect()
}

#[test]
fn those_that_are_left_go_on_and_take_in_who_comes_back() {
    let (address, ready) = (address(), Barrier::new(3));
    std::thread::scope(|scope| {
        for rank in [0, 1] {
            let (address, ready) = (&address, &ready);
            scope.spawn(move || {
                let mut ranks = join(address, rank, 4);
                assert!(ranks.failed().is_empty() && !ranks.has_returned());
                ready.wait();
                assert_eq!(failure(ranks.barrier(PATIENCE).unwrap_err()), lost(2));
                assert_eq!(set(ranks.failed()), [2]);
                ranks.shrink(PATIENCE).unwrap();
                exchange_among(&mut ranks, &[0, 1, 3]);
                // This one is noticed without a call.
                ready.wait();
                while ranks.check().is_ok() {
                    std::thread::yield_now();
                }
                assert_eq!(set(ranks.failed()), [2, 3]);
                ranks.shrink(PATIENCE).unwrap();
                exchange_among(&mut ranks, &[0, 1]);
                ready.wait();
                ranks.take_in(2, PATIENCE).unwrap();
                exchange_among(&mut ranks, &[0, 1, 2]);
                assert_eq!(set(ranks.failed()), [3]);
                ranks.take_in(3, PATIENCE).unwrap();
                exchange_among(&mut ranks, &[0, 1, 2, 3]);
            });
        }
        let two = scope.spawn(|| by_hand(&address, 2, 4));
        let mut three = join(&address, 3, 4);
        let two = two.join().unwrap();
        ready.wait();
        drop(two);
        assert_eq!(failure(three.barrier(PATIENCE).unwrap_err()), lost(2));
        three.shrink(PATIENCE).unwrap();
        exchange_among(&mut three, &[0, 1, 3]);
        ready.wait();
        // It dies without a word.
        three.link = None;
        drop(three);
        ready.wait();
        let mut two = join(&address, 2, 4);
        assert!(two.has_returned() && two.local_rank() == 2);
        exchange_among(&mut two, &[0, 1, 2]);
        let three = scope.spawn(|| join(&address, 3, 4));
        two.take_in(3, PATIENCE).unwrap();
        let mut three = three.join().unwrap();
        scope.spawn(move || exchange_among(&mut three, &[0, 1, 2, 3]));
        exchange_among(&mut two, &[0, 1, 2, 3]);
    });
}

/// Rank 3 comes back first, and gets the number that rank 2 had.
#[test]
fn ranks_that_come_back_have_local_ranks_of_their_own() {
    let (address, shrunk) = (address(), Barrier::new(4));
    let local_ranks = on_threads(4, |rank| {
        let mut ranks = join(&address, rank, 4);
        if rank < 2 {
            while ranks.ranks().len() > 2 {
                ranks.barrier(PATIENCE).unwrap_err();
                ranks.shrink(PATIENCE).unwrap();
            }
            shrunk.wait();
            ranks.take_in(3, PATIENCE).unwrap();
        } else {
            drop(ranks);
            shrunk.wait();
            ranks = join(&address, rank, 4);
        }
        if rank != 2 {
            ranks.take_in(2, PATIENCE).unwrap();
        }
        ranks.barrier(PATIENCE).unwrap();
        ranks.local_rank()
    });
    assert_eq!(local_ranks, [0, 1, 3, 2]);
}

/// Nobody has failed: it takes a call of the others, which then come, too.
#[test]
fn a_rank_that_shrinks_breaks_the_calls_of_the_others() {
    run(3, |mut ranks| {
        if ranks.rank() != 1 {
            let broken = failure(ranks.barrier(PATIENCE).unwrap_err());
            assert_eq!(broken, (1, FailedRank::Shrinks));
            assert_eq!(failure(ranks.check().unwrap_err()), broken);
            assert!(ranks.failed().is_empty());
        }
        ranks.shrink(PATIENCE).unwrap();
        exchange_among(&mut ranks, &[0, 1, 2]);
    });
}

#[test]
fn a_rank_that_comes_late_or_has_left_is_left_out() {
    let (called, gone) = (Barrier::new(2), Barrier::new(3));
    run(4, |mut ranks| match ranks.rank() {
        1 => {
            assert_eq!(failure(ranks.barrier(PATIENCE).unwrap_err()).0, 3);
            // By hand, so that rank 0 can wait until this one has called.
            let (mut link, until) = (ranks.link.take().unwrap(), Instant::now() + PATIENCE);
            let shrink = ToRoot::Call(Collective::Shrink, PATIENCE);
            link.send(&shrink, &[], until);
            called.wait();
            assert_matches!(link.receive(until) => Ok((ToRank::Group(left), _)) if left == [0, 1]);
            let barrier = ToRoot::Call(Collective::Barrier, PATIENCE);
            link.send(&barrier, &[], until);
            assert_matches!(link.receive(until) => Ok((ToRank::Done, _)));
            gone.wait();
        }
        2 => {
            gone.wait();
            let error = ranks.shrink(PATIENCE).unwrap_err();
            let expected = (2, FailedRank::LeftOut(SOON));
            assert_eq!(failure(error), expected);
            assert_eq!(set(ranks.failed()), [2, 3]);
            assert_eq!(failure(ranks.barrier(PATIENCE).unwrap_err()), expected);
        }
        // It says goodbye.
        3 => {}
        _ => {
            assert_eq!(failure(ranks.barrier(PATIENCE).unwrap_err()).0, 3);
            called.wait();
            ranks.shrink(SOON).unwrap();
            assert_eq!(ranks.ranks(), [0, 1]);
            assert_eq!(set(ranks.failed()), [2, 3]);
            ranks.barrier(PATIENCE).unwrap();
            gone.wait();
        }
    });
}

#[test]
fn without_rank_0_nobody_goes_on() {
    for leaves in [true, false] {
        let over = Barrier::new(3);
        run(3, |mut ranks| {
            if ranks.rank() != 0 {
                let timeout = if leaves { PATIENCE } else { SOON };
                if leaves {
                    let left = failure(ranks.barrier(PATIENCE).unwrap_err());
                    assert_eq!(left, (0, FailedRank::Left));
                }
                let expected = (0, FailedRank::RootLost);
                let error = failure(ranks.shrink(timeout).unwrap_err());
                assert_eq!(error, expected);
                assert_eq!(failure(ranks.barrier(PATIENCE).unwrap_err()), expected);
                assert!(ranks.failed().contains(&0));
            }
            if !leaves {
                over.wait();
            }
        });
    }
}

#[test]
fn nobody_waits_for_ever_for_who_does_not_come_back() {
    let (address, called) = (address(), Barrier::new(2));
    std::thread::scope(|scope| {
        let two = scope.spawn(|| by_hand(&address, 2, 3));
        let one = scope.spawn(|| join(&address, 1, 3));
        let mut zero = join(&address, 0, 3);
        let one = one.join().unwrap();
        drop(two.join().unwrap());
        let called = &called;
        let missed = move |mut ranks: Rendezvous| {
            assert_eq!(failure(ranks.barrier(PATIENCE).unwrap_err()), lost(2));
            ranks.shrink(PATIENCE).unwrap();
            if ranks.rank() == 0 {
                called.wait();
                let nobody = ranks.take_in(2, SOON).unwrap_err();
                assert_matches!(nobody => RanksError::NotBack { rank: 2, timeout: SOON });
            } else {
                // By hand, so that rank 0 can wait until this one has called.
                let (link, until) = (ranks.link.as_mut().unwrap(), Instant::now() + PATIENCE);
                let take_in = ToRoot::Call(Collective::TakeIn(2), PATIENCE);
                link.send(&take_in, &[], until);
                called.wait();
                assert_matches!(link.receive(until) => Ok((ToRank::Group(left), _)) if left == [0, 1]);
            }
            exchange_among(&mut ranks, &[0, 1]);
            ranks
        };
        let outside = zero.take_in(3, PATIENCE).unwrap_err();
        assert_matches!(outside => RanksError::RankOutOfRange { rank: 3, size: 3 });
        let one = scope.spawn(move || missed(one));
        let zero = missed(zero);
        let one = one.join().unwrap();
        // The other way round, with a second process that has the same number.
        let comes = |timeout| Rendezvous::join(&config(&address, 2, 3), timeout);
        let until = Instant::now() + PATIENCE;
        let waits = Link::join(&config(&address, 2, 3), until, PATIENCE).unwrap();
        assert!(waits.returned);
        assert_matches!(comes(PATIENCE) => Err(RanksError::Duplicate(2)));
        drop(waits);
        let nobody = comes(Duration::from_secs(1));
        // A busy machine may take a second until rank 0 has admitted it.
        assert_matches!(nobody => Err(
            RanksError::NotTakenIn { rank: 2, .. } | RanksError::Unreachable { .. }
        ));
        // Those who wait do not disturb, and the seat is free again.
        take_in_2(&address, [zero, one]);
    });
}

/// Who starts it again may be quicker than the others.
#[test]
fn a_new_process_may_come_before_the_others_shrink() {
    let address = address();
    std::thread::scope(|scope| {
        let start = |rank| {
            let address = &address;
            scope.spawn(move || join(address, rank, 3))
        };
        let [one, two] = [1, 2].map(start);
        let mut zero = join(&address, 0, 3);
        let [one, mut two] = [one, two].map(|thread| thread.join().unwrap());
        two.abort("no memory");
        drop(two);
        let aborted = FailedRank::Aborted("no memory".into());
        assert_eq!(failure(zero.barrier(PATIENCE).unwrap_err()), (2, aborted));
        let until = Instant::now() + PATIENCE;
        let waits = Link::join(&config(&address, 2, 3), until, PATIENCE).unwrap();
        assert!(waits.returned);
        drop(waits);
        let shrinks = |mut ranks: Rendezvous| {
            ranks.shrink(PATIENCE).unwrap();
            ranks
        };
        let one = scope.spawn(move || shrinks(one));
        let zero = shrinks(zero);
        take_in_2(&address, [zero, one.join().unwrap()]);
    });
}

#[test]
fn an_abort_is_not_the_end_for_those_that_shrink() {
    run(3, |mut ranks| {
        if ranks.rank() == 2 {
            ranks.abort("no data");
        }
        let aborted = failure(ranks.barrier(PATIENCE).unwrap_err());
        assert_eq!(aborted, (2, FailedRank::Aborted("no data".into())));
        assert_eq!(set(ranks.failed()), [2]);
        ranks.shrink(PATIENCE).unwrap();
        assert!(ranks.failed().is_empty());
        exchange_among(&mut ranks, &[0, 1, 2]);
    });
}

#[test]
fn groups_meet_among_themselves() {
    let apart = Barrier::new(2);
    run(5, |mut ranks| {
        let of: &[u32] = if ranks.rank() < 2 {
            &[1, 0]
        } else {
            &[4, 2, 3]
        };
        let stranger = ranks.barrier_of(&[ranks.rank(), 5], PATIENCE);
        assert_matches!(stranger => Err(RanksError::NotInGroup(5)));
        let other = (ranks.rank() + 1) % 5;
        let other = ranks.barrier_of(&[other], PATIENCE);
        assert_matches!(other => Err(RanksError::NotInGroup(rank)) if rank == ranks.rank());
        // One group does not wait for the other.
        if ranks.rank() >= 2 {
            ranks.barrier_of(of, PATIENCE).unwrap();
        }
        if [0, 4].contains(&ranks.rank()) {
            apart.wait();
        }
        for _ in 0..3 {
            ranks.barrier_of(of, PATIENCE).unwrap();
        }
        exchange_among(&mut ranks, &[0, 1, 2, 3, 4]);
    });
}

/// Rank 2 waits for rank 1 in a group, and rank 1 would wait for rank 2 in a call of all.
#[test]
fn ranks_that_wait_for_each_other_are_told_so() {
    for failure in failures(3, |ranks| match ranks.rank() {
        0 => ranks.barrier(PATIENCE),
        1 => ranks.allgather(b"x", PATIENCE).map(drop),
        _ => ranks.barrier_of(&[1, 2], PATIENCE),
    }) {
        assert_matches!(failure => (_, FailedRank::OutOfStep { call, other_call, .. }) if call != other_call);
    }
}
