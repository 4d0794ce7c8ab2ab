"""States on the node's disk: what is read is what was written, no more is in memory than may be, and nothing stays."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from reprise.spark_jobs import operators as lib
from reprise.spark_jobs.operators import keys, slots, state_map
from reprise.spark_jobs.operators.aggregates import ROWS
from reprise.spark_jobs.operators.keys import dict_bytes
from reprise.spark_jobs.operators.paged import PagedOperator, freezer, spillable
from reprise.spark_jobs.operators.slots import Accumulators
from reprise.spark_jobs.operators.state_map import AT_ONCE, MapState
from reprise.spark_jobs.operators.testing import PLACE, as_bytes, inbox
from reprise.spark_jobs.pages import pieces
from reprise.spark_jobs.spill import NOTHING, SpillFullError, SpillStore
from reprise.spark_jobs.state.page_file import Span, decode_pages, encode_pages
from tests.support.examples import examples
from tests.unit.spark_jobs.operators.test_recovery import OPERATORS, inboxes, stream

MIB = 2**20
MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else Path("/var/tmp")
"""Where it does not matter what stays in memory: nothing waits for a disk there."""
PAGED = [name for name, make in OPERATORS.items() if isinstance(make(), PagedOperator)]


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder on a disk: what is in one that is in memory stays there."""
    folder = Path.home() if os.access(Path.home(), os.W_OK) else Path("/var/tmp")
    path = folder / f".reprise-test-spill-{os.getpid()}"
    path.mkdir()
    yield path
    assert list(path.iterdir()) == [], "files have no name"
    path.rmdir()


def store(folder: Path, memory: int = 0, disk: int = 2**30) -> SpillStore:
    return SpillStore(folder, memory, disk)


def test_what_is_put_out_is_the_same_when_it_is_read(on_disk: Path) -> None:
    held = store(on_disk, memory=2 * MIB)
    array = held.moved(np.arange(MIB))
    assert held.resident() <= 2 * MIB
    assert held.seen.dropped > 0
    assert held.disk == array.nbytes == 8 * MIB
    dice, expected = np.random.default_rng(1), np.arange(MIB)
    for _ in range(20):
        some = np.unique(dice.integers(0, MIB, 200))
        array[some] += 1
        expected[some] += 1
        held.hold()
        assert held.resident() <= 2 * MIB
    assert np.array_equal(array, expected)


