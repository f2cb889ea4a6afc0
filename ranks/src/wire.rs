//! What ranks say to rank 0, and what rank 0 answers.
//!
//! A conversation starts with three messages of fixed length: [`Hello`], [`Challenge`], and a code that is the rank's
//! proof. Each code is an HMAC-SHA256 of a label, the hello and the challenge before its code. The labels differ, so that
//! no end can use the other's code. Both nonces are fresh, so that no old code is good.
//!
//! After the proof come frames: a [`Head`], and a body. Each direction has a key of its own, which follows from the
//! secret and both nonces. A frame's code covers the number of the frame (u64), the length of its body (u32) and the
//! SHA-256 of its body. A frame that is left out, doubled or moved has a wrong number. The hash lets rank 0 read a body
//! once that it sends to all ranks.
//!
//! All numbers are little-endian. In all later versions a hello has as many bytes, and the first 8 bytes of hello and
//! challenge stay.

use std::io;

use sha2::{Digest, Sha256};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::message::Body;
use crate::secret::{Code, Key};
use crate::{LARGEST_CONTRIBUTION, MOST_RANKS};

/// The version that ranks must share.
pub(crate) const VERSION: u32 = 2;

/// Most bytes of a message before those behind it.
const LARGEST_MESSAGE: usize = 8 * 1024;

/// Why the first words of a conversation were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stranger {
    /// They are not Warpbell's.
    NotOurs,
    /// They are of another version.
    Version(u32),
    /// The other end has another secret, or none.
    WrongSecret,
}

/// A frame that is no frame, or not the next one of this conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged;

impl From<Damaged> for io::Error {
    fn from(Damaged: Damaged) -> Self {
        Self::new(io::ErrorKind::InvalidData, "damaged or forged bytes")
    }
}

/// How hello and challenge start.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Start {
    magic: [u8; 4],
    version: U32,
}

impl Start {
    const OURS: Self = Self {
        magic: *b"WBRK",
        version: U32::new(VERSION),
    };

    /// Whether the bytes that have come so far can be ours. Strangers are found by their first bytes.
    pub(crate) fn check(bytes: &[u8]) -> Result<(), Stranger> {
        let mut pairs = bytes.iter().zip(Self::OURS.magic);
        if !pairs.all(|(byte, ours)| *byte == ours) {
            return Err(Stranger::NotOurs);
        }
        match Self::read_from_prefix(bytes) {
            Ok((start, _)) if start.version != VERSION => {
                Err(Stranger::Version(start.version.get()))
            }
            _ => Ok(()),
        }
    }
}

/// A rank's first words.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Hello {
    start: Start,
    pub size: U32,
    pub rank: U32,
    nonce: [u8; 32],
}

impl Hello {
    pub(crate) fn new(rank: u32, size: u32, nonce: [u8; 32]) -> Self {
        let (start, size, rank) = (Start::OURS, size.into(), rank.into());
        Self {
            start,
            size,
            rank,
            nonce,
        }
    }
}

/// Rank 0's answer to a hello.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Challenge {
    start: Start,
    nonce: [u8; 32],
    code: Code,
}

impl Challenge {
    /// The answer to a hello of another version, whose rank looks at the version alone.
    pub(crate) const VERSION_ALONE: Self = Self {
        start: Start::OURS,
        nonce: [0; 32],
        code: [0; 32],
    };
}

/// What is before the body of a frame.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Head {
    length: U32,
    code: Code,
}

const _: () = assert!(size_of::<Hello>() == 48 && size_of::<Challenge>() == 72);
const _: () = assert!(size_of::<Head>() == 36);

/// What both ends of one conversation know.
pub(crate) struct Session {
    key: Key,
    /// The hello, and the challenge before its code.
    transcript: [u8; 88],
    size: u32,
}

impl Session {
    const ROOT: &[u8] = b"warpbell root";
    const RANK: &[u8] = b"warpbell rank";

    fn new(key: &Key, hello: &Hello, nonce: &[u8; 32]) -> Self {
        let words = [hello.as_bytes(), Start::OURS.as_bytes(), nonce].concat();
        Self {
            key: key.clone(),
            transcript: words.try_into().expect("48, 8 and 32 bytes"),
            size: hello.size.get(),
        }
    }

