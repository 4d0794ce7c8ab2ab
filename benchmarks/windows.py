"""States stored slot by slot: what a recovery has to read and replay, what the log costs, and pages and whole states beside.

    python -m benchmarks.windows [--ids 20000] [--what targets periods sizes ways gather] [--output text|json]

In one process, without Spark.  The query of Sebepou and Magoutis ("CEC: Continuous Eventual Checkpointing for Data Stream
Processing Operators", section IV): the average price of each ten rows of an item, items drawn evenly.  They have 100,000
items, about 90,000 open windows, and a row a tuple; targets are scaled here by the number of ids.  `targets`: their figures
6 and 7; `periods`: 9; `sizes`: 5.  `ways`: one state of a `KeyedAggregate` by whole snapshots, by pages and by a log.
`gather`: how long a partition stands still when all of its slots are stored at once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.contract import Inbox
from reprise.spark_jobs.node.partition_log import Pace, PartitionLog, Sealed, eventual_checkpoint
from reprise.spark_jobs.operators import CountWindow, KeyedAggregate, KeyedCount, TumblingWindow
from reprise.spark_jobs.operators.slotted import Slotted, unseen
from reprise.spark_jobs.operators.testing import PLACE, inbox
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.footprints import Targets
from reprise.spark_jobs.state.snapshot import StateFile

IDS = 100_000
"""Theirs."""
BATCH = 2_000
SEALED_EVERY = 10
"""Batches in a segment, or between two snapshots."""
WITHOUT = Targets(10**9, 10**12)
EXTENTS = {1: "3.5", 2: "5", 4: "14", 8: "27"}
"""Q in open windows -> seconds of EC-load, figure 6."""
REPLAYS = {125_000: "2.5", 250_000: "-", 500_000: "-", 1_000_000: "6.7"}
"""U in rows -> seconds of EC-load, figure 7."""
PERIODS_MS = (250, 100, 50, 25)
"""Between two turns of storing again (figure 9)."""
OPEN = 0.9
"""Open windows an item, on average (section IV)."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """What a crash at the end would cost.  Seconds, megabytes."""

    extent: int
    read_mb: float
    load_s: float
    replay_rows: int
    replay_s: float


@dataclass(frozen=True, slots=True)
class Cost:
    """What the log costs beside steps; `ratio`: rows a second with it over those without."""

    name: str
    open_slots: int
    rows_per_s: float
    ratio: float
    checks: int
    recovery: Recovery | None


@dataclass(frozen=True, slots=True)
class Way:
    """One way to store a state.  `written_mb`: of one snapshot, mean; `pause_ms`: the greatest in which no batch is applied
    because of it; `restore_s`: until the state is as before the crash."""

    share: float
    way: str
    written_mb: float
    pause_ms: float
    restore_s: float


class Run:
    """An operator at work with a log, whose segments are stored at once; what is read and written is files."""

    def __init__(self, operator: Slotted, targets: Targets | None, pace: Pace, folder: Path) -> None:
        self.operator, self.state = operator, operator.initial(PLACE)
        self.log = None if targets is None else PartitionLog(operator, targets, pace)
        self.store = CheckpointStore(str(folder))
        self.batches: list[Inbox] = []
        self.last: tuple[Sealed, StateFile] | None = None
        self.pauses: list[float] = []
        self.written = 0
        self.spent = 0.0
        """Seconds of CPU in which batches were applied, with what is added to the log."""

    def apply(self, table: pa.Table) -> None:
        one = inbox(len(self.batches) + 1, table)
        self.batches.append(one)
        began = time.thread_time()
        self.state, _ = self.operator.step(self.state, one)
        if self.log is not None:
            self.log.applied(one.batch, table.num_rows, self.state, None)
        self.spent += time.thread_time() - began
        if self.log is not None and one.batch % SEALED_EVERY == 0:
            self._seal(one.batch)

    def _seal(self, batch: int) -> None:
        assert self.log is not None
        began = time.perf_counter()
        self.log.sealed_upto(False)
        sealed = self.log.seal(batch, self.state, None, (), {})
        self.pauses.append(time.perf_counter() - began)
        segment = sealed.encode()
        file = self.store.write_segment(
            batch, "o.0", "h.1", segment.data, segment.others, segment.others_bytes
        )
        sealed.is_stored(file)
        self.last, self.written = (sealed, file), self.written + file.size

    def recovered(self) -> Recovery:
        """Lose the state and bring it back; AssertionError where it is another one."""
        assert self.last is not None
        sealed, file = self.last
        began = time.perf_counter()
        found = eventual_checkpoint(self.store.read_segments(file), sealed.batch)
        state = self.operator.load(PLACE, found.slots, found.found.end.rest)
        loaded = time.perf_counter()
        again = self.batches[found.found.since : sealed.batch]
        for one in again:
            state, _ = self.operator.step(state, unseen(self.operator, one, found.found.seen))
        ended = time.perf_counter()
        for one in self.batches[sealed.batch :]:
            state, _ = self.operator.step(state, one)
        assert len(self.operator.open_slots(state)) == len(self.operator.open_slots(self.state))
        rows = sum(i.table.num_rows for one in again for i in one.inputs)
        return Recovery(found.found.extent, file.state_bytes / 2**20, loaded - began, rows, ended - loaded)


def drawn(dice: np.random.Generator, ids: int) -> pa.Table:
    return pa.table({"item": dice.integers(0, ids, BATCH), "price": dice.random(BATCH)})


def average(size: int) -> CountWindow:
    return CountWindow(size=size, keys=["item"], aggregate={"price": "mean(price)"})


def costs(
    runs: Mapping[str, tuple[Targets | None, Pace]], ids: int, size: int, rows: int, folder: Path
) -> Iterator[Cost]:
    """Each run over the same rows; the first one is what the others are compared with."""
    base = None
    for number, (name, (targets, pace)) in enumerate(runs.items()):
        run, dice = Run(average(size), targets, pace, folder / f"{name}-{number}"), np.random.default_rng(1)
        for _ in range(max(3 * SEALED_EVERY, rows // BATCH)):
            run.apply(drawn(dice, ids))
        speed = len(run.batches) * BATCH / run.spent
        base = speed if base is None else base
        checks = 0 if run.log is None else run.log.checks
        open_slots = len(run.operator.open_slots(run.state))
        yield Cost(name, open_slots, speed, speed / base, checks, run.recovered() if run.last else None)


def targets(ids: int, folder: Path) -> Iterator[Cost]:
    """Q with U out of reach, then U with Q out of reach; 5 ms once in 100 ms."""
    pace, scale = Pace(0.005, 0.1), ids / IDS
    runs: dict[str, tuple[Targets | None, Pace]] = {"off": (None, pace)}
    runs |= {f"Q = {q}": (Targets(int(OPEN * ids * q), 10**12), pace) for q in EXTENTS}
    runs |= {f"U = {u:,}": (Targets(10**9, int(u * scale)), pace) for u in REPLAYS}
    return costs(runs, ids, 10, 20 * ids, folder)


def periods(ids: int, folder: Path) -> Iterator[Cost]:
    """Q as many as there are open windows; 10 ms once in each period."""
    runs: dict[str, tuple[Targets | None, Pace]] = {"off": (None, Pace(0.0, 0.0))}
    runs |= {f"{ms} ms": (Targets(int(OPEN * ids), 10**12), Pace(0.01, ms / 1000)) for ms in PERIODS_MS}
    return costs(runs, ids, 10, 20 * ids, folder)


def sizes(folder: Path) -> Iterator[Cost]:
    """Two items, windows of one row and of a thousand: all that closes, and hardly anything."""
    pace: Pace = Pace(0.0, 0.0)
    runs: dict[str, tuple[Targets | None, Pace]]
    for size in (1, 1000):
        runs = {f"{size}: off": (None, pace), f"{size}: log": (WITHOUT, pace)}
        yield from costs(runs, 2, size, 200_000, folder)


def ways(ids: int, folder: Path) -> Iterator[Way]:
    """A state of so many keys, of which a share gets rows; ten snapshots each."""
    make = KeyedAggregate(keys=["item"], aggregate={"n": "count()", "s": "sum(price)", "high": "max(price)"})
    every = pa.table({"item": np.arange(ids), "price": np.ones(ids)})
    for share in (0.01, 1.0):
        dice = np.random.default_rng(4)
        tables = [every, *(drawn(dice, max(1, int(ids * share))) for _ in range(11 * SEALED_EVERY - 1))]
        for way in ("whole", "pages"):
            yield _stored_whole(make, tables, way, share, folder / f"{way}-{share}")
        run = Run(make, Targets(2 * ids, 50 * BATCH), Pace(0.01, 0.1), folder / f"log-{share}")
        for table in tables:
            run.apply(table)
        back, first = run.recovered(), run.pauses.pop(0)
        assert first >= 0
        per_snapshot = run.written / (len(tables) // SEALED_EVERY) / 2**20
        spent = max(*run.pauses, run.log.pace.spend_s if run.log is not None else 0.0)
        yield Way(share, "log", per_snapshot, spent * 1e3, back.load_s + back.replay_s)


def _stored_whole(
    make: KeyedAggregate, tables: Sequence[pa.Table], way: str, share: float, folder: Path
) -> Way:
    state, store = make.initial(PLACE), CheckpointStore(str(folder))
    written, pauses, steps = list[int](), list[float](), list[float]()
    frozen, file = 0.0, None
    for number, table in enumerate(tables, start=1):
        began = time.perf_counter()
        state, _ = make.step(state, inbox(number, table))
        steps.append(time.perf_counter() - began + frozen)
        if frozen:
            pauses.append(steps[-1])
        frozen = 0.0
        if number % SEALED_EVERY:
            continue
        began = time.perf_counter()
        if way == "pages":
            parts = make.freeze_pages(state)
            frozen = time.perf_counter() - began
            file = store.write_pages(store.pages_of(number, "o.0", "h.1", parts()))
        else:
            encode = make.freeze(state)
            frozen = time.perf_counter() - began
            file = store.write_state(number, "o.0", "h.1", encode())
        written.append(file.size)
    assert file is not None
    began = time.perf_counter()
    again = make.restore(PLACE, store.read_state(file))
    for number, table in enumerate(tables[-SEALED_EVERY:], start=1):  # at most an interval is replayed
        again, _ = make.step(again, inbox(number, table))
    took = time.perf_counter() - began
    pause = (max(pauses) - statistics.median(steps)) * 1e3
    return Way(share, way, statistics.mean(written) / 2**20, pause, took)


@dataclass(frozen=True)
class Gathering:
    """How long the host's thread takes to gather all slots of a partition for one snapshot, median."""

    operator: str
    slots: int
    pause_ms: float


