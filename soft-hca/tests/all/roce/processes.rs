//! Two processes: the test runs its own binary once more.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use mlx5_wqe::{QpNumber, Remote, RemoteKey, Wqe};
use warpbell_soft_hca::engine::Transport;
use warpbell_soft_hca::shell::Driver;

use super::world::{ADDRESSES, MTU, Node, PATIENCE};
use crate::engine::world::{Connection, Region, pattern};
use crate::other_process::{OtherProcess, first_process};

/// Set in the second process: its IP address.
const PART: &str = "WARPBELL_ROCE_PART";
const TEST: &str = "roce::processes::two_processes_write_and_read_each_other";
const LENGTH: usize = 100_000;

/// A card is as long, in words that spaces fill up.
const CARD_BYTES: usize = 128;

/// What the other process must know: address, queue pair, memory and key.
type Card = (SocketAddr, QpNumber, Remote);

fn say(stream: &mut impl Write, node: &Node, memory: &Region) -> io::Result<()> {
    let Remote { address, key } = memory.remote(0);
    let (to, number) = (node.address, node.qp.number.get());
    let words = format!("{to} {number} {address} {}", key.0);
    write!(stream, "{words:CARD_BYTES$}")
}

fn hear(stream: &mut impl Read) -> io::Result<Card> {
    fn parse<T: std::str::FromStr>(word: Option<&str>) -> io::Result<T> {
        let value = word.and_then(|word| word.parse().ok());
        value.ok_or(io::ErrorKind::InvalidData.into())
    }
    let mut card = [0; CARD_BYTES];
    stream.read_exact(&mut card)?;
    let card = String::from_utf8_lossy(&card);
    let mut words = card.split_whitespace();
    let address = parse(words.next())?;
    let number = QpNumber::new(parse(words.next())?).ok_or(io::ErrorKind::InvalidData)?;
    let memory = Remote {
        address: parse(words.next())?,
        key: RemoteKey(parse(words.next())?),
    };
    Ok((address, number, memory))
}

/// A driven HCA whose memory has these bytes, connected to the other process's; gives the memory there, too.
fn meet(
    stream: &UnixStream,
    ip: IpAddr,
    bytes: &[u8],
) -> io::Result<(Node, Driver, Region, Remote)> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let node = Node::new((ip, 0).into(), Transport::ReliableConnection);
    let memory = node.region(bytes);
    say(&mut &*stream, &node, &memory)?;
    let (address, number, there) = hear(&mut &*stream)?;
    let peer = node.hca.reach(address).map_err(io::Error::other)?;
    let with = Connection {
        // Neither process waits for the other to run.
        ack_timeout_ns: 5_000_000_000,
        ..Connection::default()
    };
    node.connect(peer, number, MTU, with);
    let driver = Driver::spawn().map_err(io::Error::other)?;
    driver.drive(&node.hca);
    // Both are connected before either sends.
    (&*stream).write_all(&[1])?;
    (&*stream).read_exact(&mut [0])?;
    Ok((node, driver, memory, there))
}

/// The second process: its memory is written and read by the first.
fn second(ip: IpAddr) -> io::Result<()> {
    let stream = first_process()?;
    let (_node, _driver, memory, _) = meet(&stream, ip, &[0; 2 * LENGTH])?;
    (&stream).read_exact(&mut [0])?;
    let bytes = memory.buffer.bytes();
    assert!(bytes[..LENGTH] == pattern(LENGTH, 3) && bytes[LENGTH..] == [0; LENGTH]);
    Ok(())
}

#[test]
fn two_processes_write_and_read_each_other() {
    if let Ok(ip) = std::env::var(PART) {
        return second(ip.parse().unwrap()).unwrap();
    }
    for [ours, theirs] in ADDRESSES {
        let (stream, other) = OtherProcess::start(TEST, PART, &theirs.ip().to_string());
        let data = [pattern(LENGTH, 3), vec![0; LENGTH]].concat();
        let (mut node, _driver, memory, there) = meet(&stream, ours.ip(), &data).unwrap();
        let (source, back) = (
            memory.local(0, LENGTH as u32),
            memory.local(LENGTH as u64, LENGTH as u32),
        );
        node.qp.write(Wqe::<1>::write(source, there).signalled());
        node.qp.post(Wqe::<1>::read(back, there).signalled());
        let deadline = Instant::now() + PATIENCE;
        for _ in 0..2 {
            let cqe = loop {
                if let Some(cqe) = node.qp.send_cq.poll() {
                    break cqe;
                }
                assert!(Instant::now() < deadline, "the other process says nothing");
                std::thread::yield_now();
            };
            assert!(!cqe.tail().is_error(), "{:?}", cqe.error_word());
        }
        let bytes = memory.buffer.bytes();
        assert!(bytes[..LENGTH] == bytes[LENGTH..]);
        (&stream).write_all(&[1]).unwrap();
        other.finish();
    }
}
