//! A recording as a file that Perfetto shows.
//!
//! | track | what it shows |
//! |---|---|
//! | source | kernels, or the NIC; here its lost events |
//! | queue | reservations, completions, errors, and all that the NIC did |
//! | in flight | from a doorbell to the first completion of what it published |
//! | waits | from the beginning of a wait to its end |
//! | blocks in flight | how many blocks are published and not known complete |
//!
//! Slices that overlap without being nested need tracks of their own. Perfetto shows tracks of the same name and parent as
//! one.

mod messages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use prost::Message;
use warpbell::trace::{Event, Kind, Span, WAIT_FOR_ROOM, WAIT_IN_VAIN};

use super::{Recording, Source};
use messages::{
    Annotation, CounterDescriptor, EventType, Packet, TraceFile, TrackDescriptor, TrackEvent,
};

impl Recording {
    /// Writes the recording as a file for [Perfetto](https://ui.perfetto.dev) and its trace processor. Times are
    /// nanoseconds since the Unix epoch, as in the packets of a capture file.
    ///
    /// # Errors
    /// What the file system refuses.
    pub fn write_perfetto(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        self.write_perfetto_to(&mut file)?;
        file.flush()
    }

    /// The same to any writer.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_perfetto_to(&self, out: &mut impl Write) -> io::Result<()> {
        let mut drawing = Drawing::new(out);
        let mut views = Vec::new();
        for source in self.sources() {
            let track = drawing.track(source.name(), None)?;
            views.push((track, source.end(), BTreeMap::new()));
        }
        // All in order of time: an arrow begins before it ends.
        let mut flows = BTreeMap::new();
        for (index, time, event) in merged(self.sources()) {
            let (parent, end, queues) = &mut views[index];
            let key = (event.qpn().get(), event.is_of_receive_queue());
            let queue = match queues.get_mut(&key) {
                Some(queue) => queue,
                None => queues
                    .entry(key)
                    .or_insert(Queue::new(&mut drawing, *parent, *end, key)?),
            };
            queue.draw(&mut drawing, &mut flows, time, event)?;
        }
        for (source, (track, ..)) in self.sources().iter().zip(views) {
            if source.lost() > 0 {
                let end = source.events().last().map_or(0, |(time, _)| *time);
                let lost = annotation("events", source.lost());
                drawing.event(end, track, EventType::Instant, "lost", vec![lost], vec![])?;
            }
        }
        Ok(())
    }
}

/// All events in order of time, with the number of their source.
fn merged(sources: &[Source]) -> impl Iterator<Item = (usize, u64, Event)> + '_ {
    let mut rest: Vec<_> = sources.iter().map(|source| source.events()).collect();
    std::iter::from_fn(move || {
        let next = (0..rest.len()).filter(|&index| !rest[index].is_empty());
        let index = next.min_by_key(|&index| rest[index][0].0)?;
        let (&(time, event), behind) = rest[index].split_first()?;
        rest[index] = behind;
        Some((index, time, event))
    })
}

/// The number of the arrow that goes from a doorbell to the NIC's reading of its first WQE: by end, QPN and index, the last
/// one.
type Flows = BTreeMap<(usize, u32, u16), u64>;

/// The packets of a file.
struct Drawing<'w, W> {
    out: &'w mut W,
    tracks: u64,
    flows: u64,
    bytes: Vec<u8>,
}

impl<'w, W: Write> Drawing<'w, W> {
    const fn new(out: &'w mut W) -> Self {
        Self {
            out,
            tracks: 0,
            flows: 0,
            bytes: Vec::new(),
        }
    }

    fn packet(&mut self, packet: Packet) -> io::Result<()> {
        // Files of one packet each, one behind the other, are a file of all.
        let file = TraceFile {
            packet: vec![Packet {
                trusted_packet_sequence_id: Some(1),
                ..packet
            }],
        };
        self.bytes.clear();
        file.encode(&mut self.bytes).map_err(io::Error::other)?;
        self.out.write_all(&self.bytes)
    }

    fn describe(&mut self, name: &str, parent: Option<u64>, counts: bool) -> io::Result<u64> {
        self.tracks += 1;
        self.packet(Packet {
            track_descriptor: Some(TrackDescriptor {
                uuid: Some(self.tracks),
                name: Some(name.into()),
                parent_uuid: parent,
                counter: counts.then_some(CounterDescriptor {}),
            }),
            ..Packet::default()
        })?;
        Ok(self.tracks)
    }

    fn track(&mut self, name: &str, parent: Option<u64>) -> io::Result<u64> {
        self.describe(name, parent, false)
    }

    fn event(
        &mut self,
        time: u64,
        track: u64,
        kind: EventType,
        name: &str,
        debug_annotations: Vec<Annotation>,
        flow_ids: Vec<u64>,
    ) -> io::Result<()> {
        self.track_event(
            time,
            TrackEvent {
                debug_annotations,
                r#type: Some(kind.into()),
                track_uuid: Some(track),
                name: (kind != EventType::SliceEnd).then(|| name.into()),
                flow_ids,
                ..TrackEvent::default()
            },
        )
    }

    fn count(&mut self, time: u64, track: u64, value: i64) -> io::Result<()> {
        self.track_event(
            time,
            TrackEvent {
                r#type: Some(EventType::Counter.into()),
                track_uuid: Some(track),
                counter_value: Some(value),
                ..TrackEvent::default()
            },
        )
    }

    fn track_event(&mut self, time: u64, event: TrackEvent) -> io::Result<()> {
        self.packet(Packet {
            timestamp: Some(time),
            track_event: Some(event),
            ..Packet::default()
        })
    }
}

