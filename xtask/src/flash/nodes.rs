//! The nodes, from the command line or from a file such as `nodes.toml`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use thiserror::Error;

use super::slurm::Step;

/// Where a node keeps its copy, unless it says otherwise. Relative to the user's home.
const FOLDER: &str = "warpbell-flash";

/// A machine that ssh reaches, and how programs run there.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// As ssh takes it: a name, an address, or a `Host` of ssh's configuration.
    pub host: String,
    pub user: Option<String>,
    pub port: Option<u16>,
    /// The number of the GPU that runs kernels. Without it they run on CPUs.
    pub gpu: Option<u32>,
    /// As in `--nic`. Without it the programs choose a software NIC.
    pub nic: Option<String>,
    pub gid_index: Option<u8>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Absolute, or relative to the user's home.
    #[serde(default = "folder")]
    pub folder: String,
    /// If it is a node of a job, its calls are steps there. Without it they go by ssh.
    #[serde(skip)]
    pub step: Option<Step>,
}

fn folder() -> String {
    FOLDER.into()
}

/// A file of nodes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nodes {
    #[serde(default)]
    node: Vec<Node>,
}

/// Why nodes cannot be used.
#[derive(Debug, Error)]
pub enum NodesError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: {}", path.display(), source.to_string().trim_end())]
    Toml {
        path: PathBuf,
        source: toml::de::Error,
    },
    #[error("no nodes; name them as user@host:port, or give --nodes FILE or --slurm")]
    None,
    #[error("{0} is there twice")]
    Twice(String),
    #[error("{node}: {value:?} is no {what}")]
    Bad {
        node: String,
        what: &'static str,
        value: String,
    },
}

/// Reads the nodes of the command line and then those of the file.
///
/// # Errors
/// An unknown key, with its line; a value that ssh or a shell would take for something else; a node twice, or none.
pub fn read(words: &[String], file: Option<&Path>) -> Result<Vec<Node>, NodesError> {
    let mut nodes = Vec::new();
    for word in words {
        nodes.push(word.parse()?);
    }
    nodes.extend(listed(file)?);
    checked(nodes)
}

/// The nodes of a job, each with its settings in the file, if the file has any. The default folder has the node's name in
/// it, because nodes of a cluster often share the homes.
///
/// # Errors
/// As of [`read`].
pub fn of_job(hosts: &[String], step: &Step, file: Option<&Path>) -> Result<Vec<Node>, NodesError> {
    let listed = listed(file)?;
    let mut nodes = Vec::new();
    for host in hosts {
        let found = listed.iter().find(|node| node.host == *host).cloned();
        let mut node = match found {
            Some(node) => node,
            None => host.parse()?,
        };
        if node.folder == FOLDER {
            node.folder = format!("{FOLDER}-{host}");
        }
        (node.user, node.port, node.step) = (None, None, Some(step.clone()));
        nodes.push(node);
    }
    checked(nodes)
}

/// The nodes of a file, if there is one.
fn listed(file: Option<&Path>) -> Result<Vec<Node>, NodesError> {
    let Some(path) = file else {
        return Ok(Vec::new());
    };
    let path = path.to_owned();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(source) => return Err(NodesError::Read { path, source }),
    };
    match toml::from_str::<Nodes>(&text) {
        Ok(file) => Ok(file.node),
        Err(source) => Err(NodesError::Toml { path, source }),
    }
}

/// The same nodes, if none has a bad value, none is there twice, and there are any.
fn checked(nodes: Vec<Node>) -> Result<Vec<Node>, NodesError> {
    let mut names = BTreeSet::new();
    for node in &nodes {
        node.check()?;
        if !names.insert(node.to_string()) {
            return Err(NodesError::Twice(node.to_string()));
        }
    }
    match nodes.is_empty() {
        true => Err(NodesError::None),
        false => Ok(nodes),
    }
}

/// `user@host:port`, where an IPv6 address with a port stands in brackets.
impl FromStr for Node {
    type Err = NodesError;

    fn from_str(word: &str) -> Result<Self, NodesError> {
        let (user, rest) = match word.rsplit_once('@') {
            Some((user, rest)) => (Some(user.to_owned()), rest),
            None => (None, word),
        };
        let in_brackets = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (host, port) = match (in_brackets, rest.split_once(':')) {
            (Some((host, "")), _) => (host, None),
            (Some((host, rest)), _) => (host, Some(rest.strip_prefix(':').unwrap_or(rest))),
            (None, Some((host, port))) if !port.contains(':') => (host, Some(port)),
            (None, _) => (rest, None),
        };
        let bad = |_| NodesError::Bad {
            node: word.into(),
            what: "port",
            value: port.unwrap_or_default().into(),
        };
        Ok(Self {
            host: host.into(),
            user,
            port: port.map(str::parse).transpose().map_err(bad)?,
            gpu: None,
            nic: None,
            gid_index: None,
            environment: BTreeMap::new(),
            folder: folder(),
            step: None,
        })
    }
}

