//! RDMA netlink, by which `rdma` and libibverbs ask a kernel for its devices.
//!
//! The program gets a netlink socket of the protocol in which programs talk to each other. What it sends is read here,
//! and the answer comes from another such socket: so the system itself binds, queues, and wakes who waits.

use std::ffi::c_int;
use std::io;
use std::os::fd::BorrowedFd;

use rustix::net::netlink::{SocketAddrNetlink, USERSOCK};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, bind, getsockname, sendto, socket_with,
    sockopt::socket_protocol,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::attributes::Errno;
use crate::descriptors::Descriptors;
use crate::device_file;
use crate::port::{NODE_GUID, Port, port};
use crate::sysfs::{FIRMWARE, NAME, NET_DEVICE};
use crate::wires::wires;

/// The protocol number of RDMA's.
pub const PROTOCOL: c_int = libc::NETLINK_RDMA;
/// The protocol number of the sockets in its place.
pub const IN_ITS_PLACE: c_int = libc::NETLINK_USERSOCK;

/// The sockets that stand in its place.
static SOCKETS: Descriptors = Descriptors::new();

/// `struct nlmsghdr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    /// Bytes, those of the header among them.
    length: u32,
    kind: u16,
    flags: u16,
    sequence: u32,
    /// Who asked.
    port: u32,
}

/// Bytes of a header.
const HEADER: usize = size_of::<Header>();
/// Messages and attributes begin at multiples of as many bytes.
const ALIGN: usize = 4;

/// Commands that are answered: `RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_*)` of rdma/rdma_netlink.h.
mod command {
    const NLDEV: u16 = 5 << 10;
    pub const GET: u16 = NLDEV + 1;
    pub const PORT_GET: u16 = NLDEV + 5;
    pub const SYS_GET: u16 = NLDEV + 6;
    pub const GET_CHARDEV: u16 = NLDEV + 15;
}

/// `enum rdma_nldev_attr`.
mod attribute {
    pub const DEV_INDEX: u16 = 1;
    pub const DEV_NAME: u16 = 2;
    pub const PORT_INDEX: u16 = 3;
    pub const CAP_FLAGS: u16 = 4;
    pub const FW_VERSION: u16 = 5;
    pub const NODE_GUID: u16 = 6;
    pub const SYS_IMAGE_GUID: u16 = 7;
    pub const SUBNET_PREFIX: u16 = 8;
    pub const LID: u16 = 9;
    pub const SM_LID: u16 = 10;
    pub const LMC: u16 = 11;
    pub const PORT_STATE: u16 = 12;
    pub const PORT_PHYS_STATE: u16 = 13;
    pub const DEV_NODE_TYPE: u16 = 14;
    pub const NDEV_INDEX: u16 = 50;
    pub const NDEV_NAME: u16 = 51;
    pub const SYS_NETNS_MODE: u16 = 66;
    pub const DEV_PROTOCOL: u16 = 67;
    pub const CHARDEV_TYPE: u16 = 69;
    pub const CHARDEV_NAME: u16 = 70;
    pub const CHARDEV_ABI: u16 = 71;
    pub const CHARDEV: u16 = 72;
    pub const UVERBS_DRIVER_ID: u16 = 73;
    pub const SYS_COPY_ON_FORK: u16 = 93;
}

/// The device's index, and its port's.
const DEVICE: u32 = 0;
const PORT: u32 = 1;

/// Makes a socket the kernel's, as far as the program sees.
pub fn add(file: c_int) {
    SOCKETS.add(file);
}

/// A socket is closed.
pub fn remove(file: c_int) {
    SOCKETS.remove(file);
}

/// Whether what is sent by a socket is answered here.
pub fn is_ours(file: c_int) -> bool {
    if !SOCKETS.has(file) {
        return false;
    }
    // SAFETY: the caller is about to send by it, so that it is open.
    let socket = unsafe { BorrowedFd::borrow_raw(file) };
    // Not if it was closed behind this library's back, and is another one now.
    socket_protocol(socket).is_ok_and(|protocol| protocol == Some(USERSOCK))
}

