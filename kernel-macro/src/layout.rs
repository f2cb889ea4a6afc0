//! A number for what a kernel takes, which differs where the parameters do: so PTX that was built from other types
//! than the host's is noticed.
//!
//! A macro sees no types, but names and sources: those of the parameters, and of all that they lead to, at any depth,
//! in the kernel's own file: fields, variants, lengths of arrays. What is in other files is seen by its name alone.
//!
//! A type of that file whose layout only one compiler knows is refused, behind a reference too: the host's compiler is
//! another one than the GPU's.

use std::collections::BTreeSet;
use std::fs;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{Attribute, Error, FnArg, Ident, Item, Path, Result, Signature};

/// The number for a kernel's parameters.
///
/// # Errors
/// One that names a type without `#[repr(...)]`.
pub fn of(signature: &Signature) -> Result<u64> {
    let file = signature.ident.span().unwrap().local_file();
    let source = file.and_then(|file| fs::read_to_string(file).ok());
    number(signature, source.as_deref().unwrap_or_default())
}

/// The same for a kernel in this source.
fn number(signature: &Signature, source: &str) -> Result<u64> {
    let mut definitions = Definitions(Vec::new());
    if let Ok(file) = syn::parse_file(source) {
        definitions.visit_file(&file);
    }
    let mut layout = Layout {
        definitions: &definitions,
        known: BTreeSet::new(),
        hash: Hash::default(),
        unknown: None,
    };
    for input in &signature.inputs {
        if let FnArg::Typed(parameter) = input {
            layout.visit_type(&parameter.ty);
            layout.hash.add(parameter.ty.to_token_stream());
            if let Some(name) = layout.unknown.take() {
                let message = format!(
                    "`{name}` has a layout that only one compiler knows, and the GPU's is another one: give it #[repr(C)]"
                );
                return Err(Error::new_spanned(&parameter.ty, message));
            }
        }
    }
    Ok(layout.hash.0)
}

/// What a source defines, in all its modules.
struct Definitions(Vec<Item>);

impl<'ast> Visit<'ast> for Definitions {
    fn visit_item(&mut self, item: &'ast Item) {
        if name(item).is_some() {
            self.0.push(item.clone());
        }
        visit::visit_item(self, item);
    }
}

/// The name of an item that can be part of a layout.
fn name(item: &Item) -> Option<&Ident> {
    match item {
        Item::Struct(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Const(item) => Some(&item.ident),
        _ => None,
    }
}

/// A walk through types, and what it has met.
struct Layout<'d> {
    definitions: &'d Definitions,
    known: BTreeSet<String>,
    hash: Hash,
    /// A type whose layout is not fixed.
    unknown: Option<Ident>,
}

impl<'ast> Visit<'ast> for Layout<'_> {
    fn visit_path(&mut self, path: &'ast Path) {
        let Some(last) = path.segments.last() else {
            return;
        };
        // It stands for a type, and has none of its bytes.
        if last.ident == "PhantomData" {
            return;
        }
        visit::visit_path(self, path);
        if !self.known.insert(last.ident.to_string()) {
            return;
        }
        let definitions = self.definitions.0.iter();
        for item in definitions.filter(|item| name(item) == Some(&last.ident)) {
            self.define(item);
        }
    }
}

impl Layout<'_> {
    fn define(&mut self, item: &Item) {
        match item {
            Item::Struct(item) => {
                self.representation(&item.attrs, &item.ident);
                item.fields.iter().for_each(|field| self.field(field));
            }
            Item::Union(item) => {
                self.representation(&item.attrs, &item.ident);
                item.fields.named.iter().for_each(|field| self.field(field));
            }
            Item::Enum(item) => {
                self.representation(&item.attrs, &item.ident);
                for variant in &item.variants {
                    self.hash.add(variant.ident.to_token_stream());
                    variant.fields.iter().for_each(|field| self.field(field));
                    if let Some((_, value)) = &variant.discriminant {
                        self.visit_expr(value);
                        self.hash.add(value.to_token_stream());
                    }
                }
            }
            Item::Type(item) => {
                self.visit_type(&item.ty);
                self.hash.add(item.ty.to_token_stream());
            }
            Item::Const(item) => {
                self.visit_expr(&item.expr);
                self.hash.add(item.expr.to_token_stream());
            }
            _ => {}
        }
    }

    fn representation(&mut self, attributes: &[Attribute], name: &Ident) {
        let says_how = |attribute: &&Attribute| attribute.path().is_ident("repr");
        let mut found = attributes.iter().filter(says_how).peekable();
        if found.peek().is_none() {
            self.unknown.get_or_insert_with(|| name.clone());
        }
        found.for_each(|attribute| self.hash.add(attribute.to_token_stream()));
    }

    fn field(&mut self, field: &syn::Field) {
        self.visit_type(&field.ty);
        self.hash.add(field.ident.to_token_stream());
        self.hash.add(field.ty.to_token_stream());
    }
}

