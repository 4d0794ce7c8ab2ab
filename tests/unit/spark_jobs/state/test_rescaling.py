"""What may change between a savepoint and the topology that begins from it, and what is refused, with field and reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reprise.sources import FileSource
from reprise.spark_jobs.contract import Inbox, Input, Operator, Place, Range, SourcePart, Tables
from reprise.spark_jobs.errors import SpecError
from reprise.spark_jobs.operators import KeyedCount
from reprise.spark_jobs.operators.timers import Timers
from reprise.spark_jobs.sources.generator import GeneratorSource
from reprise.spark_jobs.state.redistribution import RescaleError, redistributed, source_parts
from reprise.spark_jobs.state.rescaling import Change, How, Routing, divisible, rescaling
from reprise.spark_jobs.state.savepoints import stages_of
from reprise.spark_jobs.state.table_names import WATERMARK, watermark_table
from reprise.spark_jobs.topology import StreamTopology, from_object, make_operator
from reprise.spark_jobs.topology.routing import split

HERE = __name__
COUNT = {"class": "reprise.operators:KeyedCount", "with": {"keys": ["k", "g"]}}
Inputs = list[dict[str, Any]]


@dataclass
class Heard:
    last: dict[str, int] = field(default_factory=dict)
    timers: Timers = field(default_factory=Timers)


class Silent(Operator):
    """Own state: the last time of each key, and a timer for it."""

    state_keys = ("k",)

    def initial(self, place: Place) -> Heard:
        return Heard()

    def step(self, state: Heard, inbox: Inbox) -> tuple[Heard, pa.Table | None]:
        for row in [] if (table := inbox.table()) is None else table.to_pylist():
            state.last[row["k"]] = row["time"]
            state.timers.set(row["k"], row["time"] + 5)
        return state, None

    def freeze(self, state: Heard) -> Callable[[], Tables]:
        last, timers = dict(state.last), state.timers.freeze()
        return lambda: {"last": pa.table({"k": list(last), "at": list(last.values())}), "timers": timers()}

    def restore(self, place: Place, tables: Tables) -> Heard:
        rows = tables["last"].to_pydict()
        return Heard(dict(zip(rows["k"], rows["at"], strict=True)), Timers.restore(tables["timers"]))

    def keys_of(self, name: str, table: pa.Table) -> pa.Table:
        return Timers.keys_of(table, self.state_keys) if name == "timers" else super().keys_of(name, table)


class Forgetful(Silent):
    """Its timers are not said to belong to keys."""

    def keys_of(self, name: str, table: pa.Table) -> pa.Table:
        return Operator.keys_of(self, name, table)


class Total(Silent):
    """Keeps something else, and inherits what is said of the keys."""

    def restore(self, place: Place, tables: Tables) -> Heard:
        return Heard()


class More(KeyedCount):
    """A library class with a state of its own."""

    def freeze(self, state: Any) -> Any:
        return super().freeze(state)


def resource(
    count: int,
    operator: dict[str, Any] | None = None,
    inputs: Inputs | None = None,
    rows: int = 1,
    **more: Any,
) -> StreamTopology:
    by_key = [{"from": "rows", "by": ["k"]} if count > 1 else {"from": "rows"}]
    paths = {"paths": ["a.csv"], "rows": 3}
    return from_object(
        {
            "apiVersion": "reprise.dev/v1alpha1",
            "kind": "StreamTopology",
            "metadata": {"name": "words"},
            "spec": {
                "nodes": {"count": 2, "cpu": 4},
                "batch": {"interval": "500ms"},
                "sources": [
                    {
                        "name": "rows",
                        "class": "reprise.sources:FileSource",
                        "with": paths,
                        "parallelism": rows,
                    },
                    {"name": "more", "class": "reprise.sources:FileSource", "with": paths},
                ],
                "operators": [
                    {
                        "name": "count",
                        "parallelism": count,
                        "inputs": by_key if inputs is None else inputs,
                        "output": {},
                        **(operator or COUNT),
                    },
                    *more.get("operators", []),
                ],
                "sink": {"location": "/tmp/nobody"},
                "checkpoint": {"location": "/tmp/nobody", "interval": "5s"},
            },
        }
    )


def refused(before: StreamTopology, now: StreamTopology) -> SpecError:
    with pytest.raises(SpecError) as error:
        rescaling(stages_of(before), now)
    return error.value


def test_nothing_changes_where_nothing_has() -> None:
    assert rescaling(stages_of(resource(2)), resource(2)) == ()


def forwarded(way: dict[str, Any], through: str = "clean", stateful: bool = True) -> StreamTopology:
    """Rows come to an operator without state in this way, and to `count` by `forward` from there."""
    union: dict[str, Any] = {"class": "reprise.operators:Union"}
    first = {**union, "name": through, "parallelism": 2, "inputs": [{"from": "rows", **way}]}
    operator = None if stateful else union
    return resource(2, operator, [{"from": through, "forward": True}], rows=2, operators=[first])


@pytest.mark.parametrize(
    ("was", "now", "through"),
    [
        ({"by": ["k"]}, {"by": ["z"]}, "clean"),
        ({"by": ["k"]}, {"forward": True}, "clean"),
        ({"forward": True}, {"by": ["k"]}, "tidy"),
        ({"by": ["k"]}, {"by": ["k", "g"]}, "tidy"),
    ],
)
def test_a_state_of_rows_by_forward_follows_how_they_reach_the_partitions_before(
    was: dict[str, Any], now: dict[str, Any], through: str
) -> None:
    error = refused(forwarded(was), forwarded(now, through))
    assert error.field == "spec.operators[count].inputs"
    assert "reach the partitions before it otherwise" in error.reason
    assert rescaling(stages_of(forwarded(was)), forwarded(was, through)) == ()
    assert rescaling(stages_of(forwarded(was, stateful=False)), forwarded(now, through, False)) == ()


def test_a_state_is_divided_by_the_key_of_its_rows() -> None:
    (change,) = rescaling(stages_of(resource(2)), resource(3))
    assert change == Change("count", 2, 3, How.DIVIDED, Routing(("k",), 2), Routing(("k",), 3))
    assert str(change) == "count: 2 partitions, now 3; its state is divided by k"


def test_one_partition_needs_no_key_and_two_do() -> None:
    (change,) = rescaling(stages_of(resource(1)), resource(3))
    assert (change.old, change.new) == (Routing((), 1), Routing(("k",), 3))
    (back,) = rescaling(stages_of(resource(3)), resource(1))
    assert (back.old, back.new) == (Routing(("k",), 3), Routing((), 1))


def test_other_columns_divide_it_otherwise() -> None:
    now = resource(2, inputs=[{"from": "rows", "by": ["k", "g"]}])
    (change,) = rescaling(stages_of(resource(2)), now)
    assert str(change) == "count: 2 partitions, now 2; its state is divided by k, g, and was by k"


def test_columns_beside_the_keys_are_refused() -> None:
    error = refused(resource(2), resource(3, inputs=[{"from": "rows", "by": ["k", "z"]}]))
    assert error.field == "spec.operators[count].parallelism"
    assert "is 3, and 2 in the savepoint, but rows fall to partitions by 'z'" in error.reason


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ([{"from": "rows", "forward": True}], "by `forward`"),
        ([{"from": "rows", "by": ["k"]}, {"from": "more", "broadcast": True}], "by `broadcast`"),
        ([{"from": "rows", "by": ["k"]}, {"from": "more", "by": ["g"]}], "grouped by different columns"),
    ],
)
def test_states_that_follow_no_key_are_refused(inputs: Inputs, why: str) -> None:
    assert why in refused(resource(2), resource(3, inputs=inputs, rows=3)).reason


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Total", "Total has state and does not say by which columns"),
        ("More", "More has state and does not say by which columns"),
    ],
)
def test_classes_that_do_not_say_how_are_refused(name: str, why: str) -> None:
    operator = {"class": f"{HERE}:{name}", **({"with": {"keys": ["k"]}} if name == "More" else {})}
    assert why in refused(resource(2, operator), resource(3, operator)).reason


def test_a_state_of_all_rows_stays_in_one_partition() -> None:
    operator = {"class": "reprise.operators:TopK", "with": {"k": 2, "by": "v", "keys": ["k"]}}
    assert "that of all rows together" in refused(resource(1, operator), resource(2, operator)).reason


def test_cycles_do_not_change() -> None:
    loop = {"name": "loop", "class": "reprise.operators:Union", "inputs": [{"from": "count"}]}
    inputs: Inputs = [{"from": "rows", "by": ["k"]}, {"from": "loop", "by": ["k"], "feedback": True}]
    before, now = (resource(n, inputs=inputs, operators=[loop]) for n in (2, 3))
    assert "the edge from 'loop' to 'count' is feedback" in refused(before, now).reason


def test_a_source_that_is_read_a_batch_later_does_not_change() -> None:
    """What it gave as the last batch is still to be read, by the range that its partition had."""
    inputs: Inputs = [{"from": "more", "by": ["k"]}, {"from": "rows", "by": ["k"], "feedback": True}]
    error = refused(resource(2, inputs=inputs, rows=2), resource(2, inputs=inputs, rows=3))
    assert error.field == "spec.sources[rows].parallelism"
    assert "the edge from 'rows' to 'count' is feedback" in error.reason


def test_other_inputs_by_other_columns_divide_anew() -> None:
    now = resource(2, inputs=[{"from": "more", "by": ["g"]}])
    (change,) = rescaling(stages_of(resource(2)), now)
    assert (change.old, change.new) == (Routing(("k",), 2), Routing(("g",), 2))


def test_a_table_of_another_name_is_not_divided() -> None:
    def joins(table: str, count: int) -> StreamTopology:
        stream = {"rows": "more", "more": "rows"}[table]
        operator = {
            "class": "reprise.operators:StreamTableJoin",
            "with": {"stream": stream, "table": table, "keys": ["k"]},
        }
        extra = {"name": "third", "class": "reprise.operators:Union", "inputs": [{"from": "rows"}]}
        by_key: Inputs = [{"from": "rows", "by": ["k"]}, {"from": "more", "by": ["k"]}]
        return resource(count, operator, by_key, operators=[extra])

    (change,) = rescaling(stages_of(joins("more", 2)), joins("more", 3))
    assert change.how is How.DIVIDED
    operator = {
        "class": "reprise.operators:StreamTableJoin",
        "with": {"stream": "rows", "table": "more", "keys": ["k"]},
    }
    inputs: Inputs = [{"from": "rows", "by": ["k"]}, {"from": "more", "by": ["k"]}]
    before = resource(2, inputs=[{"from": "rows", "by": ["k"]}])
    assert "none of the inputs" in refused(before, resource(3, operator, inputs)).reason


def test_one_state_is_copied_for_those_that_read_everything() -> None:
    everywhere: Inputs = [{"from": "rows", "broadcast": True}]
    (change,) = rescaling(stages_of(resource(1)), resource(3, inputs=everywhere))
    assert change.how is How.COPIED
    saved = saved_of(make_operator(resource(1).operator("count")), 1, list("abc"))
    held = saved["count.0"]
    assert isinstance(held, dict)
    held["values"] = held["values"].append_column(
        "sum:x", pa.array([float("nan")] * 3)
    )  # stored as it is read
    before = {"count.0": held, "count.1": {n: pa.Table.from_batches(t.to_batches()) for n, t in held.items()}}
    (both,) = rescaling(stages_of(resource(2, inputs=everywhere)), resource(3, inputs=everywhere))
    assert len(dict(redistributed(both, resource(3, inputs=everywhere), before.get))) == 3
    found = dict(redistributed(change, resource(3, inputs=everywhere), saved.get))
    assert [found[f"count.{n}"] for n in range(3)] == [saved["count.0"]] * 3
    operator = {"class": f"{HERE}:Total"}  # it may keep a share of what all partitions read
    assert "Total" in refused(resource(1, operator), resource(3, operator, everywhere)).reason


def test_copies_that_differ_are_refused() -> None:
    everywhere: Inputs = [{"from": "rows", "broadcast": True}]
    (change,) = rescaling(stages_of(resource(2, inputs=everywhere)), resource(3, inputs=everywhere))
    saved = saved_of(make_operator(resource(2).operator("count")), 2, list("abcdefgh"))
    with pytest.raises(RescaleError, match=r"count\.0 and count\.1 have read the same rows, and differ"):
        list(redistributed(change, resource(3, inputs=everywhere), saved.get))


def test_operators_without_state_may_have_any_number() -> None:
    union = {"class": "reprise.operators:Union"}
    before, now = (resource(n, union, [{"from": "rows", "forward": True}], rows=n) for n in (2, 5))
    changes = rescaling(stages_of(before), now)
    assert [(c.name, c.how) for c in changes] == [("rows", How.SOURCE), ("count", How.NONE)]
    saved: dict[str, Tables] = {f"count.{n}": {WATERMARK: watermark_table(9 - n)} for n in range(2)}
    found = dict(redistributed(changes[1], now, saved.get))
    assert [t[WATERMARK]["watermark"].to_pylist() for t in found.values()] == [[8]] * 5
    saved.pop("count.1")  # it had no watermark yet, and nothing to store
    found = dict(redistributed(changes[1], now, saved.get))
    assert [t[WATERMARK]["watermark"].to_pylist() for t in found.values()] == [[None]] * 5


# -- states ------------------------------------------------------------------------------------------------------------


def saved_of(operator: Operator, count: int, keys: list[str]) -> dict[str, Tables]:
    """The states of an operator whose rows fall by `k`."""
    rows = pa.table({"time": list(range(len(keys))), "k": keys, "g": [0] * len(keys)})
    found = {}
    for index in range(count):
        place = Place("count", index, count)
        part = split(rows, ["k"], count).get(index)
        state = operator.initial(place)
        if part is not None:
            state, _ = operator.step(state, Inbox(1, None, (Input("rows", "rows.0", part),)))
        found[f"count.{index}"] = {**operator.freeze(state)(), WATERMARK: watermark_table(3)}
    return found


def test_own_operators_are_divided_by_the_keys_that_they_name() -> None:
    operator, keys = {"class": f"{HERE}:Silent"}, list("abcdefgh")
    assert divisible(Silent())
    now = resource(3, operator)
    (change,) = rescaling(stages_of(resource(2, operator)), now)
    found = dict(redistributed(change, now, saved_of(Silent(), 2, keys).__getitem__))
    for index, part in split(pa.table({"k": keys}), ["k"], 3).items():
        mine = sorted(part["k"].to_pylist())
        state = Silent().restore(Place("count", index, 3), found[f"count.{index}"])
        assert sorted(state.last) == mine
        assert sorted(key for _, key in state.timers.due(1 << 62)) == mine


def test_rows_of_a_state_without_a_key_are_refused() -> None:
    operator = {"class": f"{HERE}:Forgetful"}
    (change,) = rescaling(stages_of(resource(2, operator)), resource(3, operator))
    with pytest.raises(
        RescaleError, match=r"count\.\d cannot be divided.*'timers' of the state has no column 'k'"
    ):
        list(redistributed(change, resource(3, operator), saved_of(Forgetful(), 2, list("abc")).get))


def test_a_state_in_the_wrong_partition_is_refused() -> None:
    (change,) = rescaling(stages_of(resource(2)), resource(3))
    good = saved_of(make_operator(resource(2).operator("count")), 2, list("abcdefgh"))
    assert len(list(redistributed(change, resource(3), good.get))) == 3
    for mark in (None, 4):
        other = {**good, "count.1": {**good["count.1"], WATERMARK: watermark_table(mark)}}
        with pytest.raises(
            RescaleError, match=rf"of count have different watermarks \(3, {mark or 'none'}\)"
        ):
            list(redistributed(change, resource(3), other.get))
    bad = {"count.0": good["count.1"], "count.1": good["count.0"]}
    with pytest.raises(RescaleError, match=r"count\.0 has state of .*whose rows go to count\.1 by k"):
        list(redistributed(change, resource(3), bad.get))


def test_a_state_that_is_missing_is_not_taken_for_an_empty_one() -> None:
    (change,) = rescaling(stages_of(resource(2)), resource(3))
    good = saved_of(make_operator(resource(2).operator("count")), 2, list("abcdefgh"))
    with pytest.raises(RescaleError, match=r"no state of count\.1"):
        list(redistributed(change, resource(3), {"count.0": good["count.0"]}.get))


def test_what_belongs_to_a_partition_alone_is_refused() -> None:
    (change,) = rescaling(stages_of(resource(2)), resource(3))
    saved = saved_of(make_operator(resource(2).operator("count")), 2, list("ab"))
    saved["count.1"] = {**saved["count.1"], "feedback/loop.0": pa.table({"k": [1]})}
    with pytest.raises(RescaleError, match=r"count\.1 holds 'feedback/loop\.0'"):
        list(redistributed(change, resource(3), saved.get))


def test_partitions_that_are_not_at_one_time_are_not_put_together() -> None:
    operator = {
        "class": "reprise.operators:TumblingWindow",
        "with": {"size": "1s", "aggregate": {"n": "count()"}, "keys": ["k"]},
    }
    (change,) = rescaling(stages_of(resource(2, operator)), resource(1, operator))
    saved = saved_of(make_operator(resource(2, operator).operator("count")), 2, list("abcd"))
    meta = saved["count.1"]["meta"]
    at = meta.column_names.index("closed")
    saved["count.1"] = {**saved["count.1"], "meta": meta.set_column(at, "closed", pa.array([5]))}
    with pytest.raises(RescaleError, match="closed differs between the partitions"):
        list(redistributed(change, resource(1, operator), saved.get))


# -- sources -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "now", "ends"), [((6, 6), 3, [4, 4, 4]), ((7, 6), 3, [5, 4, 4]), ((4, 3, 3), 1, [10])]
)
def test_rows_that_are_dealt_in_turn_are_dealt_again(
    read: tuple[int, ...], now: int, ends: list[int]
) -> None:
    before, after = resource(1, rows=len(read)), resource(1, rows=now)
    ranges = {f"rows.{i}": Range(end - 1, end) for i, end in enumerate(read)}
    changes = rescaling(stages_of(before), after)
    found = source_parts(changes, after, ranges, lambda _: None)
    assert {p: part.upto for p, part in found.items()} == {
        f"rows.{i}": Range(e, e) for i, e in enumerate(ends)
    }


def test_a_source_partition_that_has_ended_counts_with_what_it_read() -> None:
    before, after = resource(1, rows=2), resource(1, rows=3)
    ranges = {"rows.0": Range(4, 7), "rows.1": Range(~6, ~6)}
    found = source_parts(rescaling(stages_of(before), after), after, ranges, lambda _: None)
    assert [part.upto.end for part in found.values()] == [5, 4, 4]


def test_a_source_that_cannot_go_on_says_why() -> None:
    after = resource(1, rows=3)
    changes = rescaling(stages_of(resource(1, rows=2)), after)
    with pytest.raises(SpecError, match="not the first 13") as error:
        source_parts(changes, after, {"rows.0": Range(0, 9), "rows.1": Range(0, 4)}, lambda _: None)
    assert error.value.field == "spec.sources[rows].parallelism"


class Mine(GeneratorSource):
    """A generator of one's own, whose rows may depend on the partition that makes them."""

    def rows(self, place: Place, numbers: Any, times: Any) -> pa.Table:
        return pa.table({"time": times})


