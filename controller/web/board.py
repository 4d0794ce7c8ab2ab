"""The newest look at each topology, between those who look and those who watch.

Whoever observes a topology anyway leaves the observation here, which costs an assignment and keeps nothing that its
observer has not.  A document is made of it only when somebody asks, and once for everybody who asks until it is due again:
after half a second, or ten times what making it took, but three seconds at most, so that the page of a huge topology takes
a tenth of a core as a rule.

A topology whose spec is refused is here as well: with its reason alone where no spec of it was ever taken, else beside what
was seen last.
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
from typing import Any, TypeVar

from reprise.controller.analysis.upcoming import upcoming
from reprise.controller.status import StatusDocument, document, plain, records
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
REFUSED = "refused"
"""In the list, the phase of a topology of which no spec was ever taken; it has no other fields but name and `refused`."""
Key = tuple[str, str]
"""Namespace and name."""
Shown = TypeVar("Shown")


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


@dataclass(slots=True)
class _Made:
    """What is shown of one observation.  The list of topologies needs little of it, so bytes are made when they are asked
    for first; what that takes counts, too, for when all of it is made anew."""

    version: int
    found: StatusDocument | None
    """None: nothing was ever seen of it."""
    refused: str
    clock: Callable[[], float]
    spent: float
    """Seconds that it has taken so far,"""
    at: float
    """and when the last of them were over."""
    _document: Rendered | None = None
    _page: Rendered | None = None

    @property
    def due(self) -> float:
        """When to make it anew, if there is something newer."""
        return self.at + max(FRESH_S, min(STALE_S, FRESH_TIMES * self.spent))

    @property
    def summary(self) -> dict[str, Any]:
        """What of it the list of topologies shows."""
        if self.found is None:
            return {"phase": REFUSED, "refused": self.refused}
        return _summary(self.found, self.refused)

    def document(self) -> Rendered | None:
        """The status document."""
        if self._document is None and self.found is not None:
            began = self.clock()
            self._document = Rendered.of(plain(self.found))
            self._took(began)
        return self._document

    def page(self) -> Rendered:
        """The status document, what comes back next, and why the newest spec is refused."""
        if self._page is None:
            status, began = self.document(), self.clock()
            self._page = _page(status, plain(upcoming(self.found)) if self.found else [], self.refused)
            self._took(began)
        return self._page

    def _took(self, began: float) -> None:
        self.at = self.clock()
        self.spent += self.at - began


@dataclass(slots=True)
class _Entry:
    look: tuple[StreamTopology, Observation] | None
    """None: no spec of it was ever taken."""
    shown: float
    """When it was looked at last, by the board's clock."""
    refused: str = ""
    """Why its newest spec is not taken; empty: it is."""
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
            now = self._clock()
            entry = self._entries.get((namespace, name))
            if entry is None:
                self._entries[namespace, name] = _Entry((resource, seen), now)
                return
            entry.look, entry.shown, entry.version = (resource, seen), now, entry.version + 1
            if entry.made and now - entry.asked > KEPT_S:
                entry.made = entry.topology = None

    def refuse(self, namespace: str, name: str, why: str) -> None:
        """Its newest spec is not taken, or is (`why` is empty); what was seen under an earlier one stays."""
        with self._lock:
            entry = self._entries.get((namespace, name))
            if entry is None and why:
                self._entries[namespace, name] = _Entry(None, self._clock(), why)
            elif entry is not None and entry.refused != why:
                entry.refused, entry.made, entry.version = why, None, entry.version + 1
            if entry is not None and entry.look is None:
                entry.shown = self._clock()

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
        return self._shown(key, _Made.document)

    def page(self, key: Key) -> Rendered | None:
        """What the page of a topology is drawn from: the status document, what comes back next, and why its newest spec is
        refused.  None of what is not known."""
        return self._shown(key, _Made.page)

    def age(self, key: Key) -> float | None:
        """Seconds since it was looked at last, whatever was seen; None of what is not known."""
        with self._lock:
            entry = self._entries.get(key)
            return None if entry is None else max(0.0, self._clock() - entry.shown)

    def records(self, key: Key) -> Rendered | None:
        """The records themselves, for commands that reckon with them; None of what is not known.  Made anew each time, as
        people ask for them by hand."""
        with self._lock:
            entry = self._entries.get(key)
            look = None if entry is None else entry.look
        return None if look is None else Rendered.of(records(look[1]))

    def listing(self) -> Rendered:
        """All topologies, in short."""
        with self._lock:
            keys = sorted(self._entries)
        found = [(key, summary) for key in keys if (summary := self._shown(key, _summary_of)) is not None]
        return Rendered.of(
            {"items": [{"namespace": key[0], "name": key[1], **summary} for key, summary in found]}
        )

    def _shown(self, key: Key, part: Callable[[_Made], Shown]) -> Shown | None:
        """A part of what is to be shown now; None of what is not known."""
        with self._lock:
            entry = self._entries.get(key)
        if entry is None:
            return None
        with entry.making:
            entry.asked = self._clock()
            made = entry.made
            if made is None or made.version != self._due(entry):
                made = entry.made = self._make(entry)
            return part(made)

    def _due(self, entry: _Entry) -> int:
        """Version of the observation that a document should show now."""
        made = entry.made
        return entry.version if made is None or self._clock() >= made.due else made.version

    def _make(self, entry: _Entry) -> _Made:
        began = self._clock()
        with self._lock:
            version, look, known, refused = entry.version, entry.look, entry.topology, entry.refused
        if look is None:
            return _Made(version, None, refused, self._clock, 0.0, began)
        resource, seen = look
        if known is None or known[0] is not resource:
            known = entry.topology = resource, with_promises(resource)
        found = document(known[1], seen)
        now = self._clock()
        return _Made(version, found, refused, self._clock, now - began, now)


def _page(status: Rendered | None, coming: list[Any], refused: str) -> Rendered:
    """The status document is not written a second time: it is the largest part by far."""
    rest = json.dumps(
        {"upcoming": coming, "refused": refused}, separators=(",", ":"), allow_nan=False
    ).encode()
    return Rendered.of_bytes(b'{"document":' + (status.body if status else b"null") + b"," + rest[1:])


def _summary_of(made: _Made) -> dict[str, Any]:
    return made.summary


def _summary(found: StatusDocument, refused: str) -> dict[str, Any]:
    incident = found.incident
    return {
        "refused": refused,
        **{name: plain(getattr(found, name)) for name in _SUMMARY},
        "queries": {name: plain(getattr(found.queries, name)) for name in _COUNTS},
        "incident": incident and {name: plain(getattr(incident, name)) for name in _INCIDENT},
    }
