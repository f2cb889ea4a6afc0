//! Which cases are measured.

use std::cell::RefCell;

use clap::Args;

use crate::Error;

/// Names in an error.
const SHOWN: usize = 24;

/// The cases that a command line chooses by their names.
#[derive(Args, Clone, Debug, Default)]
pub struct Filter {
    /// Measure only cases whose name contains this text (may be repeated)
    #[arg(long = "case", value_name = "TEXT")]
    texts: Vec<String>,
    /// Names that were asked about.
    #[arg(skip)]
    known: RefCell<Vec<String>>,
}

impl Filter {
    /// Whether a case is to be measured. Upper and lower case are the same.
    pub fn wants(&self, name: &str) -> bool {
        self.known.borrow_mut().push(name.to_owned());
        let lower = name.to_lowercase();
        let has = |text: &String| lower.contains(&text.to_lowercase());
        self.texts.is_empty() || self.texts.iter().any(has)
    }

    /// The results, if there are any.
    ///
    /// # Errors
    /// [`Error::NoCase`] without results, because no name fits.
    pub fn some<T>(&self, results: Vec<T>) -> Result<Vec<T>, Error> {
        match results.is_empty() && !self.texts.is_empty() {
            false => Ok(results),
            true => Err(Error::NoCase {
                texts: self.texts.join(", "),
                known: self.known(),
            }),
        }
    }

    /// The names that were asked about, as far as a reader may want them.
    fn known(&self) -> String {
        let mut names = self.known.borrow().clone();
        names.dedup();
        let more = names.len().saturating_sub(SHOWN);
        names.truncate(SHOWN);
        if more > 0 {
            names.push(format!("and {more} more"));
        }
        names.join("; ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(texts: &[&str]) -> Filter {
        Filter {
            texts: texts.iter().map(|text| (*text).to_owned()).collect(),
            ..Filter::default()
        }
    }

    #[test]
    fn a_name_fits_by_any_part_in_any_case() {
        assert!(filter(&[]).wants("thread, exclusive"));
        assert!(filter(&["none", "EXCL"]).wants("thread, exclusive"));
        assert!(filter(&["gpu"]).wants("thread, GPU-shared"));
        assert!(!filter(&["warp"]).wants("thread, exclusive"));
    }

    #[test]
    fn texts_that_fit_nothing_are_an_error_with_all_names() {
        let filter = filter(&["x", "y"]);
        let measured = ["a", "b"].into_iter().filter(|name| filter.wants(name));
        let error = filter.some(measured.collect()).unwrap_err().to_string();
        assert_eq!(error, "no case has x, y in its name; choose one of: a; b");
        assert_eq!(filter.some(vec![1]).unwrap(), [1]);
    }

    #[test]
    fn an_error_shows_each_name_once_and_not_too_many() {
        let filter = filter(&["x"]);
        for number in 0..2 * (SHOWN + 3) {
            assert!(!filter.wants(&(number / 2).to_string()));
        }
        let known = filter.known();
        assert!(known.starts_with("0; 1; 2; "), "{known}");
        assert!(known.ends_with("; 23; and 3 more"), "{known}");
    }
}
