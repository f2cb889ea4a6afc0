//! Who this rank is, and where rank 0 is.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;

use sha2::{Digest, Sha256};

use crate::address::is_loopback;
use crate::{Environment, Launcher, MOST_RANKS, PmiFd, RanksError, Root, Secret};

/// Who this rank is, and where rank 0 is. `Display` is a line for rank 0 to print, such as "started by torchrun: 4
/// ranks, root node7:21001, without a secret".
#[derive(Clone, Debug)]
pub struct Config {
    /// What started the ranks.
    pub launcher: Launcher,
    /// The number of this rank, from 0.
    pub rank: u32,
    /// How many ranks there are.
    pub size: u32,
    /// The number of this rank among those of its host. Without it, the ranks count themselves.
    pub local_rank: Option<u32>,
    /// How the ranks find rank 0.
    pub root: Root,
    /// Where rank 0 listens, if that is another address than the one the others use. Port 0 is the root's port.
    pub bind: Option<SocketAddr>,
    /// What the ranks share and nobody else knows.
    pub secret: Option<Secret>,
}

impl Config {
    /// Reads the variables that the page of this [crate] lists.
    ///
    /// # Errors
    /// [`RanksError::BadValue`], [`Disagree`](RanksError::Disagree), [`Incomplete`](RanksError::Incomplete),
    /// [`ShortSecret`](RanksError::ShortSecret), [`NoRoot`](RanksError::NoRoot), and those of a rank or size out of
    /// range.
    pub fn read(env: &Environment) -> Result<Self, RanksError> {
        let mut config = Self::without_root(env)?;
        config.root = root(&config, env)?;
        (config.bind, config.secret) = Self::own(env)?;
        config.check()?;
        Ok(config)
    }

    /// What only a user says: where rank 0 listens, and the secret.
    pub(crate) fn own(
        env: &Environment,
    ) -> Result<(Option<SocketAddr>, Option<Secret>), RanksError> {
        let bind = env.read("WARPBELL_BIND", "an IP address, or one with a port", bind)?;
        // One that is set to nothing is too short: a slip in a script does not turn authentication off.
        let secret = env.raw("WARPBELL_SECRET").map(OsStrExt::as_bytes);
        Ok((bind, secret.map(Secret::new).transpose()?))
    }

    pub(crate) fn check(&self) -> Result<(), RanksError> {
        let &Self { rank, size, .. } = self;
        if size == 0 || size > MOST_RANKS {
            return Err(RanksError::SizeOutOfRange(size));
        }
        if rank >= size {
            return Err(RanksError::RankOutOfRange { rank, size });
        }
        Ok(())
    }

    /// Whether strangers on the network can join, if they know where.
    pub(crate) fn is_exposed(&self) -> bool {
        let Root::Tcp { host, .. } = &self.root else {
            return false;
        };
        let bound = self.bind.is_some_and(|bind| !bind.ip().is_loopback());
        self.secret.is_none() && (bound || !is_loopback(host))
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            launcher,
            size,
            root,
            ..
        } = self;
        let plural = if *size == 1 { "" } else { "s" };
        let word = if *root == Root::Alone { "" } else { "root " };
        write!(
            f,
            "started by {launcher}: {size} rank{plural}, {word}{root}"
        )?;
        if self.is_exposed() {
            f.write_str(", without a secret")?;
        }
        Ok(())
    }
}

fn bind(text: &str) -> Option<SocketAddr> {
    let alone = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    alone.or_else(|_| text.parse()).ok()
}

fn root(config: &Config, env: &Environment) -> Result<Root, RanksError> {
    let expected = "host:port or [IPv6 address]:port";
    // Also for one rank a bad value is an error.
    let given = env.read("WARPBELL_ROOT", expected, Root::parse)?;
    if config.size == 1 {
        return Ok(Root::Alone);
    }
    if let Some(root) = given {
        return Ok(root);
    }
    let one_node = || Ok::<_, RanksError>(env.number("SLURM_STEP_NUM_NODES")? == Some(1));
    let hint = match config.launcher {
        Launcher::Torchrun => return torchrun(env),
        Launcher::OpenMpi => {
            if let Some(root) = open_mpi(config.size, env)? {
                return Ok(root);
            }
            "mpirun -x WARPBELL_ROOT=host:port -x WARPBELL_SECRET"
        }
        launcher @ (Launcher::Pmi | Launcher::Slurm) => {
            if let Some(fd) = env.read("PMI_FD", "an open file", PmiFd::parse)? {
                let local = env.number("MPI_LOCALNRANKS")? == Some(config.size);
                let one_host = local || launcher == Launcher::Slurm && one_node()?;
                return Ok(Root::Pmi { fd, one_host });
            }
            if launcher == Launcher::Slurm {
                return slurm(one_node()?, env);
            }
            "mpiexec -genv WARPBELL_ROOT host:port"
        }
        Launcher::Hand | Launcher::Nobody | Launcher::Mpi => "the same value for each",
    };
    Err(RanksError::NoRoot(hint))
}

