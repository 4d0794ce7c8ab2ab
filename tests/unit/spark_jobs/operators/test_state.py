"""Maps, lists and deques of own operators against those of Python: through snapshots in pages that an encoder takes beside
them, through whole ones, through files of the node, and through restores."""

from __future__ import annotations

import copy
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from reprise.contract import DequeState, Inbox, ListState, MapState, Place, StatefulOperator, Timers
from reprise.spark_jobs.operators import state_map, state_rows
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.paged import freezer, spillable
from reprise.spark_jobs.operators.state import FIELDS
from reprise.spark_jobs.operators.testing import PLACE, check_recovery, inbox, stored
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.spill import SpillStore
from reprise.spark_jobs.state.page_file import PagedState, decode_pages, encode_pages
from reprise.spark_jobs.state.rescaling import divisible
from reprise.spark_jobs.state.table_names import upgraded
from tests.support.examples import examples
from tests.unit.spark_jobs.test_pages import Gate, Store, gated, gates, make_small

NUMBERS = {"n": pa.int64(), "x": pa.float32(), "odd": pa.bool_()}
TEXTS = {"text": pa.string(), "n": pa.int16(), "at": pa.timestamp("us")}


@dataclass
class Held:
    numbers: MapState = field(default_factory=lambda: MapState({"k": pa.string(), "i": pa.int8()}, NUMBERS))
    texts: MapState = field(default_factory=lambda: MapState({"k": pa.int64()}, TEXTS))
    rows: ListState = field(default_factory=lambda: ListState({"a": pa.int64(), "b": pa.string()}))
    queue: DequeState = field(default_factory=lambda: DequeState({"v": pa.int64()}))
    timers: Timers = field(default_factory=Timers)
    seen: int = 0


class Kept(StatefulOperator):
    def initial(self, place: Place) -> Held:
        return Held()

    def step(self, state: Held, inbox: Inbox) -> tuple[Held, None]:
        return state, None


@dataclass
class Twin:
    numbers: dict[Any, Any] = field(default_factory=dict)
    texts: dict[Any, Any] = field(default_factory=dict)
    rows: list[Any] = field(default_factory=list)
    queue: deque[Any] = field(default_factory=deque)
    timers: list[Any] = field(default_factory=list)
    seen: int = 0


def content(state: Held) -> Twin:
    timers = state.timers.freeze()().to_pydict()
    return Twin(
        dict(state.numbers.items()),
        dict(state.texts.items()),
        list(state.rows),
        deque(state.queue),
        list(zip(timers["key"], timers["time"], strict=True)),
        state.seen,
    )


def same(state: Held, twin: Twin) -> None:
    assert content(state) == twin
    assert list(state.numbers) == list(twin.numbers)
    assert list(state.texts) == list(twin.texts)


OPERATOR = Kept()


class Snapshot:
    """A frozen state, what it has to be, and the thread that encodes it page by page."""

    def __init__(self, position: int, frozen: Callable[[], Parts], twin: Twin) -> None:
        self.position, self.twin, self.gate = position, twin, Gate()
        self.frozen = frozen
        self.found: list[PagedState | Exception] = []
        self.thread: threading.Thread | None = None

    def begin(self) -> None:
        self.thread = threading.Thread(target=self._encode, daemon=True)
        gates[self.thread] = self.gate
        self.thread.start()

    def _encode(self) -> None:
        try:
            self.found.append(encode_pages(self.frozen(), f"cp-{self.position}/p.state", self.position, None))
        except Exception as error:
            self.found.append(error)
        self.gate.done()

    def end(self) -> PagedState:
        assert self.thread is not None
        self.gate.let(100_000)
        self.thread.join()
        (found,) = self.found
        if isinstance(found, Exception):
            raise found
        return found


KEYS = st.tuples(st.sampled_from(["a", "b", "ü", None]), st.integers(0, 3))


