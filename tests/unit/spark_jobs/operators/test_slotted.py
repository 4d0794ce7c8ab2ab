"""Operators that are stored slot by slot, on random batches: whenever they are lost, what the log and a replay make of them
goes on with equal bytes, and the replay gives nothing that is not known."""

from __future__ import annotations

import random
from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs import operators as lib
from reprise.spark_jobs.contract import Inbox, Place
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.node import partition_log
from reprise.spark_jobs.node.channels import Row
from reprise.spark_jobs.node.partition_log import Pace, PartitionLog, Sealed, eventual_checkpoint
from reprise.spark_jobs.operators import windows
from reprise.spark_jobs.operators.slotted import Slotted, slotted, unseen
from reprise.spark_jobs.operators.testing import inbox
from reprise.spark_jobs.operators.window_slots import BORN
from reprise.spark_jobs.state.footprints import Targets
from reprise.spark_jobs.state.page_file import OvertakenError
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.state.window_log import RecordKind, Segment
from tests.support.examples import examples
from tests.unit.spark_jobs.operators.test_recovery import inboxes, stream

PLACE = Place("o", 0, 1)
OPERATORS: dict[str, Callable[[], Slotted]] = {
    "count-window": lambda: lib.CountWindow(
        size=3, keys=["key", "zone"], aggregate={"n": "count()", "m": "mean(value)", "low": "min(time)"}
    ),
    "count-window-of-one": lambda: lib.CountWindow(size=1, keys=["key"], aggregate={"s": "sum(value)"}),
    "count-window-of-all": lambda: lib.CountWindow(
        size=4, aggregate={"s": "sum(value)", "n": "count(value)"}
    ),
    "aggregate": lambda: lib.KeyedAggregate(keys=["key"], aggregate={"s": "sum(value)", "z": "max(zone)"}),
    "aggregate-of-all": lambda: lib.KeyedAggregate(keys=[], aggregate={"s": "sum(value)"}),
    "count": lambda: lib.KeyedCount(keys=["zone"]),
    "tumbling": lambda: lib.TumblingWindow(
        size="2s", keys=["key", "zone"], aggregate={"n": "count()", "m": "mean(value)", "s": "sum(value)"}
    ),
    "sliding": lambda: lib.SlidingWindow(
        size="3s", slide="1s", keys=["key"], aggregate={"low": "min(value)", "n": "count()"}, lateness="1s"
    ),
    "sliding-of-all": lambda: lib.SlidingWindow(size="2s", slide="1s", aggregate={"n": "count()"}),
}


class Log:
    """A log of an operator at work, its segments in memory; some are stored late."""

    def __init__(self, operator: Slotted, dice: random.Random) -> None:
        targets = Targets(dice.choice([2, 10, 10**9]), dice.choice([3, 10**9]))
        self.log = PartitionLog(operator, targets, Pace(0.0, 0.0))
        self.dice = dice
        self.files: dict[str, bytes] = {}
        self.waiting: list[Sealed] = []
        self.stored: list[tuple[Sealed, tuple[str, ...]]] = []
        """Each with the files of its snapshot, the newest first."""
        self.overtaken = 0
        self.need = 0

    def store(self, sealed: Sealed, counts: bool = True) -> None:
        """Invariant: it names none but the one that was stored before, and those that this one names."""
        try:
            segment = sealed.encode()
        except OvertakenError:
            self.overtaken += 1
            return
        assert sealed.encode() == segment, "when it is stored once more it is the same"
        assert not self.stored or set(segment.others) <= set(self.stored[-1][1])
        path = f"{len(self.files)}"
        self.files[path] = segment.data
        if counts:
            sealed.is_stored(StateFile(path, len(segment.data), ""))
        self.stored.append((sealed, (path, *reversed(segment.others))))

    def seal(self, batch: int, state: object, watermark: int | None) -> None:
        self.log.sealed_upto(self.dice.random() < 0.1)
        sealed = self.log.seal(batch, state, watermark, (), {})
        assert sealed.need >= self.need, "no later snapshot needs what an earlier one did not"
        self.need = sealed.need
        self.waiting.append(sealed)
        self.dice.shuffle(self.waiting)
        while self.waiting and self.dice.random() < 0.7:
            self.store(self.waiting.pop())