fn required(env: &Environment, variable: &'static str) -> Result<String, RanksError> {
    env.text(variable)?.ok_or(RanksError::Incomplete(variable))
}

/// torchrun's store listens at `MASTER_PORT`, and the port of another job's store may be the next one.
fn torchrun(env: &Environment) -> Result<Root, RanksError> {
    let port = required(env, "MASTER_PORT")?;
    let run = env.text("TORCHELASTIC_RUN_ID")?.unwrap_or_default();
    let variable = "MASTER_ADDR";
    let root = env.read(variable, "a host name or an address", |host| {
        let ours = port_of(&["torchrun", host, &port, &run]);
        let brackets = host.contains(':') && !host.starts_with('[');
        Root::parse(&match brackets {
            true => format!("[{host}]:{ours}"),
            false => format!("{host}:{ours}"),
        })
    })?;
    root.ok_or(RanksError::Incomplete(variable))
}

/// Open MPI 4 speaks PMIx alone. Ranks on one host do not need it: they share the job's name.
fn open_mpi(size: u32, env: &Environment) -> Result<Option<Root>, RanksError> {
    let job = match env.text("PMIX_NAMESPACE")? {
        None => env.text("OMPI_MCA_ess_base_jobid")?,
        job => job,
    };
    let one_host = env.number("OMPI_COMM_WORLD_LOCAL_SIZE")? == Some(size);
    Ok(job
        .filter(|_| one_host)
        .map(|job| local_root(&["openmpi", &job])))
}

/// Slurm starts rank 0 on the first node of a step, whatever the distribution (but `arbitrary`).
fn slurm(one_host: bool, env: &Environment) -> Result<Root, RanksError> {
    let job = required(env, "SLURM_JOB_ID")?;
    let step = env.text("SLURM_STEP_ID")?.unwrap_or_default();
    let words = ["slurm", &job, &step];
    if one_host {
        return Ok(local_root(&words));
    }
    let variable = match env.raw("SLURM_STEP_NODELIST") {
        Some(_) => "SLURM_STEP_NODELIST",
        None => "SLURM_JOB_NODELIST",
    };
    let expected = "a list of nodes, such as node[01-04,7],other";
    let host = env.read(variable, expected, first_node)?;
    Ok(Root::Tcp {
        host: host.ok_or(RanksError::Incomplete(variable))?,
        port: port_of(&words),
    })
}

fn local_root(job: &[&str]) -> Root {
    let user = rustix::process::geteuid().as_raw();
    Root::Local(format!("warpbell-{user}-{:016x}", hash(job)))
}

/// The first node of a list such as `node[01-04,7],other`.
fn first_node(list: &str) -> Option<String> {
    let mut node = String::new();
    let mut rest = list;
    while let Some(at) = rest.find(['[', ',']) {
        node.push_str(&rest[..at]);
        if rest[at..].starts_with(',') {
            rest = "";
            break;
        }
        let (ranges, after) = rest[at + 1..].split_once(']')?;
        let first = ranges.split(['-', ',']).next()?;
        if first.is_empty() || !first.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        node.push_str(first);
        rest = after;
    }
    node.push_str(rest);
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    (!node.is_empty() && node.chars().all(plain)).then_some(node)
}

/// A port that all ranks of a job find for themselves: one of 20,000 below those that Linux gives to callers.
fn port_of(job: &[&str]) -> u16 {
    10_000 + (hash(job) % 20_000) as u16
}

