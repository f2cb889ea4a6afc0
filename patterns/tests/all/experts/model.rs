//! What each member sends in each round, what an expert makes of it, and what has to come of that.

use warpbell_patterns::experts::{Choice, Format};
use warpbell_patterns::number::{Bf16, E4m3};

/// Which experts tokens choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Routing {
    /// Any, also twice, or none.
    Random,
    /// All the same, another one each round.
    One,
    /// None has the last half of the experts.
    Half,
    /// All choose none.
    Nothing,
}

impl Routing {
    pub const ALL: [Self; 4] = [Self::Random, Self::One, Self::Half, Self::Nothing];

    pub fn of(number: u32) -> Self {
        Self::ALL[number as usize]
    }
}

/// The numbers of a test.
#[derive(Clone, Copy, Debug)]
pub struct Model {
    pub routing: Routing,
    pub experts: u32,
    pub tokens: u32,
    pub round: u64,
    pub format: Format,
}

/// A number that looks random.
fn mix(numbers: [u64; 4]) -> u64 {
    let mut mixed: u64 = 0x9e37_79b9_7f4a_7c15;
    for number in numbers {
        mixed = (mixed ^ number).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed ^= mixed >> 29;
    }
    mixed
}

impl Model {
    /// How many tokens a member sends.
    pub fn sends(&self, rank: u32) -> u32 {
        mix([1, rank.into(), self.round, 0]) as u32 % (self.tokens + 1)
    }

    pub fn choice(&self, rank: u32, token: u32, k: u32) -> Choice {
        let mixed = mix([2, rank.into(), self.round, u64::from(token * 64 + k)]);
        let any = mixed as u32 >> 8;
        let expert = match self.routing {
            Routing::Random if any.is_multiple_of(7) => return Choice::NONE,
            Routing::Random => any % self.experts,
            Routing::One => self.round as u32 % self.experts,
            Routing::Half => any % self.experts.div_ceil(2),
            Routing::Nothing => return Choice::NONE,
        };
        Choice::new(expert, (mixed >> 40) as u16 as f32 / 65_536.0)
    }

    /// A word of a token's row: 4 values.
    pub fn word(&self, rank: u32, token: u32, word: u64) -> u64 {
        let mixed = mix([3, rank.into(), self.round, u64::from(token) << 32 | word]);
        let value = |shift: u32| ((mixed >> shift) as u8 as f32 - 128.0) / 16.0;
        Bf16::pack([value(0), value(8), value(16), value(24)])
    }

    /// The same as it comes to an expert.
    pub fn travelled(&self, rank: u32, token: u32, word: u64) -> u64 {
        let own = self.word(rank, token, word);
        if self.format == Format::Bf16 {
            return own;
        }
        let block = word / 32 * 32..word / 32 * 32 + 32;
        let values = block.flat_map(|word| Bf16::unpack(self.word(rank, token, word)));
        let largest = values.fold(0.0, |largest: f32, value| largest.max(value.abs()));
        let scaled = |value| E4m3::from_f32(value * (448.0 / largest)).to_f32() * (largest / 448.0);
        Bf16::pack(Bf16::unpack(own).map(scaled))
    }

    /// What an expert makes of a value.
    pub fn output(expert: u32, value: f32) -> f32 {
        value * (1.0 + expert as f32 / 16.0) + expert as f32
    }

    /// What an expert makes of a word of values.
    pub fn outputs(expert: u32, word: u64) -> u64 {
        Bf16::pack(Bf16::unpack(word).map(|value| Self::output(expert, value)))
    }

    /// A word of a token's sum, of the choices that count.
    pub fn sum(
        &self,
        (rank, token, word): (u32, u32, u64),
        top_k: u32,
        counts: impl Fn(u32, u32) -> bool,
    ) -> u64 {
        let mut sum = [0.0f32; 4];
        for k in 0..top_k {
            let choice = self.choice(rank, token, k);
            if choice != Choice::NONE && counts(choice.expert(), k) {
                let weight = f32::from_bits((choice.to_bits() >> 32) as u32);
                let outputs = Self::outputs(choice.expert(), self.travelled(rank, token, word));
                for (sum, output) in sum.iter_mut().zip(Bf16::unpack(outputs)) {
                    *sum += weight * output;
                }
            }
        }
        Bf16::pack(sum)
    }

    /// A word of a token's sum where each member sums up for its experts: those sums are rounded to bf16, and added in the
    /// order of the members' first choices.
    pub fn packed_sum(
        &self,
        (rank, token, word): (u32, u32, u64),
        (top_k, local): (u32, u32),
        counts: impl Fn(u32) -> bool,
    ) -> u64 {
        let mut members: Vec<u32> = Vec::new();
        for k in 0..top_k {
            let expert = self.choice(rank, token, k).expert();
            let none = expert == Choice::NONE.expert();
            if !none && counts(expert) && !members.contains(&(expert / local)) {
                members.push(expert / local);
            }
        }
        let mut sum = [0.0f32; 4];
        for member in members {
            let here = |expert| counts(expert) && expert / local == member;
            let partial = self.sum((rank, token, word), top_k, |expert, _| here(expert));
            for (sum, partial) in sum.iter_mut().zip(Bf16::unpack(partial)) {
                *sum += partial;
            }
        }
        Bf16::pack(sum)
    }

    /// How many choices of a member's tokens name an expert.
    pub fn wanted(&self, rank: u32, expert: u32, top_k: u32) -> u32 {
        let pairs = (0..self.sends(rank)).flat_map(|token| (0..top_k).map(move |k| (token, k)));
        let chosen = pairs.filter(|&(token, k)| self.choice(rank, token, k).expert() == expert);
        chosen.count() as u32
    }
}
