//! Exchanges of a job's ranks.

use warpbell_patterns::experts::Choice;
use warpbell_patterns::experts::host::{ExpertsConfig, ExpertsMember};

use super::*;

fn config() -> ExpertsConfig {
    ExpertsConfig {
        experts: 4,
        hidden: 256,
        tokens: 2,
        capacity: 2,
        queue_pair: QueuePairConfig {
            send_depth: 64,
            ..patient()
        },
        ..ExpertsConfig::default()
    }
}

/// Experts give back what they get. Each rank's first token has both experts of the other rank, with halves of a weight.
#[test]
fn ranks_exchange_tokens() {
    for (port, wire) in (22_080..).zip(WIRES) {
        job(port, 2, wire, |mut world| {
            let joined = ExpertsMember::join(&mut world, &[1, 0], &config()).unwrap();
            let member = joined.expect("both are members");
            let rank = member.team().rank();
            let row: Vec<u8> = (0..512).map(|at| (at % 2 * 0x3f) as u8).collect();
            member.write_token(0, &row).unwrap();
            let there = 2 * (1 - rank);
            let choices = [there, there + 1].map(|expert| Choice::new(expert, 0.5));
            member.choose(0, &choices).unwrap();
            // A warp, on the CPU grid.
            let node = Node::cpu();
            round::run(&node, &member);
            let mut found = vec![0; 512];
            member.read_result(0, &mut found).unwrap();
            assert_eq!(found, row);
            world.barrier().unwrap();
        });
    }
}

#[test]
fn ranks_that_disagree_about_a_shape_learn_of_it() {
    let errors = job(22_082, 2, WireKind::SharedMemory, |mut world| {
        let capacity = 1 + world.rank();
        let config = ExpertsConfig {
            capacity,
            ..config()
        };
        let joined = ExpertsMember::join(&mut world, &[0, 1], &config);
        joined.unwrap_err().to_string()
    });
    for (rank, error) in errors.into_iter().enumerate() {
        let other = 1 - rank;
        let wanted = format!(
            "rank {other} was given another configuration: the capacities of an expert differ"
        );
        assert!(
            error.contains(&wanted) || error.contains("aborted"),
            "{error}"
        );
    }
}

mod round {
    use warpbell::{Slice, Word64, kernel, thread, warp};
    use warpbell_host_init::{Grid, Launch, Node, Placement, Shared, entry};
    use warpbell_patterns::experts::host::ExpertsMember;
    use warpbell_patterns::experts::{Error, ExpertsHandle};

    use super::LIMIT;

    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Round<'a> {
        experts: ExpertsHandle<'a>,
        results: Slice<'a, Word64>,
    }

    #[kernel]
    fn round(p: Round<'_>) {
        let word = go(p.experts).err().map_or(0, Error::to_bits);
        p.results.store(thread::index().into(), word);
    }

    fn go(handle: ExpertsHandle<'_>) -> Result<(), Error> {
        let mut experts = handle.open()?;
        assert_eq!(experts.dispatch(1, LIMIT)?, 0);
        for (local, source) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            let received = experts.received(local, source);
            assert_eq!(received.count(), u32::from(source != experts.rank()));
            for slot in 0..received.count() {
                let (row, output) = (received.row(slot).unwrap(), received.output(slot).unwrap());
                for word in (u64::from(warp::lane_id())..row.len()).step_by(32) {
                    output.store(word, row.load(word).unwrap());
                }
            }
        }
        assert_eq!(experts.combine(LIMIT)?, 0);
        Ok(())
    }

    pub fn run(node: &Node, member: &ExpertsMember) {
        let results = Shared::slice(Placement::Host, 32, |_| Word64::new(1)).unwrap();
        let parameters = Round {
            experts: member.handle(),
            results: Slice::new(&results),
        };
        let launch = Launch::new(entry!(round), Grid::new(1, 32), parameters);
        node.run(&[launch], &[]).unwrap();
        for word in &results[..] {
            let word = word.load(core::sync::atomic::Ordering::Relaxed);
            assert_eq!(Error::from_bits(word), None, "{word:#x}");
            assert_eq!(word, 0);
        }
    }
}
