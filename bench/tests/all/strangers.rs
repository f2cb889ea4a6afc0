//! What the examples make of ends that are not the program that they were told of.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Output;
use std::thread;
use std::time::Duration;

use warpbell::wqe::{Remote, RemoteKey, Wqe};
use warpbell::{Deadline, Exclusive};
use warpbell_bench::run::memory::Memory;
use warpbell_host_init::soft::SoftOptions;
use warpbell_host_init::state::{Endpoint, Gid};
use warpbell_host_init::{Device, Nic, Placement, QueuePairConfig};
use warpbell_strangers::perftest::Destination;

use crate::common::error_line;
use crate::{command, run};

const PINGPONG: &str = "pingpong";
const BANDWIDTH: &str = "bandwidth";

/// What each is called with, besides the host and the port.
const PLAY: [&str; 4] = ["--peer", "ibv_rc_pingpong", "--timeout", "5"];
const WRITE: [&str; 4] = ["--peer", "perftest", "--timeout", "5"];

/// A queue pair of a device that nobody has, as the program tells of it.
const LINE: &[u8; 52] = b"0000:010000:a67dbd:fe80000000000000020000fffe000001\0";
const GREETING: &[u8] = b"6.06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0@5\0";
const MESSAGE: &[u8; 108] = b"0000:0001:010000:af4ece:00001000:00007fe67ad5b000:fe:80:00:00:00:00:00:00:02:00:00:ff:fe:00:00:01:00000000:\0";

fn bind() -> (TcpListener, String) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    (listener, port)
}

/// Ends in time, with one line, and status 1.
#[track_caller]
fn refused(output: &Output, wanted: &str) {
    let line = error_line(output);
    assert!(line.contains(wanted), "{line}");
    assert_eq!(output.status.code(), Some(1));
}

/// Who closes the connection first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closes {
    Stranger,
    Example,
}

/// Says its words, whatever it hears, and closes the connection some time after, or when the other end has.
fn speak(mut socket: TcpStream, words: &[u8], closes: Closes) {
    // The other end may have gone before the last of them.
    let _ = socket.write_all(words);
    match closes {
        Closes::Stranger => thread::sleep(MOMENT),
        Closes::Example => drop(socket.read_to_end(&mut Vec::new())),
    }
}

/// An example's client calls a server that says this.
fn call(binary: &str, arguments: &[&str], words: Vec<u8>, closes: Closes) -> Output {
    let (listener, port) = bind();
    let server = thread::spawn(move || speak(listener.accept().unwrap().0, &words, closes));
    let output = run(
        binary,
        &[arguments, &["127.0.0.1", "--port", &port]].concat(),
    );
    server.join().unwrap();
    output
}

/// How long a stranger stays that has said everything.
const MOMENT: Duration = Duration::from_millis(100);

#[test]
fn a_server_that_is_none_is_named() {
    for (binary, arguments) in [(PINGPONG, PLAY), (BANDWIDTH, WRITE)] {
        let (listener, port) = bind();
        drop(listener);
        let nobody = [&arguments[..], &["127.0.0.1", "--port", &port]].concat();
        refused(&run(binary, &nobody), "no server at 127.0.0.1 port");
        let nowhere = [&arguments[..], &["no-such-host.invalid"]].concat();
        refused(&run(binary, &nowhere), "has no address");

        let garbage = b"HTTP/1.1 400 Bad Request\r\n".repeat(10);
        let output = call(binary, &arguments, garbage, Closes::Stranger);
        refused(&output, "HTTP/1.1");
        let output = call(binary, &arguments, Vec::new(), Closes::Stranger);
        refused(&output, "closed the connection after 0 of");
        let output = call(binary, &arguments, Vec::new(), Closes::Example);
        refused(&output, "within 5s");
    }
}

#[test]
fn a_ping_pong_server_that_breaks_off_is_named() {
    let output = call(PINGPONG, &PLAY, LINE[..51].to_vec(), Closes::Stranger);
    refused(&output, "after 51 of 52 bytes");
    let output = call(PINGPONG, &PLAY, LINE.to_vec(), Closes::Stranger);
    refused(&output, "no wire leads to fe80::200:ff:fe00:1");
    let mut nowhere = *LINE;
    nowhere[19..51].fill(b'0');
    let output = call(PINGPONG, &PLAY, nowhere.to_vec(), Closes::Stranger);
    refused(&output, "sends no GID");
}

#[test]
fn a_write_server_that_breaks_off_is_named() {
    let said = |words: &[&[u8]]| call(BANDWIDTH, &WRITE, words.concat(), Closes::Stranger);
    refused(&said(&[&GREETING[..20]]), "after 0 of 4 bytes");
    refused(&said(&[GREETING]), "after 0 of 108 bytes");
    refused(&said(&[GREETING, &MESSAGE[..107]]), "after 107 of 108");
    refused(&said(&[GREETING, MESSAGE]), "no wire leads to");
    let other = [b"5.92\0", &GREETING[5..]].concat();
    refused(&said(&[&other]), "speaks version \"5.92\"");
    let odd = [&GREETING[..16], b"\0\0\0\x03"].concat();
    refused(&said(&[&odd]), "no power of two");
}

