//! Schedules as text.

use warpbell_cluster::goal::{Error, Operation, Schedule};

fn parsed(text: &str) -> Schedule {
    text.parse().unwrap()
}

/// The first error of a text, of its words or of its meaning.
fn error(text: &str) -> Error {
    match text.parse::<Schedule>() {
        Err(error) => error,
        Ok(schedule) => schedule.check().expect_err("a bad schedule passed"),
    }
}

const PAIR: &str = "\
num_ranks 2
rank 0 { l1: calc 100; l2: send 8b to 1 tag 3 cpu 0 nic 0; l2 requires l1 }
rank 1 {
  // A label may come after its use.
  l2 irequires l1
  l1: recv 8b from 0 tag 3 # what rank 0 sends
  l2: calc 7 cpu 2
}
";

#[test]
fn a_schedule_is_read_and_written() {
    let schedule = parsed(PAIR);
    let [one, other] = schedule.ranks() else {
        panic!("not two ranks");
    };
    let send = Operation::Send {
        bytes: 8,
        to: 1,
        tag: 3,
    };
    let calc = |nanoseconds, stream| Operation::Calc {
        nanoseconds,
        stream,
    };
    assert_eq!(one.operations(), [calc(100, 0), send]);
    let receive = Operation::Receive {
        bytes: 8,
        from: 0,
        tag: 3,
    };
    assert_eq!(other.operations(), [receive, calc(7, 2)]);

    let program = schedule.clone().check().unwrap();
    assert_eq!(program.ranks[0].after_end.of(0), [1]);
    assert_eq!(program.ranks[1].after_start.of(0), [1]);
    assert!(program.ranks[1].after_end.of(0).is_empty());

    let text = schedule.to_string();
    assert_eq!(parsed(&text).to_string(), text);
    assert_eq!(parsed(&text).operations(), 4);
}

/// As in LogGOPSim. A label may be called `tag` or `cpu` all the same.
#[test]
fn a_tag_that_is_left_out_is_0() {
    let program = parsed(
        "num_ranks 2
        rank 0 { send 1b to 1
            tag: send 2b to 1 tag 0
            cpu: calc 1
            send 3b to 1 cpu 0
            tag requires cpu }
        rank 1 { recv 1b from 0 tag 0; recv 2b from 0; recv 3b from 0 nic 0 }",
    );
    let program = program.check().unwrap();
    assert_eq!(program.ranks[0].partner, [0, 1, 0, 2]);
    assert_eq!(program.ranks[0].after_end.of(2), [1]);
}

/// What LogGOPSim reads and this crate does not is refused with its line.
#[test]
fn wildcards_and_other_comments_are_refused() {
    for line in [
        "recv 8b from -1",
        "recv 8b from 1 tag -1",
        "/* nothing */",
        "send 8 b to 1",
    ] {
        let error = error(&format!("num_ranks 2\nrank 0 {{\n{line}\n}}"));
        assert!(matches!(error, Error::Syntax { line: 3, .. }), "{error}");
    }
}

#[test]
fn messages_go_with_receives_in_order() {
    let program = parsed(
        "num_ranks 2
        rank 0 { send 1b to 1 tag 0; send 2b to 1 tag 1; send 3b to 1 tag 0 }
        rank 1 { recv 2b from 0 tag 1; recv 1b from 0 tag 0; recv 3b from 0 tag 0 }",
    );
    let program = program.check().unwrap();
    assert_eq!(program.ranks[0].partner, [1, 0, 2]);
}

#[test]
fn bad_words_are_named_with_their_line() {
    for (text, line, expected, found) in [
        ("", 1, "num_ranks", "the end"),
        ("num_ranks 1\nrank 0 {\ncalc\n}", 4, "a time (ns)", "}"),
        ("num_ranks 1\nrank 0 {\n\ncalc -1 }", 4, "a time (ns)", "-1"),
        (
            "num_ranks 2\nrank 0 { send 8 to 1 tag 0 }",
            2,
            "a size such as 8b",
            "8",
        ),
        (
            "num_ranks 2\nrank 0 { send 8b from 1 tag 0 }",
            2,
            "to",
            "from",
        ),
        (
            "num_ranks 1\nrank 0 { l1: jump 3 }",
            2,
            "send, recv or calc",
            "jump",
        ),
        (
            "num_ranks 1\nrank 0 {\ncalc 1",
            3,
            "an operation, a label or }",
            "the end",
        ),
        (
            "num_ranks 1\nrank 0 { a b }",
            2,
            "a colon, requires or irequires",
            "b",
        ),
        ("num_ranks 1\n\nrunk 0 { }", 3, "rank", "runk"),
    ] {
        let found = found.to_owned();
        assert_eq!(
            error(text),
            Error::Syntax {
                line,
                expected,
                found
            },
            "{text}"
        );
    }
}

