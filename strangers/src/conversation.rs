//! What two programs do in turn.

use crate::Error;

/// The way to the other end. Each message is known to both ends, and so is its length.
pub trait Conversation {
    /// Says a message.
    ///
    /// # Errors
    /// The other end does not take it.
    fn say(&mut self, what: &'static str, bytes: &[u8]) -> Result<(), Error>;

    /// Hears a message, all of it.
    ///
    /// # Errors
    /// The other end does not say as much.
    fn hear(&mut self, what: &'static str, into: &mut [u8]) -> Result<(), Error>;
}

/// A conversation without a network: what the other end says is known before, and what is said to it is kept.
#[derive(Clone, Debug, Default)]
pub struct Script<'s> {
    /// What the other end has not said yet. Then it closes the connection.
    pub heard: &'s [u8],
    /// What was said to it.
    pub said: Vec<u8>,
}

impl<'s> Script<'s> {
    /// The other end will say this.
    pub fn new(heard: &'s [u8]) -> Self {
        Self {
            heard,
            said: Vec::new(),
        }
    }
}

impl<C: Conversation> Conversation for &mut C {
    fn say(&mut self, what: &'static str, bytes: &[u8]) -> Result<(), Error> {
        (**self).say(what, bytes)
    }

    fn hear(&mut self, what: &'static str, into: &mut [u8]) -> Result<(), Error> {
        (**self).hear(what, into)
    }
}

impl Conversation for Script<'_> {
    fn say(&mut self, _what: &'static str, bytes: &[u8]) -> Result<(), Error> {
        self.said.extend_from_slice(bytes);
        Ok(())
    }

    fn hear(&mut self, what: &'static str, into: &mut [u8]) -> Result<(), Error> {
        let Some((words, later)) = self.heard.split_at_checked(into.len()) else {
            return Err(Error::Closed {
                what,
                done: self.heard.len(),
                bytes: into.len(),
            });
        };
        into.copy_from_slice(words);
        self.heard = later;
        Ok(())
    }
}
