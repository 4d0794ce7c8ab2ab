"""A partition host with nothing around it: commands made by hand, with a source, operators and a sink that follow a script.

`in` reads numbers, `mid` passes them on, `out` shows them.  `Script.raises` says who raises what in which call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from reprise.spark_jobs.contract import Inbox, Operator, Place, Range, Source, Tables
from reprise.spark_jobs.node.command import Command, Install, Report
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.sinks import Opening, Sink
from reprise.spark_jobs.topology import expand, load_text
from tools.testbed.prepared import let_all_come

TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: scripted, namespace: tests}
spec:
  batch: {interval: 100ms}
  sources: [{name: in, class: "tests.support.scripted:Numbers"}]
  operators:
    - {name: mid, class: "tests.support.scripted:Passing", inputs: [{from: in}]}
    - {name: out, class: "tests.support.scripted:Passing", inputs: [{from: mid}],
       output: {sink: {class: "tests.support.scripted:Shown"}}}
  checkpoint: {everyBatches: 5}
  recovery: {bufferMemory: 64Ki}
  nodes: {count: 1}
"""
ROWS = 10
"""Of each batch."""


class Script:
    """What happens, by (partition, call); `noted`: every call with its batch or position."""

    raises: ClassVar[dict[tuple[str, str], BaseException]] = {}
    noted: ClassVar[list[tuple[str, str, int]]] = []
    notices: ClassVar[list[str]] = []
    opened: ClassVar[list[Opening]] = []
    late: ClassVar[bool] = False
    """Sinks show a batch only when they are told to settle."""
    trouble: ClassVar[str | None] = None
    """What a sink says is in the way when it is told to settle."""

    @classmethod
    def clear(cls) -> None:
        cls.raises, cls.noted, cls.notices, cls.opened = {}, [], [], []
        cls.late, cls.trouble = False, None

    @classmethod
    def call(cls, partition: str, name: str, batch: int = 0) -> None:
        cls.noted.append((partition, name, batch))
        if (partition, name) in cls.raises:
            raise cls.raises[partition, name]

    @classmethod
    def batches(cls, partition: str, name: str) -> list[int]:
        """Of all calls of one name."""
        return [batch for p, n, batch in cls.noted if (p, n) == (partition, name)]


class Numbers(Source):
    """The row is the offset."""

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        return start + ROWS

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        Script.call(place.partition, "read", batch)
        return pa.table({"n": list(range(span.start, span.end))})

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return batch

    def notices(self) -> list[str]:
        found, Script.notices = Script.notices, []
        return found

    def close(self) -> None:
        Script.call("in.0", "close")


class Passing(Operator):
    """Its state is its partition and the last batch."""

    def initial(self, place: Place) -> Any:
        Script.call(place.partition, "initial")
        return place.partition, 0

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        Script.call(state[0], "step", inbox.batch)
        return (state[0], inbox.batch), inbox.table()

    def freeze(self, state: Any) -> Callable[[], Tables]:
        Script.call(state[0], "freeze", state[1])
        return lambda: {"last": pa.table({"last": [state[1]]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        Script.call(place.partition, "restore")
        return place.partition, tables["last"]["last"][0].as_py()

    def counters(self, state: Any) -> dict[str, int]:
        Script.call(state[0], "counters")
        return {"last": state[1]}


class Shown(Sink):
    """Shows a batch at once, at a time that is its number."""

    partition = ""

    def __init__(self) -> None:
        self.taken, self.told = 0, 0

    def open(self, opening: Opening) -> None:
        self.partition = opening.place.partition
        Script.opened.append(opening)
        Script.call(self.partition, "open", opening.position)
        self.visible = self.taken = self.told = opening.position

    def write(self, batch: int, table: pa.Table | None) -> None:
        Script.call(self.partition, "write", batch)
        self.taken = batch
        if not Script.late:
            self.visible = batch

    def settle(self, patience_s: float) -> str | None:
        Script.call(self.partition, "settle")
        if Script.trouble is None:
            self.visible = self.taken
        return Script.trouble

    def shown(self) -> list[tuple[int, float]]:
        first, self.told = self.told + 1, self.visible
        return [(batch, float(batch)) for batch in range(first, self.visible + 1)]

    def close(self) -> None:
        Script.call(self.partition, "close")


@dataclass
class Bench:
    """One host, which has partition `i` of the topology under the installation `1.1.<i>`."""

    folder: Path
    text: str = TEXT
    jobs: int = 0
    now: float = 100.0
    host: Host = field(init=False)

    def __post_init__(self) -> None:
        Script.clear()
        self.resource = load_text(self.text)
        self.topology = expand(self.resource)
        self.checkpoints = self.folder / "checkpoints"
        self.checkpoints.mkdir()
        self.host = Host("host-1", self.folder / "executor" / "spill", lambda: self.now)

    def command(self, **changes: Any) -> Command:
        """Everything here at the beginning of the stream, with four batches to read; the next job."""
        self.jobs += 1
        order = self.topology.order
        fields: dict[str, Any] = {
            "job": self.jobs,
            "epoch": 1,
            "slot": 0,
            "topology": self.resource.document,
            "sink": str(self.folder / "sink"),
            "checkpoints": str(self.checkpoints),
            "hosted": {p: f"1.1.{i}" for i, p in enumerate(order)},
            "installs": {p: Install(0) for p in order},
            "routes": dict.fromkeys(order, 0),
            "positions": dict.fromkeys(order, 0),
            "ranges": {p: spans(1, 4) for p in order if p.startswith("in.")},
            "horizon": 4,
            "keeps": self.resource.keeps_output,
            "stream": 7.5,
        }
        return Command(**{**fields, **changes})

    def begin(self, **changes: Any) -> Command:
        """Begin a job."""
        command = self.command(**changes)
        self.host.begin(command)
        let_all_come(self.host)
        return command

    def run(self, **changes: Any) -> Report:
        """A job of one stage."""
        command = self.begin(**changes)
        _, report = self.host.stage(command.order, 0, [], True)
        assert report is not None
        return report

    def without(self, *partitions: str) -> dict[str, Any]:
        """Changes of a command for a host that does not have these, which are at work nowhere."""
        here = [p for p in self.topology.order if p not in partitions]
        everything = self.command()
        self.jobs -= 1
        return {
            "hosted": {p: everything.hosted[p] for p in here},
            "routes": dict.fromkeys(here, 0),
            "positions": dict.fromkeys(here, 0),
        }

    def sent(self, command: Command) -> Iterable[tuple[int, bytes]]:
        """What goes out after the first stage of a job that has begun."""
        return self.host.stage(command.order, 0, [], False)[0]


def spans(first: int, last: int) -> dict[int, Range]:
    """The ranges of some batches."""
    return {b: Range((b - 1) * ROWS, b * ROWS) for b in range(first, last + 1)}
