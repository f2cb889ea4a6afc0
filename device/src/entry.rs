//! A kernel as a host knows it: the function for a CPU, and the name of the entry in a PTX module.

use core::fmt;

/// A kernel: its function, which a CPU's grid runs, and the [`Symbol`] of its entry, which a GPU runs.
///
/// [`kernel`](macro@crate::kernel) makes one beside each function. `F` is the function's type, `unsafe` included.
///
/// ```
/// use warpbell::{Entry, kernel};
///
/// #[kernel]
/// fn nothing(_: u64) {}
///
/// let entry: Entry<fn(u64)> = nothing::ENTRY;
/// entry.function()(7); // as a thread of a CPU's grid does
/// assert_eq!(entry.symbol().name(), "nothing");
/// ```
#[derive(Clone, Copy)]
pub struct Entry<F> {
    symbol: Symbol,
    run: F,
}

impl<F> Entry<F> {
    /// A kernel that [`kernel`](macro@crate::kernel) made: its path, the number of its parameters' layout, and its
    /// function.
    ///
    /// # Safety
    /// An entry of this path and layout was built from the source of `run`, in whatever module it is.
    #[doc(hidden)]
    pub const unsafe fn new(path: &'static str, layout: u64, run: F) -> Self {
        let symbol = Symbol::Kernel { path, layout };
        Self { symbol, run }
    }

    /// A kernel whose entry has a name of its own, as Rust-CUDA's compiler and others give it.
    ///
    /// # Safety
    /// In every module that it is launched from, the entry `name` takes what `run` takes, does with it what the
    /// types of the parameters allow, and asks for no more than `run` does.
    pub const unsafe fn foreign(name: &'static str, run: F) -> Self {
        let symbol = Symbol::Foreign { name };
        Self { symbol, run }
    }

    /// The name of its entry in a PTX module.
    pub const fn symbol(&self) -> Symbol {
        self.symbol
    }
}

impl<F: Copy> Entry<F> {
    /// Its function, for a CPU.
    pub const fn function(&self) -> F {
        self.run
    }
}

impl<F> fmt::Debug for Entry<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Entry").field(&self.symbol).finish()
    }
}

/// The name of a kernel's entry in a PTX module.
///
/// It is written as `warpbell$crate$module$name$layout`: no C symbol has a `$`, and no Rust path either, so that two
/// paths never have one name, and the names are as PTX wants them. The last part is a number of 16 hexadecimal digits
/// for the types of the parameters: what they are called, and the fields of those that are in the kernel's file.
///
/// ```
/// use warpbell::kernel;
///
/// #[kernel]
/// fn nothing() {}
///
/// let symbol = nothing::ENTRY.symbol();
/// assert_eq!(symbol.name(), "nothing");
/// assert!(symbol.path().ends_with("::nothing"));
/// assert!(symbol.to_string().starts_with(&symbol.stem().to_string()));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Symbol {
    /// Of a function with [`kernel`](macro@crate::kernel).
    Kernel {
        /// Crate, modules and name, as `module_path!` has them: `my_kernels::fill`.
        path: &'static str,
        /// A number for the types of the parameters.
        layout: u64,
    },
    /// Of anything else: the name itself.
    Foreign {
        /// The name.
        name: &'static str,
    },
}

impl Symbol {
    /// Crate, modules and name.
    pub const fn path(&self) -> &'static str {
        match *self {
            Self::Kernel { path, .. } => path,
            Self::Foreign { name } => name,
        }
    }

    /// The kernel's own name.
    pub fn name(&self) -> &'static str {
        let path = self.path();
        path.rsplit("::").next().unwrap_or(path)
    }

    /// The beginning that all entries of this path have, whatever their parameters are.
    pub const fn stem(&self) -> Stem {
        Stem(*self)
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stem().fmt(f)?;
        match self {
            Self::Kernel { layout, .. } => write!(f, "{layout:016x}"),
            Self::Foreign { .. } => Ok(()),
        }
    }
}

/// The beginning of a [`Symbol`], up to the number for the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stem(Symbol);

impl fmt::Display for Stem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Symbol::Foreign { name } => f.write_str(name),
            Symbol::Kernel { path, .. } => {
                f.write_str("warpbell$")?;
                path.split("::").try_for_each(|part| write!(f, "{part}$"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    #[test]
    fn a_symbol_is_its_path_and_its_layout() {
        let symbol = Symbol::Kernel {
            path: "my_kernels::deep::fill",
            layout: 0xab,
        };
        let stem = "warpbell$my_kernels$deep$fill$";
        assert_eq!(symbol.stem().to_string(), stem);
        assert_eq!(symbol.to_string(), std::format!("{stem}00000000000000ab"));
        assert_eq!(symbol.name(), "fill");
    }

    #[test]
    fn a_foreign_name_is_itself() {
        let symbol = Symbol::Foreign { name: "fill" };
        assert_eq!(
            (symbol.to_string().as_str(), symbol.name()),
            ("fill", "fill")
        );
    }
}
