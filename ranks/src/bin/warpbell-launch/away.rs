//! Ranks on other hosts: a connection to the launcher on each.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::complaints::Complaints;
use super::hosts::{self, Host};
use super::job::{self, Answer, Job, SIGNS, VERSION};
use super::ranks::code;
use super::serve::SERVE;
use super::{Arguments, GRACE, INTERRUPTED, LOST, NOT_STARTED, TICK, TIMED_OUT, is_stopped};

/// Signs of life that ssh misses before it gives up.
const SSH_SIGNS: u64 = 3;

/// Starts the ranks on their hosts, waits for all, and gives the status.
pub fn launch(
    hosts: Vec<Host>,
    arguments: &Arguments,
    job: Job,
    complaints: &Complaints,
) -> Result<u8, String> {
    let (address, port) =
        hosts::root(arguments.address.as_deref(), &hosts).map_err(|error| error.to_string())?;
    let address = match address.contains(':') {
        true => format!("[{address}]"),
        false => address.to_owned(),
    };
    let root = port.map(|port| format!("{address}:{port}"));
    let own = std::env::current_exe().map_err(|error| format!("no path of its own: {error}"))?;
    let mut all = Vec::new();
    for host in hosts {
        let name = host.name.clone();
        match Connection::open(host, arguments, &own) {
            Ok(connection) => all.push(connection),
            Err(error) => {
                close(all);
                return Err(format!("{name}: {error}"));
            }
        }
    }
    let status = wait(&mut all, arguments, &job, &address, root, complaints);
    close(all);
    Ok(status)
}

/// Waits until all hosts are done, or one has failed and the others have had their time, or the deadline, or Ctrl-C.
fn wait(
    all: &mut [Connection],
    arguments: &Arguments,
    job: &Job,
    address: &str,
    mut root: Option<String>,
    complaints: &Complaints,
) -> u8 {
    let silence = Duration::from_secs(arguments.silence);
    let began = Instant::now();
    let mut first: Option<(u8, Instant)> = None;
    let mut looked = began;
    while all.iter().any(|one| !one.is_over) {
        let now = Instant::now();
        // If this launcher itself was stopped for a while, what came meanwhile may still be unread.
        let was_stopped = now - looked > silence / SIGNS;
        looked = now;
        for connection in &mut *all {
            if was_stopped {
                connection.heard = now;
            }
            let found = connection.look(silence);
            if let Some(failure) = found
                && first.is_none()
            {
                complaints.say(&format!("{}: {}", connection.host.name, failure.words));
                first = Some((failure.status, Instant::now()));
            }
        }
        if root.is_none() {
            root = all[0].port.map(|port| format!("{address}:{port}"));
        }
        if let Some(root) = &root
            && first.is_none()
        {
            all.iter_mut().for_each(|one| one.begin(job, root, silence));
        }
        if is_stopped() {
            return INTERRUPTED;
        }
        if first.is_some_and(|(_, since)| since.elapsed() > GRACE) {
            break;
        }
        if let Some(deadline) = arguments.deadline()
            && began.elapsed() > deadline
        {
            let late = all.iter().filter(|one| !one.is_over);
            let late: Vec<_> = late.map(|one| one.host.to_string()).collect();
            let (late, seconds) = (late.join(", "), deadline.as_secs());
            complaints.say(&format!("not ended after {seconds} s: {late}"));
            return first.map_or(TIMED_OUT, |(status, _)| status);
        }
        thread::sleep(TICK);
    }
    first.map_or(0, |(status, _)| status)
}

/// Why a host's ranks did not end well.
struct Failure {
    status: u8,
    words: String,
}

/// The launcher on a host, and what carries its words.
struct Connection {
    host: Host,
    child: Child,
    /// Until the job goes there.
    stdin: Option<ChildStdin>,
    /// Standard input ends there with this.
    lifeline: Option<Sender<()>>,
    answers: Receiver<Answer>,
    readers: [JoinHandle<()>; 2],
    noted: Arc<Noted>,
    /// When the last answer came, or the connection was opened.
    heard: Instant,
    /// The port that is free there, once it has said so.
    port: Option<u16>,
    /// Whether it has said how its ranks ended.
    has_concluded: bool,
    /// When the program that carries the words ended.
    ended: Option<Instant>,
    is_over: bool,
}

