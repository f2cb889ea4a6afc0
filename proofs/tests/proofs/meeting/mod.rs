//! Our kernels and unmodified programs: one end is a benchmark of ours, without the library under it, the other end a
//! program of somebody else's, with it.

mod proxy;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use warpbell_bench::strangers::perftest;
use warpbell_proofs::pair::{DEADLINE, Process, alone, free_port, last, listening};
use warpbell_proofs::preloaded;

use proxy::Proxy;

/// A benchmark of ours as Cargo builds it, which runs once for all tests. With [`CARD`] among its arguments it has the
/// library under it, too, and drives its device by libmlx5.
fn example(name: &str, arguments: &[&str]) -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let path = BUILT.get_or_init(|| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .args(["build", "--workspace", "--message-format=json"])
            // With these features, and for this test, all below it is built already.
            .args([
                "--features",
                "mlx5-wqe/prm,warpbell-patterns/host,warpbell-ranks/launch",
            ])
            .args(["--bin", "bench", "--test", "proofs"])
            .current_dir(env!("CARGO_MANIFEST_DIR"));
        let output = cargo.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let messages = lines.filter_map(|line| serde_json::from_slice::<Value>(line).ok());
        let mut benches = messages.filter(|message| message["target"]["name"] == "bench");
        benches
            .find_map(|message| message["executable"].as_str().map(PathBuf::from))
            .expect("Cargo says where it is")
    });
    let mut example = match arguments.contains(&CARD) {
        true => program(path),
        false => Command::new(path),
    };
    example.arg(name).args(arguments);
    example
}

/// The device that the library shows.
const CARD: &str = "mlx5_0";

/// A program of somebody else's with the library under it.
fn program(name: impl AsRef<OsStr>) -> Command {
    preloaded::under(name).expect("Cargo builds the library beside the tests")
}

/// What became of both ends.
struct Met {
    ours: Output,
    /// Whether theirs went well, and what it said.
    theirs: (bool, String),
}

impl Met {
    /// Both went well: our document.
    #[track_caller]
    fn document(&self) -> Value {
        let said = String::from_utf8_lossy(&self.ours.stderr);
        let theirs = &self.theirs.1;
        assert!(
            self.ours.status.success(),
            "{said}\ntheirs: {}",
            last(theirs)
        );
        assert!(self.theirs.0, "theirs: {}", last(theirs));
        serde_json::from_slice(&self.ours.stdout).unwrap()
    }

    /// Whether ours has ended with an error that says this.
    fn says(&self, wanted: &str) -> bool {
        !self.ours.status.success() && String::from_utf8_lossy(&self.ours.stderr).contains(wanted)
    }

    /// Ours ended with one line, which has this in it.
    #[track_caller]
    fn refused(&self, wanted: &str) {
        let said = String::from_utf8_lossy(&self.ours.stderr);
        assert_eq!(self.ours.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains(wanted), "{said}");
        print!("{said}");
    }
}

/// When the other program is killed, if it is, after both ends have started.
type Kill = Option<Duration>;

/// When a program is killed, in milliseconds, and what ours says then. By the last moment both are under way; on a busy
/// machine only by the one after it.
const MOMENTS: [(&[u64], &str); 4] = [
    (&[0], "error: "),
    (&[200], "error: "),
    (&[500], "error: "),
    (&[3_000, 10_000], " does not go on: "),
];

/// The other program is killed at the first of these moments at which ours says what is wanted.
#[track_caller]
fn killed(moments: &[u64], wanted: &str, run: impl Fn(Kill) -> Met) {
    let (last, earlier) = moments.split_last().unwrap();
    let at = |milliseconds: &u64| run(Some(Duration::from_millis(*milliseconds)));
    if !earlier.iter().any(|moment| at(moment).says(wanted)) {
        at(last).refused(wanted);
    }
}

/// Runs a server and its client, one of which is ours.
fn meet(ours: &mut Command, theirs: &mut Command, our_role: Role, kill: Kill) -> Met {
    let _alone = alone();
    let deadline = Instant::now() + DEADLINE;
    let port = free_port();
    ours.args(["--port", &port.to_string()]).arg("--json");
    theirs.args(["-p", &port.to_string()]);
    let (ours, mut theirs) = match our_role {
        Role::Client => {
            let theirs = listening(Process::start(theirs), port, deadline);
            (Process::start(ours.arg("localhost")), theirs)
        }
        Role::Server => {
            let ours = listening(Process::start(ours), port, deadline);
            (ours, Process::start(theirs.arg("localhost")))
        }
    };
    if let Some(moment) = kill {
        sleep(moment);
        theirs.kill();
    }
    let (ours, in_time) = ours.end(deadline);
    assert!(in_time, "ours has not ended");
    // Theirs may wait for ever for an end that has gone.
    let patience = match ours.status.success() {
        true => deadline,
        false => Instant::now() + Duration::from_millis(100),
    };
    Met {
        ours,
        theirs: theirs.finish(patience),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Client,
    Server,
}

/// How many seconds ours waits for a program that does nothing: one that is not killed may only wait for a core.
fn patience(kill: Kill) -> &'static str {
    match kill {
        Some(_) => "5",
        None => "120",
    }
}

