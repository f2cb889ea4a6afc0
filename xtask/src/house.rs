//! `cargo xtask house`: counts the figures that the workspace is to reach, and prints each beside its goal.
//!
//! It counts the `*.rs` files that Git tracks. A line of them is code, comment, test or blank. Names and calls are found
//! in the text, as rustfmt lays it out, without lines of comment.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use thiserror::Error;

use crate::run::{self, RunError};
use crate::say::say;
use crate::workspace::clean_command;

const DEADLINE: Duration = Duration::from_secs(300);

/// Each figure and its goal: the most that it is to be.
const GOALS: [(&str, usize); 10] = [
    ("Rust lines without papers/", 117_000),
    ("Rust lines of examples/", 2_500),
    ("Rust lines of device/", 10_000),
    ("state-moving methods of Sharing, Scope, Doorbell", 0),
    ("calls of `fill` on the way of a post", 1),
    ("product crates with inline GPU assembly", 1),
    ("names at host-init's root", 40),
    ("of these without an example in its documentation", 0),
    ("`world` modules of examples/ and hw-tests/", 1),
    ("lines of a user's program (template/)", 60),
];

const PRODUCT: &str = "mlx5-wqe/ roce/ ranks/ gpu/ device/ patterns/ host-init/ soft-hca/ soft-hca-gpu/ \
                       preload/ strangers/ cpu-grid/ kernel-macro/";
/// Traits of device that everybody may call.
const TRAITS: [&str; 3] = ["Sharing", "Scope", "Doorbell"];
/// What fills slots for something else than a post: a batch, held and ready-made WQEs.
const NO_POST: [&str; 3] = ["batch.rs", "held.rs", "ready.rs"];

/// Where the items of host-init's root are.
const EXPORTED: [&str; 3] = ["host-init/src/", "device/src/", "cpu-grid/src/"];

/// Why nothing was counted.
#[derive(Debug, Error)]
pub enum HouseError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("git ls-files failed:\n{0}")]
    Git(String),
    #[error("cannot read {0}: {1}")]
    Read(String, io::Error),
}

/// Counts the workspace below a folder, and prints a table.
pub fn count_and_print(root: &Path) -> Result<(), HouseError> {
    let counts = House::load(root)?.counts();
    say!("{:<50} {:>7} {:>9}", "figure", "now", "goal");
    for ((name, goal), count) in GOALS.into_iter().zip(counts) {
        let now = count.map_or("-".into(), |count| count.to_string());
        let mark = count.map_or("none", |count| if count <= goal { "met" } else { "open" });
        say!("{name:<50} {now:>7} {:>9}  {mark}", format!("≤ {goal}"));
    }
    Ok(())
}

/// The Rust files: paths and texts.
struct House(Vec<(String, String)>);

impl House {
    fn load(root: &Path) -> Result<Self, HouseError> {
        let mut command = clean_command("git", root);
        command.args(["ls-files", "-z", "*.rs"]);
        let listed = run::capture(command, DEADLINE, |_| {})?;
        if !listed.success() {
            return Err(HouseError::Git(listed.account()));
        }
        let paths = listed.stdout.split('\0');
        // Git still lists what is deleted and not yet committed.
        let there = paths.filter(|path| root.join(path).is_file());
        let read = there.map(|path| match fs::read_to_string(root.join(path)) {
            Ok(text) => Ok((path.into(), text)),
            Err(error) => Err(HouseError::Read(path.into(), error)),
        });
        Ok(Self(read.collect::<Result<_, _>>()?))
    }

