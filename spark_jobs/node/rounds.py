"""What a driver sends each host in a round, and what the host answers: a job without Spark's tasks.

Both begin with the number of the round.  A host answers a question without orders at once, with what it is doing.
"""

from __future__ import annotations

import struct
from enum import IntEnum

from reprise.spark_jobs.errors import WireError

_ROUND = struct.Struct(">q")
_ANSWER = struct.Struct(">qB")


class Kind(IntEnum):
    """What an answer is."""

    REPORT = 0
    ERROR = 1
    """Why the host has not carried out its orders."""
    BUSY = 2
    """What holds it up; empty: nothing."""
    CONNECTED = 3
    """Sent unasked: both relays of the exchange are connected to this host, so that orders can come by it."""


NO_ROUND = 0
"""Number of the round in such an answer."""


def encode_question(number: int, order: bytes = b"") -> bytes:
    """Orders, or the question what holds the host up."""
    return _ROUND.pack(number) + order


def decode_question(data: bytes) -> tuple[int, bytes]:
    """The inverse of `encode_question`; struct.error: it is none."""
    (number,) = _ROUND.unpack_from(data)
    return number, data[_ROUND.size :]


def encode_answer(number: int, kind: Kind, body: bytes) -> bytes:
    """What a host answers."""
    return _ANSWER.pack(number, kind) + body


def decode_answer(data: bytes) -> tuple[Kind, bytes]:
    """Kind and body.  WireError: it is none."""
    try:
        return Kind(_ANSWER.unpack_from(data)[1]), data[_ANSWER.size :]
    except (struct.error, ValueError) as error:
        raise WireError(f"not an answer of a host: {error}") from error
