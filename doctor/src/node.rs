//! What the node as a whole has: modules, libraries, limits, CUDA.

use super::cuda::Answer;
use super::driver;
use super::finding::{Check, Finding, Subject};
use super::privileges::Privileges;
use super::rdma_core;
use super::system::{ProgramError, System};

/// Examines what belongs to no single device.
pub fn examine(system: &System, cuda: &Result<Answer, ProgramError>) -> Vec<Finding> {
    let privileges = Privileges::read(system);
    let mut findings = driver::examine(system, privileges);
    findings.push(cuda_driver(cuda));
    findings.push(rdma_modules(system));
    findings.push(rdma_core::examine(system));
    findings.push(memlock(system, privileges));
    findings
}

fn cuda_driver(cuda: &Result<Answer, ProgramError>) -> Finding {
    let check = Check::Cuda;
    match cuda {
        Ok(Answer::Gpus(found)) if found.gpus.is_empty() => {
            Subject::Node.missing(check, "it sees no GPU", "nvidia-smi")
        }
        Ok(Answer::Gpus(found)) => {
            let version = cuda_version(found.version);
            Subject::Node.ok(check, format!("{version}; GPUs: {}", found.gpus.len()))
        }
        Ok(Answer::NoLibrary(_)) => Subject::Node.missing(
            check,
            "libcuda.so.1 cannot be loaded",
            "sudo apt install libcuda1  # or: sudo dnf install nvidia-driver-cuda-libs",
        ),
        Ok(Answer::Refused { call, result }) => {
            let (meaning, remedy) = refusal(*result);
            Subject::Node.missing(
                check,
                format!("{call} returned {result}: {meaning}"),
                remedy,
            )
        }
        Err(error) => Subject::Node.unknown(check, error.to_string(), "nvidia-smi"),
    }
}

/// What a `CUresult` of cuInit means, and what mends it.
fn refusal(result: i32) -> (&'static str, &'static str) {
    match result {
        100 => ("no GPU that it can use", "nvidia-smi"),
        802 => (
            "the system is not ready, usually because the fabric manager is not running",
            "sudo systemctl start nvidia-fabricmanager",
        ),
        803 => (
            "the library and the kernel driver are of different versions",
            "restart the machine: its driver was updated",
        ),
        _ => (
            "see CUresult in cuda.h",
            "nvidia-smi; sudo dmesg | grep NVRM",
        ),
    }
}

/// A version of CUDA as people write it.
pub fn cuda_version(number: i32) -> String {
    format!("CUDA {}.{}", number / 1000, number % 1000 / 10)
}

/// Whether the modules are there; that they have a device is another line.
fn rdma_modules(system: &System) -> Finding {
    let check = Check::RdmaModules;
    let wants = [
        ("/sys/module/mlx5_ib", "mlx5_ib"),
        ("/sys/class/infiniband_verbs", "ib_uverbs"),
    ];
    let absent: Vec<_> = wants
        .iter()
        .filter(|(folder, _)| !system.exists(folder))
        .map(|(_, module)| *module)
        .collect();
    if absent.is_empty() {
        return Subject::Node.ok(check, "mlx5_ib and ib_uverbs are loaded");
    }
    let remedy = format!("sudo modprobe -a {}", absent.join(" "));
    Subject::Node.missing(check, format!("not loaded: {}", absent.join(", ")), remedy)
}

/// How much memory this process may lock; registered memory is locked.
fn memlock(system: &System, privileges: Privileges) -> Finding {
    let check = Check::Memlock;
    let remedy = "ulimit -l unlimited  # permanently: echo '* - memlock unlimited' | \
        sudo tee /etc/security/limits.d/memlock.conf; in a container: --ulimit memlock=-1";
    let limits = match system.text("/proc/self/limits") {
        Ok(limits) => limits,
        Err(error) => {
            return Subject::Node.unknown(
                check,
                format!("/proc/self/limits: {error}"),
                "ulimit -l",
            );
        }
    };
    let mut lines = limits.lines();
    let soft = lines
        .find_map(|line| line.strip_prefix("Max locked memory"))
        .and_then(|line| line.split_whitespace().next());
    match soft {
        Some("unlimited") => Subject::Node.ok(check, "unlimited"),
        Some(bytes) if privileges.lock_memory => Subject::Node.ok(
            check,
            format!("{bytes} bytes, but CAP_IPC_LOCK lifts the limit for this process"),
        ),
        Some(bytes) => Subject::Node.missing(check, format!("{bytes} bytes"), remedy),
        None => Subject::Node.unknown(check, "/proc/self/limits does not say", "ulimit -l"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::Gpus;
    use crate::finding::State;
    use crate::tree::Tree;

    fn memlock_with(limits: &str, lock_memory: bool) -> State {
        let tree = Tree::empty();
        tree.file("proc/self/limits", limits);
        let privileges = Privileges {
            lock_memory,
            ..Default::default()
        };
        memlock(&tree.system(), privileges).state
    }

    #[test]
    fn memlock_is_unlimited_or_lifted() {
        let limited = "Limit  Soft Limit\nMax locked memory         8388608    8388608   bytes\n";
        let unlimited = "Max locked memory         unlimited    unlimited   bytes\n";
        assert_eq!(memlock_with(unlimited, false), State::Ok);
        assert_eq!(memlock_with(limited, false), State::Missing);
        assert_eq!(memlock_with(limited, true), State::Ok);
        assert_eq!(memlock_with("Max locked memory", false), State::Unknown);
        assert_eq!(memlock_with("", true), State::Unknown);
    }

    #[test]
    fn what_cuda_answers_is_judged() {
        let gpus = Answer::Gpus(Gpus {
            version: 12_070,
            gpus: Vec::new(),
        });
        assert_eq!(cuda_driver(&Ok(gpus)).state, State::Missing);
        let refused = Answer::Refused {
            call: "cuInit".into(),
            result: 802,
        };
        let found = cuda_driver(&Ok(refused));
        assert_eq!(found.state, State::Missing);
        found.expect_remedy("fabricmanager");
        let late = Err(ProgramError::TimedOut("CUDA".into(), 40));
        assert_eq!(cuda_driver(&late).state, State::Unknown);
        assert_eq!(cuda_version(12_070), "CUDA 12.7");
    }

    #[test]
    fn absent_modules_are_named() {
        let tree = Tree::empty();
        let found = rdma_modules(&tree.system());
        assert_eq!(
            found.remedy.as_deref(),
            Some("sudo modprobe -a mlx5_ib ib_uverbs")
        );
        tree.folder("sys/module/mlx5_ib");
        let found = rdma_modules(&tree.system());
        assert_eq!(found.remedy.as_deref(), Some("sudo modprobe -a ib_uverbs"));
        tree.folder("sys/class/infiniband_verbs");
        assert_eq!(rdma_modules(&tree.system()).state, State::Ok);
    }
}
