"""States of library operators divided by key and put together: nothing is lost, doubled or put elsewhere, and what parts
give from then on is what the whole would have given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from reprise.spark_jobs import operators as lib
from reprise.spark_jobs.contract import Operator, Place, Tables
from reprise.spark_jobs.operators.rescaling import (
    merged_meta,
    offsets,
    panes_of,
    part_of_meta,
    slots_of_parts,
    stacked,
    tables_of_panes,
)
from reprise.spark_jobs.operators.slots import Accumulators
from reprise.spark_jobs.operators.testing import PLACE, inbox

PARTS = 3
SECOND = 1_000_000


def targets(keys: pa.Table) -> np.ndarray[Any, np.dtype[np.int64]]:
    """By the number in the key."""
    return np.array([int(k[1:]) % PARTS for k in keys["k"].to_pylist()], np.int64)


def batch(number: int, keys: Sequence[int]) -> pa.Table:
    count = len(keys)
    return pa.table(
        {
            "k": [f"k{key}" for key in keys],
            "v": list(range(number * 100, number * 100 + count)),
            "t": pa.array([number * SECOND + i for i in range(count)], pa.timestamp("us")),
        }
    )


OPERATORS: dict[str, Callable[[], Operator]] = {
    "count": lambda: lib.KeyedCount(keys=["k"]),
    "aggregate": lambda: lib.KeyedAggregate(
        keys=["k"], aggregate={"n": "count()", "s": "sum(v)", "m": "max(v)"}
    ),
    "latest": lambda: lib.Latest(keys=["k"]),
    "deduplicate": lambda: lib.Deduplicate(keys=["k"], time="t", within="1m"),
    "window": lambda: lib.TumblingWindow(
        keys=["k"], aggregate={"n": "count()", "s": "sum(v)"}, size="4s", time="t"
    ),
}
BATCHES = [batch(1, [0, 1, 2, 3, 0]), batch(2, [4, 1, 7]), batch(3, [2, 2, 8])]
LATER = [batch(4, [1, 0, 9, 4]), batch(5, [2, 5]), batch(9, [1])]


def state_after(operator: Operator, batches: Sequence[pa.Table], state: Any = None, first: int = 1) -> Any:
    state = operator.initial(PLACE) if state is None else state
    for number, table in enumerate(batches, first):
        state, _ = operator.step(state, inbox(number, table, watermark=number * SECOND))
    return state


def given(operator: Operator, state: Any, batches: Sequence[pa.Table], first: int) -> Counter[str]:
    """All rows that come out, whatever their order."""
    found: Counter[str] = Counter()
    for number, table in enumerate(batches, first):
        state, out = operator.step(state, inbox(number, table, watermark=number * SECOND))
        found.update(map(str, out.to_pylist() if out is not None else []))
    return found


def mine(table: pa.Table, index: int) -> pa.Table:
    return table.filter(pa.array(targets(table) == index))


def restored(make: Callable[[], Operator], tables: Tables, index: int = 0) -> tuple[Operator, Any]:
    operator = make()
    return operator, operator.restore(Place("op", index, PARTS), tables)


def frozen(operator: Operator, state: Any) -> Tables:
    return dict(operator.freeze(state)())


@pytest.mark.parametrize("name", OPERATORS)
def test_parts_give_together_what_the_whole_would_have_given(name: str) -> None:
    make = OPERATORS[name]
    whole = make()
    state = state_after(whole, BATCHES)
    parts = whole.split_state(frozen(whole, state), targets, PARTS)
    assert len(parts) == PARTS
    together: Counter[str] = Counter()
    for index, tables in enumerate(parts):
        operator, part = restored(make, tables, index)
        together += given(operator, part, [mine(table, index) for table in LATER], 4)
    assert together == given(whole, state, LATER, 4)


@pytest.mark.parametrize("name", OPERATORS)
def test_what_was_divided_and_put_together_goes_on_as_it_would_have(name: str) -> None:
    make = OPERATORS[name]
    whole = make()
    state = state_after(whole, BATCHES)
    tables = frozen(whole, state)
    merged = whole.merge_states(whole.split_state(tables, targets, PARTS))
    operator, again = restored(make, merged)
    assert given(operator, again, LATER, 4) == given(whole, state, LATER, 4)


@pytest.mark.parametrize("name", OPERATORS)
def test_a_state_without_keys_is_divided_into_empty_ones(name: str) -> None:
    make = OPERATORS[name]
    whole = make()
    parts = whole.split_state(frozen(whole, whole.initial(PLACE)), targets, PARTS)
    merged = whole.merge_states(parts)
    operator, again = restored(make, merged)
    fresh = make()
    assert given(operator, again, BATCHES, 1) == given(fresh, fresh.initial(PLACE), BATCHES, 1)


@pytest.mark.parametrize("name", OPERATORS)
def test_all_keys_may_belong_to_one_part(name: str) -> None:
    make = OPERATORS[name]
    whole = make()
    state = state_after(whole, BATCHES)
    parts = whole.split_state(frozen(whole, state), lambda keys: np.full(keys.num_rows, 1), PARTS)
    operator, part = restored(make, parts[1], 1)
    assert given(operator, part, LATER, 4) == given(whole, state, LATER, 4)
    for index in (0, 2):
        operator, empty = restored(make, parts[index], index)
        fresh = make()
        assert given(operator, empty, LATER[:1], 4) == given(fresh, fresh.initial(PLACE), LATER[:1], 4)


def test_slots_of_each_part_are_ascending_and_each_is_somewhere() -> None:
    keys = pa.table({"k": ["k4", "k0", "k1", "k3"]})
    assert [part.tolist() for part in slots_of_parts(keys, targets, PARTS)] == [[1, 3], [0, 2], []]
    assert [part.tolist() for part in slots_of_parts(pa.table({}), targets, PARTS)] == [[], [], []]


def test_counters_are_of_the_first_part_and_sizes_of_each() -> None:
    meta = pa.table({"late": [3], "duplicates": [1], "slots": [9], "watermark": [7]})
    first, second = (part_of_meta(meta, number, {"slots": 4 + number}).to_pylist()[0] for number in (0, 1))
    assert first == {"late": 3, "duplicates": 1, "slots": 4, "watermark": 7}
    assert second == {"late": 0, "duplicates": 0, "slots": 5, "watermark": 7}
    assert merged_meta(
        [pa.table({k: [v] for k, v in one.items()}) for one in (first, second)]
    ).to_pylist() == [{"late": 3, "duplicates": 1, "slots": 9, "watermark": 7}]


def test_what_must_be_the_same_in_all_partitions_and_is_not_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"watermark differs between the partitions of one checkpoint: \['7', 'None'\]"
    ):
        merged_meta([pa.table({"watermark": pa.array([w], pa.int64())}) for w in (7, None)])


def test_types_of_meta_stay() -> None:
    meta = pa.table({"late": pa.array([3], pa.int32()), "closed": pa.array([None], pa.int64())})
    assert part_of_meta(meta, 1, {}).schema == meta.schema
    assert merged_meta([meta, meta]).schema == meta.schema


def test_what_is_before_each_part() -> None:
    assert offsets([3, 0, 2]) == [0, 3, 3]
    assert offsets([]) == []


def accumulators(*values: int) -> Accumulators:
    found = Accumulators()
    if values:
        found.put(np.arange(len(values)), {"rows": np.array(values, np.int64)})
    return found


def test_accumulators_are_stacked_after_what_is_before_them() -> None:
    found = stacked([accumulators(1, 2), accumulators(), accumulators(3)], [0, 2, 4])
    assert found.gather(np.arange(5), ["rows"])["rows"].tolist() == [1, 2, 0, 0, 3]
    assert stacked([accumulators()], [0]).size == 0


def test_panes_are_their_tables_and_an_empty_one_is_none() -> None:
    panes = {10: accumulators(1, 0, 2), 20: accumulators(0, 0), 30: accumulators(5)}
    tables = tables_of_panes(panes)
    again = panes_of(tables)
    assert {start: pane.gather(np.arange(3), ["rows"])["rows"].tolist() for start, pane in again.items()} == {
        10: [1, 0, 2], 30: [5, 0, 0],
    }  # fmt: skip
    assert tables_of_panes({20: accumulators(0, 0)}) == {}
    assert panes_of({}) == {}
