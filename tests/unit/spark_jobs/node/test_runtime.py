"""One partition at work: what it needs for a batch, what it gives, what it keeps, and what a checkpoint of it holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.spark_jobs.contract import Inbox, Operator, Place, Tables
from reprise.spark_jobs.errors import StepError
from reprise.spark_jobs.node.buffers import Budget
from reprise.spark_jobs.node.counters import MAX_COUNTERS, counters
from reprise.spark_jobs.node.runtime import OperatorRuntime, Output
from reprise.spark_jobs.node.state_tables import FEEDBACK, STAGED, WATERMARK, first_staged, watermark_table
from reprise.spark_jobs.node.wire import Message, decode_table
from reprise.spark_jobs.sinks import Sink
from reprise.spark_jobs.topology import expand, load_text

TEXT = """
apiVersion: reprise.dev/v1alpha1
kind: StreamTopology
metadata: {name: loop}
spec:
  batch: {interval: 100ms}
  sources: [{name: in, class: "tests.support.scripted:Numbers", parallelism: 2}]
  operators:
    - {name: mid, class: "tests.support.scripted:Passing", inputs: [{from: in}, {from: back, feedback: true}], output: {}}
    - {name: back, class: "tests.support.scripted:Passing", inputs: [{from: mid}]}
    - {name: wide, class: "tests.support.scripted:Passing", parallelism: 3, inputs: [{from: mid, by: ["n"]}]}
    - {name: copies, class: "tests.support.scripted:Passing", parallelism: 2, inputs: [{from: mid, broadcast: true}]}
