//! Pages of doorbells.

use super::objects;
use crate::abi::ioctl as abi;
use crate::attributes::Request;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Allocates a page: its handle, where and how much to map, and its number.
pub fn allocate(request: &mut Request<'_>) {
    let page = objects::fresh();
    request.answer_handle(abi::UAR_HANDLE, page);
    request.answer(
        abi::UAR_MMAP_OFFSET,
        &(u64::from(page) * PAGE).to_ne_bytes(),
    );
    request.answer(abi::UAR_MMAP_LENGTH, &(PAGE as u32).to_ne_bytes());
    request.answer(abi::UAR_PAGE_ID, &page.to_ne_bytes());
}
