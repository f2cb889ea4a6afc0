//! A run's rows as a CSV file: to be drawn, and to be compared with by another run.

use std::path::{Path, PathBuf};
use std::{fs, io};

use super::table::Line;

/// The columns that each version's files begin with.
const COLUMNS: &str = "case,record,lap,doorbell,scope,wqes,cycles,cycles_min,cycles_max,floor,ratio,million_a_second,wanted,reached";

/// A file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct Unread {
    path: PathBuf,
    fault: Fault,
}

/// What is wrong with it.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// It is missing, or no text.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Something else wrote it.
    #[error("the first line has other columns than a file that `bench posting --csv` wrote")]
    Header,
    /// Columns or figures are missing.
    #[error("line {0} is no row of `bench posting --csv`")]
    Row(usize),
}

/// What a row is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub case: String,
    pub record: String,
    pub lap: String,
    pub doorbell: String,
    pub scope: String,
}

/// A row, as far as it is drawn and compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub key: Key,
    pub cycles: f64,
    pub floor: Option<f64>,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
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
            _ratio,
            _rate,
            _wanted,
            _reached,
            ..,
        ] = columns[..]
        else {
            return None;
        };
        Some(Self {
            key: Key {
                case: case.into(),
                record: record.into(),
                lap: lap.into(),
                doorbell: doorbell.into(),
                scope: scope.into(),
            },
            cycles: figure(cycles)?,
            floor: match floor {
                "" => None,
                text => Some(figure(text)?),
            },
        })
    }
}

impl From<&Line> for Row {
    fn from(line: &Line) -> Self {
        Self {
            key: Key {
                case: line.case.clone(),
                record: line.record().into(),
                lap: line.lap.into(),
                doorbell: line.doorbell.into(),
                scope: line.scope.into(),
            },
            cycles: line.cycles.median,
            floor: line.floor.map(|floor| floor.median),
        }
    }
}

/// Cycles, by which others can be divided.
fn figure(text: &str) -> Option<f64> {
    let figure = text.parse().ok();
    figure.filter(|cycles: &f64| cycles.is_finite() && *cycles > 0.0)
}

/// The rows of a file.
///
/// # Errors
/// No such file, another one's header, or a line that is no row.
pub fn read(path: &Path) -> Result<Vec<Row>, Unread> {
    let text = fs::read_to_string(path).map_err(Fault::from);
    text.and_then(|text| rows(&text)).map_err(|fault| Unread {
        path: path.into(),
        fault,
    })
}

fn rows(text: &str) -> Result<Vec<Row>, Fault> {
    let mut lines = text.lines().enumerate();
    match lines.next() {
        Some((_, header)) if header.starts_with(COLUMNS) => {}
        _ => return Err(Fault::Header),
    }
    lines
        .map(|(index, line)| Row::parse(line).ok_or(Fault::Row(index + 1)))
        .collect()
}

/// A file with a header and a row for each line.
pub fn text(lines: &[Line]) -> String {
    let mut text = format!("{COLUMNS},against\n");
    for line in lines {
        let optional =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.3}"));
        let reached = line
            .reached
            .map_or(String::new(), |reached| reached.to_string());
        text += &format!(
            "\"{}\",{},{},{},{},{},{:.4},{:.4},{:.4},{},{},{:.2},{},{reached},{}\n",
            line.case,
            line.record(),
            line.lap,
            line.doorbell,
            line.scope,
            line.wqes,
            line.cycles.median,
            line.cycles.min,
            line.cycles.max,
            optional(line.floor.map(|floor| floor.median)),
            optional(line.ratio),
            line.million_a_second,
            line.wanted.as_deref().unwrap_or_default(),
            optional(line.against),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::table::Figures;
    use super::*;

    const OLD: &str = "\"a, b\",with,steady,pinned,gpu,9,12.5,12,13,11.0,1.1,1.0,<= 12,false\n";

    fn line(case: &str, record: Option<bool>, cycles: f64) -> Line {
        let figures = |median| Figures {
            median,
            min: 0.5,
            max: 80.0,
        };
        Line {
            case: case.into(),
            record,
            lap: "steady",
            doorbell: "pinned",
            scope: "gpu",
            wqes: 9,
            cycles: figures(cycles),
            floor: record.map(|_| figures(11.0)),
            ratio: None,
            million_a_second: 1.0,
            against: None,
            wanted: None,
            reached: None,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let lines = [line("a, b", Some(true), 0.0625), line("a poll", None, 40.0)];
        let expected: Vec<_> = lines.iter().map(Row::from).collect();
        assert_eq!(rows(&text(&lines)).unwrap(), expected);
        // Without the columns of later versions.
        let old = rows(&format!("{COLUMNS}\n{OLD}")).unwrap();
        let [Row { key, cycles, floor }] = &old[..] else {
            panic!("{old:?}");
        };
        assert_eq!(*key, expected[0].key);
        assert_eq!((*cycles, *floor), (12.5, Some(11.0)));
    }

    #[test]
    fn another_header_is_an_error() {
        let other = COLUMNS.replace("doorbell", "place");
        for text in ["", OLD, &format!("{other}\n{OLD}")] {
            let error = rows(text).unwrap_err();
            assert!(matches!(error, Fault::Header), "{text}: {error}");
        }
    }

    #[test]
    fn a_line_that_is_no_row_is_named() {
        let changes = [
            ("12.5", ""),
            ("12.5", "0"),
            ("12.5", "NaN"),
            ("11.0", "much"),
            ("1.1,", ""),
            ("\"a, b\"", "a, b"),
        ];
        for (found, put) in changes {
            let bad = OLD.replace(found, put);
            let error = rows(&format!("{COLUMNS}\n{OLD}{bad}{OLD}")).unwrap_err();
            assert!(matches!(error, Fault::Row(3)), "{bad}: {error}");
            assert!(error.to_string().starts_with("line 3 "), "{error}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let path = Path::new("/nonexistent/posting.csv");
        let error = read(path).unwrap_err();
        assert!(matches!(error.fault, Fault::File(_)), "{error}");
        assert!(error.to_string().starts_with("/nonexistent/posting.csv: "));
    }

    #[test]
    fn a_line_is_divided_by_the_row_of_the_same_key_alone() {
        let earlier = rows(&format!("{COLUMNS}\n{OLD}")).unwrap();
        let against = |line: Line| line.against(&earlier).against;
        assert_eq!(against(line("a, b", Some(true), 50.0)), Some(4.0));
        let mut others = [(); 5].map(|()| line("a, b", Some(true), 50.0));
        others[0].case = "a".into();
        others[1].record = Some(false);
        others[2].lap = "first";
        others[3].doorbell = "device";
        others[4].scope = "system";
        for other in others {
            assert_eq!(against(other.clone()), None, "{other:?}");
        }
    }
}
