//! Whatever the other end of a conversation says in the place of `ibv_rc_pingpong` or `ib_write_bw` ends in a value: an
//! error, or what the program would have said to the letter.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell_strangers::perftest::{self, Client, Mtu, Report};
use warpbell_strangers::{Script, pingpong};

const LINE: &[u8] = b"0000:010000:a67dbd:fe800000000000000200dbfffecf58f5\0";
const GREETING: &[u8] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0@5\0";
const MESSAGE: &[u8] = b"0000:0001:010000:7f0f6e:00001000:00007fe3e7ca8000:fe:80:00:00:00:00:00:00:02:00:64:ff:fe:ee:9e:91:00000000:\0";
const DONE: &[u8] = b"done\0";

/// Good words, some of whose bytes are others, and perhaps not all of them; or any words.
fn words(good: &[&[u8]], any: bool, bytes: &[u8]) -> Vec<u8> {
    if any {
        return bytes.to_vec();
    }
    let mut words = good.concat();
    for change in bytes.chunks_exact(3) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]]));
        match words.get_mut(at) {
            Some(byte) => *byte = change[2],
            None => words.truncate(at % (words.len() + 1)),
        }
    }
    words
}

fn ping_pong(any: bool, bytes: &[u8]) {
    let ours = pingpong::Destination {
        lid: 0,
        qpn: 0xff_ffff,
        psn: 0,
        gid: [0xab; 16],
    };
    let heard = words(&[LINE, DONE], any, bytes);
    let mut server = Script::new(&heard);
    if let Ok(theirs) = pingpong::call(&mut server, &ours) {
        assert_eq!(theirs.to_line(), heard[..52]);
        assert_ne!(theirs.gid, [0; 16]);
        assert_eq!(server.said, [&ours.to_line()[..], DONE].concat());
    }
    let mut client = Script::new(&heard);
    if let Ok(theirs) = pingpong::listen(&mut client) {
        assert_eq!(theirs.to_line(), heard[..52]);
        assert!(client.said.is_empty());
        let answered = pingpong::answer(&mut client, &ours);
        assert_eq!(answered.is_ok(), heard[52..].starts_with(DONE));
        assert_eq!(client.said, ours.to_line());
    }
}

fn write(any: bool, bytes: &[u8]) {
    let ours = perftest::Destination {
        lid: 0,
        reads: 1,
        qpn: 1,
        psn: 0xff_ffff,
        rkey: 0,
        address: u64::MAX,
        gid: [0xab; 16],
        srqn: 0,
    };
    let report = Report {
        bytes: 8,
        messages: 1,
        peak_mib_per_s: 0.0,
        average_mib_per_s: 1.5,
        million_per_s: 1e-6,
    };
    let good = [
        GREETING, MESSAGE, MESSAGE, MESSAGE, MESSAGE, &[7; 40], MESSAGE, DONE,
    ];
    let heard = words(&good, any, bytes);
    let mut server = Script::new(&heard);
    let Ok(mut client) = Client::call(&mut server, ours, Mtu::LARGEST) else {
        return;
    };
    let theirs = client.theirs().to_message();
    assert_eq!(theirs, heard[26..134]);
    assert!((256..=4096).contains(&client.mtu().bytes()));
    if client.begin().is_err() || client.end(report).is_err() {
        return;
    }
    for at in [134, 242, 350, 498] {
        assert_eq!(theirs, heard[at..at + 108]);
    }
    assert_eq!(heard[606..611], *DONE);
    assert_eq!(server.said.len(), 611);
}

fuzz_target!(|input: (u8, &[u8])| {
    let (way, bytes) = input;
    let any = way & 1 == 1;
    match way & 2 {
        0 => ping_pong(any, bytes),
        _ => write(any, bytes),
    }
});
