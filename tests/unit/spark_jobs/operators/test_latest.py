"""The latest row of each key, kept by appending: what is given, frozen and restored, also after rows are thrown out."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from reprise.spark_jobs.operators import latest as module
from reprise.spark_jobs.operators.keys import group
from reprise.spark_jobs.operators.latest import LatestRows


def rows(*pairs: tuple[str | None, int]) -> pa.Table:
    keys, values = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table({"k": pa.array(keys, pa.string()), "v": pa.array(values, pa.int64())})


def pairs(table: pa.Table) -> list[tuple[str | None, int]]:
    return [(row["k"], row["v"]) for row in table.to_pylist()]


def frozen(state: LatestRows) -> list[tuple[str | None, int]]:
    return pairs(state.freeze()()["latest"])


def test_an_update_gives_the_last_row_of_each_key_by_first_appearance() -> None:
    state = LatestRows(["k"])
    assert pairs(state.update(rows(("b", 1), ("a", 2), ("b", 3)))) == [("b", 3), ("a", 2)]
    assert pairs(state.update(rows(("c", 4), ("a", 5)))) == [("c", 4), ("a", 5)]
    assert frozen(state) == [("b", 3), ("a", 5), ("c", 4)]


def test_null_is_a_key_like_others() -> None:
    state = LatestRows(["k"])
    state.update(rows((None, 1), ("a", 2), (None, 3)))
    assert frozen(state) == [(None, 3), ("a", 2)]


def test_nothing_and_no_rows_are_no_change() -> None:
    state = LatestRows(["k"])
    assert state.freeze()()["latest"].num_rows == 0
    state.update(rows(("a", 1)))
    assert pairs(state.update(rows())) == []
    assert frozen(state) == [("a", 1)]
    empty = LatestRows.restore(["k"], LatestRows(["k"]).freeze()())
    assert empty.index.size == 0


def test_keys_are_found_and_their_rows_given() -> None:
    state = LatestRows(["k"])
    state.update(rows(("a", 1), ("b", 2)))
    found = state.find(group(rows(("b", 0), ("z", 0), ("a", 0)), ["k"]))
    assert found.tolist() == [1, -1, 0]
    assert pairs(state.rows(np.array([1, 0]))) == [("b", 2), ("a", 1)]


def test_what_is_frozen_stays_as_it_was() -> None:
    state = LatestRows(["k"])
    state.update(rows(("a", 1), ("b", 2)))
    before = state.freeze()
    state.update(rows(("a", 9), ("c", 3)))
    assert pairs(before()["latest"]) == [("a", 1), ("b", 2)]
    assert frozen(state) == [("a", 9), ("b", 2), ("c", 3)]


@pytest.mark.parametrize("seed", range(5))
def test_throwing_out_old_rows_changes_nothing_that_can_be_seen(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, known = random.Random(seed), dict[str, int]()
    monkeypatch.setattr(module, "_COMPACT_FROM", 8)
    compact = LatestRows(["k"])
    most, kept = 0, list[tuple[object, list[tuple[str | None, int]]]]()
    for number in range(40):
        batch = [(rng.choice("abcdef"), number * 10 + i) for i in range(rng.randrange(5))]
        compact.update(rows(*batch))
        known |= dict(batch)
        assert frozen(compact) == list(known.items()), "keys in the order of their first appearance"
        most = max(most, compact._rows.size)
        kept.append((compact.freeze(), list(known.items())))
        if rng.random() < 0.2:
            compact = LatestRows.restore(["k"], compact.freeze()())
    assert most <= 8 + 2 * len(known) + 5, "old rows go"
    assert all(pairs(later()["latest"]) == then for later, then in kept)  # type: ignore[operator]
