//! Mixture of experts: two layers of a network, whose experts lie at different ranks.
//!
//! A gate chooses two experts for each token. `dispatch` sends the token's row to both, wherever they are; `combine` sends
//! back what they make of it, and adds it up with the gate's weights. No host takes part between the layers. The ranks are
//! the processes that a launcher has started; without one, four in this process.
//!
//! ```console
//! $ cargo example moe                                   # on a CPU, with a NIC of software
//! $ cargo example moe --features gpu -- --on gpu        # on an NVIDIA GPU
//! $ cargo xtask launch -n 4 -- moe                      # between processes
//! ```

use core::sync::atomic::Ordering;

use warpbell::{Deadline, Word64, kernel, thread};
use warpbell_patterns::experts::{Choice, Error, Experts, ExpertsHandle};
use warpbell_patterns::number::Bf16;
#[cfg(not(target_arch = "nvptx64"))]
use {
    warpbell_host_init::{
        Grid, Launch, Node, QueuePairConfig, Shared, Timers, World, built, entry,
    },
    warpbell_patterns::experts::host::{ExpertsConfig, ExpertsMember, experts_of},
};

const LAYERS: u32 = 2;
/// Threads of a rank. Each has a token, and of each row a word: four values.
const THREADS: u32 = 64;

#[repr(C)]
#[derive(Clone, Copy)]
struct Moe<'a> {
    experts: ExpertsHandle<'a>,
    /// An error, how many ranks did not come in time, or 0.
    problem: &'a Word64,
}

// ANCHOR: kernel
#[kernel]
fn moe(p: Moe<'_>) {
    let problem = match layers(p.experts) {
        Ok(masked) => masked.into(),
        Err(error) => error.to_bits(),
    };
    if thread::first() {
        p.problem.store(problem, Ordering::Relaxed);
    }
}

#[inline(always)]
fn layers(handle: ExpertsHandle<'_>) -> Result<u32, Error> {
    let limit = Deadline::after_ms(60_000);
    let mut experts = handle.open()?;
    let mut masked = 0;
    for layer in 0..LAYERS {
        let token = thread::index();
        let row = |word| experts.token(token).and_then(|row| row.load(word));
        let [first, second] = gate(layer, experts.shape().experts(), row);
        experts.choose(token, 0, Choice::new(first.0, first.1));
        experts.choose(token, 1, Choice::new(second.0, second.1));

        experts.dispatch(THREADS, limit)?;
        work(&experts, layer);
        masked = experts.combine(limit)?;

        // The sums are the next layer's tokens.
        if let (Some(sum), Some(row)) = (experts.result(token), experts.token(token)) {
            for word in 0..row.len() {
                row.store(word, sum.load(word).unwrap_or(0));
            }
        }
    }
    Ok(masked)
}

/// What this rank's experts make of the tokens of all ranks.
#[inline(always)]
fn work(experts: &Experts<'_>, layer: u32) {
    let (shape, word) = (experts.shape(), thread::index().into());
    for local in 0..shape.local {
        let expert = experts.rank() * shape.local + local;
        for source in 0..shape.ranks {
            let received = experts.received(local, source);
            for slot in 0..received.count() {
                if let (Some(row), Some(output)) = (received.row(slot), received.output(slot)) {
                    let values = row.load(word).unwrap_or(0);
                    output.store(word, expert_of(layer, expert, values));
                }
            }
        }
    }
}
// ANCHOR_END: kernel

/// Four values of an expert: a scale and a bias, rounded to bf16.
fn expert_of(layer: u32, expert: u32, values: u64) -> u64 {
    let [a, b, c, d] = Bf16::unpack(values);
    let (scale, bias) = (0.5 + expert as f32 / 16.0, layer as f32 - 0.5);
    Bf16::pack([
        a * scale + bias,
        b * scale + bias,
        c * scale + bias,
        d * scale + bias,
    ])
}

/// The two experts with the highest scores, and their weights.
#[inline(always)]
fn gate(layer: u32, experts: u32, row: impl Fn(u64) -> Option<u64>) -> [(u32, f32); 2] {
    let (mut first, mut second) = ((0, f32::MIN), (0, f32::MIN));
    for expert in 0..experts {
        let mut score = 0.0;
        for word in 0..u64::from(THREADS) {
            let [a, b, c, d] = Bf16::unpack(row(word).unwrap_or(0));
            let [e, f, g, h] = seeded(u64::from(layer * experts + expert) << 32 | word);
            score += (a * e + b * f) + (c * g + d * h);
        }
        if score > first.1 {
            (first, second) = ((expert, score), first);
        } else if score > second.1 {
            second = (expert, score);
        }
    }
    // Between a half and 1: more, the further the scores are apart.
    let apart = first.1 - second.1;
    let weight = 0.5 + 0.5 * apart / (1.0 + apart);
    [(first.0, weight), (second.0, 1.0 - weight)]
}