/// FNV-1a over tokens, whose spaces and spans do not count: they differ from compiler to compiler.
struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    fn add(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = match group.delimiter() {
                        Delimiter::Parenthesis => ("(", ")"),
                        Delimiter::Brace => ("{", "}"),
                        Delimiter::Bracket => ("[", "]"),
                        Delimiter::None => ("", ""),
                    };
                    self.word(open);
                    self.add(group.stream());
                    self.word(close);
                }
                TokenTree::Ident(ident) => self.word(&ident.to_string()),
                TokenTree::Punct(punct) => self.word(punct.as_char().encode_utf8(&mut [0; 4])),
                TokenTree::Literal(literal) => self.word(&literal.to_string()),
            }
        }
        self.word(";");
    }

    fn word(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        for byte in word.bytes().chain([b' ']) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        mod inner {
            #[repr(C)] pub struct Deep { word: u64, kind: Kind, either: Either }
            #[repr(u32)] enum Kind { One = 1, Other }
            #[repr(C)] union Either { one: u32, other: f32 }
        }
        const COUNT: usize = 2 * HALF;
        const HALF: usize = 8;
        type Short<'a> = Add<'a>;
        #[repr(C)] #[derive(Clone, Copy)]
        /// Words.
        pub struct Add<'a> { sum: &'a [u64; COUNT], value: u32, deep: &'a inner::Deep, of: PhantomData<Marker> }
        struct Marker;
    ";

    fn of(signature: &str, source: &str) -> u64 {
        number(&syn::parse_str(signature).unwrap(), source).unwrap()
    }

    #[test]
    fn a_changed_structure_is_another() {
        let kernel = "fn add(p: Add<'_>)";
        let before = of(kernel, SOURCE);
        for (old, new) in [
            ("value: u32", "value: u32, more: u32"),
            (
                "sum: &'a [u64; COUNT], value: u32",
                "value: u32, sum: &'a [u64; COUNT]",
            ),
            ("value: u32", "other: u32"),
            ("value: u32", "value: i32"),
            ("word: u64", "word: i64"),
            ("#[repr(C)]", "#[repr(C, align(16))]"),
            ("Other }", "Other, Third }"),
            ("One = 1", "One = 2"),
            ("other: f32", "other: i32"),
            ("usize = 8", "usize = 4"),
        ] {
            assert!(SOURCE.contains(old));
            assert_ne!(of(kernel, &SOURCE.replace(old, new)), before, "{new}");
        }
        for (old, new) in [
            ("Words.", "Numbers."),
            ("#[derive(Clone, Copy)]", "#[derive(Clone, Copy, Debug)]"),
            ("    ", " "),
            ("mod inner", "fn other() {} mod inner"),
            ("struct Marker", "struct Marker(u64)"),
        ] {
            assert!(SOURCE.contains(old));
            assert_eq!(of(kernel, &SOURCE.replace(old, new)), before, "{new}");
        }
    }

    #[test]
    fn a_layout_that_only_one_compiler_knows_is_refused() {
        let kernel = syn::parse_str("fn add(p: Add<'_>)").unwrap();
        for (representation, name) in [
            ("#[repr(C)] pub struct Deep", "Deep"),
            ("#[repr(u32)] enum Kind", "Kind"),
            ("#[repr(C)] union Either", "Either"),
        ] {
            assert!(SOURCE.contains(representation));
            let (_, plain) = representation.split_once("] ").unwrap();
            let error = number(&kernel, &SOURCE.replace(representation, plain)).unwrap_err();
            assert!(
                error.to_string().starts_with(&format!("`{name}` has")),
                "{error}"
            );
        }
    }

    #[test]
    fn other_parameters_are_another() {
        let before = of("fn add(p: Add<'_>)", SOURCE);
        for kernel in ["fn add()", "fn add(p: Add<'_>, n: u32)", "fn add(p: u64)"] {
            assert_ne!(of(kernel, SOURCE), before, "{kernel}");
        }
        assert_eq!(of("fn other(q: Add < '_ >)", SOURCE), before);
        let (alias, changed) = ("fn add(p: Short<'_>)", SOURCE.replace("u32", "u16"));
        assert_ne!(of(alias, SOURCE), of(alias, &changed), "behind an alias");
    }
}