/// Answers what a program sends by one of these sockets.
pub fn answer(file: c_int, requests: &[u8]) -> io::Result<()> {
    // SAFETY: as above.
    let asker = unsafe { BorrowedFd::borrow_raw(file) };
    let port_of =
        || -> io::Result<u32> { Ok(SocketAddrNetlink::try_from(getsockname(asker)?)?.pid()) };
    if port_of()? == 0 {
        // A kernel, too, binds who sends without an address.
        bind(asker, &SocketAddrNetlink::new(0, 0))?;
    }
    let port = port_of()?;
    let kernel = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(USERSOCK),
    )?;
    let answers = answers(requests, port);
    if !answers.is_empty() {
        let to = SocketAddrNetlink::new(port, 0);
        sendto(&kernel, &answers, SendFlags::empty(), &to)?;
    }
    Ok(())
}

/// The answers to all requests of a datagram.
fn answers(mut requests: &[u8], port: u32) -> Vec<u8> {
    let mut answers = Vec::new();
    while let Ok((header, _)) = Header::read_from_prefix(requests) {
        let length = header.length as usize;
        let Some(body) = requests.get(HEADER..length) else {
            break;
        };
        answer_one(&mut answers, Header { port, ..header }, body);
        let next = requests.get(length.next_multiple_of(ALIGN)..);
        requests = next.unwrap_or_default();
    }
    answers
}

/// Answers a request, whose header names who asked.
fn answer_one(answers: &mut Vec<u8>, header: Header, body: &[u8]) {
    let is_dump = i32::from(header.flags) & libc::NLM_F_DUMP == libc::NLM_F_DUMP;
    let of_several = if is_dump { libc::NLM_F_MULTI } else { 0 };
    let mut put = |kind, flags: i32, body: &[u8]| {
        let header = Header {
            length: (HEADER + body.len()) as u32,
            kind,
            flags: flags as u16,
            ..header
        };
        answers.extend_from_slice(header.as_bytes());
        answers.extend_from_slice(body);
        answers.resize(answers.len().next_multiple_of(ALIGN), 0);
    };
    let errno = match described(header.kind, is_dump, body) {
        Ok(Attributes(description)) => {
            put(header.kind, of_several, &description);
            0
        }
        Err(Errno(errno)) => errno,
    };
    if is_dump && errno == 0 {
        put(libc::NLMSG_DONE as u16, of_several, &0_i32.to_ne_bytes());
    } else if errno != 0 || i32::from(header.flags) & libc::NLM_F_ACK != 0 {
        // The request's header behind it, without its body.
        let mut error = (-errno).to_ne_bytes().to_vec();
        error.extend_from_slice(header.as_bytes());
        put(libc::NLMSG_ERROR as u16, libc::NLM_F_CAPPED, &error);
    }
}

/// What is told of the device.
fn described(kind: u16, is_dump: bool, body: &[u8]) -> Result<Attributes, Errno> {
    let number = |id| {
        let bytes = find(body, id)?;
        bytes.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    };
    let is_device = number(attribute::DEV_INDEX) == Some(DEVICE);
    let is_port = number(attribute::PORT_INDEX) == Some(PORT);
    match kind {
        command::GET if is_dump || is_device => Ok(of_device()),
        command::PORT_GET if is_device && (is_dump || is_port) => Ok(of_port()),
        command::SYS_GET => Ok(Attributes::default()
            // Shared by all network namespaces.
            .byte(attribute::SYS_NETNS_MODE, 1)
            // What a child process writes changes nothing of its parent's registered memory.
            .byte(attribute::SYS_COPY_ON_FORK, 1)),
        command::GET_CHARDEV if is_device => match find(body, attribute::CHARDEV_TYPE) {
            Some(b"uverbs\0") => Ok(of_file()),
            _ => Err(Errno(libc::ENOENT)),
        },
        command::GET | command::PORT_GET | command::GET_CHARDEV => Err(Errno(libc::EINVAL)),
        _ => Err(Errno(libc::EOPNOTSUPP)),
    }
}

