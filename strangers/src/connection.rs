//! A TCP connection on which every step has a deadline.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::{Conversation, Error};

/// Between two looks for a client.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// How many clients may owe their first words at once; one more ends the connection of the first.
const MOST_SILENT: usize = 64;

/// A client's first words, with which it shows that it means it.
#[derive(Clone, Copy, Debug)]
pub struct FirstWords {
    /// What they are, for errors.
    pub what: &'static str,
    /// Their bytes, at least 1.
    pub bytes: usize,
}

/// A TCP connection on which every step has a deadline.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// How long each message may take.
    patience: Duration,
}

impl Connection {
    /// Connects to a server, at the first address of the host at which one listens. Each address may take as long as
    /// each message later, `patience`.
    ///
    /// # Errors
    /// [`Error::NoHost`], [`Error::NoServer`].
    pub fn call(host: &str, port: u16, patience: Duration) -> Result<Self, Error> {
        let no_host = |source| Error::NoHost {
            host: host.into(),
            source,
        };
        let mut last = io::Error::from(ErrorKind::NotFound);
        for address in (host, port).to_socket_addrs().map_err(no_host)? {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => return Ok(Self { stream, patience }),
                Err(error) => last = error,
            }
        }
        Err(Error::NoServer {
            host: host.into(),
            port,
            source: last,
        })
    }

    /// Waits at an address of this machine for a client that says its first words, at most for `patience`, which is what
    /// each message may take later. The first client to say them all is served, however many have called before it that
    /// are silent, or stop within them.
    ///
    /// # Errors
    /// [`Error::Port`]; [`Error::TimedOut`] if there were clients who did not come to an end of their first words;
    /// [`Error::NoClient`].
    pub fn await_call(
        address: IpAddr,
        port: u16,
        first: FirstWords,
        patience: Duration,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Port { port, source };
        let listener = TcpListener::bind((address, port)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let deadline = Instant::now() + patience;
        let (mut silent, mut heard) = (VecDeque::new(), vec![0; first.bytes]);
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true).map_err(Error::Stream)?;
                    if silent.len() == MOST_SILENT {
                        silent.pop_front();
                    }
                    silent.push_back(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => sleep(LOOK_AGAIN),
                // The caller has gone before it was taken.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(failed(error)),
            }
            silent.retain(|stream| !has_gone(stream));
            let mut said = |stream: &TcpStream| stream.peek(&mut heard).unwrap_or(0);
            let speaks = silent.iter().position(|one| said(one) == first.bytes);
            if let Some(stream) = speaks.and_then(|at| silent.remove(at)) {
                stream.set_nonblocking(false).map_err(Error::Stream)?;
                return Ok(Self { stream, patience });
            }
            if Instant::now() >= deadline {
                let what = first.what;
                return Err(match silent.iter().any(|one| said(one) > 0) {
                    true => Error::TimedOut { what, patience },
                    false => Error::NoClient { port, patience },
                });
            }
        }
    }

    /// Moves all bytes of a message, some at a time.
    fn all(
        &mut self,
        what: &'static str,
        bytes: usize,
        mut some: impl FnMut(&mut TcpStream, usize) -> io::Result<usize>,
        set: impl Fn(&TcpStream, Option<Duration>) -> io::Result<()>,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + self.patience;
        let mut done = 0;
        while done < bytes {
            let left = deadline.saturating_duration_since(Instant::now());
            // Zero would mean for ever.
            let left = left.max(Duration::from_micros(1));
            set(&self.stream, Some(left)).map_err(Error::Stream)?;
            match some(&mut self.stream, done) {
                Ok(0) => return Err(Error::Closed { what, done, bytes }),
                Ok(more) => done += more,
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted if Instant::now() < deadline => {}
                    ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                        return Err(Error::TimedOut {
                            what,
                            patience: self.patience,
                        });
                    }
                    ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => {
                        return Err(Error::Closed { what, done, bytes });
                    }
                    _ => return Err(Error::Stream(error)),
                },
            }
        }
        Ok(())
    }
}

/// Whether a client has closed the connection before it said anything.
fn has_gone(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(bytes) => bytes == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
    }
}

impl Conversation for Connection {
    fn say(&mut self, what: &'static str, bytes: &[u8]) -> Result<(), Error> {
        let some = |stream: &mut TcpStream, done: usize| stream.write(&bytes[done..]);
        self.all(what, bytes.len(), some, TcpStream::set_write_timeout)
    }

