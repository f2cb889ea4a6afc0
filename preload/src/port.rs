//! What the device's one port is: Ethernet and up, unless the environment says otherwise.

use std::env;
use std::sync::OnceLock;

/// Where it says `infiniband` or `down`, the port is.
const VARIABLE: &str = "WARPBELL_PORT";

/// The device's GUID.
pub const NODE_GUID: [u8; 8] = [0x02, 0, 0, 0xff, 0xfe, 0, 0, 1];

/// A port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Ethernet, with RoCE v2.
    Ethernet,
    /// InfiniBand. All HCAs have the same LID, so that packets need a global route header, which tells them apart.
    InfiniBand,
    /// Ethernet without a cable.
    Down,
}

impl Port {
    /// Its state and its physical state, in InfiniBand's numbers.
    pub const fn states(self) -> (u8, u8) {
        match self {
            // ACTIVE, LINK_UP.
            Self::Ethernet | Self::InfiniBand => (4, 5),
            // DOWN, DISABLED.
            Self::Down => (1, 3),
        }
    }

    /// Its LID, 0 if it has none.
    pub const fn lid(self) -> u16 {
        match self {
            Self::Ethernet | Self::Down => 0,
            Self::InfiniBand => 1,
        }
    }
}

/// The port of this process's device.
pub fn port() -> Port {
    static PORT: OnceLock<Port> = OnceLock::new();
    *PORT.get_or_init(|| {
        let value = env::var_os(VARIABLE);
        match value.as_ref().and_then(|value| value.to_str()) {
            Some("infiniband") => Port::InfiniBand,
            Some("down") => Port::Down,
            _ => Port::Ethernet,
        }
    })
}