    /// Rank 0's answer to a hello.
    pub(crate) fn challenge(key: &Key, hello: &Hello, nonce: [u8; 32]) -> (Self, Challenge) {
        let session = Self::new(key, hello, &nonce);
        let (start, code) = (Start::OURS, session.code(Self::ROOT));
        (session, Challenge { start, nonce, code })
    }

    /// A rank's answer to a challenge whose start is [checked](Start::check).
    pub(crate) fn prove(
        key: &Key,
        hello: &Hello,
        challenge: &Challenge,
    ) -> Result<(Self, Code), Stranger> {
        let session = Self::new(key, hello, &challenge.nonce);
        session.verify(Self::ROOT, &challenge.code)?;
        let proof = session.code(Self::RANK);
        Ok((session, proof))
    }

    /// Whether the rank knows the secret.
    pub(crate) fn check_proof(&self, proof: &Code) -> Result<(), Stranger> {
        self.verify(Self::RANK, proof)
    }

    fn code(&self, label: &[u8]) -> Code {
        self.key.code(&[label, &self.transcript])
    }

    fn verify(&self, label: &[u8], code: &Code) -> Result<(), Stranger> {
        let known = self.key.verify(&[label, &self.transcript], code);
        known.then_some(()).ok_or(Stranger::WrongSecret)
    }

    /// What a rank says to rank 0, with one contribution.
    pub(crate) fn to_root(&self) -> Frames {
        self.frames(b"to root", 1)
    }

    /// What rank 0 says to a rank, with all contributions.
    pub(crate) fn to_rank(&self) -> Frames {
        self.frames(b"to rank", self.size.min(MOST_RANKS) as usize)
    }

    fn frames(&self, label: &[u8], contributions: usize) -> Frames {
        Frames {
            key: Key::new(&self.code(label)),
            next: 0,
            longest: LARGEST_MESSAGE + contributions * (4 + LARGEST_CONTRIBUTION),
        }
    }
}

/// The frames of one direction, at the end that sends or at the end that receives.
pub(crate) struct Frames {
    key: Key,
    /// The number of the next one.
    next: u64,
    /// Bytes of the longest body.
    longest: usize,
}

impl Frames {
    /// What goes before the body.
    pub(crate) fn seal(&mut self, body: &Body) -> Head {
        let (number, length) = (self.next, U32::new(body.bytes.len() as u32));
        self.next += 1;
        let words = [&number.to_le_bytes()[..], length.as_bytes(), &body.hash];
        let code = self.key.code(&words);
        Head { length, code }
    }

