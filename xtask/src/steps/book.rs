//! What is checked of the book and of the pages beside it: no link is dead, and where a newcomer reads, no sentence is
//! long.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::{fs, io};

/// The most words of a sentence in the README and in the tutorial.
const LONGEST: usize = 30;

/// A page: what a link may lead to in it, and its own links.
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

/// The dead links of a rendered book, and what it includes of files that do not have it, a line each.
pub fn dead_in_site(site: &Path) -> io::Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    let mut empty = Vec::new();
    let mut folders = vec![site.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let is_page = path.extension().is_some_and(|end| end == "html");
            // One names its files from a server's root; the other has all pages once more.
            let is_made = path.ends_with("404.html") || path.ends_with("print.html");
            if path.is_dir() {
                folders.push(path);
            } else if is_page && !is_made {
                let text = fs::read_to_string(&path)?;
                let anchors = attribute(&text, "id").into_iter().collect();
                let links = ["href", "src"].map(|name| attribute(&text, name)).concat();
                let page = Page { anchors, links };
                if has_empty_code(&text) {
                    let name = path.strip_prefix(site).unwrap_or(&path).display();
                    empty.push(format!("{name}: empty code: is its anchor in the file?"));
                }
                pages.insert(path, page);
            }
        }
    }
    empty.extend(dead(site, &pages));
    Ok(empty)
}

/// The dead links of pages in Markdown, whose paths are relative to `root`.
pub fn dead_in_pages(root: &Path, pages: &[&str]) -> io::Result<Vec<String>> {
    let mut read = BTreeMap::new();
    for page in pages {
        let path = root.join(page);
        let text = fs::read_to_string(&path)?;
        let headings = prose(&text).filter(|line| line.starts_with('#'));
        let anchors =
            headings.filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').map(anchor));
        let page = Page {
            anchors: anchors.collect(),
            links: prose(&text).flat_map(links).collect(),
        };
        read.insert(path, page);
    }
    Ok(dead(root, &read))
}

/// The sentences of a page in Markdown that have too many words, a line each.
pub fn long_sentences(name: &str, text: &str) -> Vec<String> {
    let mut paragraphs = vec![String::new()];
    for line in prose(text) {
        let line = line.trim();
        let begins =
            line.is_empty() || line.starts_with(['#', '|', '-', '>']) || line.starts_with("1.");
        if begins {
            paragraphs.push(String::new());
        }
        for (at, cell) in line.split('|').enumerate() {
            if at > 0 {
                paragraphs.push(String::new());
            }
            if let Some(paragraph) = paragraphs.last_mut() {
                paragraph.push_str(cell);
                paragraph.push(' ');
            }
        }
    }
    let mut long = Vec::new();
    for paragraph in paragraphs {
        for sentence in paragraph
            .split(". ")
            .flat_map(|part| part.split(['!', '?']))
        {
            let words = sentence
                .split_whitespace()
                .filter(|word| word.contains(char::is_alphanumeric))
                .count();
            if words > LONGEST {
                long.push(format!("{name}: {words} words: {}", sentence.trim()));
            }
        }
    }
    long
}

/// The links to files that are not there, or to anchors that a page does not have.
fn dead(root: &Path, pages: &BTreeMap<PathBuf, Page>) -> Vec<String> {
    let mut dead = Vec::new();
    for (path, page) in pages {
        for link in &page.links {
            let elsewhere = ["http:", "https:", "mailto:", "data:", "javascript:"];
            if elsewhere.iter().any(|scheme| link.starts_with(scheme)) {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => plain(&path.with_file_name(file)),
            };
            let is_there = target.exists() && target.starts_with(root);
            let has_anchor = match pages.get(&target) {
                Some(page) => anchor.is_empty() || page.anchors.contains(anchor),
                None => true,
            };
            if !(is_there && has_anchor) {
                let page = path.strip_prefix(root).unwrap_or(path);
                dead.push(format!("{}: dead link: {link}", page.display()));
            }
        }
    }
    dead
}