fn of_device() -> Attributes {
    let guid = u64::from_be_bytes(NODE_GUID);
    named()
        .number(attribute::PORT_INDEX, PORT)
        .long(attribute::CAP_FLAGS, 0)
        .text(attribute::FW_VERSION, FIRMWARE)
        .long(attribute::NODE_GUID, guid)
        .long(attribute::SYS_IMAGE_GUID, guid)
        // RDMA_NODE_IB_CA.
        .byte(attribute::DEV_NODE_TYPE, 1)
        .text(
            attribute::DEV_PROTOCOL,
            match port() {
                Port::Ethernet | Port::Down => "roce",
                Port::InfiniBand => "ib",
            },
        )
}

fn of_port() -> Attributes {
    let (state, physical) = port().states();
    let roce = wires().as_ref().ok().and_then(|wires| wires.first().next());
    // Without RoCE the loopback, which has this index in every network namespace.
    let net_device = roce.map_or((1, NET_DEVICE), |address| {
        (address.index, &address.interface)
    });
    let described = named().number(attribute::PORT_INDEX, PORT);
    let described = match port() {
        Port::Ethernet | Port::Down => described
            .number(attribute::NDEV_INDEX, net_device.0)
            .text(attribute::NDEV_NAME, net_device.1),
        Port::InfiniBand => described
            .long(attribute::CAP_FLAGS, 0)
            .long(attribute::SUBNET_PREFIX, 0xfe80 << 48)
            .number(attribute::LID, port().lid().into())
            .number(attribute::SM_LID, 0)
            .byte(attribute::LMC, 0),
    };
    described
        .byte(attribute::PORT_STATE, state)
        .byte(attribute::PORT_PHYS_STATE, physical)
}

fn of_file() -> Attributes {
    Attributes::default()
        .text(attribute::CHARDEV_NAME, "uverbs0")
        .long(attribute::CHARDEV_ABI, 1)
        .long(attribute::CHARDEV, device_file::STAND_IN_CODE)
        // RDMA_DRIVER_MLX5.
        .number(attribute::UVERBS_DRIVER_ID, 1)
}

fn named() -> Attributes {
    Attributes::default()
        .number(attribute::DEV_INDEX, DEVICE)
        .text(attribute::DEV_NAME, NAME)
}

/// The bytes of an attribute (`struct nlattr`: length with its own 4 bytes, number).
fn find(mut body: &[u8], id: u16) -> Option<&[u8]> {
    loop {
        let (head, _) = <[u16; 2]>::read_from_prefix(body).ok()?;
        let [length, found] = [usize::from(head[0]), usize::from(head[1])];
        let bytes = body.get(size_of_val(&head)..length)?;
        if found == usize::from(id) {
            return Some(bytes);
        }
        body = body.get(length.next_multiple_of(ALIGN)..)?;
    }
}

/// Attributes, one behind another.
#[derive(Default)]
struct Attributes(Vec<u8>);

