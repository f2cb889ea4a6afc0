//! Advice that a software HCA's watch gives about posted requests.

use std::sync::{Arc, Mutex};

use warpbell::wqe::{Remote, Wqe};
use warpbell::{Deadline, Exclusive};
use warpbell_soft_hca::shell::{Advice, HcaOptions, RequestWatch, WatchLimits};

use super::{ALL, region};
use crate::soft::SoftOptions;
use crate::{Device, Nic, QueuePairConfig};

const LIMIT: Deadline = Deadline::after_ms(300_000);

/// Posts READs, each `stride` bytes behind the one before. Returns the watch's advice, and the address of the first READ.
fn told(reads: u32, bytes: u32, (first, stride): (u64, u64)) -> (Vec<Advice>, u64) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&told);
    let limits = WatchLimits {
        stretch: 4096,
        longest_read: 10_000,
        ..WatchLimits::default()
    };
    let options = SoftOptions {
        hca: HcaOptions {
            watch: Some(RequestWatch::telling(limits, move |advice| {
                list.lock().unwrap().push(advice);
            })),
            ..HcaOptions::default()
        },
        ..SoftOptions::default()
    };
    let device = Device::open(Nic::Soft(options)).unwrap();
    let near = device.protection_domain().unwrap();
    let far = device.protection_domain().unwrap();
    let target = region(&near, bytes as usize, 0, ALL);
    let source = region(&far, 1 << 20, 7, ALL);
    let config = QueuePairConfig::granting(crate::Access::all());
    let (one, other) = near.connected(&far, &config).unwrap();
    {
        let mut queue = one.send_queue().unwrap().open::<Exclusive>().unwrap();
        for read in 0..u64::from(reads) {
            let remote = Remote {
                address: source.address() + first + stride * read,
                key: source.rkey(),
            };
            let read = Wqe::read(target.local(0, bytes).unwrap(), remote).signalled();
            let ticket = queue.post(read, LIMIT).unwrap();
            queue.wait(ticket, LIMIT).unwrap();
        }
    }
    let address = source.address() + first;
    // The watch ends with its HCA.
    drop((one, other, target, source, near, far, device));
    let told = std::mem::take(&mut *told.lock().unwrap());
    (told, address)
}

#[test]
fn requests_that_suit_the_nic_are_not_told_of() {
    assert_eq!(told(100, 256, (0, 8192)).0, []);
}

#[test]
fn what_takes_longer_than_it_need_is_told_of_by_name() {
    let (misaligned, address) = told(70, 128, (64, 8192));
    let expected = Advice::Misaligned {
        requests: 70,
        packets: 140,
        aligned: 70,
        example: address + 69 * 8192,
    };
    assert_eq!(misaligned, [expected]);
    // All of them in the first page.
    let (crowded, address) = told(80, 8, (0, 8));
    let expected = Advice::Crowded {
        requests: 80,
        of: 80,
        address,
        stretch: 4096,
    };
    assert_eq!(crowded, [expected]);
    let (long, _) = told(3, 10_001, (0, 16_384));
    let expected = Advice::LongReads {
        reads: 3,
        longest: 10_001,
    };
    assert_eq!(long, [expected]);
}
