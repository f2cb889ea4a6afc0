//! Who drives an end's network, and which queues that takes.

use serde::Serialize;
use warpbell_host_init::{Access, Device, Placement, QueuePairConfig, SendDoorbell, Timers};
use warpbell_soft_hca::engine::Reach;

use crate::world::{Nic, World};

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
}

impl Driver {
    /// Where this driver of an end reaches its signals.
    pub(super) fn signals(self, world: &World) -> Placement {
        match self {
            Self::Host => world.placement(),
            Self::Kernel | Self::Triggered => world.nic_placement(),
        }
    }

    /// Queues of a device that it reaches, with the doorbells that suit the NIC best: without a record a post has a fence less,
    /// and the NIC nothing more to look at.
    pub fn queues(self, world: &World, device: &Device, depth: u32) -> QueuePairConfig {
        let config = QueuePairConfig {
            placement: self.signals(world),
            send_doorbell: match device.limits().without_record {
                true => SendDoorbell::WithoutRecord,
                false => SendDoorbell::WithRecord,
            },
            send_depth: depth,
            receive_depth: 0,
            timers: timers(world.nic()),
            ..QueuePairConfig::granting(Access::REMOTE_WRITE)
        };
        match self {
            Self::Kernel | Self::Triggered => config,
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
fn timers(nic: Nic) -> Timers {
    let usual = Timers::default();
    match nic {
        // 8.6 s.
        Nic::SoftGpu => Timers {
            acknowledge_timeout: 21,
            ..usual
        },
        Nic::Soft | Nic::SoftHost | Nic::Card(_) => usual,
    }
}

/// What a NIC of ends with these drivers has to reach: the queues of a host lie in pinned memory, beyond a GPU's own, and
/// fences that reach there cost the kernels more.
pub fn reach(drivers: [Driver; 2]) -> Reach {
    match drivers.contains(&Driver::Host) {
        true => Reach::System,
        false => Reach::Gpu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::LIMIT_US;

    #[test]
    fn a_nic_reaches_beyond_its_gpu_for_a_host_alone() {
        use Driver::{Host, Kernel};
        assert_eq!(reach([Kernel, Kernel]), Reach::Gpu);
        for drivers in [[Kernel, Host], [Host, Kernel], [Host, Host]] {
            assert_eq!(reach(drivers), Reach::System);
        }
    }

    #[test]
    fn queues_of_a_nic_that_is_a_kernel_outwait_all_others() {
        let microseconds = |nic| 4.096 * f64::powi(2.0, timers(nic).acknowledge_timeout.into());
        assert!(microseconds(Nic::SoftGpu) > LIMIT_US as f64);
        for nic in [Nic::Soft, Nic::SoftHost, Nic::Card("mlx5_0")] {
            assert_eq!(timers(nic), Timers::default());
        }
    }
}
