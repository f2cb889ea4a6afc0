//! The steady lap with the doorbell in pinned memory and fences for the GPU, and what a NIC executed, as a drawing.

use warpbell_bench::svg::{self, Anchor, Drawing, MARGIN, Mark, Scale, WIDTH};

use super::executing::EXECUTED;
use super::rig::Lap;

/// Height of a case: its name, and its dots below.
const CASE: f64 = 34.0;
/// From the edge of the plot to the dots.
const INSET: f64 = 10.0;

/// A row of the CSV file, as far as it is drawn.
struct Row<'t> {
    case: &'t str,
    record: &'t str,
    cycles: f64,
    floor: Option<f64>,
}

impl<'t> Row<'t> {
    /// The row in a line, if it is one of those of which something may be wanted.
    fn of(line: &'t str) -> Option<Self> {
        let (case, rest) = line.strip_prefix('"')?.split_once("\",")?;
        let columns: Vec<_> = rest.split(',').collect();
        let [
            record,
            lap,
            doorbell,
            scope,
            _wqes,
            cycles,
            _min,
            _max,
            floor,
            ..,
        ] = columns[..]
        else {
            return None;
        };
        let steady = lap == Lap::Steady.name() || record.is_empty();
        let drawn = lap == EXECUTED || steady && doorbell == "pinned" && scope == "gpu";
        drawn.then_some(Self {
            case,
            record,
            cycles: cycles.parse().ok()?,
            floor: floor.parse().ok(),
        })
    }

    /// With a doorbell record, without one, and of a poll.
    fn colour(&self) -> usize {
        match self.record {
            "with" => 0,
            "without" => 1,
            _ => svg::COLOURS - 1,
        }
    }
}

/// A dot for each case's cycles, and a ring for its floor, of a [CSV file](super::table::csv). None if it has no case to
/// draw.
pub fn drawing(subtitle: &str, csv: &str) -> Option<String> {
    let rows: Vec<_> = csv.lines().filter_map(Row::of).collect();
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
    let cases = rows.chunk_by(|one, other| one.case == other.case);
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
        let name = case.first().map_or("", |row| row.case);
        drawing.text("words", Anchor::Start, (MARGIN, y + 14.0), name);
        for row in case {
            drawing.circle(Mark::Dot, row.colour(), (scale.at(row.cycles), y + 26.0));
            if let Some(floor) = row.floor {
                drawing.circle(Mark::Ring, row.colour(), (scale.at(floor), y + 26.0));
            }
        }
    }
    Some(drawing.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "case,record,lap,doorbell,scope,wqes,cycles,cycles_min,cycles_max,floor\n";

    #[test]
    fn only_the_steady_lap_is_drawn() {
        let row = |lap| format!("\"a, b\",with,{lap},pinned,gpu,9,12.5,12,13,11.0,1.1,1.0,,\n");
        let (first, steady) = (row(Lap::First.name()), row(Lap::Steady.name()));
        assert_eq!(drawing("", &format!("{HEAD}{first}")), None);
        let drawn = drawing("a GPU", &format!("{HEAD}{first}{steady}")).unwrap();
        // The case's dot and ring, and the legend's four.
        assert_eq!(drawn.matches("<circle").count(), 6);
        assert!(drawn.contains(">a, b<") && drawn.contains(">a GPU<"));
        assert!(drawn.contains("viewBox") && drawn.contains("width=\"100%\""));
    }
}
