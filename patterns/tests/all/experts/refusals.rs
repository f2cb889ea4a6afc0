//! What is refused, by a name; no other member hangs by it.

use super::*;
use warpbell::{Slice, kernel, thread};
use warpbell_host_init::entry;
use warpbell_patterns::Error as SetUp;
use warpbell_patterns::experts::host::ExpertsError;
use warpbell_patterns::experts::{Choice, ExpertsHandle, Overflow};

#[repr(C)]
#[derive(Clone, Copy)]
struct Trial<'a> {
    experts: ExpertsHandle<'a>,
    tokens: u32,
    /// Whether the first member's tokens are refused.
    refuses: u32,
    results: Slice<'a, Word64>,
}

/// Makes a round, and leaves the error of its dispatch.
#[kernel]
fn trial(p: Trial<'_>) {
    let word = match go(&p) {
        Ok(()) => 0,
        Err(error) => error.to_bits(),
    };
    p.results.store(thread::index().into(), word);
}

fn go(p: &Trial<'_>) -> Result<(), Error> {
    let mut experts = p.experts.open()?;
    // Nothing has begun.
    let early = [
        experts.dispatch_finish(PATIENCE).err(),
        experts.combine_begin(PATIENCE).err(),
        experts.combine_finish(PATIENCE).err(),
    ];
    assert_eq!(early, [Some(Error::Order); 3]);
    let begun = experts.dispatch_begin(p.tokens, PATIENCE);
    assert_eq!(experts.dispatch_begin(0, PATIENCE), Err(Error::Order));
    assert_eq!(experts.dispatch_finish(PATIENCE), Ok(0));
    for source in 0..experts.shape().ranks {
        let refused = experts.received(0, source).is_refused();
        // The first member's alone, and none of its tokens comes.
        assert_eq!(refused, p.refuses != 0 && source == 0);
        assert!(!refused || experts.received(0, source).count() == 0);
    }
    assert_eq!(experts.combine(PATIENCE), Ok(0));
    begun
}

fn trials(
    members: &[ExpertsMember],
    tokens: &[u32],
    refuses: bool,
    grid: Grid,
) -> Vec<Vec<Option<Error>>> {
    let results: Vec<_> = members.iter().map(|_| results(grid)).collect();
    let launches: Vec<_> = (members.iter().zip(tokens))
        .zip(&results)
        .map(|((member, &tokens), results)| {
            let parameters = Trial {
                experts: member.handle(),
                tokens,
                refuses: refuses.into(),
                results: Slice::new(results),
            };
            Launch::new(entry!(trial), grid, parameters)
        })
        .collect();
    let error = |word| Error::from_bits(word);
    let words = run(&launches, &results).into_iter();
    words
        .map(|words| words.into_iter().map(error).collect())
        .collect()
}

#[test]
fn bad_input_is_refused_by_name() {
    let config = ExpertsConfig {
        capacity: 4,
        overflow: Overflow::Refuse,
        ..config()
    };
    let members = exchange(2, &config);
    let grid = Grid::new(2, 32);
    let one = |expert| [Choice::new(expert, 1.0)];
    for token in 0..5 {
        members[0].choose(token, &one(3)).unwrap();
        members[1].choose(token, &one(token)).unwrap();
    }
    let round = |tokens, refuses| trials(&members, &[tokens, 5], refuses, grid);
    let refused = |error| [vec![Some(error); 64], vec![None; 64]];
    assert_eq!(round(5, true), refused(Error::Overflow { expert: 3 }));
    assert_eq!(round(21, true), refused(Error::Tokens { tokens: 21 }));
    members[0].choose(4, &one(8)).unwrap();
    assert_eq!(round(5, true), refused(Error::Expert { expert: 8 }));
    let mut row = [1; 512];
    members[0].read_result(4, &mut row).unwrap();
    assert_eq!(row, [0; 512], "the sum of nothing");
    members[0].choose(4, &one(7)).unwrap();
    assert_eq!(round(5, false), [[None; 64]; 2]);
}

#[test]
fn grids_that_do_not_fit_are_refused() {
    let members = exchange(1, &config());
    let errors = |grid| trials(&members, &[0], false, grid).concat();
    let wanted = |error, threads: usize| vec![Some(error); threads];
    assert_eq!(
        errors(Grid::new(1, 40)),
        wanted(Error::Threads { threads: 40 }, 40)
    );
    assert_eq!(
        errors(Grid::new(3, 32)),
        wanted(Error::NoChannel { channel: 0 }, 96)
    );
    assert_eq!(errors(Grid::new(2, 32)), [None; 64]);
}

#[test]
fn numbers_that_make_no_exchange_are_refused() {
    let refused = |change: &dyn Fn(&mut ExpertsConfig)| {
        let mut config = config();
        change(&mut config);
        match experts_of(&Node::cpu().domains(2).unwrap(), &config) {
            Err(SetUp::Experts(error)) => error,
            other => panic!("{other:?}"),
        }
    };
    let number = |what, value, limit| ExpertsError::Number { what, value, limit };
    let uneven = |what, value, unit| ExpertsError::Uneven { what, value, unit };
    assert_eq!(refused(&|c| c.experts = 0), number("experts", 0, 1024));
    assert_eq!(
        refused(&|c| c.experts = 1026),
        number("experts", 1026, 1024)
    );
    assert_eq!(refused(&|c| c.experts = 9), uneven("experts", 9, 2));
    assert_eq!(
        refused(&|c| c.hidden = 1000),
        uneven("values of a token", 1000, 256)
    );
    assert_eq!(
        refused(&|c| c.hidden = 8448),
        number("values of a token", 8448, 8192)
    );
    assert_eq!(
        refused(&|c| c.top_k = 9),
        number("experts of a token", 9, 8)
    );
    assert_eq!(
        refused(&|c| c.tokens = 65_537),
        number("tokens of a member", 65_537, 65_536)
    );
    assert_eq!(
        refused(&|c| c.capacity = 61),
        number("capacity of an expert", 61, 60)
    );
    let depth = refused(&|c| c.queue_pair.send_depth = 32);
    assert_eq!(depth, ExpertsError::TooShallow { depth: 32 });
    let long = refused(&|c| c.queue_pair.max_message = 60 * 512 - 1);
    let (bytes, limit) = (60 * 512, 60 * 512 - 1);
    let what = "the rows of an expert";
    assert_eq!(long, ExpertsError::TooLong { what, bytes, limit });
}

#[test]
fn a_host_writes_nothing_outside() {
    let members = exchange(1, &config());
    let not_there = |result: Result<(), SetUp>, what, value, there| match result {
        Err(SetUp::Experts(error)) => {
            assert_eq!(error, ExpertsError::NotThere { what, value, there });
        }
        other => panic!("{other:?}"),
    };
    let member = &members[0];
    not_there(member.write_token(20, &[]), "token", 20, 20);
    not_there(member.write_token(0, &[0; 513]), "bytes of a row", 513, 512);
    not_there(member.read_result(20, &mut []), "token", 20, 20);
    not_there(member.choose(0, &[Choice::NONE; 4]), "choices", 4, 3);
    let beyond = 1 << 40;
    not_there(
        member.set_round(beyond),
        "rounds",
        beyond as usize,
        beyond as usize - 1,
    );
}
