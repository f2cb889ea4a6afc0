//! Random requests: for our builders, and for libmlx5.

use mlx5_wqe::{
    BuildError, Fence, Immediate, Local, Opcode, QpNumber, Remote, RemoteKey, Wqe, WqeIndex,
};
use proptest::prelude::*;
use warpbell_proofs::facts::Facts;
use warpbell_proofs::verbs::{Post, Segment};

use crate::mlx5dv::wqes::local;

/// The most data segments and the most inline bytes that the tests post.
pub const SEGMENTS: usize = 12;
pub const INLINE: usize = 300;

/// What to post, in the tests' own terms.
#[derive(Clone, Debug)]
pub struct Asked {
    pub verb: Verb,
    pub data: Payload,
    pub remote: Remote,
    pub word: u32,
    pub operands: [u64; 2],
    pub signalled: bool,
    pub solicited: bool,
    pub fenced: bool,
    /// By `ibv_wr_*`.
    pub extended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verb {
    Write,
    WriteImmediate,
    Send,
    SendImmediate,
    SendInvalidate,
    Read,
    CompareSwap,
    FetchAdd,
}

#[derive(Clone, Debug)]
pub enum Payload {
    List(Vec<Local>),
    /// Bytes, and where they are cut in two.
    Inline(Vec<u8>, usize),
}

pub fn asked(verbs: Vec<Verb>) -> impl Strategy<Value = Asked> {
    let inline = (
        prop::collection::vec(any::<u8>(), 1..=INLINE),
        any::<prop::sample::Index>(),
    );
    let data = prop_oneof![
        prop::collection::vec(local(), 0..=SEGMENTS).prop_map(Payload::List),
        inline.prop_map(|(bytes, cut)| {
            let cut = cut.index(bytes.len());
            Payload::Inline(bytes, cut)
        }),
    ];
    let remote = (any::<u64>(), any::<u32>());
    let words = (any::<u32>(), any::<[u64; 2]>(), any::<[bool; 4]>(), local());
    (prop::sample::select(verbs), data, remote, words).prop_map(|(verb, data, remote, words)| {
        let (word, operands, [signalled, solicited, fenced, extended], single) = words;
        let data = match (verb, data) {
            // An atomic has one segment, which takes the 8 bytes of the old value.
            (Verb::CompareSwap | Verb::FetchAdd, _) => Payload::List(vec![Local {
                length: 8,
                ..single
            }]),
            // A read has memory to scatter to.
            (Verb::Read, Payload::Inline(..)) => Payload::List(vec![single]),
            (_, data) => data,
        };
        Asked {
            verb,
            data,
            remote: Remote {
                address: remote.0,
                key: RemoteKey(remote.1),
            },
            word,
            operands,
            signalled,
            solicited,
            fenced,
            extended,
        }
    })
}

impl Asked {
    /// Our WQE.
    pub fn wqe(&self) -> Wqe<16> {
        let (remote, immediate) = (self.remote, Immediate(self.word));
        let built = match (&self.data, self.verb) {
            (Payload::List(list), Verb::Write) => Wqe::write_gather(list, remote),
            (Payload::List(list), Verb::WriteImmediate) => {
                Wqe::write_immediate_gather(list, remote, immediate)
            }
            (Payload::List(list), Verb::Send) => Wqe::send_gather(list),
            (Payload::List(list), Verb::SendImmediate) => {
                Wqe::send_immediate_gather(list, immediate)
            }
            (Payload::List(list), Verb::Read) => Wqe::read_scatter(list, remote),
            (Payload::Inline(data, _), Verb::Write) => Wqe::write_inline(data, remote),
            (Payload::Inline(data, _), Verb::WriteImmediate) => {
                Wqe::write_immediate_inline(data, remote, immediate)
            }
            (Payload::Inline(data, _), Verb::Send) => Wqe::send_inline(data),
            (Payload::Inline(data, _), Verb::SendImmediate) => {
                Wqe::send_immediate_inline(data, immediate)
            }
            // The forms of one block, where there is one.
            (Payload::List(list), Verb::SendInvalidate) if list.len() == 1 => {
                Ok(widened(Wqe::send_invalidate(list[0], RemoteKey(self.word))))
            }
            (_, Verb::SendInvalidate) => self.joined(Opcode::SEND_INVALIDATE),
            (Payload::List(list), Verb::CompareSwap) => {
                let [compare, swap] = self.operands;
                Ok(widened(Wqe::compare_swap(list[0], remote, compare, swap)))
            }
            (Payload::List(list), Verb::FetchAdd) => {
                Ok(widened(Wqe::fetch_add(list[0], remote, self.operands[0])))
            }
            (Payload::Inline(..), verb) => panic!("{verb:?} carries no inline data"),
        };
        let wqe = built.expect("the lists are short");
        let wqe = if self.signalled { wqe.signalled() } else { wqe };
        let wqe = if self.solicited { wqe.solicited() } else { wqe };
        if self.fenced {
            wqe.fenced(Fence::SmallAndFence)
        } else {
            wqe
        }
    }

