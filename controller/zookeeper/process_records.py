"""The small records about processes: who leads, what a driver waits for, is asked for and was started with, and the pause.

Total parsers as in `records`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import RecordError
from reprise.controller.zookeeper.fields import dumps, loads, shallow

ERROR = "error"
"""In place of a rule, in the leader's record: no decision was possible."""


@dataclass(frozen=True, slots=True)
class Leader:
    """`coordinator`: who leads, and what it last found; for people."""

    pid: int
    rule: str = ""
    """Name of the rule that decided, or `ERROR`; empty: nothing was decided yet."""
    reason: str = ""
    time: float = 0.0
    """Of that decision, unix seconds; 0: there was none."""
    settle_s: float | None = None
    """How long it waits for the rest of a burst; None: an earlier version, which does not say."""
    driver_grace_s: float | None = None
    """How long it waits for the nodes of a new driver; None: an earlier version, which does not say."""

    @property
    def undecided(self) -> str:
        """Why it cannot decide, or cannot write down what it has decided; empty when it can."""
        return self.reason if self.rule == ERROR else ""


@dataclass(frozen=True, slots=True)
class Waits:
    """`waits`: a driver that has not begun, by its epoch, and what it waits for; for people."""

    driver: str
    problem: str


@dataclass(frozen=True, slots=True)
class Spec:
    """`spec`: what the last driver was started with."""

    document: str
    """The topology, as JSON."""
    image: str


def encode_leader(x: Leader) -> bytes:
    return dumps(shallow(x))


def parse_leader(raw: bytes, path: str = paths.COORDINATOR) -> Leader:
    f = loads(raw, path)
    return Leader(
        pid=f.integer("pid", 0),
        rule=f.text("rule", ""),
        reason=f.text("reason", ""),
        time=f.number("time", 0.0),
        settle_s=f.maybe_number("settle_s"),
        driver_grace_s=f.maybe_number("driver_grace_s"),
    )


def encode_waits(x: Waits) -> bytes:
    return dumps(shallow(x))


def parse_waits(raw: bytes, path: str = paths.WAITS) -> Waits:
    f = loads(raw, path)
    return Waits(f.text("driver"), f.text("problem"))


def encode_spec(x: Spec) -> bytes:
    return dumps(shallow(x))


def parse_spec(raw: bytes, path: str = paths.SPEC) -> Spec:
    f = loads(raw, path)
    return Spec(f.text("document"), f.text("image"))


def encode_drain(driver: str) -> bytes:
    """`commands/drain`: the driver, by its epoch, that is to stop at a checkpoint and to end."""
    return dumps({"driver": driver})


def parse_drain(raw: bytes, path: str = paths.DRAIN) -> str:
    return loads(raw, path).text("driver")


def encode_owner(uid: str) -> bytes:
    """`owner`: the uid of the StreamTopology that the records belong to."""
    return uid.encode()


def parse_owner(raw: bytes, path: str = paths.OWNER) -> str:
    """What is no text is nobody's uid, and says so: the records are then another's, which is what they are."""
    return raw.decode(errors="replace")


def encode_paused(paused: bool) -> bytes:
    return json.dumps(paused).encode()


def parse_paused(raw: bytes, path: str = paths.PAUSED) -> bool:
    """`commands/paused`: `true` or `false`, as anybody may write it by hand."""
    value = _value(raw)
    if not isinstance(value, bool):
        raise RecordError(path, "$", "must be true or false")
    return value


def encode_number(number: int) -> bytes:
    """`driver`, the newest epoch, and `/reprise-embedded/incarnations/<node>`."""
    return str(number).encode()


def parse_number(raw: bytes, path: str) -> int:
    """An empty record is 0: nobody has counted yet."""
    value = _value(raw or b"0")
    if isinstance(value, bool) or not isinstance(value, int):
        raise RecordError(path, "$", "must be a whole number")
    return value


def _value(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except (ValueError, RecursionError):
        return None
