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

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(message: &[u8]) -> Fields<'_> {
        Fields::new("a message", message)
    }

    /// What is wrong, in the error's words.
    fn wrong<T: std::fmt::Debug>(result: Result<T, Error>) -> &'static str {
        match result {
            Err(Error::Malformed { what, wrong, .. }) => {
                assert_eq!(what, "a message");
                wrong
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn numbers_have_their_digits_and_no_others() {
        let mut both = fields(b"0123456789abcdeff");
        assert_eq!(both.number(16, "").unwrap(), 0x0123_4567_89ab_cdef);
        assert_eq!(both.number(1, "").unwrap(), 0xf);
        both.end().unwrap();
        // The characters beside the digits and letters that count.
        for other in [b'/', b':', b'`', b'g', b'A', b'F', b' ', 0, 0xff] {
            assert_eq!(wrong(fields(&[b'0', other]).number(2, "no")), "no");
        }
        assert_eq!(wrong(fields(b"0").number(2, "short")), "short");
    }

    #[test]
    fn a_refused_field_is_not_passed_over() {
        let mut left = fields(b"x:12");
        assert_eq!(wrong(left.number(1, "no")), "no");
        assert!(wrong(left.mark(b':')).contains("mark"));
        left.mark(b'x').unwrap();
        left.mark(b':').unwrap();
        assert_eq!(left.number(2, "").unwrap(), 0x12);
        assert!(wrong(left.mark(0)).contains("mark"));
    }

    #[test]
    fn a_message_ends_where_its_fields_do() {
        fields(b"").end().unwrap();
        assert!(wrong(fields(b"0").end()).contains("behind its end"));
    }
}
