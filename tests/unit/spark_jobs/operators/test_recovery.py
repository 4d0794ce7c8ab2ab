"""Every operator of the library on random batches: restored anywhere it goes on with equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs import operators as lib
from reprise.spark_jobs.contract import Inbox, Operator
from reprise.spark_jobs.operators.testing import check_recovery, inbox
from tests.support.examples import examples
from tests.support.own_state import Own

SCHEMA = pa.schema({"time": pa.int64(), "key": pa.string(), "zone": pa.int64(), "value": pa.float64()})
SECOND = 1_000_000

row = st.fixed_dictionaries(
    {
        "time": st.integers(0, 12).map(lambda s: s * SECOND // 2),
        "key": st.sampled_from(["a", "b", "c", "", None]),
        "zone": st.integers(0, 2),
        # Numbers whose sum depends on the order in which they are added.
        "value": st.one_of(st.none(), st.sampled_from([0.1, 1e16, -1e16, 3.3, -0.0])),
    }
)
batch = st.tuples(st.lists(row, max_size=6), st.lists(row, max_size=4), st.integers(0, 3) | st.none())
stream = st.lists(batch, min_size=1, max_size=6)

OPERATORS: dict[str, Callable[[], Operator]] = {
    "own": lambda: Own({"key": pa.string(), "zone": pa.int64()}, "value"),
    "tumbling": lambda: lib.TumblingWindow(
        size="2s", keys=["key", "zone"], aggregate={"n": "count()", "m": "mean(value)", "s": "sum(value)"}
    ),
    "tumbling-updates": lambda: lib.TumblingWindow(
        size="1s", keys=["key"], aggregate={"n": "count(value)"}, emit="updates", lateness="1s"
    ),
    "sliding": lambda: lib.SlidingWindow(
        size="3s",
        slide="1s",
        keys=["zone"],
        aggregate={"low": "min(value)", "high": "max(time)", "n": "count()"},
    ),
    "sliding-updates": lambda: lib.SlidingWindow(
        size="2s", slide="1s", keys=["key"], aggregate={"n": "count()", "s": "sum(value)"}, emit="updates"
    ),
    "sliding-global": lambda: lib.SlidingWindow(size="2s", slide="1s", aggregate={"n": "count()"}),
    "sessions": lambda: lib.SessionWindow(
        gap="1s",
        keys=["key"],
        aggregate={"n": "count()", "s": "sum(value)", "m": "mean(value)"},
        lateness="1s",
    ),
    "aggregate": lambda: lib.KeyedAggregate(keys=["key"], aggregate={"s": "sum(value)", "z": "max(zone)"}),
    "count": lambda: lib.KeyedCount(keys=["key", "zone"]),
    "count-window": lambda: lib.CountWindow(
        size=3, keys=["key"], aggregate={"s": "sum(value)", "n": "count()"}
    ),
    "deduplicate": lambda: lib.Deduplicate(keys=["key", "zone"], within="1s", lateness="1s"),
    "latest": lambda: lib.Latest(keys=["key"]),
    "top": lambda: lib.TopK(k=2, by="value", keys=["key"]),
    "top-per": lambda: lib.TopK(k=1, by="zone", keys=["key"], per=["value"], positive=False),
    "top-of-batch": lambda: lib.TopK(k=2, by="value", keys=["key"], per=["zone"], scope="batch"),
    "join": lambda: lib.WindowedJoin(left="input", right="other", keys=["key"], within="1s"),
    "join-full": lambda: lib.WindowedJoin(
        left="input",
        right="other",
        keys=["key"],
        within="1s",
        how="full",
        left_columns={"zone": "int64", "value": "float64"},
        right_columns={"value": "float64"},
    ),
    "pairs": lambda: lib.Join(left="input", right="other", keys=["key", "zone"]),
    "pairs-windowed": lambda: lib.Join(
        left="input", right="other", keys=["key"], size="3s", interval="1s", first="2s"
    ),
    "running": lambda: lib.RunningAggregate(
        keys=["key"], aggregate={"n": "count()", "m": "mean(value)", "low": "min(value)"}, keep=["time"]
    ),
    "running-windowed": lambda: lib.RunningAggregate(
        keys=[], aggregate={"s": "sum(value)", "high": "max(zone)"}, size="2s", interval="1s"
    ),
    "lookup": lambda: lib.StreamTableJoin(stream="input", table="other", keys=["key"], how="left"),
    "map": lambda: lib.Map(select=["*", "value * 2 AS twice"], where="zone > 0"),
    "union": lambda: lib.Union(columns=["key", "time"]),
    "sink": lib.Sink,
}


def inboxes(
    batches: Sequence[tuple[list[dict[str, object]], list[dict[str, object]], int | None]],
) -> list[Inbox]:
    """Batches with watermarks that never go back."""
    result, mark = [], None
    for number, (left, right, step) in enumerate(batches, 1):
        if step is not None:
            mark = (mark or 0) + step * SECOND
        tables = {"input": pa.Table.from_pylist(left, SCHEMA), "other": pa.Table.from_pylist(right, SCHEMA)}
        result.append(inbox(number, tables, mark))
    return result


@pytest.mark.parametrize("name", OPERATORS)
@examples(15)
@given(batches=stream)
def test_restored_operator_goes_on_with_equal_bytes(name: str, batches: list[object]) -> None:
    check_recovery(OPERATORS[name](), inboxes(batches))  # type: ignore[arg-type]


def test_the_check_notices_a_state_that_is_not_saved() -> None:
    class Forgetful(lib.KeyedCount):
        def restore(self, place, tables):  # type: ignore[no-untyped-def]
            return self.initial(place)

    rows = pa.table({"key": ["a"]})
    with pytest.raises(AssertionError, match="restored after batch 1"):
        check_recovery(Forgetful(keys=["key"]), [inbox(1, rows), inbox(2, rows)])


def test_the_check_notices_a_frozen_state_that_still_changes() -> None:
    class Aliasing(lib.KeyedCount):
        def freeze(self, state):  # type: ignore[no-untyped-def]
            def too_late():  # type: ignore[no-untyped-def]
                return lib.KeyedCount.freeze(self, state)()

            return too_late

    rows = pa.table({"key": ["a"]})
    with pytest.raises(AssertionError, match="restored after batch"):
        check_recovery(Aliasing(keys=["key"]), [inbox(1, rows), inbox(2, rows), inbox(3, rows)])
