//! The variables of a process.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

use crate::RanksError;

/// The variables that a launcher gives a process. A test fills one by [`collect`](Iterator::collect). `Debug` shows no
/// values: one may be a secret.
#[derive(Clone, Default)]
pub struct Environment(BTreeMap<OsString, OsString>);

impl Environment {
    /// The variables of this process.
    pub fn of_process() -> Self {
        std::env::vars_os().collect()
    }

    /// A variable's value, also one of no bytes.
    pub(crate) fn raw(&self, variable: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(variable)).map(OsString::as_os_str)
    }

    /// A value that is read by `read`. A variable that is set to nothing counts as not set.
    ///
    /// # Errors
    /// [`RanksError::BadValue`] if `read` finds nothing in it, or if it is not UTF-8.
    pub(crate) fn read<T>(
        &self,
        variable: &'static str,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, RanksError> {
        let Some(value) = self.raw(variable).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        match value.to_str().and_then(read) {
            None => Err(RanksError::BadValue {
                variable,
                value: value.to_string_lossy().into(),
                expected,
            }),
            read => Ok(read),
        }
    }

    pub(crate) fn text(&self, variable: &'static str) -> Result<Option<String>, RanksError> {
        self.read(variable, "UTF-8", |value| Some(value.into()))
    }

    pub(crate) fn number(&self, variable: &'static str) -> Result<Option<u32>, RanksError> {
        self.read(variable, "a whole number", |value| value.parse().ok())
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(variables: I) -> Self {
        let variables = variables.into_iter();
        Self(
            variables
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
