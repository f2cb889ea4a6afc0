//! Ranks that are processes, and a thousand ranks. The thousand take both the files and the time of a process, so that
//! they are not among the unit tests, some of which have little time.

#[cfg(feature = "launch")]
mod launch;
#[cfg(feature = "launch")]
mod other_hosts;

use std::io::ErrorKind;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use warpbell_ranks::{Bootstrap, Config, Environment, FailedRank, RanksError, Rendezvous, Root};

const PATIENCE: Duration = Duration::from_secs(300);
const RANKS: u32 = 1000;
/// Two ends of each connection are in this process, and rank 0 keeps room for as many again.
const FILES: u64 = 3 * RANKS as u64 + 500;

/// A loopback address that no other process has.
fn root(port: u16) -> Root {
    let [_, b, c, d] = std::process::id().to_be_bytes();
    Root::Tcp {
        host: format!("127.{}.{c}.{d}", 128 + b % 64),
        port,
    }
}

fn join(root: Root, rank: u32, size: u32) -> Rendezvous {
    let alone = Config::read(&Environment::default()).unwrap();
    let config = Config {
        rank,
        size,
        local_rank: None,
        root,
        ..alone
    };
    Rendezvous::join(&config, PATIENCE).unwrap()
}

fn exchange(ranks: &mut Rendezvous) {
    let size = ranks.size();
    let rank = ranks.rank().to_le_bytes();
    let all = ranks.allgather(&rank, PATIENCE).unwrap();
    assert!(all.into_iter().eq((0..size).map(u32::to_le_bytes)));
    ranks.barrier(PATIENCE).unwrap();
}

#[test]
fn a_thousand_ranks_find_each_other() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < FILES) {
        let current = Some(FILES);
        if setrlimit(Resource::Nofile, Rlimit { current, ..limit }).is_err() {
            println!("skipped: this user may not open {FILES} files");
            return;
        }
    }
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let thread = std::thread::Builder::new().stack_size(256 * 1024);
            let part = move || {
                let mut ranks = join(root(20_000), rank, RANKS);
                assert_eq!(ranks.local_rank(), rank);
                exchange(&mut ranks);
            };
            thread.spawn_scoped(scope, part).unwrap();
        }
    });
}

const PART: &str = "WARPBELL_TEST_RANKS";

/// It is no test of its own: without its variable it does nothing.
#[test]
fn another_process() {
    let Some(part) = std::env::var_os(PART) else {
        return;
    };
    let mut ranks = Rendezvous::from_env(PATIENCE).unwrap();
    assert_eq!(ranks.size(), 3);
    exchange(&mut ranks);
    match part.to_str() {
        Some("exchange") => println!("all three have exchanged"),
        Some("abort") => {
            ranks.abort("enough");
            std::process::exit(0);
        }
        // The kill comes from the other side.
        _ => {
            std::thread::sleep(PATIENCE);
            panic!("nobody killed this process");
        }
    }
}

/// The arguments by which this program is `another_process`.
const ANOTHER: [&str; 3] = ["--exact", "another_process", "--nocapture"];

/// A process of three ranks; killed when the test ends, however it ends.
struct Process(Child);

impl Process {
    fn start(part: &str, root: &Root, rank: u32) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(ANOTHER)
            .env(PART, part)
            .env("WARPBELL_LAUNCHER", "hand")
            .env("WARPBELL_RANK", rank.to_string())
            .env("WARPBELL_SIZE", "3")
            .env("WARPBELL_ROOT", root.to_string())
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the other two ranks come to, if a process is one of three ranks, and is `killed` once all have exchanged.
fn survivors(part: &str, port: u16, rank: u32, killed: bool) -> Vec<(u32, FailedRank)> {
    let process = Process::start(part, &root(port), rank);
    std::thread::scope(|scope| {
        let others = (0..3).filter(|other| *other != rank);
        let joined = others.map(|other| {
            scope.spawn(move || {
                let mut ranks = join(root(port), other, 3);
                exchange(&mut ranks);
                ranks
            })
        });
        let joined: Vec<_> = joined.collect();
        let joined: Vec<_> = joined.into_iter().map(|one| one.join().unwrap()).collect();
        let _process = (!killed).then_some(process);
        let gather = |mut ranks: Rendezvous| {
            scope.spawn(move || match ranks.allgather(b"", PATIENCE) {
                Err(RanksError::Failed(failure)) => (failure.rank, failure.why),
                other => panic!("{other:?}"),
            })
        };
        let errors: Vec<_> = joined.into_iter().map(gather).collect();
        errors.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

#[test]
fn a_process_that_is_killed_is_an_error_on_all_others() {
    for (port, killed) in [(20_001, 0), (20_002, 2)] {
        let failed = survivors("wait", port, killed, true);
        let expected = match killed {
            0 => FailedRank::RootLost,
            _ => FailedRank::Lost,
        };
        assert_eq!(failed, vec![(killed, expected); 2]);
    }
}

#[test]
fn a_process_that_aborts_and_exits_tells_all_others() {
    for (port, aborting) in [(20_003, 0), (20_004, 2)] {
        let failed = survivors("abort", port, aborting, false);
        let enough = FailedRank::Aborted("enough".into());
        assert_eq!(failed, vec![(aborting, enough); 2]);
    }
}

#[test]
fn launchers_start_ranks() {
    let torchrun = ["torchrun", "--no_python", "--nproc_per_node", "3"];
    let mpirun = [
        "mpirun.openmpi",
        "--allow-run-as-root",
        "--oversubscribe",
        "-np",
        "3",
    ];
    let mpiexec = ["mpiexec.hydra", "-n", "3"];
    #[cfg(feature = "launch")]
    let own = [launch::LAUNCH, "-n", "3"];
    #[cfg(not(feature = "launch"))]
    let own = ["warpbell-launch", "-n", "3"];
    for launcher in [&mpirun[..], &mpiexec, &torchrun, &own] {
        let started = Command::new(launcher[0])
            .args(&launcher[1..])
            .arg(std::env::current_exe().unwrap())
            .args(ANOTHER)
            .env(PART, "exchange")
            // torchrun 1.13 on Python 3.11, as Debian 12 has them, cannot start without these.
            .envs([("PET_REDIRECTS", "1"), ("PET_TEE", "1")])
            .output();
        match started {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                println!("skipped: {} is not installed", launcher[0]);
            }
            started => {
                let output = started.unwrap();
                // The lines of ranks may run into each other: one that is whole is enough.
                let words = String::from_utf8_lossy(&output.stdout);
                let exchanged = words.contains("all three have exchanged");
                assert!(output.status.success() && exchanged, "{output:?}");
            }
        }
    }
}
