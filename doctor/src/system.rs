//! Where the doctor looks: a root folder (`/`, or a tree that a test made), and programs with a deadline.
//!
//! Every read has a size limit and none waits for another process, so that a pipe or an endless file in the
//! tree cannot hold the doctor up. A read that a broken driver never answers is given up by the caller.

use std::env;
use std::fmt::{self, Display, Formatter};
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::fcntl::OFlag;

use super::cuda;
use crate::run;

/// The longest text that is read: sysfs gives a page, procfs little more.
const TEXT_LIMIT: u64 = 64 << 10;

/// The longest folder that is read.
const NAMES_LIMIT: usize = 4096;

/// The most that a program may print.
const OUTPUT_LIMIT: u64 = 256 << 10;

/// Folders that an administrator's programs lie in, beside those of PATH.
const MORE_PROGRAMS: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// Why a file could not be read.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadError {
    Absent,
    Denied,
    NotText,
    TooLong,
    Other(String),
}

impl Display for ReadError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "not there",
            Self::Denied => "no permission",
            Self::NotText => "not text",
            Self::TooLong => "too long",
            Self::Other(why) => why,
        })
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::Absent,
            io::ErrorKind::PermissionDenied => Self::Denied,
            _ => Self::Other(error.to_string()),
        }
    }
}

/// Why a program gave no answer.
#[derive(Debug, PartialEq, Eq)]
pub enum ProgramError {
    Absent(String),
    TimedOut(String, u64),
    Failed(String),
    NotText(String),
}

impl Display for ProgramError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(name) => write!(f, "{name} is not installed"),
            Self::TimedOut(name, seconds) => write!(f, "{name} gave no answer within {seconds} s"),
            Self::Failed(name) => write!(f, "{name} failed"),
            Self::NotText(name) => write!(f, "{name} printed something unreadable"),
        }
    }
}

/// A machine, or a tree that looks like one.
#[derive(Clone, Debug)]
pub struct System {
    root: PathBuf,
    /// Where programs are looked for.
    programs: Vec<PathBuf>,
    /// Where libraries are looked for first.
    libraries: Vec<PathBuf>,
    /// The program that asks CUDA; see [`cuda`].
    cuda: PathBuf,
}

impl System {
    /// The machine that this program runs on.
    pub fn this() -> Self {
        let folders = |variable: &str| -> Vec<PathBuf> {
            env::var_os(variable).map_or_else(Vec::new, |list| env::split_paths(&list).collect())
        };
        let mut programs = folders("PATH");
        programs.extend(MORE_PROGRAMS.map(PathBuf::from));
        programs.retain(|folder| folder.is_absolute());
        let mut libraries = folders("LD_LIBRARY_PATH");
        libraries.retain(|folder| folder.is_absolute());
        Self {
            root: "/".into(),
            programs,
            libraries,
            cuda: env::current_exe().unwrap_or_default(),
        }
    }

    /// A tree that looks like a machine; its programs lie in its `/usr/bin`, `cuda-answer` among them.
    #[cfg(test)]
    pub fn below(root: &Path) -> Self {
        let root = fs::canonicalize(root).unwrap();
        Self {
            programs: vec![root.join("usr/bin")],
            libraries: Vec::new(),
            cuda: root.join("usr/bin/cuda-answer"),
            root,
        }
    }

    /// Folders that the loader searches first.
    pub fn libraries(&self) -> &[PathBuf] {
        &self.libraries
    }

    /// A file's text without the spaces around it.
    pub fn text(&self, path: impl AsRef<Path>) -> Result<String, ReadError> {
        let text =
            String::from_utf8(self.bytes(path, TEXT_LIMIT)?).map_err(|_| ReadError::NotText)?;
        if text
            .chars()
            .any(|c| c.is_control() && !matches!(c, '\n' | '\t'))
        {
            return Err(ReadError::NotText);
        }
        Ok(text.trim().to_owned())
    }

