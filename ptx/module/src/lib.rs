#![no_std]
extern crate warpbell_kernels as _;
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! { loop {} }
