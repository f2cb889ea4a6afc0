//! Plots with logarithmic axes, which look like those of `bench`.

/// The drawings of `bench`, without what it depends on.
#[path = "../../../bench/src/svg.rs"]
pub mod svg;

use svg::{Anchor, Drawing, MARGIN, Mark, Scale, WIDTH};

const HEIGHT: f64 = 220.0;
/// What the numbers beside a plot take.
const NUMBERS: f64 = 44.0;
/// The width of a digit.
const DIGIT: f64 = 7.0;

/// Draws curves, each with its name and its points, which are greater than 0.
pub fn drawing(
    title: &str,
    subtitle: &str,
    quantity: &str,
    over: &str,
    curves: &[(&str, Vec<(f64, f64)>)],
) -> String {
    let mut drawing = Drawing::new(title, subtitle);
    drawing.paragraph(quantity);
    let top = drawing.take(HEIGHT) + 8.0;
    let bottom = top + HEIGHT - 16.0;
    let (left, right) = (MARGIN + NUMBERS, WIDTH - MARGIN);
    let points = || curves.iter().flat_map(|curve| &curve.1);

    let numbers = svg::round_numbers(range(points().map(|point| point.1)));
    let vertical = Scale::new(range(numbers.iter().copied()), (bottom, top));
    for number in numbers {
        let y = vertical.at(number);
        drawing.grid((left, y), (right, y));
        drawing.text(
            "words",
            Anchor::End,
            (left - 6.0, y + 4.0),
            &svg::number(number),
        );
    }
    let horizontal = Scale::new(
        range(points().map(|point| point.0)),
        (left + 8.0, right - 8.0),
    );
    let below = drawing.take(20.0) + 12.0;
    let mut free = f64::NEG_INFINITY;
    for (place, _) in curves.first().map_or(&[][..], |curve| &curve.1) {
        let x = horizontal.at(*place);
        drawing.grid((x, top), (x, bottom));
        let middle = x.clamp(left + 8.0, right - 18.0);
        let words = svg::number(*place);
        let half = DIGIT * words.len() as f64 / 2.0;
        // Of two numbers that would run into each other the first one stays.
        if middle - half >= free {
            drawing.text("words", Anchor::Middle, (middle, below), &words);
            free = middle + half;
        }
    }
    let caption = drawing.take(22.0) + 12.0;
    drawing.text(
        "words",
        Anchor::Middle,
        ((left + right) / 2.0, caption),
        over,
    );
    for (colour, (_, points)) in curves.iter().enumerate() {
        let place = |point: &(f64, f64)| (horizontal.at(point.0), vertical.at(point.1));
        drawing.curve(colour, points.iter().map(place));
        for point in points {
            drawing.circle(Mark::Curve, colour, place(point));
        }
    }
    let names = curves.iter().enumerate();
    drawing.legend(names.map(|(colour, curve)| (Mark::Curve, colour, curve.0)));
    drawing.finish()
}

/// From the least to the greatest value. A scale has to have a length.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, greatest) = values.fold((f64::INFINITY, 0.0_f64), |(least, greatest), value| {
        (least.min(value), greatest.max(value))
    });
    match greatest > least {
        true => (least, greatest),
        false => (1.0, 10.0),
    }
}
