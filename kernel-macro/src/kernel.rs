//! Checks a kernel's signature and writes out its two forms: what a host runs and names, and a GPU's entry.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Error, FnArg, GenericParam, ItemFn, Result, ReturnType, Signature, Type, Visibility};

use crate::entry::Compiler;
use crate::layout;

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
    let layout = layout::of(&function.sig)?;
    let host = host_entry(&function.vis, &function.sig, layout);
    let symbol = symbol(&function.sig, layout)?;
    let entry = Compiler::at_work()?.entry(&function);
    Ok(quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #function
        #host
        #[cfg(target_arch = "nvptx64")]
        #symbol
        #[allow(
            clippy::missing_safety_doc,
            unsafe_code,
            reason = "unsafe for the launch alone, of which host-init takes care"
        )]
        #entry
        #abi_check
    })
}

/// What a host names: a type of the kernel's name, which comes along wherever the function is imported, with the
/// kernel's `Entry`.
///
/// The entry has the function's own type, so that nothing else takes its place, and no other parameters.
fn host_entry(visibility: &Visibility, signature: &Signature, layout: u64) -> TokenStream {
    let name = &signature.ident;
    let unsafety = &signature.unsafety;
    let lifetimes = signature.generics.lifetimes();
    let types = parameter_types(signature);
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #[doc(hidden)]
        #[allow(dead_code, non_camel_case_types, reason = "it has the name of a function")]
        #visibility enum #name {}
        #[cfg(not(target_arch = "nvptx64"))]
        #[allow(
            dead_code,
            clippy::type_complexity,
            unsafe_code,
            reason = "not every kernel is launched; the crate's own code may do without `unsafe`"
        )]
        impl #name {
            /// The kernel as a launch takes it.
            // SAFETY: on a GPU, the entry of this path and layout is this very function.
            #visibility const ENTRY: ::warpbell::Entry<for<#(#lifetimes),*> #unsafety fn(#(#types),*)> = unsafe {
                ::warpbell::Entry::new(
                    ::core::concat!(::core::module_path!(), "::", ::core::stringify!(#name)),
                    #layout,
                    #name,
                )
            };
        }
    }
}

/// The attribute that names a GPU's entry, as `warpbell::Symbol` writes it. An error where only a host compiles.
#[cfg(nightly)]
fn symbol(signature: &Signature, layout: u64) -> Result<TokenStream> {
    let name = &signature.ident;
    let path: proc_macro::TokenStream = quote!(::core::module_path!()).into();
    let path = path
        .expand_expr()
        .map_err(|error| Error::new_spanned(name, error))?;
    let path: syn::LitStr = syn::parse(path)?;
    let path = format!("{}::{name}", path.value());
    if !path
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_:".contains(&byte))
    {
        let message =
            "PTX has no other letters than those of ASCII: the path of a kernel must do with them";
        return Err(Error::new_spanned(name, message));
    }
    let symbol = format!("warpbell${}${layout:016x}", path.replace("::", "$"));
    Ok(quote!(#[unsafe(export_name = #symbol)]))
}

/// The same with a stable compiler, which has no code for GPUs.
#[cfg(not(nightly))]
fn symbol(_: &Signature, _: u64) -> Result<TokenStream> {
    Ok(TokenStream::new())
}

fn parameter_types(signature: &Signature) -> Vec<&Type> {
    let inputs = signature.inputs.iter();
    let types = inputs.filter_map(|input| match input {
        FnArg::Typed(parameter) => Some(&*parameter.ty),
        FnArg::Receiver(_) => None,
    });
    types.collect()
}

/// Refuses, all at once, what a kernel's signature must not have.
fn check(signature: &Signature) -> Result<()> {
    let mut problems = Problems::default();
    for parameter in &signature.generics.params {
        match parameter {
            GenericParam::Lifetime(lifetime) if lifetime.bounds.is_empty() => {}
            GenericParam::Lifetime(lifetime) => problems.add(
                &lifetime.bounds,
                "a kernel's lifetimes have no bounds: a launch chooses each",
            ),
            _ => problems.add(
                parameter,
                "a kernel has no generics but lifetimes: its one entry has one name and one ABI",
            ),
        }
    }
    if let Some(clause) = &signature.generics.where_clause {
        problems.add(
            clause,
            "a kernel's lifetimes have no bounds: a launch chooses each",
        );
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
    let types = parameter_types(signature);
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
            extern "C" fn crosses_the_abi #generics (#(#names: #types),*) {
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
                "a slice crosses differently with rustc and with Rust-CUDA: pass a `warpbell::Slice`, or a pointer and a length",
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
