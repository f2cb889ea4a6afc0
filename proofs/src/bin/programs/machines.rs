//! Rows over RoCE v2: between two network namespaces, which are machines of their own, and on one machine where the wire is
//! forced.

use warpbell_proofs::namespace::{LINK, Namespace};
use warpbell_proofs::pair::{self, Side};

use crate::{Outcome, Total, captured, missing, outcome, ucx};

/// The index of each GID between the namespaces: 0 is the HCA's own.
const GIDS: [(&str, &str); 2] = [("IPv4", "1"), ("IPv6", "2")];
/// By whose address the client calls, over either kind.
pub const SERVER: &str = "10.78.0.1";

/// Programs, their transports, and their options behind that of the GID.
const CASES: &[(&str, &str, &str)] = &[
    ("ibv_rc_pingpong", "RC", "-n 200 -c"),
    ("ibv_rc_pingpong", "RC", "-n 200 -e -c"),
    ("ibv_uc_pingpong", "UC", "-n 200"),
    ("ibv_ud_pingpong", "UD", "-n 200"),
    ("ib_write_bw", "RC", "-n 1000"),
    ("ib_write_bw", "RC", "-n 200 -m 1024 -b -q 4"),
    ("ib_write_lat", "RC", "-n 500 -s 8"),
    ("ib_read_bw", "RC", "-n 500"),
    ("ib_read_lat", "RC", "-n 500"),
    ("ib_atomic_lat", "RC", "-n 500"),
    ("ib_send_bw", "RC", "-n 1000"),
    ("ib_send_lat", "RC", "-n 500 -s 32 -I 64"),
];
/// What UCX does between the namespaces.
const UCX_TESTS: [&str; 3] = ["tag_lat", "ucp_put_bw", "ucp_fadd"];

/// The options by which a program uses the GID at an index.
pub fn with_gid<'a>(program: &str, index: &'a str, options: &'a str) -> Vec<&'a str> {
    let own = match program.ends_with("_pingpong") {
        true => ["-g", index].to_vec(),
        false => ["-F", "-x", index].to_vec(),
    };
    own.into_iter().chain(options.split_whitespace()).collect()
}

/// Runs the rows and prints them.
pub fn rows(runs: u32, wanted: &dyn Fn(&[&str]) -> bool, total: &mut Total) {
    let two = Namespace::joined();
    for (family, index) in GIDS {
        for &(program, transport, options) in CASES {
            let title = format!("{options}, RoCE v2, {family}");
            let row = [program, transport, &title];
            if wanted(&row) {
                total.row(row, runs, || {
                    let options = with_gid(program, index, options);
                    between(&two, program, |sides| {
                        outcome(program, pair::run_between(sides, SERVER, program, &options))
                    })
                });
            }
        }
        for transport in ucx::TRANSPORTS {
            for test in UCX_TESTS {
                let title = format!("{test}, RoCE v2, {family}");
                let row = ["ucx_perftest", transport, &title];
                if wanted(&row) {
                    total.row(row, runs, || by_ucx(&two, transport, test, index));
                }
            }
        }
    }
    for (family, index) in GIDS {
        let title = format!("captured packets, RoCE v2, {family}");
        let row = ["tshark, scapy", "all", &title];
        if wanted(&row) {
            total.row(row, runs, || {
                between(&two, "ibv_rc_pingpong", |sides| captured::run(sides, index))
            });
        }
    }
    let row = ["ib_write_bw", "RC", "-n 1000, RoCE v2 within a machine"];
    if wanted(&row) {
        total.row(row, runs, forced);
    }
}

/// Runs a program's row between the namespaces, if both are there.
fn between(
    two: &Result<[Namespace; 2], String>,
    program: &str,
    run: impl FnOnce([Side<'_>; 2]) -> Outcome,
) -> Outcome {
    if let Some(missing) = missing(program) {
        return missing;
    }
    match two {
        Err(why) => Outcome::Skipped(format!("no network namespaces: {why}")),
        Ok(two) => {
            let environment = [("WARPBELL_ADDRESS", LINK.to_owned())];
            run(two.each_ref().map(|namespace| Side {
                namespace: Some(namespace),
                environment: &environment,
            }))
        }
    }
}

fn by_ucx(
    two: &Result<[Namespace; 2], String>,
    transport: &str,
    test: &str,
    index: &str,
) -> Outcome {
    let program = "ucx_perftest";
    let arguments = ["-t", test, "-n", "200", "-w", "20"];
    between(two, program, |sides| {
        let mut environment = ucx::settings(transport).to_vec();
        environment.push(("UCX_IB_GID_INDEX", index.to_owned()));
        environment.extend_from_slice(sides[0].environment);
        let sides = sides.map(|side| Side {
            environment: &environment,
            ..side
        });
        ucx::figure(pair::run_between(sides, SERVER, program, &arguments))
    })
}

/// Two processes of one machine, each at an address of its own, that may not meet in shared memory.
fn forced() -> Outcome {
    let program = "ib_write_bw";
    if let Some(missing) = missing(program) {
        return missing;
    }
    let environments = ["127.0.0.1", "127.0.0.2"].map(|address| {
        [
            ("WARPBELL_ADDRESS", address.to_owned()),
            ("WARPBELL_WIRE", "roce".to_owned()),
        ]
    });
    let sides = environments.each_ref().map(|environment| Side {
        namespace: None,
        environment,
    });
    let arguments = ["-F", "-x", "0", "-n", "1000"];
    outcome(
        program,
        pair::run_between(sides, "localhost", program, &arguments),
    )
}
