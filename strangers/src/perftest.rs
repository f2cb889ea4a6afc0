//! What a client of perftest's `ib_write_bw` and its server say to each other. The client speaks first, each time.
//!
//! | | bytes | both say |
//! |---|---|---|
//! | 1 | 16 | the version of these words, as text and zero bytes: "6.06" |
//! | 2 | 4 | bytes after which small messages begin again at the buffer's start, big-endian: 4096 |
//! | 3 | 4 | bytes of a cache line, big-endian: 64 |
//! | 4 | 2 | the port's MTU as the digit of `enum ibv_mtu`, and a zero byte |
//! | 5 | 108 | the queue pair, see [`Destination`]; both connect theirs now |
//! | 6, 7 | 108 | the same once more, twice; now the client writes |
//! | 8 | 108 | the same once more; all is written |
//! | 9 to 13 | 8 | bytes of a message, messages, and three numbers of the kind `double`: the fastest and the average rate in MiB a second, and 10⁶ messages a second; all big-endian |
//! | 14 | 108 | the queue pair, once more |
//! | 15 | 5 | "done" and a zero byte |
//!
//! The server prints what the client reports; its own report means nothing. It does not tell how long its messages
//! are: with smaller ones than the client's it refuses the writes. A server with several queue pairs (`-q`) repeats
//! steps 5 to 8 and 14 for each.

use crate::field::Fields;
use crate::{Conversation, Error};

/// The TCP port where none is named.
pub const PORT: u16 = 18515;
/// Bytes of a message where none is named (`-s`).
pub const MESSAGE: u64 = 65536;
/// Messages where none are named (`-n`).
pub const MESSAGES: u64 = 5000;

/// The version of the words that are known, and the releases that say them.
const VERSION: &str = "6.06";
const RELEASE: &str = "4.5 (Debian 12)";
const VERSION_BYTES: usize = 16;
const CYCLE_BYTES: u32 = 4096;
const CACHE_LINE_BYTES: u32 = 64;
const DONE: &[u8; 5] = b"done\0";

const QUEUE_PAIR: &str = "the queue pair's 108 bytes";
const QUEUE_PAIR_BYTES: usize = 108;

/// One end's queue pair and its memory.
///
/// As text, `LID:reads:QPN:PSN:rkey:address:GID:SRQN:` and a zero byte: hexadecimal numbers of 4, 4, 6, 6, 8, 16, 16
/// times 2, each with a colon, and 8 digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Local identifier of the port, 0 on Ethernet.
    pub lid: u16,
    /// Reads and atomics that it has under way at most.
    pub reads: u16,
    /// Number of the queue pair, 24 bits.
    pub qpn: u32,
    /// Number of its first packet, 24 bits.
    pub psn: u32,
    /// The memory's remote key.
    pub rkey: u32,
    /// The memory's address.
    pub address: u64,
    /// The port's GID.
    pub gid: [u8; 16],
    /// Number of the shared receive queue, 0 without one.
    pub srqn: u32,
}

impl Destination {
    /// The message that tells of it.
    ///
    /// # Panics
    /// If a number has more than 24 bits that should not.
    pub fn to_message(&self) -> [u8; QUEUE_PAIR_BYTES] {
        let Self {
            lid,
            reads,
            qpn,
            psn,
            rkey,
            address,
            gid,
            srqn,
        } = self;
        let gid: String = gid.iter().map(|byte| format!("{byte:02x}:")).collect();
        let message = format!(
            "{lid:04x}:{reads:04x}:{qpn:06x}:{psn:06x}:{rkey:08x}:{address:016x}:{gid}{srqn:08x}:\0"
        );
        let message = message.into_bytes().try_into();
        message.expect("numbers of 24 bits have six digits")
    }

    /// What a message tells.
    ///
    /// # Errors
    /// [`Error::Malformed`] for one that the program would not write.
    pub fn of_message(message: &[u8; QUEUE_PAIR_BYTES]) -> Result<Self, Error> {
        let mut fields = Fields::new(QUEUE_PAIR, message);
        let mut number = |digits, wrong| {
            let number = fields.number(digits, wrong)?;
            fields.mark(b':')?;
            Ok(number)
        };
        let told = Self {
            lid: number(4, "the LID is no number of 4 digits")? as u16,
            reads: number(4, "the reads under way are no number of 4 digits")? as u16,
            qpn: number(6, "the QPN is no number of 6 digits")? as u32,
            psn: number(6, "the PSN is no number of 6 digits")? as u32,
            rkey: number(8, "the remote key is no number of 8 digits")? as u32,
            address: number(16, "the address is no number of 16 digits")?,
            gid: {
                let mut gid = [0; 16];
                for byte in &mut gid {
                    *byte = number(2, "a byte of the GID is no number of 2 digits")? as u8;
                }
                gid
            },
            srqn: number(8, "the SRQN is no number of 8 digits")? as u32,
        };
        fields.mark(0)?;
        fields.end()?;
        Ok(told)
    }
}

