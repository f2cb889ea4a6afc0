//! Plots of what was measured over a number of bytes, or another number, as SVG.

use std::error::Error as StdError;
use std::fs;
use std::ops::Range;
use std::path::PathBuf;

use crate::run::error::Nested;
use crate::run::{interrupt, place, screen};
use clap::Args;
use plotters::prelude::*;
use warpbell_host_init::Node;

use crate::Error;
use crate::origin::Origin;
use crate::setting::Setting;

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
    /// Draws the results, where that was asked for.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn draw(
        &self,
        title: &str,
        origin: &Origin,
        node: &Node,
        panels: &[Panel],
    ) -> Result<(), Error> {
        let Some(path) = &self.svg else {
            return Ok(());
        };
        match svg(title, origin, node, panels)? {
            None => Ok(()),
            Some(text) => fs::write(path, text).map_err(|source| Error::Plot {
                what: path.display().to_string(),
                source: source.into(),
            }),
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
        self.draw(title, &setting.origin, &setting.node, panels)?;
        crate::run::Error::if_wrong(wrong, all)?;
        Ok(interrupt::check()?)
    }
}

/// The results as a drawing; none where a panel has no points.
///
/// # Errors
/// What cannot be drawn.
pub fn svg(
    title: &str,
    origin: &Origin,
    node: &Node,
    panels: &[Panel],
) -> Result<Option<String>, Error> {
    let empty = |panel: &Panel| panel.curves.iter().all(|curve| curve.points.is_empty());
    if panels.iter().any(empty) {
        return Ok(None);
    }
    let title = format!("{title}, NIC {}", node.nic_name());
    let mut text = String::new();
    let drawn = draw(&mut text, &title, &origin.line(&place::words(node)), panels);
    drawn.map_err(|source| Error::Plot {
        what: title,
        source,
    })?;
    Ok(Some(text))
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
    /// The quantity and its unit.
    pub quantity: &'static str,
    /// What it is measured over; bytes, if it begins with that word.
    pub over: &'static str,
    /// One after the other in the legend.
    pub curves: Vec<Curve>,
}

/// Pixels of a panel.
const SIZE: (u32, u32) = (620, 430);
/// Pixels for the two lines of the title.
const TITLE: u32 = 56;
/// Pixels for the legend: the longest label is `driven by the kernel, host spinning`.
const LEGEND: u32 = 250;
/// Told apart by those who see few colours, too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];

/// Draws panels beside each other, with logarithmic axes and one legend for all, whose curves have the same
/// names in the same order.
fn draw(
    text: &mut String,
    title: &str,
    subtitle: &str,
    panels: &[Panel],
) -> Result<(), Box<dyn StdError + Send + Sync>> {
    let plots = SIZE.0 * panels.len() as u32;
    let width = plots + LEGEND;
    let root = SVGBackend::with_string(text, (width, SIZE.1 + TITLE)).into_drawing_area();
    root.fill(&WHITE)?;
    let centred = |size: i32| {
        use plotters::style::text_anchor::{HPos, Pos, VPos};
        let style = TextStyle::from(("sans-serif", size)).pos(Pos::new(HPos::Center, VPos::Top));
        style.color(&BLACK)
    };
    let middle = width as i32 / 2;
    root.draw(&Text::new(title, (middle, 8), centred(20)))?;
    root.draw(&Text::new(subtitle, (middle, 34), centred(13)))?;
    let (_, below) = root.split_vertically(TITLE);
    let (left, right) = below.split_horizontally(plots);
    for (panel, area) in panels.iter().zip(left.split_evenly((1, panels.len()))) {
        draw_panel(panel, &area)?;
    }
    let curves = panels.first().map_or(&[][..], |panel| &panel.curves);
    for ((curve, colour), line) in curves.iter().zip(colours()).zip(1..) {
        let y = 24 * line;
        let stroke = [(4, y), (28, y)];
        right.draw(&PathElement::new(stroke, colour.stroke_width(2)))?;
        right.draw(&Circle::new((16, y), 3, colour.filled()))?;
        right.draw(&Text::new(
            curve.name.as_str(),
            (36, y - 7),
            ("sans-serif", 13),
        ))?;
    }
    root.present()?;
    Ok(())
}

/// Of the curves of a panel.
fn colours() -> impl Iterator<Item = RGBColor> {
    COLOURS.into_iter().cycle()
}

fn draw_panel(
    panel: &Panel,
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
) -> Result<(), Box<dyn StdError + Send + Sync>> {
    let all = || panel.curves.iter().flat_map(|curve| &curve.points);
    let sizes = range(all().map(|point| point.0));
    let values = decades(range(all().map(|point| point.1)));
    let of_bytes = panel.over.starts_with("bytes");
    let base = if of_bytes { 2.0 } else { 10.0 };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(sizes.log_scale().base(base), values.log_scale())?;
    chart
        .configure_mesh()
        .x_desc(panel.over)
        .y_desc(panel.quantity)
        // All digits of up to three decades.
        .y_labels(30)
        .x_label_formatter(&|size| match of_bytes {
            true => screen::bytes(size.round() as u64),
            false => number(*size),
        })
        .y_label_formatter(&|value| number(*value))
        .light_line_style(WHITE)
        .bold_line_style(BLACK.mix(0.15))
        .label_style(("sans-serif", 13))
        .axis_desc_style(("sans-serif", 14))
        .draw()?;
    for (curve, colour) in panel.curves.iter().zip(colours()) {
        let points = curve.points.iter().copied();
        chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
        chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    Ok(())
}

/// From the least to the greatest value.
fn range(values: impl Iterator<Item = f64> + Clone) -> Range<f64> {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let greatest = values.fold(0.0, f64::max);
    // An axis without length could not be drawn.
    least..greatest.max(least * 1.01)
}

/// The powers of ten around a range.
fn decades(range: Range<f64>) -> Range<f64> {
    let power = |exponent: f64| 10f64.powi(exponent as i32);
    // A little below, or plotters may leave the lowest decade without lines.
    power(range.start.log10().floor()) * 0.999..power(range.end.log10().ceil())
}

/// A number of an axis, as short as it can be; nothing between 1, 2, 5 and 10, where there is no room.
fn number(value: f64) -> String {
    let below = -value.log10().floor();
    let digits = below.clamp(0.0, 9.0) as usize;
    match (value * 10f64.powf(below)).round() as u32 {
        1 | 2 | 5 | 10 => format!("{value:.digits$}"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_an_axis_are_short_and_few() {
        for (value, text) in [
            (0.001, "0.001"),
            (0.03, ""),
            (0.5, "0.5"),
            (9.0, ""),
            (10.0, "10"),
            (2000.0, "2000"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn an_axis_holds_all_values_and_has_a_length() {
        assert_eq!(range([3.0, 1.0, 2.0].into_iter()), 1.0..3.0);
        let one = range([8.0].into_iter());
        assert!(one.start == 8.0 && one.end > 8.0);
        for (values, around) in [(3.0..70.0, 1.0..100.0), (0.02..0.03, 0.01..0.1)] {
            let found = decades(values);
            assert!((found.start / around.start - 1.0).abs() < 0.01);
            assert!((found.end / around.end - 1.0).abs() < 1e-9);
        }
    }
}