/// What the readers of a connection note.
#[derive(Default)]
struct Noted {
    /// Readers that wait until this launcher's output takes a line.
    passing: AtomicU32,
    /// The last line that is neither a rank's nor an answer.
    last_words: Mutex<String>,
}

impl Connection {
    fn open(host: Host, arguments: &Arguments, own: &Path) -> io::Result<Self> {
        let seconds = arguments.silence;
        let mut command = match &arguments.rsh {
            _ if host.is_here() => Command::new(own),
            Some(program) => Command::new(program),
            None => ssh(seconds),
        };
        if !host.is_here() {
            command.arg(&host.name).arg(quoted(own));
        }
        let mut child = command
            .args([SERVE, &seconds.to_string()])
            // Ctrl-C at a terminal goes to this process alone.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let program = command.get_program().to_string_lossy();
                io::Error::other(format!("cannot start {program}: {error}"))
            })?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (sender, answers) = mpsc::channel();
        let noted = Arc::<Noted>::default();
        let (by_one, by_other) = (Arc::clone(&noted), Arc::clone(&noted));
        let readers = [
            thread::spawn(move || pass_on(stdout, io::stdout, Some(&sender), &by_one)),
            thread::spawn(move || pass_on(stderr, io::stderr, None, &by_other)),
        ];
        Ok(Self {
            host,
            child,
            stdin,
            lifeline: None,
            answers,
            readers,
            noted,
            heard: Instant::now(),
            port: None,
            has_concluded: false,
            ended: None,
            is_over: false,
        })
    }

    /// Hands the job over, once the host is ready. The secret goes by standard input: a command line can be read by all
    /// users.
    fn begin(&mut self, job: &Job, root: &str, silence: Duration) {
        let Some(stdin) = self.stdin.take_if(|_| self.port.is_some()) else {
            return;
        };
        let job = Job {
            ranks: self.host.ranks.clone(),
            root: root.into(),
            ..job.clone()
        };
        let (lifeline, end) = mpsc::channel();
        self.lifeline = Some(lifeline);
        thread::spawn(move || feed(stdin, &job, silence / SIGNS, &end));
    }

    /// What has gone wrong since the last look.
    fn look(&mut self, silence: Duration) -> Option<Failure> {
        if self.is_over {
            return None;
        }
        // While nobody takes the ranks' lines, no answer comes through.
        if self.noted.passing.load(Ordering::Relaxed) > 0 {
            self.heard = Instant::now();
        }
        // Before the answers are read: a connection that has ended has passed all on.
        let ended = self.child.try_wait().ok().flatten();
        let ended = ended.filter(|_| {
            let since = *self.ended.get_or_insert_with(Instant::now);
            // ssh may leave a process behind that shares its connection (ControlPersist), and holds the pipes.
            self.readers.iter().all(JoinHandle::is_finished) || since.elapsed() > GRACE
        });
        self.is_over = ended.is_some();
        for answer in self.answers.try_iter() {
            self.heard = Instant::now();
            match answer {
                Answer::Ready { version, port } if version == VERSION => self.port = Some(port),
                Answer::Ready { version, .. } => {
                    self.has_concluded = true;
                    let words = format!("its launcher is version {version}, this is {VERSION}");
                    let status = NOT_STARTED;
                    return Some(Failure { status, words });
                }
                Answer::Failed { status, words } => {
                    self.has_concluded = true;
                    return Some(Failure { status, words });
                }
                Answer::Done => self.has_concluded = true,
                Answer::Alive => {}
            }
        }
        if let Some(status) = ended
            && !self.has_concluded
        {
            let last = self.noted.last_words.lock();
            let last = last.unwrap_or_else(PoisonError::into_inner);
            let what = match self.port {
                None => "cannot start the launcher there",
                Some(_) => "lost the connection",
            };
            let words = match last.is_empty() {
                true => format!("{what} ({status})"),
                false => format!("{what} ({status}): {last}"),
            };
            let status = code(status).max(1);
            return Some(Failure { status, words });
        }
        if self.heard.elapsed() > silence {
            if self.has_concluded {
                // Its ranks have ended; only the connection has not.
                self.is_over = true;
                return None;
            }
            self.has_concluded = true;
            let seconds = silence.as_secs();
            let (status, words) = match self.port {
                None => (NOT_STARTED, format!("no answer after {seconds} s")),
                Some(_) => (
                    LOST,
                    format!("lost the connection: no answer for {seconds} s"),
                ),
            };
            return Some(Failure { status, words });
        }
        None
    }
}