    /// A WQE of data and nothing else, for an opcode whose builder has one segment.
    pub fn joined(&self, opcode: Opcode) -> Result<Wqe<16>, BuildError> {
        let like = match &self.data {
            Payload::List(list) => Wqe::<16>::send_gather(list),
            Payload::Inline(data, _) => Wqe::<16>::send_inline(data),
        }?;
        let blocks = like.place(WqeIndex(0), QpNumber::default());
        let octowords = &blocks.as_flattened()[1..usize::from(like.ds())];
        Wqe::from_segments(opcode, 0, self.word, octowords, like.payload())
    }

    /// The request for libmlx5, handed to `post`.
    pub fn with_post(&self, values: &Facts, post: impl FnOnce(&Post<'_>)) {
        let opcode = match self.verb {
            Verb::Write => "IBV_WR_RDMA_WRITE",
            Verb::WriteImmediate => "IBV_WR_RDMA_WRITE_WITH_IMM",
            Verb::Send => "IBV_WR_SEND",
            Verb::SendImmediate => "IBV_WR_SEND_WITH_IMM",
            Verb::SendInvalidate => "IBV_WR_SEND_WITH_INV",
            Verb::Read => "IBV_WR_RDMA_READ",
            Verb::CompareSwap => "IBV_WR_ATOMIC_CMP_AND_SWP",
            Verb::FetchAdd => "IBV_WR_ATOMIC_FETCH_AND_ADD",
        };
        let flag = |set: bool, name: &str| if set { values[name] as u32 } else { 0 };
        let mut request = Post::new(values[opcode]);
        request.remote_address = self.remote.address;
        request.remote_key = self.remote.key.0;
        [request.compare_add, request.swap] = self.operands;
        request.immediate = self.word;
        request.flags = flag(self.signalled, "IBV_SEND_SIGNALED")
            | flag(self.solicited, "IBV_SEND_SOLICITED")
            | flag(self.fenced, "IBV_SEND_FENCE");
        match &self.data {
            Payload::List(list) => {
                let segment = |local: &Local| Segment {
                    address: local.address,
                    length: local.length,
                    key: local.key.0,
                };
                let list: Vec<_> = list.iter().map(segment).collect();
                post(&request.with_segments(&list));
            }
            Payload::Inline(bytes, cut) => {
                let (first, second) = bytes.split_at(*cut);
                let pieces: Vec<_> = [first, second]
                    .into_iter()
                    .filter(|piece| !piece.is_empty())
                    .map(|piece| Segment {
                        address: piece.as_ptr() as u64,
                        length: piece.len() as u32,
                        key: 0,
                    })
                    .collect();
                // SAFETY: the pieces are bytes of this request.
                post(&unsafe { request.with_inline(&pieces) });
            }
        }
    }
}

/// A WQE of one block as one of sixteen, by its own segments.
pub fn widened(wqe: Wqe<1>) -> Wqe<16> {
    let [block] = wqe.place(WqeIndex(0), QpNumber::default());
    let control = wqe.control();
    let segments = &block[1..usize::from(wqe.ds())];
    let opcode = wqe.opcode();
    Wqe::from_segments(
        opcode,
        control.modifier(),
        control.immediate().0,
        segments,
        wqe.payload(),
    )
    .expect("a block fits sixteen")
}
