//! Drawings as SVG. They are as wide as their page, and their colours follow its light or dark scheme.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The width of every drawing in its own units. A page of 400 pixels shows them a little smaller than a pixel.
pub const WIDTH: f64 = 480.0;
/// What stays empty at the left and right.
pub const MARGIN: f64 = 12.0;
/// From one line of text to the next.
const LINE: f64 = 18.0;
/// Characters of a line, so that a sans-serif font of this size does not reach the edge.
const CHARACTERS: usize = 70;
const TITLE_CHARACTERS: usize = 52;

/// The colours of curves are told apart by people who see few colours, too (Okabe and Ito). A seventh curve has the
/// colour of the text. After these, dashed curves have the same colours again.
const STYLE: &str = "\
.plot{font:12px sans-serif;color:#1b1b1b;max-width:54em}\
.plot .paper{fill:#fff}\
@media(prefers-color-scheme:dark){.plot{color:#e8e8e8}.plot .paper{fill:#17191c}}\
.plot text{fill:currentColor}\
.plot .title{font-size:15px;font-weight:bold}\
.plot .grid{stroke:currentColor;stroke-opacity:.2}\
.plot .curve{fill:none;stroke:currentColor}\
.plot .dashed{stroke-dasharray:5 3}\
.plot .dot{fill:currentColor}\
.plot .ring{fill:none;stroke:currentColor;stroke-width:1.5}\
.plot .c0{color:#0072b2}.plot .c1{color:#d55e00}.plot .c2{color:#009e73}\
.plot .c3{color:#cc79a7}.plot .c4{color:#56b4e9}.plot .c5{color:#e69f00}";

/// Colours of curves.
pub const COLOURS: usize = 7;

/// Which side of a text lies at its position.
#[derive(Clone, Copy, Debug)]
pub enum Anchor {
    /// Its beginning.
    Start,
    /// Its middle.
    Middle,
    /// Its end.
    End,
}

/// How an entry of a legend is drawn.
#[derive(Clone, Copy, Debug)]
pub enum Mark {
    /// A line with a dot.
    Curve,
    /// A dot.
    Dot,
    /// A ring.
    Ring,
}

/// A drawing that grows from the top.
#[derive(Debug)]
pub struct Drawing {
    title: String,
    body: String,
    bottom: f64,
}

impl Drawing {
    /// A drawing with a title and a line below it, each as many lines as it takes.
    pub fn new(title: &str, subtitle: &str) -> Self {
        let mut drawing = Self {
            title: escape(title),
            body: String::new(),
            bottom: 6.0,
        };
        for line in wrapped(title, TITLE_CHARACTERS) {
            let y = drawing.take(LINE) + 13.0;
            drawing.text("title", Anchor::Start, (MARGIN, y), &line);
        }
        drawing.paragraph(subtitle);
        drawing
    }

    /// Text from the left margin, as many lines as it takes.
    pub fn paragraph(&mut self, text: &str) {
        for line in wrapped(text, CHARACTERS) {
            let y = self.take(LINE) + 13.0;
            self.text("words", Anchor::Start, (MARGIN, y), &line);
        }
    }

    /// Takes so much height for something new, and gives the position of its top.
    pub fn take(&mut self, height: f64) -> f64 {
        let top = self.bottom;
        self.bottom += height;
        top
    }

    /// A text on one line.
    pub fn text(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.add(format_args!(
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    /// A line of the grid.
    pub fn grid(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.add(format_args!(
            "<line class=\"grid\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
        ));
    }

    /// A curve of this colour. Later ones are thinner, so that a curve below another one is seen beside it.
    pub fn curve(&mut self, colour: usize, points: impl Iterator<Item = (f64, f64)>) {
        let points: Vec<_> = points.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dashed = if colour < COLOURS { "" } else { " dashed" };
        self.add(format_args!(
            "<polyline class=\"curve c{}{dashed}\" stroke-width=\"{:.1}\" points=\"{}\"/>",
            colour % COLOURS,
            3.5 - 2.0 * thinner(colour),
            points.join(" ")
        ));
    }

    /// A dot or a ring of this colour.
    pub fn circle(&mut self, mark: Mark, colour: usize, (x, y): (f64, f64)) {
        let (class, radius) = match mark {
            Mark::Ring => ("ring", 3.5),
            Mark::Dot => ("dot", 3.5),
            Mark::Curve => ("dot", 5.0 - 2.0 * thinner(colour)),
        };
        self.add(format_args!(
            "<circle class=\"{class} c{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius:.1}\"/>",
            colour % COLOURS
        ));
    }

    /// The entries of a legend, one below the other.
    pub fn legend<'n>(&mut self, entries: impl Iterator<Item = (Mark, usize, &'n str)>) {
        for (mark, colour, name) in entries {
            for (number, line) in wrapped(name, CHARACTERS - 6).iter().enumerate() {
                let middle = self.take(LINE) + LINE / 2.0;
                if number == 0 {
                    if let Mark::Curve = mark {
                        let ends = [(MARGIN, middle), (MARGIN + 24.0, middle)];
                        self.curve(colour, ends.into_iter());
                    }
                    self.circle(mark, colour, (MARGIN + 12.0, middle));
                }
                let at = (MARGIN + 34.0, middle + 4.0);
                self.text("words", Anchor::Start, at, line);
            }
        }
    }

    /// The whole document.
    pub fn finish(self) -> String {
        let Self {
            title,
            body,
            bottom,
        } = self;
        let height = bottom + 8.0;
        format!(
            "<svg class=\"plot\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"100%\" \
             role=\"img\" aria-label=\"{title}\">\n<style>{STYLE}</style>\n\
             <rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n"
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // A String takes everything.
        let _ = writeln!(self.body, "{element}");
    }
}

/// From 0 for the first colour to 1 for the last.
fn thinner(colour: usize) -> f64 {
    (colour % COLOURS) as f64 / (COLOURS - 1) as f64
}

/// A text in lines of at most so many characters, split between words.
fn wrapped(text: &str, characters: usize) -> Vec<Cow<'_, str>> {
    let options = textwrap::Options::new(characters);
    textwrap::wrap(
        text,
        options.word_splitter(textwrap::WordSplitter::NoHyphenation),
    )
}

/// The characters that XML and HTML give a meaning, as text.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A logarithmic scale.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    least: f64,
    units: f64,
    origin: f64,
}