def restored(operator: Slotted, log: Log, number: int, batches: list[Inbox]) -> tuple[object, Sealed]:
    """The state after the replay from one of the snapshots that were stored."""
    sealed, paths = log.stored[number]
    found = eventual_checkpoint([Segment.read(log.files[p]) for p in paths], sealed.batch)
    assert found.found.since == sealed.since
    state = operator.load(PLACE, found.slots, found.found.end.rest)
    operator.retype(state, found.found.newest.types)
    for again in batches[sealed.since : sealed.batch]:
        state, _ = operator.step(state, unseen(operator, again, found.found.seen))
    return state, sealed


def held(operator: Slotted, state: object) -> list[str]:
    """The state of all slots, without the numbers that keys have in an index."""
    rows = operator.export(state, operator.open_slots(state)).to_pylist()
    return sorted(repr({name: value for name, value in row.items() if name != BORN}) for row in rows)


@pytest.fixture
def small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is cut wherever it can be."""
    monkeypatch.setattr(partition_log, "MOST_BYTES", 1)


def test_tables_of_many_records_are_one_checkpoint(small_records: None) -> None:
    operator = lib.KeyedCount(keys=["k"])
    log, state = Log(operator, random.Random(1)), operator.initial(PLACE)
    one = inbox(1, pa.table({"k": list(range(9))}))
    state, _ = operator.step(state, one)
    log.log.applied(1, 9, state, None)
    rows = [Row("t", 1, None, b"body"), Row("u", 1, None, b"other")]
    log.log.sealed_upto(True)
    sealed = log.log.seal(1, state, None, rows, {"t": 1, "u": 1})
    segment = Segment.read(sealed.encode().data)
    kinds = [record.kind for record in segment.backwards(1)]
    assert (kinds.count(RecordKind.CHECK), kinds.count(RecordKind.OUTPUT)) == (9, 2)
    found = eventual_checkpoint([segment], 1)
    assert held(operator, operator.load(PLACE, found.slots, found.found.end.rest)) == held(operator, state)
    assert sorted(found.output["target"].to_pylist()) == ["t", "u"]


@pytest.mark.parametrize("spend_s", [1.0, 0.0], ids=["with-time-for-it", "without"])
def test_slots_of_the_oldest_segments_are_stored_again_before_all_are_gathered(
    spend_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One key gets rows, and 600 others none: after some time nothing but those holds the oldest segments."""
    monkeypatch.setattr(partition_log, "MOST_SEGMENTS", 12)
    monkeypatch.setattr(partition_log, "AT_ONCE", 8)
    operator = lib.CountWindow(size=1000, keys=["k"], aggregate={"n": "count()"})
    log = PartitionLog(operator, Targets(10**9, 10**9), Pace(spend_s, 0.0))
    state, gathered, most = operator.initial(PLACE), 0, 0
    for b in range(1, 100):
        rows = pa.table({"k": list(range(600)) if b == 1 else [0]})
        state, _ = operator.step(state, inbox(b, rows))
        log.applied(b, rows.num_rows, state, None)
        log.sealed_upto(False)
        gathered += log._all_next
        sealed = log.seal(b, state, None, (), {})
        most = max(most, len(sealed.encode().others))
        sealed.is_stored(StateFile(str(b), 1, ""))
    assert most <= 12
    assert gathered == 1 if spend_s else gathered > 5


@pytest.mark.parametrize("name", OPERATORS)
@examples(10)
@given(batches=stream, more=stream, seed=st.integers(0, 2**32))
def test_what_a_log_and_a_replay_make_goes_on_with_equal_bytes(
    name: str, batches: list[object], more: list[object], seed: int
) -> None:
    operator, dice = OPERATORS[name](), random.Random(seed)
    log, state, outputs = Log(operator, dice), operator.initial(PLACE), list[pa.Table | None]()
    numbered = inboxes([*batches, *more])  # type: ignore[list-item]
    oldest = 0
    for one in numbered:
        state, given = operator.step(state, one)
        outputs.append(given)
        assert operator.open_count(state) == len(operator.open_slots(state))
        log.log.applied(one.batch, sum(i.table.num_rows for i in one.inputs), state, one.watermark)
        if dice.random() < 0.6:
            log.seal(one.batch, state, one.watermark)
            assert log.log.footprints.oldest(one.batch) >= oldest, "T never falls"
            oldest = log.log.footprints.oldest(one.batch)
    for number in range(len(log.stored)):
        again, sealed = restored(operator, log, number, numbered)
        for one in numbered[sealed.batch :]:
            again, given = operator.step(again, one)
            expected = outputs[one.batch - 1]
            assert given is expected or (
                given is not None and expected is not None and given.equals(expected)
            )
        assert held(operator, again) == held(operator, state)


