//! The shared secret, and the message authentication codes made with it.

use std::fmt;

use hmac::{Hmac, Mac};
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::Sha256;

use crate::RanksError;

/// Fewest bytes of a secret.
pub const SHORTEST_SECRET: usize = 16;

/// A message authentication code.
pub(crate) type Code = [u8; 32];

/// What the ranks of a job share and nobody else knows. `Debug` does not show it.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// A secret of at least [`SHORTEST_SECRET`] bytes. Whoever sees the traffic can try guesses against it, so take
    /// random bytes rather than a word.
    ///
    /// # Errors
    /// [`RanksError::ShortSecret`].
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, RanksError> {
        let bytes = bytes.into();
        if bytes.len() < SHORTEST_SECRET {
            return Err(RanksError::ShortSecret(bytes.len()));
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A key of HMAC-SHA256 (RFC 2104, FIPS 180-4).
#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

impl Key {
    /// The key of a job. Ranks without a secret share the empty one: it finds accidents, and stops no attacker.
    pub(crate) fn of(secret: Option<&Secret>) -> Self {
        Self::new(secret.map_or(&[], |secret| &secret.0))
    }

    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(Hmac::new_from_slice(bytes).expect("HMAC takes keys of every length"))
    }

    /// The code of the words. At most one of them has a variable length.
    pub(crate) fn code(&self, words: &[&[u8]]) -> Code {
        self.fed(words).finalize().into_bytes().into()
    }

    /// Whether this is their code; takes as long for every wrong one.
    pub(crate) fn verify(&self, words: &[&[u8]], code: &Code) -> bool {
        self.fed(words).verify_slice(code).is_ok()
    }

    fn fed(&self, words: &[&[u8]]) -> Hmac<Sha256> {
        let mut state = self.0.clone();
        words.iter().for_each(|word| state.update(word));
        state
    }
}

/// Random bytes of the system, which nobody can foretell.
pub(crate) fn random() -> std::io::Result<[u8; 32]> {
    let mut bytes = [0; 32];
    // Up to 256 bytes come at once, or not at all (getrandom(2)).
    let _ = getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_long_and_stays_hidden() {
        assert_matches!(Secret::new("short") => Err(RanksError::ShortSecret(5)));
        let secret = Secret::new("sixteen letters!").unwrap();
        assert!(!format!("{secret:?}").contains("letters"));
        assert_ne!(random().unwrap(), random().unwrap());
    }
}
