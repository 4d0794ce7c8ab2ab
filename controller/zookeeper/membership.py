"""Who may be a node: one persistent record a pod, so that a pod that was given up can never come back.

A heartbeat says that somebody is there, not that it is still wanted.  The operator gives a pod up (its machine is
NotReady, the pod is deleted, its heartbeat is gone) while it may still live behind a network that is cut; when the
network is back, the pod would register again and run partitions that others have by then.  So a pod registers in one
transaction with a check of its membership record, and giving it up rewrites that record.  Whichever comes first, the
other one fails.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum

from reprise.controller.zookeeper.fields import dumps, loads

FOLDER = "members"
JOINED_VERSION = 0
"""Version of a record that nobody has rewritten."""


class State(StrEnum):
    """What a record says; who decides asks for its version."""

    JOINED = "joined"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Member:
    """Content of a membership record, for people."""

    state: State
    time: float
    """When it was written, unix seconds."""
    reason: str = ""
    """Why the pod was given up."""


def path_of(root: str, pod: str) -> str:
    """The path of a pod's membership record."""
    return f"{root}/{FOLDER}/{pod}"


def joined() -> bytes:
    """The record of a pod that is welcome."""
    return encode_member(Member(State.JOINED, time.time()))


def fenced(reason: str) -> bytes:
    """The record of a pod that was given up."""
    return encode_member(Member(State.FENCED, time.time(), reason))


def encode_member(x: Member) -> bytes:
    return dumps({"state": x.state.value, "time": x.time, "reason": x.reason})


def parse_member(raw: bytes, path: str = FOLDER) -> Member:
    f = loads(raw, path)
    return Member(f.choice("state", State), f.number("time"), f.text("reason", ""))