@pytest.mark.parametrize("seed", range(4))
def test_keys_come_back_in_the_order_of_the_index_though_it_forgets_some(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows give rows in that order.  Keys come for a while, and some of them again after they were forgotten."""
    monkeypatch.setattr(windows, "_COMPACT_FROM", 3)
    operator, dice = (
        lib.TumblingWindow(size="2s", keys=["k"], aggregate={"n": "count()"}),
        random.Random(seed),
    )
    log, state, outputs, moved = Log(operator, dice), operator.initial(PLACE), list[pa.Table | None](), 0
    batches = []
    for b in range(1, 40):
        keys = [dice.choice([b + dice.randrange(5), dice.randrange(12)]) for _ in range(dice.randrange(6))]
        rows = pa.table(
            {"k": pa.array(keys, pa.int64()), "time": pa.array([b * 10**6] * len(keys), pa.int64())}
        )
        batches.append(inbox(b, rows, (b - 2) * 10**6))
        state, given = operator.step(state, batches[-1])
        outputs.append(given)
        moved += state.noted is not None and state.noted.moved is not None
        log.log.applied(b, len(keys), state, batches[-1].watermark)
        if dice.random() < 0.5:
            log.seal(b, state, batches[-1].watermark)
    assert moved > 3
    for number in range(len(log.stored)):
        again, sealed = restored(operator, log, number, batches)
        for one in batches[sealed.batch :]:
            again, given = operator.step(again, one)
            assert given == outputs[one.batch - 1]
        assert held(operator, again) == held(operator, state)


def test_count_windows_are_given_in_the_order_in_which_they_fill() -> None:
    operator = lib.CountWindow(size=2, keys=["k"], aggregate={"n": "count()", "s": "sum(v)"})
    state = operator.initial(PLACE)
    rows = pa.table({"k": ["a", "b", "b", "a", "a", "b", "a", "c"], "v": [1, 2, 3, 4, 5, 6, 7, 8]})
    state, given = operator.step(state, inbox(1, rows))
    assert given is not None
    assert given.to_pylist() == [
        {"k": "b", "n": 2, "s": 5}, {"k": "a", "n": 2, "s": 5}, {"k": "a", "n": 2, "s": 12},
    ]  # fmt: skip
    assert operator.counters(state) == {"keys": 3, "open": 2}
    assert [operator.export(state, [s]).column("key:k")[0].as_py() for s in operator.open_slots(state)] == [
        "b", "c",
    ]  # fmt: skip
    state, given = operator.step(state, inbox(2, pa.table({"k": ["c", "b"], "v": [1, 1]})))
    assert given is not None
    assert given.to_pylist() == [{"k": "c", "n": 2, "s": 9}, {"k": "b", "n": 2, "s": 7}]
    assert operator.counters(state) == {"keys": 3, "open": 0}


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(38, 2)], ids=str)
def test_a_column_that_was_nothing_but_nulls_gets_its_type_later(kind: pa.DataType) -> None:
    operator, dice = lib.CountWindow(size=3, keys=["k"], aggregate={"s": "sum(v)"}), random.Random(1)
    log, state = Log(operator, dice), operator.initial(PLACE)
    nulls = pa.table({"k": ["a", "b"], "v": pa.nulls(2)})
    numbers = pa.table({"k": ["a"], "v": pa.array([5], pa.int64()).cast(kind)})
    batches = [inbox(1, nulls), inbox(2, pa.table({"k": ["d"], "v": pa.nulls(1)})), inbox(3, numbers)]
    for one in batches:
        state, _ = operator.step(state, one)
        log.log.applied(one.batch, 2, state, None)
        log.seal(one.batch, state, None)
    while log.waiting:
        log.store(log.waiting.pop(0))
    number = max(range(len(log.stored)), key=lambda n: log.stored[n][0].batch)
    again, _ = restored(operator, log, number, batches)
    last = inbox(4, pa.table({"k": ["a", "b", "b"], "v": pa.array([1, 2, 3], pa.int64()).cast(kind)}))
    assert operator.step(again, last)[1] == operator.step(state, last)[1]


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64(), pa.decimal128(38, 2)], ids=str)
@pytest.mark.parametrize("waits", [True, False], ids=["with-an-older-slot", "without-slots"])
def test_a_slot_that_closed_has_set_the_type_of_a_column(waits: bool, kind: pa.DataType) -> None:
    """No footprint says so: the one that opened before is of the type that nulls have."""
    operator = lib.CountWindow(size=2, keys=["k"], aggregate={"s": "sum(v)"})
    log, state = Log(operator, random.Random(1)), operator.initial(PLACE)
    null = pa.table({"k": ["b"], "v": pa.nulls(1)})
    batches = [inbox(1, null if waits else null.slice(0, 0))]
    batches.append(inbox(2, pa.table({"k": ["a", "a"], "v": pa.array([1, 2], pa.int64()).cast(kind)})))
    for one in batches:
        if one.batch == 2:
            log.log.sealed_upto(False)
            log.waiting.append(log.log.seal(1, state, None, (), {}))
        state, _ = operator.step(state, one)
        log.log.applied(one.batch, 1, state, None)
    log.log.sealed_upto(False)
    log.waiting.append(log.log.seal(2, state, None, (), {}))
    for sealed in log.waiting:
        log.store(sealed, counts=False)
    again, sealed = restored(operator, log, 1, batches)
    assert (sealed.since, sealed.batch) == ((1, 2) if waits else (2, 2))
    rows = inbox(3, pa.table({"k": ["b"] * (1 if waits else 2), "v": pa.nulls(1 if waits else 2)}))
    expected, found = operator.step(state, rows)[1], operator.step(again, rows)[1]
    assert expected is not None and found is not None
    assert found.schema == expected.schema
    assert found.equals(expected)


def test_a_class_that_keeps_more_is_not_stored_slot_by_slot() -> None:
    class More(lib.KeyedCount):
        def freeze(self, state):  # type: ignore[no-untyped-def]
            return super().freeze(state)

    class Other(lib.CountWindow):
        def step(self, state, inbox):  # type: ignore[no-untyped-def]
            return super().step(state, inbox)

    class Named(lib.KeyedCount):
        def slots_of(self, table):  # type: ignore[no-untyped-def]
            return super().slots_of(table)

    assert slotted(Named(keys=["k"])) is None
    assert slotted(lib.KeyedCount(keys=["k"])) is not None
    assert slotted(More(keys=["k"])) is None
    assert slotted(Other(size=2, aggregate={"n": "count()"})) is None
    assert slotted(lib.Latest(keys=["k"])) is None


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "3"])
def test_a_size_that_is_no_number_of_rows_is_refused(size: object) -> None:
    with pytest.raises(SpecError, match="size"):
        lib.CountWindow(size=size, aggregate={"n": "count()"})  # type: ignore[arg-type]


def test_while_a_store_is_away_no_more_waits_than_may_be_read_back() -> None:
    """Then all slots are stored at once."""
    operator = lib.CountWindow(size=2, keys=["k"], aggregate={"n": "count()"})
    log, state = PartitionLog(operator, Targets(50, 10**9), Pace(0.0, 0.0)), operator.initial(PLACE)
    waiting, sealed = list[int](), list[Sealed]()
    batches = [inbox(b, pa.table({"k": [b, b + 1, b + 2]})) for b in range(1, 200)]
    for one in batches:
        state, _ = operator.step(state, one)
        log.applied(one.batch, 3, state, None)
        waiting.append(
            sum(len(p.body) for p in log._pending if isinstance(p.body, pa.Table)) - len(log.footprints)
        )
        if one.batch % 20 == 0:
            log.sealed_upto(False)
            sealed.append(log.seal(one.batch, state, None, (), {}))
    assert max(waiting) <= 50
    assert len({id(one.chain) for one in sealed}) > 2
    encoded = [one.encode() for one in sealed]
    assert all(one.others == () for one in encoded)
    last = eventual_checkpoint([Segment.read(encoded[-1].data)], sealed[-1].batch)
    assert last.found.since == sealed[-1].since > 100
