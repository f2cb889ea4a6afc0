"""Reads a trace by Perfetto's own messages (PyPI: perfetto), and prints how many events of each type and name it has.

Ends with an error if a field is none of Perfetto's, or slices of a track are not nested."""

import collections
import sys

from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as messages


def unknown(message):
    count = len(unknown_fields.UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type:
            parts = value if isinstance(value, collections.abc.Sequence) else [value]
            count += sum(unknown(part) for part in parts)
    return count


with open(sys.argv[1], "rb") as file:
    trace = messages.Trace.FromString(file.read())
assert unknown(trace) == 0, "fields that Perfetto does not know"

Event = messages.TrackEvent
tracks, ends, open_slices, counts = {}, {}, collections.Counter(), collections.Counter()
for packet in trace.packet:
    if packet.HasField("track_descriptor"):
        track = packet.track_descriptor
        assert track.uuid not in tracks, "a track's number is given twice"
        assert not track.parent_uuid or track.parent_uuid in tracks, "a track without its parent"
        tracks[track.uuid] = track
        continue
    event = packet.track_event
    track = tracks[event.track_uuid]
    assert packet.timestamp >= ends.get(track.uuid, 0) > -1, "a track's events are not in order"
    ends[track.uuid] = packet.timestamp
    if event.type == Event.TYPE_SLICE_BEGIN:
        open_slices[track.uuid] += 1
    if event.type == Event.TYPE_SLICE_END:
        open_slices[track.uuid] -= 1
    assert open_slices[track.uuid] in (0, 1), "slices of a track overlap"
    assert (event.type == Event.TYPE_COUNTER) == track.HasField("counter"), "counters have tracks of their own"
    counts[Event.Type.Name(event.type), event.name] += 1
for (kind, name), count in sorted(counts.items()):
    print(f"{kind} {name or '-'} {count}")
