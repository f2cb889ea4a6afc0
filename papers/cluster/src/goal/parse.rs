//! From text to a schedule.

use std::collections::HashMap;
use std::str::FromStr;

use super::{
    Error, LONGEST_CALC, LONGEST_MESSAGE, MOST_RANKS, MOST_STREAMS, Operation, Schedule, Steps,
};

impl FromStr for Schedule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut words = Words::new(text);
        words.keyword("num_ranks")?;
        let line = words.line();
        let most = u64::from(MOST_RANKS);
        let ranks = words.number("a number of ranks", "number of ranks", most)?;
        if ranks == 0 {
            return Err(Error::NoRanks { line });
        }
        let ranks = ranks as u32;
        let mut blocks: Vec<Option<Steps>> = vec![None; ranks as usize];
        loop {
            words.skip_separators();
            if words.peek().is_none() {
                break;
            }
            words.keyword("rank")?;
            let line = words.line();
            let rank = words.rank(ranks)?;
            let block = &mut blocks[rank as usize];
            if block.is_some() {
                return Err(Error::RankTwice { line, rank });
            }
            *block = Some(steps(&mut words, rank, ranks)?);
        }
        let ranks = blocks.into_iter().map(Option::unwrap_or_default);
        Ok(Self {
            ranks: ranks.collect(),
        })
    }
}

/// The block of a rank.
fn steps(words: &mut Words<'_>, rank: u32, ranks: u32) -> Result<Steps, Error> {
    let mut steps = Steps::default();
    let mut labels = HashMap::new();
    // Labels may be used before their operation comes.
    let mut orders = Vec::new();
    words.keyword("{")?;
    loop {
        words.skip_separators();
        let line = words.line();
        let first = words.next("an operation, a label or }")?;
        if first == "}" {
            break;
        }
        if let Some(operation) = operation(words, first, line, rank, ranks)? {
            steps.operations.push(operation);
            steps.lines.push(line);
            continue;
        }
        match words.next("a colon, requires or irequires")? {
            ":" => {
                let number = steps.operations.len() as u32;
                if labels.insert(first, number).is_some() {
                    let label = first.to_owned();
                    return Err(Error::LabelTwice { line, label });
                }
                let line = words.line();
                let verb = words.next("send, recv or calc")?;
                let Some(operation) = operation(words, verb, line, rank, ranks)? else {
                    return Err(syntax(line, "send, recv or calc", verb));
                };
                steps.operations.push(operation);
                steps.lines.push(line);
            }
            word @ ("requires" | "irequires") => {
                let earlier = words.next("a label")?;
                orders.push((line, word == "requires", first, earlier));
            }
            other => return Err(syntax(line, "a colon, requires or irequires", other)),
        }
    }
    for (line, ends, later, earlier) in orders {
        let number = |label: &str| {
            labels.get(label).copied().ok_or(Error::UnknownLabel {
                line,
                label: label.to_owned(),
            })
        };
        let pair = (number(later)?, number(earlier)?);
        match ends {
            true => steps.requires.push(pair),
            false => steps.irequires.push(pair),
        }
    }
    Ok(steps)
}