/// Four values between -1 and 1.
fn seeded(number: u64) -> [f32; 4] {
    let mut mixed = (number ^ number >> 30).wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    let value = |shift: u32| (mixed >> shift) as u16 as f32 / 32_768.0 - 1.0;
    [value(0), value(16), value(32), value(48)]
}

/// A word of a token as it comes into the network.
#[cfg(not(target_arch = "nvptx64"))]
fn input(rank: u32, token: u32, word: u32) -> u64 {
    Bf16::pack(seeded(
        1 << 63 | u64::from(rank) << 40 | u64::from(token) << 20 | u64::from(word),
    ))
}

#[cfg(not(target_arch = "nvptx64"))]
fn config(ranks: u32) -> ExpertsConfig {
    // A rank counts as gone after 8 waits of a second, and not of 67 ms: on a busy machine it may be late.
    let timers = Timers {
        acknowledge_timeout: 18,
        ..Timers::default()
    };
    let queue_pair = QueuePairConfig {
        timers,
        ..ExpertsConfig::default().queue_pair
    };
    ExpertsConfig {
        queue_pair,
        experts: 2 * ranks,
        hidden: 4 * THREADS,
        top_k: 2,
        tokens: THREADS,
        capacity: THREADS,
        blocks: 2,
        ..ExpertsConfig::default()
    }
}

#[cfg(not(target_arch = "nvptx64"))]
// ANCHOR: host
fn main() -> Result<(), warpbell_patterns::Error> {
    let node = Node::from_args(built!())?;
    let mut world = World::from_env(&node, std::time::Duration::from_secs(60))?;
    let members = match world.size() {
        1 => experts_of(&node.domains(4)?, &config(4))?,
        ranks => {
            let all: Vec<u32> = world.ranks().collect();
            let member = ExpertsMember::join(&mut world, &all, &config(ranks))?;
            member.into_iter().collect()
        }
    };
    if world.rank() == 0 {
        println!("{world}");
    }
    run(&node, &members)?;
    // Nobody ends while another one still writes to it.
    world.barrier()?;
    if world.rank() == 0 {
        println!("Test OK");
    }
    Ok(())
}

/// Runs the network at all ranks of this process, and compares every value.
#[cfg(not(target_arch = "nvptx64"))]
fn run(node: &Node, members: &[ExpertsMember]) -> Result<(), warpbell_patterns::Error> {
    let problems: Vec<Shared<Word64>> = (members.iter())
        .map(|_| node.shared(Word64::new(0)))
        .collect::<Result<_, _>>()?;
    let (mut launches, mut queue_pairs) = (Vec::new(), Vec::new());
    for (member, problem) in members.iter().zip(&problems) {
        for token in 0..THREADS {
            let row = (0..THREADS).map(|word| input(member.team().rank(), token, word));
            let row: Vec<u8> = row.flat_map(u64::to_le_bytes).collect();
            member.write_token(token, &row)?;
        }
        let parameters = Moe {
            experts: member.handle(),
            problem,
        };
        launches.push(Launch::new(
            entry!(moe),
            Grid::new(2, THREADS / 2),
            parameters,
        ));
        queue_pairs.extend(member.team().queue_pairs());
    }
    node.run(&launches, &queue_pairs)?;
    for (member, problem) in members.iter().zip(&problems) {
        check(member, problem.load(Ordering::Relaxed))?;
    }
    Ok(())
}
// ANCHOR_END: host

/// Compares what a rank has with what the network makes of its tokens without any exchange.
#[cfg(not(target_arch = "nvptx64"))]
fn check(member: &ExpertsMember, problem: u64) -> Result<(), warpbell_patterns::Error> {
    let (rank, experts) = (member.team().rank(), member.layout().shape().experts());
    let error = Error::from_bits(problem);
    assert_eq!(problem, 0, "rank {rank}: {error:?}");
    for token in 0..THREADS {
        let mut row: Vec<u64> = (0..THREADS).map(|word| input(rank, token, word)).collect();
        for layer in 0..LAYERS {
            let chosen = gate(layer, experts, |word| row.get(word as usize).copied());
            for word in &mut row {
                let mut sum = [0.0; 4];
                for (expert, weight) in chosen {
                    let output = Bf16::unpack(expert_of(layer, expert, *word));
                    sum.iter_mut()
                        .zip(output)
                        .for_each(|(sum, value)| *sum += weight * value);
                }
                *word = Bf16::pack(sum);
            }
        }
        let mut found = [0; 8 * THREADS as usize];
        member.read_result(token, &mut found)?;
        let wanted: Vec<u8> = row.into_iter().flat_map(u64::to_le_bytes).collect();
        assert!(found[..] == wanted, "token {token} of rank {rank}");
    }
    println!("rank {rank} has {THREADS} tokens from {experts} experts, in {LAYERS} layers");
    Ok(())
}