/// A server for both directions writes before our kernel begins: our queue pair, which nobody may write to, is in error
/// then, and has no queue for a kernel.
#[test]
fn a_write_server_that_writes_itself_is_named() {
    let (listener, port) = bind();
    let server = thread::spawn(move || {
        let mut socket = listener.accept().unwrap().0;
        let hear = |socket: &mut TcpStream, bytes| {
            let mut heard = vec![0; bytes];
            socket.read_exact(&mut heard).unwrap();
            heard
        };
        let device = Device::open(Nic::Soft(SoftOptions {
            reachable: true,
            ..SoftOptions::default()
        }))
        .unwrap();
        let domain = device.protection_domain().unwrap();
        let mut pair = domain.queue_pair(&QueuePairConfig::default()).unwrap();
        let memory = Memory::new(&domain, Placement::Host, 64).unwrap();
        let own = pair.endpoint();

        socket.write_all(GREETING).unwrap();
        hear(&mut socket, GREETING.len());
        let theirs = hear(&mut socket, MESSAGE.len());
        let theirs = Destination::of_message(&theirs.try_into().unwrap()).unwrap();
        let ours = Destination {
            qpn: own.qpn,
            psn: own.psn,
            gid: own.gid.0,
            ..theirs
        };
        let ours = ours.to_message();
        socket.write_all(&ours).unwrap();
        let endpoint = Endpoint {
            gid: Gid(theirs.gid),
            qpn: theirs.qpn,
            psn: theirs.psn,
            ..own
        };
        pair.connect(&endpoint).unwrap();
        // Both ends are connected.
        hear(&mut socket, ours.len());
        let mut queue = pair.send_queue().unwrap().open::<Exclusive>().unwrap();
        let remote = Remote {
            address: 0,
            key: RemoteKey(0),
        };
        let limit = Deadline::after_ms(300_000);
        let ticket = queue.post(Wqe::write(memory.local(0, 64), remote).signalled(), limit);
        queue.wait_outbound(ticket.unwrap(), limit).unwrap_err();
        // Only now may the client begin.
        socket.write_all(&ours).unwrap();
        hear(&mut socket, ours.len());
        socket.write_all(&ours).unwrap();
        thread::sleep(MOMENT);
    });
    let arguments = [
        "--peer",
        "perftest",
        "--timeout",
        "120",
        "127.0.0.1",
        "--port",
        &port,
    ];
    refused(&run(BANDWIDTH, &arguments), "(no -b)");
    server.join().unwrap();
}

/// The example's server is called by a client that does this.
fn answer(client: impl FnOnce(TcpStream)) -> Output {
    let (listener, port) = bind();
    drop(listener);
    let mut server = command(PINGPONG, &[&PLAY[..], &["--port", &port]].concat())
        .spawn()
        .unwrap();
    let address = format!("127.0.0.1:{port}");
    let socket = loop {
        match TcpStream::connect(&address) {
            Ok(socket) => break socket,
            Err(error) => assert!(server.try_wait().unwrap().is_none(), "{error}"),
        }
        thread::sleep(Duration::from_millis(1));
    };
    client(socket);
    server.wait_with_output().unwrap()
}

#[test]
fn a_client_that_is_none_is_named() {
    let (listener, port) = bind();
    let taken = [&PLAY[..], &["--port", &port]].concat();
    refused(&run(PINGPONG, &taken), "cannot listen on port");
    drop(listener);
    refused(&run(PINGPONG, &taken), "nobody connected");

    let garbage = b"GET / HTTP/1.1\r\n".repeat(10);
    let output = answer(|client| speak(client, &garbage, Closes::Stranger));
    refused(&output, "the LID is no number");
    refused(&answer(drop), "nobody connected");
    let output = answer(|client| speak(client, b"0000:", Closes::Example));
    refused(&output, "within 5s");
    let output = answer(|mut client| {
        client.write_all(LINE).unwrap();
        // The server says nothing before it is connected.
        let mut line = Vec::new();
        let heard = client.read_to_end(&mut line);
        assert!(heard.is_err() || line.is_empty());
    });
    refused(&output, "no wire leads to");
}

#[test]
fn a_nic_without_a_way_to_others_is_named() {
    // Nobody accepts the call, and nobody has to.
    let (_listener, port) = bind();
    let there = ["127.0.0.1", "--port", &port, "--nic", "soft-gpu"];
    for (binary, arguments) in [(PINGPONG, PLAY), (BANDWIDTH, WRITE)] {
        let output = run(binary, &[&arguments[..], &there].concat());
        refused(&output, "soft-gpu reaches no other process");
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused() {
    for (binary, wrong) in [
        (PINGPONG, &["localhost"][..]),
        (PINGPONG, &["--port", "5"]),
        (PINGPONG, &["--peer", "ibv_ud_pingpong"]),
        (PINGPONG, &["--peer", "ibv_rc_pingpong", "--sizes", "8"]),
        (
            PINGPONG,
            &["--peer", "ibv_rc_pingpong", "--listen", "/tmp/a"],
        ),
        (PINGPONG, &["--peer", "ibv_rc_pingpong", "--size", "4"]),
        (BANDWIDTH, &["--peer", "perftest"]),
        (BANDWIDTH, &["localhost"]),
        (
            BANDWIDTH,
            &["--peer", "perftest", "localhost", "--both-ways"],
        ),
        (BANDWIDTH, &["--peer", "perftest", "localhost", "--ladder"]),
    ] {
        let output = run(binary, wrong);
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}
