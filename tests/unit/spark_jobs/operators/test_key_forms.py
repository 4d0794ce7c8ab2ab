"""Keys of floats come out in one form, and group as docs/operators.md says: every keyed operator against plain Python.

NaN has many bit patterns and zero has two. Reference: `key` of a row here is the name of its value, whatever its bits are.
"""

from __future__ import annotations

import inspect
import math
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs import operators as lib
from reprise.spark_jobs.contract import Inbox, Operator
from reprise.spark_jobs.operators.frames import END_OF_TIME
from reprise.spark_jobs.operators.testing import PLACE, check_recovery, inbox, stored
from reprise.spark_jobs.topology.routing import hash_rows, split
from tests.support.examples import examples

S = 1_000_000
FORMS: dict[str, list[tuple[int, int]]] = {
    "nan": [
        (0x7FF8 << 48, 0x7FC0 << 16),
        (0xFFF8 << 48, 0xFFC0 << 16),
        ((0x7FF8 << 48) + 1, (0x7FC0 << 16) + 1),
        ((0xFFF8 << 48) + 1, (0xFFC0 << 16) + 1),
    ],
    "zero": [(0, 0), (1 << 63, 1 << 31)],
    "half": [(0x3FE0 << 48, 0x3F00 << 16)],
    "least": [(0xFFF0 << 48, 0xFF80 << 16)],
    "null": [(0, 0)],
}
"""Bits of each value, as a float of 64 and of 32 bits; those that come out first."""
VALUES = {"nan": math.nan, "zero": 0.0, "half": 0.5, "least": -math.inf, "null": None}


class Row(NamedTuple):
    """A row; it has the time `n` seconds."""

    key: str
    form: int
    side: str
    n: int


Batches = list[list[Row]]
Result = list[tuple[Any, ...]]


def by_key(batches: Batches) -> Iterator[tuple[str, list[Row]]]:
    rows = [row for batch in batches for row in batch]
    for key in dict.fromkeys(row.key for row in rows):
        yield key, [row for row in rows if row.key == key]


def windows(batches: Batches, size: int, slide: int) -> Result:
    return [
        (key, end * S, len(own), sum(r.n for r in own))
        for key, rows in by_key(batches)
        for end in range(slide, 60, slide)
        if (own := [r for r in rows if end - size <= r.n < end])
    ]


def sessions(batches: Batches) -> Result:
    found = []
    for key, rows in by_key(batches):
        begins = [at for at, r in enumerate(rows) if not at or r.n - rows[at - 1].n >= 3]
        for first, last in zip(begins, [*begins[1:], len(rows)], strict=True):
            found.append((key, (rows[last - 1].n + 3) * S, last - first, sum(r.n for r in rows[first:last])))
    return found


def first_ones(batches: Batches) -> Result:
    found = []
    for key, rows in by_key(batches):
        given: list[int] = []
        for row in rows:
            if not given or row.n - given[-1] > 3:
                given.append(row.n)
        found += [(key, n) for n in given]
    return found


def pairs(batches: Batches, within: int) -> Result:
    return [
        (key, one.n, other.n)
        for key, rows in by_key(batches)
        for one in rows
        for other in rows
        if key != "null" and (one.side, other.side) == ("left", "right") and abs(one.n - other.n) <= within
    ]


def alone(batches: Batches) -> Result:
    inner = pairs(batches, 3)
    return [
        *inner,
        *(
            (key, row.n, None) if row.side == "left" else (key, None, row.n)
            for key, rows in by_key(batches)
            for row in rows
            if not any(key == pair[0] and row.n in pair[1:] for pair in inner)
        ),
    ]


def looked_up(batches: Batches) -> Result:
    latest: dict[str, int] = {}
    found = []
    for batch in batches:
        latest |= {row.key: row.n for row in batch if row.side == "right" and row.key != "null"}
        found += [(row.key, row.n, latest.get(row.key)) for row in batch if row.side == "left"]
    return found


def best(batches: Batches) -> Result:
    found = []
    for key, rows in by_key(batches):
        latest = {row.n % 3: row.n for row in rows}
        ranked = sorted((n for n in latest.values() if n > 0), reverse=True)[:2]
        found += [(key, n, rank) for rank, n in enumerate(ranked, 1)]
    return found


def running(batches: Batches) -> Result:
    return [
        (key, n, sum(r.n for r in rows[:n])) for key, rows in by_key(batches) for n in range(1, len(rows) + 1)
    ]