/// An operation that begins with this verb, or None if the word is no verb.
fn operation(
    words: &mut Words<'_>,
    verb: &str,
    line: u32,
    rank: u32,
    ranks: u32,
) -> Result<Option<Operation>, Error> {
    // A label may be called like a verb.
    if words.peek() == Some(":") {
        return Ok(None);
    }
    let operation = match verb {
        "send" | "recv" => {
            let bytes = words.size()?;
            let preposition = if verb == "send" { "to" } else { "from" };
            words.keyword(preposition)?;
            let other = words.rank(ranks)?;
            if other == rank {
                return Err(Error::ToItself { line, rank });
            }
            let tag = match words.option("tag") {
                true => words.number("a tag", "tag", u64::from(u32::MAX))? as u32,
                false => 0,
            };
            words.place()?;
            match verb {
                "send" => Operation::Send {
                    bytes,
                    to: other,
                    tag,
                },
                _ => Operation::Receive {
                    bytes,
                    from: other,
                    tag,
                },
            }
        }
        "calc" => {
            let nanoseconds = words.number("a time (ns)", "time (ns)", LONGEST_CALC)?;
            let stream = words.place()?;
            Operation::Calc {
                nanoseconds,
                stream,
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(operation))
}

/// The words of a text with their lines.
struct Words<'t> {
    words: Vec<(u32, &'t str)>,
    next: usize,
    last_line: u32,
}

impl<'t> Words<'t> {
    fn new(text: &'t str) -> Self {
        let mut words = Vec::new();
        let mut last_line = 1;
        for (number, line) in text.lines().enumerate() {
            last_line = number as u32 + 1;
            let comment = line.find("//").into_iter().chain(line.find('#')).min();
            let line = &line[..comment.unwrap_or(line.len())];
            for word in line.split_whitespace() {
                let parts = word.split_inclusive([';', ':', '{', '}']);
                for part in parts {
                    let (name, mark) = match part.char_indices().next_back() {
                        Some((at, ';' | ':' | '{' | '}')) => part.split_at(at),
                        _ => (part, ""),
                    };
                    let both = [name, mark].into_iter().filter(|word| !word.is_empty());
                    words.extend(both.map(|word| (last_line, word)));
                }
            }
        }
        Self {
            words,
            next: 0,
            last_line,
        }
    }

    /// The line of the next word.
    fn line(&self) -> u32 {
        self.words
            .get(self.next)
            .map_or(self.last_line, |word| word.0)
    }

    fn peek(&self) -> Option<&'t str> {
        self.words.get(self.next).map(|word| word.1)
    }

    fn next(&mut self, expected: &'static str) -> Result<&'t str, Error> {
        let word = self.peek();
        let word = word.ok_or_else(|| syntax(self.line(), expected, "the end"))?;
        self.next += 1;
        Ok(word)
    }

    fn skip_separators(&mut self) {
        while self.peek() == Some(";") {
            self.next += 1;
        }
    }

    fn keyword(&mut self, keyword: &'static str) -> Result<(), Error> {
        let line = self.line();
        match self.next(keyword)? {
            word if word == keyword => Ok(()),
            other => Err(syntax(line, keyword, other)),
        }
    }

    fn number(
        &mut self,
        expected: &'static str,
        quantity: &'static str,
        greatest: u64,
    ) -> Result<u64, Error> {
        let line = self.line();
        let word = self.next(expected)?;
        digits(word, line, expected, quantity, greatest)
    }

    fn rank(&mut self, ranks: u32) -> Result<u32, Error> {
        let line = self.line();
        let word = self.next("a rank")?;
        match digits(word, line, "a rank", "rank", u64::from(ranks) - 1) {
            Ok(rank) => Ok(rank as u32),
            Err(Error::OutOfRange { value, .. }) => Err(Error::NoSuchRank {
                line,
                rank: value,
                ranks,
            }),
            Err(error) => Err(error),
        }
    }

    /// Takes a word that may be left out, and says whether it stands there. A label may be called like it.
    fn option(&mut self, word: &str) -> bool {
        let after = self.words.get(self.next + 1).map(|word| word.1);
        let label = matches!(after, Some(":" | "requires" | "irequires"));
        let found = self.peek() == Some(word) && !label;
        self.next += usize::from(found);
        found
    }

    fn size(&mut self) -> Result<u64, Error> {
        const EXPECTED: &str = "a size such as 8b";
        let line = self.line();
        let word = self.next(EXPECTED)?;
        let number = word.strip_suffix('b');
        let number = number.ok_or_else(|| syntax(line, EXPECTED, word))?;
        digits(number, line, EXPECTED, "size (bytes)", LONGEST_MESSAGE)
    }

    /// `cpu N` and `nic 0`, if they stand there; gives the stream.
    fn place(&mut self) -> Result<u32, Error> {
        let mut stream = 0;
        loop {
            if self.option("cpu") {
                let greatest = u64::from(MOST_STREAMS) - 1;
                stream = self.number("a stream", "stream", greatest)? as u32;
            } else if self.option("nic") {
                self.number("a NIC", "NIC", 0)?;
            } else {
                return Ok(stream);
            }
        }
    }
}

fn digits(
    word: &str,
    line: u32,
    expected: &'static str,
    quantity: &'static str,
    greatest: u64,
) -> Result<u64, Error> {
    if word.is_empty() || !word.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax(line, expected, word));
    }
    // Digits alone fail only if there are too many.
    match word.parse() {
        Ok(value) if value <= greatest => Ok(value),
        _ => Err(Error::OutOfRange {
            line,
            quantity,
            value: word.to_owned(),
            greatest,
        }),
    }
}

fn syntax(line: u32, expected: &'static str, found: &str) -> Error {
    Error::Syntax {
        line,
        expected,
        found: found.to_owned(),
    }
}
