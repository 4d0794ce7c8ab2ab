"""How rows fall into batches does not show in results: the same rows, cut elsewhere, end the same.

A watermark goes with the rows, so each case gives it after the same row; only the cuts between differ.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs import operators as lib
from reprise.spark_jobs.contract import Inbox, Operator
from reprise.spark_jobs.operators.frames import END_OF_TIME
from reprise.spark_jobs.operators.testing import inbox, run
from tests.support.examples import examples

S = 1_000_000
SCHEMA = pa.schema(
    {"side": pa.string(), "time": pa.int64(), "key": pa.string(), "zone": pa.float64(), "value": pa.int64()}
)
row = st.fixed_dictionaries(
    {
        "side": st.sampled_from(["left", "right"]),
        "time": st.integers(-6, 12).map(lambda half: half * S // 2),
        "key": st.sampled_from(["a", "b", "ä\0", None]),
        "zone": st.sampled_from([0.0, -0.0, float("nan"), 1.5, None]),
        "value": st.none() | st.integers(-(2**40), 2**40),
    }
)
AGGREGATES = {
    "n": "count()",
    "c": "count(value)",
    "s": "sum(value)",
    "low": "min(value)",
    "high": "max(value)",
}
FINAL: dict[str, tuple[Callable[[], Operator], tuple[str, ...]]] = {
    "tumbling": (lambda: lib.TumblingWindow(size="2s", keys=["key", "zone"], aggregate=AGGREGATES), ()),
    "sliding": (
        lambda: lib.SlidingWindow(size="3s", slide="1s", keys=["zone"], aggregate=AGGREGATES, lateness="1s"),
        (),
    ),
    "sessions": (
        lambda: lib.SessionWindow(gap="1s", keys=["zone"], aggregate=AGGREGATES, lateness="1s"),
        (),
    ),
    "join": (
        lambda: lib.WindowedJoin(left="left", right="right", keys=["key"], within="1s", lateness="1s"),
        (),
    ),
    "join-full": (
        lambda: lib.WindowedJoin(
            left="left",
            right="right",
            keys=["key"],
            within="1s",
            lateness="1s",
            how="full",
            left_columns={"value": "int64"},
            right_columns={"zone": "float64", "value": "int64"},
        ),
        (),
    ),
    "deduplicate": (lambda: lib.Deduplicate(keys=["zone"], within="1s", lateness="1s"), ()),
    "map": (lambda: lib.Map(select=["*", "value * 2 AS twice"], where="value > 0"), ()),
}
CHANGES: dict[str, tuple[Callable[[], Operator], tuple[str, ...]]] = {
    "aggregate": (lambda: lib.KeyedAggregate(keys=["zone", "key"], aggregate=AGGREGATES), ("zone", "key")),
    "latest": (lambda: lib.Latest(keys=["zone"]), ("zone",)),
    "tumbling-updates": (
        lambda: lib.TumblingWindow(size="2s", keys=["zone"], aggregate=AGGREGATES, emit="updates"),
        ("window_end", "zone"),
    ),
}


def inboxes(rows: list[dict[str, Any]], cuts: set[int], two_sided: bool, mark: int | None) -> list[Inbox]:
    """The rows in batches that end at `cuts`; one batch, whose rows are the last, moves the watermark to `mark`."""
    ends = [*sorted(cuts & set(range(len(rows)))), len(rows)]
    found, begin = [], 0
    for number, end in enumerate(ends, 1):
        part = pa.Table.from_pylist(rows[begin:end], SCHEMA)
        sides = {"left": "left", "right": "right"} if two_sided else {"input": ""}
        tables = {
            name: part.filter(pa.array([side in ("", s) for s in part["side"].to_pylist()], pa.bool_()))
            for name, side in sides.items()
        }
        found.append(inbox(number, tables, mark if end == len(rows) else None))
        begin = end
    return found


def plain(value: Any) -> str:
    return repr(value + 0.0 if isinstance(value, float) else value)


def told(outputs: list[pa.Table | None]) -> list[dict[str, str]]:
    return [
        {k: plain(v) for k, v in r.items()} for out in outputs if out is not None for r in out.to_pylist()
    ]


case = st.tuples(
    st.lists(row, max_size=10),
    st.lists(row, max_size=10),
    st.integers(-2, 4).map(lambda second: second * S),
    st.sets(st.integers(1, 9)),
    st.sets(st.integers(1, 9)),
)


def stream(operator: Operator, drawn: Any, cut: bool, two_sided: bool) -> list[pa.Table | None]:
    """Rows, then a watermark, then more rows of which some are late, then the end."""
    before, after, mark, cuts, more_cuts = drawn
    first = inboxes(before, cuts if cut else set(), two_sided, mark)
    second = inboxes(after, more_cuts if cut else set(), two_sided, END_OF_TIME)
    return run(operator, [*first, *second])


@pytest.mark.parametrize("name", FINAL)
@examples(25)
@given(drawn=case)
def test_complete_results_are_the_same_rows_wherever_batches_are_cut(name: str, drawn: Any) -> None:
    make, _ = FINAL[name]
    whole, pieces = (told(stream(make(), drawn, cut, name.startswith("join"))) for cut in (False, True))
    if name in ("map", "deduplicate"):
        assert pieces == whole
    else:
        assert sorted(map(str, pieces)) == sorted(map(str, whole))


@pytest.mark.parametrize("name", CHANGES)
@examples(25)
@given(drawn=case)
def test_who_keeps_the_last_row_of_each_key_holds_the_same_in_the_end(name: str, drawn: Any) -> None:
    make, keys = CHANGES[name]
    held: list[dict[tuple[str, ...], dict[str, str]]] = []
    for cut in (False, True):
        held.append({tuple(r[k] for k in keys): r for r in told(stream(make(), drawn, cut, False))})
    assert held[0] == held[1]


@examples(25)
@given(drawn=case)
def test_dropped_rows_are_counted_alike_wherever_batches_are_cut(drawn: Any) -> None:
    for name in ("tumbling", "sliding", "sessions", "join", "join-full", "deduplicate"):
        counts = []
        for cut in (False, True):
            operator = FINAL[name][0]()
            state = operator.initial(None)  # type: ignore[arg-type]
            before, after, mark, cuts, more_cuts = drawn
            for each in [
                *inboxes(before, cuts if cut else set(), name == "join", mark),
                *inboxes(after, more_cuts if cut else set(), name == "join", END_OF_TIME),
            ]:
                state, _ = operator.step(state, each)
            counts.append(operator.counters(state)["late_rows"])
        assert counts[0] == counts[1]