/// A ping-pong with these arguments of ours and theirs.
fn ping_pong(role: Role, ours: &[&str], theirs: &[&str], kill: Kill) -> Met {
    let mut example = example("pingpong", ours);
    example.args(["--peer", "ibv_rc_pingpong", "--timeout", patience(kill)]);
    let mut program = program("ibv_rc_pingpong");
    program.args(["-g", "0"]);
    meet(&mut example, program.args(theirs), role, kill)
}

/// It goes well, and both ends have checked what they received: theirs checks as a server (`-c`).
#[track_caller]
fn well(role: Role, ours: &[&str], theirs: &[&str]) {
    let met = ping_pong(role, ours, &[&["-c"], theirs].concat(), None);
    let document = met.document();
    let name = ["client", "server"][usize::from(role == Role::Server)];
    assert_eq!(document["role"], name);
    assert_eq!(document["results"][0]["verified"], true);
    println!("{document:#}\n{}", met.theirs.1);
}

macro_rules! ping_pongs {
    ($($name:ident: $role:ident $ours:tt $theirs:tt;)*) => {$(
        #[test]
        #[cfg_attr(not(ibverbs_utils), ignore = "ibverbs-utils is not installed")]
        fn $name() {
            well(Role::$role, &$ours, &$theirs);
        }
    )*};
}

ping_pongs! {
    as_client: Client [] [];
    as_server: Server [] [];
    as_client_small: Client ["--size", "8", "--rounds", "300"] ["-s", "8", "-n", "300"];
    as_server_small: Server ["--size", "8", "--rounds", "300"] ["-s", "8", "-n", "300"];
    as_client_large: Client ["--size", "1000000", "--rounds", "50"] ["-s", "1000000", "-n", "50"];
    as_server_large: Server ["--size", "1000000", "--rounds", "50"] ["-s", "1000000", "-n", "50"];
    as_client_events: Client ["--rounds", "200"] ["-n", "200", "-e"];
    as_server_events: Server ["--rounds", "200"] ["-n", "200", "-e"];
    // The first message, which is the other program's own, is still there at the end.
    as_server_few: Server ["--size", "9000", "--rounds", "3"] ["-s", "9000", "-n", "3"];
    as_client_one: Client ["--rounds", "1"] ["-n", "1"];
    as_client_card: Client ["--nic", CARD] [];
    as_server_card: Server ["--nic", CARD] [];
}

/// Whatever differs between both ends, ours ends by itself and says so.
#[test]
#[cfg_attr(not(ibverbs_utils), ignore = "ibverbs-utils is not installed")]
fn other_sizes_and_rounds() {
    for role in [Role::Client, Role::Server] {
        let short = ping_pong(role, &["--size", "4K"], &["-s", "4000"], None);
        match role {
            Role::Client => short.refused("does not go on: remote invalid request"),
            Role::Server => short.refused("a message of 4000 bytes came, ours have 4096"),
        }
        let long = ping_pong(role, &["--size", "4000"], &["-s", "4096"], None);
        long.refused("does not go on: local length");
        let few = ping_pong(role, &["--rounds", "60"], &["-n", "50"], None);
        few.refused("does not go on");
    }
    let many = ping_pong(Role::Server, &["--rounds", "50"], &["-n", "60"], None);
    many.refused("another message came after 50 rounds");
    let nowhere = {
        let mut example = example("pingpong", &["--peer", "ibv_rc_pingpong"]);
        meet(
            &mut example,
            &mut program("ibv_rc_pingpong"),
            Role::Server,
            None,
        )
    };
    nowhere.refused("sends no GID");
}

#[test]
#[cfg_attr(not(ibverbs_utils), ignore = "ibverbs-utils is not installed")]
fn killed_players() {
    let endless = [["--rounds", "1000000"], ["-n", "1000000"]];
    for role in [Role::Client, Role::Server] {
        for (moments, wanted) in MOMENTS {
            killed(moments, wanted, |kill| {
                ping_pong(role, &endless[0], &endless[1], kill)
            });
            ping_pong(role, &["--rounds", "50"], &["-n", "50"], None).document();
        }
    }
}

