//! The kernel: each block adds up its numbers, writes the sum to the other end, and notifies it.
#![cfg_attr(target_arch = "nvptx64", no_std, feature(abi_ptx))]
use warpbell::wqe::{Remote, Wqe};
use warpbell::{Deadline, GpuShared, SendQueueHandle, Slice, Words, block, kernel, thread};

warpbell::panic_handler!();

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Sums<'a> {
    pub numbers: Slice<'a, u64>,
    pub sums: Words<'a>,
    pub queue: SendQueueHandle<'a>,
    pub to: Remote,
}

#[kernel]
pub fn block_sums(p: Sums<'_>) {
    let number = p.numbers.get(thread::index().into());
    p.sums.fetch_add(block::index().into(), number.copied().unwrap_or(0));
    block::sync();
    if block::thread_index() == 0 {
        let _ = send(p, block::index().into()); // a failure leaves the notification out
    }
}

fn send(p: Sums<'_>, block: u64) -> Option<()> {
    let (limit, to) = (Deadline::after_ms(5000), p.to.at(16 * block));
    let mut queue = p.queue.open::<GpuShared>().ok()?;
    let _ = queue.post(Wqe::write(p.sums.local(block, 1)?, to), limit).ok()?;
    let notification = queue.post(Wqe::write_value(1, to.at(8)).signalled(), limit).ok()?;
    queue.wait(notification, limit).ok()
}
