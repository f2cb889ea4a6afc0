//! A process of another user: these tests run the test binary again as `nobody`, which only root can do.

use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::hand::wait;
use super::threaded;
use super::two_processes::Other;
use crate::peer::{ExchangeError, Listener, Users};
use crate::{Error, Peer};

/// The user `nobody`, which has no rights of its own.
const NOBODY: u32 = 65_534;
const SOCKET: &str = "WARPBELL_TEST_FOREIGN_SOCKET";
const PART: &str = "WARPBELL_TEST_FOREIGN_PART";
const PATIENCE: Duration = Duration::from_secs(300);

/// A folder for one test, which every user may write to.
struct Shared(PathBuf);

impl Shared {
    fn new(name: &str) -> Self {
        let name = format!("warpbell-foreign-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
        Self(folder)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("socket")
    }

    /// A listener that every user may call.
    fn listener(&self, users: Users) -> Listener {
        let listener = Listener::bind_to(users, &self.socket()).unwrap();
        fs::set_permissions(self.socket(), Permissions::from_mode(0o666)).unwrap();
        listener
    }

    fn start_as_nobody(&self, part: &str) -> Other {
        // Others may be barred from the folders in which Cargo builds. Another process copies: a process that a test
        // beside this one starts would inherit the open file, and what is open for writing cannot be started.
        let binary = self.0.join("test");
        let mut copy = Command::new("cp");
        copy.arg(std::env::current_exe().unwrap()).arg(&binary);
        assert!(copy.status().unwrap().success());
        let child = Command::new(binary)
            .args([
                "--exact",
                "tests::other_user::what_the_other_user_does",
                "--nocapture",
            ])
            .env(SOCKET, self.socket())
            .env(PART, part)
            .current_dir(&self.0)
            .stdout(Stdio::null())
            .uid(NOBODY)
            .gid(NOBODY)
            .spawn()
            .unwrap();
        Other(child)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn is_nobody(error: &ExchangeError) -> bool {
    matches!(error, ExchangeError::OtherUser { found: NOBODY, expected } if *expected != NOBODY)
}

/// All that the other end says before it closes the connection.
fn heard(mut socket: UnixStream) -> Vec<u8> {
    let mut words = Vec::new();
    socket.read_to_end(&mut words).unwrap();
    words
}

/// Not a test of its own: without its variables it has nothing to do.
#[test]
fn what_the_other_user_does() {
    let (Some(socket), Ok(part)) = (std::env::var_os(SOCKET), std::env::var(PART)) else {
        return;
    };
    let socket = Path::new(&socket);
    match &*part {
        "call" => {
            let socket = UnixStream::connect(socket).unwrap();
            assert!(heard(socket).is_empty(), "turned away without a word");
        }
        "squat" => {
            let (caller, _) = UnixListener::bind(socket).unwrap().accept().unwrap();
            assert!(heard(caller).is_empty(), "left without a word");
        }
        "join" => {
            let device = threaded();
            let mut peer = Peer::join_of(Users::Any, &device, socket, PATIENCE).unwrap();
            peer.barrier("met").unwrap();
        }
        other => panic!("no such part: {other}"),
    }
}

#[test]
#[ignore = "needs root, to run a process of another user"]
fn another_user_is_turned_away() {
    let shared = Shared::new("caller");
    let listener = shared.listener(Users::Same);
    let device = threaded();
    let stranger = shared.start_as_nobody("call");
    let error = wait(
        "the stranger",
        || (),
        || listener.take(&device, PATIENCE).err(),
    );
    assert_matches!(&error => Error::Exchange(error) if is_nobody(error));
    stranger.finish();
}

#[test]
#[ignore = "needs root, to run a process of another user"]
fn a_squatter_at_the_path_is_not_joined() {
    let shared = Shared::new("squatter");
    let squatter = shared.start_as_nobody("squat");
    let error = Peer::join(&threaded(), &shared.socket(), PATIENCE).unwrap_err();
    assert_matches!(&error => Error::Exchange(error) if is_nobody(error));
    squatter.finish();
}

#[test]
#[ignore = "needs root, to run a process of another user"]
fn any_user_joins_where_both_sides_say_so() {
    let shared = Shared::new("welcome");
    let listener = shared.listener(Users::Any);
    let device = threaded();
    let other = shared.start_as_nobody("join");
    let mut peer = wait(
        "the other user",
        || (),
        || listener.take(&device, PATIENCE).unwrap(),
    );
    peer.barrier("met").unwrap();
    other.finish();
}
