//! What the kernel lets this process do beyond the ordinary.

use super::system::System;

/// Numbers of `linux/capability.h`.
const CAP_IPC_LOCK: u32 = 14;
const CAP_SYS_ADMIN: u32 = 21;

/// The privileges that matter here.
///
/// Drivers ask for them in the first user namespace: root of a container that maps its users has none, and
/// root of a container that keeps the users may lack CAP_SYS_ADMIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// Locks as much memory as it likes.
    pub lock_memory: bool,
    /// Is an administrator for NVIDIA's driver.
    pub administrate: bool,
}

impl Privileges {
    /// Reads them; nothing that cannot be read is granted.
    pub fn read(system: &System) -> Self {
        let status = system.text("/proc/self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| {
            let digits = line.strip_prefix("CapEff:")?.trim();
            u64::from_str_radix(digits, 16).ok()
        });
        let has = |capability: u32| {
            first_namespace(system) && effective.is_some_and(|set| set >> capability & 1 == 1)
        };
        Self {
            lock_memory: has(CAP_IPC_LOCK),
            administrate: has(CAP_SYS_ADMIN),
        }
    }
}

/// Whether users have their own numbers, all of them.
fn first_namespace(system: &System) -> bool {
    let map = system.text("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::Tree;

    const WHOLE_MAP: &str = "         0          0 4294967295\n";

    fn privileges(capabilities: &str, map: &str) -> Privileges {
        let tree = Tree::empty();
        tree.file(
            "proc/self/status",
            format!("Name:\tx\nCapEff:\t{capabilities}\n"),
        );
        tree.file("proc/self/uid_map", map);
        Privileges::read(&tree.system())
    }

    #[test]
    fn reads_the_two_bits() {
        let read = |capabilities| {
            let Privileges {
                lock_memory,
                administrate,
            } = privileges(capabilities, WHOLE_MAP);
            (lock_memory, administrate)
        };
        assert_eq!(read("000001ffffffffff"), (true, true));
        assert_eq!(read("0000000000004000"), (true, false));
        assert_eq!(read("0000000000200000"), (false, true));
        // What Docker grants to root.
        assert_eq!(read("00000000a80425fb"), (false, false));
        assert_eq!(read("nonsense"), (false, false));
    }

    #[test]
    fn root_of_a_user_namespace_has_none() {
        let none = Privileges::default();
        assert_eq!(privileges("000001ffffffffff", "0 100000 65536"), none);
        assert_eq!(Privileges::read(&Tree::empty().system()), none);
    }
}
