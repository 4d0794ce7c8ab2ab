"""Passive standbys: whatever is lost, all is shown once and as without a failure; the copy of a state is the state; and no
trouble with it touches the partition."""

# ruff: noqa: F811 - fixtures of the tests of active standbys, which hold here as well
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.errors import SinkError
from reprise.spark_jobs.node import deltas
from reprise.spark_jobs.node.buffers import EdgeBuffer
from reprise.spark_jobs.node.command import Command
from reprise.spark_jobs.node.deltas import Delta, StateCopy
from reprise.spark_jobs.node.passive import DeltaSender, PassiveStandby
from reprise.spark_jobs.node.runtime import Runtime
from reprise.spark_jobs.node.wire import Message, decode_table, encode_table
from reprise.spark_jobs.operators import RunningAggregate
from reprise.spark_jobs.sinks import FileSink
from tests.support.hashtags import WITH_STANDBYS
from tests.support.pumped_engine import PumpedNodes
from tests.unit.spark_jobs.engine import test_standbys as active
from tests.unit.spark_jobs.engine.test_standbys import (
    AT,
    NODES,
    STANDBYS,
    Watch,
    all_ready,
    back,
    expected,  # noqa: F401 - the output without a failure, which is the same
    finish,
    goes_to_its_standby,
    recover,
    watch,  # noqa: F401 - H1 and H2 in every job here, too
)
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")

EVERY = 4
ARRAYS = WITH_STANDBYS.replace(
    "availability: active-standby", f"availability: passive-standby\n      standby: {{every: {EVERY}}}"
)
PAGED = ARRAYS.replace("checkpoint: {everyBatches: 10}", "checkpoint: {everyBatches: 10, state: paged}")
assert ARRAYS.count("passive-standby") == 2
assert PAGED != ARRAYS

Expected = dict[str, bytes]


@pytest.fixture(autouse=True)
def copies(monkeypatch: pytest.MonkeyPatch, watch: Watch) -> list[int]:
    """H2 for copies: what a standby holds is the state of its partition after that batch.  How many were compared."""
    compared, take = [0], StateCopy.take

    def taken(copy: StateCopy, delta: Delta) -> None:
        take(copy, delta)
        states = {key[0]: state for key, state in watch.states.items() if key[1] == delta.position}
        tables = {name: table.to_pylist() for name, table in (copy.tables() or {}).items()}
        same = [p for p, state in states.items() if state == tables]
        # initial states, and those that were restored, were not stepped to
        assert same or not states, f"H2: no partition has this state at batch {delta.position}"
        compared[0] += bool(same)

    monkeypatch.setattr(StateCopy, "take", taken)
    return compared


def world_of(folder: Path, standbys: dict[str, str] = STANDBYS, text: str = ARRAYS) -> World:
    return active.world_of(folder, standbys, text)


def ready_at(batch: int) -> Callable[[Engine], bool]:
    """All have come to a batch, and no checkpoint is ahead of a standby."""
    return lambda e: past(batch)(e) and all_ready(e)


def sent(world: World, node: str, partition: str) -> PassiveStandby:
    standby = world.nodes.hosts[node].runtimes[partition]
    assert isinstance(standby, PassiveStandby)
    return standby


@pytest.mark.wide
@pytest.mark.parametrize("text", [ARRAYS, PAGED], ids=["arrays", "paged"])
def test_a_standby_has_the_state_of_its_partition_and_steps_nothing(
    tmp_path: Path, expected: Expected, copies: list[int], text: str
) -> None:
    world = world_of(tmp_path, text=text)
    world.run(ready_at(25))
    assert copies[0] > 15
    for partition, node in STANDBYS.items():
        standby = sent(world, node, partition)
        assert standby.position >= 25 - EVERY - 8
        assert standby.inbox == {u: {} for u in standby.inbox}, "it is sent no rows to step"
    finish(world, expected)
    assert world.engine.figures.failed_jobs == 0


def through(
    patch: pytest.MonkeyPatch, change: object
) -> None:  # `change`: (slot, message, body) -> the same or None
    outgoing = DeltaSender.outgoing

    def changed(self: DeltaSender, *rest: object) -> Iterator[tuple[int, Message, bytes]]:
        for one in outgoing(self, *rest):  # type: ignore[arg-type]
            if (other := change(*one)) is not None:  # type: ignore[operator]
                yield other

    patch.setattr(DeltaSender, "outgoing", changed)


