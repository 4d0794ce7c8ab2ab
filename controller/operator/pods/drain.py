"""Asks a driver to stop at a checkpoint before another one with changed code takes its place, and says what it waits for.

A driver that has drained ends by itself, with success; that is the sign to start the next one.  Nothing is ever forced: a
drain that cannot end (a paused topology, a partition that is set aside) is said to wait, with what a person can do.  A
driver that dies before it has drained is followed by one with the former spec, which is kept in the records, as nobody else
can drain.

Where queries come or go, nothing but a drain leads from one graph to the other (docs/decisions/0068-queries-come-and-go-on-
kubernetes.md): `upgrade: replay` changes nothing about that, and while an incident is open the former spec goes on, also
where the stream has drained.

Where nothing was released there is nothing to drain.  The coordinator gives work only to a driver that has reported; so the
report on record is always that of the last driver that may have released anything, and one that is missing, or says that its
driver has drained, means that a spec whose driver cannot start may be corrected at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from reprise.controller.kubernetes.events import EventReason, Events
from reprise.controller.kubernetes.pods import PodView
from reprise.controller.operator.graph_step import other_graph
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.zookeeper.errors import CoordinationError, SessionError
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import Spec
from reprise.scheduler.model import Desired, Progress
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.state.revision import revision_of
from reprise.spark_jobs.topology import StreamTopology, from_json
from reprise.spark_jobs.topology.graph_change import graph_of

PATIENCE_S = 120.0
"""A drain takes as long as one checkpoint; one that takes longer is worth a warning."""
SKIPPING = (
    "`reprise skip` lets queries do without what they have missed; where code raises again, let the queries that run go on "
    "with other code and `upgrade: replay`, and change them after that"
)
"""The way out where queries come or go."""
WAY_OUT = "`upgrade: replay` lets the new code make the batches since the last checkpoint again"
_CHANGED = "the spec has changed"


class Book(Protocol):
    """What a drain needs of the topology's records; each raises CoordinationError."""

    def observe(self) -> Observation:
        """How things stand now; the last known, marked, while ZooKeeper is away."""

    def ask_to_drain(self, driver: str) -> None:
        """Write that the driver of this life is to drain."""

    @property
    def started_with(self) -> StreamTopology | None:
        """What the last driver was started with, as far as it is known and can be read."""

    def former(self) -> Spec | None:
        """What the last driver was started with, as it is on record now."""

    def started(self, spec: Spec) -> None:
        """Write what the next one is started with."""

    def close_to_others(self) -> None:
        """Leave the records to the users of this topology and of the control plane, if there are users."""


