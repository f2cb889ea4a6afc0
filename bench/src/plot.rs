//! Plots of what was measured over a number of bytes, or another number, as SVG.

use std::fs;
use std::path::{Path, PathBuf};

use crate::run::error::Nested;
use crate::run::{interrupt, place, screen};
use clap::Args;
use warpbell_host_init::Node;

use crate::Error;
use crate::origin::Origin;
use crate::setting::Setting;
use crate::svg::{self, Anchor, Drawing, MARGIN, Mark, Scale, WIDTH};

/// What becomes of the results.
#[derive(Args, Clone, Debug)]
pub struct Output {
    /// One JSON document instead of a table
    #[arg(long)]
    pub json: bool,
    /// Draw the results, too
    #[arg(long, value_name = "PATH")]
    svg: Option<PathBuf>,
}

impl Output {
    /// Writes a drawing, where one was asked for and there is something to draw.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, drawing: impl FnOnce() -> Option<String>) -> Result<(), Error> {
        match &self.svg {
            Some(path) => drawing().map_or(Ok(()), |text| write(path, &text)),
            None => Ok(()),
        }
    }

    /// Ends an application: draws its panels, where that was asked for, and says whether so many of all results
    /// were wrong, or Ctrl-C has ended it early.
    ///
    /// # Errors
    /// A file that cannot be written; wrong results; an end by Ctrl-C.
    pub fn end<E: From<Error> + Nested>(
        &self,
        title: &str,
        setting: &Setting,
        panels: &[Panel],
        (wrong, all): (usize, usize),
    ) -> Result<(), E> {
        self.write(|| svg(title, &setting.origin, &setting.node, panels))?;
        crate::run::Error::if_wrong(wrong, all)?;
        Ok(interrupt::check()?)
    }
}

/// Writes a drawing to a file.
///
/// # Errors
/// A file that cannot be written.
pub fn write(path: &Path, drawing: &str) -> Result<(), Error> {
    fs::write(path, drawing).map_err(|source| Error::Plot {
        what: path.display().to_string(),
        source: source.into(),
    })
}

/// The results as a drawing; none where a panel has no points.
pub fn svg(title: &str, origin: &Origin, node: &Node, panels: &[Panel]) -> Option<String> {
    let title = format!("{title}, NIC {}", node.nic_name());
    drawing(&title, &origin.line(&place::words(node)), panels)
}

/// A curve.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its name in the legend.
    pub name: String,
    /// Bytes or another number, and what was measured with them, above 0.
    pub points: Vec<(f64, f64)>,
}

/// Curves of the same quantity.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The quantity and its unit: "latency (µs)".
    pub quantity: &'static str,
    /// What it is measured over, and its unit: "message size (bytes)".
    pub over: &'static str,
    /// One after the other in the legend.
    pub curves: Vec<Curve>,
}

/// Height of a panel's plot.
const HEIGHT: f64 = 220.0;
/// What the numbers beside a plot take.
const NUMBERS: f64 = 44.0;
/// From a plot's edge to the curves, so that no dot is cut.
const INSET: f64 = 8.0;

/// Draws panels below each other, with logarithmic axes, and below them one legend for all; their curves have the same
/// names in the same order. None where a panel has no points.
pub fn drawing(title: &str, subtitle: &str, panels: &[Panel]) -> Option<String> {
    let empty = |panel: &Panel| panel.curves.iter().all(|curve| curve.points.is_empty());
    if panels.iter().any(empty) {
        return None;
    }
    let mut drawing = Drawing::new(title, subtitle);
    for panel in panels {
        draw(&mut drawing, panel);
    }
    let curves = panels.first()?.curves.iter().enumerate();
    drawing.legend(curves.map(|(colour, curve)| (Mark::Curve, colour, curve.name.as_str())));
    Some(drawing.finish())
}

fn draw(drawing: &mut Drawing, panel: &Panel) {
    drawing.take(INSET);
    drawing.paragraph(panel.quantity);
    let top = drawing.take(HEIGHT) + INSET;
    let bottom = top + HEIGHT - 2.0 * INSET;
    let (left, right) = (MARGIN + NUMBERS, WIDTH - MARGIN);
    let all = || panel.curves.iter().flat_map(|curve| &curve.points);

    let values = range(all().map(|point| point.1));
    let numbers = svg::round_numbers(values);
    let values = ends(numbers.iter().copied(), values);
    let vertical = Scale::new(values, (bottom, top));
    for number in numbers {
        let y = vertical.at(number);
        drawing.grid((left, y), (right, y));
        let at = (left - 6.0, y + 4.0);
        drawing.text("words", Anchor::End, at, &svg::number(number));
    }

    let sizes = range(all().map(|point| point.0));
    let horizontal = Scale::new(sizes, (left + INSET, right - INSET));
    let below = drawing.take(20.0) + 12.0;
    for (number, text) in numbers_below(panel, sizes) {
        let x = horizontal.at(number);
        drawing.grid((x, top), (x, bottom));
        // The outermost are within the drawing, too.
        let middle = x.clamp(left + 8.0, right - 18.0);
        drawing.text("words", Anchor::Middle, (middle, below), &text);
    }
    let caption = drawing.take(22.0) + 12.0;
    let middle = (left + right) / 2.0;
    drawing.text("words", Anchor::Middle, (middle, caption), panel.over);

    let place = |&(x, y): &(f64, f64)| (horizontal.at(x), vertical.at(y));
    for (colour, curve) in panel.curves.iter().enumerate() {
        drawing.curve(colour, curve.points.iter().map(place));
        for point in &curve.points {
            drawing.circle(Mark::Curve, colour, place(point));
        }
    }
}