@pytest.mark.parametrize("exchange", ["chained"], indirect=True)  # counts jobs
def test_what_is_lost_on_its_way_is_in_the_next_delta(tmp_path: Path, expected: Expected) -> None:
    """The base of each is what the standby is known to have."""
    world = world_of(tmp_path, {"count.0": "d"}, PAGED)
    world.run(ready_at(12))
    was, dropped = world.engine.progress.standbys["count.0"], []
    with pytest.MonkeyPatch.context() as patch:
        through(patch, lambda slot, message, body: dropped.append(message.batch))
        world.run(past(26))
        assert len(dropped) > 2
        assert sent(world, "d", "count.0").position == was
        assert world.engine.punctuations.newest > was
        assert world.engine.progress.standbys == {}, "a checkpoint is ahead of it"
    world.run(all_ready)
    goes_to_its_standby(world)
    finish(world, expected)


def torn(body: bytes) -> bytes:
    table = decode_table(body)
    assert table is not None
    rows = table["bytes"].to_pylist()
    longest = max(range(1, len(rows)), key=lambda i: len(rows[i]))
    rows[longest] = rows[longest][:-1] + bytes([rows[longest][-1] ^ 1])
    return encode_table(pa.table({"bytes": pa.array(rows, pa.large_binary())}))


def test_a_delta_that_is_damaged_is_not_taken(tmp_path: Path, expected: Expected) -> None:
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(ready_at(12))
    was = world.engine.progress.standbys["count.0"]
    with pytest.MonkeyPatch.context() as patch:
        through(patch, lambda slot, message, body: (slot, message, torn(body)))
        world.run(past(18))
        assert sent(world, "d", "count.0").position == was
    assert any("does not have its checksum" in said for said in world.engine.problems)
    world.run(all_ready)
    goes_to_its_standby(world)
    finish(world, expected)


def test_a_delta_that_comes_late_twice_or_for_another_standby_is_not_taken(
    tmp_path: Path, expected: Expected
) -> None:
    world = world_of(tmp_path, {"count.0": "d"}, PAGED)
    seen = list[Message]()
    take = PassiveStandby.take

    def taken(standby: PassiveStandby, message: Message) -> list[str]:
        seen.append(message)
        return take(standby, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PassiveStandby, "take", taken)
        world.run(ready_at(20))
    standby, old = sent(world, "d", "count.0"), seen[-3:]
    before = (standby.position, standby.copy.tables())
    for message in old:
        assert standby.take(message) == []
    assert (standby.position, standby.copy.tables()) == before
    # everything goes back: what the partition had sent to the standby before is of another history
    back(world)
    recover(world, {"count.0": next(n for n in NODES if n != world.engine.desired.assignment["count.0"])})
    world.run(lambda e: "count.0" in e.progress.standbys)
    node = world.engine.standbys.there["count.0"].node
    fresh = sent(world, node, "count.0")
    assert fresh is not standby
    at = fresh.position
    for message in old:
        assert fresh.take(message) == []
    assert fresh.position == at
    finish(world, expected)


def test_a_partition_that_still_runs_where_it_was_adds_nothing(tmp_path: Path, expected: Expected) -> None:
    """It was given up and lives: it steps on, shows what its successor shows, and what it sends reaches nobody."""
    world = world_of(tmp_path)
    world.run(ready_at(25))
    zombie = world.nodes.hosts["c"]
    goes_to_its_standby(world)
    tick(world)
    assert zombie.command is not None
    zombie.run(1.0)
    sending = [message for slot in zombie.sender.outgoing(zombie.command).values() for message, _ in slot]
    assert all(message.source == "count.0" for message in sending)
    promoted = world.nodes.hosts["a"]
    position = promoted.runtimes["count.0"].position
    for message, body in (one for slot in zombie.sender.outgoing(zombie.command).values() for one in slot):
        promoted.deliver(Message(message.source, message.target, message.batch, None, decode_table(body)))
    assert promoted.runtimes["count.0"].position == position
    finish(world, expected)


