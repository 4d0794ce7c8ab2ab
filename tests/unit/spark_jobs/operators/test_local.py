"""A topology in one process, against the same dataflow by hand: feedback, watermarks, groupings, the end, and errors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.spark_jobs.contract import Inbox, Operator, Place, Range, Source
from reprise.spark_jobs.errors import SourceError, StepError
from reprise.spark_jobs.operators.frames import END_OF_TIME
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import from_object
from tests.support.examples import examples
from tests.support.topologies import document, operator, source

HERE = "tests.unit.spark_jobs.operators.test_local"


class Numbers(Source):
    """Partition p gives `plan[p]`: a list of batches of (time, number); its watermark is the greatest time so far."""

    def __init__(self, plan: list[list[list[tuple[int, int]]]], trouble: bool = False) -> None:
        self.batches, self.trouble = plan, trouble

    def advance(self, place: Place, batch: int, start: int) -> int | None:
        own = self.batches[place.index]
        return start + len(own[batch - 1]) if batch <= len(own) else None

    def read(self, place: Place, batch: int, span: Range) -> pa.Table:
        if self.trouble:
            raise SourceError("the disk is away")
        found = self.batches[place.index][batch - 1]
        return pa.table(
            {
                "time": pa.array([t for t, _ in found], pa.int64()),
                "n": pa.array([n for _, n in found], pa.int64()),
            }
        )

    def watermark(self, place: Place, batch: int, span: Range) -> int | None:
        return max((t for found in self.batches[place.index][:batch] for t, _ in found), default=None)


class Tell(Operator):
    """One row a batch: what came, from whom, and the watermark; with `fail` it raises in that batch."""

    def __init__(self, fail: int = 0, give: Any = None) -> None:
        self.fail, self.give = fail, give

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        if inbox.batch == self.fail:
            raise ZeroDivisionError("by hand")
        if self.give is not None:
            return state, self.give
        seen = [(i.partition, n) for i in inbox.inputs for n in i.table["n"].to_pylist()]
        columns = {
            "n": pa.array([sum(n for _, n in seen)], pa.int64()),
            "seen": [repr(seen)],
            "mark": pa.array([inbox.watermark], pa.int64()),
        }
        return state, pa.table(columns)


def numbers(plan: Any, **more: Any) -> dict[str, Any]:
    return {**source("in", parallelism=len(plan)), "class": f"{HERE}:Numbers", "with": {"plan": plan, **more}}


def tell(name: str, *inputs: Any, **more: Any) -> dict[str, Any]:
    return operator(name, *inputs, **{"class": f"{HERE}:Tell", **more})


plans = st.lists(
    st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5)), max_size=3), max_size=4),
    min_size=1,
    max_size=3,
)


@examples(40)
@given(plans)
def test_a_loop_gets_its_own_output_of_the_batch_before_and_the_least_watermark(
    plan: list[list[list[tuple[int, int]]]],
) -> None:
    loop = tell("loop", {"from": "in"}, {"from": "loop", "feedback": True})
    outputs = list(run_local(from_object(document(numbers(plan), loop))))
    before: int | None = None
    assert len(outputs) == max(map(len, plan)) + 1
    for number, out in enumerate(outputs):
        seen = [
            (f"in.{p}", n)
            for p, own in enumerate(plan)
            for _, n in (own[number] if number < len(own) else ())
        ]
        marks: list[int | None] = [
            max((t for found in own[: number + 1] for t, _ in found), default=None)
            if number < len(own)
            else END_OF_TIME
            for own in plan
        ]
        known = [mark for mark in marks if mark is not None]
        told = [*seen, *([("loop.0", before)] if before is not None else [])]
        table = out["loop.0"]
        assert table is not None
        before = sum(n for _, n in told)
        mark = min(known) if len(known) == len(marks) else None
        assert table.to_pylist() == [{"n": before, "seen": repr(told), "mark": mark}]


@examples(30)
@given(plans, st.integers(1, 4))
def test_rows_by_key_reach_one_partition_each_and_broadcast_ones_all(
    plan: list[list[list[tuple[int, int]]]], parallelism: int
) -> None:
    by_key = operator("keyed", {"from": "in", "by": ["n"]}, parallelism=parallelism)
    to_all = operator("all", {"from": "in", "broadcast": True}, parallelism=parallelism)
    home: dict[int, str] = {}
    for number, out in enumerate(run_local(from_object(document(numbers(plan), by_key, to_all)))):
        rows = [n for own in plan for _, n in (own[number] if number < len(own) else ())]
        found = Counter[int]()
        for index in range(parallelism):
            mine = [] if (table := out[f"keyed.{index}"]) is None else table["n"].to_pylist()
            found.update(mine)
            for n in mine:
                assert home.setdefault(n, f"keyed.{index}") == f"keyed.{index}"
            every = out[f"all.{index}"]
            assert ([] if every is None else every["n"].to_pylist()) == rows
        assert found == Counter(rows)


def test_it_stops_after_as_many_batches_as_are_asked_for() -> None:
    resource = from_object(document(numbers([[[(0, 1)]] * 5]), tell("out", "in")))
    assert [len(list(run_local(resource, batches))) for batches in (0, 1, 5, 6, 99)] == [0, 1, 5, 6, 6]


def test_code_that_raises_is_named_with_partition_and_batch() -> None:
    resource = from_object(document(numbers([[[(0, 1)]] * 3]), tell("out", "in", **{"with": {"fail": 2}})))
    running = run_local(resource)
    next(running)
    with pytest.raises(StepError, match=r"out.0.*batch 2.*ZeroDivisionError: by hand") as caught:
        next(running)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_rows_that_are_no_table_are_named() -> None:
    resource = from_object(document(numbers([[[(0, 1)]]]), tell("out", "in", **{"with": {"give": [1, 2]}})))
    with pytest.raises(StepError, match=r"rows must be a pyarrow.Table or None, not list"):
        list(run_local(resource))


def test_rows_that_cannot_be_routed_are_named() -> None:
    resource = from_object(
        document(numbers([[[(0, 1)]]]), operator("out", {"from": "in", "by": ["who"]}, parallelism=2))
    )
    with pytest.raises(StepError, match=r"in.0.*batch 1.*key column 'who' is not in the output"):
        list(run_local(resource))


def test_trouble_that_would_pass_stays_what_it_is() -> None:
    with pytest.raises(SourceError, match="the disk is away"):
        list(run_local(from_object(document(numbers([[[(0, 1)]]], trouble=True), tell("out", "in")))))
