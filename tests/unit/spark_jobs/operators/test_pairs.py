"""The join that forgets nothing, against nested loops; and windows by when batches are due."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import Join, RunningAggregate
from reprise.spark_jobs.operators.batch_windows import BatchWindows, parse_windows
from reprise.spark_jobs.operators.frames import ColumnError
from reprise.spark_jobs.operators.pairs import Side
from reprise.spark_jobs.operators.testing import PLACE, check_recovery, inbox, run
from tests.support.examples import examples

S = 1_000_000
keys = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([1, 2]))
batches = st.lists(st.tuples(st.lists(keys, max_size=5), st.lists(keys, max_size=5)), min_size=1, max_size=7)


def table(rows: list[tuple[str | None, int]], value: str, first: int) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([k for k, _ in rows], pa.string()),
            "z": pa.array([z for _, z in rows], pa.int64()),
            value: pa.array(range(first, first + len(rows)), pa.int64()),
        }
    )


@examples(50)
@given(batches, st.none() | st.integers(1, 4), st.integers(1, 4))
def test_every_pair_comes_once_with_its_second_half(drawn: Any, size: int | None, first: int) -> None:
    windows = {} if size is None else {"size": f"{size}s", "interval": "1s", "first": f"{min(first, size)}s"}
    join = Join(left="l", right="r", keys=["k", "z"], **windows)  # type: ignore[arg-type]
    left: list[Any] = []
    right: list[Any] = []
    inboxes = []
    for number, (some, more) in enumerate(drawn, 1):
        inboxes.append(inbox(number, {"l": table(some, "x", len(left)), "r": table(more, "y", len(right))}))
        left += [(number, k) for k in some]
        right += [(number, k) for k in more]

    def window(batch: int) -> int:
        begin = min(first, size or 0)
        return 0 if size is None or batch - 1 < begin else 1 + (batch - 1 - begin) // size

    expected = {
        (max(b, c), i, j)
        for i, (b, k) in enumerate(left)
        for j, (c, m) in enumerate(right)
        if k == m and k[0] is not None and window(b) == window(c)
    }
    outputs = check_recovery(join, inboxes)
    found = [
        (b, r["x"], r["y"]) for b, out in enumerate(outputs, 1) if out is not None for r in out.to_pylist()
    ]
    assert len(found) == len(set(found))
    assert set(found) == expected
    for out in outputs:
        head = ["window_start", "window_end"] if size else []
        assert out is None or out.column_names == [*head, "k", "z", "x", "y"]


@examples(60)
@given(
    st.lists(st.lists(st.integers(0, 6), max_size=9), max_size=12), st.lists(st.integers(0, 8), max_size=8)
)
def test_rows_are_found_by_key_in_the_order_in_which_they_came(
    added: list[list[int]], asked: list[int]
) -> None:
    side, every = Side(), []
    for slots in added:
        if slots:
            side.add(pa.table({"slot": slots}), np.array(slots))
            every += slots
    who, numbers = side.find(np.array(asked, np.int64))
    expected = [(i, n) for i, slot in enumerate(asked) for n, held in enumerate(every) if held == slot]
    assert list(zip(who.tolist(), numbers.tolist(), strict=True)) == expected


def test_a_window_that_ends_takes_its_rows_with_it() -> None:
    join = Join(left="l", right="r", keys=["k", "z"], size="2s", interval="1s")
    state = join.initial(PLACE)
    state, _ = join.step(state, inbox(1, {"l": table([("a", 1)], "x", 0)}))
    state, _ = join.step(state, inbox(2, {"l": table([("b", 1)], "x", 1)}))
    assert join.counters(state) == {"keys": 2, "left_rows": 2, "right_rows": 0}
    state, out = join.step(state, inbox(3, {"r": table([("a", 1)], "y", 0)}))
    assert out is None
    assert join.counters(state) == {"keys": 1, "left_rows": 0, "right_rows": 1}


def test_columns_of_both_sides_are_told_apart() -> None:
    join = Join(left="l", right="r", keys=["k", "z"], suffix="_r")
    (out,) = run(join, [inbox(1, {"l": table([("a", 1)], "x", 0), "r": table([("a", 1)], "x", 7)})])
    assert out is not None and out.to_pylist() == [{"k": "a", "z": 1, "x": 0, "x_r": 7}]
    assert join.output_columns({"l": ("k", "z", "x"), "r": ("z", "x", "k", "w")}) == (
        "k",
        "z",
        "x",
        "x_r",
        "w",
    )
    assert join.output_columns({"l": ("k", "z", "x"), "r": None}) is None
    with pytest.raises(SpecError, match="two columns of the output would be called 'x_r'"):
        join.output_columns({"l": ("k", "z", "x", "x_r"), "r": ("k", "z", "x")})
    twice = table([("a", 1)], "x", 0).append_column("x_r", pa.array([1]))
    with pytest.raises(ColumnError, match="'x_r'"):
        run(join, [inbox(1, {"l": twice, "r": table([("a", 1)], "x", 7)})])


def test_batches_are_in_the_window_in_which_they_are_due() -> None:
    windows = BatchWindows(size=10 * S, interval=S // 2, first=10 * S)
    assert [windows.of(b) for b in (1, 20, 21, 40, 41)] == [
        *[(0, 10 * S)] * 2, *[(10 * S, 20 * S)] * 2, (20 * S, 30 * S)
    ]  # fmt: skip
    shorter = BatchWindows(size=10 * S, interval=S // 2, first=5 * S)
    assert [shorter.of(b) for b in (10, 11, 30, 31)] == [
        (0, 5 * S), (5 * S, 15 * S), (5 * S, 15 * S), (15 * S, 25 * S)
    ]  # fmt: skip
    assert parse_windows(None, None, None) is None


@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"size": "10s"}, "interval"),
        ({"interval": "1s"}, "interval"),
        ({"first": "1s"}, "first"),
        ({"size": "0s", "interval": "1s"}, "size"),
        ({"size": "10s", "interval": "0s"}, "interval"),
        ({"size": "10s", "interval": "1s", "first": "11s"}, "first"),
        ({"keys": []}, "keys"),
        ({"right": "l"}, "right"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as caught:
        Join(**{"left": "l", "right": "r", "keys": ["k"], **parameters})
    assert caught.value.field == field
    if field not in ("keys", "right"):
        with pytest.raises(SpecError) as caught:
            RunningAggregate(**{"keys": ["k"], "aggregate": {"n": "count()"}, **parameters})
        assert caught.value.field == field


def test_inputs_without_the_keys_are_refused() -> None:
    join = Join(left="l", right="r", keys=["k"])
    for inputs in ({"l": ("x",), "r": ("k",)}, {"l": ("k",), "r": ("x",)}):
        with pytest.raises(SpecError, match="no column 'k'"):
            join.output_columns(inputs)  # type: ignore[arg-type]