/// From the least to the greatest value. A scale has to have a length.
fn range(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let greatest = values.fold(0.0, f64::max);
    match greatest > least {
        true => (least, greatest),
        false => (least / 2.0, least * 2.0),
    }
}

/// From the first to the last number, or what there was before if they are one.
fn ends(mut numbers: impl DoubleEndedIterator<Item = f64>, before: (f64, f64)) -> (f64, f64) {
    match (numbers.next(), numbers.next_back()) {
        (Some(first), Some(last)) => (first, last),
        _ => before,
    }
}

/// At most so many numbers are below a plot.
const NUMBERS_BELOW: usize = 7;

/// The numbers below a plot: powers of two for bytes, and round ones for others.
fn numbers_below(panel: &Panel, (least, greatest): (f64, f64)) -> Vec<(f64, String)> {
    if !panel.over.ends_with("(bytes)") {
        let numbers = svg::round_numbers((least, greatest)).into_iter();
        let within = numbers.filter(|number| (least..=greatest).contains(number));
        return within.map(|number| (number, svg::number(number))).collect();
    }
    let powers = least.log2().ceil() as i32..=greatest.log2().floor() as i32;
    let step = powers.clone().count().div_ceil(NUMBERS_BELOW).max(1);
    let numbers = powers.step_by(step).map(|power| 2f64.powi(power));
    numbers
        .map(|number| (number, screen::bytes(number as u64)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(points: &[(f64, f64)]) -> Panel {
        Panel {
            quantity: "latency (µs)",
            over: "message size (bytes)",
            curves: vec![Curve {
                name: "median".into(),
                points: points.to_vec(),
            }],
        }
    }

    #[test]
    fn a_range_has_a_length() {
        assert_eq!(range([3.0, 1.0, 2.0].into_iter()), (1.0, 3.0));
        assert_eq!(range([8.0].into_iter()), (4.0, 16.0));
    }

    #[test]
    fn bytes_are_powers_of_two_and_few() {
        let of = |least, greatest| numbers_below(&panel(&[]), (least, greatest));
        let texts = |numbers: Vec<(f64, String)>| numbers.into_iter().map(|(_, text)| text);
        let few = texts(of(8.0, 64.0)).collect::<Vec<_>>();
        assert_eq!(few, ["8 B", "16 B", "32 B", "64 B"]);
        assert_eq!(of(8.0, 1048576.0).len(), 6);
        assert!(of(9.0, 15.0).is_empty());
    }

    #[test]
    fn a_panel_without_points_is_not_drawn() {
        assert_eq!(drawing("a", "b", &[panel(&[])]), None);
        let drawn = drawing("a", "b", &[panel(&[(8.0, 2.5)])]).unwrap();
        for words in ["latency (µs)", "message size (bytes)", ">8 B<", ">median<"] {
            assert!(drawn.contains(words), "{words}");
        }
    }

    /// All points lie between the axes, and the legend lies below.
    #[test]
    fn curves_and_legend_are_apart() {
        let points = [(8.0, 0.3), (64.0, 40.0), (1024.0, 7000.0)];
        let drawn = drawing("a", "b", &[panel(&points), panel(&points)]).unwrap();
        let circles = drawn.lines().filter(|line| line.starts_with("<circle"));
        let position = |line: &str, name: &str| -> f64 {
            let after = line.split(name).nth(1).unwrap();
            after.split('"').next().unwrap().parse().unwrap()
        };
        let places: Vec<_> = circles
            .map(|line| (position(line, "cx=\""), position(line, "cy=\"")))
            .collect();
        let (legend, points) = places.split_last().unwrap();
        assert_eq!(points.len(), 6);
        for (x, y) in points {
            assert!((MARGIN + NUMBERS..=WIDTH - MARGIN).contains(x));
            assert!(y + 40.0 < legend.1);
        }
    }
}
