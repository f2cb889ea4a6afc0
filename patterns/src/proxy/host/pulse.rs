//! What others see of a thread that asks owners, and how long they wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::crew::PATIENCE;
use super::job::LAST_WORDS;

/// How long a queue's owner waits for a thread that asks and answers nothing: for one question that it may be at, for
/// the end of the service, and as long again for a system that gives it no time.
const STILL: Duration = PATIENCE.saturating_add(LAST_WORDS.saturating_mul(2));
/// How long it waits in all, whatever the thread does.
const LONGEST: Duration = Duration::from_secs(120);

/// A thread's heartbeat, where it may stop, and whether it has been given up.
///
/// All of it is relaxed: whoever looks at it takes nothing from it, and what must not be mixed up has the lock of a
/// seat.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    /// Questions and answers of owners, so odd while one is asked.
    questions: AtomicU64,
    replaced: AtomicBool,
}

impl Pulse {
    /// Begins a question; gives its number, which is odd.
    pub fn ask(&self) -> u64 {
        self.questions.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Ends the question.
    pub fn answer(&self) {
        self.questions.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of the open question, or, if it is even, of the last answer.
    pub fn questions(&self) -> u64 {
        self.questions.load(Ordering::Relaxed)
    }

    /// Gives the thread up: another one gets its queues.
    pub fn replace(&self) {
        self.replaced.store(true, Ordering::Relaxed);
    }

    /// Whether another thread has its queues, or gets them.
    pub fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Relaxed)
    }
}

/// How far the thread has come that has a queue.
#[derive(Debug)]
pub(super) struct Progress {
    pub thread: Arc<Pulse>,
    pub questions: u64,
}

impl PartialEq for Progress {
    fn eq(&self, other: &Self) -> bool {
        // Both are alive, so that no new thread is where an old one was.
        Arc::ptr_eq(&self.thread, &other.thread) && self.questions == other.questions
    }
}

/// A wait for a thread, as long as that comes on.
#[derive(Debug)]
pub(super) struct Wait {
    began: Instant,
    /// The last progress, and when it was seen.
    last: Progress,
    since: Instant,
}

impl Wait {
    pub fn begin(progress: Progress, now: Instant) -> Self {
        Self {
            began: now,
            last: progress,
            since: now,
        }
    }

    /// Whether it has lasted too long.
    pub fn is_over(&mut self, progress: Progress, now: Instant) -> bool {
        if progress != self.last {
            (self.last, self.since) = (progress, now);
        }
        now - self.since > STILL || now - self.began > LONGEST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_begins_anew_with_each_question_and_each_thread_but_not_for_ever() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let threads = [Arc::new(Pulse::default()), Arc::new(Pulse::default())];
        let progress = |thread: usize| Progress {
            questions: threads[thread].questions(),
            thread: Arc::clone(&threads[thread]),
        };
        let mut wait = Wait::begin(progress(0), begin);
        assert!(!wait.is_over(progress(0), at(4)));
        threads[0].ask();
        assert!(!wait.is_over(progress(0), at(8)), "a question");
        threads[0].answer();
        assert!(!wait.is_over(progress(0), at(12)), "an answer");
        assert!(!wait.is_over(progress(0), at(16)));
        assert!(!wait.is_over(progress(1), at(17)), "another thread");
        threads[1].ask();
        threads[1].answer();
        assert!(!wait.is_over(progress(1), at(21)));
        assert!(!wait.is_over(progress(0), at(25)), "as many questions");
        assert!(wait.is_over(progress(0), at(30)), "nothing for 5 s");
        let mut wait = Wait::begin(progress(0), begin);
        for second in 1..=120 {
            threads[0].ask();
            assert!(!wait.is_over(progress(0), at(second)));
        }
        threads[0].ask();
        assert!(wait.is_over(progress(0), at(121)), "two minutes in all");
    }
}