"""
RESOURCE = load_text(TEXT)
PARTITIONS = expand(RESOURCE).partitions
ROWS = pa.table({"n": [1, 2, 3, 4, 5]})
ANYBODY: Callable[[str], bool] = lambda _: True  # noqa: E731


class Keeping(Operator):
    """Keeps the inboxes that it was given; gives `gives`."""

    def __init__(self, gives: Any = ROWS) -> None:
        self.gives, self.given, self.counts = gives, list[Inbox](), dict[Any, Any]()

    def step(self, state: Any, inbox: Inbox) -> tuple[Any, pa.Table | None]:
        self.given.append(inbox)
        return inbox.batch, self.gives

    def freeze(self, state: Any) -> Callable[[], Tables]:
        return lambda: {"own": pa.table({"at": [state]})}

    def restore(self, place: Place, tables: Tables) -> Any:
        assert tables.keys() == {"own"}, "what is its own"
        return place.partition, tables["own"]["at"][0].as_py()

    def counters(self, state: Any) -> dict[Any, Any]:
        return self.counts


def sender_of(last: int, budget: Budget) -> OperatorRuntime:
    """`mid.0`, which has given batches 1 to `last` to all that read it."""
    made = OperatorRuntime(PARTITIONS["mid.0"], Keeping(), None, 0, budget, None)
    for batch in range(1, last + 1):
        made.emit(Output(batch, None, ROWS), ANYBODY)
        made.position = batch
    return made


class Shelf(Sink):
    """Shows what it has taken up to `allowed`."""

    def __init__(self) -> None:
        self.taken: dict[int, Any] = {}
        self.allowed, self.closed = 10**6, False

    def write(self, batch: int, table: pa.Table | None) -> None:
        assert batch not in self.taken
        self.taken[batch] = table
        self.settle(0.0)

    def settle(self, patience_s: float) -> str | None:
        self.visible = max([self.visible, *(b for b in self.taken if b <= self.allowed)])
        return None

    def shown(self) -> list[tuple[int, float]]:
        return []

    def close(self) -> None:
        self.closed = True


def made(
    folder: Path,
    name: str = "mid.0",
    sink: Sink | None = None,
    at: int = 0,
    memory: int = 10**6,
    gives: Any = ROWS,
) -> OperatorRuntime:
    return OperatorRuntime(PARTITIONS[name], Keeping(gives), None, at, Budget(memory, 10**9, folder), sink)


def hears(
    runtime: OperatorRuntime, *batches: int, watermark: int | None = None, **sources: int | None
) -> None:
    """A message of each upstream over other edges than feedback; `sources`: watermarks of some."""
    for upstream in runtime.partition.upstream:
        if not upstream.feedback:
            mark = sources.get(upstream.partition.replace(".", "_"), watermark)
            for batch in batches:
                runtime.deliver(Message(upstream.partition, runtime.partition.id, batch, mark, ROWS))


def loops(runtime: OperatorRuntime, *batches: int) -> None:
    for batch in batches:
        runtime.deliver(Message("back.0", runtime.partition.id, batch, 3, ROWS))


# -- operators ---------------------------------------------------------------------------------------------------------


def test_a_batch_needs_all_of_its_input_and_of_the_batch_before_over_a_feedback_edge(tmp_path: Path) -> None:
    runtime = made(tmp_path)
    runtime.deliver(Message("in.0", "mid.0", 1, 5, ROWS))
    assert not runtime.advance(ANYBODY)
    runtime.deliver(Message("in.1", "mid.0", 1, 7, None))
    assert runtime.advance(ANYBODY), "the first needs nothing that was fed back"
    operator = runtime.operator
    assert isinstance(operator, Keeping)
    (inbox,) = operator.given
    assert (inbox.batch, inbox.watermark) == (1, 5)
    assert [(i.operator, i.partition) for i in inbox.inputs] == [("in", "in.0")], (
        "a message without rows is no input"
    )
    assert runtime.input_bytes == ROWS.nbytes
    hears(runtime, 2, watermark=9)
    assert not runtime.advance(ANYBODY)
    loops(runtime, 1)
    assert runtime.advance(ANYBODY)
    inbox = operator.given[1]
    assert (inbox.batch, inbox.watermark) == (2, 9), "what was fed back says nothing of the time"
    assert [i.partition for i in inbox.inputs] == ["in.0", "in.1", "back.0"]
    assert runtime.input_bytes == 4 * ROWS.nbytes
    assert (runtime.position, runtime.settled) == (2, 2)
    assert runtime.cpu_s > 0
    assert not any(runtime.inbox.values()), "what was applied is not kept"


def test_the_watermark_is_the_least_and_stays_where_one_is_not_known(tmp_path: Path) -> None:
    runtime = made(tmp_path, "wide.0")
    assert runtime.needs == (("mid.0", 0),)
    runtime = made(tmp_path)
    hears(runtime, 1, in_0=4, in_1=2)
    runtime.advance(ANYBODY)
    assert runtime.watermark == 2
    hears(runtime, 2, in_0=9, in_1=None)
    loops(runtime, 1)
    runtime.advance(ANYBODY)
    assert runtime.watermark == 2


def test_what_comes_again_or_from_nobody_is_skipped(tmp_path: Path) -> None:
    runtime = made(tmp_path, at=4)
    hears(runtime, 4)
    loops(runtime, 3)
    runtime.deliver(Message("stranger.0", "mid.0", 5, None, ROWS))
    assert not any(runtime.inbox.values())
    hears(runtime, 5)
    loops(runtime, 4)
    kept = runtime.inbox["in.0"][5]
    runtime.deliver(Message("in.0", "mid.0", 5, None, None))
    assert runtime.inbox["in.0"][5] is kept
    assert runtime.advance(ANYBODY)


def test_output_goes_to_who_is_wanted_and_always_back(tmp_path: Path) -> None:
    runtime = made(tmp_path, "back.0")
    assert runtime.feedback == {"mid.0"}
    runtime.deliver(Message("mid.0", "back.0", 1, 8, ROWS))
    assert runtime.advance(lambda _: False)
    assert runtime.buffers["mid.0"].entries.keys() == {1}
    runtime = made(tmp_path)
    hears(runtime, 1, watermark=8)
    assert runtime.advance(lambda target: target in ("wide.1", "copies.0", "copies.1"))
    kept = {t: b.entries for t, b in runtime.buffers.items() if b.entries}
    assert kept.keys() == {"wide.1", "copies.0", "copies.1"}
    assert kept["copies.0"][1].body is kept["copies.1"][1].body, "encoded once"
    assert {entries[1].watermark for entries in kept.values()} == {8}
    everywhere = made(tmp_path)
    hears(everywhere, 1)
    everywhere.advance(ANYBODY)
    rows = [decode_table(everywhere.buffers[f"wide.{i}"].body(1)) for i in range(3)]
    assert sorted(n for table in rows if table is not None for n in table["n"].to_pylist()) == [1, 2, 3, 4, 5]


def test_a_batch_without_rows_is_a_barrier_for_all(tmp_path: Path) -> None:
    runtime = made(tmp_path, gives=None)
    hears(runtime, 1)
    assert runtime.advance(ANYBODY)
    assert {b.entries[1].size for b in runtime.buffers.values()} == {0}


@pytest.mark.parametrize("gives", [[1, 2], {"n": [1]}, "rows"])
def test_rows_that_are_no_table_are_the_operator_s_error(tmp_path: Path, gives: Any) -> None:
    runtime = made(tmp_path, gives=gives)
    hears(runtime, 1)
    with pytest.raises(StepError, match=r"operator mid, partition mid\.0, batch 1: TypeError: rows must be"):
        runtime.advance(ANYBODY)


def test_where_each_target_goes_on(tmp_path: Path) -> None:
    """Over a feedback edge the batch at which the target is, is still needed."""
    runtime = made(tmp_path, "back.0", at=4)
    assert runtime.buffers["mid.0"].cursor == 4
    assert made(tmp_path, "back.0").buffers["mid.0"].cursor == 1
    assert {b.cursor for b in made(tmp_path, at=4).buffers.values()} == {5}
    for batch in (4, 5, 6):
        runtime.buffers["mid.0"].put(batch, None, b"x")
    runtime.trim("mid.0", 5)
    assert runtime.buffers["mid.0"].entries.keys() == {5, 6}
    assert runtime.rewind("mid.0", 5)
    runtime.trim("mid.0", 6)
    assert runtime.buffers["mid.0"].entries.keys() == {6}
    assert not runtime.rewind("mid.0", 5)
    assert runtime.rewind("mid.0", 6)


def test_what_is_sent_stays_within_the_window(tmp_path: Path) -> None:
    runtime = made(tmp_path, "wide.0")
    runtime = made(tmp_path, gives=None)
    hears(runtime, *range(1, 7))
    loops(runtime, *range(1, 6))
    while runtime.advance(ANYBODY):
        pass
    assert runtime.position == 6
    assert [m.batch for m, _ in runtime.pending("wide.0", 2, 2)] == [1, 2, 3, 4]
    assert [m.batch for m, _ in runtime.pending("wide.0", 3, 2)] == [5]


def test_who_holds_nothing_older_may_go_on_though_the_node_is_full(tmp_path: Path) -> None:
    """Else the one that lags most could wait for room that others take with what they have made for it."""
    runtime = made(tmp_path)
    runtime.buffers["back.0"].budget.memory_limit = runtime.buffers["back.0"].budget.disk_limit = 0
    hears(runtime, 1, 2)
    loops(runtime, 1)
    assert runtime.advance(ANYBODY)
    assert {
        decode_table(b.body(1)) is None for t, b in runtime.buffers.items() if t.startswith("copies")
    } == {False}
    with pytest.raises(BufferError):
        runtime.advance(ANYBODY)
    for target in runtime.buffers:
        runtime.trim(target, 1)
    assert runtime.advance(ANYBODY)
    assert runtime.position == 2


def test_what_goes_round_is_not_older_than_the_batch_that_its_reader_needs_with_it(tmp_path: Path) -> None:
    """A reader that needs both, by ways of different lengths, confirms neither without the other."""
    runtime = made(tmp_path, "back.0")
    runtime.buffers["mid.0"].budget.memory_limit = runtime.buffers["mid.0"].budget.disk_limit = 0
    hears(runtime, 1, 2, 3)
    assert runtime.advance(ANYBODY) and runtime.advance(ANYBODY)
    with pytest.raises(BufferError):
        runtime.advance(ANYBODY)
    runtime.trim("mid.0", 2)
    assert runtime.advance(ANYBODY) and runtime.position == 3


def test_a_partition_that_is_closed_gives_all_back(tmp_path: Path) -> None:
    sink = Shelf()
    runtime = made(tmp_path, sink=sink)
    hears(runtime, 1)
    runtime.advance(ANYBODY)
    budget = runtime.buffers["back.0"].budget
    assert budget.memory > 0
    runtime.close()
    assert budget.memory == 0
    assert sink.closed
    made(tmp_path).close()


# -- what operators count ----------------------------------------------------------------------------------------------


def test_only_so_many_counters_are_shown(tmp_path: Path) -> None:
    runtime = made(tmp_path)
    assert isinstance(runtime.operator, Keeping)
    runtime.operator.counts = {f"c{i}": i for i in range(MAX_COUNTERS + 5)}
    assert counters(runtime) == {f"c{i}": i for i in range(MAX_COUNTERS)}


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({"a": 1, "b": 1.5}, "counter 'b' is 1.5, which is no named whole number"),
        ({3: 1}, "counter 3 is 1, which is no named whole number"),
        ({"a": True}, "counter 'a' is True, which is no named whole number"),
    ],
)
def test_what_is_no_count(tmp_path: Path, counts: dict[Any, Any], says: str) -> None:
    runtime = made(tmp_path)
    assert isinstance(runtime.operator, Keeping)
    runtime.operator.counts = counts
    with pytest.raises(TypeError) as raised:
        counters(runtime)
    assert str(raised.value) == says


# -- sinks -------------------------------------------------------------------------------------------------------------


def test_an_output_counts_as_far_as_it_is_shown(tmp_path: Path) -> None:
    sink = Shelf()
    sink.allowed = 1
    runtime = made(tmp_path, sink=sink)
    hears(runtime, 1, 2)
    loops(runtime, 1)
    while runtime.advance(ANYBODY):
        pass
    assert (runtime.position, runtime.settled) == (2, 1)
    runtime.staged = {}
    assert runtime.settled == 2, "what waits for a checkpoint is a part of the state"


def test_staged_output_is_given_once_and_kept_until_it_is_shown(tmp_path: Path) -> None:
    sink = Shelf()
    runtime = made(tmp_path, sink=sink)
    runtime.staged = {3: ROWS, 1: None, 2: ROWS}
    runtime.publish(0)
    assert sink.taken == {}
    sink.allowed = 1
    runtime.publish(2)
    assert list(sink.taken) == [1, 2], "in order"
    assert (sink.taken[1], sink.taken[2]) == (None, ROWS)
    assert runtime.staged.keys() == {2, 3}
    runtime.publish(2)
    assert runtime.staged.keys() == {2, 3}
    sink.allowed = 10**6
    sink.settle(0.0)
    runtime.publish(2)
    assert runtime.staged.keys() == {3}
    runtime.publish(9)
    assert list(sink.taken) == [1, 2, 3]
    assert runtime.staged == {}
    made(tmp_path).publish(9)


def test_a_sink_that_shows_more_than_it_was_given_drops_nothing_that_waits(tmp_path: Path) -> None:
    sink = Shelf()
    runtime = made(tmp_path, sink=sink)
    runtime.staged = {3: ROWS}
    sink.visible = 9
    runtime.publish(2)
    assert runtime.staged.keys() == {3}


# -- states ------------------------------------------------------------------------------------------------------------


def frozen(runtime: OperatorRuntime) -> Tables:
    encode = runtime.freeze(runtime.loops())
    assert encode is not None
    return encode()


def test_a_state_holds_what_goes_back_what_waits_and_the_time(tmp_path: Path) -> None:
    runtime = made(tmp_path, "back.0", Shelf())
    runtime.staged = {}
    for batch in (1, 2):
        runtime.deliver(Message("mid.0", "back.0", batch, 8, ROWS))
        runtime.advance(ANYBODY)
    runtime.staged[2] = None
    tables = frozen(runtime)
    assert tables.keys() == {"own", "runtime/watermark", f"{FEEDBACK}mid.0", f"{STAGED}1", f"{STAGED}2"}
    assert tables["runtime/watermark"].to_pydict() == {"watermark": [8]}
    assert tables["runtime/watermark"].schema.field("watermark").type == pa.int64()
    assert tables[f"{FEEDBACK}mid.0"] == ROWS
    again = made(tmp_path, "back.0", Shelf(), at=2)
    again.staged = {}
    again.restore(tables)
    assert (again.state, again.watermark) == (("back.0", 2), 8)
    assert again.staged == {1: ROWS, 2: None}
    assert [(m.batch, m.watermark, decode_table(body)) for m, body in again.pending("mid.0", 0, 9)] == [
        (2, None, ROWS)
    ]
    shown = made(tmp_path, "back.0", Shelf(), at=2)
    shown.restore(tables)
    assert shown.staged is None


def test_a_state_without_rows_to_go_back_still_lets_the_next_batch_begin(tmp_path: Path) -> None:
    runtime = made(tmp_path, "back.0", gives=None)
    runtime.deliver(Message("mid.0", "back.0", 1, None, ROWS))
    runtime.advance(ANYBODY)
    assert runtime.loops() == {}
    tables = frozen(runtime)
    assert tables.keys() == {"own", "runtime/watermark"}
    again = made(tmp_path, "back.0", at=1)
    again.restore(tables)
    assert again.watermark is None
    assert [(m.batch, body) for m, body in again.pending("mid.0", 0, 9)] == [(1, b"")]


def test_what_goes_back_stays_until_the_state_is_stored_though_its_reader_has_applied_it(
    tmp_path: Path,
) -> None:
    runtime = made(tmp_path, "back.0")
    for batch in (1, 2, 3):
        runtime.deliver(Message("mid.0", "back.0", batch, None, ROWS))
    assert runtime.advance(ANYBODY) and runtime.advance(ANYBODY)
    runtime.owed = True
    runtime.trim("mid.0", 3)
    assert runtime.loops().keys() == {"mid.0"}
    assert runtime.buffers["mid.0"].entries.keys() == {2} and runtime.kept_since == 2
    runtime.owed = False
    runtime.trim("mid.0", 3)
    assert not runtime.buffers["mid.0"].entries
    runtime.unfinished = Output(3, None, ROWS, handed=True)
    runtime.emit(runtime.unfinished, ANYBODY)  # and another reader has it not yet
    runtime.trim("mid.0", 4)
    assert runtime.advance(ANYBODY)
    assert runtime.loops().keys() == {"mid.0"}
    runtime.trim("mid.0", 4)
    assert not runtime.buffers["mid.0"].entries


def test_what_goes_back_is_restored_on_a_full_node(tmp_path: Path) -> None:
    """It cannot be made again, and a state without it is that of another batch."""
    tables = {"own": pa.table({"at": [2]}), WATERMARK: watermark_table(None), f"{FEEDBACK}mid.0": ROWS}
    again = OperatorRuntime(PARTITIONS["back.0"], Keeping(), None, 2, Budget(0, 0, tmp_path), None)
    again.restore(tables)
    assert [(m.batch, decode_table(body)) for m, body in again.pending("mid.0", 0, 9)] == [(2, ROWS)]


def test_nothing_is_stored_where_there_is_nothing(tmp_path: Path) -> None:
    runtime = made(tmp_path)
    assert runtime.freeze({}) is None
    runtime.watermark = 0
    encode = runtime.freeze({})
    assert encode is not None and encode().keys() == {"runtime/watermark"}
    runtime.watermark, runtime.staged = None, {4: None}
    encode = runtime.freeze({})
    assert encode is not None and encode().keys() == {"runtime/watermark", f"{STAGED}4"}
    assert encode()[f"{STAGED}4"].num_columns == 0


def test_the_oldest_batch_that_waits() -> None:
    tables = {f"{STAGED}12": ROWS, f"{STAGED}9": ROWS, "own": ROWS}
    assert first_staged(tables, 20) == 9
    assert first_staged({"own": ROWS}, 20) == 20
