//! A second process: a test runs its own binary once more, and a socket joins the two.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

/// The second process; killed when the test ends, however it ends.
pub struct OtherProcess(Child);

impl OtherProcess {
    /// Starts it with the test of this name and this variable set, by which the test knows that it is the second process.
    /// Gives the first one's end of the socket, too.
    pub fn start(test: &str, variable: &str, value: &str) -> (UnixStream, Self) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(variable, value)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn();
        (ours, Self(child.unwrap()))
    }

    /// Waits until it has ended, which it must do well.
    pub fn finish(mut self) {
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for OtherProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The second process's end of the socket.
pub fn first_process() -> io::Result<UnixStream> {
    Ok(UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?))
}