def counted(batches: Batches) -> Result:
    return [
        (key, 2, one.n + other.n)
        for key, rows in by_key(batches)
        for one, other in zip(rows[::2], rows[1::2], strict=False)
    ]


AGGREGATE = {"rows": "count()", "s": "sum(n)"}
SIDES = {"left": "left", "right": "right", "keys": ["k"]}
CASES: dict[str, tuple[Operator, tuple[str, ...], Callable[[Batches], Result]]] = {
    "KeyedCount": (
        lib.KeyedCount(keys=["k"]),
        ("k", "count"),
        lambda b: [(key, len(rows)) for key, rows in by_key(b)],
    ),
    "KeyedAggregate": (
        lib.KeyedAggregate(keys=["k"], aggregate=AGGREGATE),
        ("k", "rows", "s"),
        lambda b: [(key, len(rows), sum(r.n for r in rows)) for key, rows in by_key(b)],
    ),
    "Latest": (
        lib.Latest(keys=["k"]),
        ("k", "n"),
        lambda b: [(key, rows[-1].n) for key, rows in by_key(b)],
    ),
    "TopK": (lib.TopK(k=2, by="n", keys=["third"], per=["k"]), ("k", "n", "rank"), best),
    "RunningAggregate": (
        lib.RunningAggregate(keys=["k"], aggregate=AGGREGATE),
        ("k", "rows", "s"),
        running,
    ),
    "CountWindow": (
        lib.CountWindow(size=2, keys=["k"], aggregate=AGGREGATE),
        ("k", "rows", "s"),
        counted,
    ),
    "TumblingWindow": (
        lib.TumblingWindow(size="4s", keys=["k"], aggregate=AGGREGATE),
        ("k", "window_end", "rows", "s"),
        lambda b: windows(b, 4, 4),
    ),
    "SlidingWindow": (
        lib.SlidingWindow(size="4s", slide="2s", keys=["k"], aggregate=AGGREGATE),
        ("k", "window_end", "rows", "s"),
        lambda b: windows(b, 4, 2),
    ),
    "SessionWindow": (
        lib.SessionWindow(gap="3s", keys=["k"], aggregate=AGGREGATE),
        ("k", "window_end", "rows", "s"),
        sessions,
    ),
    "Deduplicate": (lib.Deduplicate(keys=["k"], within="3s"), ("k", "n"), first_ones),
    "Join": (lib.Join(**SIDES), ("k", "n", "n_right"), lambda b: pairs(b, 99)),  # type: ignore[arg-type]
    "WindowedJoin": (
        lib.WindowedJoin(**SIDES, within="3s"),  # type: ignore[arg-type]
        ("k", "n", "n_right"),
        lambda b: pairs(b, 3),
    ),
    "WindowedJoin, full": (
        lib.WindowedJoin(
            **SIDES,  # type: ignore[arg-type]
            within="3s",
            how="full",
            left_columns={"n": "int64"},
            right_columns={"n": "int64"},
        ),
        ("k", "n", "n_right"),
        alone,
    ),
    "StreamTableJoin": (
        lib.StreamTableJoin(stream="left", table="right", keys=["k"], how="left", columns=["n"]),
        ("k", "n", "n_table"),
        looked_up,
    ),
}
LAST_OF_KEY = {"KeyedCount", "KeyedAggregate", "Latest", "TopK"}


