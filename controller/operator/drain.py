"""Asks a driver to stop at a checkpoint before another one with changed code takes its place, and says what it waits for.

A driver that has drained ends by itself, with success; that is the sign to start the next one.  Nothing is ever forced: a
drain that cannot end (a paused topology, a partition that is set aside) is said to wait, with what a person can do.  A
driver that dies before it has drained is followed by one with the former spec, which is kept in the records, as nobody else
can drain.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from controller.coordination.errors import CoordinationError
from controller.coordination.znode import pack, unpack
from controller.operator.events import Events
from controller.operator.settings import OperatorSettings
from controller.run.observation import Observation
from controller.run.standing import is_poison
from spark_jobs.errors import SpecError
from spark_jobs.revision import revision_of
from spark_jobs.topology import StreamTopology, from_json

PATIENCE_S = 120.0
"""A drain takes as long as one checkpoint; one that takes longer is worth a warning."""


class Book(Protocol):
    """What a drain needs of the topology's records; each raises CoordinationError."""

    def ask_to_drain(self, driver: str) -> None:
        """Write that the driver of this life is to drain."""

    def former(self) -> bytes | None:
        """The record `spec`."""

    def started(self, former: bytes) -> None:
        """Write it."""


@dataclass(slots=True)
class Drain:
    """Of one topology."""

    book: Book
    events: Events
    clock: Callable[[], float] = time.monotonic
    _asked: str = ""
    _since: float = 0.0

    def look(self, seen: Observation) -> str:
        """One step; what is waited for."""
        progress = seen.progress
        if progress is None:
            return "the spec has changed: the driver is drained when it reports"
        if progress.driver != self._asked:
            try:
                self.book.ask_to_drain(progress.driver)
            except CoordinationError as error:
                return f"the spec has changed: the driver cannot be asked to drain: {error}"
            self._asked, self._since = progress.driver, self.clock()
            self.events.say(
                "DrainAsked", "the spec has changed: the driver stops at a checkpoint, then a new one goes on"
            )
        why, stands = _waits_for(seen)
        if self.clock() - self._since > PATIENCE_S:
            self.events.say(
                "DrainWaits", f"the spec has changed and is not in effect yet: {why}", warning=True
            )
        return f"the spec has changed, and the driver drains: {why}{stands}"

    def to_start(
        self, resource: StreamTopology, settings: OperatorSettings, seen: Observation | None
    ) -> tuple[StreamTopology, OperatorSettings]:
        """What the next driver is started with, and on record as such: what is wanted, or, while the stream is not drained
        and that would make shown batches differently, what there was.  Raises CoordinationError."""
        raw = self.book.former()
        former = Former.decode(raw) if raw else None
        drained = seen is not None and seen.progress is not None and seen.progress.drained is not None
        if former is not None and resource.upgrade == "drain" and not drained:
            with suppress(SpecError):  # what cannot be read any more cannot be started
                before = from_json(former.document)
                if revision_of(before, former.image) != revision_of(resource, _image(resource, settings)):
                    self.events.say(
                        "FormerSpecStarted",
                        "the driver ended before it had drained: the former spec goes on until then",
                    )
                    return before, replace(settings, image=former.image)
        wanted = Former(resource.document, _image(resource, settings)).encode()
        if wanted != raw:
            self.book.started(wanted)
        return resource, settings


def _image(resource: StreamTopology, settings: OperatorSettings) -> str:
    return resource.kubernetes.image or settings.image


def _waits_for(seen: Observation) -> tuple[str, str]:
    """What the drain waits for, and how far it is."""
    progress, desired = seen.progress, seen.desired
    assert progress is not None
    aside = sorted(p for p, why in progress.failed.items() if is_poison(why))
    if aside:
        return (
            f"no checkpoint can be complete while {', '.join(aside[:3])} is set aside; `upgrade: replay` lets the new "
            "code make the batches since the last checkpoint again",
            "",
        )
    if desired is not None and desired.paused:
        return "a paused topology takes no checkpoint; it drains when it is resumed", ""
    if not seen.connected:
        return "ZooKeeper does not answer", ""
    return (
        "the last checkpoint",
        f" ({progress.checkpoint} of batch {progress.horizon})",
    )


@dataclass(frozen=True, slots=True)
class Former:
    """What the last driver was started with."""

    document: str
    """The topology."""
    image: str

    def encode(self) -> bytes:
        """As the record `spec`."""
        return pack(json.dumps({"document": self.document, "image": self.image}).encode())

    @staticmethod
    def decode(raw: bytes) -> Former | None:
        """None for bytes that are none."""
        try:
            found = json.loads(unpack(raw))
            return Former(str(found["document"]), str(found["image"]))
        except (ValueError, KeyError, TypeError):
            return None
