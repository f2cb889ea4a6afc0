//! The throughput mode: a token goes once to each member that has experts of it, and one sum comes back from there.
//!
//! The tokens of a member make pieces of 32, by their numbers. A warp packs a piece for one other member, and its block puts
//! it there through its own queue while others are packed. A piece for a member has a *record* for each of its tokens that
//! has choices there, in the order of the tokens:
//!
//! ```text
//! [n] rows       as they travel
//! [n] words      the token's number, and which of its choices are here
//! [c] words      for each of these choices, in their order: expert, slot, weight
//! ```
//!
//! It is one message. Behind it, under the same doorbell, one inline word says that it is there, and in front of a member's
//! first piece go the counts of all experts, straight from the sender's counters.
//!
//! The rows stay where they came: an index says for each expert's slot which record it is, and so a token moves once over
//! the network and never again. The sender has given the slots, so that nothing is counted here.
//!
//! Outputs go the same way back. Their member sums up those of a record, and puts a piece's sums in one message.
//!
//! | file | job |
//! |---|---|
//! | `layout` | where pieces lie in a window |
//! | `word` | what words say: pieces, records, choices |
//! | `send` | a piece, its word, and the counts under one doorbell |
//! | `dispatch` | records out of tokens |
//! | `index` | which record is in which slot |
//! | `combine` | sums out of outputs |

mod combine;
mod dispatch;
mod index;
mod layout;
mod send;
mod word;

pub(super) use combine::Summed;
pub(super) use dispatch::Packed;
pub(super) use layout::Pieces;

/// Tokens of a piece: one for each lane of a warp.
const TOKENS: u32 = 32;