    /// A file's bytes, if there are no more than `limit`.
    pub fn bytes(&self, path: impl AsRef<Path>, limit: u64) -> Result<Vec<u8>, ReadError> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(self.at(path))?;
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            return Err(ReadError::TooLong);
        }
        Ok(bytes)
    }

    /// A number with `0x` before it.
    pub fn hex(&self, path: impl AsRef<Path>) -> Result<u32, ReadError> {
        let text = self.text(path)?;
        text.strip_prefix("0x")
            .and_then(|digits| u32::from_str_radix(digits, 16).ok())
            .ok_or(ReadError::NotText)
    }

    /// The names in a folder, in order; those that are no text are left out.
    pub fn names(&self, folder: impl AsRef<Path>) -> Result<Vec<String>, ReadError> {
        let mut names: Vec<String> = fs::read_dir(self.at(folder))?
            .take(NAMES_LIMIT)
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        Ok(names)
    }

    /// Whether something is there that can be looked at.
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.at(path).exists()
    }

    /// Where a path leads once every link is followed, seen from the root.
    pub fn resolve(&self, path: impl AsRef<Path>) -> Option<PathBuf> {
        let real = fs::canonicalize(self.at(path)).ok()?;
        Some(Path::new("/").join(real.strip_prefix(&self.root).ok()?))
    }

    /// The last name of where a path leads.
    pub fn leads_to(&self, path: impl AsRef<Path>) -> Option<String> {
        self.resolve(path)?.file_name()?.to_str().map(str::to_owned)
    }

    /// Opens a device file for reading and writing, as a driver's user would, and closes it again.
    pub fn can_open(&self, path: impl AsRef<Path>) -> Result<(), ReadError> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OFlag::O_NONBLOCK.bits())
            .open(self.at(path))?;
        Ok(())
    }

    /// What the first of some programs that is installed prints, if it ends well and in time.
    pub fn run(
        &self,
        programs: &[&str],
        arguments: &[&str],
        deadline: Duration,
    ) -> Result<String, ProgramError> {
        let name = programs.join(" or ");
        let Some(path) = programs.iter().find_map(|program| self.program(program)) else {
            return Err(ProgramError::Absent(name));
        };
        let mut command = Command::new(path);
        command.args(arguments);
        capture(name, command, deadline)
    }

    /// What the program that asks CUDA prints.
    pub fn run_cuda(&self, deadline: Duration) -> Result<String, ProgramError> {
        let mut command = Command::new(&self.cuda);
        // All GPUs are looked at, also those that a user hides from programs.
        command
            .env(cuda::ASK, "1")
            .env_remove("CUDA_VISIBLE_DEVICES");
        capture("CUDA".into(), command, deadline)
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        self.programs
            .iter()
            .map(|folder| folder.join(name))
            .find(|path| path.is_file())
    }

    /// Where a path of the machine lies; `..` does not lead out of the root.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let inside = |part: &Component| matches!(part, Component::Normal(_));
        let parts: PathBuf = path.as_ref().components().filter(inside).collect();
        self.root.join(parts)
    }
}

/// Runs a command; `name` is what an error calls it.
fn capture(name: String, mut command: Command, deadline: Duration) -> Result<String, ProgramError> {
    command.env("LC_ALL", "C");
    match run::capture_start(command, deadline, OUTPUT_LIMIT) {
        Ok((Some(status), output)) if status.success() => {
            String::from_utf8(output).map_err(|_| ProgramError::NotText(name))
        }
        Ok((None, _)) => Err(ProgramError::TimedOut(name, deadline.as_secs())),
        Ok((Some(_), _)) | Err(_) => Err(ProgramError::Failed(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    #[test]
    fn reads_text_and_says_what_is_wrong_with_the_rest() {
        let tree = Tree::empty();
        tree.file("good", " 4: ACTIVE \n");
        tree.file("garbage", b"\xff\xfe\x00");
        tree.file("escape", "a\u{1b}[2J");
        tree.file("huge", vec![b'x'; TEXT_LIMIT as usize + 1]);
        tree.fifo("pipe");
        let system = tree.system();
        assert_eq!(system.text("/good").as_deref(), Ok("4: ACTIVE"));
        assert_eq!(system.text("/garbage"), Err(ReadError::NotText));
        assert_eq!(system.text("/escape"), Err(ReadError::NotText));
        assert_eq!(system.text("/huge"), Err(ReadError::TooLong));
        assert_eq!(system.text("/none"), Err(ReadError::Absent));
        assert_eq!(system.text("/good/below"), Err(ReadError::Absent));
        // Nobody ever writes into the pipe; what matters is that this returns.
        let _ = system.text("/pipe");
        let _ = system.can_open("/pipe");
    }

    #[test]
    fn stays_below_the_root_and_follows_links() {
        let tree = Tree::empty();
        tree.file("sys/devices/here/vendor", "0x10de");
        tree.link("sys/bus/there", "../devices/here");
        tree.link("loop", "loop");
        let system = tree.system();
        assert_eq!(system.hex("/sys/bus/there/vendor"), Ok(0x10de));
        assert_eq!(system.leads_to("/sys/bus/there").as_deref(), Some("here"));
        assert_eq!(
            system.resolve("/sys/bus/there").as_deref(),
            Some(Path::new("/sys/devices/here"))
        );
        assert_eq!(system.resolve("/loop"), None);
        assert_eq!(
            system.text("/../../../../etc/passwd"),
            Err(ReadError::Absent)
        );
    }

    #[test]
    fn programs_end_in_time() {
        let tree = Tree::empty();
        tree.program("answer", "echo \"$1\"");
        tree.program("sleeper", "exec sleep 600");
        tree.program("flood", "exec yes");
        tree.program("failure", "exit 1");
        let system = tree.system();
        let run_for =
            |seconds, name| system.run(&["none", name], &["hello"], Duration::from_secs(seconds));
        let run = |name| run_for(300, name);
        assert_eq!(run("answer").as_deref(), Ok("hello\n"));
        assert!(matches!(
            run_for(1, "sleeper"),
            Err(ProgramError::TimedOut(..))
        ));
        assert!(run("flood").is_err());
        assert!(matches!(run("failure"), Err(ProgramError::Failed(_))));
        assert!(matches!(run("absent"), Err(ProgramError::Absent(_))));
    }
}