def test_where_buffers_are_full_a_standby_is_not_ready_until_it_is_sent_more(
    tmp_path: Path, expected: Expected
) -> None:
    """What it would need is dropped before the stream waits; one delta later that does not matter."""
    text = ARRAYS.replace("bufferMemory: 1Mi", "bufferMemory: 4Ki, bufferDisk: 4Ki")
    assert text != ARRAYS
    world = world_of(tmp_path, {"count.0": "d"}, text)
    world.run(ready_at(12))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PumpedNodes, "widens", False)  # hosts that change over send it again
        through(patch, lambda *_: None)
        world.run(lambda e: past(45)(e) and not e.progress.standbys)
    world.run(all_ready)
    goes_to_its_standby(world)
    finish(world, expected)


def test_no_delta_is_made_for_a_node_that_has_not_been_sent_the_last_one(
    tmp_path: Path, expected: Expected
) -> None:
    """It may be the whole state each time."""
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(ready_at(12))
    outgoing, made = DeltaSender.outgoing, list[bool]()

    def full(
        self: DeltaSender, runtimes: Mapping[str, Runtime], command: Command, *_: object
    ) -> Iterator[Any]:
        slots = {shadow.slot for shadow in command.standbys.values()}
        found = list(outgoing(self, runtimes, command, slots))
        made.append(bool(found))
        yield from found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaSender, "outgoing", full)
        tick(world, 3)  # what was made early leaves
        made.clear()
        world.run(past(min(world.engine.positions.values()) + 10))
        assert made
        assert not any(made)
    world.run(all_ready)
    goes_to_its_standby(world)
    finish(world, expected)


