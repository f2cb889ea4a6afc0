//! A drawing read back.

use std::collections::BTreeMap;

use warpbell::wqe::QpNumber;

use super::*;

const QPN: u32 = 0x123;
const BEGIN: i32 = EventType::SliceBegin as i32;
const END: i32 = EventType::SliceEnd as i32;
const INSTANT: i32 = EventType::Instant as i32;
const COUNTER: i32 = EventType::Counter as i32;

fn span(start: u16, blocks: u16) -> u32 {
    Span { start, blocks }.to_value()
}

fn source(name: &str, events: &[(u64, Kind, u32)], lost: u64) -> Source {
    let qpn = QpNumber::from_low_bits(QPN);
    let event =
        |&(time, kind, value): &(u64, Kind, u32)| (time, Event::new(time, kind, qpn, value));
    Source {
        name: name.into(),
        end: 0,
        events: events.iter().map(event).collect(),
        lost,
        clock_error_ns: 0,
    }
}

fn drawn(sources: Vec<Source>) -> Vec<Packet> {
    let mut bytes = Vec::new();
    let recording = Recording { sources };
    recording.write_perfetto_to(&mut bytes).unwrap();
    TraceFile::decode(&bytes[..]).unwrap().packet
}

/// The names of tracks, each behind those of its parents.
fn tracks(packets: &[Packet]) -> BTreeMap<u64, String> {
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    for track in packets
        .iter()
        .filter_map(|packet| packet.track_descriptor.as_ref())
    {
        let parent = track.parent_uuid.map(|parent| names[&parent].clone());
        let path = parent.into_iter().chain(track.name.clone());
        let name = path.collect::<Vec<_>>().join("/");
        assert!(
            names.insert(track.uuid(), name).is_none(),
            "numbers are given once"
        );
    }
    names
}

/// Time, track, type and name of each event.
fn events(packets: &[Packet]) -> Vec<(u64, String, i32, String)> {
    let names = tracks(packets);
    let events = packets.iter().filter_map(|packet| {
        let event = packet.track_event.as_ref()?;
        let track = names[&event.track_uuid()].clone();
        let name = event.name().to_owned();
        Some((packet.timestamp(), track, event.r#type.unwrap(), name))
    });
    events.collect()
}

#[test]
fn a_request_is_a_slice_with_an_arrow_to_the_nic() {
    let kernels = [
        (10, Kind::Reserve, span(65_535, 2)),
        (11, Kind::Publish, span(65_535, 2)),
        (12, Kind::WaitBegin, 0),
        (50, Kind::Completion, 0),
        (51, Kind::WaitEnd, 0),
    ];
    let nic = [
        (20, Kind::Doorbell, 1),
        (30, Kind::Fetch, 65_535),
        (31, Kind::Fetch, 0),
        (40, Kind::Cqe, 0),
    ];
    let packets = drawn(vec![source("kernels", &kernels, 0), source("NIC", &nic, 3)]);
    let queue = "kernels/QP 0x123 send";
    let there = "NIC/QP 0x123 send";
    let expected = [
        (10, queue, "", INSTANT, "Reserve"),
        (11, queue, "/in flight", BEGIN, "Publish"),
        (11, queue, "/blocks in flight", COUNTER, ""),
        (12, queue, "/waits", BEGIN, "Wait"),
        (20, there, "", INSTANT, "Doorbell"),
        (30, there, "", INSTANT, "Fetch"),
        (31, there, "", INSTANT, "Fetch"),
        (40, there, "", INSTANT, "Cqe"),
        (50, queue, "/in flight", END, ""),
        (50, queue, "/blocks in flight", COUNTER, ""),
        (50, queue, "", INSTANT, "Completion"),
        (51, queue, "/waits", END, ""),
        (40, "NIC", "", INSTANT, "lost"),
    ];
    let expected = expected.map(|(time, track, below, kind, name)| {
        (time, format!("{track}{below}"), kind, name.to_owned())
    });
    assert_eq!(events(&packets), expected);

    let of = |time| {
        let packets = packets
            .iter()
            .filter(move |packet| packet.timestamp() == time);
        packets.filter_map(|packet| packet.track_event.as_ref())
    };
    let arrows = |time| {
        of(time)
            .flat_map(|event| event.flow_ids.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(arrows(11).len(), 1);
    assert_eq!((arrows(30), arrows(31)), (arrows(11), vec![]));
    let counted = |time| of(time).find_map(|event| event.counter_value);
    assert_eq!((counted(11), counted(50)), (Some(2), Some(0)));
    let lost = of(40).find(|event| event.name() == "lost").unwrap();
    assert_eq!(lost.debug_annotations, [annotation("events", 3_u64)]);
}

/// What overlaps has tracks of its own, and a completion ends all that was published before it.
#[test]
fn slices_of_a_track_do_not_overlap() {
    let kernels = [
        (1, Kind::Publish, span(0, 1)),
        (2, Kind::Publish, span(1, 4)),
        (3, Kind::WaitBegin, WAIT_FOR_ROOM),
        (4, Kind::WaitBegin, 4),
        (5, Kind::WaitEnd, WAIT_FOR_ROOM | WAIT_IN_VAIN),
        (6, Kind::Completion, 0),
        (7, Kind::Publish, span(5, 1)),
        (8, Kind::Completion, 5),
        (9, Kind::WaitEnd, 4),
        // Of a wait that began before the trace.
        (10, Kind::WaitEnd, 4),
    ];
    let packets = drawn(vec![source("kernels", &kernels, 0)]);
    let mut open: BTreeMap<u64, bool> = BTreeMap::new();
    let mut ends = Vec::new();
    for packet in &packets {
        let Some(event) = &packet.track_event else {
            continue;
        };
        let open = open.entry(event.track_uuid()).or_default();
        match event.r#type {
            Some(BEGIN) => assert!(!std::mem::replace(open, true), "{packet:?}"),
            Some(END) => {
                assert!(std::mem::replace(open, false), "{packet:?}");
                ends.push(packet.timestamp());
            }
            _ => {}
        }
    }
    assert!(open.values().all(|open| !open));
    assert_eq!(ends, [5, 6, 8, 8, 9]);
    // The third request has the track of the first one again.
    let names = tracks(&packets);
    let count = |name| names.values().filter(|track| track.ends_with(name)).count();
    assert_eq!((count("/in flight"), count("/waits")), (2, 2));
}

/// A receive queue is another one than the send queue of the same number.
#[test]
fn a_receive_queue_has_a_track_of_its_own() {
    let mut kernels = source("kernels", &[(1, Kind::Publish, span(0, 1)); 2], 0);
    kernels.events[1].1 = kernels.events[1].1.of_receive_queue();
    let names = tracks(&drawn(vec![kernels]));
    for queue in ["kernels/QP 0x123 send", "kernels/QP 0x123 receive"] {
        assert!(names.values().any(|name| name == queue), "{names:?}");
    }
}