def test_each_operator_with_keys_is_here() -> None:
    named = {
        name
        for name in lib.__all__
        if (cls := getattr(lib, name)) is not lib.ColumnError and "keys" in inspect.signature(cls).parameters
    }
    assert named == {name.partition(",")[0] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_a_batch_whose_keys_are_all_null_needs_no_type(name: str) -> None:
    operator, columns, reference = CASES[name]
    keys = ["null", "half", "null"]
    batches = [
        [Row(key, 0, side, 2 * n + m) for m, side in enumerate(("left", "right"))]
        for n, key in enumerate(keys)
    ]
    boxes = []
    for each in inboxes(batches, 64, "Join" in name, (0, 1)):
        tables = {i.operator: i.table for i in each.inputs}
        for side, rows in tables.items():
            if rows.column("k").null_count:
                tables[side] = rows.set_column(0, "k", pa.nulls(rows.num_rows))
        boxes.append(inbox(each.batch, tables, each.watermark))
    found = told(name, columns, [out for out in check_recovery(operator, boxes) if out is not None])
    assert Counter(found) == Counter(bits((VALUES[key], *rest)) for key, *rest in reference(batches))


def told(name: str, columns: tuple[str, ...], outs: list[pa.Table]) -> Result:
    """The rows that are given; where an operator gives changes, the last of each key."""
    found: Result = []
    for out in outs:
        new = [bits(map(r.get, columns)) for r in out.to_pylist()]
        if name in LAST_OF_KEY:
            found = [r for r in found if r[0] not in {n[0] for n in new}]
        found += new
    return found


def table(rows: list[Row], width: int) -> pa.Table:
    bits = np.array([FORMS[r.key][r.form % len(FORMS[r.key])][width == 32] for r in rows], f"uint{width}")
    nulls = np.array([r.key == "null" for r in rows], np.bool_)
    return pa.table(
        {
            "k": pa.array(bits.view(f"float{width}"), mask=nulls),
            "n": pa.array([r.n for r in rows], pa.int64()),
            "third": pa.array([r.n % 3 for r in rows], pa.int64()),
            "time": pa.array([r.n * S for r in rows], pa.int64()),
        }
    )


def inboxes(batches: Batches, width: int, sides: bool, of: tuple[int, int]) -> list[Inbox]:
    """The batches of partition number `of[0]` among `of[1]`, and the end of the stream."""
    found = []
    for number, rows in enumerate(batches, 1):
        named = {side: table([r for r in rows if r.side == side], width) for side in ("left", "right")}
        tables = named if sides else {"input": table(rows, width)}
        parts = {name: split(t, ["k"], of[1]).get(of[0], t.slice(0, 0)) for name, t in tables.items()}
        found.append(inbox(number, parts, watermark=rows[-1].n * S))
    return [*found, inbox(len(batches) + 1, {}, watermark=END_OF_TIME)]


def outputs(operator: Operator, batches: Batches, width: int, how: str) -> list[pa.Table]:
    """What one partition gives, or two; `restored` after each batch from stored tables, or `divided` after the first."""
    sides = "Join" in type(operator).__name__
    whole = inboxes(batches, width, sides, (0, 1))
    states, streams, found = [operator.initial(PLACE)], [whole], list[pa.Table | None]()
    if how == "two":
        states.append(operator.initial(PLACE))
    if how == "divided":
        states[0], out = operator.step(states[0], whole[0])
        found.append(out)
        tables = stored(operator.freeze(states[0])())
        parts = operator.split_state(
            tables, lambda keys: (hash_rows(keys, ["k"]) % np.uint64(2)).astype(np.int64), 2
        )
        states = [operator.restore(PLACE, stored(operator.merge_states([part]))) for part in parts]
    if len(states) == 2:
        streams = [inboxes(batches, width, sides, (n, 2))[how == "divided" :] for n in (0, 1)]
    for begun, stream in zip(states, streams, strict=True):
        state = begun
        for each in stream:
            if how == "restored":
                state = operator.restore(PLACE, stored(operator.freeze(state)()))
            state, out = operator.step(state, each)
            found.append(out)
    return [out for out in found if out is not None]


def bits(cells: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(struct.pack("<d", cell) if isinstance(cell, float) else cell for cell in cells)


row = st.tuples(st.sampled_from(sorted(FORMS)), st.integers(0, 3), st.sampled_from(["left", "right"]))


@pytest.mark.parametrize("name", CASES)
@examples(12)
@given(
    rows=st.lists(row, min_size=1, max_size=12),
    cuts=st.sets(st.integers(1, 11)),
    width=st.sampled_from([32, 64]),
    how=st.sampled_from(["one", "restored", "two", "divided"]),
)
def test_forms_of_a_key_are_one_key_and_come_out_as_one(
    name: str, rows: list[tuple[str, int, str]], cuts: set[int], width: int, how: str
) -> None:
    operator, columns, reference = CASES[name]
    stream = [Row(*each, n) for n, each in enumerate(rows)]
    batches = [list(part) for _, part in groupby(stream, key=lambda r: sum(cut <= r.n for cut in cuts))]
    expected = [bits((VALUES[key], *rest)) for key, *rest in reference(batches)]
    found = told(name, columns, outputs(operator, batches, width, how))
    assert Counter(found) == Counter(expected)
