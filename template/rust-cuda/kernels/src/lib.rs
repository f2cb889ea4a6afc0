//! The kernel: cuda_std says which thread it is, and Warpbell posts a write.
#![no_std]
use cuda_std::thread;
use warpbell::wqe::{Remote, Wqe};
use warpbell::{Deadline, GpuShared, SendQueueHandle, Words, kernel};

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Numbers<'a> {
    pub numbers: Words<'a>,
    pub queue: SendQueueHandle<'a>,
    pub to: Remote,
}

/// Each thread writes its index to the other end, and counts itself in the first word once that is complete.
#[kernel]
pub fn write_indices(p: Numbers<'_>) {
    let _ = write(p, u64::from(thread::index_1d())); // a failure is not counted
}

fn write(p: Numbers<'_>, index: u64) -> Option<()> {
    let limit = Deadline::after_ms(5000);
    let mut queue = p.queue.open::<GpuShared>().ok()?;
    let write = Wqe::write_value(index, p.to.at(8 * index)).signalled();
    let ticket = queue.post(write, limit).ok()?;
    queue.wait(ticket, limit).ok()?;
    p.numbers.fetch_add(0, 1);
    Some(())
}
