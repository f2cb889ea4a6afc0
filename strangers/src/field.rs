//! Messages as text: hexadecimal numbers of fixed numbers of digits, in lower case, and what stands between them.

use crate::Error;

/// Reads a message from its front.
pub struct Fields<'m> {
    what: &'static str,
    message: &'m [u8],
    left: &'m [u8],
}

impl<'m> Fields<'m> {
    pub fn new(what: &'static str, message: &'m [u8]) -> Self {
        Self {
            what,
            message,
            left: message,
        }
    }

    /// A number of so many digits, at most 16; `wrong` says what it means if there is none.
    pub fn number(&mut self, digits: usize, wrong: &'static str) -> Result<u64, Error> {
        let refused = Error::malformed(self.what, self.message, wrong);
        let Some((field, left)) = self.left.split_at_checked(digits) else {
            return Err(refused);
        };
        let mut number = 0;
        for &digit in field {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return Err(refused),
            };
            number = number << 4 | u64::from(value);
        }
        self.left = left;
        Ok(number)
    }

    /// What stands behind a number.
    pub fn mark(&mut self, mark: u8) -> Result<(), Error> {
        match self.left.split_first() {
            Some((&found, left)) if found == mark => {
                self.left = left;
                Ok(())
            }
            _ => Err(self.refused("a mark between two fields is not where it should be")),
        }
    }

    /// The end of the message.
    pub fn end(self) -> Result<(), Error> {
        match self.left {
            [] => Ok(()),
            _ => Err(self.refused("there is more behind its end")),
        }
    }

    fn refused(&self, wrong: &'static str) -> Error {
        Error::malformed(self.what, self.message, wrong)
    }
}
