//! Bad input: each kind ends in its own error, where the user can act.

use std::ptr::NonNull;

use super::{ALL, by_hand, region, resident};
use crate::state::{Endpoint, Gid};
use crate::{
    Access, Buffer, Completions, Device, Error, Placement, QueuePairConfig, RemoteMemory, State,
};

/// Nobody who knows one key, or the keys of another device, knows the next.
#[test]
fn first_keys_are_not_foreseen() {
    let generations = |device: Device| -> Vec<u32> {
        let domain = device.protection_domain().unwrap();
        let regions: Vec<_> = (0..16).map(|_| region(&domain, 64, 0, ALL)).collect();
        let keys = regions.iter().map(|region| region.remote().rkey);
        keys.map(|key| key & 0xff).collect()
    };
    for open in [by_hand, resident] {
        let all = [(); 4].map(|()| generations(open()));
        // 16 equal ones, or 4 devices with equal ones, are as likely as nothing.
        assert!(all.iter().all(|one| one.iter().any(|next| *next != one[0])));
        assert!(all.iter().any(|one| *one != all[0]));
    }
}

#[test]
fn memory() {
    let domain = by_hand().protection_domain().unwrap();
    for access in [
        Access::REMOTE_WRITE,
        Access::REMOTE_ATOMIC | Access::REMOTE_READ,
    ] {
        let buffer = Buffer::new(64).unwrap();
        let error = domain.register(buffer, access).unwrap_err();
        assert_matches!(error => Error::BadAccess { access: found } if found == access);
    }
    // SAFETY: nothing is registered, because the length is refused.
    let error =
        unsafe { domain.register_raw(Placement::Host, NonNull::dangling(), 0, ALL) }.unwrap_err();
    assert_matches!(error => Error::BadSize { bytes: 0, .. });

    let region = region(&domain, 100, 0, ALL);
    assert!(region.local(0, 100).is_ok() && region.local(100, 0).is_ok());
    for (offset, bytes) in [(0, 101), (100, 1), (101, 0), (usize::MAX, 1), (1, u32::MAX)] {
        let error = region.local(offset, bytes).unwrap_err();
        assert_matches!(error => Error::OutOfRange { len: 100, .. });
        let error = region.remote().at(offset, bytes).unwrap_err();
        assert_matches!(error => Error::OutOfRange { len: 100, .. });
    }
    assert_matches!(region.read(99, &mut [0; 2]) => Err(Error::OutOfRange { .. }));
    assert_matches!(region.write(99, &[0; 2]) => Err(Error::OutOfRange { .. }));
    // The other side's numbers may be nonsense; arithmetic on them must not fail.
    let nonsense = RemoteMemory {
        address: u64::MAX,
        len: u64::MAX,
        rkey: 1,
    };
    assert_eq!(nonsense.at(8, 8).unwrap().address, 7);
}

#[test]
fn memory_that_is_for_reading_only() {
    static WORDS: [u8; 8] = *b"constant";
    let domain = by_hand().protection_domain().unwrap();
    let start = NonNull::from(&WORDS).cast();
    // SAFETY: a static lives for ever, and nobody may write here.
    let lent =
        unsafe { domain.register_raw(Placement::Host, start, 8, Access::REMOTE_READ) }.unwrap();
    let mut bytes = [0; 8];
    lent.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, WORDS);
    assert_matches!(lent.write(0, &[0; 8]) => Err(Error::ReadOnly { access: Access::REMOTE_READ }));
    assert_matches!(lent.words() => Err(Error::ReadOnly { .. }));
    // A buffer is the region's own, and the host may write whatever devices may.
    let own = region(&domain, 8, 0, Access::REMOTE_READ);
    own.write(0, &WORDS).unwrap();
}

#[test]
fn memory_of_another_domain() {
    let device = by_hand();
    let [ours, theirs] = [(); 2].map(|()| device.protection_domain().unwrap());
    let pair = ours.queue_pair(&QueuePairConfig::default()).unwrap();
    pair.check(&region(&ours, 64, 0, ALL)).unwrap();
    let error = pair.check(&region(&theirs, 64, 0, ALL)).unwrap_err();
    let expected = (theirs.number(), ours.number());
    assert_matches!(
        error => Error::ForeignDomain { region, queue_pair } if (region, queue_pair) == expected
    );
}

