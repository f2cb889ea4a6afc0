//! A member of an exchange, as its host has it.

use std::fmt;

use super::{ExpertsConfig, ExpertsError};
use crate::Error;
use crate::experts::word::{Phase, State};
use crate::experts::{Choice, ExpertsHandle, Layout};
use crate::team::host::TeamMember;
use crate::team::host::table::{InWords, Table};
use warpbell_host_init::ProtectionDomain;

impl InWords for Layout {
    fn to_words(self) -> impl AsRef<[u64]> {
        Self::to_words(self)
    }
}

/// One member of an exchange. Its methods are for times at which none of its kernels runs.
pub struct ExpertsMember {
    team: TeamMember,
    layout: Layout,
    /// The same, for kernels.
    table: Table<Layout>,
}

impl ExpertsMember {
    pub(super) fn new(
        domain: &ProtectionDomain,
        team: TeamMember,
        layout: Layout,
        config: &ExpertsConfig,
    ) -> Result<Self, Error> {
        let member = Self {
            table: Table::new(config.queue_pair.placement_in(domain), 1, layout)?,
            team,
            layout,
        };
        let pairs = layout.shape().tokens * layout.shape().top_k;
        let none = Choice::NONE.to_bits().to_le_bytes().repeat(pairs as usize);
        let choices = 8 * layout.choice(0, 0) as usize;
        member.team.write(choices, &none)?;
        Ok(member)
    }

    /// What the kernels of this member get. It borrows the member, which therefore outlives them.
    pub fn handle(&self) -> ExpertsHandle<'_> {
        // SAFETY: the table has the layout, and lives as long as `self`, which the handle borrows.
        unsafe { ExpertsHandle::new(self.team.handle(), self.table.as_ptr()) }
    }

    /// The member of the team in whose window the exchange lies: for masks, queue pairs and bytes. Nobody else opens its
    /// channels.
    pub fn team(&self) -> &TeamMember {
        &self.team
    }

    /// The same, to set it up again.
    #[cfg(feature = "ranks")]
    pub(super) fn team_mut(&mut self) -> &mut TeamMember {
        &mut self.team
    }

    /// Where things lie in the window.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Writes the row of a token to send: bf16, little-endian.
    ///
    /// # Errors
    /// [`ExpertsError::NotThere`]; those of [`TeamMember::write`].
    pub fn write_token(&self, token: u32, row: &[u8]) -> Result<(), Error> {
        self.check(token, row.len())?;
        self.team.write(8 * self.layout.token(token) as usize, row)
    }

    /// Says to which experts a token goes; to none for the choices that are not given.
    ///
    /// # Errors
    /// As [`write_token`](Self::write_token).
    pub fn choose(&self, token: u32, choices: &[Choice]) -> Result<(), Error> {
        let there = self.layout.shape().top_k as usize;
        self.check(token, 0)?;
        not_more("choices", choices.len(), there)?;
        let none = std::iter::repeat(&Choice::NONE);
        let words = choices.iter().chain(none).take(there);
        let bytes: Vec<u8> = words
            .flat_map(|word| word.to_bits().to_le_bytes())
            .collect();
        self.team
            .write(8 * self.layout.choice(token, 0) as usize, &bytes)
    }

    /// Reads the row of a token's weighted sum: bf16, little-endian.
    ///
    /// # Errors
    /// As [`write_token`](Self::write_token).
    pub fn read_result(&self, token: u32, row: &mut [u8]) -> Result<(), Error> {
        self.check(token, row.len())?;
        self.team.read(8 * self.layout.result(token) as usize, row)
    }

    /// The last round that has begun.
    ///
    /// # Errors
    /// Those of [`TeamMember::read`].
    pub fn round(&self) -> Result<u64, Error> {
        let mut word = [0; 8];
        self.team.read(8 * self.layout.state as usize, &mut word)?;
        Ok(State(u64::from_le_bytes(word)).round())
    }

    /// Goes on behind a round, whatever this member was at: to be in the same round as the others again, before their masks
    /// for this member are cleared, and its own for them.
    ///
    /// # Errors
    /// [`ExpertsError::NotThere`] beyond the last round; those of [`TeamMember::write`].
    pub fn set_round(&self, round: u64) -> Result<(), Error> {
        not_more("rounds", round as usize, State::LAST_ROUND as usize)?;
        let counters = vec![0; 2 * 8 * self.layout.counted() as usize];
        self.team
            .write(8 * self.layout.counter(0, 0) as usize, &counters)?;
        let state = State::new(round, Phase::Idle, false);
        self.team
            .write(8 * self.layout.state as usize, &state.0.to_le_bytes())
    }

    fn check(&self, token: u32, bytes: usize) -> Result<(), ExpertsError> {
        let shape = self.layout.shape();
        if token >= shape.tokens {
            let (value, there) = (token as usize, shape.tokens as usize);
            return Err(ExpertsError::NotThere {
                what: "token",
                value,
                there,
            });
        }
        not_more("bytes of a row", bytes, 2 * shape.hidden as usize)
    }
}

fn not_more(what: &'static str, value: usize, there: usize) -> Result<(), ExpertsError> {
    match value > there {
        true => Err(ExpertsError::NotThere { what, value, there }),
        false => Ok(()),
    }
}

impl fmt::Debug for ExpertsMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpertsMember")
            .field("team", &self.team)
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::experts::host::ExpertsConfig;
    use crate::team::host::table::tests::words_are_the_bytes;

    #[test]
    fn the_words_of_a_layout_are_what_kernels_read() {
        words_are_the_bytes(ExpertsConfig::default().layout(2).unwrap(), 36..40);
    }
}
