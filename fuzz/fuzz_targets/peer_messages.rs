//! Any bytes that another process sends to a `Peer` end in an error by name; what is heard before is heard again as it
//! was, when it is sent once more.
#![no_main]

use libfuzzer_sys::fuzz_target;
use warpbell_host_init::fuzzing::hear;

/// The four messages that a conversation begins with: their kinds and bodies.
const MESSAGES: [(u16, &str); 4] = [
    (1, r#"{"gid":[254,128,0,0,0,0,0,0,2,0,0,255,254,0,0,1]}"#),
    (
        2,
        r#"{"gid":[254,128,0,0,0,0,0,0,2,0,0,255,254,0,0,1],"qpn":65536,"psn":7,"card":null}"#,
    ),
    (3, r#"{"address":140737488355328,"len":4096,"rkey":4096}"#),
    (4, r#""ready""#),
];

fn message(kind: u16, body: &[u8]) -> Vec<u8> {
    let length = body.len() as u32;
    let header = [&kind.to_le_bytes()[..], &length.to_le_bytes()].concat();
    [b"WBEX\x01\0", &header[..], body].concat()
}

fuzz_target!(|input: (u8, &[u8])| {
    let (way, bytes) = input;
    let whole: Vec<u8> = MESSAGES
        .iter()
        .flat_map(|(kind, body)| message(*kind, body.as_bytes()))
        .collect();
    match way % 6 {
        // Good ones, some of whose bytes are others.
        4 => {
            let mut said = whole;
            for change in bytes.chunks_exact(3) {
                let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % said.len();
                said[at] = change[2];
            }
            let _ = hear(&said);
        }
        5 => {
            hear(&whole).expect("good messages");
            assert!(hear(bytes).is_err(), "no four messages are so short");
        }
        // A body of the input's in the place of one of them.
        which => {
            let mut said = Vec::new();
            for (index, (kind, body)) in MESSAGES.iter().enumerate() {
                let body = match index == usize::from(which) {
                    true => bytes,
                    false => body.as_bytes(),
                };
                said.extend(message(*kind, body));
            }
            let _ = hear(&said);
        }
    }
});
