"""Keys as numbers: against a dict over plain Python values, for every type that a key may have."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Operator
from reprise.spark_jobs.operators import (
    CountWindow,
    Deduplicate,
    Join,
    KeyedAggregate,
    KeyedCount,
    Latest,
    RunningAggregate,
    SessionWindow,
    SlidingWindow,
    StreamTableJoin,
    TopK,
    TumblingWindow,
    WindowedJoin,
)
from reprise.spark_jobs.operators.frames import ColumnError, one_form
from reprise.spark_jobs.operators.keys import KeyIndex, group
from reprise.spark_jobs.operators.testing import as_bytes, check_recovery, inbox, run, stored
from tests.support.examples import examples

# Berlin puts its clocks back at 01:00 UTC: both instants are half past two on the wall.
BEFORE, AFTER = 1_792_888_200_000_000, 1_792_891_800_000_000
NOT_NUMBERS = list(np.array([0x7FF8 << 48, 0xFFF8 << 48, (0xFFF8 << 48) + 1], np.uint64).view(np.float64))
"""As it is read, as x86 computes 0/0, and with bits of its own."""
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "string": (pa.string(), ["", "a", "ä", "a\0", "\U0001f680", None]),
    "binary": (pa.binary(), [b"", b"\0", b"\xff", None]),
    "int": (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), None]),
    "uint": (pa.uint64(), [0, 2**64 - 1, 2**63, None]),
    "bool": (pa.bool_(), [True, False, None]),
    "float": (pa.float64(), [0.0, -0.0, *NOT_NUMBERS, math.inf, -math.inf, 0.1, None]),
    "narrow float": (pa.float32(), [0.0, -0.0, *NOT_NUMBERS, 0.5, None]),
    "half float": (pa.float16(), [0.0, -0.0, *NOT_NUMBERS, 0.5, None]),
    "date": (pa.date32(), [date(1970, 1, 1), date(2026, 3, 29), None]),
    "time of a zone": (pa.timestamp("us", tz="Europe/Berlin"), [BEFORE, AFTER, None]),
    "nanoseconds": (pa.timestamp("ns"), [0, 1, 999, 1000, None]),
    "duration": (pa.duration("ns"), [0, 1, None]),
}


def plain(value: Any) -> Any:
    """What two rows must agree in to have the same key."""
    if isinstance(value, float):
        return "not a number" if math.isnan(value) else value + 0.0
    return value


def batches(kinds: Sequence[str], longest: int = 8) -> st.SearchStrategy[list[list[tuple[Any, ...]]]]:
    row = st.tuples(*(st.sampled_from(VALUES[kind][1]) for kind in kinds))
    return st.lists(st.lists(row, max_size=longest), min_size=1, max_size=5)


def table(kinds: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    columns = {f"k{i}": pa.array([row[i] for row in rows], VALUES[kind][0]) for i, kind in enumerate(kinds)}
    return one_form(pa.table(columns), columns)


def agree(kinds: Sequence[str], stream: list[list[tuple[Any, ...]]]) -> None:
    names = [f"k{i}" for i in range(len(kinds))]
    index, known = KeyIndex(names), dict[tuple[Any, ...], int]()
    for rows in stream:
        groups = group(table(kinds, rows), names)
        own = [tuple(map(plain, row)) for row in rows]
        assert groups.codes.tolist() == [list(dict.fromkeys(own)).index(key) for key in own]
        assert groups.size == groups.keys.num_rows == len(set(own))
        assert index.find(groups).tolist() == [known.get(key, -1) for key in dict.fromkeys(own)]
        for key in own:
            known.setdefault(key, len(known))
        assert index.slots(groups)[groups.codes].tolist() == [known[key] for key in own]
    assert index.size == len(known)
    again = KeyIndex(names, stored({"keys": index.freeze()()})["keys"], index.size)
    for rows in stream:
        groups = group(table(kinds, rows), names)
        assert again.find(groups).tolist() == index.find(groups).tolist()


@pytest.mark.parametrize("kind", VALUES)
@examples(15)
@given(data=st.data())
def test_slots_are_numbered_by_first_appearance_for_every_type_of_key(kind: str, data: st.DataObject) -> None:
    agree([kind], data.draw(batches([kind])))


@examples(30)
@given(data=st.data(), kinds=st.lists(st.sampled_from(sorted(VALUES)), min_size=2, max_size=3))
def test_several_columns_are_one_key(data: st.DataObject, kinds: list[str]) -> None:
    agree(kinds, data.draw(batches(kinds)))


def test_the_two_zeros_are_one_key_and_no_row_is_lost() -> None:
    zeros = pa.table({"k": [0.0, -0.0, -0.0]})
    outputs = check_recovery(KeyedCount(keys=["k"]), [inbox(1, zeros), inbox(2, zeros), inbox(3, zeros)])
    assert [out.to_pylist() for out in outputs if out is not None] == [
        [{"k": 0.0, "count": n}] for n in (3, 6, 9)
    ]


def test_not_a_number_is_one_key_in_all_batches() -> None:
    odd = pa.table({"k": [math.nan, 1.0], "other": ["x", "x"]})
    for keys in (["k"], ["k", "other"]):
        outputs = check_recovery(KeyedCount(keys=keys), [inbox(1, odd), inbox(2, odd)])
        assert outputs[1] is not None
        assert outputs[1]["count"].to_pylist() == [2, 2]
    state = Latest(keys=["k"]).initial(None)  # type: ignore[arg-type]
    for number in range(1, 5):
        state, _ = Latest(keys=["k"]).step(state, inbox(number, odd))
    assert state.index.size == 2


AGGREGATE = {"n": "count()", "s": "sum(n)"}
KEYED: dict[str, Operator] = {
    "KeyedCount": KeyedCount(keys=["k"]),
    "KeyedAggregate": KeyedAggregate(keys=["k"], aggregate=AGGREGATE),
    "TumblingWindow": TumblingWindow(size="10s", keys=["k"], aggregate=AGGREGATE),
    "SlidingWindow": SlidingWindow(size="10s", slide="5s", keys=["k"], aggregate=AGGREGATE),
    "SessionWindow": SessionWindow(gap="5s", keys=["k"], aggregate=AGGREGATE),
    "CountWindow": CountWindow(size=3, keys=["k"], aggregate=AGGREGATE),
    "RunningAggregate": RunningAggregate(keys=["k"], aggregate=AGGREGATE),
    "Deduplicate": Deduplicate(keys=["k"], within="1h"),
    "Latest": Latest(keys=["k"]),
    "TopK": TopK(k=5, by="n", keys=["k"]),
    "WindowedJoin": WindowedJoin(left="input", right="other", keys=["k"], within="10s"),
    "Join": Join(left="input", right="other", keys=["k"], size="1h", interval="1s"),
    "StreamTableJoin": StreamTableJoin(stream="input", table="other", keys=["k"], how="left"),
}


@pytest.mark.parametrize("name", KEYED)
@examples(6)
@given(
    stream=st.lists(
        st.lists(st.sampled_from([0.0, -0.0, *NOT_NUMBERS, 1.0, None]), min_size=1, max_size=6),
        min_size=1,
        max_size=4,
    ),
    kind=st.sampled_from([pa.float64(), pa.float32(), pa.float16(), pa.dictionary(pa.int32(), pa.float64())]),
)
def test_no_operator_tells_forms_of_a_number_apart(
    name: str, stream: list[list[float | None]], kind: pa.DataType
) -> None:
    def given_for(form: Callable[[float | None], float | None]) -> list[bytes]:
        boxes = []
        for number, values in enumerate(stream, start=1):
            columns = {
                "k": pa.array(list(map(form, values)), kind),
                "n": range(len(values)),
                "time": pa.array([number * 1_000_000] * len(values), pa.int64()),
            }
            both = {"input": pa.table(columns), "other": pa.table(columns).rename_columns(["k", "m", "time"])}
            sides = both if "Join" in name else pa.table(columns)
            boxes.append(inbox(number, sides, watermark=number * 1_000_000))
        boxes.append(inbox(len(stream) + 1, {}, watermark=1 << 60))
        return list(map(as_bytes, check_recovery(KEYED[name], boxes)))

    assert given_for(lambda value: value) == given_for(_usual)


def _usual(value: float | None) -> float | None:
    return None if value is None else math.nan if math.isnan(value) else value + 0.0


@pytest.mark.parametrize(
    ("values", "expected"),
    [([math.inf, -math.inf], [math.nan, -math.inf, math.inf]), *(([v], [math.nan] * 3) for v in NOT_NUMBERS)]
    + [(zeros, [0.0] * 3) for zeros in ([0.0, -0.0], [-0.0, 0.0], [-0.0])],
)
def test_aggregates_come_out_in_one_form(values: list[float], expected: list[float]) -> None:
    forms = {"sum": "sum(x)", "mean": "mean(x)", "min": "min(x)", "max": "max(x)"}
    (out,) = run(KeyedAggregate(keys=[], aggregate=forms), [inbox(1, pa.table({"x": [*values, None]}))])
    wanted = {name: [value] for name, value in zip(forms, [expected[0], *expected], strict=True)}
    assert as_bytes(out) == as_bytes(pa.table(wanted))


@pytest.mark.parametrize("name", ["KeyedCount", "Join", "StreamTableJoin", "WindowedJoin"])
@pytest.mark.parametrize(
    "column", [pa.array([1.0]), pa.array([True]), pa.array([1]).cast(pa.decimal128(19, 0)), pa.array(["1"])]
)
def test_keys_that_python_takes_for_one_are_refused(name: str, column: pa.Array) -> None:
    whole = pa.table({"k": [1], "time": [0]})
    other = whole.set_column(0, "k", column)
    one, two = ({"other": whole}, {"input": other}) if "Join" in name else (whole, other)
    with pytest.raises(ColumnError, match=r"key column 'k' holds .* in some rows and .* in others"):
        run(KEYED[name], [inbox(1, one), inbox(2, two)])


def test_the_hour_that_comes_twice_is_two_keys() -> None:
    zone = pa.timestamp("us", tz="Europe/Berlin")
    first = pa.table({"k": pa.array([BEFORE, AFTER], zone)})
    second = pa.table({"k": pa.array([BEFORE, BEFORE, AFTER], zone)})
    outputs = run(KeyedCount(keys=["k"]), [inbox(1, first), inbox(2, second)])
    assert outputs[1] is not None
    assert outputs[1]["count"].to_pylist() == [3, 2]


def test_a_time_is_the_same_key_in_another_unit() -> None:
    state = KeyIndex(["k"])
    state.slots(group(pa.table({"k": pa.array([5, 7], pa.timestamp("us"))}), ["k"]))
    finer = pa.table({"k": pa.array([7000, 7001, 5000, None], pa.timestamp("ns"))})
    assert state.find(group(finer, ["k"])).tolist() == [1, -1, 0, -1]


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (pa.decimal128(20, 1), pa.decimal128(21, 2)),
        (pa.duration("us"), pa.duration("ns")),
        (pa.int64(), pa.float64()),
        (pa.bool_(), pa.int64()),
        (pa.timestamp("us"), pa.timestamp("us", "UTC")),
    ],
)
def test_keys_that_meet_other_partitions_are_refused(kind: pa.DataType, other: pa.DataType) -> None:
    """In a state, and on both sides of a join."""
    one, two = (pa.table({"k": pa.array([1]).cast(k, safe=False), "time": [1]}) for k in (kind, other))
    join = WindowedJoin(left="l", right="r", keys=["k"], within="1s")
    for operator, batches in (
        (KeyedCount(keys=["k"]), [inbox(1, one), inbox(2, two)]),
        (join, [inbox(1, {"l": one, "r": two})]),
    ):
        with pytest.raises(ColumnError, match=r"key column 'k' holds .* in some rows and .* in others; CAST"):
            run(operator, batches)


def test_rows_without_key_columns_form_one_group() -> None:
    groups = group(pa.table({"n": [1, 2, 3]}), [])
    assert (groups.codes.tolist(), groups.size) == ([0, 0, 0], 1)
    assert group(pa.table({"n": pa.array([], pa.int64())}), []).size == 0
    index = KeyIndex([])
    assert index.find(groups).tolist() == [-1]
    assert index.slots(groups).tolist() == [0]
    assert index.slots(groups).tolist() == [0]
    assert (index.size, KeyIndex([], None, index.size).find(groups).tolist()) == (1, [0])


@examples(20)
@given(st.lists(st.text("aä\U0001f680", max_size=3), min_size=1, max_size=20, unique=True), st.data())
def test_an_index_of_fewer_keys_is_numbered_anew(keys: list[str], data: st.DataObject) -> None:
    index = KeyIndex(["k"])
    index.slots(group(pa.table({"k": keys}), ["k"]))
    kept = data.draw(st.lists(st.sampled_from(range(len(keys))), unique=True, min_size=1))
    fewer = index.keep(np.array(kept, np.int64))
    assert fewer.keys(np.arange(fewer.size))["k"].to_pylist() == [keys[slot] for slot in kept]
    found = fewer.find(group(pa.table({"k": keys}), ["k"])).tolist()
    assert found == [kept.index(slot) if slot in kept else -1 for slot in range(len(keys))]


def test_what_was_frozen_stays_as_it_was() -> None:
    index = KeyIndex(["k"])
    assert index.freeze()().num_rows == 0
    index.slots(group(pa.table({"k": ["a", "b"]}), ["k"]))
    frozen = index.freeze()
    index.slots(group(pa.table({"k": ["c", "a"]}), ["k"]))
    assert frozen()["k"].to_pylist() == ["a", "b"]
    assert index.freeze()()["k"].to_pylist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("column", "by", "message"),
    [
        (pa.array([[1], [2]]), ["k"], r"key column 'k' holds list<item: int64>; use strings, numbers"),
        (pa.array([{"a": 1}]), ["k", "k2"], r"key column 'k' holds struct<a: int64>"),
        (pa.array([1]), ["j"], r"column 'j' is not in the input; its columns are k"),
    ],
)
def test_what_cannot_be_a_key_is_named(column: pa.Array, by: list[str], message: str) -> None:
    rows = pa.table({"k": column, **({"k2": column} if len(by) > 1 else {})})
    with pytest.raises(ColumnError, match=message):
        group(rows, by)


def test_categories_of_numbers_are_the_numbers() -> None:
    """A data frame's categories come out of a Parquet file as a dictionary."""
    plain = pa.table({"k": pa.array([7, 9, None, 7]), "other": ["a", "b", "b", "a"]})
    encoded = plain.set_column(0, "k", plain.column("k").combine_chunks().dictionary_encode())
    for by in (["k"], ["k", "other"]):
        found, expected = group(one_form(encoded, by), by), group(plain, by)
        assert found.codes.tolist() == expected.codes.tolist()
        assert found.keys.to_pylist() == expected.keys.to_pylist()
