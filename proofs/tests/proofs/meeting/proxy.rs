//! Stands between a client and an `ib_write_bw`, and looks into the server's memory before it passes on what the
//! client says: when all is written, the client says so, and the server still waits.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use warpbell_strangers::perftest::Destination;

/// Where the server's queue pair begins in what it says, and how long that is.
const QUEUE_PAIR: (usize, usize) = (26, 108);

pub struct Proxy {
    port: u16,
    seen: Arc<AtomicBool>,
}

impl Proxy {
    /// Listens for one client, for the server at a port; `data` are to come into the memory of the process.
    pub fn start(server: u16, process: u32, data: Vec<u8>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let seen = Arc::new(AtomicBool::new(false));
        let told = seen.clone();
        thread::spawn(move || {
            let (client, _) = listener.accept().unwrap();
            let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).unwrap();
            let heard = Mutex::new(Vec::new());
            thread::scope(|scope| {
                scope.spawn(|| {
                    pass(&server, &client, |words| {
                        heard.lock().unwrap().extend(words)
                    })
                });
                pass(&client, &server, |_| {
                    let address = address(&heard.lock().unwrap());
                    if address.is_some_and(|address| lies_there(process, address, &data)) {
                        told.store(true, Ordering::Relaxed);
                    }
                });
            });
        });
        Self { port, seen }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether the data were in the server's memory before it heard the client's last word.
    pub fn has_seen_the_data(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }
}

/// Passes on all words, each after a look at it.
fn pass(mut from: &TcpStream, mut to: &TcpStream, mut look: impl FnMut(&[u8])) {
    let mut words = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut words) {
        look(&words[..count]);
        if to.write_all(&words[..count]).is_err() {
            break;
        }
    }
    // The other end may have gone.
    let _ = to.shutdown(Shutdown::Write);
}

/// Where the server's memory is, once it has told.
fn address(heard: &[u8]) -> Option<u64> {
    let (begin, bytes) = QUEUE_PAIR;
    let message = heard.get(begin..begin + bytes)?.try_into().ok()?;
    Some(Destination::of_message(message).unwrap().address)
}

fn lies_there(process: u32, address: u64, data: &[u8]) -> bool {
    let read = || -> io::Result<Vec<u8>> {
        let mut found = vec![0; data.len()];
        File::open(format!("/proc/{process}/mem"))?.read_exact_at(&mut found, address)?;
        Ok(found)
    };
    // A server with less memory, or none any more.
    read().is_ok_and(|found| found == data)
}
