//! Checks a kernel's signature and writes out its two forms.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Error, FnArg, GenericParam, ItemFn, Result, ReturnType, Signature, Type};

/// What the attribute turns a function into.
pub fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream> {
    if !arguments.is_empty() {
        return Err(Error::new_spanned(
            arguments,
            "#[kernel] takes no arguments",
        ));
    }
    let function: ItemFn = syn::parse2(item)?;
    check(&function.sig)?;
    let abi_check = abi_check(&function.sig);

    let mut entry = function.clone();
    entry.sig.unsafety = Some(Default::default());
    entry.sig.abi = Some(syn::parse_quote!(extern "ptx-kernel"));
    Ok(quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #function
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(no_mangle)]
        #[allow(clippy::missing_safety_doc, reason = "unsafe for the launch alone, of which host-init takes care")]
        #entry
        #abi_check
    })
}

/// Refuses, all at once, what a kernel's signature must not have.
fn check(signature: &Signature) -> Result<()> {
    let mut problems = Problems::default();
    for parameter in &signature.generics.params {
        if !matches!(parameter, GenericParam::Lifetime(_)) {
            problems.add(
                parameter,
                "a kernel has no generics but lifetimes: its one entry has one name and one ABI",
            );
        }
    }
    if let ReturnType::Type(_, returned) = &signature.output {
        problems.add(
            returned,
            "a kernel returns nothing: let it write its result where the host reads it",
        );
    }
    if let Some(word) = &signature.asyncness {
        problems.add(word, "a kernel is not async");
    }
    if let Some(word) = &signature.constness {
        problems.add(word, "a kernel is not const");
    }
    if let Some(abi) = &signature.abi {
        problems.add(abi, "a kernel's ABI is given by #[kernel]");
    }
    for input in &signature.inputs {
        match input {
            FnArg::Receiver(receiver) => {
                problems.add(receiver, "a kernel is a free function: it has no self");
            }
            FnArg::Typed(parameter) => problems.visit_type(&parameter.ty),
        }
    }
    problems.finish()
}

/// Lets the compiler check what this macro cannot see: the types behind names.
///
/// A function that is never called takes the same parameters with the C ABI.
fn abi_check(signature: &Signature) -> TokenStream {
    let generics = &signature.generics;
    let clause = &generics.where_clause;
    let types: Vec<&Type> = signature
        .inputs
        .iter()
        .filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(&*parameter.ty),
            FnArg::Receiver(_) => None,
        })
        .collect();
    let names = (0..types.len()).map(|number| quote::format_ident!("parameter{number}"));
    let names: Vec<_> = names.collect();
    let copies = types
        .iter()
        .zip(&names)
        .map(|(parameter, name)| quote_spanned!(parameter.span()=> must_be_copy(&#name);));
    quote! {
        const _: () = {
            #[deny(improper_ctypes_definitions)]
            #[allow(
                dead_code,
                clippy::needless_lifetimes,
                clippy::too_many_arguments,
                reason = "it repeats the kernel's signature and is never called"
            )]
            extern "C" fn crosses_the_abi #generics (#(#names: #types),*) #clause {
                fn must_be_copy<T: Copy>(_: &T) {}
                #(#copies)*
            }
        };
    }
}

/// The errors of a signature, and a walk through its types that finds them.
#[derive(Default)]
struct Problems(Option<Error>);

impl Problems {
    fn add(&mut self, place: impl quote::ToTokens, message: &str) {
        let error = Error::new_spanned(place, message);
        match &mut self.0 {
            Some(first) => first.combine(error),
            None => self.0 = Some(error),
        }
    }

    fn finish(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}

impl<'ast> Visit<'ast> for Problems {
    fn visit_type(&mut self, found: &'ast Type) {
        match found {
            Type::Slice(_) => self.add(
                found,
                "a slice crosses differently with rustc and with Rust-CUDA: pass a pointer and a length",
            ),
            Type::Path(path) if path.qself.is_none() && path.path.is_ident("str") => self.add(
                found,
                "a str crosses differently with rustc and with Rust-CUDA: pass a pointer and a length",
            ),
            Type::TraitObject(_) => self.add(
                found,
                "a trait object's functions are not the GPU's: pass plain data",
            ),
            Type::ImplTrait(_) => self.add(
                found,
                "a kernel has no generics but lifetimes: its one entry has one name and one ABI",
            ),
            _ => visit::visit_type(self, found),
        }
    }
}
