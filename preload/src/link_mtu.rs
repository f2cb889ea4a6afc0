//! How long packets of a network interface may be.

use std::ffi::c_char;

use rustix::fd::AsRawFd;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

/// The MTU of the interface with this name, in bytes (`SIOCGIFMTU`); none if there is no such interface.
pub fn link_mtu(interface: &str) -> Option<u32> {
    let socket = socket_with(
        AddressFamily::INET,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC,
        None,
    );
    let socket = socket.ok()?;
    // SAFETY: all of its fields may be zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The last byte stays zero.
    let (_, room) = request.ifr_name.split_last_mut()?;
    let name = room.get_mut(..interface.len())?;
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = from as c_char;
    }
    // SAFETY: the request is laid out as this call has it, which writes nowhere else.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if result != 0 {
        return None;
    }
    // SAFETY: the call has set this field.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    u32::try_from(mtu).ok()
}

#[cfg(test)]
mod tests {
    use super::link_mtu;

    #[test]
    fn the_loopback_has_one_and_what_is_not_there_has_none() {
        let system = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
        assert_eq!(link_mtu("lo"), system.trim().parse().ok());
        assert_eq!(link_mtu("warpbell-none"), None);
        assert_eq!(link_mtu("a name longer than any interface has"), None);
    }
}
