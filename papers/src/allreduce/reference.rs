//! The vectors, and their sums by a tree on the host.

use clap::ValueEnum;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde::Serialize;
use warpbell_bench::run::interrupt;
use warpbell_paper_kernels::allreduce::Plan;

use super::Case;
use crate::Error;

/// How far a float may be from a tree's sum, as a part of it.
const TOLERANCE: f32 = 1e-6;

/// What a vector is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Element {
    /// Floats from 0 to 1, summed to within 1e-6 of a tree's sum
    F32,
    /// Integers of 32 bits, whose sum wraps and is exact
    U32,
}

impl Element {
    /// What random bits become. Floats from 0 to 1, so that nothing cancels out, and an error is one of the sum's size.
    fn of(self, bits: u32) -> u32 {
        match self {
            Self::F32 => ((bits >> 8) as f32 / 16_777_216.0).to_bits(),
            Self::U32 => bits,
        }
    }

    fn add(self, one: u32, other: u32) -> u32 {
        match self {
            Self::F32 => (f32::from_bits(one) + f32::from_bits(other)).to_bits(),
            Self::U32 => one.wrapping_add(other),
        }
    }

    /// The sum by a tree: that of the first half, and that of the second.
    fn tree(self, values: &[u32]) -> u32 {
        match values {
            [] => 0,
            [value] => *value,
            _ => {
                let (first, second) = values.split_at(values.len() / 2);
                self.add(self.tree(first), self.tree(second))
            }
        }
    }

    fn is(self, found: u32, sum: u32) -> bool {
        match self {
            Self::F32 => {
                let (found, sum) = (f32::from_bits(found), f32::from_bits(sum));
                (found - sum).abs() <= TOLERANCE * sum.abs()
            }
            Self::U32 => found == sum,
        }
    }
}

/// What all ranks have, and what it sums up to: the same for all ways and algorithms of a case.
pub struct Reference {
    /// How many ranks.
    pub ranks: u32,
    /// Bytes of a vector.
    pub bytes: u64,
    element: Element,
    /// Of each rank, the vectors that take turns, one behind the other.
    inputs: Vec<Vec<u8>>,
    /// The sum of each of them.
    sums: Vec<u8>,
}

impl Reference {
    /// Draws the vectors, and sums them.
    ///
    /// # Errors
    /// Ctrl-C before all are summed.
    pub fn new(case: &Case) -> Result<Self, Error> {
        let element = case.element;
        let mut random = SmallRng::seed_from_u64(case.seed);
        let bytes = Plan::INPUTS as usize * case.bytes as usize;
        let mut inputs = Vec::new();
        for _ in 0..case.ranks {
            interrupt::check()?;
            let mut input = vec![0; bytes];
            random.fill_bytes(&mut input);
            for value in input.as_chunks_mut().0 {
                *value = element.of(u32::from_ne_bytes(*value)).to_ne_bytes();
            }
            inputs.push(input);
        }
        let mut sums = vec![0; bytes];
        let mut values = vec![0; inputs.len()];
        for (at, sum) in sums.as_chunks_mut().0.iter_mut().enumerate() {
            for (value, input) in values.iter_mut().zip(&inputs) {
                *value = u32::from_ne_bytes(input.as_chunks().0[at]);
            }
            *sum = element.tree(&values).to_ne_bytes();
        }
        Ok(Self {
            ranks: case.ranks,
            bytes: case.bytes,
            element,
            inputs,
            sums,
        })
    }

    /// A rank's vectors.
    pub fn input(&self, rank: usize) -> &[u8] {
        &self.inputs[rank]
    }

    /// Whether these are the sums of the vectors in turn.
    pub fn is(&self, found: &[u8]) -> bool {
        let (found, _) = found.as_chunks();
        let (sums, _) = self.sums.as_chunks();
        let mut pairs = found.iter().zip(sums.iter().cycle());
        pairs.all(|(found, sum)| {
            self.element
                .is(u32::from_ne_bytes(*found), u32::from_ne_bytes(*sum))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_sums_halves() {
        // In 24 bits: 2²⁴ + 1 is 2²⁴, and so a chain would lose both ones.
        let values = [16_777_216.0, 1.0, 1.0, 1.0].map(f32::to_bits);
        let sum = f32::from_bits(Element::F32.tree(&values));
        assert_eq!(sum, 16_777_218.0);
        assert_eq!(Element::U32.tree(&[u32::MAX, 2, 5]), 6);
    }

    #[test]
    fn floats_may_be_a_millionth_off_and_integers_not_at_all() {
        let is = |found: f32, sum: f32| Element::F32.is(found.to_bits(), sum.to_bits());
        assert!(is(4.0 + 3e-6, 4.0) && is(4.0 - 3e-6, 4.0));
        assert!(!is(4.0 + 6e-6, 4.0) && !is(4.0 - 6e-6, 4.0) && !is(f32::NAN, 4.0));
        assert!(Element::U32.is(7, 7) && !Element::U32.is(7, 8));
    }
}