    fn hear(&mut self, what: &'static str, into: &mut [u8]) -> Result<(), Error> {
        let bytes = into.len();
        let some = |stream: &mut TcpStream, done: usize| stream.read(&mut into[done..]);
        self.all(what, bytes, some, TcpStream::set_read_timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::thread;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// For what never comes.
    const SOON: Duration = Duration::from_millis(100);
    /// For what comes, on a machine that is busy with other things.
    const PATIENCE: Duration = Duration::from_secs(300);
    const WORD: FirstWords = FirstWords {
        what: "a word",
        bytes: 4,
    };

    /// A server's connection whose client does this; the port is anyone's.
    fn server(patience: Duration, client: impl FnOnce(TcpStream) + Send + 'static) -> Connection {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || client(TcpStream::connect(address).unwrap()));
        Connection {
            stream: listener.accept().unwrap().0,
            patience,
        }
    }

    #[test]
    fn whole_messages_come_in_pieces() {
        let mut connection = server(PATIENCE, |mut client| {
            for piece in [&b"on"[..], b"e", b"two"] {
                client.write_all(piece).unwrap();
                sleep(Duration::from_millis(5));
            }
            let mut answer = [0; 2];
            client.read_exact(&mut answer).unwrap();
            client.write_all(&answer).unwrap();
        });
        let mut heard = [0; 6];
        connection.hear("words", &mut heard).unwrap();
        assert_eq!(heard, *b"onetwo");
        connection.say("an answer", b"ok").unwrap();
        connection.hear("it again", &mut heard[..2]).unwrap();
        assert_eq!(heard[..2], *b"ok");
    }

    #[test]
    fn who_is_silent_or_gone_is_named() {
        let (end, over) = std::sync::mpsc::channel::<()>();
        let mut silent = server(SOON, move |client| {
            let _ = over.recv();
            drop(client);
        });
        let error = silent.hear("a word", &mut [0; 4]).unwrap_err();
        assert_matches!(error => Error::TimedOut { what: "a word", .. });
        drop(end);

        let mut gone = server(PATIENCE, |mut client| client.write_all(b"wo").unwrap());
        let error = gone.hear("a word", &mut [0; 4]).unwrap_err();
        assert_matches!(error => Error::Closed { what: "a word", done: 2, bytes: 4 });
        // It learns only from the answer to its first words that nobody is there any more.
        let error = loop {
            if let Err(error) = gone.say("an answer", b"none") {
                break error;
            }
        };
        assert_matches!(error => Error::Closed { done: 0, .. });
    }

    /// One byte at a time keeps nobody waiting for longer than his patience.
    #[test]
    fn who_is_slow_has_a_deadline_too() {
        let mut slow = server(SOON, |mut client| {
            while client.write_all(b"w").is_ok() {
                sleep(SOON / 4);
            }
        });
        // It would have them all after 25 s.
        let error = slow.hear("a long word", &mut [0; 1000]).unwrap_err();
        assert_matches!(error => Error::TimedOut { .. });
    }

    #[test]
    fn nobody_there_is_named() {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        let error = Connection::await_call(HERE, port, WORD, SOON).unwrap_err();
        assert!(matches!(error, Error::Port { .. }), "taken: {error}");
        drop(free);
        let error = Connection::call("127.0.0.1", port, SOON).unwrap_err();
        assert_matches!(error => Error::NoServer { .. });
        let error = Connection::call("no host.invalid", port, SOON).unwrap_err();
        assert_matches!(error => Error::NoHost { .. });
        let error = Connection::await_call(HERE, port, WORD, SOON).unwrap_err();
        assert_matches!(error => Error::NoClient { .. });
    }

    /// Clients that are silent, go without a word or stop within their first one keep nobody waiting.
    #[test]
    fn the_first_client_that_speaks_is_served() {
        let free = TcpListener::bind((HERE, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let server = thread::spawn(move || {
            let mut connection = Connection::await_call(HERE, port, WORD, PATIENCE)?;
            let mut heard = [0; 4];
            connection.hear("a word", &mut heard).map(|()| heard)
        });
        let deadline = Instant::now() + PATIENCE;
        let call = || loop {
            match TcpStream::connect((HERE, port)) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            sleep(LOOK_AGAIN);
        };
        let _silent: Vec<_> = (0..MOST_SILENT + 3).map(|_| call()).collect();
        drop(call());
        let mut stops = call();
        stops.write_all(b"wor").unwrap();
        let mut breaks_off = call();
        breaks_off.write_all(b"w").unwrap();
        drop(breaks_off);
        let mut speaks = call();
        speaks.write_all(b"word").unwrap();
        assert_eq!(server.join().unwrap().unwrap(), *b"word");
    }

    #[test]
    fn clients_that_all_stop_within_their_first_word_are_told_from_none() {
        // On a busy machine a client may come too late: then once more, with more patience.
        let error = [1, 10, 100]
            .map(Duration::from_secs)
            .into_iter()
            .find_map(|patience| {
                let free = TcpListener::bind((HERE, 0)).unwrap();
                let port = free.local_addr().unwrap().port();
                drop(free);
                let server =
                    thread::spawn(move || Connection::await_call(HERE, port, WORD, patience));
                let stops = loop {
                    match TcpStream::connect((HERE, port)) {
                        Ok(mut stream) => break stream.write_all(b"wor").is_ok().then_some(stream),
                        Err(_) if server.is_finished() => break None,
                        Err(_) => sleep(LOOK_AGAIN),
                    }
                };
                let error = server.join().unwrap().unwrap_err();
                drop(stops);
                (!matches!(error, Error::NoClient { .. })).then_some(error)
            });
        assert_matches!(error => Some(Error::TimedOut { what: "a word", .. }));
    }
}
