//! A GPU's entry, as each compiler has it.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{FnArg, ItemFn, Result, parse_quote};

/// A compiler that makes PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compiler {
    /// rustc's own target for GPUs.
    Rustc,
    /// Rust-CUDA's backend of rustc.
    RustCuda,
}

impl Compiler {
    /// The one at work; where a host is compiled for, rustc.
    pub fn at_work() -> Result<Self> {
        Ok(match is_rust_cuda()? {
            true => Self::RustCuda,
            false => Self::Rustc,
        })
    }

    /// The entry that a kernel is on a GPU.
    pub fn entry(self, kernel: &ItemFn) -> TokenStream {
        let mut entry = kernel.clone();
        entry.sig.unsafety = Some(Default::default());
        match self {
            Self::Rustc => {
                entry.sig.abi = Some(parse_quote!(extern "ptx-kernel"));
                quote!(#entry)
            }
            Self::RustCuda => {
                entry.sig.abi = Some(parse_quote!(extern "C"));
                // Its backend gives a structure by value an attribute that LLVM refuses, and an array none.
                for input in &mut entry.sig.inputs {
                    if let FnArg::Typed(parameter) = input {
                        let (pattern, of) = (&parameter.pat, &parameter.ty);
                        *input = parse_quote!([#pattern]: [#of; 1]);
                    }
                }
                quote! {
                    #[allow(improper_ctypes_definitions, reason = "arrays of one, whose types are checked below")]
                    #[nvvm_internal::kernel]
                    #entry
                }
            }
        }
    }
}

/// Whether Rust-CUDA compiles for a GPU.
#[cfg(nightly)]
fn is_rust_cuda() -> Result<bool> {
    // rustc calls GPUs `sm_…`, Rust-CUDA `compute_…`. Warpbell runs on none before sm_70.
    let unnamed = quote!(::core::cfg!(all(
        target_arch = "nvptx64",
        not(target_feature = "sm_70")
    )));
    let unnamed = proc_macro::TokenStream::from(unnamed).expand_expr();
    let unnamed =
        unnamed.map_err(|error| syn::Error::new(proc_macro2::Span::call_site(), error))?;
    Ok(syn::parse::<syn::LitBool>(unnamed)?.value)
}

/// A stable compiler has no code for GPUs.
#[cfg(not(nightly))]
fn is_rust_cuda() -> Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(compiler: Compiler) -> String {
        let kernel = parse_quote! {
            /// Adds.
            pub fn add<'a>(mut p: Add<'a>, count: u32) {
                p.sum(count);
            }
        };
        compiler.entry(&kernel).to_string()
    }

    #[test]
    fn each_compiler_has_its_own_form() {
        let rustc = quote! {
            /// Adds.
            pub unsafe extern "ptx-kernel" fn add<'a>(mut p: Add<'a>, count: u32) {
                p.sum(count);
            }
        };
        assert_eq!(entry(Compiler::Rustc), rustc.to_string());
        let rust_cuda = quote! {
            #[allow(improper_ctypes_definitions, reason = "arrays of one, whose types are checked below")]
            #[nvvm_internal::kernel]
            /// Adds.
            pub unsafe extern "C" fn add<'a>([mut p]: [Add<'a>; 1], [count]: [u32; 1]) {
                p.sum(count);
            }
        };
        assert_eq!(entry(Compiler::RustCuda), rust_cuda.to_string());
    }
}
