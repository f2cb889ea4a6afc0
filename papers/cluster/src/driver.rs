//! Who drives the network, and what each way costs beside the work and the wire.

use clap::ValueEnum;

use crate::parameters::Parameters;
use crate::pcie::Transfer;

/// Who posts messages and sees them come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Driver {
    /// The host launches a kernel for each `calc`, waits for its end, posts, and polls (HDN in paper 003).
    Host,
    /// The stream rings doorbells of WQEs that the host wrote before, and waits for words (GDS).
    Gds,
    /// A persistent kernel hands commands to a thread of the host (GHN); it sees what comes by itself.
    Proxy,
    /// A persistent kernel triggers operations that the host registered with the NIC before (GPU-TN).
    Triggered,
    /// A persistent kernel builds WQEs and rings doorbells itself.
    Kernel,
}

impl Driver {
    /// All, in the order of the tables.
    pub const ALL: [Self; 5] = [
        Self::Host,
        Self::Gds,
        Self::Proxy,
        Self::Triggered,
        Self::Kernel,
    ];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Gds => "gds",
            Self::Proxy => "proxy",
            Self::Triggered => "triggered",
            Self::Kernel => "kernel",
        }
    }
}

/// What a driver costs (ns, and packets of PCIe).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Costs {
    /// Before a rank's first operation: the launch of a persistent kernel, or of a stream's work.
    pub begin: f64,
    /// After a rank's last operation: its end.
    pub finish: f64,
    /// Before and after each `calc`.
    pub calc: (f64, f64),
    /// Before a post waits for its turn: fences, and the way of a command to a proxy.
    pub post: f64,
    /// How long its turn takes: the least time between two posts of a node.
    pub gap: f64,
    /// From the end of its turn until the NIC has the WQE: doorbell or trigger, and fetch.
    pub doorbell: f64,
    /// From a message in memory until it is seen.
    pub notice: f64,
    /// Packets of PCIe of one post.
    pub packets: u64,
}

impl Costs {
    /// The costs of a driver.
    pub fn of(driver: Driver, parameters: &Parameters) -> Self {
        let p = parameters;
        let doorbell = Transfer::write(8, p);
        let wqe = Transfer::read(p.wqe as u64, p);
        // A read crosses the bus twice.
        let fetch = 2.0 * p.pcie_latency + wqe.nanoseconds(p);
        let rung = p.pcie_latency + doorbell.nanoseconds(p) + fetch;
        let packets = doorbell.packets() + wqe.packets();
        let resident = Self {
            begin: p.gpu_launch,
            finish: p.gpu_teardown,
            notice: p.gpu_poll,
            doorbell: rung,
            packets,
            ..Self::default()
        };
        match driver {
            Driver::Host => Self {
                calc: (p.gpu_launch, p.gpu_teardown),
                gap: p.host_post,
                doorbell: rung,
                notice: p.host_notice,
                packets,
                ..Self::default()
            },
            Driver::Gds => Self {
                // The host still launches first; after that the stream goes on by itself.
                begin: (p.gpu_launch - p.stream_launch).max(0.0),
                calc: (p.stream_launch, p.stream_teardown),
                gap: p.stream_word,
                doorbell: rung,
                notice: p.stream_word,
                packets,
                ..Self::default()
            },
            // One fence, before the word that hands the command over.
            Driver::Proxy => {
                let command = Transfer::write(p.wqe as u64, p);
                Self {
                    post: p.gpu_fence + p.pcie_latency + command.nanoseconds(p) + p.host_notice,
                    gap: p.proxy_gap,
                    packets: packets + command.packets(),
                    ..resident
                }
            }
            // One fence, before the trigger: the NIC has the WQE and its record already.
            Driver::Triggered => Self {
                post: (p.gpu_fence - p.gpu_gap).max(0.0),
                gap: p.gpu_gap,
                doorbell: p.pcie_latency + doorbell.nanoseconds(p) + p.nic_trigger,
                packets: doorbell.packets(),
                ..resident
            },
            // Two fences, before the record and before the doorbell.
            Driver::Kernel => Self {
                post: (p.gpu_post - p.gpu_gap).max(0.0),
                gap: p.gpu_gap,
                ..resident
            },
        }
    }
}
