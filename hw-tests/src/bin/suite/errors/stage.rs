//! What most error tests need: a connection, memory at both ends, and the checks after an error.

use warpbell::wqe::{CompletionError, Opcode, QpNumber, Side, Syndrome, VendorCode, WqeIndex};
use warpbell::{Cause, OpenError, QueueError, SendQueueHandle, WaitError};
use warpbell_host_init::{Completions, Error, QueuePair, QueuePairConfig, State};
use warpbell_hw_tests::arena::{Arena, Image};
use warpbell_hw_tests::model;
use warpbell_hw_tests::post::{Posting, ample, expect_done};
use warpbell_hw_tests::sides::{ALL_ACCESS, Pair, Sides};
use warpbell_kernels::suite::{Ending, Request, Verb, Waiting};

/// Bytes of each arena: more than one packet holds.
pub const LENGTH: u32 = 200_000;

/// A connection with memory at both ends.
pub struct Stage {
    pub sides: Sides,
    pub pair: Pair,
    pub ours: Arena,
    pub theirs: Arena,
}

/// How all memory looks.
pub struct Images {
    pub ours: Image,
    pub theirs: Image,
}

impl Stage {
    pub fn new(config: &QueuePairConfig) -> Self {
        Self::on(Sides::chosen(), config)
    }

    pub fn on(sides: Sides, config: &QueuePairConfig) -> Self {
        Self {
            pair: sides.pair(config),
            ours: sides.ours.arena(LENGTH as usize, ALL_ACCESS, 1),
            theirs: sides.theirs.arena(LENGTH as usize, ALL_ACCESS, 2),
            sides,
        }
    }

    pub fn queue(&self) -> SendQueueHandle<'_> {
        self.pair.ours.send_queue().expect("a send queue")
    }

    pub fn images(&self) -> Images {
        Images {
            ours: self.ours.image(),
            theirs: self.theirs.image(),
        }
    }

    #[track_caller]
    pub fn check(&self, expected: &Images, what: &str) {
        self.ours.check(&expected.ours, &format!("{what}: ours"));
        self.theirs
            .check(&expected.theirs, &format!("{what}: theirs"));
    }

    /// A request that is fine: 8 new bytes to the start of the peer's memory.
    pub fn good(&self, value: u64) -> Request {
        Request::new(Verb::WriteValue)
            .remote(self.theirs.remote(0))
            .values([value, 0, 0, 0])
    }

    /// The error of a request of our send queue.
    pub fn error(
        &self,
        index: u16,
        opcode: Opcode,
        (syndrome, vendor): (Syndrome, VendorCode),
    ) -> QueueError {
        QueueError::new(Cause::Completion(CompletionError {
            side: Side::Requester,
            syndrome,
            vendor,
            wqe_index: WqeIndex(index),
            opcode,
            qpn: QpNumber::from_low_bits(self.pair.ours.qpn()),
        }))
    }

    /// What everybody sees of a send queue that has failed with `error`.
    #[track_caller]
    pub fn check_failed(&self, queue: SendQueueHandle<'_>, error: QueueError, what: &str) {
        let ours = &self.pair.ours;
        assert_eq!(
            ours.first_error(),
            Some(error),
            "{what}: what the host sees"
        );
        assert_eq!(state(ours), State::Error, "{what}");
        assert!(
            matches!(
                ours.send_queue(),
                Err(Error::NotReady {
                    state: State::Error,
                    ..
                })
            ),
            "{what}: no new handle"
        );
        let refused = Ending::Failed(OpenError::Failed(error).into());
        let nop = Request::new(Verb::Nop);
        let endings = Posting::default().post(queue, &[nop, nop]);
        assert_eq!(endings, [refused; 2], "{what}: an old handle");
    }

    /// Resets both ends, and sees that the queue works again.
    #[track_caller]
    pub fn renew(&mut self, what: &str) {
        self.pair.renew();
        assert_eq!(
            self.pair.ours.first_error(),
            None,
            "{what}: after the reset"
        );
        let mut expected = self.images();
        let read = Request::new(Verb::Read)
            .local(&[self.ours.local(64, 100)])
            .remote(self.theirs.remote(640));
        let requests = [self.good(0x0123_4567_89ab_cdef), read];
        for request in &requests {
            model::apply(request, &mut expected.ours, &mut expected.theirs);
        }
        let endings = Posting::default().post(self.queue(), &requests);
        expect_done(&endings, &format!("{what}: traffic after the reset"));
        self.check(&expected, &format!("{what}: traffic after the reset"));
    }

    /// Posts a good request, the bad one, and another good one behind it: the first is done, the second fails, the third
    /// is flushed and fails with the second's error, and no memory changes but by the first. The bad one asks for no
    /// completion, as data ahead of its flag does. Where completions are collapsed, the bad one is the last, and asks.
    #[track_caller]
    pub fn fails(
        &mut self,
        what: &str,
        bad: Request,
        opcode: Opcode,
        cause: (Syndrome, VendorCode),
        completions: Completions,
    ) {
        let first = self.good(what.len() as u64);
        let mut expected = self.images();
        model::apply(&first, &mut expected.ours, &mut expected.theirs);
        let before = self.pair.ours.send_progress().published;
        let error = self.error(before as u16 + 1, opcode, cause);
        let failed = Ending::Failed(WaitError::Failed(error).into());
        let (requests, endings) = match completions {
            Completions::Collapsed => (vec![first, bad], vec![Ending::Done, failed]),
            Completions::Ordinary { .. } => (
                vec![first, bad.unsignalled(), self.good(0)],
                vec![Ending::Done, failed, failed],
            ),
        };
        let posting = Posting::with(Waiting::AfterAll, ample());
        let queue = self.queue();
        assert_eq!(posting.post(queue, &requests), endings, "{what}");
        self.check(&expected, what);
        self.check_failed(queue, error, what);
        self.renew(what);
    }
}

pub fn state(pair: &QueuePair) -> State {
    pair.state().expect("a state")
}
