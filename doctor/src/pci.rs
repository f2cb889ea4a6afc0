//! PCI functions as sysfs shows them: where each one hangs in the tree.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use super::system::System;

/// Where the functions lie, by address.
const DEVICES: &str = "/sys/bus/pci/devices";

pub const VENDOR_NVIDIA: u32 = 0x10de;
pub const VENDOR_MELLANOX: u32 = 0x15b3;

/// The first byte of a class code.
pub const CLASS_NETWORK: u32 = 0x02;
pub const CLASS_DISPLAY: u32 = 0x03;

/// The address of a PCI function, such as `0000:18:00.0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    domain: u32,
    bus: u8,
    device: u8,
    function: u8,
}

/// A text that is no address of a PCI function.
#[derive(Debug, PartialEq, Eq)]
pub struct NotAnAddress;

impl FromStr for Address {
    type Err = NotAnAddress;

    /// Reads `domain:bus:device.function`, all in hexadecimal; CUDA writes capitals, NVML a longer domain.
    fn from_str(text: &str) -> Result<Self, NotAnAddress> {
        let number = |text: Option<&str>, longest: usize| {
            let digits = text.filter(|digits| {
                digits.len() <= longest && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
            });
            digits
                .and_then(|digits| u32::from_str_radix(digits, 16).ok())
                .ok_or(NotAnAddress)
        };
        let (place, function) = text.rsplit_once('.').ok_or(NotAnAddress)?;
        let mut parts = place.split(':');
        let domain = number(parts.next(), 8)?;
        let bus = number(parts.next(), 2)?;
        let device = number(parts.next(), 2)?;
        let function = number(Some(function), 1)?;
        if parts.next().is_some() || device > 0x1f || function > 7 {
            return Err(NotAnAddress);
        }
        let byte = |number: u32| u8::try_from(number).map_err(|_| NotAnAddress);
        Ok(Self {
            domain,
            bus: byte(bus)?,
            device: byte(device)?,
            function: byte(function)?,
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            domain,
            bus,
            device,
            function,
        } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function:x}")
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Address {
    /// A file of the function in sysfs.
    pub fn file(self, name: &str) -> String {
        format!("{DEVICES}/{self}/{name}")
    }

    /// The driver that has the function.
    pub fn driver(self, system: &System) -> Option<String> {
        system.leads_to(self.file("driver"))
    }
}

/// A function's place in the tree of bridges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The host bridge, such as `pci0000:15`.
    pub host_bridge: String,
    /// The bridges above it, the root port first.
    pub bridges: Vec<Address>,
    /// Its NUMA node, where the machine tells.
    pub numa_node: Option<u32>,
}

impl Place {
    /// Reads the place of a function; nothing where sysfs does not show it.
    pub fn read(system: &System, address: Address) -> Option<Self> {
        let mut place = Self::of_path(&system.resolve(address.file(""))?)?;
        if place.bridges.pop() != Some(address) {
            return None;
        }
        // The kernel writes -1 where it does not know.
        let node = system.text(address.file("numa_node")).ok();
        place.numa_node = node.and_then(|node| node.parse().ok());
        Some(place)
    }

    /// Reads a path such as `/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0`.
    fn of_path(path: &Path) -> Option<Self> {
        let mut parts = path.iter().filter_map(|part| part.to_str());
        let host_bridge = parts.find(|part| part.starts_with("pci"))?.to_owned();
        Some(Self {
            host_bridge,
            bridges: parts.map_while(|part| part.parse().ok()).collect(),
            numa_node: None,
        })
    }
}

/// The functions of a vendor and a class, in order.
pub fn functions(system: &System, vendor: u32, class: u32) -> Vec<Address> {
    let names = system.names(DEVICES).unwrap_or_default();
    let addresses = names.iter().filter_map(|name| name.parse::<Address>().ok());
    addresses
        .filter(|address| {
            system.hex(address.file("vendor")) == Ok(vendor)
                && system
                    .hex(address.file("class"))
                    .is_ok_and(|code| code >> 16 == class)
        })
        .collect()
}

/// The function that a device of sysfs belongs to: itself, or for a subfunction the one above it.
pub fn function_of(system: &System, device: impl AsRef<Path>) -> Option<Address> {
    Place::of_path(&system.resolve(device)?)?.bridges.pop()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_ways_an_address_is_written() {
        let address: Address = "0000:3b:00.1".parse().unwrap();
        assert_eq!("0000:3B:00.1".parse(), Ok(address));
        assert_eq!("00000000:3B:00.1".parse(), Ok(address));
        assert_eq!(address.to_string(), "0000:3b:00.1");
        for wrong in [
            "",
            ".",
            "3b:00.1",
            "0000:3b:00",
            "0000:3b:20.0",
            "0:0:0.8",
            "0:0:0:0.0",
            "+1:0:0.0",
        ] {
            assert_eq!(wrong.parse::<Address>(), Err(NotAnAddress), "{wrong}");
        }
    }

    #[test]
    fn a_place_is_read_from_its_path() {
        let path = Path::new(
            "/sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0/mlx5_core.sf.4/0000:17:00.0",
        );
        let place = Place::of_path(path).unwrap();
        assert_eq!(place.host_bridge, "pci0000:15");
        let bridges: Vec<_> = place.bridges.iter().map(Address::to_string).collect();
        assert_eq!(bridges, ["0000:15:01.0", "0000:16:00.0"]);
        assert_eq!(Place::of_path(Path::new("/sys/devices/platform")), None);
    }

    proptest! {
        #[test]
        fn no_text_confuses_an_address(text in ".*") {
            if let Ok(address) = text.parse::<Address>() {
                prop_assert_eq!(address.to_string().parse(), Ok(address));
            }
        }

        #[test]
        fn addresses_survive_being_written(domain: u32, bus: u8, device in 0u8..32, function in 0u8..8) {
            let address = Address { domain, bus, device, function };
            prop_assert_eq!(address.to_string().parse(), Ok(address));
        }
    }
}