impl Attributes {
    fn put(mut self, id: u16, bytes: &[u8]) -> Self {
        let head = [size_of::<[u16; 2]>() as u16 + bytes.len() as u16, id];
        self.0.extend_from_slice(head.as_bytes());
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(ALIGN), 0);
        self
    }

    fn byte(self, id: u16, value: u8) -> Self {
        self.put(id, &[value])
    }

    fn number(self, id: u16, value: u32) -> Self {
        self.put(id, &value.to_ne_bytes())
    }

    fn long(self, id: u16, value: u64) -> Self {
        self.put(id, &value.to_ne_bytes())
    }

    /// With a zero behind it.
    fn text(self, id: u16, text: &str) -> Self {
        self.put(id, &[text.as_bytes(), &[0]].concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: i32 = libc::NLM_F_REQUEST;

    fn request(kind: u16, flags: i32, Attributes(body): &Attributes) -> Vec<u8> {
        let header = Header {
            length: (HEADER + body.len()) as u32,
            kind,
            flags: flags as u16,
            sequence: 5,
            port: 0,
        };
        [header.as_bytes(), body].concat()
    }

    /// The messages of an answer: kind, flags, body.
    fn messages(mut answer: &[u8]) -> Vec<(u16, i32, Vec<u8>)> {
        let mut messages = Vec::new();
        while let Ok((header, _)) = Header::read_from_prefix(answer) {
            assert_eq!((header.sequence, header.port), (5, 77));
            let length = header.length as usize;
            let body = answer[HEADER..length].to_vec();
            messages.push((header.kind, header.flags.into(), body));
            answer = &answer[length.next_multiple_of(ALIGN)..];
        }
        messages
    }

    fn asked(kind: u16, flags: i32, body: &Attributes) -> Vec<(u16, i32, Vec<u8>)> {
        messages(&answers(&request(kind, REQUEST | flags, body), 77))
    }

    #[test]
    fn a_dump_tells_the_device_and_ends() {
        let [(kind, flags, body), done] =
            asked(command::GET, libc::NLM_F_DUMP, &Attributes::default())
                .try_into()
                .unwrap();
        assert_eq!((kind, flags), (command::GET, libc::NLM_F_MULTI));
        assert_eq!(find(&body, attribute::DEV_NAME), Some(&b"mlx5_0\0"[..]));
        assert_eq!(find(&body, attribute::DEV_NODE_TYPE), Some(&[1][..]));
        assert_eq!(find(&body, attribute::CHARDEV), None);
        assert_eq!(done, (3, libc::NLM_F_MULTI, vec![0; 4]));
    }

    #[test]
    fn one_port_is_there_and_is_acknowledged() {
        let both = |device, port| {
            let device = Attributes::default().number(attribute::DEV_INDEX, device);
            device.number(attribute::PORT_INDEX, port)
        };
        let told = asked(command::PORT_GET, libc::NLM_F_ACK, &both(0, 1));
        let [(_, 0, body), (2, _, ack)] = &told[..] else {
            panic!("{told:?}");
        };
        assert_eq!(find(body, attribute::PORT_STATE), Some(&[4][..]));
        assert_eq!(ack[..4], [0; 4]);
        for (device, port) in [(0, 0), (0, 2), (1, 1)] {
            let told = asked(command::PORT_GET, 0, &both(device, port));
            let [(2, _, error)] = &told[..] else {
                panic!("{told:?}");
            };
            assert_eq!(error[..4], (-libc::EINVAL).to_ne_bytes());
        }
    }

    #[test]
    fn all_else_is_refused_by_name() {
        let none = Attributes::default();
        for kind in [command::GET + 1, 6 << 10, 0, u16::MAX] {
            for flags in [0, libc::NLM_F_DUMP] {
                let told = asked(kind, flags, &none);
                let [(2, _, error)] = &told[..] else {
                    panic!("{told:?}");
                };
                assert_eq!(error[..4], (-libc::EOPNOTSUPP).to_ne_bytes());
                assert_eq!(error.len(), 4 + HEADER);
            }
        }
    }

    #[test]
    fn requests_that_are_cut_short_are_not_answered() {
        let whole = request(command::GET, libc::NLM_F_DUMP, &Attributes::default());
        assert!(answers(&whole[..whole.len() - 1], 77).is_empty());
        let two = [&whole[..], &whole[..]].concat();
        assert_eq!(messages(&answers(&two, 77)).len(), 4);
        let mut short = whole.clone();
        short[0] = 3;
        assert!(answers(&short, 77).is_empty());
        assert_eq!(find(&[3, 0, 1, 0], 1), None);
        assert_eq!(find(&[0, 0, 1, 0, 0, 0, 0, 0], 2), None);
    }
}