impl Scale {
    /// Puts the values from `least` to `greatest` between two positions.
    pub fn new((least, greatest): (f64, f64), (from, to): (f64, f64)) -> Self {
        Self {
            least,
            units: (to - from) / (greatest / least).ln(),
            origin: from,
        }
    }

    /// The position of a value.
    pub fn at(&self, value: f64) -> f64 {
        self.origin + (value / self.least).ln() * self.units
    }
}

/// Round numbers from the last one that is not above `least` to the first that is not below `greatest`: 1, 2 and 5 times
/// powers of ten, or powers of ten where those were too many.
pub fn round_numbers((least, greatest): (f64, f64)) -> Vec<f64> {
    let decades = least.log10().floor() as i32..=greatest.log10().ceil() as i32;
    let numbers = |digits: &'static [f64]| {
        let all = decades.clone().flat_map(move |decade| {
            // Divided, because 0.1 is no binary number.
            digits.iter().map(move |digit| match decade < 0 {
                true => digit / 10f64.powi(-decade),
                false => digit * 10f64.powi(decade),
            })
        });
        let all: Vec<f64> = all.collect();
        let first = all.iter().rposition(|number| *number <= least);
        let last = all.iter().position(|number| *number >= greatest);
        // The first decade begins at or below the least value, and the last one ends at or above the greatest.
        let (first, last) = (first.unwrap_or(0), last.unwrap_or(all.len() - 1));
        all[first..=last.max(first)].to_vec()
    };
    let many = numbers(&[1.0, 2.0, 5.0]);
    match many.len() {
        ..=8 => many,
        _ => numbers(&[1.0]),
    }
}

/// A round number, with no more decimals than it has, in at most six characters.
pub fn number(value: f64) -> String {
    if !(1e-3..1e6).contains(&value) {
        return format!("{value:e}");
    }
    let decimals = (-value.log10().floor()).clamp(0.0, 3.0) as usize;
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_takes_the_width_of_its_page_and_escapes_its_texts() {
        let mut drawing = Drawing::new("a < b", &"words & words ".repeat(20));
        let entries = [(Mark::Curve, 8, "one"), (Mark::Ring, 1, "other")];
        drawing.legend(entries.into_iter());
        let svg = drawing.finish();
        let root = svg.lines().next().unwrap();
        assert!(root.contains("viewBox=\"0 0 480 "), "{root}");
        assert!(root.contains("width=\"100%\""), "{root}");
        assert!(!root.contains("height="), "{root}");
        assert!(svg.contains(">a &lt; b</text>") && !svg.contains("words & words"));
        assert!(svg.contains("prefers-color-scheme:dark"));
        // A colour is used again after the last, for a dashed curve.
        assert!(svg.contains("class=\"curve c1 dashed\""));
    }

    /// No text is cut: each line ends before the right edge, and no two are at the same height.
    #[test]
    fn texts_have_lines_of_their_own() {
        let long = "a name of many words ".repeat(9);
        let mut drawing = Drawing::new(&long, &long);
        drawing.legend([(Mark::Dot, 0, &*long), (Mark::Dot, 1, "b")].into_iter());
        let bottom = drawing.bottom;
        let svg = drawing.finish();
        let mut heights = Vec::new();
        for line in svg.lines().filter(|line| line.starts_with("<text")) {
            let text = line.split('>').nth(1).unwrap().trim_end_matches("</text");
            assert!(text.len() <= CHARACTERS, "{text}");
            let height = line.split("y=\"").nth(1).unwrap();
            let height: f64 = height.split('"').next().unwrap().parse().unwrap();
            assert!(
                heights
                    .last()
                    .is_none_or(|last| height - last >= LINE - 1.0)
            );
            assert!(height < bottom);
            heights.push(height);
        }
        assert!(heights.len() > 9);
    }

    #[test]
    fn round_numbers_enclose_a_range() {
        for (range, expected) in [
            ((3.0, 70.0), &[2.0, 5.0, 10.0, 20.0, 50.0, 100.0][..]),
            ((0.02, 0.03), &[0.02, 0.05]),
            ((1.0, 1.0), &[1.0]),
            ((0.002, 3.0), &[0.001, 0.01, 0.1, 1.0, 10.0]),
        ] {
            assert_eq!(round_numbers(range), expected, "{range:?}");
        }
    }

    #[test]
    fn numbers_of_an_axis_are_short() {
        for (value, text) in [
            (1e-4, "1e-4"),
            (0.001, "0.001"),
            (0.5, "0.5"),
            (10.0, "10"),
            (2e5, "200000"),
            (5e6, "5e6"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn a_scale_is_logarithmic() {
        let scale = Scale::new((1.0, 100.0), (200.0, 0.0));
        for (value, position) in [(1.0, 200.0), (10.0, 100.0), (100.0, 0.0)] {
            assert!((scale.at(value) - position).abs() < 1e-9);
        }
    }
}
