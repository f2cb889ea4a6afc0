//! A number for what a kernel takes, which differs where the parameters do: so PTX that was built from other types
//! than the host's is noticed.
//!
//! A macro sees no types, but names and sources: those of the parameters, and the fields of all structures, at any
//! depth, that stand in the kernel's own file. What stands in other files is seen by its name alone.

use std::collections::BTreeSet;
use std::fs;

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};
use syn::{FnArg, ItemStruct, ItemType, Path, Signature};

/// The number for a kernel's parameters.
pub fn of(signature: &Signature) -> u64 {
    let file = signature.ident.span().unwrap().local_file();
    let source = file.and_then(|file| fs::read_to_string(file).ok());
    number(signature, source.as_deref().unwrap_or_default())
}

/// The same for a kernel in this source.
fn number(signature: &Signature, source: &str) -> u64 {
    let mut definitions = Definitions::default();
    if let Ok(file) = syn::parse_file(source) {
        definitions.visit_file(&file);
    }
    let mut layout = Layout {
        definitions: &definitions,
        known: BTreeSet::new(),
        hash: Hash::default(),
    };
    for input in &signature.inputs {
        if let FnArg::Typed(parameter) = input {
            layout.visit_type(&parameter.ty);
            layout.hash.add(parameter.ty.to_token_stream());
        }
    }
    layout.hash.0
}

/// What a source defines.
#[derive(Default)]
struct Definitions {
    structures: Vec<ItemStruct>,
    aliases: Vec<ItemType>,
}

impl<'ast> Visit<'ast> for Definitions {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.structures.push(item.clone());
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.aliases.push(item.clone());
    }
}

/// A walk through types, and what it has met.
struct Layout<'d> {
    definitions: &'d Definitions,
    known: BTreeSet<String>,
    hash: Hash,
}

impl<'ast> Visit<'ast> for Layout<'_> {
    fn visit_path(&mut self, path: &'ast Path) {
        visit::visit_path(self, path);
        let Some(last) = path.segments.last() else {
            return;
        };
        if !self.known.insert(last.ident.to_string()) {
            return;
        }
        let definitions = self.definitions;
        let structures = definitions.structures.iter();
        for structure in structures.filter(|structure| structure.ident == last.ident) {
            let says_how = |attribute: &&syn::Attribute| attribute.path().is_ident("repr");
            for attribute in structure.attrs.iter().filter(says_how) {
                self.hash.add(attribute.to_token_stream());
            }
            for field in &structure.fields {
                self.visit_type(&field.ty);
                self.hash.add(field.ident.to_token_stream());
                self.hash.add(field.ty.to_token_stream());
            }
        }
        let aliases = definitions.aliases.iter();
        for alias in aliases.filter(|alias| alias.ident == last.ident) {
            self.visit_type(&alias.ty);
            self.hash.add(alias.ty.to_token_stream());
        }
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
        mod inner { pub struct Deep { word: u64 } }
        type Short<'a> = Add<'a>;
        #[repr(C)] #[derive(Clone, Copy)]
        /// Words.
        pub struct Add<'a> { sum: &'a u64, value: u32, deep: inner::Deep }
    ";

    fn of(signature: &str, source: &str) -> u64 {
        number(&syn::parse_str(signature).unwrap(), source)
    }

    #[test]
    fn a_changed_structure_is_another() {
        let kernel = "fn add(p: Add<'_>)";
        let before = of(kernel, SOURCE);
        for (old, new) in [
            ("value: u32", "value: u32, more: u32"),
            ("sum: &'a u64, value: u32", "value: u32, sum: &'a u64"),
            ("value: u32", "other: u32"),
            ("value: u32", "value: i32"),
            ("word: u64", "word: i64"),
            ("#[repr(C)]", "#[repr(C, align(16))]"),
        ] {
            assert!(SOURCE.contains(old));
            assert_ne!(of(kernel, &SOURCE.replace(old, new)), before, "{new}");
        }
        for (old, new) in [
            ("Words.", "Numbers."),
            ("#[derive(Clone, Copy)]", "#[derive(Clone, Copy, Debug)]"),
            ("    ", " "),
            ("mod inner", "fn other() {} mod inner"),
        ] {
            assert!(SOURCE.contains(old));
            assert_eq!(of(kernel, &SOURCE.replace(old, new)), before, "{new}");
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