/// Bytes of the largest packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(u32);

impl Mtu {
    /// The largest that there is.
    pub const LARGEST: Self = Self(4096);

    /// One of 256, 512, 1024, 2048 and 4096 bytes; none for others.
    pub fn new(bytes: u32) -> Option<Self> {
        let fits = bytes.is_power_of_two() && (256..=4096).contains(&bytes);
        fits.then_some(Self(bytes))
    }

    /// In bytes.
    pub fn bytes(self) -> u32 {
        self.0
    }

    fn to_message(self) -> [u8; 2] {
        [b'0' + (self.0 / 128).ilog2() as u8, 0]
    }

    fn of_message(message: &[u8; 2]) -> Result<Self, Error> {
        match message {
            [digit @ b'1'..=b'5', 0] => Ok(Self(128 << (digit - b'0'))),
            _ => Err(Error::malformed(
                "the MTU",
                message,
                "it is no digit from 1 to 5",
            )),
        }
    }
}

/// What the client has measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Bytes of a message.
    pub bytes: u64,
    /// Messages.
    pub messages: u64,
    /// MiB a second, in the fastest part; 0 if that was not measured.
    pub peak_mib_per_s: f64,
    /// MiB a second, over all.
    pub average_mib_per_s: f64,
    /// 10⁶ messages a second.
    pub million_per_s: f64,
}

impl Report {
    fn to_words(self) -> [u64; 5] {
        [
            self.bytes,
            self.messages,
            self.peak_mib_per_s.to_bits(),
            self.average_mib_per_s.to_bits(),
            self.million_per_s.to_bits(),
        ]
    }
}

/// A client whose server has told of its queue pair.
#[derive(Debug)]
pub struct Client<C> {
    server: C,
    ours: Destination,
    theirs: Destination,
    mtu: Mtu,
}

impl<C: Conversation> Client<C> {
    /// Steps 1 to 5, after which our queue pair has to be connected to [`theirs`](Self::theirs). `mtu` is our port's.
    ///
    /// # Errors
    /// The server does not speak like one, or is of another version.
    pub fn call(mut server: C, ours: Destination, mtu: Mtu) -> Result<Self, Error> {
        let mut version = [0; VERSION_BYTES];
        version[..VERSION.len()].copy_from_slice(VERSION.as_bytes());
        check_version(&swap(&mut server, "the version", &version)?)?;
        for (what, own) in [
            ("the buffer's 4 bytes", CYCLE_BYTES),
            ("the cache line's 4 bytes", CACHE_LINE_BYTES),
        ] {
            let theirs = swap(&mut server, what, &own.to_be_bytes())?;
            if !u32::from_be_bytes(theirs).is_power_of_two() {
                return Err(Error::malformed(what, &theirs, "it is no power of two"));
            }
        }
        let their_mtu = swap(&mut server, "the MTU", &mtu.to_message())?;
        let mtu = mtu.min(Mtu::of_message(&their_mtu)?);
        let theirs = swap(&mut server, QUEUE_PAIR, &ours.to_message())?;
        Ok(Self {
            theirs: Destination::of_message(&theirs)?,
            server,
            ours,
            mtu,
        })
    }

    /// The server's queue pair and its memory.
    pub fn theirs(&self) -> &Destination {
        &self.theirs
    }

    /// The largest packets between both: the smaller one of both ports' MTUs.
    pub fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// Steps 6 and 7, after which the memory may be written.
    ///
    /// # Errors
    /// The server does not come there, or tells of another queue pair.
    pub fn begin(&mut self) -> Result<(), Error> {
        self.meet()?;
        self.meet()
    }

    /// Steps 8 to 15, when all is written.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    pub fn end(mut self, report: Report) -> Result<(), Error> {
        self.meet()?;
        for word in report.to_words() {
            swap(&mut self.server, "a report's 8 bytes", &word.to_be_bytes())?;
        }
        self.meet()?;
        let done = swap(&mut self.server, "\"done\"", DONE)?;
        match &done == DONE {
            true => Ok(()),
            false => Err(Error::malformed("\"done\"", &done, "it is another word")),
        }
    }

    /// Both are at the same place, and tell of their queue pairs once more.
    fn meet(&mut self) -> Result<(), Error> {
        let now = swap(&mut self.server, QUEUE_PAIR, &self.ours.to_message())?;
        let (now, before) = (Destination::of_message(&now)?, self.theirs);
        if now.qpn != before.qpn {
            return Err(Error::SecondQueuePair {
                first: before.qpn,
                second: now.qpn,
            });
        }
        match now == before {
            true => Ok(()),
            false => Err(Error::Changed),
        }
    }
}

