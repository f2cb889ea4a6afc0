//! Takes out of a text what says whose machine it is of. The same name or address has the same placeholder everywhere.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Shorter names are words of many other texts.
const SHORTEST_NAME: usize = 2;
/// Names of every machine.
const EVERYWHERE: [&str; 3] = ["localhost", "root", "localdomain"];
/// What stands before a serial number.
const SERIAL: [&str; 4] = ["serial number", "serial no", "serial", "s/n"];

/// What a placeholder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A machine's name.
    Host,
    /// A user's name.
    User,
    /// An IPv4 or IPv6 address, or a GID.
    Address,
    /// An Ethernet or InfiniBand address, or a GUID.
    Mac,
    /// A device's UUID.
    Uuid,
    /// A serial number.
    Serial,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Host,
        Self::User,
        Self::Address,
        Self::Mac,
        Self::Uuid,
        Self::Serial,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::User => "user",
            Self::Address => "address",
            Self::Mac => "mac",
            Self::Uuid => "uuid",
            Self::Serial => "serial",
        }
    }
}

/// Placeholders of folders.
const PROGRAMS: &str = "<programs>";
const HOME: &str = "<home>";

/// A name as texts spell it.
#[derive(Clone, Debug)]
struct Name {
    kind: Kind,
    spelling: String,
    /// With its domain: what decides about the placeholder.
    whole: String,
}

/// What is known to be a name, and which placeholders there are already.
#[derive(Debug, Default)]
pub struct Scrub {
    names: Vec<Name>,
    folders: Vec<(String, &'static str)>,
    seen: HashMap<(Kind, String), usize>,
}

impl Scrub {
    /// Knows this name: a host's with its domain, or a user's.
    pub fn name(&mut self, kind: Kind, name: &str) {
        let (short, domain) = name.split_once('.').unwrap_or((name, ""));
        for (spelling, whole) in [(name, name), (short, name), (domain, domain)] {
            let is_address = spelling.parse::<IpAddr>().is_ok();
            let is_number = spelling.bytes().all(|c| c.is_ascii_digit());
            let is_common = is_number || EVERYWHERE.contains(&spelling);
            if spelling.len() >= SHORTEST_NAME && !is_address && !is_common {
                self.names.push(Name {
                    kind,
                    spelling: spelling.into(),
                    whole: whole.into(),
                });
            }
        }
        // The longest first: a short one may begin a longer one.
        let length = |name: &Name| std::cmp::Reverse(name.spelling.len());
        self.names.sort_by_key(length);
    }

    /// Knows the folder of the programs.
    pub fn programs(&mut self, folder: &str) {
        self.folder(folder, PROGRAMS);
    }

    /// Knows a user's home.
    pub fn home(&mut self, folder: &str) {
        self.folder(folder, HOME);
    }

    fn folder(&mut self, folder: &str, placeholder: &'static str) {
        let folder = folder.trim_end_matches('/');
        // Anything else is part of every path.
        if folder.starts_with('/') {
            self.folders.push((folder.to_owned(), placeholder));
            self.folders
                .sort_by_key(|(folder, _)| std::cmp::Reverse(folder.len()));
        }
    }

    /// The text without names and addresses. Loopback and unspecified addresses stay: every machine has them.
    pub fn text(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = None;
        while let Some(next) = rest.chars().next() {
            let (taken, written) = self
                .found(&out, before, rest)
                .unwrap_or_else(|| (next.len_utf8(), next.to_string()));
            out.push_str(&written);
            before = rest[..taken].chars().next_back();
            rest = &rest[taken..];
        }
        out
    }

    /// What begins here that must not stay, or is a placeholder: its bytes, and what stands there then.
    fn found(&mut self, out: &str, before: Option<char>, rest: &str) -> Option<(usize, String)> {
        if let Some(len) = placeholder(rest) {
            return Some((len, rest[..len].into()));
        }
        if let Some(found) = self.folder_at(rest) {
            return Some(found);
        }
        let is_inside =
            |signs: &str| before.is_some_and(|c| c.is_alphanumeric() || signs.contains(c));
        if is_inside("") {
            return None;
        }
        let mut names = self.names.iter();
        if let Some(name) = names.find(|name| begins(rest, &name.spelling)) {
            let name = name.clone();
            let placeholder = self.placeholder(name.kind, name.whole);
            return Some((name.spelling.len(), placeholder));
        }
        if is_inside(".") {
            return None;
        }
        let run = &rest[..rest.find(|c| !is_of_run(c)).unwrap_or(rest.len())];
        if !run.is_empty() && is_after_serial(out) {
            return Some((run.len(), self.placeholder(Kind::Serial, run.into())));
        }
        let (len, (kind, name)) = cuts(run).find_map(|cut| Some((cut.len(), identify(cut)?)))?;
        Some((len, self.placeholder(kind, name)))
    }

