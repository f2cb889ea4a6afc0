//! A terminal of a test's own.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// What a program prints on a terminal of so many columns.
pub fn on_terminal(columns: u16, mut call: Command) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let open = OpenOptions::new()
        .read(true)
        .write(true)
        .open(name.to_str().unwrap());
    let theirs = OwnedFd::from(open.unwrap());
    let mut child = call
        .env("NO_COLOR", "1")
        .env_remove("COLUMNS")
        .stdout(theirs)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The command still has the other end open, which would keep the terminal alive.
    drop(call);
    let mut printed = Vec::new();
    // Linux ends the words of a terminal that nobody has open any more with this error.
    let end = File::from(terminal).read_to_end(&mut printed).unwrap_err();
    assert_eq!(end.raw_os_error(), Some(Errno::IO.raw_os_error()), "{end}");
    assert!(child.wait().unwrap().success());
    String::from_utf8(printed).unwrap().replace('\r', "")
}

/// Fails unless each line that a program prints on a terminal fits it; a word alone may be longer.
pub fn assert_wrapped(call: impl Fn() -> Command) {
    for columns in [50, 80] {
        let printed = on_terminal(columns, call());
        for line in printed.lines() {
            let fits = line.chars().count() <= usize::from(columns);
            let alone = line.split_whitespace().count() == 1;
            assert!(fits || alone, "{columns}: {line:?}");
        }
    }
}