    /// In the order of [`GOALS`]; none where there is nothing to count, or no counting it.
    fn counts(&self) -> [Option<usize>; GOALS.len()] {
        let lines = |text: &str| text.lines().count();
        let fills = |text: &str| code(text).map(|line| line.matches(".fill(").count()).sum();
        let queue = "device/src/queue/";
        let no_post = NO_POST.map(|file| self.sum(&format!("{queue}{file}"), fills));
        let has_assembly = |folder: &&str| self.sum(folder, gpu_assembly) > 0;
        let root = self.below("host-init/src/lib.rs").next();
        let macros = self
            .below("host-init/src/")
            .flat_map(|(_, text)| exported(text));
        let names =
            root.and_then(|(_, text)| Some(names(text)?.into_iter().chain(macros).collect()));
        let names: Option<Vec<String>> = names;
        let worlds = self.below("examples/").chain(self.below("hw-tests/"));
        let worlds = worlds
            .filter(|(path, _)| path.ends_with("/world.rs") || path.ends_with("/world/mod.rs"));
        // The one for Rust-CUDA is another program.
        let program = self.sum("template/", lines) - self.sum("template/rust-cuda/", lines);
        [
            Some(self.sum("", lines) - self.sum("papers/", lines)),
            Some(self.sum("examples/", lines)),
            Some(self.sum("device/", lines)),
            Some(self.sum("device/src/", moving_methods)),
            Some(self.sum(queue, fills) - no_post.iter().sum::<usize>()),
            Some(PRODUCT.split(' ').filter(has_assembly).count()),
            names.as_ref().map(Vec::len),
            names.map(|names| {
                let without = names.iter().filter(|name| !self.has_example(name));
                without.count()
            }),
            Some(worlds.count()),
            (program > 0).then_some(program),
        ]
    }

    fn below<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a (String, String)> {
        self.0
            .iter()
            .filter(move |(path, _)| path.starts_with(folder))
    }

    /// Whether an item of host-init, or of a crate that it exports, has an example in its documentation.
    fn has_example(&self, name: &str) -> bool {
        let mut files = EXPORTED.iter().flat_map(|folder| self.below(folder));
        files.any(|(path, text)| {
            let is_module = ["", "/mod"].map(|file| format!("host-init/src/{name}{file}.rs"));
            let documentation = match is_module.contains(path) {
                true => text.split("\n\n").next().unwrap_or_default().to_owned(),
                false => documentation(text, name),
            };
            documentation.contains("```")
        })
    }

    fn sum(&self, folder: &str, count: impl Fn(&str) -> usize) -> usize {
        self.below(folder).map(|(_, text)| count(text)).sum()
    }
}

/// The lines that are no comment.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
}

/// Methods of the traits themselves that take a receiver, a reference or a pointer. The others have nothing to move,
/// and those of supertraits need what only the crate makes.
fn moving_methods(text: &str) -> usize {
    let (mut lines, mut count) = (code(text), 0);
    while let Some(line) = lines.next() {
        let head = line.trim_start().strip_prefix("pub trait ");
        let head = head.unwrap_or_default();
        let name = head.split(|c: char| !c.is_alphanumeric()).next();
        if name.is_some_and(|name| TRAITS.contains(&name)) && !head.ends_with('}') {
            let end = format!("{:1$}}}", "", line.len() - line.trim_start().len());
            let body = lines.by_ref().take_while(|line| *line != end);
            let body: String = body.collect::<Vec<_>>().join(" ");
            let parameters = body.split(" fn ").skip(1);
            let parameters = parameters.filter_map(|method| method.split(['{', ';', '>']).next());
            count += parameters
                .filter(|all| all.contains("self") || all.contains(['&', '*']))
                .count();
        }
    }
    count
}

/// Assembly is a GPU's unless the last target that is named before it is another.
fn gpu_assembly(text: &str) -> usize {
    let mut of_a_gpu = true;
    let is_assembly = |line: &&str| {
        if line.contains("target_arch") {
            let before = line.split_once("\"nvptx64\"").map(|(before, _)| before);
            of_a_gpu = before.is_some_and(|before| !before.contains("not("));
        }
        of_a_gpu && line.contains("asm!")
    };
    code(text).filter(is_assembly).count()
}

/// The public names of a crate's root; none if it takes all of another place.
fn names(text: &str) -> Option<Vec<String>> {
    let text = format!("\n{}", code(text).collect::<Vec<_>>().join("\n"));
    let mut found = Vec::new();
    for (at, _) in text.match_indices("\npub ") {
        let (before, item) = text.split_at(at);
        if before.ends_with("#[cfg(test)]") || before.ends_with("#[cfg(fuzzing)]") {
            continue;
        }
        let Some(tree) = item.strip_prefix("\npub use ") else {
            let words = item
                .split([' ', ';', '(', '<', ':', '\n'])
                .filter(|word| !word.is_empty());
            found.extend(words.map(str::to_owned).nth(2));
            continue;
        };
        let tree = &tree[..tree.find(';')?];
        if tree.contains('*') {
            return None;
        }
        let parts = tree.split(['{', ',', '}']).map(str::trim);
        let named =
            |part: &&str| !(part.is_empty() || part.ends_with("::") || part.ends_with(" _"));
        let last = |part: &str| part.rsplit([':', ' ']).next().unwrap_or(part).to_owned();
        found.extend(parts.filter(named).map(last));
    }
    Some(found)
}