@dataclass(slots=True)
class Drain:
    """The drain of one topology's driver."""

    book: Book
    events: Events
    clock: Callable[[], float] = time.monotonic
    _asked: str = ""
    _tries: int = 0
    """How often the former spec was started so that it may drain."""
    _since: float | None = None
    """When the present wait began."""

    def changes_queries(self, resource: StreamTopology) -> bool:
        """Whether queries come or go with this spec."""
        return other_graph(self.book.started_with, resource)

    def last_started(self) -> tuple[StreamTopology, str] | None:
        """What the last driver was started with, and its image; None where there was none, or nobody can tell now."""
        with suppress(CoordinationError, SpecError):
            if (former := self.book.former()) is not None:
                return from_json(former.document), former.image
        return None

    def look(self, resource: StreamTopology, seen: Observation, pod: PodView, reported: bool) -> str:
        """One step towards the end of the driver in `pod`, which has `reported` or not; what is waited for."""
        if self._since is None:
            self._since = self.clock()
        progress, queries = seen.progress, self.changes_queries(resource)
        if (
            queries
            and progress is not None
            and progress.driver != self._asked
            and (few := self._few(resource, seen))
        ):
            return few
        if reported and progress is not None and progress.driver != self._asked:
            try:
                self.book.ask_to_drain(progress.driver)
            except CoordinationError as error:
                return f"{_CHANGED}: the driver cannot be asked to drain: {error}"
            self._asked, self._since = progress.driver, self.clock()
            self.events.say(
                EventReason.DRAIN_ASKED,
                f"{_CHANGED}: the driver stops at a checkpoint, then a new one goes on{_with(queries)}",
            )
        why, stands = _waits_for(seen, pod, reported, SKIPPING if queries else WAY_OUT)
        if self.clock() - self._since > PATIENCE_S or self._tries > 1:
            why = why if queries or WAY_OUT in why or not seen.connected else f"{why}; {WAY_OUT}"
            self.events.say(
                EventReason.DRAIN_WAITS, f"{_CHANGED} and is not in effect yet: {why}", warning=True
            )
        drains = "drains" if reported else "is to drain"
        return f"{_CHANGED}, and the driver {drains}: {why}{stands}"

    def to_start(
        self, resource: StreamTopology, settings: OperatorSettings
    ) -> tuple[StreamTopology, OperatorSettings]:
        """What the next driver is started with, and on record as such: what is wanted, or, while the stream is not drained
        and that would make shown batches differently, what there was.  Raises CoordinationError."""
        self._since = None
        former = self.book.former()
        queries = self.changes_queries(resource)
        if former is not None and (resource.upgrade == "drain" or queries):
            with suppress(SpecError):  # what cannot be read any more cannot be started
                before = from_json(former.document)
                same = revision_of(before, former.image) == revision_of(resource, _image(resource, settings))
                if not same and (why := self._goes_on(queries)):
                    self._tries += 1
                    self.events.say(
                        EventReason.FORMER_SPEC_STARTED, f"{why}: the former spec goes on until then"
                    )
                    return before, replace(settings, image=former.image)
        self.book.close_to_others()  # not for a former driver, which may be another user, or none
        wanted = Spec(resource.document, _image(resource, settings))
        if wanted != former:
            which = self._which(resource) if queries else ""
            self.book.started(wanted)
            if which:
                self.events.say(EventReason.QUERIES_CHANGED, which)
        self._tries = 0
        return resource, settings

    def _goes_on(self, queries: bool) -> str:
        """Why the former spec does; empty where it need not.  `queries`: whether some come or go.

        By what is on record now: a report that is some seconds old may be of the driver before the one that has just ended.
        What is wrong here would be refused by the store, but only after the former spec is off the record."""
        now = self.book.observe()
        if not now.connected:
            raise SessionError("ZooKeeper does not answer, so it is not known whether the stream is drained")
        if not nothing_released(now):
            return (
                f"the driver ended before it had drained{'' if queries else f' (where it cannot, {WAY_OUT})'}"
            )
        if queries and now.incident is not None:
            return "nodes were lost before the stream had drained, and queries come or go when the incident is closed"
        return ""

    def _which(self, resource: StreamTopology) -> str:
        """Say which queries come and go; before the other spec is on record."""
        before = self.book.started_with
        assert before is not None
        old, new = graph_of(before).operators, graph_of(resource).operators
        begin = [f"{name} begins" for name in new if name not in old]
        end = [f"{name} ends" for name in old if name not in new]
        return f"at the checkpoint where the stream has drained: {', '.join((*begin, *end))}"

    def _few(self, resource: StreamTopology, seen: Observation) -> str:
        """Why the driver is not asked yet: a topology begins with all of its nodes, and executors are started anew."""
        before = self.book.started_with
        wanted = min(resource.nodes.count, before.nodes.count if before is not None else resource.nodes.count)
        there = sum(node.leaving is None for node in seen.nodes.values())
        if there >= wanted:
            return ""
        return (
            f"{_CHANGED}: queries come or go when all nodes are there, as a topology begins with all of them; "
            f"{there} of {wanted} are"
        )


def nothing_released(seen: Observation) -> bool:
    """Whether no batch was released since the stream was drained, or ever.  A report that cannot be read is one."""
    never = seen.progress is None and not seen.report
    return seen.connected and (never or (seen.progress is not None and seen.progress.drained is not None))


def _image(resource: StreamTopology, settings: OperatorSettings) -> str:
    return resource.kubernetes.image or settings.image


def _with(queries: bool) -> str:
    return " with the changed queries" if queries else ""


def _waits_for(seen: Observation, pod: PodView, reported: bool, way_out: str) -> tuple[str, str]:
    """What the drain waits for, and how far it is.  `way_out`: what a person can do where a partition is set aside."""
    progress, desired = seen.progress, seen.desired
    if pod.phase == "Pending":
        return f"its pod is Pending{pod.reason and f' ({pod.reason})'}, and no other driver can drain", ""
    if progress is None or not reported:
        return "it has not reported yet, and is asked when it reports", ""
    if progress.drained is not None:
        return "it has drained, and ends", ""
    if held_up := _held_up(progress, desired, seen.connected, way_out):
        return held_up, ""
    return "the last checkpoint", f" ({progress.checkpoint} of batch {progress.horizon})"


def _held_up(progress: Progress, desired: Desired | None, connected: bool, way_out: str) -> str:
    """Why no checkpoint can be complete; empty where nothing is known to prevent one."""
    aside = sorted(progress.poisoned)
    if aside:
        return f"no checkpoint can be complete while {', '.join(aside[:3])} is set aside; {way_out}"
    if desired is not None and desired.paused:
        return "a paused topology takes no checkpoint; it drains when it is resumed"
    return "" if connected else "ZooKeeper does not answer"