impl Node {
    /// Whether all values are what they seem to be, on a command line too.
    fn check(&self) -> Result<(), NodesError> {
        let user = self.user.as_deref().unwrap_or("root");
        let nic = self.nic.as_deref().unwrap_or("soft");
        let folder = Path::new(&self.folder);
        let mut parts = folder.components();
        let is_folder = is_word(&self.folder, "/_.+-")
            && folder.file_name().is_some()
            && parts.all(|part| part != Component::ParentDir);
        let variables = self.environment.iter();
        let variables = variables.flat_map(|(name, value)| {
            let is_name = is_word(name, "_") && !name.starts_with(|c: char| c.is_ascii_digit());
            let is_value = !value.contains(['\0', '\n']);
            [
                ("name of a variable", name, is_name),
                ("value of a variable", value, is_value),
            ]
        });
        let own = [
            ("host", &self.host, is_word(&self.host, "_.:%-")),
            ("folder below the home or the root", &self.folder, is_folder),
        ];
        let bad = own.into_iter().chain(variables).find(|(.., good)| !good);
        let bad = bad.map(|(what, value, _)| (what, value.as_str()));
        let bad = bad.or((!is_word(user, "_.-")).then_some(("user", user)));
        let bad = bad.or((!is_word(nic, "_.:,-")).then_some(("NIC", nic)));
        match bad {
            None => Ok(()),
            Some((what, value)) => Err(NodesError::Bad {
                node: self.to_string(),
                what,
                value: value.into(),
            }),
        }
    }
}

/// Whether these are letters, digits and such signs, and no option.
pub fn is_word(text: &str, signs: &str) -> bool {
    let known = |c: char| c.is_ascii_alphanumeric() || signs.contains(c);
    !text.is_empty() && !text.starts_with('-') && text.chars().all(known)
}

/// As on the command line.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match (&self.host, self.port) {
            (host, None) => f.write_str(host),
            (host, Some(port)) if host.contains(':') => write!(f, "[{host}]:{port}"),
            (host, Some(port)) => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Vec<Node>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nodes.toml");
        fs::write(&path, text).unwrap();
        read(&[], Some(&path)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_command_line_names_user_host_and_port() {
        for (word, user, host, port) in [
            ("a", None, "a", None),
            ("me@a.b:22", Some("me"), "a.b", Some(22)),
            ("fd00::1", None, "fd00::1", None),
            ("me@[fd00::1]:22", Some("me"), "fd00::1", Some(22)),
        ] {
            let node: Node = word.parse().unwrap();
            let found = (node.user.as_deref(), &*node.host, node.port);
            assert_eq!(found, (user, host, port));
            assert_eq!(node.to_string(), word);
        }
    }

    #[test]
    fn a_file_has_all_settings() {
        let text = r#"
            [[node]]
            host = "a"
            [[node]]
            host = "b"
            user = "me"
            port = 2222
            gpu = 1
            nic = "mlx5_0:2"
            gid_index = 3
            environment = { WARPBELL_ADDRESS = "10.1.0.0/16" }
            folder = "/scratch/me/warpbell"
        "#;
        let [one, other] = parse(text).unwrap().try_into().unwrap();
        assert_eq!(one, "a".parse().unwrap());
        assert_eq!(one.folder, "warpbell-flash");
        let expected = Node {
            gpu: Some(1),
            nic: Some("mlx5_0:2".into()),
            gid_index: Some(3),
            environment: [("WARPBELL_ADDRESS".into(), "10.1.0.0/16".into())].into(),
            folder: "/scratch/me/warpbell".into(),
            .."me@b:2222".parse().unwrap()
        };
        assert_eq!(other, expected);
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let error = parse("[[node]]\nhost = \"a\"\nhosts = 1\n").unwrap_err();
        assert!(error.contains("line 3"), "{error}");
        assert!(error.contains("unknown field `hosts`"), "{error}");
        let error = parse("[[nodes]]\nhost = \"a\"\n").unwrap_err();
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn a_value_that_is_none_is_named() {
        for (text, words) in [
            (
                r#"host = "-oProxyCommand=x""#,
                r#""-oProxyCommand=x" is no host"#,
            ),
            (r#"host = "a b""#, "is no host"),
            (r#"host = "-x""#, "is no host"),
            ("host = \"a\"\nuser = \"$(x)\"", "is no user"),
            ("host = \"a\"\nnic = \"a b\"", "is no NIC"),
            (
                "host = \"a\"\nfolder = \"../x\"",
                r#"a: "../x" is no folder"#,
            ),
            ("host = \"a\"\nfolder = \"/\"", "is no folder"),
            ("host = \"a\"\nfolder = \".\"", "is no folder"),
            ("host = \"a\"\nfolder = \"it's\"", "is no folder"),
            (
                "host = \"a\"\nenvironment = { \"1x\" = \"\" }",
                "is no name of a variable",
            ),
            ("host = \"a\"\n[[node]]\nhost = \"a\"", "a is there twice"),
        ] {
            let error = parse(&format!("[[node]]\n{text}\n")).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(parse("").unwrap_err().starts_with("no nodes"));
        for word in ["a:many", "a:", "a:70000", "[::1]x"] {
            let error = read(&[word.into()], None).unwrap_err().to_string();
            assert!(error.contains("is no port"), "{error}");
        }
    }
    #[test]
    fn nodes_of_a_job_have_their_settings_and_folders_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nodes.toml");
        let text = "[[node]]\nhost = \"b\"\nuser = \"me\"\ngpu = 1\n[[node]]\nhost = \"c\"\nfolder = \"x\"\n\
                    [[node]]\nhost = \"other\"\n";
        fs::write(&file, text).unwrap();
        let hosts = ["a", "b", "c"].map(str::to_owned);
        let step = Step::sample();
        let nodes = of_job(&hosts, &step, Some(&file)).unwrap();
        let found = nodes
            .iter()
            .map(|node| (node.to_string(), node.gpu, &*node.folder));
        let expected = [
            ("a".to_owned(), None, "warpbell-flash-a"),
            ("b".to_owned(), Some(1), "warpbell-flash-b"),
            ("c".to_owned(), None, "x"),
        ];
        assert_eq!(Vec::from_iter(found), expected);
        assert!(nodes.iter().all(|node| node.step.as_ref() == Some(&step)));
        assert!(matches!(of_job(&[], &step, None), Err(NodesError::None)));
    }
}