/// OpenSSH's client, without questions to the user. It gives up a host that has gone silent.
fn ssh(silence: u64) -> Command {
    let mut command = Command::new("ssh");
    for option in [
        "BatchMode=yes".to_owned(),
        format!("ConnectTimeout={silence}"),
        format!("ServerAliveInterval={}", silence.div_ceil(SSH_SIGNS)),
        format!("ServerAliveCountMax={SSH_SIGNS}"),
    ] {
        command.args(["-o", &option]);
    }
    command
}

/// A path for a shell, as ssh runs commands by one. Where it needs no quotes it gets none, for programs without a shell.
fn quoted(path: &Path) -> OsString {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte);
    if path.as_os_str().as_encoded_bytes().iter().all(plain) {
        return path.into();
    }
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''")).into()
}

/// Sends the job, and then a sign of life now and then, until the lifeline is gone.
fn feed(mut stdin: ChildStdin, job: &Job, pause: Duration, end: &Receiver<()>) {
    let mut line = job::line(job);
    while stdin.write_all(&line).is_ok()
        && end.recv_timeout(pause) == Err(RecvTimeoutError::Timeout)
    {
        line = b"\n".into();
    }
}

/// Passes the lines of ranks on, and the answers to this launcher.
fn pass_on<W: Write>(
    from: Option<impl Read>,
    to: impl Fn() -> W,
    answers: Option<&Sender<Answer>>,
    noted: &Noted,
) {
    let Some(from) = from else { return };
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from
        .read_until(b'\n', &mut line)
        .is_ok_and(|bytes| bytes > 0)
    {
        let answer = || serde_json::from_slice(&line).ok();
        if line.starts_with(b"[") {
            noted.passing.fetch_add(1, Ordering::Relaxed);
            // Nobody may want to read it.
            let _ = to().write_all(&line);
            noted.passing.fetch_sub(1, Ordering::Relaxed);
        } else if let Some((to, answer)) = answers.and_then(|to| Some((to, answer()?))) {
            // Nobody waits for it any more.
            let _ = to.send(answer);
        } else if !line.trim_ascii().is_empty() {
            let words = String::from_utf8_lossy(line.trim_ascii()).into();
            *noted
                .last_words
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = words;
        }
        line.clear();
    }
}

/// Lets the launchers on the hosts end their ranks, and waits for them. What does not end is killed here; the other side
/// then notices that its standard input ends or stays silent.
fn close(mut all: Vec<Connection>) {
    for connection in &mut all {
        drop((connection.stdin.take(), connection.lifeline.take()));
    }
    let began = Instant::now();
    let over = |one: &mut Connection| one.child.try_wait().is_ok_and(|status| status.is_some());
    // They wait for the last lines of their ranks.
    while !all.iter_mut().all(over) && began.elapsed() < 2 * GRACE {
        thread::sleep(TICK);
    }
    for connection in &mut all {
        if !over(connection) {
            let _ = kill_process_group(Pid::from_child(&connection.child), Signal::KILL);
            let _ = connection.child.wait();
        }
    }
    while !all
        .iter()
        .flat_map(|one| &one.readers)
        .all(JoinHandle::is_finished)
        && began.elapsed() < 3 * GRACE
    {
        thread::sleep(TICK);
    }
}
