//! What the models take for granted: each parameter with its unit, range and source.

use std::fmt::Write as _;

/// One parameter, as a table shows it.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// The least and greatest value.
    pub range: (f64, f64),
    /// Where its default comes from.
    pub source: &'static str,
}

/// Why a parameter is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    /// There is no such parameter.
    #[error("there is no parameter {name}; `cluster parameters` lists all")]
    Unknown {
        /// Its name.
        name: String,
    },
    /// A value that no model can have.
    #[error("parameter {name} is {value} {unit}; it can be {least} to {greatest}")]
    OutOfRange {
        /// Its name.
        name: &'static str,
        /// The value.
        value: f64,
        /// Its unit.
        unit: &'static str,
        /// The least value.
        least: f64,
        /// The greatest value.
        greatest: f64,
    },
    /// Something else than NAME=NUMBER.
    #[error("expected NAME=NUMBER, found {0}")]
    Syntax(String),
}

macro_rules! parameters {
    ($($(#[doc = $doc:literal])+ $name:ident: $unit:literal, $default:literal, $least:literal..=$greatest:literal, $source:literal;)+) => {
        /// All parameters. [`Parameters::default`] is a cluster of H200s, 100 Gbit/s and PCIe 4.0.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Parameters {
            $($(#[doc = $doc])+ pub $name: f64,)+
        }

        /// The table of all parameters.
        pub const ROWS: &[Row] = &[$(Row {
            name: stringify!($name),
            unit: $unit,
            range: ($least, $greatest),
            source: $source,
        }),+];

        impl Default for Parameters {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl Parameters {
            /// The value of a parameter.
            pub fn get(&self, name: &str) -> Option<f64> {
                match name {
                    $(stringify!($name) => Some(self.$name),)+
                    _ => None,
                }
            }

            fn place(&mut self, name: &str) -> Option<&mut f64> {
                match name {
                    $(stringify!($name) => Some(&mut self.$name),)+
                    _ => None,
                }
            }
        }
    };
}

parameters! {
    /// From the host's launch to the kernel's first instruction.
    gpu_launch: "ns", 1500.0, 0.0..=1e6,
        "paper 003: launch and end of a kernel take 3 µs at best. The split in halves is assumed";
    /// From the kernel's last instruction until the host knows.
    gpu_teardown: "ns", 1500.0, 0.0..=1e6,
        "as gpu_launch";
    /// From the front end's decision to the kernel's first instruction, where a stream orders the launch.
    stream_launch: "ns", 500.0, 0.0..=1e6,
        "a kernel after a kernel costs 1 µs (papers/README.md, inference serving: the graph). The split in halves is assumed";
    /// From the kernel's last instruction until the next operation of its stream.
    stream_teardown: "ns", 500.0, 0.0..=1e6,
        "as stream_launch";
    /// The front end writes or sees a word of memory, as an operation of a stream.
    stream_word: "ns", 500.0, 0.0..=1e6,
        "assumed: half a microsecond, as a system-wide fence of one kernel alone takes (papers/measurements/README.md)";
    /// A thread of the host builds a WQE.
    host_post: "ns", 26.0, 0.0..=1e6,
        "papers/README.md of commit 131d05bf, throughput by message size: 25 to 26 ns up to 256 bytes";
    /// A thread of the host sees a word that changed in its memory.
    host_notice: "ns", 100.0, 0.0..=1e6,
        "assumed: a line that another agent wrote, from memory";
    /// A proxy's thread carries one command from the GPU to the NIC, with the time to build the WQE.
    proxy_gap: "ns", 125.0, 0.0..=1e6,
        "papers/diary/proxy.md: 8.0 million commands a second, 64 under a doorbell";
    /// Bytes that the host's memory moves in a nanosecond, where there is no GPU.
    host_memory: "GB/s", 307.2, 1.0..=1e6,
        "assumed: 8 channels of DDR5-4800. `--paper`: 8 channels of DDR4-2133";
    /// A thread of the GPU orders its stores before a store to the GPU's own memory.
    cp_fence: "ns", 376.0, 0.0..=1e6,
        "papers/measurements/posting.csv of commit 966fb206: 804.6 cycles of 1.98 GHz (thread, exclusive, without record, steady, device, gpu), less 30 ns for building. `--paper`: as gpu_fence";
    /// A processor inside the GPU carries one command to the NIC, with the time to build the WQE.
    cp_gap: "ns", 250.0, 0.0..=1e6,
        "assumed: twice proxy_gap, as paper 003's command processor has half the clock of its host";
    /// A thread of the GPU builds a WQE and stores its record, each behind a fence for the system. The doorbell's way
    /// across the bus is `pcie_latency`.
    gpu_post: "ns", 1313.0, 0.0..=1e6,
        "papers/measurements/posting.csv of commit 966fb206: 2,600 cycles of 1.98 GHz (thread, exclusive, with record, steady, system). The doorbell's way across the bus is pcie_latency. `--paper`: two gpu_fence, and 30 ns for building";
    /// The time between two WQEs where the threads of a warp post.
    gpu_gap: "ns", 70.0, 0.0..=1e6,
        "papers/measurements/posting.csv of commit 966fb206: 139.5 cycles of 1.98 GHz (warp, one doorbell, exclusive, with record, steady, pinned, system). `--paper`: building a WQE";
    /// A thread of the GPU orders its stores before a store to a device, with a fence for the system.
    gpu_fence: "ns", 701.0, 0.0..=1e6,
        "papers/measurements/posting.csv of commit 966fb206: 1,447 cycles of 1.98 GHz (as gpu_post, without record), less 30 ns for building. `--paper`: the L2 cache, 100 cycles of 1.5 GHz";
    /// A thread of the GPU sees a completion in the GPU's memory.
    gpu_poll: "ns", 182.0, 0.0..=1e6,
        "papers/measurements/posting.csv of commit 966fb206: 360 cycles of 1.98 GHz (ready, exclusive). `--paper`: as gpu_fence";
    /// Bytes that the GPU's memory moves in a nanosecond, for the workloads' computing.
    gpu_memory: "GB/s", 4800.0, 1.0..=1e6,
        "NVIDIA H200, data sheet. `--paper`: 8 channels of DDR4-2133";
    /// One way across PCIe.
    pcie_latency: "ns", 275.0, 0.0..=1e6,
        "assumed: half of 0.55 µs for a read of 64 bytes. `--paper`: assumed, as the L2 cache";
    /// Bits on the bus in a nanosecond, in one direction.
    pcie_rate: "Gbit/s", 256.0, 1.0..=1e5,
        "paper 002, section 2.3: PCIe 4.0";
    /// The most data of a packet.
    pcie_mtu: "bytes", 512.0, 64.0..=4096.0,
        "paper 002, table 3: host";
    /// The most data that one read asks for.
    pcie_read_request: "bytes", 512.0, 64.0..=4096.0,
        "assumed: a value that the PCIe base specification allows (section 7.5.3.4, code 010b)";
    /// A WQE that the NIC fetches.
    wqe: "bytes", 64.0, 16.0..=1024.0,
        "mlx5-wqe: one basic block";
    /// The NIC's pipeline, on the way out and on the way in.
    nic_latency: "ns", 150.0, 0.0..=1e6,
        "assumed; a WRITE of 64 bytes between hosts then takes 2.4 µs, and 1 to 2 µs in paper 002, section 3.1";
    /// The time between two packets of the network in that pipeline.
    nic_gap: "ns", 5.13, 0.0..=1e6,
        "paper 002, section 2.1: 195 million packets a second";
    /// The NIC finds a trigger in its table.
    nic_trigger: "ns", 50.0, 0.0..=1e6,
        "assumed: some ten cycles of the NIC";
    /// A NIC's WAIT sees its completion, and the SEND_EN behind it enables a WQE.
    nic_wait: "ns", 100.0, 0.0..=1e6,
        "assumed: two entries, each as nic_trigger";
    /// Bits on a link in a nanosecond.
    link_rate: "Gbit/s", 100.0, 0.001..=1e5,
        "paper 003, NIC configuration";
    /// From one end of a link to the other.
    link_latency: "ns", 100.0, 0.001..=1e9,
        "paper 003, NIC configuration";
    /// The most data of a packet of the network.
    link_mtu: "bytes", 4096.0, 256.0..=4096.0,
        "IBTA 1.7: the largest path MTU";
    /// The bytes of such a packet beside its data.
    link_header: "bytes", 82.0, 0.0..=1024.0,
        "RoCE v2: preamble and gap 20, Ethernet 18, IPv4 20, UDP 8, BTH 12, ICRC 4. The RETH of a WRITE's first packet (16) is left out";
    /// From a switch's input to its output.
    switch_latency: "ns", 90.0, 0.0..=1e6,
        "assumed: what product briefs of EDR switches say, as that of paper 002's test bed. `--paper`: a star whose centre costs nothing";
    /// Engines of a software NIC that all nodes share, on one machine. 0: each node has a NIC, as in a cluster.
    engines: "engines", 0.0, 0.0..=1024.0,
        "a cluster has none. `cluster predict`: 8 with the NIC in a GPU, else 1 (docs/soft-nic.md)";
    /// An engine carries a message without a byte.
    engine_gap: "ns", 0.0, 0.0..=1e6,
        "measured for `cluster predict`";
    /// Bits that an engine copies in a nanosecond.
    engine_rate: "Gbit/s", 1e5, 0.001..=1e5,
        "measured for `cluster predict`";
    /// Cores that engines and `calc`s of all nodes share. 0: each has its own.
    cores: "cores", 0.0, 0.0..=1024.0,
        "a cluster's nodes share none. `cluster predict`: `--cores`";
}

impl Parameters {
    /// What paper 003 says of its simulated machines, where that differs: an APU with the NIC on the same chip, and a
    /// star whose centre costs nothing.
    pub fn paper() -> Self {
        Self {
            // The L2 cache takes 100 cycles of 1.5 GHz; it is where GPU and NIC meet.
            gpu_fence: 67.0,
            gpu_poll: 67.0,
            // Two fences, and 0.03 µs for building (papers/measurements/README.md).
            gpu_post: 164.0,
            gpu_gap: 30.0,
            // 8 channels of DDR4-2133.
            gpu_memory: 136.5,
            host_memory: 136.5,
            cp_fence: 67.0,
            // No bus, but a way across the chip, assumed to take as long as the L2 cache.
            pcie_latency: 67.0,
            switch_latency: 0.0,
            ..Self::default()
        }
    }

    /// Changes one parameter.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`] or [`Error::OutOfRange`].
    pub fn set(&mut self, name: &str, value: f64) -> Result<(), Error> {
        let row = ROWS.iter().find(|row| row.name == name);
        let (Some(row), Some(place)) = (row, self.place(name)) else {
            let name = name.to_owned();
            return Err(Error::Unknown { name });
        };
        let (least, greatest) = row.range;
        // Not a number is in no range.
        if !(least..=greatest).contains(&value) {
            return Err(Error::OutOfRange {
                name: row.name,
                value,
                unit: row.unit,
                least,
                greatest,
            });
        }
        *place = value;
        Ok(())
    }

    /// Changes one parameter, from NAME=NUMBER.
    ///
    /// # Errors
    ///
    /// [`Error::Syntax`], or one of [`Parameters::set`].
    pub fn apply(&mut self, text: &str) -> Result<(), Error> {
        let syntax = || Error::Syntax(text.to_owned());
        let (name, value) = text.split_once('=').ok_or_else(syntax)?;
        let value = value.trim().parse().map_err(|_| syntax())?;
        self.set(name.trim(), value)
    }

    /// Checks every value, which `set` does for one.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] for the first value out of range.
    pub fn check(&self) -> Result<(), Error> {
        let mut copy = self.clone();
        for row in ROWS {
            copy.set(row.name, self.get(row.name).unwrap_or(f64::NAN))?;
        }
        Ok(())
    }

    /// All parameters as a table in Markdown, beside those of the paper.
    pub fn table() -> String {
        let (here, paper) = (Self::default(), Self::paper());
        let mut table = String::from(
            "| parameter | unit | default | `--paper` | source |\n|---|---|---|---|---|\n",
        );
        for row in ROWS {
            let value = here.get(row.name).unwrap_or_default();
            let other = paper.get(row.name).unwrap_or_default();
            let other = match other == value {
                true => String::new(),
                false => other.to_string(),
            };
            // A String takes everything.
            let _ = writeln!(
                table,
                "| `{}` | {} | {value} | {other} | {} |",
                row.name, row.unit, row.source
            );
        }
        table
    }

    /// How long a message occupies a link (ns), with the headers of its packets.
    pub fn wire(&self, bytes: u64) -> f64 {
        let packets = self.packets(bytes) as f64;
        (bytes as f64 + packets * self.link_header) * 8.0 / self.link_rate
    }

    /// How long a message occupies an engine (ns).
    pub fn carried(&self, bytes: u64) -> f64 {
        self.engine_gap + bytes as f64 * 8.0 / self.engine_rate
    }

    /// How many packets of the network a message takes: an empty one takes one.
    pub fn packets(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.link_mtu as u64).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_in_its_range() {
        assert_eq!(Parameters::default().check(), Ok(()));
        assert_eq!(Parameters::paper().check(), Ok(()));
        for row in ROWS {
            assert!(row.range.0 < row.range.1 && !row.source.is_empty());
        }
    }

    #[test]
    fn bad_values_are_named() {
        let mut parameters = Parameters::default();
        let error = parameters.apply("link_rate=0").unwrap_err();
        assert!(matches!(
            error,
            Error::OutOfRange {
                name: "link_rate",
                ..
            }
        ));
        let error = parameters.apply("link_rate=NaN").unwrap_err();
        assert!(matches!(error, Error::OutOfRange { .. }));
        let error = parameters.apply("link_colour=1").unwrap_err();
        assert!(matches!(error, Error::Unknown { .. }));
        let error = parameters.apply("link_rate").unwrap_err();
        assert!(matches!(error, Error::Syntax(_)));
        assert_eq!(parameters, Parameters::default());
        parameters.apply("link_rate = 200").unwrap();
        assert_eq!(parameters.link_rate, 200.0);
        parameters.wqe = -1.0;
        let error = parameters.check().unwrap_err();
        assert!(matches!(error, Error::OutOfRange { name: "wqe", .. }));
    }

    /// 4,096 bytes and 82 of headers at 100 Gbit/s, and one byte in a second packet.
    #[test]
    fn a_message_takes_its_packets_headers() {
        let parameters = Parameters::default();
        assert!((parameters.wire(4096) - 334.24).abs() < 1e-9);
        assert!((parameters.wire(4097) - 340.88).abs() < 1e-9);
        assert!((parameters.wire(0) - 6.56).abs() < 1e-9);
    }
}
