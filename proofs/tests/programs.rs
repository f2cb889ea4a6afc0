//! Unmodified programs in two processes, each with `warpbell-preload` under it: a server, and a client that reaches it.

mod pair;

use pair::run;

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
}