    fn folder_at(&self, rest: &str) -> Option<(usize, String)> {
        let mut folders = self.folders.iter();
        if let Some((folder, placeholder)) = folders.find(|(folder, _)| begins(rest, folder)) {
            return Some((folder.len(), (*placeholder).into()));
        }
        let user = rest.strip_prefix("/home/")?;
        let len = user.find(|c: char| c == '/' || c.is_whitespace() || "'\":;,)".contains(c));
        let len = len.unwrap_or(user.len());
        (len > 0).then(|| ("/home/".len() + len, HOME.into()))
    }

    fn placeholder(&mut self, kind: Kind, name: String) -> String {
        let of_kind = self.seen.keys().filter(|(of, _)| *of == kind).count();
        let number = *self.seen.entry((kind, name)).or_insert(of_kind + 1);
        format!("<{}-{number}>", kind.word())
    }
}

/// Whether the text begins with this word, and not with a longer one.
fn begins(text: &str, word: &str) -> bool {
    let rest = text.strip_prefix(word);
    rest.is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

/// The length of the placeholder that the text begins with.
fn placeholder(text: &str) -> Option<usize> {
    for folder in [PROGRAMS, HOME] {
        if text.starts_with(folder) {
            return Some(folder.len());
        }
    }
    let inner = text.strip_prefix('<')?;
    let (inner, _) = inner.split_once('>')?;
    let (word, number) = inner.split_once('-')?;
    let is_known = Kind::ALL.iter().any(|kind| kind.word() == word);
    let is_number = !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit());
    (is_known && is_number).then_some(inner.len() + 2)
}

fn is_of_run(c: char) -> bool {
    c.is_ascii_alphanumeric() || ".:-".contains(c)
}

/// A run and its beginnings, the longest first: a port, another address or a sentence's end may follow an address.
fn cuts(run: &str) -> impl Iterator<Item = &str> {
    let is_end = |rest: &str| rest.chars().all(|c| !c.is_ascii_alphanumeric());
    let may_follow = move |rest: &str| rest.starts_with([':', '-']) || is_end(rest);
    let lengths = (1..=run.len()).rev();
    lengths
        .filter(move |len| may_follow(&run[*len..]))
        .map(|len| &run[..len])
}

/// Whether the text ends with a label such as `Serial Number: `.
fn is_after_serial(out: &str) -> bool {
    let label = out.trim_end().to_ascii_lowercase();
    let label = label.strip_suffix([':', '=', '#']).unwrap_or_default();
    SERIAL.iter().any(|word| label.trim_end().ends_with(word))
}

/// What kind of address it is, and a form that is the same for all spellings of it.
fn identify(run: &str) -> Option<(Kind, String)> {
    let is_hex = |part: &str| part.bytes().all(|c| c.is_ascii_hexdigit());
    let address = |ip: IpAddr| {
        let ip = ip.to_canonical();
        let stays = ip.is_loopback() || ip.is_unspecified();
        (!stays).then(|| (Kind::Address, ip.to_string()))
    };
    if let Ok(ip) = run.parse::<Ipv4Addr>() {
        return address(ip.into());
    }
    if let Ok(ip) = run.parse::<Ipv6Addr>() {
        return address(ip.into());
    }
    if run.len() == 32 && is_hex(run) {
        let ip = u128::from_str_radix(run, 16).ok()?;
        return address(Ipv6Addr::from(ip).into());
    }
    let groups: Vec<_> = run.split([':', '-']).collect();
    let has_groups = |least, most, digits: std::ops::RangeInclusive<usize>| {
        (least..=most).contains(&groups.len())
            && groups
                .iter()
                .all(|part| digits.contains(&part.len()) && is_hex(part))
    };
    let name = || run.to_ascii_lowercase().replace('-', ":");
    let is_mac = match run.contains('-') {
        // Words are not hexadecimal, and dates have fewer groups.
        true => !run.contains(':') && has_groups(6, 20, 2..=2),
        false => has_groups(4, 20, 1..=4),
    };
    if is_mac {
        return Some((Kind::Mac, name()));
    }
    let bare = run.strip_prefix("GPU-").or(run.strip_prefix("MIG-"));
    let bare = bare.unwrap_or(run);
    let lengths: Vec<_> = bare.split('-').map(str::len).collect();
    let is_uuid = lengths == [8, 4, 4, 4, 12] && bare.split('-').all(is_hex);
    is_uuid.then(|| (Kind::Uuid, bare.to_ascii_lowercase()))
}
