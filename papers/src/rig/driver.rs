//! Who drives an end's network, and which queues that takes.

use serde::Serialize;
use warpbell::SendDoorbell;
use warpbell_host_init::{Access, Nic, Node, Placement, ProtectionDomain, QueuePairConfig, Timers};
use warpbell_soft_hca_gpu::MemoryScope;

/// Who drives an end's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// A thread of the host: it waits for messages, launches a kernel, waits for its end, and posts.
    Host,
    /// The kernel itself, which stays.
    Kernel,
    /// The same, by operations that are registered ahead.
    Triggered,
    /// The same, by a proxy: a thread of the host posts what the kernel hands over.
    Proxy,
}

impl Driver {
    /// Where this driver of an end reaches its signals.
    pub(super) fn signals(self, node: &Node) -> Placement {
        match self {
            Self::Host => node.placement(),
            Self::Kernel | Self::Triggered | Self::Proxy => node.nic_placement(),
        }
    }

    /// Where this driver of an end reaches the NIC's queues: a thread of the host reaches none in a GPU's memory.
    fn rings(self, node: &Node) -> Placement {
        match self {
            Self::Host | Self::Proxy => node.placement(),
            Self::Kernel | Self::Triggered => node.nic_placement(),
        }
    }

    /// Queues in a domain of a device that it reaches, with the doorbells that suit the NIC best: without a record a post has a fence less,
    /// and the NIC nothing more to look at.
    pub fn queues(self, node: &Node, domain: &ProtectionDomain, depth: u32) -> QueuePairConfig {
        let config = QueuePairConfig {
            placement: Some(self.rings(node)),
            send_doorbell: match domain.device().limits().without_record {
                true => SendDoorbell::WithoutRecord,
                false => SendDoorbell::WithRecord,
            },
            send_depth: depth,
            receive_depth: 0,
            timers: timers(node.nic()),
            ..QueuePairConfig::granting(Access::REMOTE_WRITE)
        };
        match self {
            Self::Kernel | Self::Triggered | Self::Proxy => config,
            Self::Host => QueuePairConfig {
                state_placement: Some(Placement::Host),
                ..config
            },
        }
    }
}

/// How long queues wait for what they send. An engine in a kernel takes up to a millisecond for a packet of 64 KiB, and many
/// queues' may be before it; none is lost on the way, so that there is nothing to be gained by sending it again: they wait for
/// longer than any kernel or host does. All others wait as usual.
fn timers(nic: &Nic) -> Timers {
    let usual = Timers::default();
    match nic {
        // 8.6 s.
        Nic::SoftGpu(_) => Timers {
            acknowledge_timeout: 21,
            ..usual
        },
        _ => usual,
    }
}

/// What a NIC of ends with these drivers has to reach: the queues of a host or a proxy lie in pinned memory, beyond a GPU's
/// own, and fences that reach there cost the kernels more.
pub fn reach(drivers: [Driver; 2]) -> MemoryScope {
    let by_cpu = |driver| matches!(driver, Driver::Host | Driver::Proxy);
    match drivers.into_iter().any(by_cpu) {
        true => MemoryScope::System,
        false => MemoryScope::Gpu,
    }
}

#[cfg(test)]
mod tests {
    use warpbell_host_init::Kernels;
    use warpbell_host_init::args::Programs;
    use warpbell_host_init::mlx5::Mlx5Options;
    use warpbell_host_init::soft::{SoftGpuOptions, SoftOptions};

    use super::*;
    use warpbell_bench::run::launch::LIMIT_US;
    use warpbell_bench::run::ptx::OwnPtx;

    #[test]
    fn a_nic_reaches_beyond_its_gpu_for_threads_of_the_host_alone() {
        use Driver::{Host, Kernel, Proxy, Triggered};
        for drivers in [[Kernel, Kernel], [Triggered, Triggered]] {
            assert_eq!(reach(drivers), MemoryScope::Gpu);
        }
        for drivers in [[Kernel, Host], [Host, Kernel], [Host, Host], [Proxy, Proxy]] {
            assert_eq!(reach(drivers), MemoryScope::System);
        }
    }

    #[test]
    fn queues_of_a_nic_that_is_a_kernel_outwait_all_others() {
        let engine = SoftGpuOptions::new(OwnPtx::ENGINE.expect("an engine"), Kernels::default());
        let timeout = timers(&Nic::SoftGpu(engine)).acknowledge_timeout;
        assert!(4.096 * f64::powi(2.0, timeout.into()) > LIMIT_US as f64);
        let card = Nic::Mlx5(Mlx5Options::new("mlx5_0"));
        for nic in [Nic::Soft(SoftOptions::default()), card] {
            assert_eq!(timers(&nic), Timers::default());
        }
    }
}
