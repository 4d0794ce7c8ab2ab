"""A partition that applies what is there: in which order, how it numbers what it sends, and what waits at a marker."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Inbox, Operator, Place, Tables
from reprise.spark_jobs.errors import LostOutputError, StepError, WireError
from reprise.spark_jobs.node import buffers
from reprise.spark_jobs.node.arrival import ArrivalRuntime, Frontier, complete_of
from reprise.spark_jobs.node.buffers import Budget, EdgeBuffer
from reprise.spark_jobs.node.channels import CHANNELS, Row, table_of
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.counters import APPLIED_EARLY, counters_of
from reprise.spark_jobs.node.state_tables import WATERMARK, watermark_table
from reprise.spark_jobs.node.wire import Message, decode_table, encode_table
from reprise.spark_jobs.sinks import Sink
from reprise.spark_jobs.topology import Partition, Upstream, expand, load_text

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
    folder: Path,
    at: int = 0,
    memory: int = 10**6,
    disk: int = 10**9,
    sink: Sink | None = None,
    partition: Partition = PARTITIONS["mid.0"],
) -> ArrivalRuntime:
    runtime = ArrivalRuntime(partition, Echo(), None, at, Budget(memory, disk, folder), sink)
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


def frontier_of(*inputs: str) -> Frontier:
    return Frontier([Upstream(name, False) for name in inputs], 0)


class TestFrontier:
    def message(self, source: str, number: int, complete: int | None) -> Message:
        header = b"" if complete is None else struct.pack(">q", complete)
        return Message(source, "x.0", number, None, pa.table({"n": [number]}), header)

    def test_a_batch_in_several_messages_is_taken_whole(self) -> None:
        frontier, held = (
            frontier_of("u.0", "v.0"),
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
        frontier, held = frontier_of("u.0"), {"u.0": {1: self.message("u.0", 1, 0)}}
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


LOOP = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: loop}
spec:
  batch: {interval: 100ms, order: arrival}
  sources:
    - {name: a, class: "tests.support.scripted:Numbers"}
    - {name: b, class: "tests.support.scripted:Numbers"}
  operators:
    - {name: mid, class: "tests.support.scripted:Passing",
       inputs: [{from: a}, {from: b}, {from: back, feedback: true}]}
    - {name: back, class: "tests.support.scripted:Passing", inputs: [{from: mid}, {from: b}], output: {}}
    - {name: next, class: "tests.support.scripted:Passing", inputs: [{from: back}]}
"""
CYCLE = expand(load_text(LOOP)).partitions


def says(runtime: ArrivalRuntime, source: str, number: int, complete: int, mark: int | None = None) -> None:
    """A message of an operator: its number is its row."""
    header, rows = struct.pack(">q", complete), pa.table({"n": [number]})
    runtime.deliver(Message(source, runtime.partition.id, number, mark, rows, header))


def entered(folder: Path, at: int = 0) -> ArrivalRuntime:
    """The partition that reads two sources, and `back.0` over a feedback edge."""
    return made(folder, at, partition=CYCLE["mid.0"])


def returning(folder: Path, at: int = 0, memory: int = 10**6) -> ArrivalRuntime:
    """The one that `entered` reads over the feedback edge, and `next.0` over another one."""
    return made(folder, at, memory, disk=memory, partition=CYCLE["back.0"])


def came_to(runtime: ArrivalRuntime, batch: int) -> None:
    """Let `returning` come to a batch with two messages a batch, made of row b of `mid` and of that of the source."""
    for b in range(runtime.position + 1, batch + 1):
        says(runtime, "mid.0", b, b)
        assert all_applied(runtime) == 1
        hears(runtime, "b", b)
        assert all_applied(runtime) == 1 and runtime.position == b


