//! What goes wrong, on standard error.

use std::io::{self, Write};
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::{GRACE, TICK};

/// Writes in a thread of its own: standard error may be a full pipe that nobody reads, and the ranks must end even so.
pub struct Complaints {
    to: Sender<String>,
    writer: JoinHandle<()>,
}

impl Complaints {
    pub fn start() -> Self {
        let (to, said) = mpsc::channel::<String>();
        let writer = thread::spawn(move || {
            for line in said {
                // Nobody may want to read it.
                let _ = io::stderr().write_all(line.as_bytes());
            }
        });
        Self { to, writer }
    }

    pub fn say(&self, words: &str) {
        // The writer ends only after this value.
        let _ = self.to.send(format!("warpbell-launch: {words}\n"));
    }

    /// Waits until all is written, but not for ever.
    pub fn end(self) {
        drop(self.to);
        let began = Instant::now();
        while !self.writer.is_finished() && began.elapsed() < GRACE {
            thread::sleep(TICK);
        }
    }
}