    /// Takes the body of the next frame out of what has come, if all of it has.
    pub(crate) fn open(&mut self, inbox: &mut Vec<u8>) -> Result<Option<Vec<u8>>, Damaged> {
        let Ok((Head { length, code }, rest)) = Head::read_from_prefix(inbox) else {
            return Ok(None);
        };
        let end = length.get() as usize;
        if end > self.longest {
            return Err(Damaged);
        }
        let Some(body) = rest.get(..end) else {
            return Ok(None);
        };
        let (number, hash) = (self.next.to_le_bytes(), Sha256::digest(body));
        if !self.key.verify(&[&number, length.as_bytes(), &hash], &code) {
            return Err(Damaged);
        }
        self.next += 1;
        let body = body.to_vec();
        inbox.drain(..size_of::<Head>() + end);
        Ok(Some(body))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzzing::{believed, body, conversation, heard, hello, key, message, said, sealed};

    /// The codes were computed with Python's `hmac` and `hashlib` from the layouts above.
    #[test]
    fn every_code_is_that_of_another_implementation() {
        let (session, challenge) = conversation();
        assert_eq!(
            hello().as_bytes()[..16],
            *b"WBRK\x02\0\0\0\x04\0\0\0\x03\0\0\0"
        );
        let (_, proof) = Session::prove(&key(), &hello(), &challenge).unwrap();
        let (mut to_root, mut to_rank) = (session.to_root(), session.to_rank());
        let json = br#"{"Call":["Allgather",{"secs":1,"nanos":500000000}]}bytes"#;
        assert_eq!(body().bytes[..4], *b"\x33\0\0\0");
        assert_eq!(body().bytes[4..], *json);
        let codes = [
            "ea671d78f281ae045e887fd438eaf127e3d04fe128637d0b4572f62818b0de89",
            "1752e5620da177d5c92fcf82bb23a4bbe51b12b3ed4b91bc25ed1df89aa071cf",
            "c3090488e95c774d8840d99a02ff1de0fb0d5fe8e6fc3997e01760eb8e095a86",
            "8f7948c26d7ed39a9e875cb2d763ef66a5939001d08481f35e55c8980ff61619",
            "716bceaa2c39e4b82979e806c3434d3f4d74d977cea9739adbda1aca2ffaff7b",
        ];
        let [first, second] = [(); 2].map(|()| to_root.seal(&body()).code);
        let third = to_rank.seal(&body()).code;
        let found = [challenge.code, proof, first, second, third];
        let hex = |code: Code| code.map(|byte| format!("{byte:02x}")).concat();
        assert_eq!(found.map(hex), codes);
    }

    #[test]
    fn frames_are_not_left_out_doubled_moved_or_turned_round() {
        let session = conversation().0;
        let opened = |bytes: &[u8]| {
            let opened = session.to_root().open(&mut bytes.to_vec());
            opened.map(|one| one.is_some())
        };
        let mut sealer = session.to_root();
        let [first, second] = [(); 2].map(|()| sealed(&mut sealer));
        assert_eq!(opened(&first), Ok(true));
        assert_eq!(opened(&first[..first.len() - 1]), Ok(false));
        assert_eq!(opened(&second), Err(Damaged));
        let mut opener = session.to_root();
        let mut doubled = [&first[..], &first].concat();
        assert!(opener.open(&mut doubled).unwrap().is_some());
        assert_eq!(opener.open(&mut doubled), Err(Damaged));
        // Of the other direction, and of another conversation.
        assert_eq!(opened(&sealed(&mut session.to_rank())), Err(Damaged));
        let other = Session::challenge(&key(), &hello(), [8; 32]).0;
        assert_eq!(opened(&sealed(&mut other.to_root())), Err(Damaged));
    }

    #[test]
    fn a_length_that_no_message_has_is_refused_before_its_bytes_come() {
        let session = conversation().0;
        // One contribution, and those of four ranks.
        for (frames, contributions) in [(session.to_root(), 1), (session.to_rank(), 4)] {
            let mut frames = frames;
            let longest = 8192 + contributions * (4 + 65_536);
            for (length, expected) in [(longest, Ok(None)), (longest + 1, Err(Damaged))] {
                let head = Head {
                    length: length.into(),
                    code: [0; 32],
                };
                assert_eq!(frames.open(&mut head.as_bytes().to_vec()), expected);
            }
        }
    }

    #[test]
    fn strangers_are_named() {
        for (bytes, expected) in [
            (&b"HTTP"[..], Err(Stranger::NotOurs)),
            (b"GE", Err(Stranger::NotOurs)),
            (b"WBRK\x01\0\0\0", Err(Stranger::Version(1))),
            (b"WBRK\x03\0\0\0", Err(Stranger::Version(3))),
            (b"WBRK\x02", Ok(())),
            (b"", Ok(())),
            (hello().as_bytes(), Ok(())),
        ] {
            assert_eq!(Start::check(bytes), expected);
        }
        let (session, challenge) = conversation();
        let answer = |key: Key, hello: Hello, challenge: Challenge| {
            Session::prove(&key, &hello, &challenge).map(drop)
        };
        assert_eq!(answer(key(), hello(), challenge), Ok(()));
        let wrong = Err(Stranger::WrongSecret);
        assert_eq!(answer(Key::of(None), hello(), challenge), wrong);
        // A challenge to another hello, and one with another nonce.
        assert_eq!(answer(key(), Hello::new(2, 4, [7; 32]), challenge), wrong);
        let nonce = [1; 32];
        assert_eq!(
            answer(key(), hello(), Challenge { nonce, ..challenge }),
            wrong
        );
        // The code of one end is no good for the other one.
        assert_eq!(session.check_proof(&challenge.code), wrong);
    }

    proptest! {
        #[test]
        fn no_changed_byte_is_believed(at in any::<prop::sample::Index>(), bit in 0..8_u32) {
            let mut said = said();
            prop_assert_eq!(&heard(&said).unwrap(), &[message(), message()]);
            let at = at.index(said.len());
            said[at] ^= 1_u8 << bit;
            prop_assert!(believed(&said) < 2);
        }

        #[test]
        fn any_bytes_end_in_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(believed(&bytes), 0);
        }
    }
}