/// The macros that a file exports.
fn exported(text: &str) -> Vec<String> {
    let lines: Vec<_> = code(text).collect();
    let pairs = lines.windows(2).filter(|pair| pair[0] == "#[macro_export]");
    let name = |line: &str| {
        Some(
            line.strip_prefix("macro_rules! ")?
                .trim_end_matches(" {")
                .into(),
        )
    };
    pairs.filter_map(|pair| name(pair[1])).collect()
}

/// The comments and attributes above the items of a name; nothing if none is there.
fn documentation(text: &str, name: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim_start).collect();
    let is_item = |line: &&str| {
        let declared = ["struct ", "enum ", "trait ", "fn ", "type "];
        let heads = declared.map(|kind| format!("pub {kind}{name}"));
        let mut heads = heads.into_iter().chain([format!("macro_rules! {name}")]);
        heads.any(|head| {
            let rest = line.strip_prefix(head.as_str());
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        })
    };
    let items = (0..lines.len()).filter(|at| is_item(&lines[*at]));
    let above = items.flat_map(|at| lines[..at].iter().rev().take_while(|line| !line.is_empty()));
    above.flat_map(|line| [line, "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figure whose name holds a word.
    fn count(word: &str, files: &[(&str, &str)]) -> Option<usize> {
        let owned = |&(path, text): &(&str, &str)| (path.to_owned(), text.to_owned());
        let mut named = (0..GOALS.len()).filter(|at| GOALS[*at].0.contains(word));
        let (Some(at), None) = (named.next(), named.next()) else {
            panic!("{word} names no figure, or two");
        };
        House(files.iter().map(owned).collect()).counts()[at]
    }

    #[test]
    fn lines_are_counted_by_folder() {
        let files = [
            ("device/src/lib.rs", "// a\n\nfn b() {}\n"),
            ("device-b/src/lib.rs", "fn b() {}\n"),
            ("examples/a.rs", "fn b() {}\nfn c() {}"),
            ("papers/a.rs", "fn b() {}\n"),
        ];
        assert_eq!(count("without papers/", &files), Some(6));
        assert_eq!(count("of device/", &files), Some(3));
        assert_eq!(count("lines of examples/", &files), Some(2));
        assert_eq!(count("template/", &files), None);
        let program = [
            ("template/src/a.rs", "//\n//"),
            ("template/rust-cuda/src/a.rs", "//"),
        ];
        assert_eq!(count("template/", &program), Some(2));
    }

    #[test]
    fn methods_move_state_that_they_are_given() {
        let text = "pub trait Sharing: Ledger {\n    /// fn not(&self);\n    fn close(&mut self);
    fn open(\n        state: &State,\n    ) -> Self {\n        x(&0)\n    }\n    fn of() -> &'static str {
        x(&0)\n    }\n    fn rank(present: bool) -> u32;\n    fn raw(word: *mut u8);\n    fn take(self);\n}\nfn f(&self);
pub trait Doorbell: Publish {}\nfn g(&self);\npub(crate) trait Scope {\n    fn sync(&self);\n}
mod sealed {\n    pub trait Scope {\n        fn sync(&self);\n    }\n    fn h(&self);\n}
pub trait Among {\n    fn i(&self);\n}";
        assert_eq!(count("methods", &[("device/src/a.rs", text)]), Some(5));
        assert_eq!(count("methods", &[("soft-hca/src/a.rs", text)]), Some(0));
    }

    #[test]
    fn calls_of_fill_are_those_of_a_post() {
        let text =
            "fn fill() {\n    // a.fill(0)\n    self.fill(1);\n    queue().fill(2) + refill(3)\n}";
        let calls = |path| count("fill", &[(path, text)]);
        assert_eq!(calls("device/src/queue/send.rs"), Some(2));
        assert_eq!(calls("device/src/queue/send/lanes.rs"), Some(2));
        assert_eq!(calls("device/src/queue/ready.rs"), Some(0));
        assert_eq!(calls("patterns/src/trigger/mod.rs"), Some(0));
    }

    #[test]
    fn assembly_is_a_gpus_unless_a_cpu_is_named() {
        let gated = |cfg: &str| {
            let text = format!("#[cfg({cfg})]\nasm!()");
            count("assembly", &[("device/src/a.rs", &text)])
        };
        assert_eq!(gated(r#"target_arch = "nvptx64""#), Some(1));
        assert_eq!(gated(r#"all(target_arch = "nvptx64", not(miri))"#), Some(1));
        assert_eq!(gated("not(miri)"), Some(1));
        assert_eq!(gated(r#"target_arch = "x86_64""#), Some(0));
        assert_eq!(gated(r#"not(target_arch = "nvptx64")"#), Some(0));
        let both = "target_arch = \"x86_64\")]\n#[cfg(target_arch = \"nvptx64\"";
        assert_eq!(gated(both), Some(1));
    }

    #[test]
    fn product_crates_with_assembly_count_once() {
        let files = [
            ("gpu/a.rs", "asm!()"),
            ("gpu/b.rs", "asm!()"),
            ("soft-hca/a.rs", "// asm!()"),
            ("soft-hca-gpu/a.rs", "asm!()"),
            ("hw-tests/a.rs", "asm!()"),
        ];
        assert_eq!(count("assembly", &files), Some(2));
    }

    #[test]
    fn names_at_the_root_are_the_public_ones() {
        let text = "pub mod a;\nmod b;\n#[cfg(test)]\npub mod c;\n#[cfg(fuzzing)]\npub mod d;\nuse x::Y;
pub use b::{\n    B, c::{self, D as E},\n    F as _,\n};\npub use b::G;\n// pub use b::*;\npub(crate) use b::H;
#[cfg(unix)]\npub struct I {\n    pub j: u32,\n}";
        let macros = "#[macro_export]\nmacro_rules! m {}\npub fn n() {}";
        let macros = ("host-init/src/m.rs", macros);
        let names = |root| count("root", &[("host-init/src/lib.rs", root), macros]);
        assert_eq!(names(text), Some(7));
        assert_eq!(names("pub use b::*;"), None);
    }

    #[test]
    fn an_example_is_that_of_the_item_itself() {
        let root = "pub mod a;\npub use b::{B, C};\npub use cpu::Grid;\n";
        let a = "//! A.\n//!\n//! ```\n//! a();\n//! ```\n\nuse x;\n";
        let example = "/// D.\n///\n/// ```\n/// d();\n/// ```\n#[derive(\n    Clone,\n)]\n";
        let item = |name: &str| format!("{example}pub struct {name} {{}}\n");
        let files = |b: &str, c: &str, grid: &str| {
            let texts = [
                ("host-init/src/lib.rs", root),
                ("host-init/src/a.rs", a),
                ("host-init/src/b.rs", b),
                ("host-init/src/c.rs", c),
                ("cpu-grid/src/grid.rs", grid),
            ];
            count("without an example", &texts)
        };
        let [b, c, grid] = ["B", "C", "Grid"].map(item);
        assert_eq!(files(&b, &c, &grid), Some(0));
        assert_eq!(files("pub struct B;", &c, &grid), Some(1));
        // That of an item before it, or of one with a longer name.
        let before = item("Other") + "\npub struct B;\n";
        assert_eq!(files(&before, &item("Cc"), &grid), Some(2));
        assert_eq!(files(&b, &c, ""), Some(1));
    }

    #[test]
    fn worlds_are_those_of_examples_and_suite() {
        let files = [
            ("examples/src/world.rs", ""),
            ("examples/src/underworld.rs", ""),
            ("hw-tests/src/world/mod.rs", ""),
            ("hw-tests/src/world/gpu.rs", ""),
            ("soft-hca/tests/world.rs", ""),
        ];
        assert_eq!(count("world", &files), Some(2));
    }
}
