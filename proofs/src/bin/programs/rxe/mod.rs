//! Rows whose other end is Linux's own soft-RoCE (rxe), in a virtual machine.
//!
//! The virtual machine is joined to a network namespace, in which our end runs with the preloaded device. Each row runs
//! twice, with rxe as the server and as the client. Then the virtual machine's link loses, delays, reorders and doubles
//! packets.

mod files;
mod guest;

use std::path::Path;
use std::time::{Duration, Instant};

use warpbell_proofs::namespace::Namespace;
use warpbell_proofs::pair::{self, Process, Side};

use crate::machines::with_gid;
use crate::{Outcome, Total, missing, outcome};
use guest::{ADDRESSES, Guest, HOST, TAP};

/// Programs, their transports, and their options behind that of the GID. The virtual machine is slow, so that few messages
/// are enough, and on a busy machine it answers later than 8 timeouts of perftest (0.5 s): `-u 18` is 1 s. Both ends agree
/// on 16 READs under way, which rxe would have 128 of.
const CASES: &[(&str, &str, &str)] = &[
    ("ibv_rc_pingpong", "RC", "-n 100 -c"),
    ("ibv_uc_pingpong", "UC", "-n 50"),
    ("ibv_ud_pingpong", "UD", "-n 50"),
    ("ib_write_bw", "RC", "-n 50 -u 18"),
    ("ib_read_lat", "RC", "-n 100 -o 16"),
    ("ib_atomic_lat", "RC", "-n 100 -o 16"),
    ("ib_send_bw", "RC", "-n 50 -u 18"),
];
/// Those over the bad link.
const BAD_LINK_CASES: &[(&str, &str, &str)] = &[
    ("ibv_rc_pingpong", "RC", "-n 30 -c"),
    ("ib_write_bw", "RC", "-n 10 -s 16384"),
    ("ib_read_lat", "RC", "-n 30 -o 16"),
    ("ib_atomic_lat", "RC", "-n 30 -o 16"),
    ("ib_send_bw", "RC", "-n 10 -s 16384"),
];
/// The index of each GID of our end: 0 is the HCA's own.
const GIDS: [(&str, &str); 2] = [("IPv4", "1"), ("IPv6", "2")];
/// How long a row may take. An end that hangs does so for that long.
const DEADLINE: Duration = Duration::from_secs(120);

/// Which end is in the virtual machine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Server,
    Client,
}

/// What runs both ends: the namespace of ours, and the virtual machine.
struct Judge {
    guest: Guest,
    namespace: Namespace,
    /// The port of the next row, because a port that was used stays taken for a while.
    port: u16,
    /// Whether the virtual machine's link is bad.
    link_is_bad: bool,
}

/// Runs the rows and prints them. The folder has an unpacked linux-image.
pub fn rows(kernel: &Path, runs: u32, wanted: &dyn Fn(&[&str]) -> bool, total: &mut Total) {
    let mut judge = None;
    total.row(["qemu", "", "Linux with rxe starts"], 1, || {
        let started = Instant::now();
        match Judge::start(kernel) {
            Err(outcome) => outcome,
            Ok(started_judge) => {
                judge = Some(started_judge);
                Outcome::Well(format!("{:.1} s", started.elapsed().as_secs_f64()))
            }
        }
    });
    let Some(mut judge) = judge else {
        return;
    };
    let all = |cases: &[(&str, &str, &str)], judge: &mut Judge, total: &mut Total, link: &str| {
        for (family, (name, index)) in GIDS.into_iter().enumerate() {
            for (role, is) in [(Role::Server, "server"), (Role::Client, "client")] {
                for &(program, transport, options) in cases {
                    let title = format!("{options}, rxe {is}, {name}{link}");
                    let row = [program, transport, &title];
                    if wanted(&row) {
                        let arguments = with_gid(program, index, options);
                        total.row(row, runs, || {
                            judge.row(program, role, family, &arguments, options)
                        });
                    }
                }
            }
        }
    };
    all(CASES, &mut judge, total, "");
    total.row(["tc", "", "rxe's link becomes bad"], 1, || {
        match judge.guest.run(guest::BAD_LINK, DEADLINE) {
            Ok(()) => {
                judge.link_is_bad = true;
                Outcome::Well(String::new())
            }
            Err(why) => Outcome::Badly(why),
        }
    });
    all(BAD_LINK_CASES, &mut judge, total, ", bad link");
}

impl Judge {
    fn start(kernel: &Path) -> Result<Self, Outcome> {
        if let Some(missing) = missing(guest::QEMU) {
            return Err(missing);
        }
        let namespace = Namespace::new()
            .map_err(|why| Outcome::Skipped(format!("no network namespace: {why}")))?;
        let guest = Guest::boot(kernel, &namespace).map_err(Outcome::Badly)?;
        Ok(Self {
            guest,
            namespace,
            port: 20_000,
            link_is_bad: false,
        })
    }

    /// Runs a program at both ends.
    fn row(
        &mut self,
        program: &str,
        role: Role,
        family: usize,
        ours: &[&str],
        options: &str,
    ) -> Outcome {
        if let Some(missing) = missing(program) {
            return missing;
        }
        outcome(program, self.both(program, role, family, ours, options))
    }

    /// What the client said, if both ends went well.
    fn both(
        &mut self,
        program: &str,
        role: Role,
        family: usize,
        ours: &[&str],
        options: &str,
    ) -> Result<String, String> {
        let deadline = Instant::now() + DEADLINE;
        self.port += 1;
        let port = self.port.to_string();
        let environment = [("WARPBELL_ADDRESS", TAP.to_owned())];
        let side = Side {
            namespace: Some(&self.namespace),
            environment: &environment,
        };
        let ours = [&["-p", port.as_str()], ours].concat();
        let theirs = guest::call(program, &port, family, options);
        let (process, ended) = match role {
            Role::Server => {
                self.guest
                    .order(&format!("serve {:04X} {theirs}", self.port))?;
                self.guest.listens(deadline)?;
                let host = ADDRESSES[0];
                let call = &mut side.call(program, &[&ours[..], &[host]].concat());
                (Process::start(call), self.guest.ended(deadline))
            }
            Role::Client => {
                let server = Process::start(&mut side.call(program, &ours));
                let server = pair::listening(server, self.port, deadline);
                self.guest.order(&format!("{theirs} {HOST}"))?;
                (server, self.guest.ended(deadline))
            }
        };
        let (well, said) = process.finish(deadline);
        let (status, rxe_said) = ended?;
        let rxe_well = status == 0 && pair::is_right(&rxe_said);
        let failure = format!(
            "ours: {}\nrxe, status {status}: {}",
            pair::last(&said),
            pair::last(&rxe_said)
        );
        let (ours, rxe) = ((well, said), (rxe_well, rxe_said));
        let [client, server] = match role {
            Role::Server => [ours, rxe],
            Role::Client => [rxe, ours],
        };
        // Neither end of a pingpong waits for the other at its end. If the last acknowledgement to one of them is lost, nobody
        // is left to send it again; all that the other one waited for has come.
        let one_is_enough = self.link_is_bad
            && program.ends_with("_pingpong")
            && [&client, &server]
                .iter()
                .all(|(_, said)| pair::is_right(said));
        match (client, server) {
            ((true, said), (true, _)) => Ok(said),
            ((true, said), _) | (_, (true, said)) if one_is_enough => Ok(said),
            _ => Err(failure),
        }
    }
}
