//! How rank 0's address reaches the others through a process manager: PMI-1, lines of `name=value` over `PMI_FD`.
//!
//! MPICH's hydra speaks it, and so does Slurm's plugin `pmi2`.

use std::io::{self, ErrorKind};
use std::os::fd::{BorrowedFd, RawFd};
use std::time::Instant;

use crate::RanksError;
use crate::stream::Stream;

/// Longest line of an answer in bytes.
const LONGEST_LINE: usize = 4096;

/// The key under which rank 0's words are kept.
const KEY: &str = "warpbell-root";

/// The descriptor that `PMI_FD` names: a launcher has left it open for this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PmiFd(RawFd);

impl PmiFd {
    /// What the variable says; nothing if that is no descriptor's number.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        text.parse().ok().filter(|fd| *fd >= 0).map(Self)
    }
}

/// Opens the connection to the process manager.
pub(crate) fn open(PmiFd(fd): PmiFd) -> Result<Stream, RanksError> {
    // SAFETY: the number is `PMI_FD`'s, which the launcher opened for this process, and not -1. The descriptor is only
    // duplicated: if it is not open, that call fails, and nothing is borrowed any longer.
    let opened = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned();
    opened.map(Stream::new).map_err(|error| RanksError::Pmi {
        step: "open its connection",
        answer: error.to_string(),
    })
}

/// Gives the words of rank 0 to all ranks: rank 0 brings some, and each gets them. All ranks of the job call it, once.
pub(crate) fn broadcast(
    mut stream: Stream,
    words: Option<&str>,
    until: Instant,
) -> Result<String, RanksError> {
    let mut ask = |step, command: &str, expected, wanted| {
        let line = exchange(&mut stream, command, until).map_err(|error| RanksError::Pmi {
            step,
            answer: error.to_string(),
        })?;
        answer(&line, expected, wanted).map_err(|answer| RanksError::Pmi { step, answer })
    };
    let hello = "cmd=init pmi_version=1 pmi_subversion=1";
    ask("greet", hello, "response_to_init", "cmd")?;
    let space = ask(
        "name its space",
        "cmd=get_my_kvsname",
        "my_kvsname",
        "kvsname",
    )?;
    let place = format!("kvsname={space} key={KEY}");
    if let Some(words) = words {
        let put = format!("cmd=put {place} value={words}");
        ask("keep rank 0's address", &put, "put_result", "cmd")?;
    }
    ask("wait for all ranks", "cmd=barrier_in", "barrier_out", "cmd")?;
    let get = format!("cmd=get {place}");
    let words = ask("give rank 0's address", &get, "get_result", "value")?;
    // Without it, hydra takes the end of this process for a failure.
    ask("say goodbye", "cmd=finalize", "finalize_ack", "cmd")?;
    Ok(words)
}

/// The wanted field of an answer. The error is the answer's code, but not its words, which may hold the job's secret.
fn answer(line: &str, expected: &str, wanted: &str) -> Result<String, String> {
    let field = |name: &str| {
        let mut fields = line.split_whitespace();
        fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
    };
    let good = field("cmd") == Some(expected) && field("rc").is_none_or(|rc| rc == "0");
    match field(wanted) {
        Some(value) if good => Ok(value.into()),
        _ => {
            let plain = line
                .split_whitespace()
                .filter(|field| !field.starts_with("value="));
            Err(plain.collect::<Vec<_>>().join(" "))
        }
    }
}

fn exchange(stream: &mut Stream, command: &str, until: Instant) -> io::Result<String> {
    stream.send(format!("{command}\n").as_bytes(), until)?;
    while !stream.inbox.ends_with(b"\n") {
        if stream.inbox.len() >= LONGEST_LINE {
            return Err(io::Error::new(
                ErrorKind::InvalidData,
                "its line does not end",
            ));
        }
        stream.receive(LONGEST_LINE, until)?;
    }
    let line = std::mem::take(&mut stream.inbox);
    String::from_utf8(line).map_err(|_| ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    /// Answers each line with the next of these; returns the lines that came.
    fn served(answers: &[&str], words: Option<&str>) -> (Result<String, RanksError>, Vec<String>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        std::thread::scope(|scope| {
            let server = scope.spawn(move || {
                let mut lines = BufReader::new(&theirs).lines();
                let mut serve = |answer: &&str| {
                    let line = lines.next().unwrap().unwrap();
                    (&theirs).write_all(answer.as_bytes()).unwrap();
                    line
                };
                answers.iter().map(&mut serve).collect()
            });
            let until = Instant::now() + Duration::from_secs(300);
            let result = broadcast(Stream::new(ours), words, until);
            (result, server.join().unwrap())
        })
    }

    const GREETED: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    const SPACE: &str = "cmd=my_kvsname kvsname=kvs_7\n";
    const BARRIER: &str = "cmd=barrier_out\n";

    #[test]
    fn rank_0_puts_and_all_get() {
        let put = "cmd=put_result rc=0 msg=success\n";
        let got = "cmd=get_result rc=0 msg=success value=node7:1,key\n";
        let answers = [GREETED, SPACE, put, BARRIER, got, "cmd=finalize_ack\n"];
        let (words, lines) = served(&answers, Some("node7:1,key"));
        assert_eq!(words.unwrap(), "node7:1,key");
        let expected = "cmd=init pmi_version=1 pmi_subversion=1
cmd=get_my_kvsname
cmd=put kvsname=kvs_7 key=warpbell-root value=node7:1,key
cmd=barrier_in
cmd=get kvsname=kvs_7 key=warpbell-root
cmd=finalize";
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn every_bad_answer_is_named() {
        let endless = "x".repeat(LONGEST_LINE + 1);
        let hidden = "cmd=get_result rc=-1 value=hidden\n";
        let get = "give rank 0's address";
        for (answers, expected) in [
            (&["cmd=response_to_init rc=-1\n"][..], "greet"),
            (&["\n"], "greet"),
            (&["no line"], "greet"),
            (&[&endless], "greet"),
            (&[GREETED, "cmd=my_kvsname\n"], "name its space"),
            (&[GREETED, SPACE, "cmd=put_result\n"], "wait for all ranks"),
            (&[GREETED, SPACE, BARRIER, hidden], get),
        ] {
            let error = served(answers, None).0.unwrap_err();
            assert!(!error.to_string().contains("hidden"));
            assert_matches!(error => RanksError::Pmi { step, .. } if step == expected);
        }
        assert_eq!(PmiFd::parse("-1"), None);
        let closed = PmiFd(RawFd::MAX);
        assert_matches!(open(closed).err() => Some(RanksError::Pmi { .. }));
        // A silent manager.
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let soon = Instant::now() + Duration::from_millis(30);
        let error = broadcast(Stream::new(ours), None, soon).unwrap_err();
        assert!(error.to_string().contains("no answer in time"), "{error}");
    }
}
