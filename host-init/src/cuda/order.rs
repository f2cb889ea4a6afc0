//! In which order a GPU's kernels see what NICs write.

use super::sys::{
    CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER,
};

/// Who sees a NIC's writes into a GPU's memory in their order, without a flush
/// (`CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InboundOrder {
    /// Nobody: a kernel that has seen a flag may still read old data in front of it.
    Unordered,
    /// The kernels of the GPU that has the memory.
    Owner,
    /// Those of all GPUs.
    Everywhere,
}

impl InboundOrder {
    /// The order behind the attribute's value, which is a scope: the larger, the wider.
    pub(crate) const fn of_attribute(value: u32) -> Self {
        if value >= CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES {
            Self::Everywhere
        } else if value >= CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER {
            Self::Owner
        } else {
            Self::Unordered
        }
    }

    /// Whether the GPU's own kernels must flush before they read what is in front of a flag.
    pub const fn needs_flush(self) -> bool {
        matches!(self, Self::Unordered)
    }
}

#[cfg(test)]
mod tests {
    use super::InboundOrder::{self, Everywhere, Owner, Unordered};

    #[test]
    fn only_a_gpu_that_promises_no_order_needs_a_flush() {
        let orders = [0, 1, 100, 150, 200, 1000].map(InboundOrder::of_attribute);
        assert_eq!(
            orders,
            [Unordered, Unordered, Owner, Owner, Everywhere, Everywhere]
        );
        assert_eq!(
            orders.map(InboundOrder::needs_flush),
            [true, true, false, false, false, false]
        );
    }
}