fn hash(words: &[&str]) -> u64 {
    let digest = Sha256::digest(words.join("\0"));
    u64::from_le_bytes(*digest.first_chunk().expect("a digest has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    const HAND: &str = "WARPBELL_RANK=5 WARPBELL_SIZE=8 WARPBELL_LOCAL_RANK=1";
    const SECRET: &str = "WARPBELL_SECRET=a-long-and-random-secret";
    const TORCHRUN: &str = "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=fe80::1 MASTER_PORT=29500";
    const OPEN_MPI: &str = "OMPI_COMM_WORLD_RANK=5 OMPI_COMM_WORLD_SIZE=8 \
        OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=8 PMIX_NAMESPACE=1234";
    const HYDRA: &str = "PMI_RANK=5 PMI_SIZE=8 MPI_LOCALRANKID=1 PMI_FD=6 MPI_LOCALNRANKS=8";
    const SRUN: &str = "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_STEP_ID=0 \
        SLURM_JOB_ID=77 SLURM_STEP_NODELIST=node[01-04,7],other";
    /// Reads variables, of which later ones replace earlier ones; a word without `=` stands for those above.
    fn read(words: &str) -> Result<Config, RanksError> {
        let expanded = words.split(' ').map(|word| match word {
            "HAND" => HAND,
            "ROOT" => "WARPBELL_ROOT=node7:5000",
            "SECRET" => SECRET,
            "TORCHRUN" => TORCHRUN,
            "OPENMPI" => OPEN_MPI,
            "HYDRA" => HYDRA,
            "PMI" => "PMI_RANK=5 PMI_SIZE=8 PMI_FD=6",
            "SRUN" => SRUN,
            // mpirun, torchrun and mpiexec run inside of such a step.
            "OUTER" => "SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_STEP_ID=0",
            "ONE_NODE" => "SLURM_STEP_NUM_NODES=1",
            word => word,
        });
        let variables = expanded.flat_map(|text| text.split_whitespace());
        Config::read(&variables.map(|one| one.split_once('=').unwrap()).collect())
    }

    /// The lines of a table: variables, and how the words of the configuration or of the error start.
    fn check(table: &str) {
        for line in table.lines().filter(|line| !line.is_empty()) {
            let (variables, expected) = line.split_once(" | ").unwrap();
            let config = read(variables.trim_end());
            let words = match &config {
                Ok(config) => config.to_string(),
                Err(error) => error.to_string(),
            };
            assert!(words.starts_with(expected), "{line}: {words}");
            if let Some(config) = config.ok().filter(|config| config.size > 1) {
                let numbers = (config.rank, config.size, config.local_rank);
                assert_eq!(numbers, (5, 8, Some(1)), "{line}");
                assert!(!format!("{config:?} {config}").contains("random"));
            }
        }
    }

    #[test]
    fn each_launcher_says_who_a_rank_is_and_where_the_root() {
        check(
            "
HAND ROOT             | started by hand: 8 ranks, root node7:5000, without a secret
HAND ROOT SECRET      | started by hand: 8 ranks, root node7:5000
TORCHRUN              | started by torchrun: 8 ranks, root [fe80::1]:
TORCHRUN ROOT         | started by torchrun: 8 ranks, root node7:5000
TORCHRUN OUTER        | started by torchrun: 8 ranks, root [fe80::1]:
OPENMPI               | started by openmpi: 8 ranks, root @warpbell-
OPENMPI OUTER         | started by openmpi: 8 ranks, root @warpbell-
OPENMPI HAND          | started by openmpi: 8 ranks, root @warpbell-
HYDRA                 | started by pmi: 8 ranks, root by PMI on this host
HYDRA OUTER           | started by pmi: 8 ranks, root by PMI on this host
HYDRA MPI_LOCALNRANKS=4 | started by pmi: 8 ranks, root by PMI
SRUN                  | started by slurm: 8 ranks, root node01:
SRUN ONE_NODE         | started by slurm: 8 ranks, root @warpbell-
SRUN PMI              | started by slurm: 8 ranks, root by PMI
SRUN PMI ONE_NODE     | started by slurm: 8 ranks, root by PMI on this host
TORCHRUN OPENMPI WORLD_SIZE=2 WARPBELL_LAUNCHER=openmpi | started by openmpi: 8 ranks
RANK=3 SLURM_PROCID=0 SLURM_NTASKS=4 PMI_RANK= | started by nobody: 1 rank, no network
",
        );
        let root = |words| read(words).unwrap().root;
        assert_ne!(root("TORCHRUN"), root("TORCHRUN MASTER_PORT=29501"));
        assert!((10_000..30_000).contains(&port_of(&["torchrun"])));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_value() {
        check(
            r#"
HAND ROOT WARPBELL_RANK=-1         | WARPBELL_RANK is "-1"; it must be
HAND WARPBELL_ROOT=node7           | WARPBELL_ROOT is "node7"; it must be
HAND ROOT WARPBELL_BIND=node7:1    | WARPBELL_BIND is "node7:1"; it must be
WARPBELL_LAUNCHER=mpi              | WARPBELL_LAUNCHER is "mpi"; it must be
WARPBELL_LAUNCHER=torchrun         | WARPBELL_LAUNCHER is torchrun, but RANK is not set
HYDRA WARPBELL_LAUNCHER=slurm      | WARPBELL_LAUNCHER is slurm, but SLURM_PROCID is not set
HYDRA PMI_RANK=x                   | PMI_RANK is "x"; it must be
HYDRA PMI_FD=-1                    | PMI_FD is "-1"; it must be
SRUN SLURM_STEP_NODELIST=node[01-  | SLURM_STEP_NODELIST is "node[01-"; it must be
HAND                               | nothing says where rank 0 listens
HYDRA PMI_FD=                      | nothing says where rank 0 listens
OPENMPI OMPI_COMM_WORLD_LOCAL_SIZE=2 | nothing says where rank 0 listens; give all ranks WARPBELL_ROOT=host:port (mpirun -x
HAND ROOT WARPBELL_RANK=8          | rank 8 is outside the 8 ranks
HAND ROOT WARPBELL_SIZE=1          | rank 5 is outside the 1 ranks
HAND ROOT WARPBELL_SIZE=0          | 0 ranks are outside
HAND ROOT WARPBELL_SIZE=16385      | 16385 ranks are outside
OMPI_COMM_WORLD_RANK=2             | OMPI_COMM_WORLD_SIZE is not set
PMI_RANK=2                         | PMI_SIZE is not set
WARPBELL_RANK=2                    | WARPBELL_SIZE is not set
WARPBELL_SIZE=2                    | WARPBELL_RANK is not set
TORCHRUN MASTER_PORT=              | MASTER_PORT is not set
TORCHRUN WARPBELL_RANK=4           | WARPBELL_RANK=4 and RANK=5 disagree
OPENMPI WARPBELL_RANK=4            | WARPBELL_RANK=4 and OMPI_COMM_WORLD_RANK=5 disagree
HYDRA WARPBELL_RANK=4              | WARPBELL_RANK=4 and PMI_RANK=5 disagree
SRUN WARPBELL_RANK=4               | WARPBELL_RANK=4 and SLURM_PROCID=5 disagree
TORCHRUN OPENMPI WORLD_SIZE=2      | WORLD_SIZE=2 and OMPI_COMM_WORLD_SIZE=8 disagree
"#,
        );
    }

    /// A secret counts whatever its bytes are, is never shown, and none is left out in silence.
    #[test]
    fn a_secret_is_never_overlooked() {
        for short in ["", "hunter2"] {
            let error = read(&format!("HAND ROOT WARPBELL_SECRET={short}")).unwrap_err();
            assert!(short.is_empty() || !error.to_string().contains(short));
            assert_matches!(error => RanksError::ShortSecret(bytes) if bytes == short.len());
        }
        let of = |name, value| {
            let variables = [(name, OsStr::from_bytes(value))];
            Config::read(&variables.into_iter().collect())
        };
        let config = of("WARPBELL_SECRET", b"\xff\xfe not in UTF-8, but long").unwrap();
        assert!(config.secret.is_some());
        let bad = of("WARPBELL_RANK", b"\xff");
        assert_matches!(bad => Err(RanksError::BadValue { variable: "WARPBELL_RANK", .. }));
        let variables: Environment = [SECRET.split_once('=').unwrap()].into_iter().collect();
        assert_eq!(format!("{variables:?}"), r#"{"WARPBELL_SECRET"}"#);
    }

    #[test]
    fn ranks_are_exposed_where_strangers_reach_them() {
        for (place, exposed) in [
            ("WARPBELL_ROOT=127.0.0.1:5000", false),
            (
                "WARPBELL_ROOT=localhost:5000 WARPBELL_BIND=127.0.0.2",
                false,
            ),
            ("WARPBELL_ROOT=127.0.0.1:5000 WARPBELL_BIND=0.0.0.0:7", true),
            ("WARPBELL_ROOT=node7:5000", true),
        ] {
            let exposed_by = |words: &str| read(&format!("{words} {place}")).unwrap().is_exposed();
            assert_eq!(exposed_by("HAND"), exposed, "{place}");
            assert!(!exposed_by("HAND SECRET"));
        }
    }

    /// The names that `scontrol show hostnames` prints first.
    #[test]
    fn the_first_node_of_a_list_is_found() {
        for (list, first) in [
            ("alone", "alone"),
            ("a,b", "a"),
            ("node[01-04,7],other", "node01"),
            ("node[7,1-3]", "node7"),
            ("rack[1-2]n[10-12].cluster", "rack1n10.cluster"),
        ] {
            assert_eq!(first_node(list).as_deref(), Some(first), "{list}");
        }
        for list in ", node[ node[] node[a] node]1 [1 node[-1]"
            .split(' ')
            .chain([""])
        {
            assert_eq!(first_node(list), None, "{list}");
        }
    }
}
