//! The attribute [`macro@kernel`]; use it as `warpbell::kernel`.
#![cfg_attr(nightly, feature(proc_macro_expand))]

mod entry;
mod kernel;
mod layout;

use proc_macro::TokenStream;

/// Makes a function a kernel: the entry of a PTX module on a GPU, a plain function elsewhere.
///
/// On nvptx64 the function becomes an entry in the form of the compiler at work, rustc or Rust-CUDA. Its name holds its
/// crate, its modules and a number for its parameters (`warpbell::Symbol`), so that no other kernel and no C function
/// has the same. Elsewhere it stays as it is written, for a CPU grid to call; beside it there is a hidden type of the
/// same name with the constant `ENTRY`, a `warpbell::Entry`, which `warpbell_host_init::entry!` takes. The type comes
/// along with the function wherever that is imported, so that no module, structure or trait in the same place may have
/// the kernel's name.
///
/// What cannot cross from the host in the same way with rustc and with Rust-CUDA is refused, on every target: generics
/// other than lifetimes, a return value, a `self`, slices, `str` and trait objects, and parameters that are not `Copy`.
/// So are types whose layout only this compiler knows: those passed by value (the lint `improper_ctypes_definitions`),
/// and those of the kernel's own file behind references. Scalars, raw pointers, references to sized types and
/// `#[repr(C)]` structures of these are fine.
///
/// A kernel for cuda_std is written `pub unsafe fn`; that is accepted here too, and such a kernel is launched by an
/// `unsafe` function alone. A kernel without `unsafe` must be sound whatever the values of its parameters: one that
/// takes a raw pointer, or a number for an address, and goes there is not.
///
/// ```
/// use warpbell::{kernel, thread};
///
/// /// What `fill` works on.
/// #[repr(C)]
/// #[derive(Clone, Copy)]
/// pub struct Fill {
///     start: *mut u32,
///     value: u32,
/// }
///
/// #[kernel]
/// pub unsafe fn fill(fill: Fill) {
///     unsafe { *fill.start.add(thread::index() as usize) = fill.value };
/// }
/// ```
///
/// A crate with kernels says `#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]` at its top.
#[proc_macro_attribute]
pub fn kernel(arguments: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(arguments.into(), item.into())
        .unwrap_or_else(syn::Error::into_compile_error)
        .into()
}