/// A path without `..`, as a browser resolves it.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// Whether a page has a block of code without code, which mdbook makes of an anchor that is not there.
fn has_empty_code(text: &str) -> bool {
    let blocks = text.split("<pre><code").skip(1);
    let mut codes = blocks.filter_map(|block| block.split_once('>')?.1.split("</code>").next());
    codes.any(|code| code.trim().is_empty())
}

/// The values of an attribute in HTML.
fn attribute(text: &str, name: &str) -> Vec<String> {
    let start = format!(" {name}=\"");
    let values = text.split(&start).skip(1);
    values
        .filter_map(|rest| Some(rest.split_once('"')?.0.to_owned()))
        .collect()
}

/// The lines of a page in Markdown that are no code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_code ^= fence;
        !in_code && !fence
    })
}

/// The targets of the links in a line of Markdown, and of its images.
fn links(line: &str) -> Vec<String> {
    let text: String = line.split('`').step_by(2).collect();
    let targets = text.split("](").skip(1);
    let targets = targets.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()));
    let images = ["src", "srcset"]
        .map(|name| attribute(&text, name))
        .concat();
    targets.chain(images).collect()
}

/// The anchor of a heading, whose links count by their text alone.
fn anchor(heading: &str) -> String {
    let mut parts = heading.split("](");
    let mut text = parts.next().unwrap_or_default().to_lowercase();
    for part in parts {
        let (_, rest) = part.split_once(')').unwrap_or(("", part));
        text.push_str(&rest.to_lowercase());
    }
    let kept = text
        .trim()
        .chars()
        .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    #[test]
    fn dead_links_of_a_site_are_named() {
        let home = r##"<a href="a/b.html#there"></a> <a href="a/b.html#gone"></a> <a href="c.html"></a>
            <a href="https://example.org/x"></a> <img src="a/../plot.svg"> <a href="../outside.html"></a>"##;
        let files = [
            ("site/index.html", home),
            ("site/code.html", "<pre><code class=\"a\">x</code></pre>"),
            ("site/empty.html", "<pre><code class=\"a\">\n</code></pre>"),
            ("site/a/b.html", r##"<h2 id="there"><a href="#there">"##),
            ("site/plot.svg", ""),
            ("outside.html", ""),
        ];
        let folder = folder(&files);
        let expected = ["a/b.html#gone", "c.html", "../outside.html"];
        let mut expected = expected
            .map(|link| format!("index.html: dead link: {link}"))
            .to_vec();
        expected.insert(
            0,
            "empty.html: empty code: is its anchor in the file?".into(),
        );
        let found = dead_in_site(&folder.path().join("site")).unwrap();
        assert_eq!(found, expected);
    }

    #[test]
    fn dead_links_of_pages_are_named() {
        let home = "# Home\n[a](docs/a.md#a-title-of-code) [b](docs/a.md#b) `[c](c.md)`\n\
                    ```text\n[d](d.md)\n```\n<img src=\"e.svg\">\n";
        let files = [
            ("README.md", home),
            ("docs/a.md", "## A [title](../README.md#home) (of) `code`\n"),
        ];
        let folder = folder(&files);
        let pages = files.map(|(name, _)| name);
        let expected = ["docs/a.md#b", "e.svg"];
        let expected = expected.map(|link| format!("README.md: dead link: {link}"));
        assert_eq!(dead_in_pages(folder.path(), &pages).unwrap(), expected);
    }

    #[test]
    fn long_sentences_are_found_in_prose_and_tables_alone() {
        let of = |words: usize| vec!["word"; words].join(" ");
        let (short, long) = (of(30), of(31));
        let fine = format!(
            "{short}. {short}\n\n- {short}\n\n| {short} | {short} |\n\n```text\n{long}\n```\n"
        );
        assert_eq!(long_sentences("page", &fine), Vec::<String>::new());
        for bad in [
            format!("{long}."),
            format!("| a | {long} |"),
            format!("Yes.\n- {long}"),
        ] {
            assert_eq!(long_sentences("page", &bad).len(), 1, "{bad}");
        }
    }
}