#[test]
fn configurations() {
    let domain = by_hand().protection_domain().unwrap();
    let refused = |config: QueuePairConfig| domain.queue_pair(&config).unwrap_err();
    let base = QueuePairConfig::default();
    let depth = |send_depth| refused(QueuePairConfig { send_depth, ..base });
    assert_matches!(depth(48) => Error::DepthNotPowerOfTwo { depth: 48, .. });
    assert_matches!(depth(65_536) => Error::DepthOutOfRange { depth: 65_536, .. });
    let small = QueuePairConfig {
        send_completions: Completions::Ordinary { depth: Some(16) },
        ..base
    };
    assert_matches!(refused(small) => Error::CompletionQueueTooSmall { depth: 16, .. });
    let without = QueuePairConfig {
        receive_depth: 0,
        ..base
    };
    let pair = domain.queue_pair(&without).unwrap();
    assert_matches!(pair.receive_queue() => Err(Error::NoReceiveQueue { .. }));
}

#[test]
fn endpoints() {
    let domain = by_hand().protection_domain().unwrap();
    let mut pair = domain.queue_pair(&QueuePairConfig::default()).unwrap();
    let good = pair.endpoint();
    pair.to_init().unwrap();
    let (mut high_qpn, mut high_psn) = (good, good);
    (high_qpn.qpn, high_psn.psn) = (1 << 24, 1 << 24);
    for (remote, what) in [
        (high_qpn, "queue pair number"),
        (high_psn, "sequence number"),
    ] {
        let error = pair.to_ready_to_receive(&remote).unwrap_err();
        assert_matches!(
            error => Error::BadEndpoint { what: found, value: 0x100_0000 } if found == what
        );
    }
    // A card's GID, and a software HCA that no wire leads to.
    let stranger = by_hand();
    for gid in [Gid([0xfe; 16]), stranger.gid()] {
        let elsewhere = Endpoint { gid, ..good };
        let error = pair.to_ready_to_receive(&elsewhere).unwrap_err();
        assert_matches!(error => Error::Unreachable { gid: found } if found == gid);
    }
    assert_eq!(pair.state().unwrap(), State::Init);
}

#[test]
fn a_device_that_has_stopped() {
    let device = by_hand();
    let domain = device.protection_domain().unwrap();
    let region = region(&domain, 64, 0, ALL);
    let pair = domain.queue_pair(&QueuePairConfig::default()).unwrap();
    device.soft_hca().unwrap().kill();
    let error = pair.state().unwrap_err();
    assert!(
        error.to_string().contains("open the device again"),
        "{error}"
    );
    assert_matches!(device.protection_domain() => Err(Error::Soft { .. }));
    // It uses nothing any more, so everything comes back.
    assert!(region.deregister().unwrap().is_some());
}

#[test]
fn memory_without_whole_words() {
    let domain = by_hand().protection_domain().unwrap();
    let buffer = Buffer::new(64).unwrap();
    // SAFETY: the buffer outlives the region.
    let part = |offset, len| unsafe { domain.register_part(&buffer, offset, len, ALL) }.unwrap();
    let address = buffer.as_ptr() as u64 + 4;
    let refused = part(4, 16);
    assert_matches!(
        refused.words() => Err(Error::Unaligned { address: found }) if found == address
    );
    // Bytes behind the last whole word belong to no word.
    assert_eq!(part(8, 15).words().unwrap().len(), 1);
    assert!(part(8, 7).words().unwrap().is_empty());
    let whole = region(&domain, 20, 3, ALL);
    assert_eq!(whole.read_words(1, 1).unwrap(), [0x0303_0303_0303_0303]);
    for (first, count) in [(1, 2), (3, 0), (usize::MAX, 1), (0, usize::MAX)] {
        let refused = whole.read_words(first, count);
        assert!(
            matches!(refused, Err(Error::OutOfRange { .. })),
            "{first}, {count}"
        );
    }
}
