//! The launcher on another host: it starts the ranks there that a [job](Job) names, and ends with its standard input.

use std::env;
use std::io::{self, BufRead, Write};
use std::net::{Ipv6Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::job::{self, Answer, Job, SIGNS, VERSION};
use super::ranks::{self, Rank};
use super::{GRACE, INTERRUPTED, NOT_STARTED, STOPPED, TICK};

/// The one argument of the launcher on another host, before the seconds of silence.
pub const SERVE: &str = "--serve";

/// For how long this launcher may hear nothing, if it is one on another host.
pub fn asked() -> Option<Duration> {
    let mut arguments = env::args_os().skip(1);
    let asked = arguments.next().is_some_and(|first| first == SERVE);
    let seconds = asked.then(|| arguments.next()?.to_str()?.parse().ok());
    seconds.flatten().map(Duration::from_secs)
}

/// Starts the ranks that standard input names, and waits for them. Each further line there is a sign of life.
///
/// # Errors
/// No job came.
pub fn serve(silence: Duration) -> Result<u8, String> {
    let (answers, said) = mpsc::channel();
    // A thread of its own writes, because nobody may read: the connection may hang.
    let writer = thread::spawn(move || write(&said, silence / SIGNS, io::stdout()));
    let port = free_port().map_err(|error| format!("no free port: {error}"))?;
    let version = VERSION.into();
    // The writer ends only after all senders.
    let _ = answers.send(Answer::Ready { version, port });
    let (heard, lines) = mpsc::channel();
    thread::spawn(move || read(&heard));
    let job = lines
        .recv_timeout(silence)
        .map_err(|_| "no job came on standard input; --hosts starts this")?;
    let job = serde_json::from_str(&job).map_err(|error| format!("no job: {error}"))?;
    let is_silent = Arc::new(AtomicBool::new(false));
    let found = Arc::clone(&is_silent);
    thread::spawn(move || {
        let end = loop {
            if let Err(end) = lines.recv_timeout(silence) {
                break end;
            }
        };
        found.store(end == RecvTimeoutError::Timeout, Ordering::Relaxed);
        // The reason before the end, because this function looks for the reason after the end.
        STOPPED.store(true, Ordering::Release);
    });
    let status = run(&job, &answers);
    if status == INTERRUPTED && is_silent.load(Ordering::Relaxed) {
        let words = format!("no word from the launcher for {} s", silence.as_secs());
        let _ = answers.send(Answer::Failed { status, words });
    }
    drop(answers);
    let began = Instant::now();
    while !writer.is_finished() && began.elapsed() < GRACE {
        thread::sleep(TICK);
    }
    Ok(status)
}

fn run(job: &Job, answers: &Sender<Answer>) -> u8 {
    let failed = |status, words: &str| {
        let words = words.into();
        let _ = answers.send(Answer::Failed { status, words });
    };
    if let Err(error) = env::set_current_dir(&job.folder) {
        let folder = job.folder.display();
        failed(NOT_STARTED, &format!("cannot work in {folder}: {error}"));
        return NOT_STARTED;
    }
    let mut ranks = match Rank::start_all(job) {
        Ok(ranks) => ranks,
        Err(error) => {
            failed(NOT_STARTED, &error);
            return NOT_STARTED;
        }
    };
    let status = ranks::wait(&mut ranks, None, failed);
    ranks::end(ranks);
    if status == 0 {
        let _ = answers.send(Answer::Done);
    }
    status
}

/// A port that is free on all addresses, IPv4's too.
fn free_port() -> io::Result<u16> {
    let six = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0));
    let listener = six.or_else(|_| TcpListener::bind(("0.0.0.0", 0)))?;
    Ok(listener.local_addr()?.port())
}

fn read(heard: &Sender<String>) {
    for line in io::stdin().lock().lines() {
        if line.is_ok_and(|line| heard.send(line).is_ok()) {
            continue;
        }
        return;
    }
}

/// Writes the answers, and signs of life between them.
fn write(said: &Receiver<Answer>, pause: Duration, mut to: impl Write) {
    loop {
        let answer = match said.recv_timeout(pause) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => Answer::Alive,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let _ = to.write_all(&job::line(&answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps what is written, and its sender until a sign of life comes.
    struct Output<'a>(Option<Sender<Answer>>, &'a mut Vec<String>);

    impl Write for Output<'_> {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let words = String::from_utf8_lossy(line).into_owned();
            if words.contains("Alive") {
                self.0 = None;
            }
            self.1.push(words);
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn signs_of_life_come_between_answers() {
        let (sender, said) = mpsc::channel();
        sender.send(Answer::Done).unwrap();
        let mut lines = Vec::new();
        let output = Output(Some(sender), &mut lines);
        write(&said, Duration::from_millis(1), output);
        assert_eq!(lines, ["\"Done\"\n", "\"Alive\"\n"]);
    }
}
