"""A run goes on with other queries: its stream drains, and driver and coordinator are started anew with the other topology.

The nodes, the records of incidents and plans, and the place of output and checkpoints stay.  What is asked for stands in
`commands/topology`, so whoever has asked may go away; a driver that dies before it has drained is followed by one with the
former topology, which is asked again.  Invariants: the former topology stands in the run's folder until its stream is
drained; and what is on record of its partitions is gone before the first process reads the other one, so none decides on
records of another graph.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reprise.controller.local.report.layout import Layout, write_atomically
from reprise.controller.local.run.services import Service
from reprise.controller.status.actions import QUERIES_CHANGE, QUERIES_CHANGED, QUERIES_REFUSED
from reprise.controller.zookeeper import paths
from reprise.controller.zookeeper.errors import ClientError, NoNodeError, RecordError
from reprise.controller.zookeeper.observation import Observation
from reprise.controller.zookeeper.process_records import encode_drain
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.controller.zookeeper.topology_wish import TopologyWish, parse_topology_wish
from reprise.controller.zookeeper.znode import unpack
from reprise.spark_jobs.errors import CheckpointError, SpecError
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.topology import StreamTopology, from_json, to_json
from reprise.spark_jobs.topology.changes import require_queries_alone

log = logging.getLogger("reprise.run")
STOP_S = 10.0
ENDS_S = 60.0
"""A driver that has drained ends by itself; one that does not for so long is ended."""
CLOSES_S = 5.0
"""An incident ends with the checkpoint at which the stream drains, a look of the coordinator later."""
LOST = "nodes were lost when the stream had drained: the former queries go on; ask again when all are back"


@dataclass(slots=True)
class Change:
    """One change, from the wish to the first batch of the other topology."""

    wish: TopologyWish
    wanted: StreamTopology
    asked: float
    """Unix seconds, as all times here."""
    drained: float | None = None
    position: int | None = None
    """The batch behind which the stream has drained."""


@dataclass(slots=True)
class QueryChanges:
    """The changes of one run.  `session`: with the rights of the control plane; `say` writes an action into the run's
    record."""

    session: ZooKeeperSession
    root: str
    layout: Layout
    services: Mapping[str, Service]
    say: Callable[[dict[str, Any]], None]
    wall: Callable[[], float]
    _change: Change | None = None
    _told: str = ""
    """The driver that was asked to drain."""
    _past: str = ""
    """The last driver that has drained: what is on record of it says nothing of its successor."""
    _since: Change | None = None
    """Carried out; no batch behind its position was seen yet."""

    @property
    def under_way(self) -> bool:
        """Whether a driver that has ended, and has drained, is to be left alone."""
        return self._change is not None and self._change.drained is not None

    def look(self, resource: StreamTopology, seen: Observation) -> StreamTopology | None:
        """Do what comes next; the topology that runs from now on, where it is another."""
        if not (seen.connected and self.session.connected):
            return None
        try:
            self._note_first_batch(seen)
            if not self.under_way:
                self._take(resource, seen)
                self._drain(seen)
            return self._go_on(self._change, seen) if self._change is not None and self.under_way else None
        except ClientError as error:  # away: asked again with the next look
            log.warning("event=queries-change-waits reason=%r", error)
            return None

    def _drain(self, seen: Observation) -> None:
        """Ask the driver to drain, until one has."""
        if self._change is None or (progress := seen.progress) is None or progress.driver == self._past:
            return
        if progress.drained is None:
            self._ask(progress.driver)
        else:
            self._past = progress.driver
            self._claim(self._change, progress.drained)

    def _go_on(self, change: Change, seen: Observation) -> StreamTopology | None:
        """Carry it out, once the driver has ended, which it does by itself.  Where nodes were lost meanwhile, nobody but a
        driver of the former topology brings back what was on them."""
        assert change.drained is not None
        if self.services["driver"].alive:
            if self.wall() - change.drained < ENDS_S:
                return None
            self.services[
                "driver"
            ].crash()  # the store says that the stream has drained, before the driver does
        if seen.incident is not None:
            if self.wall() - change.drained > CLOSES_S:
                self._give_up(change, LOST)
            return None
        coordinator = self.services["coordinator"]
        coordinator.stop(STOP_S)
        if reason := self._hindrance(change, seen):
            coordinator.start()
            self._give_up(change, reason)
            return None
        self._begin_anew(change)
        return change.wanted

    def _hindrance(self, change: Change, seen: Observation) -> str:
        """Why it cannot be carried out after all, else what was on record of the former partitions is gone."""
        assert change.position is not None
        try:
            if self.session.exists(f"{self.root}/{paths.INCIDENT}") is not None:
                return LOST
            if few := _few_nodes(change.wanted, seen):
                return few
            CheckpointStore(self.layout.location, change.wanted.checkpoint.standby).verify(change.position)
            for name in paths.OF_A_GRAPH:
                self._remove(f"{self.root}/{name}")
        except (ClientError, CheckpointError) as error:
            return f"{type(error).__name__}: {error}"
        return ""

    def _give_up(self, change: Change, reason: str) -> None:
        """The former topology goes on; its driver, which has ended, is started again as one that died."""
        self._change, self._told = None, ""
        self.say({"time": self.wall(), "action": QUERIES_REFUSED, "wish": change.wish.id, "reason": reason})

    def _take(self, resource: StreamTopology, seen: Observation) -> None:
        """The wish that stands on record, where it is one that can be carried out; another is refused, and removed."""
        if self._change is not None or self._since is not None:
            return
        path = f"{self.root}/{paths.TOPOLOGY}"
        try:
            raw = self.session.get(path)[0]
        except NoNodeError:
            return
        id_ = ""
        try:
            wish = parse_topology_wish(unpack(raw), path)
            id_ = wish.id
            wanted = from_json(wish.document)
            change = require_queries_alone(resource, wanted)
            refused = _few_nodes(wanted, seen)
        except (RecordError, SpecError, ValueError) as error:
            refused = str(error)
        if refused:
            self.say({"time": self.wall(), "action": QUERIES_REFUSED, "wish": id_, "reason": refused})
            self._remove(path)
            return
        self._change = Change(wish, wanted, self.wall())
        self.say(
            {
                "time": self.wall(),
                "action": QUERIES_CHANGE,
                "wish": wish.id,
                "added": list(change.added),
                "removed": list(change.removed),
            }
        )

    def _claim(self, change: Change, position: int) -> None:
        """Whoever has asked cannot take it back from now on; where that was done before, the former topology goes on."""
        try:
            self.session.delete_async(f"{self.root}/{paths.TOPOLOGY}").get()
        except NoNodeError:
            self._give_up(change, "taken back")
            return
        change.drained, change.position = self.wall(), position

    def _ask(self, driver: str) -> None:
        """Have the driver of this life drain; one that comes after it is asked as well."""
        if driver == self._told:
            return
        data = encode_drain(driver)
        try:
            self.session.set(f"{self.root}/{paths.DRAIN}", data)
        except NoNodeError:
            self.session.create_below(self.root, paths.DRAIN, data)
        self._told = driver

    def _begin_anew(self, change: Change) -> None:
        """Driver and coordinator have ended, and begin anew with the other topology."""
        self.services["driver"].stop(STOP_S)
        write_atomically(self.layout.topology, to_json(change.wanted))
        for service in self.services.values():
            service.start()
        self._change, self._since, self._told = None, change, ""

    def _remove(self, path: str) -> None:
        try:
            self.session.delete(path, recursive=True)
        except NoNodeError:
            return

    def _note_first_batch(self, seen: Observation) -> None:
        """Say once how long the queries have stood still."""
        change, progress = self._since, seen.progress
        if change is None or progress is None or progress.drained is not None:
            return
        assert change.drained is not None
        assert change.position is not None
        if not progress.done and not any(p > change.position for p in progress.positions.values()):
            return
        now = self.wall()
        self._since = None
        self.say(
            {
                "time": now,
                "action": QUERIES_CHANGED,
                "wish": change.wish.id,
                "position": change.position,
                "drain_s": round(change.drained - change.asked, 3),
                "paused_s": round(now - change.drained, 3),
            }
        )


def _few_nodes(wanted: StreamTopology, seen: Observation) -> str:
    """Why it would not begin: a topology begins when as many nodes are there as it wants.  Empty: they are."""
    there = sum(node.leaving is None for node in seen.nodes.values())
    if there >= wanted.nodes.count:
        return ""
    return (
        f"{there} of {wanted.nodes.count} nodes are there, and a topology begins with all of them: the former queries go "
        "on; ask again when more have come"
    )
