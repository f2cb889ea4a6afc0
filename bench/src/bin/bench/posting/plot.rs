//! The steady lap with the doorbell in pinned memory and fences for the GPU, and what a NIC executed, as a picture.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::table::Line;

/// Pixels: of a case, of the names beside the plot, of the plot, of the legend above and the axis below.
const CASE: u32 = 26;
const NAMES: u32 = 340;
const PLOT: u32 = 640;
const LEGEND: u32 = 48;
const AXIS: u32 = 52;
/// With a record, and without (Okabe and Ito).
const COLOURS: [RGBColor; 2] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0)];

/// A dot for each case's cycles, and a ring for its floor.
pub fn draw(path: &Path, title: &str, lines: &[Line]) -> Result<(), Box<dyn Error>> {
    let drawn: Vec<_> = lines.iter().filter(|line| line.is_drawn()).collect();
    let mut names: Vec<&str> = Vec::new();
    for line in &drawn {
        if names.last() != Some(&line.case.as_str()) {
            names.push(&line.case);
        }
    }
    let height = CASE * names.len() as u32;
    let size = (NAMES + PLOT, LEGEND + height + AXIS);
    let root = SVGBackend::new(path, size).into_drawing_area();
    root.fill(&WHITE)?;
    let text = |size: i32| ("sans-serif", size);
    root.draw(&Text::new(title, (8, 6), text(15)))?;
    let legend = "dots: a post, a poll, or an executed write; rings: the same stores, fences and loads by hand; blue: with \
                  a doorbell record, red: without one, black: polls";
    root.draw(&Text::new(legend, (8, 26), text(13)))?;
    let (_, below) = root.split_vertically(LEGEND);
    let (beside, plot) = below.split_horizontally(NAMES);

    let row = |name: &str| names.iter().position(|known| *known == name).unwrap_or(0) as f64;
    for (index, name) in names.iter().enumerate() {
        let middle = (CASE as usize * index) as i32 + CASE as i32 / 2;
        beside.draw(&Text::new(*name, (8, middle - 7), text(13)))?;
    }
    let figures = drawn
        .iter()
        .flat_map(|line| [Some(line.cycles), line.floor])
        .flatten();
    let least = figures.clone().map(|figure| figure.median);
    let least = least.fold(f64::INFINITY, f64::min);
    let greatest = figures.map(|figure| figure.median).fold(0.0, f64::max);
    let decade = |value: f64| 10f64.powf(value);
    let range = decade(least.log10().floor())..decade(greatest.log10().ceil());
    let mut chart = ChartBuilder::on(&plot)
        .margin_right(16)
        .x_label_area_size(AXIS)
        .build_cartesian_2d(range.log_scale(), names.len() as f64..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .y_labels(0)
        .x_desc("SM cycles for each WQE of all threads, or for each poll")
        .x_label_formatter(&|value| format!("{value}"))
        .label_style(text(13))
        .draw()?;
    for line in &drawn {
        let colour = match line.record {
            Some(true) => COLOURS[0],
            Some(false) => COLOURS[1],
            None => BLACK,
        };
        let middle = row(&line.case) + 0.5;
        let dot = Circle::new((line.cycles.median, middle), 4, colour.filled());
        chart.draw_series([dot])?;
        let ring = line
            .floor
            .map(|floor| Circle::new((floor.median, middle), 4, colour.stroke_width(1)));
        chart.draw_series(ring)?;
    }
    root.present()?;
    Ok(())
}
