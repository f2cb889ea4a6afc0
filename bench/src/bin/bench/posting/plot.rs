//! The steady lap with the doorbell in pinned memory and fences for the GPU, and what a NIC executed, as a drawing.

use warpbell_bench::svg::{self, Anchor, Drawing, MARGIN, Mark, Scale, WIDTH};

use super::csv::{Key, Row};
use super::executing::EXECUTED;
use super::polling::OVER;
use super::rig::Lap;

/// Height of a case: its name, and its dots below.
const CASE: f64 = 34.0;
/// From the edge of the plot to the dots.
const INSET: f64 = 10.0;

/// Whether a row is one of those of which something may be wanted.
fn is_drawn(row: &Row) -> bool {
    let Key {
        case,
        record,
        lap,
        doorbell,
        scope,
        ..
    } = &row.key;
    let steady = lap == Lap::Steady.name() || record.is_empty();
    // Such a row has the poll of the row before it.
    let is_new = !case.ends_with(OVER);
    lap == EXECUTED || steady && doorbell == "pinned" && scope == "gpu" && is_new
}

/// With a doorbell record, without one, and of a poll.
fn colour(row: &Row) -> usize {
    match &*row.key.record {
        "with" => 0,
        "without" => 1,
        _ => svg::COLOURS - 1,
    }
}

/// A dot for each case's cycles, and a ring for its floor, of such rows. None if there is no case to draw.
pub fn drawing(subtitle: &str, rows: impl IntoIterator<Item = Row>) -> Option<String> {
    let rows: Vec<_> = rows.into_iter().filter(is_drawn).collect();
    let figures = rows.iter().flat_map(|row| [Some(row.cycles), row.floor]);
    let figures = || figures.clone().flatten();
    let least = figures().fold(f64::INFINITY, f64::min);
    let greatest = figures().fold(0.0, f64::max);
    let numbers = match rows.is_empty() {
        true => return None,
        false => svg::round_numbers((least, greatest)),
    };
    let mut drawing = Drawing::new("Posting, polling, and writes executed", subtitle);
    let legend = [
        (
            Mark::Dot,
            0,
            "a post or an executed write, with a doorbell record",
        ),
        (
            Mark::Dot,
            1,
            "a post or an executed write, without a doorbell record",
        ),
        (Mark::Dot, svg::COLOURS - 1, "a poll"),
        (
            Mark::Ring,
            svg::COLOURS - 1,
            "the same stores, fences and loads by hand",
        ),
    ];
    drawing.legend(legend.into_iter());
    drawing.take(6.0);
    drawing.paragraph("cost (SM cycles for each WQE of all threads, or for each poll)");

    let (first, last) = (numbers.first()?, numbers.last()?);
    let edges = (MARGIN + INSET, WIDTH - MARGIN - INSET);
    let scale = Scale::new((*first, *last), edges);
    let top = drawing.take(20.0) + 18.0;
    let cases = rows.chunk_by(|one, other| one.key.case == other.key.case);
    let bottom = top + CASE * cases.clone().count() as f64;
    for number in &numbers {
        let x = scale.at(*number);
        let middle = x.clamp(MARGIN + 16.0, WIDTH - MARGIN - 20.0);
        drawing.text(
            "words",
            Anchor::Middle,
            (middle, top - 6.0),
            &svg::number(*number),
        );
        drawing.grid((x, top), (x, bottom));
    }
    for case in cases {
        let y = drawing.take(CASE);
        let name = case.first().map_or("", |row| &row.key.case);
        drawing.text("words", Anchor::Start, (MARGIN, y + 14.0), name);
        for row in case {
            drawing.circle(Mark::Dot, colour(row), (scale.at(row.cycles), y + 26.0));
            if let Some(floor) = row.floor {
                drawing.circle(Mark::Ring, colour(row), (scale.at(floor), y + 26.0));
            }
        }
    }
    Some(drawing.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_steady_lap_is_drawn() {
        let row = |lap: Lap| Row {
            key: Key {
                case: "a, b".into(),
                record: "with".into(),
                lap: lap.name().into(),
                doorbell: "pinned".into(),
                scope: "gpu".into(),
            },
            cycles: 12.5,
            floor: Some(11.0),
        };
        assert_eq!(drawing("", [row(Lap::First)]), None);
        let mut over = row(Lap::Steady);
        over.key.case += OVER;
        assert_eq!(drawing("", [over]), None);
        let drawn = drawing("a GPU", Lap::ALL.map(row)).unwrap();
        // The case's dot and ring, and the legend's four.
        assert_eq!(drawn.matches("<circle").count(), 6);
        assert!(drawn.contains(">a, b<") && drawn.contains(">a GPU<"));
        assert!(drawn.contains("viewBox") && drawn.contains("width=\"100%\""));
    }
}
