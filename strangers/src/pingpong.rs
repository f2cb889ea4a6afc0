//! What two `ibv_rc_pingpong` say to each other.
//!
//! ```text
//! client -> server   LID:QPN:PSN:GID, hexadecimal, of 4, 6, 6 and 32 digits, and a zero byte: 52 bytes
//! client <- server   the same
//! client -> server   "done" and a zero byte
//! ```
//!
//! The server's queue pair is ready before it answers, the client's when it has heard the answer; then the client
//! sends its first message. Both close the TCP connection before that. Neither tells how long its messages are, nor
//! how many.

use crate::field::Fields;
use crate::{Conversation, Error, FirstWords};

/// The TCP port where none is named.
pub const PORT: u16 = 18515;
/// Bytes of a message where none is named (`-s`).
pub const MESSAGE: u64 = 4096;
/// Rounds where none are named (`-n`).
pub const ROUNDS: u64 = 1000;
/// Bytes of the largest packet where none are named (`-m`).
pub const MTU: u32 = 1024;
/// Reads and atomics that the program has under way, and answers, at most.
pub const READS: u16 = 1;
/// At each multiple of so many bytes the end that checks what it has received (`-c`) wants a zero; the client that was
/// called with `-c` sends one there. On x86-64.
pub const PAGE: usize = 4096;
/// What a client's first message is made of elsewhere.
pub const FILL: u8 = 0x7b;

const LINE: &str = "the line LID:QPN:PSN:GID";
const LINE_BYTES: usize = 52;
const DONE: &[u8; 5] = b"done\0";

/// What a client says first.
pub const FIRST_WORDS: FirstWords = FirstWords {
    what: LINE,
    bytes: LINE_BYTES,
};

/// One end's queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Local identifier of the port, 0 on Ethernet.
    pub lid: u16,
    /// Number of the queue pair, 24 bits.
    pub qpn: u32,
    /// Number of its first packet, 24 bits.
    pub psn: u32,
    /// The port's GID; all zero if it tells none.
    pub gid: [u8; 16],
}

impl Destination {
    /// The line that tells of it.
    ///
    /// # Panics
    /// If a number has more than 24 bits.
    pub fn to_line(&self) -> [u8; LINE_BYTES] {
        let Self { lid, qpn, psn, gid } = self;
        let gid = u128::from_be_bytes(*gid);
        let line = format!("{lid:04x}:{qpn:06x}:{psn:06x}:{gid:032x}\0");
        let line = line.into_bytes().try_into();
        line.expect("numbers of 24 bits have six digits")
    }

    /// What a line tells.
    ///
    /// # Errors
    /// [`Error::Malformed`] for one that the program would not write.
    pub fn of_line(line: &[u8; LINE_BYTES]) -> Result<Self, Error> {
        let mut fields = Fields::new(LINE, line);
        let lid = fields.number(4, "the LID is no number of 4 digits")? as u16;
        fields.mark(b':')?;
        let qpn = fields.number(6, "the QPN is no number of 6 digits")? as u32;
        fields.mark(b':')?;
        let psn = fields.number(6, "the PSN is no number of 6 digits")? as u32;
        fields.mark(b':')?;
        let mut gid = [0; 16];
        for byte in &mut gid {
            *byte = fields.number(2, "the GID is no number of 32 digits")? as u8;
        }
        fields.mark(0)?;
        fields.end()?;
        Ok(Self { lid, qpn, psn, gid })
    }
}

/// A client's part: tells the server of our queue pair, and hears of its own, which is ready to receive then.
///
/// # Errors
/// The server does not speak like one, or tells no GID.
pub fn call(server: &mut impl Conversation, ours: &Destination) -> Result<Destination, Error> {
    server.say(LINE, &ours.to_line())?;
    let theirs = hear_line(server)?;
    server.say("\"done\"", DONE)?;
    Ok(theirs)
}

/// A server's first part: hears of the client's queue pair. Ours must be ready to receive before [`answer`].
///
/// # Errors
/// The client does not speak like one, or tells no GID.
pub fn listen(client: &mut impl Conversation) -> Result<Destination, Error> {
    hear_line(client)
}

