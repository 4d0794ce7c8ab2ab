"""What a snapshot of a large state holds up, how much it stores, and what a row costs, by the way in which states are kept.

    python -m benchmarks.state [--megabytes 4 16 64] [--what pause bytes row spill] [--output text|json]

In one process, without Spark.  Contestants: `arrays` and `paged`, as `checkpoint.state` has them, and the two ways that
Kwon, Balazinska and Greenberg compare pages with ("Fault-tolerant Stream Processing using a Distributed, Replicated File
System", section 6.1.3): `asynchronous` serialises the state before it goes on, and stores it beside; `synchronous` stores
it before it goes on, too.  Their snapshots of virtual machines are left out.  Beside each figure stands theirs.

`spill`: rows a second of an aggregate whose state may take a quarter of its size in memory, by keys at random and by keys of
which nine of ten rows have the same tenth, over the rows a second of the same state in memory; and the most that was in
memory, by the kernel's count.  Where the folder for temporary files is in memory, nothing is read from a disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from reprise.spark_jobs.operators import Join, KeyedAggregate
from reprise.spark_jobs.operators.aggregates import ROWS, Partials
from reprise.spark_jobs.operators.slots import Accumulators
from reprise.spark_jobs.operators.testing import PLACE, inbox
from reprise.spark_jobs.spill import SpillStore
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.state_file import encode_state

MODES = ("synchronous", "asynchronous", "arrays", "paged")
SLOT_BYTES = 32
"""Count, least and greatest value, and how many were seen: the aggregates of Kwon et al., section 6.1.1."""
BATCH = 200
"""Rows of a batch: a tenth of a second of their 2,000 rows a second."""
BATCHES = 300
SPILL_BATCHES = 200
TABLE_6 = {1: "18.8 / 21.3", 10: "24.9 / 24.6", 100: "47.7 / 31.5"}


@dataclass(frozen=True, slots=True)
class Pause:
    """One snapshot beside processing.  Milliseconds, but `stored_mb`."""

    megabytes: int
    mode: str
    freeze_ms: float
    """In which nothing is processed."""
    greatest_ms: float
    """Of one batch after it, until the snapshot is stored."""
    batch_ms: float
    """Median batch without a snapshot."""
    stored_mb: float


@dataclass(frozen=True, slots=True)
class Bytes:
    """What a second snapshot stores after a share of the keys was touched."""

    share: float
    keys: str
    arrays_mb: float
    paged_mb: float


@dataclass(frozen=True, slots=True)
class Row:
    """Microseconds a row, medians of alternating turns."""

    operator: str
    megabytes: float
    arrays_us: float
    paged_us: float
    ratio: float


@dataclass(frozen=True, slots=True)
class Spill:
    """A state of which `memory_mb` may be in memory."""

    megabytes: int
    memory_mb: int
    keys: str
    rows_s: float
    all_in_memory_rows_s: float
    most_mb: float
    """In memory after a batch, at most."""
    read_mb: float
    """That was put out of memory while it was measured, and so about what was read."""


def state_of(megabytes: int) -> Accumulators:
    """Accumulators of so many bytes."""
    size = megabytes * 2**20 // SLOT_BYTES
    held = Accumulators()
    held.update(np.arange(size), values(np.arange(size)))
    return held


def values(slots: np.ndarray) -> Partials:
    """What a row each of these keys adds."""
    ones = np.ones(len(slots), np.int64)
    return {ROWS: ones, "min:v": slots, "max:v": slots, "seen:v": ones}


def slots_of(dice: np.random.Generator, size: int) -> np.ndarray:
    """A batch of rows of keys at random: the worst case for pages."""
    return np.unique(dice.integers(0, size, BATCH))


def snapshot(held: Accumulators, mode: str, store: CheckpointStore, position: int) -> Callable[[], int]:
    """Freeze a state as `mode` does it; what is left to do beside processing: it gives the bytes that were stored."""
    if mode == "paged":
        frozen = held.freeze_pages()
        return lambda: store.write_pages(store.pages_of(position, "s.0", "h.1", {"values": frozen()})).size
    encode = held.freeze()
    if mode == "arrays":
        return lambda: store.write_state(position, "s.0", "h.1", {"values": encode()}).size
    data = encode_state({"values": encode()})
    held._shared = False  # it was copied already

    def write() -> int:
        store._files.replace(f"cp-{position:08d}/s.0.state", data)
        return len(data)

    if mode == "synchronous":
        written = write()
        return lambda: written
    return write


def pauses(megabytes: Sequence[int], folder: Path) -> Iterator[Pause]:
    """The second of two snapshots, with the state written at random between them and after."""
    for size in megabytes:
        for mode in MODES:
            held, dice = state_of(size), np.random.default_rng(1)
            store = CheckpointStore(str(folder / f"{mode}-{size}"))
            snapshot(held, mode, store, 1)()
            plain = [_batch(held, dice) for _ in range(BATCHES)]
            began = time.perf_counter()
            rest = snapshot(held, mode, store, 2)
            frozen = time.perf_counter() - began
            stored: list[int] = []
            thread = threading.Thread(target=lambda to=stored, do=rest: to.append(do()))  # type: ignore[misc]
            after = [_batch(held, dice)]  # before anything else has its turn, as the copy comes with it
            thread.start()
            while thread.is_alive() or len(after) < BATCHES:
                after.append(_batch(held, dice))
            thread.join()
            batch = statistics.median(plain[BATCHES // 2 :])
            yield Pause(size, mode, frozen * 1e3, max(after) * 1e3, batch * 1e3, stored[0] / 2**20)


def _batch(held: Accumulators, dice: np.random.Generator) -> float:
    began = time.perf_counter()
    slots = slots_of(dice, held.size)
    held.update(slots, values(slots))
    return time.perf_counter() - began


def stored_bytes(megabytes: int, folder: Path) -> Iterator[Bytes]:
    """Keys that lie together, as those do that were first seen together, and keys at random."""
    for share in (0.01, 0.1, 1.0):
        for keys in ("together", "at random"):
            held = state_of(megabytes)
            count = int(held.size * share)
            if keys == "together":
                slots = np.arange(held.size // 3, held.size // 3 + count) % held.size
            else:
                slots = np.random.default_rng(2).permutation(held.size)[:count]
            store = CheckpointStore(str(folder / f"{keys}-{share}"))
            snapshot(held, "paged", store, 1)()
            held.update(np.sort(slots), values(np.sort(slots)))
            paged = snapshot(held, "paged", store, 2)()
            whole = snapshot(held, "arrays", store, 3)()
            yield Bytes(share, keys, whole / 2**20, paged / 2**20)


def rows(megabytes: Sequence[int] = (1, 10, 100)) -> Iterator[Row]:
    """An aggregate over states of Table 6, and a join; each once with pages kept and once without."""
    for size in megabytes:
        keys = size * 2**20 // SLOT_BYTES
        make = KeyedAggregate(keys=["k"], aggregate={"n": "count()", "low": "min(v)", "high": "max(v)"})
        yield _compared("aggregate", size, make, lambda state: state.values.freeze_pages, keys)
    join = Join(left="input", right="other", keys=["k"])
    yield _compared("join", 1, join, lambda state: state.left.rows.freeze_pages, 2**20 // 16)


def _compared(operator: str, size: float, code: object, pages: Callable[..., object], keys: int) -> Row:
    dice = np.random.default_rng(3)
    every = np.arange(keys)
    states = {}
    for mode in ("arrays", "paged"):
        state = code.initial(PLACE)  # type: ignore[attr-defined]
        table = pa.table({"k": every, "v": every})
        state, _ = code.step(state, inbox(1, {"input": table}))  # type: ignore[attr-defined]
        if mode == "paged":
            pages(state)()  # type: ignore[operator]
        states[mode] = state
    took: dict[str, list[float]] = {"arrays": [], "paged": []}
    for number in range(60):
        numbers = dice.integers(0, keys, 1000)
        table = pa.table({"k": numbers, "v": numbers})
        for mode in ("arrays", "paged") if number % 2 else ("paged", "arrays"):
            began = time.perf_counter()
            states[mode], _ = code.step(states[mode], inbox(number + 2, {"input": table}))  # type: ignore[attr-defined]
            took[mode].append((time.perf_counter() - began) * 1e6 / 1000)
    arrays, paged = (statistics.median(took[mode][10:]) for mode in ("arrays", "paged"))
    return Row(operator, size, arrays, paged, paged / arrays)


def spills(megabytes: Sequence[int], folder: Path) -> Iterator[Spill]:
    """State = 4 x memory.  Both get the same batches, one after the other."""
    for size in megabytes:
        for keys in ("at random", "nine of ten among a tenth"):
            dice = np.random.default_rng(4)
            limited, whole, memory = state_of(size), state_of(size), size * 2**20 // 4
            store = SpillStore(folder / f"spill-{size}-{keys[:2]}", memory, 16 * size * 2**20)
            store.bound([limited])
            took, dropped, most = [0.0, 0.0], store.seen.dropped, 0
            for number in range(SPILL_BATCHES):
                count = BATCH if keys == "at random" else BATCH // 10
                slots = dice.integers(0, whole.size, count)
                if count < BATCH:
                    slots = np.concatenate([slots, dice.integers(0, whole.size // 10, BATCH - count)])
                slots = np.unique(slots)
                for which in (0, 1) if number % 2 else (1, 0):
                    began = time.perf_counter()
                    (limited, whole)[which].update(slots, values(slots))
                    if which == 0:
                        store.bound([limited])
                    took[which] += time.perf_counter() - began
                most = max(most, store.resident() + store.seen.in_memory)
            rates = [SPILL_BATCHES * BATCH / seconds for seconds in took]
            read = (store.seen.dropped - dropped) / 2**20
            yield Spill(size, memory // 2**20, keys, rates[0], rates[1], most / 2**20, read)


# -- what is shown -----------------------------------------------------------------------------------------------------


def shown(figures: Mapping[str, Sequence[object]]) -> Iterator[str]:
    """Markdown."""
    if found := figures.get("pause"):
        yield "| state, MB | mode | freeze, ms | longest batch until stored, ms | batch, ms | stored, MB |"
        yield "|--:|---|--:|--:|--:|--:|"
        for one in found:
            assert isinstance(one, Pause)
            yield (
                f"| {one.megabytes} | {one.mode} | {one.freeze_ms:.2f} | {one.greatest_ms:.2f} | {one.batch_ms:.2f} "
                f"| {one.stored_mb:.1f} |"
            )
    if found := figures.get("bytes"):
        yield "| keys touched | which | arrays, MB | paged, MB | paged / arrays |"
        yield "|--:|---|--:|--:|--:|"
        for one in found:
            assert isinstance(one, Bytes)
            ratio = one.paged_mb / one.arrays_mb
            yield f"| {one.share:.0%} | {one.keys} | {one.arrays_mb:.2f} | {one.paged_mb:.2f} | {ratio:.2f} |"
    if found := figures.get("row"):
        yield (
            "| operator | state, MB | arrays, us a row | paged, us a row | paged / arrays "
            "| theirs: without, with pages of 8 KB, us |"
        )
        yield "|---|--:|--:|--:|--:|--:|"
        for one in found:
            assert isinstance(one, Row)
            theirs = TABLE_6.get(int(one.megabytes), "") if one.operator == "aggregate" else "2109 / 2158"
            yield (
                f"| {one.operator} | {one.megabytes:.0f} | {one.arrays_us:.2f} | {one.paged_us:.2f} | {one.ratio:.2f} "
                f"| {theirs} |"
            )
    if found := figures.get("spill"):
        yield (
            "| state, MB | may be in memory, MB | keys | rows a second | over all in memory | most in memory, MB "
            "| put out, MB |"
        )
        yield "|--:|--:|---|--:|--:|--:|--:|"
        for one in found:
            assert isinstance(one, Spill)
            ratio = one.rows_s / one.all_in_memory_rows_s
            yield (
                f"| {one.megabytes} | {one.memory_mb} | {one.keys} | {one.rows_s:,.0f} | {ratio:.3f} | {one.most_mb:.1f} "
                f"| {one.read_mb:.1f} |"
            )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.state")
    parser.add_argument("--megabytes", type=int, nargs="+", default=[4, 16, 64])
    parser.add_argument(
        "--what",
        nargs="+",
        choices=("pause", "bytes", "row", "spill"),
        default=["pause", "bytes", "row", "spill"],
    )
    parser.add_argument("--output", choices=("text", "json"), default="text")
    options = parser.parse_args(arguments)
    figures: dict[str, list[Pause | Bytes | Row | Spill]] = {}
    with tempfile.TemporaryDirectory() as folder:
        if "pause" in options.what:
            figures["pause"] = list(pauses(options.megabytes, Path(folder)))
        if "bytes" in options.what:
            figures["bytes"] = list(stored_bytes(max(options.megabytes), Path(folder)))
        if "spill" in options.what:
            figures["spill"] = list(spills(options.megabytes, Path(folder)))
    if "row" in options.what:
        figures["row"] = list(rows())
    if options.output == "json":
        sys.stdout.write(
            json.dumps({k: [asdict(one) for one in v] for k, v in figures.items()}, indent=1) + "\n"
        )
    else:
        for line in shown(figures):
            print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