/// Says a message, and hears as long a one.
fn swap<const N: usize>(
    server: &mut impl Conversation,
    what: &'static str,
    ours: &[u8; N],
) -> Result<[u8; N], Error> {
    server.say(what, ours)?;
    let mut theirs = [0; N];
    server.hear(what, &mut theirs)?;
    Ok(theirs)
}

fn check_version(theirs: &[u8; VERSION_BYTES]) -> Result<(), Error> {
    let end = theirs.iter().position(|byte| *byte == 0);
    let (text, rest) = theirs.split_at(end.unwrap_or(VERSION_BYTES));
    let is_text = !text.is_empty()
        && text
            .iter()
            .all(|byte| byte.is_ascii_digit() || *byte == b'.');
    if !is_text || rest.is_empty() {
        return Err(Error::malformed(
            "the version",
            theirs,
            "it is no number with a point",
        ));
    }
    // Its zero byte ends it, whatever stands behind.
    match text == VERSION.as_bytes() {
        true => Ok(()),
        false => Err(Error::Version {
            found: text.escape_ascii().to_string(),
            known: VERSION,
            release: RELEASE,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Script;
    use proptest::prelude::*;

    /// Two ends' queue pairs, as they were read off a connection between two of perftest 4.5.
    const CLIENT: &[u8; 108] = b"0000:0001:010000:af4ece:00001000:00007fe67ad5b000:fe:80:00:00:00:00:00:00:02:00:fb:ff:fe:f1:2e:5f:00000000:\0";
    const SERVER: &[u8; 108] = b"0000:0001:010000:7f0f6e:00001000:00007fe3e7ca8000:fe:80:00:00:00:00:00:00:02:00:64:ff:fe:ee:9e:91:00000000:\0";
    /// Steps 1 to 4.
    const GREETING: &[u8] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0@5\0";
    /// What the client reported, and what the server did.
    const REPORT: [[u8; 8]; 5] = [
        *b"\0\0\0\0\0\x01\0\0",
        *b"\0\0\0\0\0\0\0d",
        *b"@\x87\x9fU\x19\xe6,%",
        *b"@\x87\x9fR\x818\xe0\xbf",
        *b"?\x88\xc5\x13\xb7\x07}\x94",
    ];
    const THEIR_REPORT: [[u8; 8]; 5] = [
        *b"\0\0\0\0\xf8\xfc\0\0",
        *b"\0\0\0\0\0\0\x01\0",
        *b"\0\0\0\0\xfd\xdf\xff\xff",
        [0; 8],
        [0; 8],
    ];

    fn client() -> Destination {
        Destination {
            lid: 0,
            reads: 1,
            qpn: 0x01_0000,
            psn: 0xaf_4ece,
            rkey: 0x1000,
            address: 0x7fe6_7ad5_b000,
            gid: 0xfe80_0000_0000_0000_0200_fbff_fef1_2e5f_u128.to_be_bytes(),
            srqn: 0,
        }
    }

    /// All that an end says.
    fn words(queue_pair: &[u8; 108], report: &[[u8; 8]; 5]) -> Vec<u8> {
        let (pair, report) = (&queue_pair[..], report.as_flattened());
        [GREETING, pair, pair, pair, pair, report, pair, b"done\0"].concat()
    }

    fn report() -> Report {
        let [bytes, messages, peak, average, rate] = REPORT.map(u64::from_be_bytes);
        Report {
            bytes,
            messages,
            peak_mib_per_s: f64::from_bits(peak),
            average_mib_per_s: f64::from_bits(average),
            million_per_s: f64::from_bits(rate),
        }
    }

    /// The whole conversation; what was said.
    fn speak(heard: &[u8]) -> Result<Vec<u8>, Error> {
        let mut script = Script::new(heard);
        let mut speaker = Client::call(&mut script, client(), Mtu::LARGEST)?;
        speaker.begin()?;
        speaker.end(report())?;
        assert!(script.heard.is_empty());
        Ok(script.said)
    }

    #[test]
    fn a_client_says_what_the_program_says() {
        let said = speak(&words(SERVER, &THEIR_REPORT)).unwrap();
        assert_eq!(said, words(CLIENT, &REPORT));
        // As the program printed it.
        assert_eq!(format!("{:.2}", report().average_mib_per_s), "755.92");

        let heard = [GREETING, &SERVER[..]].concat();
        let theirs = Destination {
            psn: 0x7f_0f6e,
            address: 0x7fe3_e7ca_8000,
            gid: 0xfe80_0000_0000_0000_0200_64ff_feee_9e91_u128.to_be_bytes(),
            ..client()
        };
        let speaker = Client::call(Script::new(&heard), client(), Mtu::LARGEST).unwrap();
        assert_eq!(*speaker.theirs(), theirs);
    }

    /// The server's words with some of them replaced.
    fn with(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut heard = words(SERVER, &THEIR_REPORT);
        heard[at..at + bytes.len()].copy_from_slice(bytes);
        heard
    }

    #[test]
    fn what_the_program_would_not_say_is_named() {
        for (at, bytes, wanted) in [
            (0, &b"SSH-2.0-OpenSSH\r"[..], "number with a point"),
            (0, b"6.06666666666666", "number with a point"),
            (0, b"SSH-2.0\0", "number with a point"),
            (0, b"\0", "number with a point"),
            (16, b"\0\0\0\0", "power of two"),
            (20, b"\0\0\0A", "power of two"),
            (24, b"6\0", "digit from 1 to 5"),
            (24, b"50", "digit from 1 to 5"),
            (26, b"x", "LID"),
            (26 + 5, b"-001", "reads"),
            (26 + 10, b"G", "QPN"),
            (26 + 17, b" ", "PSN"),
            (26 + 24, b"0x", "key"),
            (26 + 33, b"A", "address"),
            (26 + 50, b"::", "GID"),
            (26 + 98, b":", "SRQN"),
            (26 + 52, b".", "mark"),
            (26 + 107, b"0", "mark"),
            (26 + 5 * 108 + 40, b"gone\0", "another word"),
        ] {
            match speak(&with(at, bytes)) {
                Err(Error::Malformed { wrong, .. }) => assert!(wrong.contains(wanted), "{wrong}"),
                other => panic!("{wanted}: {other:?}"),
            }
        }
    }

    #[test]
    fn both_take_the_smaller_mtu() {
        for (ours, theirs, smaller) in [(256, b'5', 256), (4096, b'3', 1024), (512, b'2', 512)] {
            let mut heard = [GREETING, &SERVER[..]].concat();
            heard[24] = theirs;
            let mut script = Script::new(&heard);
            let speaker = Client::call(&mut script, client(), Mtu::new(ours).unwrap());
            assert_eq!(speaker.unwrap().mtu().bytes(), smaller);
            assert_eq!(script.said[24], b'0' + (ours / 128).ilog2() as u8);
        }
        assert!(
            [0, 128, 1500, 8192]
                .into_iter()
                .all(|bytes| Mtu::new(bytes).is_none())
        );
    }

    #[test]
    fn another_version_is_named() {
        for (bytes, text) in [
            (&b"5.92\0"[..], "5.92"),
            (b"6.065\0", "6.065"),
            (b"6.0\0", "6.0"),
        ] {
            match speak(&with(0, bytes)) {
                Err(Error::Version { found, .. }) => assert_eq!(found, text),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn another_queue_pair_is_named() {
        // At each of the places where the first one is to be told once more.
        for place in [26 + 108, 26 + 2 * 108, 26 + 3 * 108, 26 + 4 * 108 + 40] {
            match speak(&with(place + 10, b"010001")) {
                Err(Error::SecondQueuePair { first, second }) => {
                    assert_eq!((first, second), (0x01_0000, 0x01_0001));
                }
                other => panic!("{other:?}"),
            }
            let changed = speak(&with(place + 24, b"00001001"));
            assert_matches!(changed => Err(Error::Changed));
        }
    }

    /// A server that goes at any moment.
    #[test]
    fn every_end_too_early_is_named() {
        let all = words(SERVER, &THEIR_REPORT);
        for bytes in 0..all.len() {
            let error = speak(&all[..bytes]).unwrap_err();
            assert!(matches!(error, Error::Closed { .. }), "{bytes}: {error}");
        }
    }

    proptest! {
        /// A message means one queue pair, and a queue pair has one message.
        #[test]
        fn messages_and_queue_pairs_are_one_to_one(
            ports: (u16, u16),
            qpn in 0_u32..1 << 24,
            psn in 0_u32..1 << 24,
            keys: (u32, u32),
            address: u64,
            gid: [u8; 16],
            at in 0_usize..108,
            byte: u8,
        ) {
            let ((lid, reads), (rkey, srqn)) = (ports, keys);
            let told = Destination { lid, reads, qpn, psn, rkey, address, gid, srqn };
            let mut message = told.to_message();
            prop_assert_eq!(Destination::of_message(&message).unwrap(), told);
            message[at] = byte;
            if let Ok(other) = Destination::of_message(&message) {
                prop_assert_eq!(other.to_message(), message);
            }
        }

        #[test]
        fn any_words_end_in_a_value(heard in proptest::collection::vec(any::<u8>(), 0..600), polite: bool) {
            let mut all = if polite { GREETING.to_vec() } else { Vec::new() };
            all.extend(heard);
            prop_assert!(speak(&all).is_err());
        }
    }
}
