//! What the device's one port is: Ethernet and up, unless the environment says otherwise.

use std::env;
use std::sync::OnceLock;

/// Where it says `infiniband` or `down`, the port is.
const VARIABLE: &str = "WARPBELL_PORT";

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