def test_a_source_that_does_not_say_how_is_refused() -> None:
    with pytest.raises(SpecError, match="Mine does not say how what it has read falls to other partitions"):
        Mine(rate=10).repartition("rows", [SourcePart(Range(0, 3))], 2)


@given(
    rows=st.integers(1, 60), size=st.integers(1, 7), counts=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    each=st.integers(0, 4),
)  # fmt: skip
def test_each_row_of_files_is_read_once_in_whatever_partitions(
    tmp_path_factory: pytest.TempPathFactory, rows: int, size: int, counts: list[int], each: int
) -> None:
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    pq.write_table(pa.table({"time": list(range(rows))}), path)
    source = FileSource(paths=[str(path)], rows=size, time="time")
    parts: Sequence[SourcePart] = [SourcePart(Range(0, 0))] * counts[0]
    read, batch, mark = list[int](), 0, -1
    for number, count in enumerate(counts):
        if number:
            parts = source.repartition("rows", parts, count)
        for _ in range(each if number + 1 < len(counts) else rows + 1):
            batch += 1
            after, marks = [], []
            for index, part in enumerate(parts):
                place = Place("rows", index, count)
                span = source.plan(place, batch, part.upto)
                if span is not None:
                    read += source.read(place, batch, span)["time"].to_pylist()
                    marks.append(source.watermark(place, batch, span))
                after.append(SourcePart(span or part.upto))
            parts = after
            known = [m for m in marks if m is not None]
            assert not known or min(known) >= mark
            mark = min(known, default=mark)
    assert sorted(read) == list(range(rows))
