//! The modes as types: what a round does in one of them alone.

use super::packed::{Packed, Summed};
use super::send::{Combine, Dispatch};
use super::word::{Count, Place};
use super::{Experts, Mode};
use warpbell::Deadline;

/// A mode as a type: [`LowLatency`] or [`Throughput`]. A kernel has the code of one mode only, because both together take
/// more registers.
pub trait Way: Steps {}

impl<M: Steps> Way for M {}

/// [`Mode::LowLatency`], as a type.
#[derive(Clone, Copy, Debug)]
pub enum LowLatency {}

/// [`Mode::Throughput`], as a type.
#[derive(Clone, Copy, Debug)]
pub enum Throughput {}

/// The steps of a round that differ.
pub trait Steps: Sized {
    const MODE: Mode;

    /// Sends this member's tokens of the round to all members, this one included. All blocks have routed.
    fn send_tokens(experts: &Experts<'_, Self>, limit: Deadline);

    /// Waits, each thread for some of it, until all members have said what they send. Those that do not are masked.
    fn hear_tokens(experts: &Experts<'_, Self>, limit: Deadline);

    /// Whether all blocks meet again behind [`unpack`](Self::unpack).
    const UNPACKS: bool;

    /// Makes what has come ready to be read.
    fn unpack(experts: &Experts<'_, Self>);

    /// What a source says of its tokens for an own expert, as a [`Count`] of any round.
    fn said(experts: &Experts<'_, Self>, local: u32, source: u32) -> u64;

    /// Sends back what this member's experts made.
    fn send_outputs(experts: &Experts<'_, Self>, limit: Deadline);

    /// Waits, each thread for some of it, until all that is wanted has come back.
    fn hear_outputs(experts: &Experts<'_, Self>, limit: Deadline);

    /// Where the row lies that a choice adds to its token's result, and its weight: of a choice with a place at a member
    /// that is not masked.
    fn addend(experts: &Experts<'_, Self>, place: u64, header: u64) -> (u64, f32);
}

impl Steps for LowLatency {
    const MODE: Mode = Mode::LowLatency;
    const UNPACKS: bool = false;

    #[inline(always)]
    fn send_tokens(experts: &Experts<'_>, limit: Deadline) {
        experts.send::<Dispatch>(limit);
        experts.send_here();
    }

    #[inline(always)]
    fn hear_tokens(experts: &Experts<'_>, limit: Deadline) {
        experts.hear_counts(limit);
    }

    #[inline(always)]
    fn unpack(_: &Experts<'_>) {}

    #[inline(always)]
    fn said(experts: &Experts<'_>, local: u32, source: u32) -> u64 {
        experts.load(experts.layout.count(experts.round, local, source))
    }

    #[inline(always)]
    fn send_outputs(experts: &Experts<'_>, limit: Deadline) {
        experts.send::<Combine>(limit);
    }

    #[inline(always)]
    fn hear_outputs(experts: &Experts<'_>, limit: Deadline) {
        experts.hear_flags(limit);
    }

    #[inline(always)]
    fn addend(experts: &Experts<'_>, place: u64, header: u64) -> (u64, f32) {
        let (expert, slot) = (Place(place).expert(), Place(place).slot());
        let from = match experts.shape().owner(expert) {
            (rank, local) if rank == experts.rank() => experts.layout.output(local, rank, slot),
            _ => experts.layout.landing(expert, slot),
        };
        (from, f32::from_bits(header as u32))
    }
}

impl Steps for Throughput {
    const MODE: Mode = Mode::Throughput;
    const UNPACKS: bool = true;

    #[inline(always)]
    fn send_tokens(experts: &Experts<'_, Self>, limit: Deadline) {
        experts.send_pieces::<Packed>(limit);
    }

    #[inline(always)]
    fn hear_tokens(experts: &Experts<'_, Self>, limit: Deadline) {
        experts.hear_pieces(limit);
    }

    #[inline(always)]
    fn unpack(experts: &Experts<'_, Self>) {
        experts.unpack_all();
    }

    #[inline(always)]
    fn said(experts: &Experts<'_, Self>, local: u32, source: u32) -> u64 {
        let Count(said) = experts.packed_count(local, source);
        said
    }

    #[inline(always)]
    fn send_outputs(experts: &Experts<'_, Self>, limit: Deadline) {
        experts.send_pieces::<Summed>(limit);
    }

    #[inline(always)]
    fn hear_outputs(experts: &Experts<'_, Self>, limit: Deadline) {
        experts.hear_sums(limit);
    }

    #[inline(always)]
    fn addend(experts: &Experts<'_, Self>, place: u64, header: u64) -> (u64, f32) {
        let (rank, _) = experts.shape().owner(Place(place).expert());
        (experts.sum_of(rank, header), 1.0)
    }
}
