//! UDP checksums, which RoCE does without: the invariant CRC covers more.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Has a socket of IPv6 take datagrams without a UDP checksum. RoCE's packets have none (annex A17), and Linux drops such
/// datagrams unless it is told (RFC 6935).
pub(super) fn take_without(socket: &UdpSocket) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the option is an integer of the length given, which the system reads.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_NO_CHECK6_RX,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
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
        let on: libc::c_int = 1;
        // SAFETY: as above.
        let result = unsafe {
            libc::setsockopt(
                sender.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_NO_CHECK6_TX,
                (&raw const on).cast(),
                size_of_val(&on) as libc::socklen_t,
            )
        };
        assert_eq!(result, 0);
        take_without(receiver).unwrap();
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