/// A server's second part: tells the client of our queue pair.
///
/// # Errors
/// The client does not say that it has heard.
pub fn answer(client: &mut impl Conversation, ours: &Destination) -> Result<(), Error> {
    client.say(LINE, &ours.to_line())?;
    let mut done = [0; DONE.len()];
    client.hear("\"done\"", &mut done)?;
    match &done == DONE {
        true => Ok(()),
        false => Err(Error::malformed("\"done\"", &done, "it is another word")),
    }
}

fn hear_line(other: &mut impl Conversation) -> Result<Destination, Error> {
    let mut line = [0; LINE_BYTES];
    other.hear(LINE, &mut line)?;
    let theirs = Destination::of_line(&line)?;
    if theirs.gid == [0; 16] {
        return Err(Error::NoGid);
    }
    Ok(theirs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Script;
    use proptest::prelude::*;

    /// Two ends' words, as they were read off a connection between two of rdma-core 44.
    const CLIENT: &[u8; 52] = b"0000:010000:a67dbd:fe800000000000000200dbfffecf58f5\0";
    const SERVER: &[u8; 52] = b"0000:010000:829c91:fe800000000000000200cdfffee48c45\0";

    fn client() -> Destination {
        Destination {
            lid: 0,
            qpn: 0x01_0000,
            psn: 0xa6_7dbd,
            gid: 0xfe80_0000_0000_0000_0200_dbff_fecf_58f5_u128.to_be_bytes(),
        }
    }

    fn server() -> Destination {
        Destination {
            psn: 0x82_9c91,
            gid: 0xfe80_0000_0000_0000_0200_cdff_fee4_8c45_u128.to_be_bytes(),
            ..client()
        }
    }

    #[test]
    fn both_parts_say_what_the_program_says() {
        let mut script = Script::new(SERVER);
        assert_eq!(call(&mut script, &client()).unwrap(), server());
        assert_eq!(script.said, [&CLIENT[..], b"done\0"].concat());

        let heard = [&CLIENT[..], b"done\0"].concat();
        let mut script = Script::new(&heard);
        assert_eq!(listen(&mut script).unwrap(), client());
        assert!(script.said.is_empty(), "the server answers later");
        answer(&mut script, &server()).unwrap();
        assert_eq!(script.said, SERVER);
    }

    /// What the end that hears a line makes of it.
    fn heard(line: &[u8]) -> Error {
        listen(&mut Script::new(line)).unwrap_err()
    }

    #[test]
    fn what_the_program_would_not_say_is_named() {
        for (at, byte, wrong) in [
            (0, b'x', "LID"),
            (4, b'0', "mark"),
            (5, b'-', "QPN"),
            (12, b'A', "PSN"),
            (18, 0, "mark"),
            (20, b':', "GID"),
            (51, b'\n', "mark"),
        ] {
            let mut line = *CLIENT;
            line[at] = byte;
            match heard(&line) {
                Error::Malformed { wrong: said, .. } => assert!(said.contains(wrong), "{said}"),
                other => panic!("byte {at}: {other}"),
            }
        }
        let nowhere = Destination {
            gid: [0; 16],
            ..client()
        };
        assert_matches!(heard(&nowhere.to_line()) => Error::NoGid);
        for bytes in [0, 1, 51] {
            let error = heard(&CLIENT[..bytes]);
            assert_matches!(error => Error::Closed { done, bytes: 52, .. } if done == bytes);
        }
        let answered = |word: &[u8]| answer(&mut Script::new(word), &server()).unwrap_err();
        assert_matches!(answered(b"don") => Error::Closed { done: 3, .. });
        assert_matches!(answered(b"gone\0") => Error::Malformed { .. });
    }

    proptest! {
        /// A line means one queue pair, and a queue pair has one line.
        #[test]
        fn lines_and_queue_pairs_are_one_to_one(
            lid: u16,
            qpn in 0_u32..1 << 24,
            psn in 0_u32..1 << 24,
            gid: [u8; 16],
            at in 0_usize..52,
            byte: u8,
        ) {
            let told = Destination { lid, qpn, psn, gid };
            let mut line = told.to_line();
            prop_assert_eq!(Destination::of_line(&line).unwrap(), told);
            line[at] = byte;
            if let Ok(other) = Destination::of_line(&line) {
                prop_assert_eq!(other.to_line(), line);
            }
        }
    }
}
