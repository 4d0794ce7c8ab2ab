"""The newest look at each topology, between those who look and those who watch.

Whoever observes a topology anyway leaves the observation here, which costs an assignment and keeps nothing that its
observer has not.  A document is made of it only when somebody asks, and once for everybody who asks until it is due again:
after half a second, or ten times what making it took, but three seconds at most, so that the page of a huge topology takes
a tenth of a core as a rule.
Invariant: `show` never waits for a document that is being made.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reprise.controller.status import document, plain, records
from reprise.controller.topology_view import with_promises
from reprise.controller.zookeeper.observation import Observation
from reprise.spark_jobs.topology import StreamTopology, Topology

FRESH_S = 0.5
"""A document is shown at least so long, although there is a newer observation."""
FRESH_TIMES = 10.0
"""And at least so many times as long as making it took,"""
STALE_S = 3.0
"""but never longer than so: the first one may have waited for the planner's kernels, and no incident may stand still."""
KEPT_S = 60.0
"""What was made is forgotten when nobody has asked for it for so long."""
_SUMMARY = ("phase", "connected", "time", "batch")
_COUNTS = ("total", "available", "recovering", "waiting", "share")
_INCIDENT = ("id", "kind", "phase", "opened_at")
Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """Bytes as they are sent; `tag` is the same for the same bytes."""

    body: bytes
    packed: bytes
    tag: str

    @classmethod
    def of(cls, value: Any) -> Rendered:
        """JSON."""
        body = json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
        return cls.of_bytes(body)

    @classmethod
    def of_bytes(cls, body: bytes) -> Rendered:
        """Take the bytes as they are; the packed form is fast to make rather than small."""
        return cls(body, gzip.compress(body, 3, mtime=0), f'"{hashlib.sha256(body).hexdigest()[:32]}"')


@dataclass(frozen=True, slots=True)
class _Made:
    version: int
    due: float
    """When to make it anew, if there is something newer."""
    document: Rendered
    summary: dict[str, Any]
    """What of it the list of topologies shows."""


@dataclass(slots=True)
class _Entry:
    resource: StreamTopology
    seen: Observation
    version: int = 1
    asked: float = 0.0
    topology: tuple[StreamTopology, Topology] | None = None
    """Of this resource, while somebody watches."""
    making: threading.Lock = field(default_factory=threading.Lock)
    made: _Made | None = None


class Board:
    """Safe to use from several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: dict[Key, _Entry] = {}

    def show(self, namespace: str, name: str, resource: StreamTopology, seen: Observation) -> None:
        """The newest observation of this topology."""
        with self._lock:
            entry = self._entries.get((namespace, name))
            if entry is None:
                self._entries[namespace, name] = _Entry(resource, seen)
                return
            entry.resource, entry.seen, entry.version = resource, seen, entry.version + 1
            if entry.made and self._clock() - entry.asked > KEPT_S:
                entry.made = entry.topology = None

    def forget(self, namespace: str, name: str) -> None:
        """It is not looked after any more."""
        with self._lock:
            self._entries.pop((namespace, name), None)

    def version(self, key: Key) -> int | None:
        """The version of the observation that a document would show if it were asked for now: another one with each
        observation, but not before it is due.  None of what is not known."""
        with self._lock:
            entry = self._entries.get(key)
            return None if entry is None else self._due(entry)

    def document(self, key: Key) -> Rendered | None:
        """The status document; None of what is not known."""
        made = self._made(key)
        return None if made is None else made.document

    def records(self, key: Key) -> Rendered | None:
        """The records themselves, for commands that reckon with them; None of what is not known.  Made anew each time, as
        people ask for them by hand."""
        with self._lock:
            entry = self._entries.get(key)
            seen = None if entry is None else entry.seen
        return None if seen is None else Rendered.of(records(seen))

    def listing(self) -> Rendered:
        """All topologies, in short."""
        with self._lock:
            keys = sorted(self._entries)
        found = [(key, made.summary) for key in keys if (made := self._made(key)) is not None]
        return Rendered.of(
            {"items": [{"namespace": key[0], "name": key[1], **summary} for key, summary in found]}
        )

    def _made(self, key: Key) -> _Made | None:
        with self._lock:
            entry = self._entries.get(key)
        if entry is None:
            return None
        with entry.making:
            entry.asked = self._clock()
            made = entry.made
            if made is None or made.version != self._due(entry):
                made = entry.made = self._make(entry)
            return made

    def _due(self, entry: _Entry) -> int:
        """Version of the observation that a document should show now."""
        made = entry.made
        return entry.version if made is None or self._clock() >= made.due else made.version

    def _make(self, entry: _Entry) -> _Made:
        began = self._clock()
        with self._lock:
            version, resource, seen, known = entry.version, entry.resource, entry.seen, entry.topology
        if known is None or known[0] is not resource:
            known = entry.topology = resource, with_promises(resource)
        value = plain(document(known[1], seen))
        rendered, now = Rendered.of(value), self._clock()
        shown = max(FRESH_S, min(STALE_S, FRESH_TIMES * (now - began)))
        return _Made(version, now + shown, rendered, _summary(value))


def _summary(value: dict[str, Any]) -> dict[str, Any]:
    incident = value["incident"]
    return {
        **{name: value[name] for name in _SUMMARY},
        "queries": {name: value["queries"][name] for name in _COUNTS},
        "incident": incident and {name: incident[name] for name in _INCIDENT},
    }
