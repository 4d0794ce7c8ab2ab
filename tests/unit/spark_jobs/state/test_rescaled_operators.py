"""Every library operator with state, run in some partitions, stored, divided among others, and run on: each key gives what
it gives in a run that had the other number of partitions from the first batch on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Inbox, Input, Operator, Place, Tables
from reprise.spark_jobs.operators import (
    CountWindow,
    Deduplicate,
    Join,
    KeyedAggregate,
    Latest,
    RunningAggregate,
    SessionWindow,
    SlidingWindow,
    StreamTableJoin,
    TopK,
    TumblingWindow,
    WindowedJoin,
)
from reprise.spark_jobs.operators.paged import freezer
from reprise.spark_jobs.operators.testing import stored
from reprise.spark_jobs.pages import Parts
from reprise.spark_jobs.state.page_file import decode_pages, encode_pages, tables_alone
from reprise.spark_jobs.state.redistribution import redistributed
from reprise.spark_jobs.state.rescaling import Change, How, Routing, divisible
from reprise.spark_jobs.state.table_names import WATERMARK, watermark_table
from reprise.spark_jobs.topology import StreamTopology
from reprise.spark_jobs.topology.routing import split
from tests.support.examples import examples
from tests.support.own_state import Own

S = 1_000_000
AGGREGATES = {"n": "count()", "total": "sum(v)", "least": "min(v)", "mean": "mean(f)"}


@dataclass(frozen=True)
class Case:
    """One operator; rows fall to partitions by `by`, and its output is compared by `key`."""

    make: Callable[[], Operator]
    inputs: tuple[str, ...] = ("input",)
    by: tuple[str, ...] = ("k",)
    key: tuple[str, ...] = ("k", "g")
    copied: tuple[str, ...] = ()
    """Inputs that reach all partitions."""

    @property
    def how(self) -> How:
        return How.COPIED if self.copied else How.DIVIDED


CASES: dict[str, Case] = {
    "keyed": Case(lambda: KeyedAggregate(["k", "g"], AGGREGATES)),
    "count-window": Case(lambda: CountWindow(size=3, aggregate=AGGREGATES, keys=["k", "g"])),
    "own": Case(lambda: Own({"k": pa.string(), "g": pa.int32()}, "v")),
    "latest": Case(lambda: Latest(["k", "g"])),
    "running": Case(lambda: RunningAggregate(keys=["k", "g"], aggregate=AGGREGATES, keep=["time"])),
    "running-window": Case(
        lambda: RunningAggregate(keys=["k", "g"], aggregate=AGGREGATES, size="3s", interval="1s")
    ),
    "tumbling": Case(
        lambda: TumblingWindow(size="4s", aggregate=AGGREGATES, keys=["k", "g"], lateness="1s")
    ),
    "tumbling-updates": Case(
        lambda: TumblingWindow(size="4s", aggregate=AGGREGATES, keys=["k", "g"], emit="updates")
    ),
    "sliding": Case(lambda: SlidingWindow(size="6s", slide="2s", aggregate=AGGREGATES, keys=["k", "g"])),
    "sliding-updates": Case(
        lambda: SlidingWindow(size="6s", slide="2s", aggregate=AGGREGATES, keys=["k", "g"], emit="updates")
    ),
    "session": Case(lambda: SessionWindow(gap="2s", aggregate=AGGREGATES, keys=["k", "g"], lateness="2s")),
    "deduplicate": Case(lambda: Deduplicate(keys=["k", "g"], within="2s", lateness="2s")),
    "top": Case(lambda: TopK(k=2, by="v", keys=["g"], per=["k"]), key=("k",)),
    "windowed-join": Case(
        lambda: WindowedJoin(left="one", right="two", keys=["k", "g"], within="2s"), ("one", "two")
    ),
    "outer-join": Case(
        lambda: WindowedJoin(
            left="one", right="two", keys=["k", "g"], within="2s", how="full",
            left_columns={"v": "int64", "f": "float64"}, right_columns={"v": "int64", "f": "float64"},
        ),
        ("one", "two"),
    ),
    "join": Case(lambda: Join(left="one", right="two", keys=["k", "g"]), ("one", "two")),
    "join-window": Case(
        lambda: Join(left="one", right="two", keys=["k", "g"], size="3s", interval="1s"), ("one", "two")
    ),
    "table": Case(
        lambda: StreamTableJoin(stream="one", table="two", keys=["k", "g"], how="left", columns=["v"]),
        ("one", "two"),
    ),
    "table-everywhere": Case(
        lambda: StreamTableJoin(stream="one", table="two", keys=["k", "g"], how="left", columns=["v"]),
        ("one", "two"),
        copied=("two",),
    ),
}  # fmt: skip

SCHEMA = pa.schema(
    {"time": pa.int64(), "k": pa.string(), "g": pa.int32(), "v": pa.int64(), "f": pa.float64()}
)
ROW = st.fixed_dictionaries(
    {
        "time": st.integers(-2, 2),
        "k": st.sampled_from(["a", "b", "c", "d", "e", None]),
        "g": st.sampled_from([1, 2, None]),
        "v": st.one_of(st.none(), st.integers(-3, 9)),
        "f": st.one_of(st.none(), st.sampled_from([0.1, 0.2, -1.5])),
    }
)
BATCH = st.lists(st.tuples(st.booleans(), ROW), max_size=8)


@dataclass(frozen=True)
class Batch:
    """Rows by input, and the watermark behind them."""

    rows: Mapping[str, pa.Table]
    watermark: int | None


def batches_of(case: Case, drawn: Sequence[Sequence[tuple[bool, dict[str, Any]]]]) -> list[Batch]:
    found = []
    for number, batch in enumerate(drawn, 1):
        named: dict[str, list[dict[str, Any]]] = {name: [] for name in case.inputs}
        for second, row in batch:
            named[case.inputs[second % len(case.inputs)]].append(
                row | {"time": (2 * number + row["time"]) * S}
            )
        rows = {name: pa.Table.from_pylist(each, schema=SCHEMA) for name, each in named.items() if each}
        found.append(Batch(rows, (2 * number - 2) * S if number > 1 else None))
    found.append(Batch({}, 1 << 62))
    return found


def run_on(
    case: Case, operators: Sequence[Operator], states: list[Any], batches: Sequence[Batch], first: int
) -> dict[Any, list[str]]:
    """Step all partitions through the batches; what each key gives, in order."""
    found: dict[Any, list[str]] = {}
    count = len(operators)
    for number, batch in enumerate(batches, first):
        inputs: list[list[Input]] = [[] for _ in range(count)]
        for name, table in batch.rows.items():
            parts = (
                dict.fromkeys(range(count), table) if name in case.copied else split(table, case.by, count)
            )
            for index, part in parts.items():
                inputs[index].append(Input(name, f"{name}.0", part))
        for index, operator in enumerate(operators):
            inbox = Inbox(number, batch.watermark, tuple(inputs[index]))
            states[index], out = operator.step(states[index], inbox)
            for row in [] if out is None else out.to_pylist():
                found.setdefault(tuple(row[name] for name in case.key), []).append(repr(sorted(row.items())))
    return found


def begun(case: Case, count: int) -> tuple[list[Operator], list[Any]]:
    operators = [case.make() for _ in range(count)]
    return operators, [o.initial(Place("op", i, count)) for i, o in enumerate(operators)]


def as_saved(operator: Operator, state: Any, paged: bool) -> Tables:
    """A state as a savepoint has it, from a checkpoint in either form."""
    parts: Parts = freezer(operator, paged)(state)()
    if (tables := tables_alone(parts)) is not None:
        return stored(tables)
    file = encode_pages(parts, "f", 1)

    def fetch(path: str, span: object) -> bytes:
        raise AssertionError("all pages are in the first file")

    return stored(decode_pages(b"".join(file.chunks), fetch))


def rescaled(case: Case, states: Sequence[Tables], now: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    count = len(states)
    saved = {f"op.{i}": {**tables, WATERMARK: watermark_table(7)} for i, tables in enumerate(states)}
    old, new = (Routing(case.by if n > 1 else (), n) for n in (count, now))
    change = Change("op", count, now, case.how, old, new)
    operator = case.make()
    monkeypatch.setattr(
        "reprise.spark_jobs.state.redistribution.make_operator", lambda spec: operator, raising=True
    )
    found = dict(redistributed(change, _Anything(), saved.__getitem__))  # type: ignore[arg-type]
    assert list(found) == [f"op.{i}" for i in range(now)]
    assert all(tables[WATERMARK]["watermark"].to_pylist() == [7] for tables in found.values())
    own = [{n: t for n, t in tables.items() if n != WATERMARK} for tables in found.values()]
    return [case.make().restore(Place("op", i, now), stored(each)) for i, each in enumerate(own)]


class _Anything(StreamTopology):
    """No topology: the operator is given."""

    def __init__(self) -> None:
        pass

    def operator(self, name: str) -> Any:
        return None


@pytest.mark.wide
@pytest.mark.parametrize("name", CASES)
@examples(20)
@given(
    drawn=st.lists(BATCH, min_size=2, max_size=6), p=st.integers(1, 4), q=st.integers(1, 4),
    r=st.integers(1, 4), cut=st.integers(0, 6), again=st.integers(0, 3), paged=st.booleans(),
)  # fmt: skip
def test_a_rescaled_run_gives_what_one_with_the_new_partitions_gives(
    name: str, drawn: Any, p: int, q: int, r: int, cut: int, again: int, paged: bool
) -> None:
    case = CASES[name]
    batches = batches_of(case, drawn)
    cuts = min(cut, len(batches)), min(cut + again, len(batches))
    first, states = begun(case, p)
    run_on(case, first, states, batches[: cuts[0]], 1)
    with pytest.MonkeyPatch.context() as patch:
        saved = [as_saved(o, s, paged) for o, s in zip(first, states, strict=True)]
        states = rescaled(case, saved, q, patch)
        second = [case.make() for _ in range(q)]
        between = run_on(case, second, states, batches[cuts[0] : cuts[1]], cuts[0] + 1)
        saved = [as_saved(o, s, paged) for o, s in zip(second, states, strict=True)]
        states = rescaled(case, saved, r, patch)
    third = [case.make() for _ in range(r)]
    after = run_on(case, third, states, batches[cuts[1] :], cuts[1] + 1)
    for count, begin, end, found in ((q, *cuts, between), (r, cuts[1], len(batches), after)):
        whole, expected = begun(case, count)
        run_on(case, whole, expected, batches[:begin], 1)
        assert found == run_on(case, whole, expected, batches[begin:end], begin + 1)
    counted = [o.counters(s) for o, s in zip(third, states, strict=True)]
    for counter in {"late_rows", "duplicates"} & counted[0].keys():
        wholly = [o.counters(s) for o, s in zip(whole, expected, strict=True)]
        assert sum(c[counter] for c in counted) == sum(c[counter] for c in wholly)


@pytest.mark.parametrize("name", CASES)
def test_all_of_them_say_how_they_are_divided(name: str) -> None:
    assert divisible(CASES[name].make())
