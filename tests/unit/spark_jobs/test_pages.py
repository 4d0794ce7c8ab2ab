"""States in pages against deep copies: whatever is written, grown, frozen, given up and encoded beside it, in any order,
a snapshot is what was there when it was taken; and a chain of snapshots is read back after anything else was removed."""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reprise.spark_jobs import pages, spill
from reprise.spark_jobs.operators import slots
from reprise.spark_jobs.operators.aggregates import ROWS
from reprise.spark_jobs.operators.chunks import ChunkStore
from reprise.spark_jobs.operators.slots import Accumulators
from reprise.spark_jobs.pages import FrozenColumns, Parts
from reprise.spark_jobs.spill import SpillStore
from reprise.spark_jobs.state import page_file
from reprise.spark_jobs.state.page_file import OvertakenError, PagedState, Span, decode_pages, encode_pages
from tests.support.examples import examples

SLOTS = 60


class Gate:
    """Lets an encoder take a number of pages, and then no more."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open, self._waiting, self._done = 0, False, False

    def take(self) -> None:
        with self._changed:
            while not self._open:
                self._waiting = True
                self._changed.notify_all()
                self._changed.wait()
            self._waiting = False
            self._open -= 1

    def done(self) -> None:
        with self._changed:
            self._done = True
            self._changed.notify_all()

    def let(self, count: int) -> None:
        """Until they are taken."""
        with self._changed:
            self._open += count
            self._waiting = False
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._done or (self._waiting and not self._open))


class Snapshot:
    """A frozen state, and what it has to be."""

    def __init__(
        self,
        position: int,
        frozen: list[Callable[[], Any]],
        tables: dict[str, pa.Table],
        keep: page_file.Keep | None = None,
    ) -> None:
        self.position, self.tables = position, tables
        self._frozen, self.keep = frozen, keep
        self.gate = Gate()
        self.state: PagedState | None = None
        self.error: Exception | None = None
        self.thread: threading.Thread | None = None

    def parts(self) -> Parts:
        return dict(zip(("values", "keys"), (encode() for encode in self._frozen), strict=True))

    def begin(self) -> None:
        self.thread = threading.Thread(target=self._encode, daemon=True)
        gates[self.thread] = self.gate
        self.thread.start()

    def _encode(self) -> None:
        try:
            path = f"cp-{self.position}/p.state"
            self.state = encode_pages(self.parts(), path, self.position, self.keep)
        except Exception as error:
            self.error = error
        self.gate.done()

    def end(self) -> PagedState:
        assert self.thread is not None
        self.gate.let(10_000)
        self.thread.join()
        if self.error is not None:
            raise self.error
        assert self.state is not None
        return self.state


gates: dict[threading.Thread, Gate] = {}


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        yield


def make_small(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pages, "SHIFT", 2)
    patch.setattr(pages, "PAGE_ROWS", 4)
    patch.setattr(pages, "CHUNK_ROWS", 3)
    patch.setattr(page_file, "MOST_FILES", 4)
    patch.setattr(page_file, "GAP", 40)
    patch.setattr(spill, "BLOCK", 8192)
    patch.setattr(slots, "_LEAST", 8)


def gated(patch: pytest.MonkeyPatch) -> None:
    plain = FrozenColumns.page

    def page(self: FrozenColumns, number: int) -> bytes:
        if gate := gates.get(threading.current_thread()):
            gate.take()
        return plain(self, number)

    patch.setattr(FrozenColumns, "page", page)


class Store:
    """Files by path, and what each complete snapshot has to be."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.kept: dict[int, tuple[PagedState, dict[str, pa.Table]]] = {}

    def store(self, state: PagedState) -> None:
        self.files[state.path] = b"".join(bytes(chunk) for chunk in state.chunks)
        state.is_stored()

    def complete(self, state: PagedState, tables: dict[str, pa.Table], keep: int) -> None:
        """And remove what `CheckpointStore.prune` does: what is older than all kept ones and is named by none of them."""
        self.kept[state.position] = state, tables
        for position in sorted(self.kept)[:-keep]:
            del self.kept[position]
        named = {path for state, _ in self.kept.values() for path in (state.path, *state.others)}
        for path in [
            p for p in self.files if p not in named and int(p[3:].partition("/")[0]) < min(self.kept)
        ]:
            del self.files[path]

    def fetch(self, path: str, span: Span) -> bytes:
        return span.whole(self.files[path][span.start : span.end])

    def read(self, position: int) -> dict[str, pa.Table]:
        return decode_pages(self.files[self.kept[position][0].path], self.fetch)

    def check(self) -> None:
        for position, (state, tables) in self.kept.items():
            assert self.read(position) == tables
            assert len(state.others) <= page_file.MOST_FILES


