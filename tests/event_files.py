"""Reads TensorBoard's event files: records of (length, its CRC, a protobuf message, its CRC)."""

from __future__ import annotations

import struct
from operator import itemgetter
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event


def scalars(folder: Path) -> list[tuple[str, int, float]]:
    """(name, step, value) of all figures in the folder, oldest first."""
    found: list[tuple[float, str, int, float]] = []
    for path in folder.glob("events.out.tfevents.*"):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = Event.FromString(data[at + 12 : at + 12 + length])
            found += [(event.wall_time, value.tag, event.step, value.simple_value) for value in event.summary.value]
            at += length + 16
    return [(name, step, value) for _, name, step, value in sorted(found, key=itemgetter(0))]
