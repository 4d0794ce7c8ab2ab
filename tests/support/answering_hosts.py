"""An engine whose hosts do at once what they are told, and answer what a test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.node.command import Ack, Command, Order, Report
from reprise.spark_jobs.node.orders import Orders
from reprise.spark_jobs.topology import load_text
from tests.support.scripted import TEXT
from tools.testbed.local_engine import World

PLACES = {"in.0": "a#1", "mid.0": "b#1", "out.0": "b#1"}
LIVING = {"a#1": "host-a", "b#1": "host-b"}


@dataclass
class Hosts:
    """Every host does what it is told at once.  `changes`: of the report of each slot; `error`: how the next jobs end."""

    connected: list[tuple[str, ...]] = field(default_factory=list)
    asked: list[tuple[Order, int, float]] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    changes: dict[int, dict[str, Any]] = field(default_factory=dict)
    error: Exception | None = None
    during: Callable[[], None] = lambda: None
    link: int = 0
    why_chained: str = ""
    link_key: str = ""
    stands: bool = True
    ended: str = ""
    closed: int = 0
    _orders: list[Orders] = field(default_factory=list)

    def close(self) -> None:
        self.closed += 1

    def connect(self, hosts: Sequence[str]) -> Hosts:
        self.connected.append(tuple(hosts))
        self._orders = [Orders() for _ in hosts]
        return self

    def run(
        self, job: Order, orders: Sequence[bytes], stages: int, cancelled: threading.Event, patience_s: float
    ) -> list[Report]:
        self.asked.append((job, stages, patience_s))
        self.during()
        if self.error is not None:
            raise self.error
        self.commands = [mine.read(order) for mine, order in zip(self._orders, orders, strict=True)]
        return [self.report(command) for command in self.commands]

    def report(self, command: Command) -> Report:
        positions = dict.fromkeys(command.hosted, command.horizon)
        found = Report(command.slot, f"host-{command.slot}", positions, dict(command.hosted))
        return replace(found, **self.changes.get(command.slot, {}))


class Scene:
    """One driver, with everything placed and the next four batches due in each job."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.world = World(load_text(TEXT), folder, "w")
        self.hosts = Hosts()
        self.engine: Engine = self.world.engine
        self.engine.connect = self.hosts.connect
        self.engine.release.ahead = 4
        self.engine.begin(0)
        self.engine.release.start(self.engine.release.now())
        self.want(**changes)

    def want(self, generation: int = 1, checkpoint: int = 0, **changes: Any) -> None:
        desired = self.engine.desired
        fields = {"assignment": PLACES, "punctuate": True, **changes}
        self.engine.want(
            replace(desired, seq=desired.seq + 1, generation=generation, checkpoint=checkpoint, **fields)
        )

    def tick(self, living: dict[str, str] | None = None, cancelled: bool = False) -> bool:
        event = threading.Event()
        if cancelled:
            event.set()
        return self.engine.tick(LIVING if living is None else living, event)

    def acks(self, position: int) -> None:
        """With the next job all have stored their state there."""
        for slot, mine in enumerate((("in.0",), ("mid.0", "out.0"))):
            found = tuple(Ack(p, self.engine.installation[p], position, file_of(p)) for p in mine)
            self.hosts.changes[slot] = {"acks": found}


def file_of(partition: str) -> dict[str, Any] | None:
    return None if partition == "in.0" else {"path": f"cp/{partition}", "size": 70, "sha256": "x"}
