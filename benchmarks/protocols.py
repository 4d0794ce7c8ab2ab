"""Checkpointing protocols on NexMark queries and the cyclic one, all hosts in one process: what messages carry for them,
and which snapshots they leave that are worth nothing.

    python -m benchmarks.protocols --out DIR [--workers 10 50] [--rows 1 100] [--batches 21] [--counts 10 ...]
        [--queries q1 q3 q8 q12 reach]

Each worker is a node with one partition of each operator, as Siachamis et al., "CheckMate: Evaluating Checkpointing
Protocols for Streaming Dataflows", section VII-A, have them.  A batch is half a second, and a snapshot is taken every ten.

- Overhead (Table II): bytes of messages between nodes, orders and reports over those of the same batches without
  checkpoints.  `--rows`: rows of a message, on average.
- Counts (Tables III and IV) with `--counts` workers, 120 batches, a node lost after batch 36: snapshots stored, of them
  forced; skipped: those newer than the line without orphans (rule V1) of a total failure at that moment, as CheckMate
  counts them; useless: those that are in no line without orphans.  Everything is logged for both, and a partition that
  stores nothing can begin at any batch.

Bytes are counted where Spark's shuffle would begin to carry them.  The exit code is 0 also when the expected was not seen:
this is no test.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.table import Table

from benchmarks import command
from benchmarks.checkpoints import logged_everywhere, useless
from reprise.algorithms.recovery_line import Impossible, line
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine import local_lines
from reprise.spark_jobs.engine.local_lines import LocalLines
from reprise.spark_jobs.node.command import Ack
from reprise.spark_jobs.topology import StreamTopology, load_text, override
from tools.testbed.local_engine import LocalNodes, World

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FILES = {
    "q1": "nexmark-q1.yaml",
    "q3": "nexmark-q3.yaml",
    "q8": "nexmark-q8.yaml",
    "q12": "nexmark-q12.yaml",
    "reach": "reachability.yaml",
}
PROTOCOLS: Mapping[str, Mapping[str, object]] = {
    "none": {"checkpoint.everyBatches": 1_000_000},
    "coordinated": {},
    "uncoordinated": {"checkpoint.protocol": "uncoordinated", "checkpoint.log": "checkpointed"},
    "communication-induced": {
        "checkpoint.protocol": "communication-induced",
        "checkpoint.log": "checkpointed",
    },
}
EVERY = 10
AHEAD = 3
"""Batches that may be under way at once: else all of them go in one job."""
BEGIN = 3
"""The batch behind which bytes are counted: orders before it say how everything begins."""
LOST_AT, LAST = 36, 120
PUBLISHED = {
    ("q1", 10): 2.10, ("q3", 10): 1.82, ("q8", 10): 1.74, ("q12", 10): 1.79,
    ("q1", 50): 2.53, ("q3", 50): 2.58, ("q8", 50): 2.49, ("q12", 50): 2.58,
}  # fmt: skip
"""CheckMate, Table II: communication-induced, by query and workers."""
PUBLISHED_OTHERS = {"none": "1.00", "coordinated": "1.00", "uncoordinated": "1.00 to 1.01"}
"""The same for the others, with all queries and workers."""
PUBLISHED_COUNTS: Mapping[str, Mapping[tuple[str, int], str]] = {
    "uncoordinated": {
        ("q1", 10): "303 (0)", ("q3", 10): "455 (4)", ("q8", 10): "384 (2)", ("q12", 10): "282 (3)",
        ("q1", 50): "1437", ("q3", 50): "2399 (3)", ("q8", 50): "1924 (2)", ("q12", 50): "1446 (3)",
        ("reach", 5): "(1.4 %)", ("reach", 10): "(1.4 %)",
    },
    "communication-induced": {
        ("q1", 10): "285 (0)", ("q3", 10): "471 (3)", ("q8", 10): "386 (3)", ("q12", 10): "282 (4)",
        ("q1", 50): "1428", ("q3", 50): "2517 (4)", ("q8", 50): "1920 (3)", ("q12", 50): "1451 (3)",
        ("reach", 5): "(1.7 %)", ("reach", 10): "(1.6 %)",
    },
    "coordinated": {
        ("q1", 10): "240", ("q3", 10): "400", ("q8", 10): "360", ("q12", 10): "240",
        ("q1", 50): "1200", ("q3", 50): "2000", ("q8", 50): "1800", ("q12", 50): "1200",
    },
}  # fmt: skip
"""CheckMate, Tables III and IV, by protocol, query and workers: snapshots in all, and in brackets what it calls invalid, and
what is called skipped here."""


class CountingNodes(LocalNodes):
    """Nodes that say how much went to and from their hosts."""

    carried = 0

    def start(self, *nodes: str) -> None:
        super().start(*nodes)
        for node in nodes:
            self._counted(node)

    def _counted(self, node: str) -> None:
        host = self.hosts[node]
        stage, read = host.stage, host.orders.read

        def counted_stage(*arguments: object) -> object:
            bundles, report = stage(*arguments)  # type: ignore[arg-type]
            self.carried += sum(len(bundle) for _, bundle in bundles)
            self.carried += 0 if report is None else len(report.encode())
            return bundles, report

        def counted_read(data: bytes) -> object:
            self.carried += len(data)
            return read(data)

        host.stage = counted_stage  # type: ignore[assignment,method-assign]
        host.orders.read = counted_read  # type: ignore[assignment,method-assign]


@dataclass(frozen=True, slots=True)
class Overhead:
    """Bytes of all batches that were counted."""

    query: str
    workers: int
    rows: int
    protocol: str
    carried: int
    headers: int
    ratio: float
    """To the run without checkpoints."""


@dataclass(frozen=True, slots=True)
class Counts:
    query: str
    workers: int
    protocol: str
    stored: int
    forced: int
    skipped: int
    useless: int


def main(arguments: list[str] | None = None) -> int:
    parser = command.parser("protocols", __doc__, nodes=0, timeout_s=0.0)
    parser.add_argument("--workers", type=int, nargs="*", default=[10, 50])
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 100])
    parser.add_argument("--batches", type=int, default=21, help="that are counted for the overhead")
    parser.add_argument("--queries", nargs="*", choices=list(FILES), default=list(FILES))
    parser.add_argument("--counts", type=int, nargs="*", default=[10], help="workers of the runs that count")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    command.begin(options.out)
    overheads, counts = list[Overhead](), list[Counts]()
    for query in options.queries:
        for workers in options.workers:
            for rows in options.rows if query != "reach" else ():
                overheads += _overheads(query, workers, rows, options.batches)
        for workers in options.counts:
            counts += [_counts(query, workers, name) for name in PROTOCOLS if name != "none"]
        _write(options.out, overheads, counts)
    _show(console, overheads, counts)
    return 0


def resource_of(query: str, workers: int, protocol: str, rows: int) -> StreamTopology:
    """`rows` of a message, where each of `workers` sends to each."""
    text = (EXAMPLES / FILES[query]).read_text()
    text = text.replace("checkpoint: {interval: 5s}", f"checkpoint: {{everyBatches: {EVERY}, keep: 100}}")
    text = re.sub(r"rate: \d+", f"rate: {2 * rows * workers**2}" if query != "reach" else "rate: 400", text)
    changes: dict[str, object] = {"nodes.count": workers, "nodes.cpu": "4"}
    stages = load_text(text).stages
    for number, stage in enumerate(stages):
        kind = "sources" if number < len(load_text(text).sources) else "operators"
        if query != "reach" or kind == "operators":
            changes[f"{kind}[{stage.name}].parallelism"] = workers
    return override(load_text(text), {**changes, **PROTOCOLS[protocol]})


@contextmanager
def _world(resource: StreamTopology, workers: int) -> Iterator[tuple[World, CountingNodes]]:
    """One partition of each operator on each node."""
    with tempfile.TemporaryDirectory() as folder, patch.object(engine_module, "WINDOW", AHEAD):
        world = World(resource, Path(folder), "w")
        nodes = world.nodes = CountingNodes(world.checkpoints)
        names = [f"n{i}" for i in range(workers)]
        nodes.start(*names)
        world.driver()
        world.want(1, 0, {p: names[int(p.rpartition(".")[2])] for p in world.topology.order})
        try:
            yield world, nodes
        finally:
            for host in nodes.hosts.values():
                host.close(wait=False)


def _reaches(world: World, batch: int) -> None:
    world.run(lambda e: min(e.positions.values(), default=0) >= batch)


def _overheads(query: str, workers: int, rows: int, batches: int) -> list[Overhead]:
    found: list[Overhead] = []
    for protocol in PROTOCOLS:
        with _world(resource_of(query, workers, protocol, rows), workers) as (world, nodes):
            _reaches(world, BEGIN)
            before, headers = nodes.carried, world.engine.figures.header_bytes
            _reaches(world, BEGIN + batches)
            carried, headers = nodes.carried - before, world.engine.figures.header_bytes - headers
        base = found[0].carried if found else carried
        found.append(Overhead(query, workers, rows, protocol, carried, headers, round(carried / base, 2)))
    return found


def _counts(query: str, workers: int, protocol: str) -> Counts:
    known: defaultdict[str, set[int]] = defaultdict(lambda: {0})
    forced, stored = 0, 0
    acknowledge = LocalLines.acknowledge

    def noted(self: LocalLines, ack: Ack) -> None:
        nonlocal forced, stored
        known[ack.partition].add(ack.position)
        forced, stored = forced + ack.forced, stored + 1
        acknowledge(self, ack)

    with (
        patch.object(LocalLines, "acknowledge", noted),
        patch.object(local_lines, "RECORD_S", 0.0),
        patch.object(local_lines, "SHARE", 0),
        _world(resource_of(query, workers, protocol, 10), workers) as (world, nodes),
    ):
        _reaches(world, LOST_AT)
        skipped = _skipped({p: sorted(at) for p, at in known.items()}, world)
        nodes.lose("n1")
        world.engine.tick(nodes.living(), threading.Event())
        nodes.start("new")
        again = {p: "new" if n == "n1" else n for p, n in world.engine.desired.assignment.items()}
        world.want(1, world.engine.punctuations.newest, again, retain=True)
        _reaches(world, LAST)
        world.run(lambda e: e.done)
        worth_nothing = useless({p: sorted(at) for p, at in known.items()}, world.topology)
    return Counts(query, workers, protocol, stored, forced, skipped, worth_nothing)


def _skipped(known: Mapping[str, list[int]], world: World) -> int:
    """Snapshots that a total failure would pass over now."""
    found = line(logged_everywhere(known, world.topology), set(world.topology.partitions))
    if isinstance(found, Impossible):
        return sum(len(at) - 1 for at in known.values())
    return sum(k > found[p].position for p, at in known.items() for k in at)


def _write(out: Path, overheads: list[Overhead], counts: list[Counts]) -> None:
    found = {"overhead": [asdict(o) for o in overheads], "counts": [asdict(c) for c in counts]}
    (out / "protocols.json").write_text(json.dumps(found, indent=1) + "\n")


def _show(console: Console, overheads: list[Overhead], counts: list[Counts]) -> None:
    table = Table("query", "workers", "rows", "protocol", "bytes", "of them headers", "ratio", "CheckMate")
    for one in overheads:
        peer = PUBLISHED_OTHERS.get(one.protocol, PUBLISHED.get((one.query, one.workers)))
        values = (one.query, one.workers, one.rows, one.protocol, one.carried, one.headers, one.ratio, peer)
        table.add_row(*("-" if value is None else str(value) for value in values))
    console.print(table)
    table = Table("query", "workers", "protocol", "stored", "forced", "skipped", "useless", "CheckMate")
    for count in counts:
        published = PUBLISHED_COUNTS[count.protocol].get((count.query, count.workers), "-")
        table.add_row(*map(str, asdict(count).values()), published)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
