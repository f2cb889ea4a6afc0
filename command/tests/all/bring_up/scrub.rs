//! Names and addresses are taken out of any text.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use warpbell_command::bring_up::scrub::{Kind, Scrub};

fn scrub() -> Scrub {
    let mut scrub = Scrub::default();
    scrub.name(Kind::Host, "gpu07.cluster.example.org");
    scrub.name(Kind::Host, "gpu07-ib");
    scrub.name(Kind::User, "alice");
    scrub.home("/scratch/alice");
    scrub.programs("/scratch/alice/warpbell/bin");
    scrub
}

#[test]
fn each_kind_has_its_placeholder() {
    for (text, expected) in [
        ("gpu07: down", "<host-1>: down"),
        ("gpu07.cluster.example.org", "<host-1>"),
        ("at gpu07.other", "at <host-1>.other"),
        ("gpu07-ib0 gpu07-ib", "<host-1>-ib0 <host-2>"),
        ("alice@gpu07:22", "<user-1>@<host-1>:22"),
        ("malice gpu070", "malice gpu070"),
        ("/scratch/alice/warpbell/bin/demo", "<programs>/demo"),
        ("/scratch/alice/x, /scratch/bob", "<home>/x, /scratch/bob"),
        ("/home/carol/x '/home/dave'", "<home>/x '<home>'"),
        ("10.0.0.1:4791, 10.0.0.2.", "<address-1>:4791, <address-2>."),
        ("10.0.0.1-10.0.0.2", "<address-1>-<address-2>"),
        (
            "[fd00::1]:77 FD00:0::1 fd00::1",
            "[<address-1>]:77 <address-1> <address-1>",
        ),
        ("::ffff:10.0.0.1 10.0.0.1", "<address-1> <address-1>"),
        ("root=10.1.0.0/16", "root=<address-1>/16"),
        ("peer:10.1.2.3", "peer:<address-1>"),
        ("fe80:0000:0000:0000:b8ce:f603:00ab:1234", "<address-1>"),
        ("GID fe80000000000000b8cef60300ab1234", "GID <address-1>"),
        ("b8:ce:f6:00:11:22 B8-CE-F6-00-11-22", "<mac-1> <mac-1>"),
        ("node_guid b8ce:f603:00ab:1234", "node_guid <mac-1>"),
        ("GPU-0e3b2a1c-1111-2222-3333-444455556666", "<uuid-1>"),
        ("Serial Number: 1652922000123", "Serial Number: <serial-1>"),
        ("serial=AB-12 sn", "serial=<serial-1> sn"),
        ("<host-3> <programs> <b>", "<host-3> <programs> <b>"),
    ] {
        assert_eq!(scrub().text(text), expected);
    }
}

/// Numbers of other kinds stay: a reader needs them.
#[test]
fn other_numbers_stay() {
    for text in [
        "0000:18:00.0 at 00:1f.2",
        "580.159.04, Linux 6.1.0-13, rdma-core 50.0, libmlx5.so.1.24.44.0",
        "2026-11-27T16:37:18Z 12:34:56",
        "0x00007f1234567890, QPN 0x030000, mlx5_0:1, syndrome 0x13",
        "core::fmt std::io warpbell::Word64",
        "45.38 µs 1.53 µs 807.45 µs 2.831",
        "127.0.0.1:4791 ::1 0.0.0.0 localhost root",
        "--hosts a --sizes 8,4K -n 2",
        "serial port",
    ] {
        assert_eq!(scrub().text(text), text);
    }
}

#[test]
fn the_same_name_has_the_same_placeholder_in_later_texts() {
    let mut scrub = scrub();
    assert_eq!(scrub.text("10.0.0.1 10.0.0.2"), "<address-1> <address-2>");
    assert_eq!(scrub.text("10.0.0.2 10.0.0.3"), "<address-2> <address-3>");
}

/// What says whose machine it is, and what of it must not be found later.
fn telling() -> impl Strategy<Value = String> {
    let mac = any::<[u8; 6]>().prop_map(|mac| mac.map(|byte| format!("{byte:02x}")).join(":"));
    let groups =
        any::<[u16; 8]>().prop_map(|gid| gid.map(|group| format!("{group:04x}")).join(":"));
    let short = any::<[u16; 2]>().prop_map(|[one, other]| format!("fd00::{one:x}:{other:x}"));
    prop_oneof![
        short,
        any::<u32>().prop_map(|bits| Ipv4Addr::from(bits).to_string()),
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits).to_string()),
        groups,
        mac,
        Just("gpu07".to_owned()),
        Just("gpu07.cluster.example.org".to_owned()),
        Just("alice".to_owned()),
        Just("/scratch/alice/data".to_owned()),
    ]
}

/// What stands between.
fn between() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        " ", ", ", " (", ") ", "\n", "=", "\"", "'", "[", "] ", "; ", " at ", " µ ", "/", "@", "|",
    ])
}

fn stays(text: &str) -> bool {
    let is_everywhere = |ip: std::net::IpAddr| ip.is_loopback() || ip.is_unspecified();
    text.parse().is_ok_and(is_everywhere)
}

proptest! {
    #[test]
    fn nothing_telling_is_left_and_a_second_pass_changes_nothing(
        parts in prop::collection::vec((between(), telling()), 1..8), end in between(),
    ) {
        let text = parts.iter().map(|(between, telling)| format!("{between}{telling}")).collect::<String>() + end;
        let mut scrub = scrub();
        let scrubbed = scrub.text(&text);
        for (_, telling) in parts.iter().filter(|(_, telling)| !stays(telling)) {
            prop_assert!(!scrubbed.contains(telling.as_str()), "{telling} in {scrubbed:?} of {text:?}");
        }
        prop_assert_eq!(scrub.text(&scrubbed), scrubbed.clone());
        // What stands between is still there, and each thing has become one placeholder.
        let placeholders = scrubbed.matches('<').count();
        let left = parts.iter().filter(|(_, telling)| !stays(telling)).count();
        prop_assert_eq!(placeholders, left, "{:?} of {:?}", scrubbed, text);
    }

    /// Even if names are words of placeholders.
    #[test]
    fn any_text_is_scrubbed_once(text in "(host|user|address|serial:|home|[-<>1 ]|10\\.0\\.0\\.[12]|µ){0,12}") {
        let mut scrub = Scrub::default();
        scrub.name(Kind::Host, "host");
        scrub.name(Kind::User, "address");
        let scrubbed = scrub.text(&text);
        prop_assert_eq!(scrub.text(&scrubbed), scrubbed, "{:?}", text);
    }

    #[test]
    fn different_addresses_have_different_placeholders(one: u32, other: u32) {
        let [one, other] = [one, other].map(Ipv4Addr::from);
        prop_assume!(one != other && !stays(&one.to_string()) && !stays(&other.to_string()));
        let scrubbed = scrub().text(&format!("{one} {other} {one}"));
        prop_assert_eq!(scrubbed, "<address-1> <address-2> <address-1>");
    }
}