#[test]
fn numbers_out_of_range_are_named() {
    for (text, value, greatest) in [
        (
            "num_ranks 2\nrank 0 { send 1073741825b to 1 tag 0 }",
            "1073741825",
            1 << 30,
        ),
        (
            "num_ranks 2\nrank 0 { send 99999999999999999999b to 1 tag 0 }",
            "99999999999999999999",
            1 << 30,
        ),
        (
            "num_ranks 2\nrank 0 { send 1b to 1 tag 4294967296 }",
            "4294967296",
            u64::from(u32::MAX),
        ),
        (
            "num_ranks 2\nrank 0 { calc 1000000000001 }",
            "1000000000001",
            1_000_000_000_000,
        ),
        ("num_ranks 2\nrank 0 { calc 1 cpu 256 }", "256", 255),
        ("num_ranks 2\nrank 0 { send 1b to 1 tag 0 nic 1 }", "1", 0),
    ] {
        let Error::OutOfRange {
            line: 2,
            value: found,
            greatest: most,
            ..
        } = error(text)
        else {
            panic!("{text}: {}", error(text));
        };
        assert_eq!((found.as_str(), most), (value, greatest), "{text}");
    }
    assert_eq!(error("num_ranks 0"), Error::NoRanks { line: 1 });
    for ranks in ["65537", "99999999999999999999"] {
        let error = error(&format!("num_ranks {ranks}")).to_string();
        let named = format!("number of ranks {ranks} is out of range; the greatest is 65536");
        assert_eq!(error, format!("line 1: {named}"));
    }
}

#[test]
fn ranks_and_labels_are_checked() {
    let no = |line, rank: u128| Error::NoSuchRank {
        line,
        rank: rank.to_string(),
        ranks: 2,
    };
    assert_eq!(error("num_ranks 2\nrank 2 { }"), no(2, 2));
    let long = "num_ranks 2\nrank 99999999999999999999 { }";
    assert_eq!(error(long), no(2, 99_999_999_999_999_999_999));
    assert_eq!(
        error("num_ranks 2\nrank 0 {\nsend 8b to 7 tag 0 }"),
        no(3, 7)
    );
    assert_eq!(
        error("num_ranks 2\nrank 0 {\nrecv 8b from 2 tag 0 }"),
        no(3, 2)
    );
    let twice = Error::RankTwice { line: 3, rank: 1 };
    assert_eq!(error("num_ranks 2\nrank 1 { }\nrank 1 { }"), twice);
    let itself = Error::ToItself { line: 2, rank: 1 };
    assert_eq!(error("num_ranks 2\nrank 1 { send 8b to 1 tag 0 }"), itself);
    let label = || "a".to_owned();
    let unknown = Error::UnknownLabel {
        line: 3,
        label: label(),
    };
    assert_eq!(
        error("num_ranks 1\nrank 0 { b: calc 1\n b requires a }"),
        unknown
    );
    let twice = Error::LabelTwice {
        line: 3,
        label: label(),
    };
    assert_eq!(
        error("num_ranks 1\nrank 0 { a: calc 1\n a: calc 2 }"),
        twice
    );
}

#[test]
fn messages_without_their_other_half_are_named() {
    let text = "num_ranks 2\nrank 0 {\nsend 8b to 1 tag 0\nsend 8b to 1 tag 0 }\nrank 1 { recv 8b from 0 tag 0 }";
    let missing = Error::MissingReceive {
        line: 4,
        from: 0,
        to: 1,
        tag: 0,
    };
    assert_eq!(error(text), missing);
    let text = "num_ranks 2\nrank 1 {\nrecv 8b from 0 tag 5 }";
    let missing = Error::MissingSend {
        line: 3,
        from: 0,
        to: 1,
        tag: 5,
    };
    assert_eq!(error(text), missing);
    let text = "num_ranks 2\nrank 0 { send 9b to 1 tag 0 }\nrank 1 { recv 8b from 0 tag 0 }";
    let little = Error::TooLittleRoom {
        line: 3,
        sender: 2,
        room: 8,
        bytes: 9,
    };
    assert_eq!(error(text), little);
}

#[test]
fn a_cycle_is_found_within_a_rank_and_between_ranks() {
    let text = "num_ranks 1\nrank 0 {\nfree: calc 1\na: calc 1\nb: calc 1\nbehind: calc 1
        b requires a; a irequires b; behind requires b }";
    assert_eq!(error(text), Error::Cycle { line: 4, rank: 0 });
    let text = "num_ranks 1\nrank 0 {\na: calc 1\na requires a }";
    assert_eq!(error(text), Error::Cycle { line: 3, rank: 0 });
    // Each rank sends only when it has received.
    let text = "num_ranks 2
        rank 0 {
        s: send 1b to 1 tag 0
        r: recv 1b from 1 tag 0
        s requires r }
        rank 1 {
        s: send 1b to 0 tag 0
        r: recv 1b from 0 tag 0
        s requires r }";
    assert_eq!(error(text), Error::Cycle { line: 3, rank: 0 });
    let one_way = text.rsplit_once("s requires r").unwrap().0;
    assert!(parsed(&format!("{one_way} }}")).check().is_ok());
}
