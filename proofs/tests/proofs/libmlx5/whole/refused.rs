//! What a kernel refuses, the device refuses with the same error number.

use warpbell_proofs::refused::calls;

use crate::libmlx5::device::with_engine;

/// How each call ends on Linux's own soft-RoCE, written by `rxe/run.sh`.
const RXE: &str = include_str!("../../../../rxe/refused.txt");

/// The calls that end otherwise on an mlx5 device, and why.
const OTHERWISE: &[(&str, &str, &str)] = &[
    (
        "create_qp, a segment too many for sends",
        "0",
        "libmlx5 counts a request's bytes, which are few enough; the kernel asks no more",
    ),
    (
        "modify_qp, RC RESET to INIT, P_Key past the table",
        "EINVAL",
        "mlx5 compares the index with the table's length, rxe does not",
    ),
    (
        "modify_qp, RC INIT to RTR, GID 255",
        "EINVAL",
        "the table has 16 entries, rxe's has 1,024",
    ),
    (
        "modify_qp, RC INIT to RTR, MTU 0",
        "EINVAL",
        "mlx5 has a least MTU, rxe has none",
    ),
    (
        "modify_qp, RC INIT to RTR, 255 reads",
        "EINVAL",
        "mlx5 has a limit here, rxe takes what fits",
    ),
    (
        "modify_qp, RC RTR to RTS, timeout of 6 bits",
        "0",
        "mlx5 takes the low 5 bits, rxe has a limit",
    ),
    (
        "create_ah, port 0",
        "?",
        "libmlx5 refuses it itself, and leaves errno as it is",
    ),
    ("create_ah, port 2 of 1", "?", "likewise"),
    (
        "create_ah, GID 255",
        "EINVAL",
        "the table has 16 entries, rxe's has 1,024",
    ),
    (
        "post_send, RESET",
        "ENOMEM",
        "libmlx5 has no room for segments before RTS; rxe asks the kernel",
    ),
    ("post_send, INIT", "ENOMEM", "likewise"),
    ("post_send, RTR", "ENOMEM", "likewise"),
    (
        "post_send, RTS, a verb that is none",
        "EINVAL",
        "libmlx5 refuses it, rxe warns in the kernel's log",
    ),
    (
        "post_send, RTS, 40 segments",
        "ENOMEM",
        "libmlx5's number for requests that do not fit",
    ),
    ("post_send, RTS, 4,096 bytes inline", "ENOMEM", "likewise"),
    (
        "attach_mcast, RC",
        "EOPNOTSUPP",
        "the device says that it has no groups",
    ),
    (
        "attach_mcast, UD, a GID of no group",
        "EOPNOTSUPP",
        "likewise",
    ),
    ("attach_mcast, UD", "EOPNOTSUPP", "likewise"),
    ("detach_mcast, UD, not attached", "EOPNOTSUPP", "likewise"),
];

#[test]
fn as_a_kernel_refuses_it() {
    with_engine("libmlx5::whole::refused::as_a_kernel_refuses_it", || {
        let mut otherwise = OTHERWISE.iter().peekable();
        let wanted = RXE.lines().map(|line| {
            let differs = otherwise.next_if(|(call, ..)| {
                let rest = line.strip_prefix(call);
                rest.is_some_and(|rest| rest.starts_with(": "))
            });
            match differs {
                None => line.to_owned(),
                Some((call, end, why)) => {
                    let ours = format!("{call}: {end}");
                    assert_ne!(ours, line, "no difference ({why})");
                    ours
                }
            }
        });
        assert_eq!(wanted.collect::<Vec<_>>(), calls());
        assert_eq!(otherwise.next(), None, "the program makes this call");
    });
}
