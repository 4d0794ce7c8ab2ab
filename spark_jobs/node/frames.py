"""What hosts send each other over the exchange: messages for partitions, and confirmations of what has come and is applied.

A frame says as of which orders it was made.  Its reader drops what belongs to an earlier driver or an earlier generation,
and keeps what belongs to orders that it has not been told yet (`reprise.spark_jobs.node.pump`).
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from reprise.spark_jobs.errors import WireError

_HEAD = struct.Struct(">BqqqI")
"""Kind, epoch, generation, job, slot."""


class FrameKind(IntEnum):
    """What the rest of a frame is."""

    MESSAGES = 1
    """A bundle (`reprise.spark_jobs.node.wire`)."""
    CONFIRMATION = 2
    PING = 3
    """Asks whether frames arrive, of somebody who has not confirmed what it was sent; it may be busy."""
    PONG = 4
    """The answer, which waits for nothing."""
    PIECE = 5
    """The beginning of a bundle, or more of it; the rest follows, the end as `MESSAGES`."""


class Stamp(NamedTuple):
    """Who sends a frame, as of which orders."""

    epoch: int
    generation: int
    job: int
    slot: int
    """The sender's."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What one host tells another of that one's frames."""

    frames: int
    """How many with messages have come from there over this exchange."""
    applied: dict[str, int] = field(default_factory=dict)
    """Partitions here that read there, and the last batch that each has applied, where that is new."""

    def encode(self) -> bytes:
        """JSON bytes."""
        return json.dumps({"frames": self.frames, "applied": self.applied}, separators=(",", ":")).encode()

    @staticmethod
    def decode(data: bytes) -> Confirmation:
        """The inverse of `encode`.  WireError for anything else."""
        try:
            raw = json.loads(data)
            return Confirmation(int(raw["frames"]), {str(p): int(k) for p, k in raw["applied"].items()})
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise WireError(f"not a confirmation: {error!r}") from error


def encode_frame(kind: FrameKind, stamp: Stamp, body: bytes) -> bytes:
    """One frame, whose length whoever carries it knows."""
    return _HEAD.pack(kind, *stamp) + body


def decode_frame(frame: bytes) -> tuple[FrameKind, Stamp, bytes]:
    """The inverse of `encode_frame`.  WireError for anything else."""
    try:
        kind, *stamp = _HEAD.unpack_from(frame)
        return FrameKind(kind), Stamp(*stamp), frame[_HEAD.size :]
    except (struct.error, ValueError) as error:
        raise WireError(f"not a frame: {error}") from error


def is_ping(frame: bytes) -> bool:
    """Whether this is a whole ping."""
    return len(frame) == _HEAD.size and frame[0] == FrameKind.PING


def slot_of(frame: bytes) -> int:
    """Slot of the sender of a whole frame."""
    return int(_HEAD.unpack_from(frame)[4])