def test_a_partition_goes_on_though_nothing_can_be_sent_to_its_standby(
    tmp_path: Path, expected: Expected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too large, or user code that raises: it is said, and the standby counts as missing."""
    monkeypatch.setattr(deltas, "MOST_BYTES", 100)
    world = world_of(tmp_path, {"count.0": "d"})
    finish(world, expected)
    assert any("DeltaTooLargeError" in said for said in world.engine.problems)
    assert world.engine.progress.standbys == {}


def test_a_state_that_cannot_be_frozen_for_a_standby_harms_nobody(tmp_path: Path, expected: Expected) -> None:
    world = world_of(tmp_path, {"count.0": "d"})
    made = DeltaSender.outgoing

    def raising(*_: object) -> object:
        raise ValueError("no")

    def sends(self: DeltaSender, *rest: object) -> Iterator[tuple[int, Message, bytes]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RunningAggregate, "freeze", raising)
            yield from made(self, *rest)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeltaSender, "outgoing", sends)
        world.run(past(15))
    assert any("nothing is sent to its standby: ValueError: no" in said for said in world.engine.problems)
    assert not world.engine.failed
    world.run(all_ready)
    finish(world, expected)


def test_a_standby_without_room_for_output_waits_for_the_next_delta(
    tmp_path: Path, expected: Expected
) -> None:
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(ready_at(12))
    standby = sent(world, "d", "count.0")
    put, was = EdgeBuffer.put, standby.position

    def full(buffer: EdgeBuffer, *rest: object, **more: object) -> None:
        if any(buffer is one for one in standby.buffers.values()):
            raise BufferError("buffers of this node are full")
        put(buffer, *rest, **more)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EdgeBuffer, "put", full)
        world.run(past(18))
        assert standby.position == was
    assert any("waits for the next delta: buffers" in said for said in world.engine.problems)
    world.run(lambda e: e.progress.standbys.get("count.0", 0) > was)
    goes_to_its_standby(world)
    finish(world, expected)


def test_everything_is_sent_once_and_then_what_has_changed(tmp_path: Path) -> None:
    world = world_of(tmp_path, {"count.0": "d"}, PAGED)
    bases = list[int | None]()
    encode = Delta.encode

    def encoded(delta: Delta) -> pa.Table:
        bases.append(delta.base)
        return encode(delta)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PumpedNodes, "widens", False)  # hosts that change over send everything again
        patch.setattr(Delta, "encode", encoded)
        world.run(ready_at(20))
    assert len(bases) > 3
    assert [at for at, base in enumerate(bases) if base is None] == [0]


def test_what_was_made_for_another_standby_is_not_taken(tmp_path: Path) -> None:
    """Also if it is newer, and holds everything."""
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(ready_at(12))
    standby = sent(world, "d", "count.0")
    was = standby.position
    for installation, position in (("1.0.99", was), (standby._installation, was + 1)):
        delta = Delta(installation, None, was + 1, {})
        message = Message("count.0", "count.0", was + 1, None, delta.encode())
        assert standby.take(message) == []
        assert standby.position == position


def test_nothing_is_sent_of_a_batch_that_is_stepped_and_not_shown(tmp_path: Path, expected: Expected) -> None:
    """Its state is ahead of its position until the sink takes what came of it."""
    world = world_of(tmp_path, {})
    world.run(past(12))
    write, held = FileSink.write, [True]

    def slow(sink: FileSink, batch: int, table: object) -> None:
        if sink.folder.parts[-2:] == ("count", "0") and held[0]:
            raise SinkError("no answer")
        write(sink, batch, table)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileSink, "write", slow)
        tick(world, 2)
        assert world.nodes.hosts["c"].runtimes["count.0"].unfinished is not None
        recover(world, {"count.0": "d"})
        tick(world, 3)
        assert sent(world, "d", "count.0").is_empty
        held[0] = False
        world.run(all_ready)
    goes_to_its_standby(world)
    finish(world, expected)


def test_a_reader_that_is_lost_too_is_fed_with_what_the_copy_keeps(
    tmp_path: Path, expected: Expected
) -> None:
    """It begins at the checkpoint, behind which its upstream is promoted: nobody goes back."""
    world = world_of(tmp_path, {"count.0": "a", "count.1": "a"})
    world.run(lambda e: ready_at(25)(e) and e.progress.standbys["count.0"] > e.punctuations.newest)
    world.nodes.lose("c", "d")  # `count.0`, and `best.0` that reads it
    tick(world, 2)
    assert recover(world) == {"count.0"}
    tick(world, 2)
    assert not world.engine.not_kept
    finish(world, expected)
    assert world.engine.desired.generation == 1


@pytest.mark.wide
def test_a_copy_whose_input_was_dropped_is_not_ready(tmp_path: Path, expected: Expected) -> None:
    """No checkpoint is ahead of it, and yet somebody could not send what follows."""
    text = ARRAYS.replace("bufferMemory: 1Mi", "bufferMemory: 4Ki, bufferDisk: 4Ki")
    late = text.replace("everyBatches: 10", "everyBatches: 1000")
    assert ARRAYS != text != late
    world = world_of(tmp_path, {"count.0": "d"}, late)
    world.run(ready_at(8))
    with pytest.MonkeyPatch.context() as patch:
        through(patch, lambda *_: None)
        world.run(lambda e: not e.progress.standbys)
        assert world.engine.punctuations.newest == 0
        assert world.engine.standbys.there["count.0"].at_work
    world.run(all_ready)
    finish(world, expected)


def test_a_copy_that_is_gone_is_sent_everything_again(tmp_path: Path, expected: Expected) -> None:
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(ready_at(12))
    sent(world, "d", "count.0").copy = StateCopy()
    tick(world)
    assert world.engine.progress.standbys == {}
    world.run(all_ready)
    goes_to_its_standby(world)
    finish(world, expected)


def test_a_copy_that_was_emptied_is_not_promoted_though_its_partition_is_at_work(
    tmp_path: Path, expected: Expected
) -> None:
    """The driver hears of it with the job that was to promote it: the partition counts as lost, and comes from its
    checkpoint.  Its former host has dropped it with the same job, and nobody steps it twice."""
    world = world_of(tmp_path)
    world.run(ready_at(25))
    engine = world.engine
    sent(world, "a", "count.0").copy = StateCopy()
    standbys = {p: n for p, n in STANDBYS.items() if p != "count.0"}
    world.want(1, engine.punctuations.newest, {**AT, "count.0": "a"}, retain=True, standbys=standbys)
    tick(world)
    assert engine.failed["count.0"].kind is FailureKind.STATE_LOST
    tick(world)
    assert all("count.0" not in host.runtimes for host in world.nodes.hosts.values())
    world.want(1, engine.punctuations.newest, {**AT, "count.0": "d"}, retain=True)
    assert engine.positions["count.0"] == engine.punctuations.newest
    finish(world, expected)
