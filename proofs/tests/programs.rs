//! Unmodified programs in two processes, each with `warpbell-preload` under it: a server, and a client that reaches it.

mod meeting;
mod pair;

use std::time::Duration;

use pair::{run, run_and_kill};

/// A test for each line: its name, the program, what both ends are called with.
macro_rules! programs {
    ($cfg:ident, $missing:literal: $($name:ident: $program:literal $($argument:literal)*;)*) => {$(
        #[test]
        #[cfg_attr(not($cfg), ignore = $missing)]
        fn $name() {
            run($program, &[$($argument),*]);
        }
    )*};
}

programs! { ibverbs_utils, "ibverbs-utils is not installed":
    rc_pingpong: "ibv_rc_pingpong" "-g" "0" "-n" "200" "-c";
    rc_pingpong_small: "ibv_rc_pingpong" "-g" "0" "-n" "200" "-s" "8" "-m" "1024" "-c";
    rc_pingpong_large: "ibv_rc_pingpong" "-g" "0" "-n" "100" "-s" "1000000" "-c";
    rc_pingpong_events: "ibv_rc_pingpong" "-g" "0" "-n" "200" "-e" "-c";
    uc_pingpong: "ibv_uc_pingpong" "-g" "0" "-n" "200";
    uc_pingpong_events: "ibv_uc_pingpong" "-g" "0" "-n" "200" "-e";
    ud_pingpong: "ibv_ud_pingpong" "-g" "0" "-n" "200";
    ud_pingpong_events: "ibv_ud_pingpong" "-g" "0" "-n" "200" "-e";
    srq_pingpong: "ibv_srq_pingpong" "-g" "0" "-n" "200" "-c";
    srq_pingpong_events: "ibv_srq_pingpong" "-g" "0" "-n" "200" "-q" "4" "-e";
}

programs! { perftest, "perftest is not installed":
    write_bw: "ib_write_bw" "-x" "0" "-F" "-n" "200";
    write_bw_all_sizes: "ib_write_bw" "-x" "0" "-F" "-n" "50" "-a";
    write_bw_both_ways: "ib_write_bw" "-x" "0" "-F" "-n" "200" "-b";
    write_bw_queue_pairs: "ib_write_bw" "-x" "0" "-F" "-n" "200" "-q" "4";
    write_bw_many_queue_pairs: "ib_write_bw" "-x" "0" "-F" "-n" "200" "-q" "16";
    send_bw_shared: "ib_send_bw" "-x" "0" "-F" "-n" "200" "-q" "5" "--use-srq";
    send_bw_shared_both_ways: "ib_send_bw" "-x" "0" "-F" "-n" "200" "-b" "-e" "--use-srq";
    send_lat_shared: "ib_send_lat" "-x" "0" "-F" "-n" "200" "--use-srq";
    write_bw_unreliable: "ib_write_bw" "-x" "0" "-F" "-n" "200" "-c" "UC";
    write_lat_unreliable: "ib_write_lat" "-x" "0" "-F" "-n" "200" "-c" "UC";
    send_bw_unreliable: "ib_send_bw" "-x" "0" "-F" "-n" "200" "-c" "UC";
    send_lat_unreliable: "ib_send_lat" "-x" "0" "-F" "-n" "200" "-c" "UC";
    send_bw_datagrams: "ib_send_bw" "-x" "0" "-F" "-n" "200" "-c" "UD";
    send_lat_datagrams: "ib_send_lat" "-x" "0" "-F" "-n" "200" "-c" "UD";
    write_lat: "ib_write_lat" "-x" "0" "-F" "-n" "200";
    write_lat_inline: "ib_write_lat" "-x" "0" "-F" "-n" "200" "-s" "32" "-I" "64";
    read_bw: "ib_read_bw" "-x" "0" "-F" "-n" "200";
    read_bw_both_ways: "ib_read_bw" "-x" "0" "-F" "-n" "200" "-b";
    read_bw_events: "ib_read_bw" "-x" "0" "-F" "-n" "200" "-e";
    read_lat_events: "ib_read_lat" "-x" "0" "-F" "-n" "200" "-e";
    send_lat_events: "ib_send_lat" "-x" "0" "-F" "-n" "200" "-e";
    atomic_lat_events: "ib_atomic_lat" "-x" "0" "-F" "-n" "200" "-e";
    read_lat: "ib_read_lat" "-x" "0" "-F" "-n" "200";
    send_bw: "ib_send_bw" "-x" "0" "-F" "-n" "200";
    send_bw_both_ways: "ib_send_bw" "-x" "0" "-F" "-n" "200" "-b";
    send_bw_events: "ib_send_bw" "-x" "0" "-F" "-n" "200" "-e";
    send_bw_inline: "ib_send_bw" "-x" "0" "-F" "-n" "200" "-s" "64" "-I" "64";
    send_lat: "ib_send_lat" "-x" "0" "-F" "-n" "200";
    atomic_bw: "ib_atomic_bw" "-x" "0" "-F" "-n" "200";
    atomic_bw_both_ways: "ib_atomic_bw" "-x" "0" "-F" "-n" "200" "-b";
    atomic_bw_swap: "ib_atomic_bw" "-x" "0" "-F" "-n" "200" "-A" "CMP_AND_SWAP";
    atomic_lat: "ib_atomic_lat" "-x" "0" "-F" "-n" "200";
    atomic_lat_swap: "ib_atomic_lat" "-x" "0" "-F" "-n" "200" "-A" "CMP_AND_SWAP";
}

/// Whenever its server is killed, a client ends with an error, and the next two find a device that works.
#[test]
#[cfg_attr(not(perftest), ignore = "perftest is not installed")]
fn killed_servers() {
    for milliseconds in [0, 30, 100, 600] {
        let endless = ["-x", "0", "-F", "-D", "1000"];
        run_and_kill("ib_write_bw", &endless, Duration::from_millis(milliseconds));
        run("ib_write_bw", &["-x", "0", "-F", "-n", "50"]);
    }
}
