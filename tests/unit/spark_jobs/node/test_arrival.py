"""A partition that applies what is there: in which order, how it numbers what it sends, and what waits at a marker."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Inbox, Operator, Place, Tables
from reprise.spark_jobs.errors import StepError, WireError
from reprise.spark_jobs.node import buffers
from reprise.spark_jobs.node.arrival import ArrivalRuntime, Frontier, complete_of
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.counters import APPLIED_EARLY, counters_of
from reprise.spark_jobs.node.state_tables import WATERMARK, watermark_table
from reprise.spark_jobs.node.wire import Message, decode_table
from reprise.spark_jobs.sinks import Sink
from reprise.spark_jobs.topology import expand, load_text

TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: two}
spec:
  batch: {interval: 100ms, order: arrival}
  sources:
    - {name: a, class: "tests.support.scripted:Numbers"}
    - {name: b, class: "tests.support.scripted:Numbers"}
  operators:
    - {name: mid, class: "tests.support.scripted:Passing", inputs: [{from: a}, {from: b}], output: {}}
    - {name: next, class: "tests.support.scripted:Passing", inputs: [{from: mid}]}
    - {name: wide, class: "tests.support.scripted:Passing", parallelism: 2, inputs: [{from: mid, by: ["n"]}]}
"""
PARTITIONS = expand(load_text(TEXT)).partitions
ANYBODY: Callable[[str], bool] = lambda _: True  # noqa: E731