/// Writes to a program of perftest's with these arguments.
fn write(server: &str, ours: &[&str], theirs: &[&str], kill: Kill) -> Met {
    let mut example = example("bandwidth", ours);
    example.args(["--peer", "perftest", "--timeout", patience(kill)]);
    let mut program = program(server);
    program.args(["-x", "0", "-F"]);
    meet(&mut example, program.args(theirs), Role::Client, kill)
}

/// The numbers in the row of the server's table.
fn row(said: &str) -> Vec<f64> {
    let mut lines = said.lines().skip_while(|line| !line.contains("#bytes"));
    let row = lines.nth(1).expect("a row under the columns' names");
    row.split_whitespace()
        .map(|number| number.parse().unwrap())
        .collect()
}

/// Both ends agree on what was written, and every byte lies in the server's memory.
#[track_caller]
fn agree(bytes: u64, messages: u64, ours: &[&str], theirs: &[&str]) {
    let _alone = alone();
    let deadline = Instant::now() + DEADLINE;
    let port = free_port();
    let mut program = program("ib_write_bw");
    program.args(["-x", "0", "-F", "-p", &port.to_string()]);
    let server = listening(Process::start(program.args(theirs)), port, deadline);
    let seed = 0x5eed + bytes;
    let data = perftest::data(seed, bytes);
    let proxy = Proxy::start(port, server.id(), data);
    let mut client = example("bandwidth", ours);
    client
        .args(["--peer", "perftest", "localhost", "--json"])
        .args(["--port", &proxy.port().to_string()])
        .args(["--size", &bytes.to_string()])
        .args(["--messages", &messages.to_string()])
        .args(["--seed", &seed.to_string()]);
    let (ours, _) = Process::start(&mut client).end(deadline);
    let met = Met {
        ours,
        theirs: server.finish(deadline),
    };
    let document = met.document();
    let ours = &document["results"][0];
    assert_eq!(
        (&ours["bytes"], &ours["messages"]),
        (&bytes.into(), &messages.into())
    );
    let [their_bytes, their_messages, _, their_rate, _] = row(&met.theirs.1)[..] else {
        panic!("{}", met.theirs.1);
    };
    assert_eq!(
        (their_bytes, their_messages),
        (bytes as f64, messages as f64)
    );
    // As many digits as it prints.
    assert!((their_rate - ours["mib_per_s"].as_f64().unwrap()).abs() < 0.01);
    assert!(
        proxy.has_seen_the_data(),
        "the data are not in the server's memory"
    );
    println!("{document:#}\n{}", last(&met.theirs.1));
}

macro_rules! agreements {
    ($($name:ident: $bytes:literal $messages:literal $ours:tt $theirs:tt;)*) => {$(
        #[test]
        #[cfg_attr(not(perftest), ignore = "perftest is not installed")]
        fn $name() {
            agree($bytes, $messages, &$ours, &$theirs);
        }
    )*};
}

agreements! {
    written: 65_536 5_000 [] [];
    written_small: 8 1_000 [] ["-s", "8"];
    written_large: 8_388_608 20 [] ["-s", "8388608"];
    written_odd: 9_001 500 [] ["-s", "9001"];
    written_less_than_there_is_room_for: 4_096 100 [] [];
    written_by_a_card: 65_536 1_000 ["--nic", CARD] [];
}

#[test]
#[cfg_attr(not(perftest), ignore = "perftest is not installed")]
fn other_servers() {
    let short = write("ib_write_bw", &[], &["-s", "1024"], None);
    short.refused("does not go on: remote access");
    write("ib_write_bw", &[], &["-q", "2"], None).refused("queue pair 0x");
    let few = ["--messages", "100"];
    write("ib_write_bw", &few, &["-b", "-n", "100"], None).refused("(no -b)");
    // Ours alone: a batch that its queue does not take.
    write("ib_write_bw", &["--depth", "8"], &[], None).refused("16 blocks");
    write("ib_send_bw", &[], &[], None).refused("does not go on");
    write("ib_read_bw", &[], &[], None).refused("does not go on");
    write("ib_write_bw", &[], &["--dont_xchg_versions"], None).refused("the version");
}

#[test]
#[cfg_attr(not(perftest), ignore = "perftest is not installed")]
fn killed_write_servers() {
    for (moments, wanted) in MOMENTS {
        let endless = ["--messages", "100000000"];
        killed(moments, wanted, |kill| {
            write("ib_write_bw", &endless, &[], kill)
        });
        write("ib_write_bw", &["--messages", "50"], &[], None).document();
    }
}
