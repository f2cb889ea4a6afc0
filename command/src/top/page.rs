//! The screen as a table for people.

use std::time::Duration;

use console::style;
use warpbell_host_init::live::NicCounters;

use super::{Line, Oldest, Screen, Side, State};
use crate::text::wrap;

/// What nobody but most NICs know.
const UNSEEN: &str =
    "Retries are shown of software NICs on the host alone: other NICs keep them to themselves.";

/// The queues as a table for people.
pub fn page(screen: &Screen, columns: usize) -> String {
    let mut page = String::new();
    let mut line = |text: &str| {
        page.push_str(text);
        page.push('\n');
    };
    let queues = screen.queues.len();
    let title = format!("process {}: {queues} queues", screen.pid);
    line(&style(title).bold().to_string());
    if queues == 0 {
        line("It has no queue pair now.");
        return page;
    }
    line("QPN       queue    depth  posted   done  free  oldest");
    for found in &screen.queues {
        let number =
            |value: Option<u32>| value.map_or_else(|| "-".into(), |value| value.to_string());
        let side = match found.queue {
            Side::Send => "send",
            Side::Receive => "receive",
        };
        line(&format!(
            "{:#08x}  {side:<7} {:>6} {:>7} {:>6} {:>5}  {}",
            found.qpn,
            found.depth,
            number(found.producer.map(u32::from)),
            number(found.consumer.map(u32::from)),
            number(found.credit),
            found.oldest.as_ref().map_or_else(|| "-".into(), oldest),
        ));
        let colour = match found.state {
            State::Failed => console::Style::new().red(),
            State::Waiting => console::Style::new().yellow(),
            State::Idle => console::Style::new().dim(),
            State::Unreadable => console::Style::new(),
        };
        let words = wrap("          ", &found.waits_for, columns);
        line(&colour.apply_to(words).to_string());
        if let Some(counted) = found.nic.as_ref().and_then(troubles) {
            line(&wrap("          ", &counted, columns));
        }
    }
    line("");
    if screen.left_out > 0 {
        let text = format!(
            "{} more queue pairs had no room in the process's table.",
            screen.left_out
        );
        line(&wrap("", &text, columns));
    }
    let is_unseen = |found: &Line| found.queue == Side::Send && found.nic.is_none();
    if screen.queues.iter().any(is_unseen) {
        line(&wrap("", UNSEEN, columns));
    }
    page
}

/// What a NIC has repeated, if anything.
fn troubles(nic: &NicCounters) -> Option<String> {
    let counts = [
        (nic.retries, "retries"),
        (nic.rnr_naks, "RNR NAKs"),
        (nic.duplicates, "duplicates"),
    ];
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts = Vec::from_iter(counts.map(|(count, what)| format!("{count} {what}")));
    (!counts.is_empty()).then(|| format!("the NIC has counted {}", counts.join(", ")))
}

fn oldest(oldest: &Oldest) -> String {
    let opcode = oldest.opcode.as_deref().unwrap_or("receive");
    let seen = Duration::from_millis(oldest.seen_ms).as_secs_f64();
    format!("{:#06x} {opcode}, {seen:.1} s", oldest.index)
}
