//! Flushes: a READ of one's own memory that brings late stores to their place; and transfers in segments.

use warpbell::wqe::Wqe;
use warpbell::{Deadline, Exclusive, SendQueueHandle, WaitError};
use warpbell_soft_hca::shell::{HcaOptions, LateStores};

use super::{ALL, bytes_of, connected, posting, region, resident, threaded};
use crate::inbound::host::{Flush, Flushing};
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::{Access, Device, Error, MemoryRegion, Nic};

const LIMIT: Deadline = Deadline::after_ms(300_000);

/// A device whose payloads come next day.
fn late() -> Device {
    let options = SoftOptions {
        hca: HcaOptions {
            late_stores: Some(LateStores {
                seed: 1,
                piece: 64,
                late: 1000,
                longest_ns: u64::MAX,
            }),
            ..HcaOptions::default()
        },
        ..SoftOptions::default()
    };
    Device::open(Nic::Soft(options)).unwrap()
}

/// A read of the memory, and a command, both find the data that came before.
#[test]
fn late_data_come_before_they_are_sent_on_and_before_a_command() {
    let (ours, theirs) = (threaded(), late());
    let [near, far] = [&ours, &theirs].map(|device| device.protection_domain().unwrap());
    let (source, target) = (region(&near, 500, 7, ALL), region(&far, 500, 0, ALL));
    let back = region(&near, 500, 0, ALL);
    let [one, other] = connected([(&near, &posting(64)), (&far, &posting(64))]);
    // Before, because asking for a queue is a command.
    let [there, back_again] = [&one, &other].map(|pair| pair.send_queue().unwrap());
    let carry = |queue: SendQueueHandle<'_>, from: &MemoryRegion, to: &MemoryRegion| {
        let (from, to) = (from.local(0, 500).unwrap(), to.remote().at(0, 500).unwrap());
        let mut queue = queue.open::<Exclusive>().unwrap();
        let ticket = queue.post(Wqe::write(from, to).signalled(), LIMIT).unwrap();
        queue.wait(ticket, LIMIT).unwrap();
    };
    carry(there, &source, &target);
    assert_eq!(bytes_of(&target), [0; 500], "on the way");
    carry(back_again, &target, &back);
    assert_eq!(bytes_of(&back), [7; 500]);

    source.write(0, &[8; 500]).unwrap();
    carry(there, &source, &target);
    assert_eq!(bytes_of(&target), [7; 500], "on the way");
    theirs.soft_hca().unwrap().command(|_| ()).unwrap();
    assert_eq!(bytes_of(&target), [8; 500]);
}

#[test]
fn a_flush_brings_what_is_late() {
    let (ours, theirs) = (threaded(), late());
    let [near, far] = [&ours, &theirs].map(|device| device.protection_domain().unwrap());
    let (source, target) = (region(&near, 1000, 7, ALL), region(&far, 1000, 0, ALL));
    let [one, _other] = connected([(&near, &posting(64)), (&far, &posting(64))]);
    let never = Flush::new(&target, Flushing::Never).unwrap();
    let always = Flush::new(&target, Flushing::Always).unwrap();
    assert!(always.is_needed() && !never.is_needed());
    let mut queue = one.send_queue().unwrap().open::<Exclusive>().unwrap();
    let mut never = never.handle().unwrap().open::<Exclusive>().unwrap();
    let mut always = always.handle().unwrap().open::<Exclusive>().unwrap();

    let write = Wqe::write(
        source.local(0, 1000).unwrap(),
        target.remote().at(0, 1000).unwrap(),
    );
    let ticket = queue.post(write.signalled(), LIMIT).unwrap();
    queue.wait(ticket, LIMIT).unwrap();
    never.flush(LIMIT).unwrap();
    assert_eq!(
        bytes_of(&target),
        [0; 1000],
        "on the way, as the fault wants it"
    );
    always.flush(LIMIT).unwrap();
    assert_eq!(bytes_of(&target), [7; 1000]);
}

/// Both providers let a queue pair read its own device's memory.
#[test]
fn a_flush_works_on_each_software_hca() {
    for device in [threaded(), resident()] {
        let domain = device.protection_domain().unwrap();
        let target = region(&domain, 1, 0, ALL);
        let flush = Flush::new(&target, Flushing::Always).unwrap();
        let mut flush = flush.handle().unwrap().open::<Exclusive>().unwrap();
        for _ in 0..20 {
            flush.flush(LIMIT).unwrap();
        }
    }
}

/// A READ or a WRITE in segments moves the same bytes as a whole one.
#[test]
fn segments_bring_every_byte() {
    for device in [threaded(), resident()] {
        let domain = device.protection_domain().unwrap();
        let bytes: Vec<u8> = (0..20_000u32).map(|index| (index % 251) as u8).collect();
        let [near, far] = [(); 2].map(|()| region(&domain, bytes.len(), 0, ALL));
        let [one, _other] = connected([(&domain, &posting(64)); 2]);
        let mut queue = one.send_queue().unwrap().open::<Exclusive>().unwrap();
        let local = near.local(0, 20_000).unwrap();
        let remote = far.remote().at(0, 20_000).unwrap();
        for segment in [700, 4096, 19_999, 0] {
            for (reads, [source, target]) in [(true, [&far, &near]), (false, [&near, &far])] {
                source.write(0, &bytes).unwrap();
                target.write(0, &vec![0xee; bytes.len()]).unwrap();
                let ticket = match reads {
                    true => queue.read_in_segments(local, remote, segment, LIMIT),
                    false => queue.write_in_segments(local, remote, segment, LIMIT),
                };
                queue.wait(ticket.unwrap(), LIMIT).unwrap();
                assert_eq!(bytes_of(target), bytes, "segments of {segment}, {reads}");
            }
        }
    }
}

/// Of a WRITE in segments that runs into the end of what may be written, the segments before it arrive, and none behind.
#[test]
fn a_segment_that_fails_ends_the_transfer() {
    let device = threaded();
    let domain = device.protection_domain().unwrap();
    let near = region(&domain, 4000, 7, ALL);
    let far = region(&domain, 2500, 0, ALL);
    let [one, _other] = connected([(&domain, &posting(64)); 2]);
    let mut queue = one.send_queue().unwrap().open::<Exclusive>().unwrap();
    let local = near.local(0, 4000).unwrap();
    let remote = far.remote().at(0, 2500).unwrap();
    let ticket = queue.write_in_segments(local, remote, 1000, LIMIT).unwrap();
    assert_matches!(queue.wait(ticket, LIMIT) => Err(WaitError::Failed(_)));
    let found = bytes_of(&far);
    assert_eq!(found[..2000], [7; 2000]);
    assert_eq!(found[2000..], [0; 500]);
}

#[test]
fn a_region_that_may_not_be_read_is_refused() {
    let device = threaded();
    let domain = device.protection_domain().unwrap();
    let target = region(&domain, 64, 0, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let error = Flush::new(&target, Flushing::Always).unwrap_err();
    assert_matches!(error => Error::NotReadable { .. });
    // Software keeps the order.
    let flush = Flush::new(&target, Flushing::AsReported).unwrap();
    assert!(!flush.is_needed());
}
