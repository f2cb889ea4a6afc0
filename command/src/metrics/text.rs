//! The text format of Prometheus.

use std::fmt::Write;

use warpbell_host_init::live::NicCounters;

use crate::top::{Line, Screen, Side, State};

/// What is told of each queue.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    /// None if it is not known of the queue.
    value: fn(&Line) -> Option<u64>,
}

const fn gauge(name: &'static str, help: &'static str, value: fn(&Line) -> Option<u64>) -> Metric {
    let kind = "gauge";
    Metric {
        name,
        kind,
        help,
        value,
    }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    value: fn(&Line) -> Option<u64>,
) -> Metric {
    let kind = "counter";
    Metric {
        name,
        kind,
        help,
        value,
    }
}

const METRICS: [Metric; 11] = [
    counter(
        "warpbell_queue_posted_total",
        "Blocks of 64 bytes posted to a send queue, or receives posted to a receive queue.",
        |line| line.posted,
    ),
    counter(
        "warpbell_queue_completed_total",
        "Blocks or receives that completed.",
        |line| line.completed,
    ),
    gauge(
        "warpbell_queue_depth",
        "Blocks or receives of the ring.",
        |line| Some(line.depth.into()),
    ),
    gauge(
        "warpbell_queue_credit",
        "Blocks or receives that may be posted now.",
        |line| line.credit.map(u64::from),
    ),
    gauge(
        "warpbell_queue_errors",
        "CQEs in the completion queue that report an error.",
        |line| line.producer.map(|_| line.errors as u64),
    ),
    counter(
        "warpbell_nic_completed_total",
        "Send WQEs that the software NIC completed without an error.",
        |line| nic(line, |nic| nic.completed),
    ),
    counter(
        "warpbell_nic_received_total",
        "Receive WQEs that the software NIC completed without an error.",
        |line| nic(line, |nic| nic.received),
    ),
    counter(
        "warpbell_nic_errors_total",
        "WQEs that ended in error at the software NIC, or were flushed.",
        |line| nic(line, |nic| nic.errors),
    ),
    counter(
        "warpbell_nic_retries_total",
        "Times that the software NIC went back to an earlier packet.",
        |line| nic(line, |nic| nic.retries),
    ),
    counter(
        "warpbell_nic_rnr_naks_total",
        "RNR NAKs that the software NIC received: the other end had no receive posted.",
        |line| nic(line, |nic| nic.rnr_naks),
    ),
    counter(
        "warpbell_nic_duplicates_total",
        "Packets that the software NIC received twice.",
        |line| nic(line, |nic| nic.duplicates),
    ),
];

/// Those with values or labels of another kind.
const UP: &str = "warpbell_up";
const LEFT_OUT: &str = "warpbell_queue_pairs_left_out";
const OLDEST: &str = "warpbell_queue_oldest_seconds";
const STATE: &str = "warpbell_queue_state";

const STATES: [(State, &str); 4] = [
    (State::Idle, "idle"),
    (State::Waiting, "waiting"),
    (State::Failed, "failed"),
    (State::Unreadable, "unreadable"),
];

fn nic(line: &Line, value: fn(&NicCounters) -> u64) -> Option<u64> {
    line.nic.as_ref().map(value)
}

/// The names of all metrics.
pub fn names() -> impl Iterator<Item = &'static str> {
    let of_queues = METRICS.iter().map(|metric| metric.name);
    of_queues.chain([UP, LEFT_OUT, OLDEST, STATE])
}

/// The metrics of processes, by their numbers. One that cannot be read has no screen.
pub fn of(looks: &[(u32, Option<Screen>)]) -> String {
    let mut page = Page::default();
    page.head(
        UP,
        "gauge",
        "1 if the queues of the process can be read, 0 once it has ended.",
    );
    for (pid, screen) in looks {
        page.sample(UP, &format!("pid=\"{pid}\""), u8::from(screen.is_some()));
    }
    let screens = || looks.iter().filter_map(|(_, screen)| screen.as_ref());
    let lines =
        || screens().flat_map(|screen| screen.queues.iter().map(move |line| (screen, line)));
    page.head(
        LEFT_OUT,
        "gauge",
        "Queue pairs that the process's table had no room for.",
    );
    for screen in screens() {
        page.sample(
            LEFT_OUT,
            &format!("pid=\"{}\"", screen.pid),
            screen.left_out,
        );
    }
    for metric in &METRICS {
        page.head(metric.name, metric.kind, metric.help);
        for (screen, line) in lines() {
            if let Some(value) = (metric.value)(line) {
                page.sample(metric.name, &labels(screen, line), value);
            }
        }
    }
    page.head(
        OLDEST,
        "gauge",
        "How long the oldest request or receive under way was seen as the oldest; 0 without one.",
    );
    for (screen, line) in lines().filter(|(_, line)| line.producer.is_some()) {
        let ms = line.oldest.as_ref().map_or(0, |oldest| oldest.seen_ms);
        page.sample(OLDEST, &labels(screen, line), ms as f64 / 1e3);
    }
    page.head(STATE, "gauge", "1 for the state that the queue is in.");
    for (screen, line) in lines() {
        for (state, name) in STATES {
            let labels = format!("{},state=\"{name}\"", labels(screen, line));
            page.sample(STATE, &labels, u8::from(line.state == state));
        }
    }
    page.0
}

/// A queue's labels. No value has a character that must be escaped.
fn labels(screen: &Screen, line: &Line) -> String {
    let queue = match line.queue {
        Side::Send => "send",
        Side::Receive => "receive",
    };
    let (pid, qpn, device) = (screen.pid, line.qpn, &line.device);
    format!("pid=\"{pid}\",qpn=\"{qpn:#08x}\",queue=\"{queue}\",device=\"{device}\"")
}

/// A text that takes all that is written to it.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl std::fmt::Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }
}