class TestCycle:
    def test_what_comes_over_a_feedback_edge_belongs_to_the_next_batch(self, tmp_path: Path) -> None:
        runtime = entered(tmp_path)
        channel = runtime.frontier.channels["back.0"]
        assert (channel.taken, channel.complete) == (0, 1), "nothing is before the first batch"
        hears(runtime, "a", 1, 2)
        hears(runtime, "b", 1, 2)
        all_applied(runtime)
        assert runtime.position == 1
        says(runtime, "back.0", 1, 0)
        all_applied(runtime)
        assert (channel.taken, channel.complete, runtime.position) == (1, 1, 1), "no marker yet"
        says(runtime, "back.0", 2, 1)
        all_applied(runtime)
        assert (channel.taken, channel.complete, runtime.position) == (2, 2, 2)

    def test_what_is_under_way_at_a_checkpoint_is_its_last_message(self, tmp_path: Path) -> None:
        runtime = entered(tmp_path, at=5)
        channels = runtime.frontier.channels
        assert {u: (c.taken, c.complete) for u, c in channels.items()} == {
            "a.0": (5, 5), "b.0": (5, 5), "back.0": (4, 5),
        }  # fmt: skip
        says(runtime, "back.0", 4, 4)
        says(runtime, "back.0", 5, 5)
        hears(runtime, "a", 6)
        hears(runtime, "b", 6)
        assert runtime.position == 5
        all_applied(runtime)
        assert runtime.position == 6 and channels["back.0"].taken == 5

    def test_nothing_of_a_feedback_edge_is_taken_behind_a_checkpoint(self, tmp_path: Path) -> None:
        runtime = entered(tmp_path)
        runtime.told(orders(punctuations=(2,)))
        hears(runtime, "a", 1, 2, 3)
        hears(runtime, "b", 1, 2, 3)
        says(runtime, "back.0", 1, 1)
        says(runtime, "back.0", 2, 2)
        while runtime.position < 2:
            assert runtime.advance(ANYBODY)
        assert {u: (c.taken, c.complete) for u, c in runtime.frontier.channels.items()} == {
            "a.0": (2, 2), "b.0": (2, 2), "back.0": (1, 2),
        }  # fmt: skip

    def test_a_cycle_is_one_hop_further_with_each_batch(self, tmp_path: Path) -> None:
        """While an input from outside stands still; those that move are taken all the same."""
        runtime = entered(tmp_path / "mid")
        hears(runtime, "a", 1, 2, 3)
        says(runtime, "back.0", 1, 1)
        says(runtime, "back.0", 2, 1)
        all_applied(runtime)
        assert runtime.frontier.channels["a.0"].taken == 3
        assert runtime.frontier.channels["back.0"].taken == 0, "it belongs to batch 2"
        hears(runtime, "b", 1)
        all_applied(runtime)
        assert runtime.position == 1 and runtime.frontier.channels["back.0"].taken == 1, (
            "it is complete up to 2"
        )

    def test_so_it_is_over_the_other_edges_of_the_cycle(self, tmp_path: Path) -> None:
        runtime = returning(tmp_path)
        for number, complete in ((1, 0), (2, 1), (3, 1), (4, 2)):
            says(runtime, "mid.0", number, complete)
        all_applied(runtime)
        assert runtime.frontier.channels["mid.0"].taken == 2, "what follows belongs to batch 2"
        hears(runtime, "b", 1)
        all_applied(runtime)
        assert runtime.position == 1 and runtime.frontier.channels["mid.0"].taken == 4

    def test_an_incident_takes_of_a_cycle_what_belongs_to_the_batch(self, tmp_path: Path) -> None:
        runtime = entered(tmp_path)
        runtime.told(orders(retain=True))
        hears(runtime, "a", 1, 2)
        hears(runtime, "b", 1, 2)
        assert all_applied(runtime) == 1 and runtime.position == 1
        says(runtime, "back.0", 1, 0)
        assert all_applied(runtime) == 0
        says(runtime, "back.0", 2, 1)
        assert all_applied(runtime) == 1 and runtime.frontier.channels["back.0"].taken == 2
        assert runtime.sent == 2, "one message a batch"

    def test_no_watermark_comes_over_a_feedback_edge(self, tmp_path: Path) -> None:
        runtime = entered(tmp_path)
        hears(runtime, "a", 1, 2, mark=50)
        hears(runtime, "b", 1, 2, mark=40)
        says(runtime, "back.0", 1, 1, mark=10)
        all_applied(runtime)
        assert runtime.position == 2 and runtime.watermark == 40

    def test_the_state_has_what_was_made_since_the_batch_before(self, tmp_path: Path) -> None:
        """In two messages, which come back as one whose number is the batch, and as the first that the reader awaits."""
        runtime = returning(tmp_path / "before")
        came_to(runtime, 3)
        assert runtime.marker == {0: 0, 1: 2, 2: 4, 3: 6}
        loops = runtime.loops()
        assert loops.keys() == {"mid.0"}
        rows = decode_table(loops["mid.0"])
        assert rows is not None and rows["n"].to_pylist() == [3, B + 3], "and nothing of batches 1 and 2"
        encode = runtime.freeze(loops)
        assert encode is not None
        later = returning(tmp_path / "after", at=3)
        later.restore(dict(encode()))  # type: ignore[arg-type]
        assert later.rewind("mid.0", 3) and later.rewind("next.0", 3)
        assert sent(later, applied=3, target="mid.0") == [(3, 3, [3, B + 3])]
        assert sent(later, applied=3) == []
        assert later.kept_since == 3
        came_to(later, 4)
        assert sent(later, applied=3, target="mid.0") == [(4, 3, [4]), (5, 4, [B + 4])]
        again = decode_table(later.loops()["mid.0"])
        assert again is not None and again["n"].to_pylist() == [4, B + 4]

    def test_what_aligned_messages_of_another_protocol_say_is_left_aside(self, tmp_path: Path) -> None:
        """Stored with the state of a partition with communication-induced checkpoints."""
        body = encode_table(pa.table({"n": [7]}))
        stored = table_of([Row("mid.0", 5, None, body, b"of another protocol")])
        later = returning(tmp_path, at=5)
        later.restore({"own": pa.table({"at": [5]}), CHANNELS: stored, WATERMARK: watermark_table(None)})
        ((message, again),) = later.pending("mid.0", 5, 1)
        assert (message.batch, again) == (5, body) and complete_of(message) == 5
        assert later.marker == {4: 4, 5: 5}

    def test_a_state_without_rows_under_way(self, tmp_path: Path) -> None:
        runtime = returning(tmp_path)
        assert isinstance(runtime.operator, Echo)
        runtime.operator.gives = [pa.table({"n": pa.array([], pa.int64())}), None]
        came_to(runtime, 1)
        assert runtime.loops() == {}
        assert sent(runtime, target="mid.0") == [(1, 1, [])], "the marker goes round all the same"

    def test_rows_of_two_types_end_the_partition_that_made_them(self, tmp_path: Path) -> None:
        runtime = returning(tmp_path)
        assert isinstance(runtime.operator, Echo)
        runtime.operator.gives = [pa.table({"n": [1]}), pa.table({"n": ["x"]})]
        came_to(runtime, 1)
        with pytest.raises(StepError) as raised:
            runtime.loops()
        assert raised.value.batch == 1

    def test_what_the_state_needs_and_is_not_here_is_never_left_out(self, tmp_path: Path) -> None:
        runtime = returning(tmp_path)
        came_to(runtime, 2)
        runtime.buffers["mid.0"].trim(3)
        with pytest.raises(LostOutputError, match=r"back\.0 for mid\.0, message 3"):
            runtime.loops()

    def test_it_stays_until_the_state_is_stored(self, tmp_path: Path) -> None:
        """Though its reader has applied it, and goes on."""
        runtime = returning(tmp_path)
        came_to(runtime, 2)
        runtime.owed = True
        runtime.trim("mid.0", 3)
        runtime.trim("next.0", 2)
        assert list(runtime.buffers["mid.0"].entries) == [3, 4] and runtime.loops()
        runtime.owed = False
        runtime.trim("mid.0", 3)
        assert list(runtime.buffers["mid.0"].entries) == []
        assert runtime.marker == {1: 2, 2: 4}, "the state of batch 2 may still be asked for"

    def test_so_does_what_is_made_for_some_and_not_for_others_yet(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runtime = returning(tmp_path)
        came_to(runtime, 1)
        says(runtime, "mid.0", 2, 2)
        hears(runtime, "b", 2)
        put, refused = EdgeBuffer.put, [True]

        def full(buffer: EdgeBuffer, *given: Any, **named: Any) -> None:
            if refused and buffer.target == "next.0":
                raise OSError(28, "No space left on device")
            put(buffer, *given, **named)

        monkeypatch.setattr(EdgeBuffer, "put", full)
        with pytest.raises(OSError, match="No space"):
            runtime.advance(ANYBODY)
        assert runtime.unfinished is not None and runtime.position == 1
        assert list(runtime.buffers["mid.0"].entries) == [1, 2, 3]
        runtime.trim("mid.0", 3)
        refused.clear()
        assert runtime.advance(ANYBODY) and runtime.position == 2
        rows = decode_table(runtime.loops()["mid.0"])
        assert rows is not None and rows["n"].to_pylist() == [2, B + 2]

    def test_a_reader_is_sent_again_what_follows_the_batch_before_its_own(self, tmp_path: Path) -> None:
        runtime = returning(tmp_path)
        came_to(runtime, 3)
        assert [n for n, _, _ in sent(runtime, target="mid.0")] == [1, 2, 3, 4, 5, 6]
        assert runtime.kept_since == 0
        assert runtime.rewind("mid.0", 2)
        assert [n for n, _, _ in sent(runtime, applied=2, target="mid.0")] == [3, 4, 5, 6]
        for target in runtime.buffers:
            runtime.trim(target, 2)
        assert runtime.marker == {1: 2, 2: 4, 3: 6}
        assert runtime.kept_since == 2
        assert runtime.rewind("mid.0", 2) and not runtime.rewind("mid.0", 1)
        assert runtime.rewind("next.0", 2) and not runtime.rewind("next.0", 1)
        runtime.trim("mid.0", 3)
        assert runtime.kept_since == 3, "who reads it over the feedback edge could not begin at 2"

    def test_what_is_under_way_is_counted_behind_the_marker_that_the_reader_awaits(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(buffers, "IN_FLIGHT", 1)
        runtime = returning(tmp_path)
        came_to(runtime, 2)
        found = [[n for n, _, _ in sent(runtime, 1, target="mid.0")] for _ in range(4)]
        assert found == [[1], [2], [3], []]
        assert [n for n, _, _ in sent(runtime, 2, target="mid.0")] == [4]

    def test_a_full_node_takes_the_next_batch_beside_what_is_under_way(self, tmp_path: Path) -> None:
        """Its reader may need that batch to apply what is under way, and confirms nothing before."""
        runtime = returning(tmp_path)
        came_to(runtime, 1)
        runtime.trim("next.0", 1)
        budget = runtime.buffers["mid.0"].budget
        budget.memory_limit = budget.disk_limit = 0
        for batch in (2, 3):
            says(runtime, "mid.0", batch, batch)
            hears(runtime, "b", batch)
        assert runtime.advance(ANYBODY) and runtime.position == 2
        runtime.trim("next.0", 2)
        with pytest.raises(BufferError):
            runtime.advance(ANYBODY)  # of batch 1 it holds what its reader can confirm
        runtime.trim("mid.0", 2)
        assert runtime.advance(ANYBODY)


class TestTwoCopies:
    """Why standbys are refused in this order (docs/decisions/0072-cycles-that-come-back.md)."""

    def test_a_reader_that_went_from_one_to_the_other_would_lose_rows(self, tmp_path: Path) -> None:
        """Both are sent the same, at other moments, and come to the same batch."""
        one, other = made(tmp_path / "one"), made(tmp_path / "other")
        for copy, order in ((one, ("a", "b")), (other, ("",))):
            for sources in order:
                for source in sources or "ab":
                    hears(copy, source, 1, 2)
                all_applied(copy)
        assert one.position == other.position == 2
        had, goes_on = sent(one), sent(other)
        assert had == [(1, 0, [A + 1]), (2, 0, [A + 2]), (3, 1, [B + 1]), (4, 2, [B + 2])]
        assert goes_on == [(1, 1, [A + 1, B + 1]), (2, 2, [A + 2, B + 2])]
        taken = [row for number, _, rows in had if number <= 2 for row in rows]
        taken += [row for number, _, rows in goes_on if number > 2 for row in rows]
        assert taken == [A + 1, A + 2], "the rows of `b` would be lost, and nobody would know of it"
        assert one.state != other.state, "an operator that counts steps is elsewhere, too"