fn annotation(name: &str, value: impl Into<u64>) -> Annotation {
    Annotation {
        uint_value: Some(value.into()),
        name: Some(name.into()),
    }
}

/// Tracks for slices that overlap: each has one at a time.
struct Lanes {
    name: &'static str,
    /// Tracks without an open slice.
    free: Vec<u64>,
}

impl Lanes {
    const fn new(name: &'static str) -> Self {
        Self {
            name,
            free: Vec::new(),
        }
    }

    /// A lane that has no slice.
    fn take<W: Write>(&mut self, drawing: &mut Drawing<'_, W>, parent: u64) -> io::Result<u64> {
        match self.free.pop() {
            Some(track) => Ok(track),
            None => drawing.track(self.name, Some(parent)),
        }
    }

    fn give(&mut self, track: u64) {
        self.free.push(track);
    }
}

/// A queue, as one source saw it.
struct Queue {
    end: usize,
    track: u64,
    counter: Option<u64>,
    in_flight: Lanes,
    /// What is published and not known complete, with its slice's lane, oldest first.
    published: VecDeque<(Span, u64)>,
    /// Their blocks.
    blocks: i64,
    waits: Lanes,
    /// Waits under way, with their slices' lanes.
    waiting: Vec<(u32, u64)>,
}

impl Queue {
    fn new<W: Write>(
        drawing: &mut Drawing<'_, W>,
        parent: u64,
        end: usize,
        (qpn, receives): (u32, bool),
    ) -> io::Result<Self> {
        let kind = if receives { "receive" } else { "send" };
        let name = format!("QP {qpn:#x} {kind}");
        Ok(Self {
            end,
            track: drawing.track(&name, Some(parent))?,
            counter: None,
            in_flight: Lanes::new("in flight"),
            published: VecDeque::new(),
            blocks: 0,
            waits: Lanes::new("waits"),
            waiting: Vec::new(),
        })
    }

    fn draw<W: Write>(
        &mut self,
        drawing: &mut Drawing<'_, W>,
        flows: &mut Flows,
        time: u64,
        event: Event,
    ) -> io::Result<()> {
        let Some(kind) = event.kind() else {
            return Ok(());
        };
        let value = event.value();
        let flow = (self.end, event.qpn().get(), value as u16);
        let sends = !event.is_of_receive_queue();
        let mut arrows = vec![];
        let annotations = match kind {
            Kind::Publish => {
                let span = Span::of_value(value);
                if sends {
                    drawing.flows += 1;
                    // The value's low half is where the span starts.
                    flows.insert(flow, drawing.flows);
                    arrows.push(drawing.flows);
                }
                let lane = self.in_flight.take(drawing, self.track)?;
                self.published.push_back((span, lane));
                self.blocks += i64::from(span.blocks);
                drawing.event(
                    time,
                    lane,
                    EventType::SliceBegin,
                    "Publish",
                    of_span(span),
                    arrows,
                )?;
                return self.count(drawing, time);
            }
            Kind::WaitBegin => {
                let lane = self.waits.take(drawing, self.track)?;
                self.waiting.push((value, lane));
                let (name, what) = match value & WAIT_FOR_ROOM {
                    0 => ("Wait", vec![annotation("index", value)]),
                    _ => ("Wait for room", vec![]),
                };
                return drawing.event(time, lane, EventType::SliceBegin, name, what, arrows);
            }
            Kind::WaitEnd => {
                let awaited = value & !WAIT_IN_VAIN;
                let found = self.waiting.iter().position(|(of, _)| *of == awaited);
                if let Some(found) = found {
                    let (_, lane) = self.waiting.remove(found);
                    self.waits.give(lane);
                    let vain = annotation("in vain", u64::from(value & WAIT_IN_VAIN != 0));
                    drawing.event(time, lane, EventType::SliceEnd, "", vec![vain], arrows)?;
                }
                return Ok(());
            }
            Kind::Completion => {
                // This one and all before it, by the distance of indices that wrap.
                let is_done = |span: &Span| (value as u16).wrapping_sub(span.start) < 1 << 15;
                while let Some((span, lane)) =
                    self.published.pop_front_if(|(span, _)| is_done(span))
                {
                    self.blocks -= i64::from(span.blocks);
                    self.in_flight.give(lane);
                    drawing.event(time, lane, EventType::SliceEnd, "", vec![], vec![])?;
                }
                self.count(drawing, time)?;
                vec![annotation("index", value)]
            }
            Kind::Reserve => of_span(Span::of_value(value)),
            Kind::Error => vec![
                annotation("syndrome", value & 0xff),
                annotation("vendor", value >> 8 & 0xff),
                annotation("index", value >> 16),
            ],
            Kind::Fetch => {
                arrows.extend(flows.remove(&flow).filter(|_| sends));
                vec![annotation("index", value)]
            }
            Kind::PacketOut | Kind::PacketIn => vec![annotation("bytes", value)],
            Kind::Doorbell | Kind::Cqe => vec![annotation("index", value)],
        };
        let name = format!("{kind:?}");
        drawing.event(
            time,
            self.track,
            EventType::Instant,
            &name,
            annotations,
            arrows,
        )
    }

    /// How many blocks are in flight now.
    fn count<W: Write>(&mut self, drawing: &mut Drawing<'_, W>, time: u64) -> io::Result<()> {
        let counter = match self.counter {
            Some(counter) => counter,
            None => *self.counter.insert(drawing.describe(
                "blocks in flight",
                Some(self.track),
                true,
            )?),
        };
        drawing.count(time, counter, self.blocks)
    }
}

fn of_span(span: Span) -> Vec<Annotation> {
    vec![
        annotation("index", span.start),
        annotation("blocks", span.blocks),
    ]
}
