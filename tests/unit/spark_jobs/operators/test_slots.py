"""Accumulator arrays: against a dict of numbers, and what was frozen does not move."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.operators.aggregates import ROWS
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.slots import Accumulators, merge, restore
from tests.support.examples import examples

NAMES = (ROWS, "sum:v", "min:v", "max:v")
update = st.dictionaries(st.integers(0, 600), st.integers(-9, 9), min_size=1, max_size=5)


def parts(values: dict[int, int]) -> dict[str, Any]:
    numbers = np.array(list(values.values()), np.int64)
    return {ROWS: np.ones(len(numbers), np.int64), "sum:v": numbers, "min:v": numbers, "max:v": numbers}


def told(held: Accumulators, slots: list[int]) -> list[tuple[int, ...]]:
    found = held.gather(np.array(slots, np.int64), NAMES)
    return list(zip(*(found[name].tolist() for name in NAMES), strict=True)) if found else []


def expected(seen: dict[int, list[int]], slots: list[int]) -> list[tuple[int, ...]]:
    limits = np.iinfo(np.int64)
    return [
        (len(v), sum(v), min(v, default=limits.max), max(v, default=limits.min))
        for v in (seen.get(slot, []) for slot in slots)
    ]


@examples(40)
@given(st.lists(st.tuples(update, st.booleans()), min_size=1, max_size=8))
def test_values_are_those_of_a_dict_and_a_frozen_state_is_as_it_was(
    stream: list[tuple[dict[int, int], bool]],
) -> None:
    held, seen, frozen = Accumulators(), dict[int, list[int]](), []
    for values, freeze in stream:
        held.update(np.array(list(values), np.int64), parts(values))
        for slot, value in values.items():
            seen.setdefault(slot, []).append(value)
        asked = [*range(0, 700, 41), *seen]
        assert told(held, asked) == expected(seen, asked)
        assert held.present().tolist() == sorted(seen)
        assert held.size == max(seen) + 1
        if freeze:
            frozen.append((held.freeze(), {slot: list(v) for slot, v in seen.items()}))
    for encode, then in frozen:
        again = restore(encode())
        assert told(again, sorted({*range(0, 610, 13), *then})) == expected(
            then, sorted({*range(0, 610, 13), *then})
        )
        again.update(np.array([0], np.int64), parts({0: 5}))
        assert encode()["rows"].to_pylist() == [len(then.get(slot, [])) for slot in range(max(then) + 1)]


@examples(40)
@given(update, st.data())
def test_slots_can_be_renumbered(values: dict[int, int], data: st.DataObject) -> None:
    held = Accumulators()
    held.update(np.array(list(values), np.int64), parts(values))
    kept = sorted(data.draw(st.sets(st.integers(0, 600), max_size=20)))
    fewer = held.take(np.array(kept, np.int64))
    own = {new: [values[old]] for new, old in enumerate(kept) if old in values}
    asked = list(range(len(kept) + 2))
    assert told(fewer, asked) == expected(own, asked)


@examples(40)
@given(st.lists(update, min_size=1, max_size=4))
def test_several_are_put_together_in_order(all_values: list[dict[int, int]]) -> None:
    held, seen = [], dict[int, list[int]]()
    for values in all_values:
        held.append(Accumulators())
        held[-1].update(np.array(list(values), np.int64), parts(values))
        for slot, value in values.items():
            seen.setdefault(slot, []).append(value)
    slots = np.array(sorted(seen), np.int64)
    found = merge(held, slots, NAMES)
    own = list(zip(*(found[name].tolist() for name in NAMES), strict=True))
    assert own == expected(seen, sorted(seen))


def test_a_type_that_changes_is_refused_by_name() -> None:
    held = Accumulators()
    held.update(np.array([0]), {ROWS: np.array([1]), "sum:v": np.array([1])})
    with pytest.raises(ColumnError, match="sum:v changed its type from int64 to float64 between batches"):
        held.update(np.array([0]), {ROWS: np.array([1]), "sum:v": np.array([1.0])})


def test_nothing_was_written_and_nothing_is_told() -> None:
    held = Accumulators()
    assert held.gather(np.array([0, 1]), NAMES) == {}
    assert held.freeze()().num_columns == 0
    assert restore(held.freeze()()).size == 0


def test_slots_behind_the_last_are_cut_when_renumbered() -> None:
    held = Accumulators()
    held.update(np.array([299], np.int64), parts({299: 4}))
    assert told(held.take(np.array([299, 300, 301], np.int64)), [0, 1]) == expected({0: [4]}, [0, 1])
    assert held.take(np.array([299, 300], np.int64)).size == 1