class Echo(Operator):
    """Gives the rows that it is given, unless something else is in `gives`."""

    def __init__(self) -> None:
        self.given, self.gives = list[Inbox](), list[Any]()

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        self.given.append(inbox)
        return len(self.given), self.gives.pop(0) if self.gives else inbox.table()

    def freeze(self, state: Any) -> Callable[[], Tables]:
        return lambda: {"own": pa.table({"at": [state]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        return tables["own"]["at"][0].as_py()


class Nowhere(Sink):
    """Takes batches."""

    def __init__(self) -> None:
        self.taken: dict[int, pa.Table | None] = {}

    def write(self, batch: int, table: pa.Table | None) -> None:
        self.taken[batch], self.visible = table, batch

    def shown(self) -> list[tuple[int, float]]:
        return []


def made(
    folder: Path, at: int = 0, memory: int = 10**6, disk: int = 10**9, sink: Sink | None = None
) -> ArrivalRuntime:
    runtime = ArrivalRuntime(PARTITIONS["mid.0"], Echo(), None, at, Budget(memory, disk, folder), sink)
    if sink is not None:
        runtime.staged = {}
    runtime.told(orders())
    return runtime


def orders(horizon: int = 100, punctuations: tuple[int, ...] = (), retain: bool = False) -> Command:
    return Command(1, 1, 0, "", "", "", horizon=horizon, punctuations=punctuations, retain=retain)


def hears(runtime: ArrivalRuntime, source: str, *batches: int, mark: int | None = None) -> None:
    for batch in batches:
        rows = pa.table({"n": [100 * ord(source) + batch]})
        runtime.deliver(Message(f"{source}.0", runtime.partition.id, batch, mark, rows))


def all_applied(runtime: ArrivalRuntime) -> int:
    """How many steps there were."""
    steps = 0
    while runtime.advance(ANYBODY):
        steps += 1
    return steps


def sent(runtime: ArrivalRuntime, applied: int = 0, window: int = 100, target: str = "next.0") -> list[Any]:
    """Number of each message, the batch up to which it is complete, and its rows."""
    return [
        (m.batch, complete_of(m), [] if not body else decode_table(body)["n"].to_pylist())  # type: ignore[index]
        for m, body in runtime.pending(target, applied, window)
    ]


A, B = 100 * ord("a"), 100 * ord("b")


class TestWhatIsApplied:
    def test_each_input_as_far_as_it_is_here(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        assert not runtime.advance(ANYBODY)
        hears(runtime, "a", 1, 2)
        assert all_applied(runtime) == 2
        assert runtime.position == 0 and runtime.early == 2
        assert sent(runtime) == [(1, 0, [A + 1]), (2, 0, [A + 2])]
        hears(runtime, "b", 1)
        assert all_applied(runtime) == 1
        assert runtime.position == 1 and runtime.early == 2
        hears(runtime, "b", 2, 3)
        hears(runtime, "a", 3)
        assert all_applied(runtime) == 2, "of each input one message a step, in the order of the inputs"
        assert runtime.position == 3
        assert sent(runtime) == [(3, 1, [B + 1]), (4, 2, [A + 3, B + 2]), (5, 3, [B + 3])]
        assert runtime.marker == {0: 0, 1: 3, 2: 4, 3: 5}
        assert isinstance(runtime.operator, Echo)
        assert [inbox.batch for inbox in runtime.operator.given] == [1, 1, 1, 2, 3]
        assert runtime.early == 3
        assert counters_of({"mid.0": runtime}, []) == {"mid.0": {APPLIED_EARLY: 3}}

    def test_one_input_in_its_order_and_once(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        hears(runtime, "a", 2, 3)
        assert not runtime.advance(ANYBODY), "its first message is on its way"
        hears(runtime, "a", 1, 1, 2)
        assert all_applied(runtime) == 3
        hears(runtime, "a", 1, 2, 3)
        hears(runtime, "c", 1)
        assert all_applied(runtime) == 0 and runtime.inbox == {"a.0": {}, "b.0": {}}

    def test_inputs_wait_at_the_marker_of_a_checkpoint_and_go_on_behind_it(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        runtime.told(orders(punctuations=(2, 4)))
        hears(runtime, "a", 1, 2, 3, 4, 5)
        all_applied(runtime)
        assert runtime.frontier.channels["a.0"].taken == 2
        hears(runtime, "b", 1)
        all_applied(runtime)
        assert (runtime.position, runtime.frontier.channels["a.0"].taken) == (1, 2)
        hears(runtime, "b", 2)
        assert runtime.advance(ANYBODY) and runtime.position == 2
        assert {c.complete for c in runtime.frontier.channels.values()} == {2}, "its state is stored now"
        all_applied(runtime)
        assert (runtime.position, runtime.frontier.channels["a.0"].taken) == (2, 4)

    def test_no_batch_behind_the_horizon(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        runtime.told(orders(horizon=2))
        hears(runtime, "a", 1, 2, 3)
        assert all_applied(runtime) == 2
        runtime.told(orders(horizon=3))
        assert all_applied(runtime) == 1

    def test_a_whole_batch_at_once_in_an_incident(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        runtime.told(orders(retain=True))
        hears(runtime, "b", 1, 2)
        assert all_applied(runtime) == 0
        hears(runtime, "a", 1, 2)
        assert all_applied(runtime) == 2
        assert runtime.early == 0 and runtime.marker == {0: 0, 1: 1, 2: 2}
        assert sent(runtime) == [(1, 1, [A + 1, B + 1]), (2, 2, [A + 2, B + 2])]

    def test_an_incident_takes_what_is_missing_of_each_input(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        hears(runtime, "a", 1, 2)
        all_applied(runtime)
        runtime.told(orders(retain=True))
        hears(runtime, "a", 3)
        hears(runtime, "b", 1, 2, 3)
        assert all_applied(runtime) == 3
        assert sent(runtime)[2:] == [(3, 1, [B + 1]), (4, 2, [B + 2]), (5, 3, [A + 3, B + 3])]


class TestFrontier:
    def message(self, source: str, number: int, complete: int | None) -> Message:
        header = b"" if complete is None else struct.pack(">q", complete)
        return Message(source, "x.0", number, None, pa.table({"n": [number]}), header)

    def test_a_batch_in_several_messages_is_taken_whole(self) -> None:
        frontier, held = (
            Frontier(["u.0", "v.0"], 0),
            {"u.0": dict[int, Message](), "v.0": dict[int, Message]()},
        )
        held["v.0"][1] = self.message("v.0", 1, None)
        held["u.0"] = {n: self.message("u.0", n, c) for n, c in ((1, 0), (2, 0))}
        assert frontier.whole(held, 1) == []
        assert [m.batch for m in frontier.here(held, 9)] == [1, 1]
        held["u.0"][3] = self.message("u.0", 3, 1)
        held["u.0"][4] = self.message("u.0", 4, 1)
        assert [(m.source, m.batch) for m in frontier.whole(held, 1)] == [
            ("u.0", 1), ("u.0", 2), ("u.0", 3), ("v.0", 1),
        ]  # fmt: skip
        assert frontier.take(frontier.whole(held, 1)) == 0 and frontier.position == 1
        assert [(m.source, m.batch) for m in frontier.here(held, 9)] == [("u.0", 4)]
        assert frontier.here(held, 1) == [], "what follows the marker is made of later batches"

    def test_messages_before_the_marker_are_applied_while_it_is_awaited(self) -> None:
        """An input that is not complete up to the checkpoint goes on; its marker may be several messages further."""
        frontier, held = Frontier(["u.0"], 0), {"u.0": {1: self.message("u.0", 1, 0)}}
        assert frontier.take(frontier.here(held, 1)) == 0
        held["u.0"][2] = self.message("u.0", 2, 1)
        assert [m.batch for m in frontier.here(held, 1)] == [2]

    def test_a_header_that_is_none(self) -> None:
        with pytest.raises(WireError, match=r"message 1 of u\.0: not the header of an arrival"):
            complete_of(Message("u.0", "x.0", 1, None, None, b"abc"))

    def test_several_messages_of_one_input_are_one_input_of_the_operator(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        runtime.told(orders(retain=True))
        for number, complete in ((1, 0), (2, 1)):
            message = self.message("a.0", number, complete)
            runtime.deliver(message)
        hears(runtime, "b", 1)
        assert all_applied(runtime) == 1
        assert isinstance(runtime.operator, Echo)
        (inbox,) = runtime.operator.given
        assert [(i.operator, i.partition, i.table["n"].to_pylist()) for i in inbox.inputs] == [
            ("a", "a.0", [1, 2]), ("b", "b.0", [B + 1]),
        ]  # fmt: skip


class TestWatermark:
    def test_the_least_of_all_inputs(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        hears(runtime, "a", 1, 2, mark=50)
        all_applied(runtime)
        assert runtime.watermark is None
        hears(runtime, "b", 1, mark=20)
        all_applied(runtime)
        assert runtime.watermark == 20
        hears(runtime, "b", 2, mark=70)
        all_applied(runtime)
        assert runtime.watermark == 50
        assert isinstance(runtime.operator, Echo)
        assert [i.watermark for i in runtime.operator.given] == [None, None, 20, 50]
        assert [m.watermark for m, _ in runtime.pending("next.0", 0, 9)] == [None, None, 20, 50]

    def test_it_stays_as_it_was_stored_until_all_inputs_have_spoken(self, tmp_path: Path) -> None:
        runtime = made(tmp_path, at=5)
        runtime.restore({"own": pa.table({"at": [3]}), WATERMARK: watermark_table(40)})
        hears(runtime, "a", 6, mark=90)
        all_applied(runtime)
        assert runtime.watermark == 40
        hears(runtime, "b", 6, mark=60)
        all_applied(runtime)
        assert runtime.watermark == 60


class TestWhatIsSent:
    def test_nothing_where_there_are_no_rows_and_no_batch_is_complete(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        assert isinstance(runtime.operator, Echo)
        runtime.operator.gives = [pa.table({"n": pa.array([], pa.int64())}), None]
        hears(runtime, "a", 1)
        assert runtime.advance(ANYBODY)
        assert sent(runtime) == [] and runtime.sent == 0
        hears(runtime, "b", 1)
        assert runtime.advance(ANYBODY)
        assert sent(runtime) == [(1, 1, [])], "the marker"

    def test_a_target_is_sent_again_what_follows_the_marker_of_its_batch(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        hears(runtime, "a", 1, 2, 3)
        all_applied(runtime)
        hears(runtime, "b", 1, 2)
        all_applied(runtime)
        numbers = [n for n, _, _ in sent(runtime)]
        assert numbers == [1, 2, 3, 4, 5] and runtime.marker == {0: 0, 1: 4, 2: 5}
        assert runtime.rewind("next.0", 1)
        assert [n for n, _, _ in sent(runtime, applied=1)] == [5]
        assert runtime.kept_since == 0
        for target in runtime.buffers:
            runtime.trim(target, 1)
        assert runtime.marker == {1: 4, 2: 5}, "nobody is before the marker of batch 1"
        assert runtime.kept_since == 1
        assert runtime.rewind("next.0", 1) and not runtime.rewind("next.0", 0)
        runtime.trim("next.0", 2)
        assert runtime.kept_since == 2 and runtime.marker == {1: 4, 2: 5}, "the others may be at 1"

    def test_no_further_than_the_window(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        for batch in (1, 2, 3):
            hears(runtime, "a", batch)
            all_applied(runtime)
            hears(runtime, "b", batch)
            all_applied(runtime)
        assert [n for n, _, _ in sent(runtime, window=2)] == [1, 2, 3, 4]
        assert [n for n, _, _ in sent(runtime, applied=1, window=2)] == [5, 6]

    def test_a_marker_is_sent_however_much_comes_before_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The target confirms nothing before it; behind it as much is under way as may be."""
        monkeypatch.setattr(buffers, "IN_FLIGHT", 1)
        runtime = made(tmp_path)
        hears(runtime, "a", 1, 2, 3)
        all_applied(runtime)
        assert [[n for n, _, _ in sent(runtime)] for _ in range(4)] == [[1], [2], [3], []]
        hears(runtime, "b", 1, 2, 3)
        all_applied(runtime)
        assert runtime.marker[1] == 4
        assert [[n for n, _, _ in sent(runtime)] for _ in range(3)] == [[4], [5], []]
        assert [n for n, _, _ in sent(runtime, applied=1)] == [6]

    def test_a_full_node_takes_the_batch_that_is_not_complete(self, tmp_path: Path) -> None:
        """And nothing is applied early there: only what completes it makes room."""
        runtime = made(tmp_path)
        hears(runtime, "a", 1, 2)
        assert runtime.advance(ANYBODY) and runtime.sent == 1
        budget = runtime.buffers["next.0"].budget
        budget.memory_limit = budget.disk_limit = 0
        assert not runtime.advance(ANYBODY), "the second of its batches waits"
        hears(runtime, "b", 1, 2)
        assert runtime.advance(ANYBODY) and runtime.position == 1
        with pytest.raises(BufferError):
            runtime.advance(ANYBODY)
        for target in runtime.buffers:
            runtime.trim(target, 1)
        assert runtime.advance(ANYBODY) and runtime.position == 2

    def test_a_full_node_repeats_nothing(self, tmp_path: Path) -> None:
        runtime = made(tmp_path, memory=0, disk=0, sink=Nowhere())
        hears(runtime, "a", 1)
        hears(runtime, "b", 1)
        runtime.buffers["next.0"].put(0, None, b"older", force=True)
        for _ in range(2):
            with pytest.raises(BufferError):
                runtime.advance(ANYBODY)
        assert isinstance(runtime.operator, Echo)
        assert len(runtime.operator.given) == 1 and runtime.sent == 0
        runtime.buffers["next.0"].budget.memory_limit = 10**6
        assert runtime.advance(ANYBODY)
        assert [n for n, _, _ in sent(runtime)] == [1]
        assert runtime.staged is not None and runtime.staged[1]["n"].to_pylist() == [A + 1, B + 1]  # type: ignore[index]

    def test_rows_that_cannot_be_routed_name_their_batch(self, tmp_path: Path) -> None:
        runtime = made(tmp_path)
        hears(runtime, "a", 1, 2, 3)
        all_applied(runtime)
        assert isinstance(runtime.operator, Echo)
        runtime.operator.gives = [pa.table({"other": [1]})]
        hears(runtime, "b", 1)
        with pytest.raises(StepError) as raised:
            runtime.advance(ANYBODY)
        assert raised.value.batch == 1, "and not the number of the message"


class TestOutput:
    def test_rows_are_staged_with_the_batch_that_is_not_complete(self, tmp_path: Path) -> None:
        sink = Nowhere()
        runtime = made(tmp_path, sink=sink)
        hears(runtime, "a", 1, 2)
        all_applied(runtime)
        hears(runtime, "b", 1, 2, 3)
        all_applied(runtime)
        assert runtime.staged is not None and runtime.settled == 2
        assert {b: t["n"].to_pylist() for b, t in runtime.staged.items() if t is not None} == {
            1: [A + 1, A + 2, B + 1], 2: [B + 2], 3: [B + 3],
        }  # fmt: skip
        runtime.publish(2)
        assert list(sink.taken) == [1, 2] and list(runtime.staged) == [3]

    def test_a_batch_without_rows_is_shown_too(self, tmp_path: Path) -> None:
        sink = Nowhere()
        runtime = made(tmp_path, sink=sink)
        assert isinstance(runtime.operator, Echo)
        runtime.operator.gives = [None, None]
        hears(runtime, "a", 1)
        all_applied(runtime)
        assert runtime.staged == {}
        hears(runtime, "b", 1)
        all_applied(runtime)
        runtime.publish(1)
        assert sink.taken == {1: None}

    def test_columns_may_differ_between_steps_but_not_their_types(self, tmp_path: Path) -> None:
        runtime = made(tmp_path, sink=Nowhere())
        assert isinstance(runtime.operator, Echo)
        runtime.operator.gives = [
            pa.table({"n": [1]}),
            pa.table({"n": [2], "m": [3]}),
            pa.table({"n": ["x"]}),
        ]
        hears(runtime, "a", 1, 2, 3)
        assert runtime.advance(ANYBODY) and runtime.advance(ANYBODY)
        assert runtime.staged is not None and runtime.staged[1] is not None
        assert runtime.staged[1].to_pydict() == {"n": [1, 2], "m": [None, 3]}
        with pytest.raises(StepError):
            runtime.advance(ANYBODY)
