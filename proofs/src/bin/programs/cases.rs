//! What is run, and how.

use warpbell_proofs::pair::End;

/// A program, what it runs over, and what both its ends are called with.
pub struct Case {
    pub program: &'static str,
    pub transport: &'static str,
    pub options: &'static str,
}

/// A program of which one end is killed.
pub struct Kill {
    pub program: &'static str,
    pub options: &'static str,
    pub killed: End,
    pub what: &'static str,
    /// Milliseconds after the client has called its server.
    pub moments: &'static [u64],
}

macro_rules! cases {
    ($($program:literal $transport:literal: $($options:literal)*;)*) => {
        &[$($(Case { program: $program, transport: $transport, options: $options },)*)*]
    };
}

/// The figures that are wanted stand first: bandwidth, latency, atomics. Then each transport of
/// each program with inline data, a shared receive queue, events, several queue pairs and both directions, as far as the
/// program takes them: one by one, and some together.
pub const CASES: &[Case] = cases! {
    "ib_write_bw" "RC": "-x 0 -F -s 65536 -n 5000";
    "ib_write_lat" "RC": "-x 0 -F -s 8 -n 2000";
    "ib_atomic_bw" "RC": "-x 0 -F -n 5000";
    "ibv_rc_pingpong" "RC": "-g 0 -n 200 -c" "-g 0 -n 200 -s 8 -m 1024 -c" "-g 0 -n 100 -s 1000000 -c" "-g 0 -n 200 -e -c";
    "ibv_uc_pingpong" "UC": "-g 0 -n 200" "-g 0 -n 200 -e";
    "ibv_ud_pingpong" "UD": "-g 0 -n 200" "-g 0 -n 200 -e";
    "ibv_srq_pingpong" "RC": "-g 0 -n 200 -c" "-g 0 -n 200 -q 4 -e";
    "ib_write_bw" "RC": "-x 0 -F -n 50 -a" "-x 0 -F -n 200 -b" "-x 0 -F -n 200 -q 4" "-x 0 -F -n 200 -q 16" "-x 0 -F -n 200 -b -q 4" "-x 0 -F -n 200 -s 64 -I 64";
    "ib_write_lat" "RC": "-x 0 -F -n 200 -s 32 -I 64";
    "ib_read_bw" "RC": "-x 0 -F -n 200" "-x 0 -F -n 200 -b" "-x 0 -F -n 200 -e" "-x 0 -F -n 200 -b -e" "-x 0 -F -n 200 -q 4" "-x 0 -F -n 200 -b -q 4";
    "ib_read_lat" "RC": "-x 0 -F -n 200" "-x 0 -F -n 200 -e";
    "ib_send_bw" "RC": "-x 0 -F -n 200" "-x 0 -F -n 200 -b" "-x 0 -F -n 200 -e" "-x 0 -F -n 200 -b -e" "-x 0 -F -n 200 -q 4" "-x 0 -F -n 200 -b -q 4" "-x 0 -F -n 200 -s 64 -I 64" "-x 0 -F -n 200 --use-srq" "-x 0 -F -n 200 -b --use-srq" "-x 0 -F -n 200 -q 5 --use-srq" "-x 0 -F -n 200 -b -e --use-srq";
    "ib_send_lat" "RC": "-x 0 -F -n 200" "-x 0 -F -n 200 -e" "-x 0 -F -n 200 -s 32 -I 64" "-x 0 -F -n 200 --use-srq";
    "ib_atomic_bw" "RC": "-x 0 -F -n 200 -b" "-x 0 -F -n 200 -e" "-x 0 -F -n 200 -b -e" "-x 0 -F -n 200 -q 4" "-x 0 -F -n 200 -b -q 4" "-x 0 -F -n 200 -A CMP_AND_SWAP";
    "ib_atomic_lat" "RC": "-x 0 -F -n 200" "-x 0 -F -n 200 -e" "-x 0 -F -n 200 -A CMP_AND_SWAP";
    "ib_write_bw" "UC": "-x 0 -F -n 200 -c UC" "-x 0 -F -n 200 -c UC -b" "-x 0 -F -n 200 -c UC -q 4" "-x 0 -F -n 200 -c UC -b -q 4" "-x 0 -F -n 200 -c UC -s 64 -I 64";
    "ib_write_lat" "UC": "-x 0 -F -n 200 -c UC" "-x 0 -F -n 200 -c UC -s 32 -I 64";
    "ib_send_bw" "UC": "-x 0 -F -n 200 -c UC" "-x 0 -F -n 200 -c UC -b" "-x 0 -F -n 200 -c UC -e" "-x 0 -F -n 200 -c UC -b -e" "-x 0 -F -n 200 -c UC -q 4" "-x 0 -F -n 200 -c UC -b -q 4" "-x 0 -F -n 200 -c UC -s 64 -I 64" "-x 0 -F -n 200 -c UC --use-srq" "-x 0 -F -n 200 -c UC -b --use-srq";
    "ib_send_lat" "UC": "-x 0 -F -n 200 -c UC" "-x 0 -F -n 200 -c UC -e" "-x 0 -F -n 200 -c UC -s 32 -I 64" "-x 0 -F -n 200 -c UC --use-srq";
    "ib_send_bw" "UD": "-x 0 -F -n 200 -c UD" "-x 0 -F -n 200 -c UD -b" "-x 0 -F -n 200 -c UD -e" "-x 0 -F -n 200 -c UD -b -e" "-x 0 -F -n 200 -c UD -q 4" "-x 0 -F -n 200 -c UD -b -q 4" "-x 0 -F -n 200 -c UD -s 64 -I 64" "-x 0 -F -n 200 -c UD --use-srq" "-x 0 -F -n 200 -c UD -b --use-srq";
    "ib_send_lat" "UD": "-x 0 -F -n 200 -c UD" "-x 0 -F -n 200 -c UD -e" "-x 0 -F -n 200 -c UD -s 32 -I 64" "-x 0 -F -n 200 -c UD --use-srq";
};

pub const KILLS: &[Kill] = &[
    Kill {
        program: "ib_write_bw",
        options: "-x 0 -F -D 1000",
        killed: End::Server,
        what: "server killed",
        moments: &[0, 30, 100, 600],
    },
    Kill {
        // Both ways, so that the server writes, too: one that only waits is told of nothing, as on a card.
        program: "ib_write_bw",
        options: "-x 0 -F -D 1000 -b",
        killed: End::Client,
        what: "client killed",
        moments: &[0, 30, 100, 600],
    },
];
