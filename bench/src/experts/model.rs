//! The tokens that all ranks send, and what has to come of them.

use rand::rngs::SmallRng;
use rand::seq::index;
use rand::{Rng, SeedableRng};
use warpbell_kernels::experts::output;
use warpbell_patterns::Error as PatternError;
use warpbell_patterns::experts::Choice;
use warpbell_patterns::number::{Bf16, BlockScale, E4m3, magnitude};

use super::{Case, Values};
use crate::Error;

/// The tokens of all ranks, the same in each round.
#[derive(Debug)]
pub struct Model {
    /// Those of each rank.
    ranks: Vec<Vec<Token>>,
}

#[derive(Debug)]
struct Token {
    values: Vec<f32>,
    choices: Vec<(u32, f32)>,
}

impl Model {
    /// Tokens with random values, experts and weights.
    ///
    /// # Errors
    /// Numbers that make no exchange.
    pub fn new(case: &Case) -> Result<Self, Error> {
        // Before experts are drawn, of which there have to be enough.
        let config = case.config(Values::Bf16, case.queues());
        config
            .layout(case.ranks as usize)
            .map_err(PatternError::from)?;
        let mut rng = SmallRng::seed_from_u64(27);
        let mut token = |_| Token {
            values: (0..case.hidden)
                .map(|_| Bf16::from_f32(rng.random_range(-4.0..4.0)).to_f32())
                .collect(),
            choices: index::sample(&mut rng, case.experts as usize, case.top_k as usize)
                .into_iter()
                .map(|expert| (expert as u32, rng.random()))
                .collect(),
        };
        let mut rank = |_| (0..case.tokens).map(&mut token).collect();
        Ok(Self {
            ranks: (0..case.ranks).map(&mut rank).collect(),
        })
    }

    /// The row of each of a rank's tokens, in bf16, and its choices.
    pub(super) fn inputs(&self, rank: u32) -> impl Iterator<Item = (Vec<u8>, Vec<Choice>)> {
        self.ranks[rank as usize].iter().map(|token| {
            let choice = |&(expert, weight): &(u32, f32)| Choice::new(expert, weight);
            (
                bytes(&token.values),
                token.choices.iter().map(choice).collect(),
            )
        })
    }

    /// The rows of each rank's results, one behind the other.
    pub(super) fn results(&self, values: Values) -> Vec<Vec<u8>> {
        let token = |token: &Token| token.result(values);
        let rank = |tokens: &Vec<Token>| tokens.iter().flat_map(token).collect();
        self.ranks.iter().map(rank).collect()
    }
}

impl Token {
    /// What the experts see of its values.
    fn travelled(&self, values: Values) -> Vec<f32> {
        match values {
            Values::Bf16 => self.values.clone(),
            Values::Fp8 => self
                .values
                .chunks(E4m3::BLOCK as usize)
                .flat_map(quantised)
                .collect(),
        }
    }

    fn result(&self, values: Values) -> Vec<u8> {
        let sum = |value: &f32| {
            let add = |sum: f32, &(expert, weight): &(u32, f32)| {
                sum + weight * Bf16::from_f32(output(expert, *value)).to_f32()
            };
            self.choices.iter().fold(0.0, add)
        };
        let sums: Vec<f32> = self.travelled(values).iter().map(sum).collect();
        bytes(&sums)
    }
}

/// A block of values in E4M3, and back.
fn quantised(block: &[f32]) -> Vec<f32> {
    let largest = block.iter().map(|value| magnitude(*value)).max();
    let scale = BlockScale::of(largest.unwrap_or(0));
    let (eights, _) = block.as_chunks();
    let eight = |values: &[f32; 8]| E4m3::unpack(scale.pack(*values), scale.scale());
    eights.iter().flat_map(eight).collect()
}

/// Values in bf16, little-endian.
fn bytes(values: &[f32]) -> Vec<u8> {
    let bits = |value: &f32| Bf16::from_f32(*value).to_bits().to_le_bytes();
    values.iter().flat_map(bits).collect()
}
