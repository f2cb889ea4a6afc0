//! Options of a UDP socket that RoCE needs and the socket's library does not know, or does not leave out.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use libc::c_int;

/// Has a socket of IPv6 take datagrams without a UDP checksum. RoCE's packets have none (annex A17), and Linux drops such
/// datagrams unless it is told (RFC 6935).
pub(super) fn take_without_checksum(socket: &UdpSocket) -> io::Result<()> {
    set(socket, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)
}

/// Has the system say neither when a datagram came nor at which address: both cost time for each, and the library asks for
/// them.
pub(super) fn take_without_details(socket: &UdpSocket) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0)?;
    match socket.local_addr()?.is_ipv4() {
        true => set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 0),
        false => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 0),
    }
}

fn set(socket: &UdpSocket, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the option is an integer of the length given, which the system reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_datagram_of_ipv6_without_a_checksum_arrives() {
        let sockets = [(); 2].map(|()| UdpSocket::bind("[::1]:0").unwrap());
        let [sender, receiver] = &sockets;
        set(sender, libc::SOL_UDP, libc::UDP_NO_CHECK6_TX, 1).unwrap();
        take_without_checksum(receiver).unwrap();
        sender
            .send_to(b"bare", receiver.local_addr().unwrap())
            .unwrap();
        let mut room = [0; 8];
        receiver
            .set_read_timeout(Some(Duration::from_secs(300)))
            .unwrap();
        let (length, _) = receiver.recv_from(&mut room).unwrap();
        assert_eq!(&room[..length], b"bare");
    }
}