class States(RuleBasedStateMachine):
    """One state with everything in it; the store has one thread, and may be behind."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        make_small(self.patch)
        gated(self.patch)
        self.patch.setattr(state_map, "COMPACT_FROM", 6)
        self.patch.setattr(state_map, "AT_ONCE", 3)
        self.patch.setattr(state_rows, "SEGMENT_ROWS", 6)
        self.patch.setattr(state_rows, "AT_ONCE", 3)
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)
        self.spilled = SpillStore(Path(self.folder.name), 0, 2**30)
        self.state, self.twin = OPERATOR.initial(PLACE), Twin()
        self.position = 0
        self.waiting: list[Snapshot] = []
        self.files = Store()
        self.done: list[tuple[str, Twin]] = []
        self.whole: list[tuple[Callable[[], Any], Twin]] = []

    # -- what an operator does

    @rule(key=KEYS, n=st.integers(-5, 5))
    def set_number(self, key: Any, n: int) -> None:
        self.state.numbers[key] = n, n / 4, n % 2 == 1
        self.twin.numbers[key] = n, n / 4, n % 2 == 1

    @rule(keys=st.lists(KEYS, max_size=6), n=st.integers(-5, 5))
    def set_numbers(self, keys: list[Any], n: int) -> None:
        rows = [(*key, n + at, 0.5 * at, False) for at, key in enumerate(keys)]
        self.state.numbers.extend(self.state.numbers.row_type.table(rows))
        for k, i, *value in rows:
            self.twin.numbers[k, i] = tuple(value)

    @rule(key=KEYS)
    def remove_number(self, key: Any) -> None:
        assert (key in self.state.numbers) == (key in self.twin.numbers)
        if key in self.twin.numbers:
            del self.twin.numbers[key]
            del self.state.numbers[key]
        else:
            with pytest.raises(KeyError):
                del self.state.numbers[key]

    @rule(key=st.integers(0, 15), text=st.sampled_from([None, "", "long" * 9, "ü"]), n=st.integers(0, 9))
    def set_text(self, key: int, text: str | None, n: int) -> None:
        self.state.texts[key] = text, n, None
        self.twin.texts[key] = text, n, None

    @rule(keys=st.lists(st.integers(0, 15), max_size=9))
    def remove_texts(self, keys: list[int]) -> None:
        self.state.texts.remove(pa.table({"k": pa.array(keys, pa.int32())}))
        for key in keys:
            self.twin.texts.pop(key, None)

    @rule(keys=st.lists(st.integers(0, 15), max_size=9))
    def read_texts(self, keys: list[int]) -> None:
        found = self.state.texts.take(pa.table({"k": pa.array(keys, pa.int64())}))
        expected = [self.twin.texts.get(key, (None, None, None)) for key in keys]
        assert list(zip(*found.to_pydict().values(), strict=True)) == expected
        assert [self.state.texts.get(key) for key in keys] == [self.twin.texts.get(key) for key in keys]

    @rule(count=st.integers(1, 8), one_by_one=st.booleans())
    def append(self, count: int, one_by_one: bool) -> None:
        numbers = [len(self.twin.rows) + at for at in range(count)]
        rows = [(n, None if n % 3 else f"r{n}") for n in numbers]
        if one_by_one:
            for row in rows:
                self.state.rows.append(row)
                self.state.queue.append(row[0])
        else:
            self.state.rows.extend(self.state.rows.row_type.table(rows))
            self.state.queue.extend(pa.table({"v": numbers}))
        self.twin.rows += rows
        self.twin.queue += numbers

    @rule(count=st.integers(1, 9), one_by_one=st.booleans())
    def pop(self, count: int, one_by_one: bool) -> None:
        expected = [self.twin.queue.popleft() for _ in range(min(count, len(self.twin.queue)))]
        if one_by_one:
            assert [self.state.queue.popleft() for _ in expected] == expected
        else:
            assert self.state.queue.popleft_rows(count).column("v").to_pylist() == expected

    @rule(number=st.integers(-40, 40))
    def read_rows(self, number: int) -> None:
        for held, twin in ((self.state.rows, self.twin.rows), (self.state.queue, self.twin.queue)):
            if -len(twin) <= number < len(twin):
                assert held[number] == twin[number]
            else:
                with pytest.raises(IndexError):
                    held[number]

    @rule(time=st.integers(0, 9))
    def wait(self, time: int) -> None:
        self.state.timers.set("t", time)
        if ('"t"', time) not in self.twin.timers:
            self.twin.timers.append(('"t"', time))
        self.state.seen += 1
        self.twin.seen += 1

    @rule(which=st.sampled_from(["numbers", "texts", "rows", "queue"]))
    def clear(self, which: str) -> None:
        getattr(self.state, which).clear()
        getattr(self.twin, which).clear()

    # -- what is done with its state

    @rule(least=st.sampled_from([1, 2000]))
    def put_into_files(self, least: int) -> None:
        for piece in spillable(OPERATOR, self.state):
            piece.spill(self.spilled, least)
        self.spilled.hold()

    @rule()
    def freeze_whole(self) -> None:
        self.whole.append((freezer(OPERATOR, False)(self.state), copy.deepcopy(self.twin)))

    @precondition(lambda self: self.whole)
    @rule()
    def restore_whole(self) -> None:
        encode, twin = self.whole.pop(0)
        same(OPERATOR.restore(PLACE, stored(encode())), twin)

    @precondition(lambda self: len(self.waiting) < 3)
    @rule()
    def freeze(self) -> None:
        self.position += 1
        frozen = freezer(OPERATOR, True)(self.state)
        self.waiting.append(Snapshot(self.position, frozen, copy.deepcopy(self.twin)))
        if len(self.waiting) == 1:
            self.waiting[0].begin()

    @precondition(lambda self: self.waiting)
    @rule(count=st.integers(1, 5))
    def encode_some(self, count: int) -> None:
        self.waiting[0].gate.let(count)

    @precondition(lambda self: self.waiting)
    @rule(is_stored=st.booleans())
    def encode_rest(self, is_stored: bool) -> None:
        one = self.waiting.pop(0)
        file = one.end()
        if is_stored:
            self.files.store(file)
            self.done.append((file.path, one.twin))
        if self.waiting:
            self.waiting[0].begin()

    @precondition(lambda self: self.done)
    @rule(number=st.integers(0, 5), goes_on=st.booleans(), on_disk=st.booleans())
    def restore(self, number: int, goes_on: bool, on_disk: bool) -> None:
        path, twin = self.done[number % len(self.done)]
        spilled = self.spilled if on_disk else None
        tables = decode_pages(self.files.files[path], self.files.fetch, spilled)
        if spilled is None:
            state = OPERATOR.restore(PLACE, tables)
        else:
            with spilled.at_hand():
                state = OPERATOR.restore(PLACE, tables)
        same(state, twin)
        if goes_on:
            for one in self.waiting:
                if one.thread is not None:
                    one.end()
            self.waiting = []
            self.state, self.twin = state, copy.deepcopy(twin)

    @invariant()
    def sizes_are_right(self) -> None:
        for name in ("numbers", "texts", "rows", "queue"):
            assert len(getattr(self.state, name)) == len(getattr(self.twin, name))

    def teardown(self) -> None:
        same(self.state, self.twin)
        for one in self.waiting:
            if one.thread is not None:
                one.gate.let(100_000)
        gates.clear()
        self.patch.undo()
        self.folder.cleanup()


class TestStates(States.TestCase):
    settings = settings(examples(80), stateful_step_count=50)


def paged(state: Held, position: int) -> PagedState:
    file = encode_pages(freezer(OPERATOR, True)(state)(), f"cp-{position}/p.state", position)
    file.is_stored()
    return file


def test_a_snapshot_stores_what_has_changed() -> None:
    state = OPERATOR.initial(PLACE)
    keys = [("a" * 20 + str(n), n % 100) for n in range(100_000)]
    state.numbers.extend(state.numbers.row_type.table([(*key, 1, 1.0, True) for key in keys]))
    state.rows.extend(pa.table({"a": range(200_000), "b": ["x"] * 200_000}))
    state.queue.extend(pa.table({"v": range(200_000)}))
    whole = sum(map(len, paged(state, 1).chunks))
    assert sum(map(len, paged(state, 2).chunks)) < whole / 50
    state.numbers[keys[5]] = 2, 2.0, False
    state.rows.append((7, "y"))
    state.queue.popleft_rows(100_000)
    third = paged(state, 3)
    assert sum(map(len, third.chunks)) < whole / 20
    assert third.others == ("cp-1/p.state",)


def test_a_snapshot_does_not_change_with_a_key_that_is_removed_first() -> None:
    """Of the arrays only the one that says which keys there are is written by that."""
    state = OPERATOR.initial(PLACE)
    for key in range(4):
        state.texts[key] = f"text {key}", key, None
        state.numbers["a", key] = key, 0.0, False
    frozen = OPERATOR.freeze(state)
    twin = content(state)
    state.texts.remove(pa.table({"k": [1]}))
    state.numbers.remove(pa.table({"k": ["a"], "i": [1]}))
    for key in range(4):
        state.texts[key] = "another", -1, None
        state.numbers["a", key] = -1, 1.0, True
    assert len(state.texts) == len(state.numbers) == 4
    restored = OPERATOR.restore(PLACE, stored(frozen()))
    same(restored, twin)
    restored.texts.remove(pa.table({"k": [1]}))
    restored.texts[2] = "another", -1, None
    assert list(restored.texts) == [0, 2, 3]


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda s: s.numbers.__setitem__(("a", 1), (1, 1.0)), "is no tuple of n, x, odd"),
        (lambda s: s.numbers.__setitem__("a", (1, 1.0, True)), "is no tuple of k, i"),
        (lambda s: s.numbers.__setitem__(("a", 1), (None, 1.0, True)), "n is a number or truth value"),
        (lambda s: s.numbers.__setitem__(("a", 1), (True, 1.0, True)), "n: True is no int64"),
        (lambda s: s.numbers.__setitem__(("a", 300), (1, 1.0, True)), "i: 300 is no int8"),
        (lambda s: s.numbers.__setitem__(("\ud800", 3), (1, 1.0, True)), "k: .* is no string"),
        (lambda s: s.texts.__setitem__(1, (3, 1, None)), "text: 3 is no string"),
        (lambda s: s.rows.append((1,)), "is no tuple of a, b"),
        (lambda s: s.queue.append("1"), "v: '1' is no int64"),
        (lambda s: s.queue.append(2**63), "v: .* is no int64"),
        (lambda s: MapState({"k": pa.float64()}, {"v": pa.int64()}), "the key 'k' is of double"),
        (lambda s: MapState({"k": pa.int64()}, {"k": pa.int64()}), "'k' is a key and a value"),
        (lambda s: ListState({}), "one at least"),
        (lambda s: ListState({"a": int}), "types of pyarrow"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_written(write: Callable[[Held], Any], said: str) -> None:
    state = OPERATOR.initial(PLACE)
    with pytest.raises(TypeError, match=said):
        write(state)
    same(state, Twin())


def test_batches_that_do_not_fit_are_refused() -> None:
    state = OPERATOR.initial(PLACE)
    with pytest.raises(ColumnError, match="column 'v' is not in the input"):
        state.queue.extend(pa.table({"w": [1]}))
    with pytest.raises(ColumnError, match="holds string, and is to be"):
        state.queue.extend(pa.table({"v": ["x"]}))
    with pytest.raises(ColumnError, match="cannot be null"):
        narrow = pa.array([1.0], pa.float32())
        state.numbers.extend(pa.table({"k": ["a"], "i": [1], "n": [None], "x": narrow, "odd": [True]}))
    with pytest.raises(IndexError, match="no rows but 0 to -1"):
        state.rows.take([0])
    same(state, Twin())


def test_a_value_reads_alike_before_and_after_it_was_stored() -> None:
    state = OPERATOR.initial(PLACE)
    state.numbers["a", 1] = 1, 0.1, True
    before = state.numbers["a", 1]
    assert before == (1, float(np.float32(0.1)), True)
    freezer(OPERATOR, True)(state)
    assert state.numbers["a", 1] == before
    assert [type(each) for each in before] == [type(each) for each in state.numbers["a", 1]]


@dataclass
class Sums:
    sums: MapState
    late: int = 0


class Version1(StatefulOperator):
    state_keys = ("k",)
    value = "euros"
    kind_of_value: pa.DataType = pa.int64()

    def initial(self, place: Place) -> Sums:
        return Sums(MapState({"k": pa.string()}, {self.value: self.kind_of_value}))

    def step(self, state: Sums, inbox: Inbox) -> tuple[Sums, pa.Table | None]:
        if (table := inbox.table()) is None:
            return state, None
        for key, value in zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True):
            state.sums[key] = state.sums.get(key, 0) + value
        return state, state.sums.table()


class Version2(Version1):
    state_version = 2
    state_keys = ("k",)
    value = "cents"

    def step(self, state: Sums, inbox: Inbox) -> tuple[Sums, pa.Table | None]:
        return super().step(state, inbox)

    def upgrade_state(self, place: Place, version: int, tables: Any) -> Any:
        rows = self.stored_rows(tables)
        cents = [100 * euros for euros in rows["sums"]["euros"].to_pylist()]
        rows["sums"] = pa.table({"k": rows["sums"]["k"], "cents": cents})
        return self.as_stored(place, rows)


BATCHES = [
    inbox(1, pa.table({"k": ["a", "b"], "v": [1, 2]})),
    inbox(2, pa.table({"k": ["a"], "v": [5]})),
]


def test_a_state_of_an_earlier_version_is_taken_over() -> None:
    check_recovery(old := Version1(), BATCHES)
    state, _ = old.step(old.initial(PLACE), BATCHES[0])
    state.late = 3
    tables = stored(old.freeze(state)())
    new = Version2()
    again = new.restore(PLACE, stored(upgraded(new, PLACE, 1, tables)))
    assert dict(again.sums.items()) == {"a": 100, "b": 200}
    assert again.late == 3
    with pytest.raises(
        ValueError, match=r"as 'sums' a map of k string, euros int64, .* raise `state_version`"
    ):
        new.restore(PLACE, tables)
    with pytest.raises(ValueError, match="has no field 'sum'"):
        new.as_stored(PLACE, {"sum": pa.table({})})
    with pytest.raises(ValueError, match="has no field 'early'"):
        new.as_stored(PLACE, {"fields": pa.table({"early": [1]})})


def test_a_state_that_has_other_fields_is_not_misread() -> None:
    @dataclass
    class More(Sums):
        times: Timers = field(default_factory=Timers)

    class Other(Version1):
        def initial(self, place: Place) -> More:
            return More(super().initial(place).sums)

    old, other = Version1(), Other()
    tables = old.freeze(old.initial(PLACE))()
    with pytest.raises(ValueError, match="no timers 'times'"):
        other.restore(PLACE, tables)
    with pytest.raises(ValueError, match="a field 'times' more"):
        old.restore(PLACE, other.freeze(other.initial(PLACE))())
    with pytest.raises(ValueError, match="no field 'late'"):
        old.restore(PLACE, {name: t for name, t in tables.items() if name != FIELDS})
    with pytest.raises(ValueError, match="no map 'sums'"):
        old.restore(PLACE, {"fields": tables["fields"]})


@pytest.mark.parametrize("state", [{}, Held, 3])
def test_a_state_that_is_no_dataclass_is_refused(state: Any) -> None:
    with pytest.raises(TypeError, match="must be a dataclass"):
        OPERATOR.freeze(state)


def test_a_field_that_cannot_be_stored_is_refused() -> None:
    @dataclass
    class Odd:
        seen: dict[str, int] = field(default_factory=dict)

    @dataclass
    class Named:
        fields: int = 0

    with pytest.raises(TypeError, match="the field 'seen' of the state is a dict; use MapState"):
        OPERATOR.freeze(Odd())
    with pytest.raises(TypeError, match="the name of the table of plain values"):
        OPERATOR.freeze(Named())


class Filled(StatefulOperator):
    """Its first state holds something in each structure."""

    def initial(self, place: Place) -> Held:
        state = Held(seen=7)
        state.numbers["a", 0] = (1, 0.5, True)
        state.texts.extend(pa.table({"k": [5], "text": ["first"], "n": [1], "at": [None]}))
        state.rows.append((1, "first"))
        state.queue.append(1)
        state.timers.set("a", 3)
        return state

    def step(self, state: Held, inbox: Inbox) -> tuple[Held, None]:
        return state, None


@pytest.mark.parametrize("in_pages", [False, True])
def test_what_a_first_state_holds_is_not_there_beside_what_was_stored(in_pages: bool) -> None:
    operator = Filled()
    state = operator.initial(PLACE)
    state.numbers["a", 0] = (2, 1.5, False)
    del state.texts[5]
    state.rows.append((2, "second"))
    state.queue.popleft()
    state.queue.append(2)
    state.timers.cancel("a", 3)
    wanted = content(state)
    if in_pages:
        (files := Store()).store(paged(state, 1))
        tables = decode_pages(files.files["cp-1/p.state"], files.fetch)
    else:
        tables = stored(operator.freeze(state)())
    same(operator.restore(PLACE, tables), wanted)
    again = operator.as_stored(PLACE, operator.stored_rows(tables))
    same(operator.restore(PLACE, again), wanted)
    kept = operator.restore(PLACE, operator.as_stored(PLACE, {"rows": operator.stored_rows(tables)["rows"]}))
    assert list(kept.rows) == wanted.rows
    assert dict(kept.numbers.items()) == dict(operator.initial(PLACE).numbers.items()), "as in `initial`"


def test_no_structure_is_the_default_of_all_states() -> None:
    for shared in (MapState({"k": pa.string()}, {"n": pa.int64()}), ListState({"n": pa.int64()}), Timers()):
        with pytest.raises(ValueError, match="default_factory"):
            dataclass(type("State", (), {"__annotations__": {"held": Any}, "held": shared}))


def test_a_list_that_is_read_is_a_copy() -> None:
    """Else whether a change in place is kept would depend on when the state was last stored."""
    nested = {"n": pa.list_(pa.int64())}
    for between in (False, True):
        found, rows = MapState({"k": pa.string()}, nested), ListState(nested)
        given = [1]
        found["a"], wrote = given, rows.append(given)
        assert wrote is None
        given.append(9)
        for _ in range(2):
            if between:
                found.freeze(), rows.freeze()
            found["a"].append(2)
            rows[0].append(2)
            next(iter(rows)).append(2)
            assert (found["a"], rows[0], list(rows)) == ([1], [1], [[1]])


def test_what_another_kind_of_operator_stored_is_not_taken_for_nothing() -> None:
    class WithoutState(StatefulOperator):
        def step(self, state: None, inbox: Inbox) -> tuple[None, None]:
            return None, None

    tables = {"greatest": pa.table({"n": [1]})}
    with pytest.raises(ValueError, match="'greatest' was stored by no StatefulOperator"):
        OPERATOR.stored_rows(tables)
    with pytest.raises(ValueError, match="'greatest' was stored by no StatefulOperator"):
        OPERATOR.restore(PLACE, tables)
    with pytest.raises(ValueError, match=r"has a table 'fields', .* raise `state_version`"):
        WithoutState().restore(PLACE, {FIELDS: pa.table({"seen": [1]})})


def test_an_attribute_that_is_no_field_is_refused() -> None:
    state = Held()
    state.total = 1  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="'total' is no field of the state, and would not be stored"):
        OPERATOR.freeze(state)


def test_a_class_without_state_has_none() -> None:
    class Plain(StatefulOperator):
        def step(self, state: None, inbox: Inbox) -> tuple[None, pa.Table | None]:
            return None, inbox.table()

    assert check_recovery(Plain(), BATCHES)[1] == BATCHES[1].table()


def test_plain_values_belong_to_no_key() -> None:
    operator = Version1()
    assert divisible(operator)
    assert divisible(Version2())
    tables = operator.freeze(operator.initial(PLACE))()
    with pytest.raises(ValueError, match=r"plain values \(late\), which belong to no key"):
        operator.split_state(tables, lambda keys: np.zeros(keys.num_rows, np.int64), 2)
    with pytest.raises(ValueError, match="belong to no key"):
        operator.merge_states([tables])
