//! What a plan must come to: each side's memory, byte for byte. Written without the engine, and without its types.

use super::plan::{Operation, Piece, Plan, Verb, WORDS, initial};

/// The values that atomics found, by side, queue pair and operation; 0 for all other operations.
pub type Found = [Vec<Vec<u64>>; 2];

/// Both sides' memory after the plan, whose atomics found these values.
///
/// # Panics
/// If the atomics cannot have run once each, in any order that keeps each queue pair's own.
pub fn outcome(plan: &Plan, found: &Found) -> [Vec<u8>; 2] {
    let mut memories = [0, 1].map(|side| plan.memory(side));
    let layouts = [0, 1].map(|side| plan.layout(side));
    for (number, pair) in plan.pairs.iter().enumerate() {
        for (side, way) in pair.iter().enumerate() {
            let peer = 1 - side;
            let own = layouts[side].own[number].offset;
            let window = layouts[peer].window[number].offset;
            let inbox = layouts[peer].inbox[number].offset;
            let mut receives = way.receives.iter();
            for (position, operation) in way.operations[..way.executed()].iter().enumerate() {
                let receive = match operation.verb.takes_receive() {
                    true => receives.next().expect("a receive for each message"),
                    false => &Vec::new(),
                };
                match operation.verb {
                    Verb::Nop => {}
                    Verb::Write | Verb::WriteImmediate => {
                        let bytes = gather(&memories[side], own, &operation.pieces);
                        memories[peer][window + operation.remote..][..bytes.len()]
                            .copy_from_slice(&bytes);
                    }
                    Verb::Send | Verb::SendImmediate => {
                        let bytes = gather(&memories[side], own, &operation.pieces);
                        scatter(&mut memories[peer], inbox, receive, &bytes);
                    }
                    Verb::Read => {
                        let from = window + operation.remote;
                        let bytes = memories[peer][from..from + operation.length()].to_vec();
                        scatter(&mut memories[side], own, &operation.pieces, &bytes);
                    }
                    Verb::FetchAdd { .. } | Verb::CompareSwap { .. } => {
                        let value = found[side][number][position].to_ne_bytes();
                        scatter(&mut memories[side], own, &operation.pieces, &value);
                    }
                }
            }
        }
    }
    for side in [0, 1] {
        for word in 0..WORDS {
            let value = replay(plan, found, 1 - side, word);
            let at = layouts[side].words.offset + 8 * word;
            memories[side][at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
    }
    memories
}

fn gather(memory: &[u8], base: usize, pieces: &[Piece]) -> Vec<u8> {
    let parts = pieces.iter();
    parts
        .flat_map(|piece| &memory[base + piece.offset..][..piece.length])
        .copied()
        .collect()
}

fn scatter(memory: &mut [u8], base: usize, pieces: &[Piece], mut bytes: &[u8]) {
    for piece in pieces {
        let (now, later) = bytes.split_at(piece.length.min(bytes.len()));
        memory[base + piece.offset..][..now.len()].copy_from_slice(now);
        bytes = later;
    }
    assert!(bytes.is_empty(), "the plan has a receive that is too short");
}

/// An atomic on a word, and what it found.
struct Atomic {
    pair: usize,
    position: usize,
    verb: Verb,
    found: u64,
}

/// Finds the order in which a side's atomics on the peer's word ran; gives the word's last value.
fn replay(plan: &Plan, found: &Found, side: usize, word: usize) -> u64 {
    let mut left = Vec::new();
    for (pair, ways) in plan.pairs.iter().enumerate() {
        let way = &ways[side];
        let runs = |one: &Operation| one.verb.is_atomic() && one.remote == word;
        for (position, operation) in way.operations[..way.executed()].iter().enumerate() {
            if runs(operation) {
                left.push(Atomic {
                    pair,
                    position,
                    verb: operation.verb,
                    found: found[side][pair][position],
                });
            }
        }
    }
    let mut value = initial(word);
    let mut newest = vec![None; plan.pairs.len()];
    while !left.is_empty() {
        // Those that found the value and left it alone ran before the one that changed it.
        let changes = |one: &Atomic| after(one.verb, value) != value;
        let next = left
            .iter()
            .position(|one| one.found == value && !changes(one));
        let next = next.or_else(|| left.iter().position(|one| one.found == value));
        let Some(next) = next else {
            let unexplained: Vec<_> = left.iter().map(|one| (one.pair, one.found)).collect();
            panic!("word {word} held {value:#x}, and no atomic found that: {unexplained:x?}");
        };
        let atomic = left.remove(next);
        assert!(
            newest[atomic.pair] < Some(atomic.position),
            "atomics of queue pair {} ran out of order",
            atomic.pair
        );
        newest[atomic.pair] = Some(atomic.position);
        value = after(atomic.verb, value);
    }
    value
}

fn after(verb: Verb, value: u64) -> u64 {
    match verb {
        Verb::FetchAdd { add } => value.wrapping_add(add),
        Verb::CompareSwap { compare, swap } if compare == value => swap,
        _ => value,
    }
}
