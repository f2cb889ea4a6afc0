//! Access Control Services of a bridge, read from its configuration space.
//!
//! Offsets and bits: PCI Express Base Specification, Access Control Services; `linux/pci_regs.h`.

/// The whole configuration space of a PCI Express function, in bytes.
pub const CONFIG_SIZE: u64 = 4096;

/// Where the extended capabilities begin.
const EXTENDED: usize = 0x100;
/// The extended capability's id.
const ACS_CAPABILITY: u32 = 0x000d;
/// The control register's offset in the capability.
const ACS_CONTROL: usize = 6;

/// The bits of the control register that send peer-to-peer traffic up to the root: request redirect,
/// completion redirect, upstream forwarding, egress control.
const REDIRECTS: u16 = 0x04 | 0x08 | 0x10 | 0x20;

/// What a bridge does with traffic between the devices below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acs {
    /// It has no such control.
    None,
    /// It lets the traffic turn round.
    Off,
    /// It sends the traffic up; the control register's value.
    On(u16),
    /// The file ends before the extended capabilities: the reader is not root, or the machine is virtual.
    Hidden,
    /// The function does not answer, or its list of capabilities is broken.
    Broken,
}

impl Acs {
    /// Reads a function's configuration space, of which as much is there as the kernel shows.
    pub fn read(config: &[u8]) -> Self {
        let mut offset = EXTENDED;
        // A capability takes 8 bytes or more, so a list that is longer than this has a loop.
        for _ in 0..CONFIG_SIZE as usize / 8 {
            let Some(header) = word(config, offset) else {
                return if offset == EXTENDED {
                    Self::Hidden
                } else {
                    Self::Broken
                };
            };
            if header == u32::MAX {
                return Self::Broken;
            }
            if header & 0xffff == ACS_CAPABILITY {
                return Self::control(config, offset + ACS_CONTROL);
            }
            match (header >> 20) as usize & !3 {
                0 => return Self::None,
                next if next < EXTENDED => return Self::Broken,
                next => offset = next,
            }
        }
        Self::Broken
    }

    fn control(config: &[u8], offset: usize) -> Self {
        match config.get(offset..offset + 2) {
            Some(&[low, high]) => match u16::from_le_bytes([low, high]) {
                control if control & REDIRECTS == 0 => Self::Off,
                control => Self::On(control),
            },
            _ => Self::Broken,
        }
    }
}

fn word(config: &[u8], offset: usize) -> Option<u32> {
    let bytes = config.get(offset..offset + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A configuration space with extended capabilities at the offsets given: (offset, id, next).
    fn config(capabilities: &[(usize, u32, u32)]) -> Vec<u8> {
        let mut config = vec![0; CONFIG_SIZE as usize];
        for &(offset, id, next) in capabilities {
            let header = id | 1 << 16 | next << 20;
            config[offset..offset + 4].copy_from_slice(&header.to_le_bytes());
        }
        config
    }

    #[test]
    fn finds_the_control_register_down_the_list() {
        let mut config = config(&[(0x100, 0x0001, 0x148), (0x148, 0x000d, 0x19)]);
        assert_eq!(Acs::read(&config), Acs::Off);
        // Source validation alone lets the traffic turn round.
        config[0x14e] = 0x01;
        assert_eq!(Acs::read(&config), Acs::Off);
        config[0x14e] = 0x1d;
        assert_eq!(Acs::read(&config), Acs::On(0x1d));
        for bit in [0x04, 0x08, 0x10, 0x20] {
            config[0x14e] = bit;
            assert_eq!(Acs::read(&config), Acs::On(bit.into()));
        }
    }

    #[test]
    fn tells_what_is_not_shown_from_what_is_not_there() {
        let config = config(&[(0x100, 0x0001, 0)]);
        assert_eq!(Acs::read(&config), Acs::None);
        assert_eq!(Acs::read(&config[..64]), Acs::Hidden);
        assert_eq!(Acs::read(&config[..256]), Acs::Hidden);
        assert_eq!(Acs::read(&[]), Acs::Hidden);
        assert_eq!(Acs::read(&[0; 4096]), Acs::None);
        assert_eq!(Acs::read(&[0xff; 4096]), Acs::Broken);
    }

    #[test]
    fn survives_a_broken_list() {
        let looped = config(&[(0x100, 1, 0x200), (0x200, 1, 0x100)]);
        assert_eq!(Acs::read(&looped), Acs::Broken);
        assert_eq!(Acs::read(&config(&[(0x100, 1, 0x40)])), Acs::Broken);
        let cut = config(&[(0x100, 1, 0xffc), (0xffc, 0x000d, 0)]);
        assert_eq!(Acs::read(&cut), Acs::Broken);
    }

    proptest! {
        #[test]
        fn no_bytes_confuse_it(bytes in proptest::collection::vec(any::<u8>(), 0..5000)) {
            let _ = Acs::read(&bytes);
        }
    }
}
