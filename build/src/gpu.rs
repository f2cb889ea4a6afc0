//! GPUs that kernels are compiled for.

use crate::BuildError;

/// A kind of GPU. What is compiled for it runs on newer ones, too.
#[derive(Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Its name, as rustc and ptxas have it.
    pub name: &'static str,
    /// The version of PTX that its instructions need: 8.2 for the doorbell's store, 8.6 for one-sided fences.
    pub ptx: &'static str,
}

const KNOWN: [Gpu; 3] = [
    Gpu {
        name: "sm_80",
        ptx: "ptx82",
    },
    Gpu {
        name: "sm_90",
        ptx: "ptx86",
    },
    Gpu {
        name: "sm_100",
        ptx: "ptx86",
    },
];

/// The GPUs of these names.
pub fn find(names: &[&str]) -> Result<Vec<&'static Gpu>, BuildError> {
    let one = |name: &&str| {
        let known = KNOWN.iter().find(|gpu| gpu.name == *name);
        known.ok_or_else(|| BuildError::UnknownGpu {
            name: (*name).into(),
        })
    };
    names.iter().map(one).collect()
}

/// All names, for a message.
pub fn names() -> String {
    KNOWN.map(|gpu| gpu.name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_gpu_is_told_the_known_ones() {
        let found = find(&["sm_90", "sm_80"]).unwrap();
        assert_eq!(found, [&KNOWN[1], &KNOWN[0]]);
        let error = find(&["sm_90", "sm_12"]).unwrap_err().to_string();
        assert!(error.contains("compiled for `sm_12`"), "{error}");
        assert!(error.ends_with("sm_80, sm_90, sm_100"), "{error}");
    }
}