def test_what_is_used_stays_and_what_nobody_uses_goes(on_disk: Path) -> None:
    """Pages that are used between two looks are there when others have to go."""
    held = store(on_disk, memory=4 * MIB)
    array = held.moved(np.zeros(2 * MIB, np.int64))
    hot, before = array[: MIB // 8], held.seen.dropped
    for first in range(MIB // 8, len(array), MIB // 16):
        hot += 1
        array[first : first + MIB // 16] += 1
        held.hold()
    assert held.seen.dropped > before
    with held._lock:
        (file,) = held._files.values()
        assert held._resident(file, 0, hot.nbytes) >= 0.9 * hot.nbytes


def test_an_array_grows_where_it_is(on_disk: Path) -> None:
    held = store(on_disk)
    array = held.moved(np.arange(5000))
    longer = held.longer(array, 9000)
    longer[7] = -1
    assert array[7] == -1
    assert longer[:5000].tolist() == array.tolist()
    assert not longer[5000:].any()
    with pytest.raises(ValueError, match="is in no file"):
        held.longer(np.zeros(3), 5)


def test_files_end_with_who_looks_into_them(on_disk: Path) -> None:
    held = store(on_disk)
    array, table = held.moved(np.arange(5000)), held.table(pa.table({"x": ["a", "b"] * 9000}))
    longer, data = held.longer(array, 9000), held.kept(b"abc")
    assert held.has(longer.ctypes.data)
    assert held.has_table(table.slice(3, 5))
    assert not held.has_table(pa.table({"x": [1]}))
    assert bytes(data) == b"abc"
    files = len(held._files)
    several = [held.table(pa.table({"x": [k] * 1000})) for k in range(50)]
    assert len(held._files) == files
    assert [t["x"][999].as_py() for t in several] == list(range(50))
    assert held.disk > 0
    del array
    assert longer[4999] == 4999
    held._blocks.clear()
    del longer, table, data, several
    gc.collect()
    assert (held.disk, held._files, held._where) == (0, {}, {})


def test_a_full_disk_is_said_and_loses_nothing(on_disk: Path) -> None:
    held = store(on_disk, disk=MIB)
    with pytest.raises(
        SpillFullError, match=r"take 0 of 1048576 bytes \(checkpoint.stateDisk\), and 8388608 more"
    ):
        held.moved(np.arange(MIB))
    state = Accumulators()
    state.update(np.arange(MIB), {ROWS: np.ones(MIB, np.int64)})
    held.bound([state])
    assert "stateDisk" in held.seen.problem
    assert held.seen.in_memory == 8 * MIB
    assert state.gather(np.arange(MIB), [ROWS])[ROWS].sum() == MIB
    data = bytes(20 * MIB)
    assert held.kept(data) is data


def test_a_state_that_cannot_grow_on_the_disk_goes_on_in_memory(on_disk: Path) -> None:
    held = store(on_disk, disk=5 * MIB)
    state = Accumulators()
    first = np.arange(MIB // 2)
    state.update(first, {ROWS: np.ones(len(first), np.int64), "min:v": first})
    with pytest.raises(SpillFullError):
        state.spill(held, 1)
    held.disk_limit = 10 * MIB
    assert state.spill(held, 1) == 0
    frozen = state.freeze_pages()()
    more = np.arange(MIB)
    state.update(more, {ROWS: np.ones(MIB, np.int64), "min:v": more - 1})
    assert "stateDisk" in held.seen.problem
    found = state.gather(more, [ROWS, "min:v"])
    assert found[ROWS].tolist() == [2] * len(first) + [1] * len(first)
    assert np.array_equal(found["min:v"], more - 1)
    (columns,) = pieces(frozen)
    assert not isinstance(columns, pa.Table)
    assert np.frombuffer(columns.page(0), np.int64, 1024, 1024 * 8).tolist() == list(range(1024))


@pytest.mark.parametrize("name", PAGED)
@examples(8)
@given(batches=stream)
def test_operators_give_the_same_with_everything_on_disk(name: str, batches: list[object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slots, "_LEAST", 4)
        for module in (keys, state_map):  # what finds keys stays in memory
            patch.setattr(module, "dict_bytes", lambda _: 0)
        held = store(MEMORY, memory=2**30)
        operator = OPERATORS[name]()
        state, twin = operator.initial(PLACE), operator.initial(PLACE)
        files = dict[str, bytes]()

        def fetch(path: str, span: Span) -> bytes:
            return span.whole(files[path][span.start : span.end])

        for position, each in enumerate(inboxes(batches), 1):  # type: ignore[arg-type]
            state, out = operator.step(state, each)
            twin, expected = operator.step(twin, each)
            assert as_bytes(out) == as_bytes(expected)
            tables = operator.freeze(twin)()
            assert not any(piece.spill(held, 1) for piece in spillable(operator, state))
            found = encode_pages(freezer(operator, True)(state)(), f"{position}", position, held.kept)
            files[found.path] = b"".join(bytes(chunk) for chunk in found.chunks)
            found.is_stored()
            again = decode_pages(files[found.path], fetch, held)
            assert {n: as_bytes(t) for n, t in again.items()} == {n: as_bytes(t) for n, t in tables.items()}
            if position % 3 == 0:
                with held.at_hand():
                    state = operator.restore(PLACE, again)
        assert held.seen.problem == ""


def test_what_is_stored_whole_is_not_put_on_disk() -> None:
    class Own(lib.KeyedCount):
        def freeze(self, state):  # type: ignore[no-untyped-def]
            return super().freeze(state)

    rows = inbox(1, pa.table({"key": ["a", "b"]}))
    for kind, several in ((Own, False), (lib.KeyedCount, True)):
        operator = kind(keys=["key"])
        state, _ = operator.step(operator.initial(PLACE), rows)
        assert bool(spillable(operator, state)) == several
    assert spillable(lib.KeyedCount(keys=["key"]), None) == ()


RUN = """
import resource, sys
from pathlib import Path
import numpy as np
import pyarrow as pa
from reprise.spark_jobs.operators import Join
from reprise.spark_jobs.operators.paged import spillable
from reprise.spark_jobs.operators.slots import Accumulators, restore
from reprise.spark_jobs.operators.aggregates import ROWS
from reprise.spark_jobs.operators.testing import PLACE, inbox
from reprise.spark_jobs.spill import SpillStore
from reprise.spark_jobs.state.checkpoints import CheckpointStore

MIB, memory = 2**20, 16 * 2**20
held = SpillStore(Path(sys.argv[1]), memory, 2**30)
join = Join(left="input", right="other", keys=["k"])
state, values = join.initial(PLACE), Accumulators()
def used():
    return int(Path("/proc/self/statm").read_text().split()[5]) * 4096
state, _ = join.step(state, inbox(1, {"input": pa.table({"k": [0], "v": ["x" * 100]})}))
resource.setrlimit(resource.RLIMIT_DATA, (used() + 48 * MIB,) * 2)
for batch in range(2, 66):
    first = (batch - 2) * 10_000
    keys = np.arange(first, first + 10_000) % 1000 + 1
    table = pa.table({"k": keys, "v": [f"{number:0100}" for number in range(first, first + 10_000)]})
    state, _ = join.step(state, inbox(batch, {"input": table}))
    slots = np.arange(first, first + 10_000)
    values.update(slots, {ROWS: np.ones(10_000, np.int64), "sum:v": slots, "max:v": slots})
    if sys.argv[2] == "bound":
        held.bound([*spillable(join, state), values])
        assert held.resident() + held.seen.in_memory <= memory, (batch, held.seen)
print("filled", held.disk // MIB, flush=True)
if len(sys.argv) > 4:
    sys.stdin.read()
keep = held.kept if sys.argv[2] == "bound" else None
store = CheckpointStore(sys.argv[3])
parts = {**join.freeze_pages(state)(), "values": values.freeze_pages()()}
file = store.write_pages(store.pages_of(1, "s.0", "h.1", parts, keep))
held.hold()
assert held.resident() <= memory
del state, values, parts
held._blocks.clear()
assert held.disk == 0, held.disk
tables = store.read_state(file, held)
with held.at_hand():
    state = join.restore(PLACE, {n: t for n, t in tables.items() if n != "values"})
    values = restore(tables["values"])
held.bound([*spillable(join, state), values])
assert held.resident() + held.seen.in_memory <= memory
_, out = join.step(state, inbox(66, {"other": pa.table({"k": [500]})}))
total = values.gather(np.arange(640_000), ["sum:v"])["sum:v"].sum()
print(file.all_bytes // MIB, out.num_rows, sum(int(v) for v in out["v"].to_pylist()), total)
"""


def run(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """In a process that the kernel gives 48 MiB for data beside what it had when it began."""
    code = [sys.executable, "-c", textwrap.dedent(RUN), str(folder), *arguments]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(code, text=True, **pipes)  # type: ignore[call-overload,no-any-return]


@pytest.mark.wide
@pytest.mark.slow
def test_a_state_of_five_times_its_memory_fits_into_a_process_that_has_not_more(
    on_disk: Path, tmp_path: Path
) -> None:
    """It is made, stored, and restored: 84 MB of rows and accumulators, of which 16 MiB may be in memory.  Without files the
    process ends."""
    without = run(on_disk, "all", str(tmp_path))
    assert "MemoryError" in without.communicate()[1] or "malloc" in without.communicate()[1]
    assert without.returncode != 0
    bound = run(on_disk, "bound", str(tmp_path))
    out, error = bound.communicate()
    assert bound.returncode == 0, error
    filled, found = out.splitlines()
    assert int(filled.split()[1]) >= 80
    size, rows, total, summed = map(int, found.split())
    numbers = np.arange(640_000)
    assert size >= 80
    assert (rows, total) == (640, int(numbers[numbers % 1000 == 499].sum()))
    assert summed == int(numbers.sum())


@pytest.mark.slow
def test_a_killed_process_leaves_no_file(on_disk: Path) -> None:
    """Nor room that is taken: the kernel frees what has no name."""
    before = os.statvfs(on_disk)
    victim = run(on_disk, "bound", "nowhere", "wait")
    assert victim.stdout is not None
    assert victim.stdout.readline().startswith("filled")
    assert list(on_disk.iterdir()) == []
    inside = os.statvfs(on_disk)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    assert victim.returncode == -signal.SIGKILL
    assert list(on_disk.iterdir()) == []
    freed = (os.statvfs(on_disk).f_bfree - inside.f_bfree) * before.f_frsize
    assert freed > 40 * MIB


def test_what_finds_keys_counts_as_memory_and_is_said_where_it_alone_is_too_much(on_disk: Path) -> None:
    operator = lib.KeyedCount(keys=["k"])
    table = pa.table({"k": [f"key-{number:030}" for number in range(50_000)]})
    state, _ = operator.step(operator.initial(PLACE), inbox(1, table))
    gc.collect()
    tracemalloc.start()
    twin = dict(zip(table["k"].to_pylist(), range(50_000), strict=True))
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    counted = dict_bytes(twin)
    assert 0.7 * taken < counted < 1.3 * taken
    held = SpillStore(on_disk, counted + 4 * MIB, 2**30)
    held.bound(spillable(operator, state))
    assert held.seen.problem == ""
    assert held.seen.in_memory >= counted
    assert held.resident() + held.seen.in_memory <= held.memory_limit, "pages leave what keys take"
    small = SpillStore(on_disk, counted // 2, 2**30)
    small.bound(spillable(operator, state))
    assert "what finds their keys" in small.seen.problem


def test_what_finds_the_keys_of_a_map_counts_too(on_disk: Path) -> None:
    counts, names = MapState({"k": pa.string()}, {"n": pa.int64()}), [f"key-{n}" for n in range(AT_ONCE)]
    for number, name in enumerate(names):
        counts[name] = number
    held = [piece.spill(SpillStore(on_disk, MIB, MIB), NOTHING) for piece in counts.spillable()]
    assert max(held) > 0.8 * dict_bytes(dict(zip(names, range(AT_ONCE), strict=True)))