class PagedStates(RuleBasedStateMachine):
    """One state; snapshots are stored in order, late, twice tried, or never."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        make_small(self.patch)
        gated(self.patch)
        self.values, self.rows = Accumulators(), ChunkStore()
        self.twin, self.rows_twin = Accumulators(), ChunkStore()
        """The same, and never in files."""
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.spilled = SpillStore(Path(self.folder.name), 0, 2**30)
        self.position, self.last_encoded = 0, 0
        self.waiting: list[Snapshot] = []
        self.encoded: list[tuple[PagedState, dict[str, pa.Table]]] = []
        self.acked: list[tuple[PagedState, dict[str, pa.Table]]] = []
        self.store = Store()
        self.floats = False

    @rule(slots=st.sets(st.integers(0, SLOTS), min_size=1, max_size=8), value=st.integers(-9, 9))
    def update(self, slots: set[int], value: int) -> None:
        own = np.array(sorted(slots), np.int64)
        kind = np.float64 if self.floats else np.int64
        values = {ROWS: np.ones(len(own), np.int64), "sum:v": np.full(len(own), value, kind)}
        values["seen:v"] = np.full(len(own), int(self.floats), np.int64)
        values["min:v"] = values["sum:v"]
        for held in (self.values, self.twin):
            held.update(own, values)

    @rule(count=st.integers(1, 5))
    def append(self, count: int) -> None:
        table = pa.table({"k": [f"k{self.rows.size + i}" for i in range(count)]})
        for held in (self.rows, self.rows_twin):
            held.append(table)

    @rule(least=st.sampled_from([1, 2000]))
    def put_into_files(self, least: int) -> None:
        """Nothing of it may be in memory, so all of it is read again."""
        self.values.spill(self.spilled, least)
        self.rows.spill(self.spilled, least)
        self.spilled.hold()

    @precondition(lambda self: self.values.size)
    @rule()
    def only_nulls_until_now(self) -> None:
        """The column of which nothing but nulls was seen turns out to hold other numbers."""
        self.floats = True

    @rule()
    def renumber(self) -> None:
        live = np.arange(0, self.values.size, 2)
        self.values, self.twin = self.values.take(live), self.twin.take(live)

    @rule()
    def freeze_whole(self) -> None:
        self.values.freeze()

    @precondition(lambda self: len(self.waiting) < 3)
    @rule()
    def freeze(self) -> None:
        self.position += 1
        copy = {n: a[: self.twin.size].copy() for n, a in self.twin._arrays.items()}
        tables = {"values": pa.table(copy), "keys": self.rows_twin.freeze()()}
        frozen = [self.values.freeze_pages(), self.rows.freeze_pages()]
        keep = self.spilled.kept if self.spilled.disk else None
        self.waiting.append(Snapshot(self.position, frozen, tables, keep))

    @precondition(lambda self: not self.waiting and not self.encoded and not self.acked)
    @rule(keep=st.integers(1, 3))
    def checkpoint(self, keep: int) -> None:
        """All of it at once, as when nothing is slow."""
        self.freeze()
        self.waiting[0].begin()
        self.encode_rest()
        self.store_one(0)
        self.complete_one(0, keep)

    def _under_way(self) -> list[Snapshot]:
        return [s for s in self.waiting if s.thread is not None]

    @precondition(lambda self: self.waiting and not self._under_way())
    @rule(number=st.integers(0, 2))
    def begin_to_encode(self, number: int) -> None:
        """The store has one thread."""
        self.waiting[number % len(self.waiting)].begin()

    @precondition(lambda self: self._under_way())
    @rule(count=st.integers(1, 6))
    def encode_some(self, count: int) -> None:
        self._under_way()[0].gate.let(count)

    @precondition(lambda self: self._under_way())
    @rule()
    def encode_rest(self) -> None:
        (one,) = self._under_way()
        self.waiting.remove(one)
        try:
            self.encoded.append((one.end(), one.tables))
        except OvertakenError:
            assert one.position < self.last_encoded
        else:
            self.last_encoded = one.position

    @precondition(lambda self: self.encoded and not self._under_way())
    @rule(number=st.integers(0, 2))
    def store_one(self, number: int) -> None:
        """Also after a later one, where that was tried again."""
        one = self.encoded.pop(number % len(self.encoded))
        self.store.store(one[0])
        self.acked.append(one)

    @precondition(lambda self: self.acked)
    @rule(number=st.integers(0, 2), keep=st.integers(1, 3))
    def complete_one(self, number: int, keep: int) -> None:
        """Those before it are not completed any more."""
        state, tables = self.acked[number % len(self.acked)]
        self.store.complete(state, tables, keep)
        for some in (self.acked, self.encoded):
            some[:] = [one for one in some if one[0].position > state.position]

    @precondition(lambda self: self.waiting)
    @rule(number=st.integers(0, 2))
    def give_up(self, number: int) -> None:
        one = self.waiting[number % len(self.waiting)]
        if one.thread is None:
            self.waiting.remove(one)

    @invariant()
    def everything_is_read_back_that_is_complete_or_may_be(self) -> None:
        self.store.check()
        for state, tables in (*self.acked, *self.encoded):
            data = b"".join(bytes(chunk) for chunk in state.chunks)
            assert decode_pages(data, self.store.fetch) == tables

    def teardown(self) -> None:
        for one in self._under_way():
            one.gate.let(10_000)
        gates.clear()
        self.patch.undo()
        self.folder.cleanup()


class TestPagedStates(PagedStates.TestCase):
    settings = settings(examples(80), stateful_step_count=40)


def parts_of(values: Accumulators, rows: ChunkStore) -> Parts:
    return {"values": values.freeze_pages()(), "keys": rows.freeze_pages()()}


def filled(size: int) -> Accumulators:
    held = Accumulators()
    held.update(np.arange(size), {ROWS: np.ones(size, np.int64), "sum:v": np.arange(size)})
    return held


def write(held: Accumulators, slots: list[int]) -> None:
    held.update(np.array(slots), {ROWS: np.ones(len(slots), np.int64), "sum:v": np.array(slots)})


def stored(held: Accumulators, position: int, store: Store | None = None) -> PagedState:
    table = pa.table({n: a[: held.size].copy() for n, a in held._arrays.items()})
    state = encode_pages({"values": held.freeze_pages()()}, f"cp-{position}/p.state", position)
    store = store or Store()
    store.store(state)
    store.complete(state, {"values": table}, keep=1)
    return state


def test_bytes_are_in_proportion_to_what_was_touched() -> None:
    held, page = filled(400), 4 * 2 * 8
    assert stored(held, 1).own.size == 100 * page
    assert stored(held, 2).own.size == 0
    write(held, [0, 1, 3, 399])
    assert stored(held, 3).own.size == 2 * page
    assert stored(held, 4).others == ("cp-1/p.state", "cp-3/p.state")


def test_a_snapshot_that_is_not_stored_leaves_everything_to_be_stored() -> None:
    held = filled(40)
    stored(held, 1)
    write(held, [0])
    encode_pages({"values": held.freeze_pages()()}, "cp-2/p.state", 2)
    assert stored(held, 3).own.size == 4 * 2 * 8
    with pytest.raises(OvertakenError, match="of batch 3 was encoded before that of batch 2"):
        encode_pages({"values": held.freeze_pages()()}, "cp-2/p.state", 2)


def test_the_last_page_is_another_when_it_has_more_rows() -> None:
    held, store = filled(5), Store()
    stored(held, 1, store)
    write(held, [9])
    assert stored(held, 2, store).own.size == (4 + 2) * 2 * 8
    store.check()


def test_a_snapshot_that_is_stored_late_is_not_where_later_ones_have_pages() -> None:
    """The next may be complete without it, and then its file goes."""
    held, store = filled(40), Store()
    stored(held, 1, store)
    write(held, [0])
    late, third = (encode_pages({"values": held.freeze_pages()()}, f"cp-{k}/p.state", k) for k in (2, 3))
    store.store(late)
    table = pa.table({n: a[: held.size].copy() for n, a in held._arrays.items()})
    fourth = encode_pages({"values": held.freeze_pages()()}, "cp-4/p.state", 4)
    for state in (third, fourth):
        store.store(state)
        store.complete(state, {"values": table}, keep=1)
        store.check()
    assert late.path not in store.files


def test_nothing_is_copied_for_a_snapshot_that_nobody_holds_or_that_is_encoded() -> None:
    held = filled(40)
    frozen = held.freeze_pages()
    (columns,) = frozen()
    assert isinstance(columns, FrozenColumns)
    write(held, [0])
    assert len(columns._aside) == 1
    encode_pages({"values": frozen()}, "cp-1/p.state", 1)
    write(held, [9])
    assert not columns._aside
    with pytest.raises(LookupError):
        columns.page(2)
    assert held._pages is not None
    del frozen, columns
    frozen = held.freeze_pages()
    assert len(held._pages._open) == 1
    del frozen
    write(held, [20])
    held.freeze_pages()
    assert len([one for one in held._pages._open if one() is not None]) <= 1


def test_pages_of_files_of_which_little_is_needed_are_written_again_within_the_budget() -> None:
    held, store = filled(400), Store()
    stored(held, 1, store)
    for position in range(2, 40):
        first = (position * 40) % 360
        write(held, list(range(first, first + 40)))
        state = stored(held, position, store)
        store.check()
        assert len(state.others) <= page_file.MOST_FILES
        crowd = 400 * 16 // page_file.MOST_FILES
        assert state.own.size <= 10 * 64 * (1 + page_file.BUDGET) + crowd + 64
    assert sum(map(len, store.files.values())) < 3 * 400 * 16 + 4096 * len(store.files)


@pytest.mark.parametrize("where", ["its own", "another"])
def test_a_damaged_page_is_found(where: str) -> None:
    held, store = filled(40), Store()
    stored(held, 1, store)
    write(held, [0])
    stored(held, 2, store)
    path = "cp-2/p.state" if where == "its own" else "cp-1/p.state"
    data = bytearray(store.files[path])
    data[page_file.ALIGN + (1 if where == "its own" else 80)] ^= 1
    store.files[path] = bytes(data)
    with pytest.raises(ValueError, match="does not have its checksum"):
        store.read(2)


@pytest.mark.parametrize("cut", [0, 10, 30, -1])
def test_half_a_file_is_no_state(cut: int) -> None:
    held, store = filled(40), Store()
    stored(held, 1, store)
    with pytest.raises(ValueError):
        decode_pages(store.files["cp-1/p.state"][:cut], store.fetch)


def test_a_step_that_never_stops_and_an_encoder_beside_it() -> None:
    """As they run: on two threads, which change places all the time."""
    held, store = filled(4000), Store()
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for position in range(1, 13):
            copy = pa.table({n: a[: held.size].copy() for n, a in held._arrays.items()})
            found: list[PagedState] = []
            frozen = {"values": held.freeze_pages()()}

            def encode(parts: Parts = frozen, at: int = position, to: list[PagedState] = found) -> None:
                to.append(encode_pages(parts, f"cp-{at}/p.state", at))

            thread = threading.Thread(target=encode)
            thread.start()
            slots = np.random.default_rng(position)
            while thread.is_alive():
                write(held, sorted(set(slots.integers(0, held.size + 8, 50).tolist())))
            thread.join()
            store.store(found[0])
            store.complete(found[0], {"values": copy}, keep=3)
            store.check()
    finally:
        sys.setswitchinterval(before)
