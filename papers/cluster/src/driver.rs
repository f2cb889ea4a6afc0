//! Who drives the network, and what each way costs beside the work and the wire.

use clap::ValueEnum;

use crate::parameters::Parameters;
use crate::pcie::Transfer;

/// Who posts messages and sees them come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Driver {
    /// There is no GPU: a thread of the host computes, posts and polls (the CPU-only system of paper 003).
    Cpu,
    /// The host launches a kernel for each `calc`, waits for its end, posts, and polls (HDN in paper 003).
    Host,
    /// The stream rings doorbells of WQEs that the host wrote before, and waits for words (GDS).
    Gds,
    /// As the host, but a message brings its task: the NIC hands it to the target's GPU, which launches it (XTQ).
    Xtq,
    /// A persistent kernel hands commands to a thread of the host (GHN); it sees what comes by itself.
    Proxy,
    /// A persistent kernel hands commands to a processor inside the GPU, through a cache that both share (ComP-Net).
    CommandProcessor,
    /// A persistent kernel triggers operations that the host registered with the NIC before (GPU-TN).
    Triggered,
    /// The same, but what needs nothing except messages is sent by the NIC alone: its WAITs count completions, and its
    /// SEND_ENs enable WQEs that the host wrote before.
    Chained,
    /// A persistent kernel builds WQEs and rings doorbells itself.
    Kernel,
}

impl Driver {
    /// All, in the order of the tables.
    pub const ALL: [Self; 9] = [
        Self::Cpu,
        Self::Host,
        Self::Gds,
        Self::Xtq,
        Self::Proxy,
        Self::CommandProcessor,
        Self::Triggered,
        Self::Chained,
        Self::Kernel,
    ];

    /// Those that figures show where no others are chosen.
    pub const FIGURES: [Self; 5] = [
        Self::Host,
        Self::Gds,
        Self::Proxy,
        Self::Triggered,
        Self::Kernel,
    ];

    /// Its name on the command line and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Host => "host",
            Self::Gds => "gds",
            Self::Xtq => "xtq",
            Self::Proxy => "proxy",
            Self::CommandProcessor => "command-processor",
            Self::Triggered => "triggered",
            Self::Chained => "chained",
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
    /// Before a `calc` behind a message.
    pub task: f64,
    /// How many times as long a `calc` takes as on the GPU.
    pub computing: f64,
    /// Before a post waits for its turn: fences, and the way of a command to a proxy.
    pub post: f64,
    /// Before that, for a post behind a message: who posts has to see the message first.
    pub heard: f64,
    /// How long its turn takes: the least time between two posts of a node.
    pub gap: f64,
    /// From the end of its turn until the NIC has the WQE: doorbell or trigger, and fetch.
    pub doorbell: f64,
    /// From a message in memory until it is seen.
    pub notice: f64,
    /// From a message's completion until the NIC has the WQE that waits for it, if NICs send by themselves.
    pub chain: Option<f64>,
    /// Packets of PCIe of a send that a NIC relays.
    pub relayed: u64,
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
        let common = Self {
            computing: 1.0,
            doorbell: rung,
            packets,
            ..Self::default()
        };
        let resident = Self {
            begin: p.gpu_launch,
            finish: p.gpu_teardown,
            notice: p.gpu_poll,
            ..common
        };
        let host = Self {
            calc: (p.gpu_launch, p.gpu_teardown),
            task: p.gpu_launch,
            gap: p.host_post,
            notice: p.host_notice,
            ..common
        };
        // One fence, before the trigger: the NIC has the WQE and its record already.
        let triggered = Self {
            post: (p.gpu_fence - p.gpu_gap).max(0.0),
            gap: p.gpu_gap,
            doorbell: p.pcie_latency + doorbell.nanoseconds(p) + p.nic_trigger,
            packets: doorbell.packets(),
            ..resident
        };
        match driver {
            Driver::Cpu => Self {
                calc: (0.0, 0.0),
                task: 0.0,
                computing: p.gpu_memory / p.host_memory,
                ..host
            },
            Driver::Host => host,
            Driver::Gds => Self {
                // The host still launches first; after that the stream goes on by itself.
                begin: (p.gpu_launch - p.stream_launch).max(0.0),
                calc: (p.stream_launch, p.stream_teardown),
                task: p.stream_launch,
                gap: p.stream_word,
                notice: p.stream_word,
                ..common
            },
            // The GPU's front end sees the task, and the host only what it has to answer itself.
            Driver::Xtq => Self {
                task: p.gpu_poll + p.stream_launch,
                notice: 0.0,
                heard: p.host_notice,
                ..host
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
            // The same inside the GPU: a fence for it alone, and nothing crosses the bus.
            Driver::CommandProcessor => Self {
                post: p.cp_fence + p.gpu_poll,
                gap: p.cp_gap,
                ..resident
            },
            Driver::Triggered => triggered,
            // The queue of WAITs and SEND_ENs is fetched ahead; the WQE that one enables is not.
            Driver::Chained => Self {
                chain: Some(p.nic_wait + fetch),
                relayed: wqe.packets(),
                ..triggered
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