def gather(keys: int = 100_000, rounds: int = 5) -> Iterator[Gathering]:
    """Operators with one open slot for each key, or more."""
    counted = {"n": "count()"}
    for operator in (
        CountWindow(size=10, keys=["k"], aggregate=counted),
        KeyedCount(keys=["k"]),
        TumblingWindow(size="1000s", keys=["k"], aggregate=counted),
    ):
        log, state = PartitionLog(operator, Targets(10**9, 10**9), Pace(0.01, 0.25)), operator.initial(PLACE)
        rows = pa.table({"k": [f"item-{n}" for n in range(keys)], "time": pa.array([1] * keys, pa.int64())})
        state, _ = operator.step(state, inbox(1, rows))
        pauses = []
        for _ in range(rounds):
            log.sealed_upto(True)
            began = time.perf_counter()
            log.seal(1, state, None, (), {})
            pauses.append(time.perf_counter() - began)
        yield Gathering(
            type(operator).__name__, len(operator.open_slots(state)), statistics.median(pauses) * 1e3
        )


# -- what is shown -----------------------------------------------------------------------------------------------------


def shown(found: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Tables in Markdown, with the figures of Sebepou and Magoutis beside those that they have."""
    theirs = {f"Q = {q}": said for q, said in EXTENTS.items()} | {f"U = {u:,}": s for u, s in REPLAYS.items()}
    for what in ("targets", "periods", "sizes"):
        if what not in found:
            continue
        yield (
            f"| {what} | open | rows a CPU second, of off | stored again | extent | read, MB | load, s | replayed rows "
            "| replay, s | theirs: load, s |"
        )
        yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
        for one in found[what]:
            back = one.recovery
            behind = (
                "- | - | - | - | -"
                if back is None
                else f"{back.extent:,} | {back.read_mb:.1f} | {back.load_s:.2f} | {back.replay_rows:,} | {back.replay_s:.2f}"
            )
            yield (
                f"| {one.name} | {one.open_slots:,} | {one.ratio:.2f} | {one.checks:,} | {behind} "
                f"| {theirs.get(one.name, '-')} |"
            )
    if "gather" in found:
        yield "| operator | slots | gathered at once, ms |"
        yield "|---|--:|--:|"
        for each in found["gather"]:
            yield f"| {each.operator} | {each.slots:,} | {each.pause_ms:.0f} |"
    if "ways" in found:
        yield "| keys touched | way | a snapshot, MB | greatest pause, ms | until restored, s |"
        yield "|--:|---|--:|--:|--:|"
        for way in found["ways"]:
            yield (
                f"| {way.share:.0%} | {way.way} | {way.written_mb:.2f} | {way.pause_ms:.1f} | {way.restore_s:.2f} |"
            )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.windows", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--ids", type=int, default=20_000)
    every = ("targets", "periods", "sizes", "ways", "gather")
    parser.add_argument("--what", nargs="+", choices=every, default=every)
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    found: dict[str, list[Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        makers = {
            "targets": lambda: targets(options.ids, at / "targets"),
            "periods": lambda: periods(options.ids, at / "periods"),
            "sizes": lambda: sizes(at / "sizes"),
            "ways": lambda: ways(options.ids, at / "ways"),
            "gather": gather,
        }
        for what in options.what:
            found[what] = list(makers[what]())
    if options.output == "json":
        print(json.dumps({what: [asdict(one) for one in each] for what, each in found.items()}, indent=1))
    else:
        print("\n".join(shown(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
