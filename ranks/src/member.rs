//! A rank's connection, seen from rank 0.

use std::collections::VecDeque;
use std::sync::Arc;

use zerocopy::IntoBytes;

use crate::message::{Body, ToRoot, decode};
use crate::stream::Stream;
use crate::wire::{Damaged, Frames, Session};

/// A rank that has joined.
pub(crate) struct Member {
    pub stream: Stream,
    sealer: Frames,
    opener: Frames,
    /// What is to be sent. All ranks share the body of an answer.
    pub outbox: VecDeque<Arc<[u8]>>,
    /// Bytes of the first one that have been sent.
    sent: usize,
}

impl Member {
    pub(crate) fn new(stream: Stream, session: &Session) -> Self {
        Self {
            stream,
            sealer: session.to_rank(),
            opener: session.to_root(),
            outbox: VecDeque::new(),
            sent: 0,
        }
    }

    pub(crate) fn say(&mut self, body: &Body) {
        let head = self.sealer.seal(body);
        self.outbox.push_back(head.as_bytes().into());
        if !body.bytes.is_empty() {
            self.outbox.push_back(body.bytes.clone());
        }
    }

    /// Sends what the system takes now; whether it took any.
    pub(crate) fn flush(&mut self) -> bool {
        let mut progress = false;
        while let Some(bytes) = self.outbox.front() {
            match self.stream.send_some(&bytes[self.sent..]) {
                Ok(0) => break,
                Ok(sent) => self.sent += sent,
                // What it said last may be there still: `serve` takes it, and finds the end.
                Err(_) => {
                    self.outbox.clear();
                    self.sent = 0;
                }
            }
            progress = true;
            if self
                .outbox
                .front()
                .is_some_and(|bytes| bytes.len() == self.sent)
            {
                self.outbox.pop_front();
                self.sent = 0;
            }
        }
        progress
    }

    /// The next message of what has come, and the bytes behind it.
    pub(crate) fn next_message(&mut self) -> Result<Option<(ToRoot, Vec<u8>)>, Damaged> {
        let Some(body) = self.opener.open(&mut self.stream.inbox)? else {
            return Ok(None);
        };
        let (message, behind) = decode(&body)?;
        Ok(Some((message, behind.into())))
    }
}
