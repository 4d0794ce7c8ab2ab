"""Active standbys: whatever is lost, all is shown once and as without a failure, at most one of two sends, and both have the
same state after the same batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine import standbys as driver_standbys
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.standbys import Standbys
from reprise.spark_jobs.errors import SinkError, StoreError
from reprise.spark_jobs.node import standbys
from reprise.spark_jobs.node.command import Command, Report
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.installing import Preparing
from reprise.spark_jobs.node.runtime import OperatorRuntime, Runtime
from reprise.spark_jobs.node.sending import Sender
from reprise.spark_jobs.node.wire import Message, decode_table
from reprise.spark_jobs.pages import Frozen, Part, assembled, pieces
from reprise.spark_jobs.sinks import FileSink
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.topology import load_text
from tests.support.engine_worlds import fault_free, goes_back, placed, to_its_end
from tests.support.hashtags import WITH_STANDBYS
from tests.support.losses import tick_losing
from tools.testbed.local_engine import World, past, tick

pytestmark = pytest.mark.usefixtures("exchange", "few_batches_ahead")

NODES = ("a", "b", "c", "d")
AT = {
    "tweets.0": "a", "tweets.1": "b", "parse.0": "a", "parse.1": "b",
    "count.0": "c", "count.1": "b", "best.0": "d",
}  # fmt: skip
STANDBYS = {"parse.0": "d", "parse.1": "a", "count.0": "a", "count.1": "c"}


def rows_of(part: Part) -> list[object]:
    """The rows of a table of a frozen state, also of one in pages."""
    found = list[object]()
    for piece in pieces(part):
        if isinstance(piece, Frozen):
            pages = [piece.page(number) for number in range(len(piece.versions))]
            described = piece.describe()
            piece.release()
            found += (assembled(described, pages) if pages else pa.table({})).to_pylist()
        else:
            found += piece.to_pylist()
    return found


class Watch:
    """H1 and H2 in every job: who sends, and the state of each partition after each batch, wherever it was stepped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.states: dict[tuple[str, int], object] = {}
        self.compared = 0
        senders: dict[tuple[int, int, str], Sender] = {}
        pending, advance = Sender._pending, OperatorRuntime.advance
        jobs: dict[int, tuple[int, int]] = {}
        begin = Host.begin

        def began(host: Host, command: object) -> None:
            jobs[id(host.sender)] = command.order  # type: ignore[attr-defined]
            begin(host, command)  # type: ignore[arg-type]

        def sent(sender: Sender, runtime: Runtime, *rest: object, **more: bool) -> Iterator[object]:
            for message in pending(sender, runtime, *rest, **more):  # type: ignore[arg-type]
                key = (*jobs[id(sender)], runtime.partition.id)
                assert senders.setdefault(key, sender) is sender, f"H1: two send for {key}"
                yield message

        def advanced(runtime: OperatorRuntime, wanted: Callable[[str], bool]) -> bool:
            moved = advance(runtime, wanted)
            if (
                moved and runtime.position > runtime.replays_to
            ):  # nothing follows from what it is while it is fed again
                frozen = runtime.freeze({})
                tables = frozen() if frozen is not None else {}
                state = {name: rows_of(part) for name, part in tables.items()}
                key = runtime.partition.id, runtime.position
                self.compared += key in self.states
                assert self.states.setdefault(key, state) == state, f"H2: another state of {key}"
            return moved

        monkeypatch.setattr(Host, "begin", began)
        monkeypatch.setattr(Sender, "_pending", sent)
        monkeypatch.setattr(OperatorRuntime, "advance", advanced)


@pytest.fixture(autouse=True)
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(monkeypatch)


def world_of(folder: Path, standbys: Mapping[str, str] = STANDBYS, text: str = WITH_STANDBYS) -> World:
    return placed(load_text(text), folder, AT, standbys)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return fault_free(world_of(tmp_path_factory.mktemp("fault-free"), {}))


def all_ready(engine: Engine) -> bool:
    return engine.progress.standbys.keys() == engine.desired.standbys.keys()


def recover(world: World, standbys: Mapping[str, str] | None = None) -> set[str]:
    """What a coordinator decides: who has a standby that is ready goes there, all others where there is a node."""
    engine, living = world.engine, sorted(world.nodes.living())
    at, ready = dict(engine.desired.assignment), engine.progress.standbys
    wanted, promoted = dict(engine.desired.standbys), set[str]()
    for i, partition in enumerate(world.topology.order):
        if partition in engine.positions and at.get(partition) in living:
            continue
        if partition in ready and wanted.get(partition) in living:
            at[partition] = wanted.pop(partition)
            promoted.add(partition)
        else:
            at[partition] = living[i % len(living)]
    wanted = {p: n for p, n in (standbys or wanted).items() if at[p] != n}
    gen, newest = engine.desired.generation, engine.punctuations.newest
    world.want(gen, newest, at, retain=True, standbys=wanted)
    return promoted


def goes_to_its_standby(world: World) -> None:
    """The node of `count.0` is lost, and only that has a standby there."""
    world.nodes.lose("c")
    tick(world, 2)
    assert recover(world) == {"count.0"}


def back(world: World) -> None:
    """Everything goes back to the newest checkpoint."""
    living = world.nodes.hosts
    goes_back(world, lambda at: {p: n for p, n in STANDBYS.items() if n in living and at[p] != n})


def finish(world: World, expected: dict[str, bytes], back: Callable[[World], object] = back) -> None:
    to_its_end(world, back)
    assert world.output() == expected


@pytest.mark.wide
def test_standbys_step_as_their_partitions_do_and_show_nothing(
    tmp_path: Path, expected: dict[str, bytes], watch: Watch
) -> None:
    world = world_of(tmp_path)
    world.run(past(25))
    assert all_ready(world.engine)
    assert watch.compared > 50
    kept = world.nodes.hosts["a"].runtimes["count.0"].sink
    assert len(kept._kept) < 20  # type: ignore[union-attr]
    finish(world, expected)
    assert world.engine.figures.failed_jobs == 0


def test_a_standby_that_comes_to_nothing_begins_anew_and_holds_nobody_up(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its store does not answer for a while: what is kept for it ends with the checkpoints that it has missed."""
    monkeypatch.setattr(driver_standbys, "MOST_BEHIND", 15)
    down = answers_no_standby(monkeypatch)
    world = world_of(tmp_path, {"count.0": "d"})
    began = 0
    for _ in range(1000):
        # a job may complete several checkpoints, which are looked at before the next
        newest = world.engine.punctuations.newest
        tick(world)
        if (standby := world.engine.standbys.there.get("count.0")) is not None:
            assert not standby.at_work
            assert newest - standby.position <= 15
            began = max(began, standby.position)
        if began >= 20:
            break
    assert began >= 20
    assert world.engine.progress.standbys == {}
    down.clear()
    for host in world.nodes.hosts.values():
        host.clock = lambda: float("inf")  # nobody waits for the next attempt
    world.run(all_ready)
    goes_to_its_standby(world)
    finish(world, expected)


def answers_no_standby(patch: pytest.MonkeyPatch) -> list[bool]:
    """The store answers no standby that is to be installed, as long as something is in the list."""
    down, installed = [True], Preparing.installed

    def slow(preparing: Preparing, *rest: object) -> Runtime:
        if preparing.install.shadow and down:
            raise StoreError("no answer")
        return installed(preparing, *rest)  # type: ignore[arg-type]

    patch.setattr(Preparing, "installed", slow)
    return down


def stands_still(patch: pytest.MonkeyPatch, world: World, node: str, partition: str, batch: int) -> None:
    """The standby of a partition goes no further."""
    advance = OperatorRuntime.advance

    def slow(runtime: OperatorRuntime, wanted: Callable[[str], bool]) -> bool:
        if runtime.position >= batch and runtime.partition.id == partition:
            host = world.nodes.hosts.get(node)
            if host is not None and host.runtimes.get(partition) is runtime:
                return False
        return advance(runtime, wanted)

    patch.setattr(OperatorRuntime, "advance", slow)


@pytest.mark.wide
def test_full_buffers_let_go_of_what_a_standby_needs_before_they_stop_the_stream(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told that it cannot be sent what it needs, is dropped, and begins anew from the next checkpoint."""
    text = WITH_STANDBYS.replace("bufferMemory: 1Mi", "bufferMemory: 4Ki, bufferDisk: 4Ki")
    world = world_of(tmp_path, {"count.0": "d"}, text)
    unfed, heard = list[tuple[str, ...]](), Standbys.heard

    def listens(known: Standbys, command: Command, report: Report, newest: int) -> tuple[list[str], Report]:
        if report.unfed:
            unfed.append(report.unfed)
        return heard(known, command, report, newest)

    monkeypatch.setattr(Standbys, "heard", listens)
    with pytest.MonkeyPatch.context() as patch:
        stands_still(patch, world, "d", "count.0", 3)
        world.run(past(45), limit=200)
    assert set(unfed) == {("count.0",)}
    world.run(all_ready)
    goes_to_its_standby(world)
    finish(world, expected)


def test_a_standby_that_is_behind_the_newest_checkpoint_is_not_promoted(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan may name its node by chance: the partition is restored there from the checkpoint all the same."""
    world = world_of(tmp_path, {"count.0": "a"})
    with pytest.MonkeyPatch.context() as patch:
        stands_still(patch, world, "a", "count.0", 3)
        world.run(lambda e: e.punctuations.newest >= 20 and past(25)(e))
        engine, newest = world.engine, world.engine.punctuations.newest
        assert engine.standbys.there["count.0"].at_work
        assert engine.progress.standbys == {}
        world.nodes.lose("c")
        tick(world, 2)
        world.want(1, newest, {**AT, "count.0": "a"}, retain=True)
    assert engine.positions["count.0"] == newest
    finish(world, expected)
    assert world.engine.desired.generation == 1


def test_a_standby_that_cannot_be_installed_keeps_no_jobs_going(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is to be done, and the driver may wait between two jobs for as long as it does without standbys."""
    down = answers_no_standby(monkeypatch)
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(past(15))
    engine = world.engine
    engine.desired = replace(engine.desired, paused=True)
    world.run(lambda e: e.idle, limit=200)
    assert engine.progress.standbys == {}
    down.clear()
    for host in world.nodes.hosts.values():
        host.clock = lambda: float("inf")
    world.run(lambda e: all_ready(e) and e.idle, limit=200)
    assert engine.progress.standbys == {"count.0": engine.horizon}
    engine.desired = replace(engine.desired, paused=False)
    finish(world, expected)


@pytest.mark.parametrize("node", ["a", "c"])
def test_a_stream_that_is_drained_stops_though_a_standby_is_promoted(
    tmp_path: Path, expected: dict[str, bytes], node: str
) -> None:
    """The last checkpoint is at a batch behind which nothing is released, so no other can take its place."""
    world = world_of(tmp_path)
    world.run(past(15))
    engine = world.engine
    engine.drain.asked = True

    def away(*_: object) -> None:
        raise StoreError("no answer")

    def all_there(e: Engine) -> bool:
        last = e.horizon
        return e.drain.holds(last, e.punctuations.newest) and set(e.progress.standbys.values()) == {last}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointStore, "complete", away)
        world.run(all_there)
        world.nodes.lose(node)
        tick(world, 2)
        assert recover(world) & {"count.0", "parse.0"}
    world.run(lambda e: e.drained is not None)
    output = world.output()
    assert {n: expected[n] for n in output} == output
    assert engine.drained is not None
    assert len(output) == 3 * engine.drained


def test_a_standby_keeps_so_much_output_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standbys, "MOST_KEPT", 100)
    kept = standbys.KeptOutput(4)
    table = pa.table({"n": list(range(10))})
    for batch in (5, 6):
        kept.write(batch, table)
    with pytest.raises(SinkError, match="keeps 160 bytes of output"):
        kept.write(7, table)
    kept.forget(5)
    kept.write(7, None)
    assert (list(kept.behind(5)), kept.visible) == ([(6, table), (7, None)], 7)
    kept.hold(5)
    kept.write(8, table)
    assert kept.visible == 5


@pytest.mark.wide
def test_a_standby_that_cannot_open_its_sink_shows_later_what_it_keeps(
    tmp_path: Path, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of(tmp_path)
    world.run(past(25))
    world.nodes.lose("c")
    tick(world, 2)
    down = [True]
    wrote = FileSink.write

    def write(sink: FileSink, batch: int, table: object) -> None:
        if down[0] and sink.folder.parts[-2:] == ("count", "0"):
            raise SinkError("no answer")
        wrote(sink, batch, table)  # type: ignore[arg-type]

    monkeypatch.setattr(FileSink, "write", write)
    assert recover(world) == {"count.0"}
    tick(world, 5)
    assert "count.0" in world.engine.installing
    assert "count.0" not in world.engine.progress.positions
    down[0] = False
    finish(world, expected)


def test_a_promotion_is_no_restoration_in_the_figures_and_its_work_is_counted_from_then_on(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    world = world_of(tmp_path, {"count.0": "d"})
    world.run(past(25))
    engine = world.engine
    before, restored, replayed = engine.usage["count.0"], engine.figures.restored, engine.figures.replay_bytes
    goes_to_its_standby(world)
    world.run(lambda e: not e.installing)
    after = engine.usage["count.0"]
    assert after.input_bytes < before.input_bytes / 2
    assert after.cpu_s < before.cpu_s
    finish(world, expected)
    assert (engine.figures.restored, engine.figures.replay_bytes) == (restored, replayed)


@pytest.mark.wide
def test_the_next_standby_takes_over_in_its_turn(tmp_path: Path, expected: dict[str, bytes]) -> None:
    world = world_of(tmp_path)
    for turn, batch in enumerate((12, 24, 36)):
        world.run(lambda e, b=batch: past(b)(e) and all_ready(e))
        at = world.engine.desired.assignment["count.0"]
        world.nodes.lose(at)
        fresh = f"n{turn}"
        world.nodes.start(fresh)
        tick(world, 2)
        assert "count.0" in recover(world)
        again = {p: n for p, n in world.engine.desired.standbys.items() if n in world.nodes.hosts}
        missing = STANDBYS.keys() - again.keys()
        again |= {p: fresh for p in missing if world.engine.desired.assignment[p] != fresh}
        recover(world, again)
    finish(world, expected)
    assert world.engine.desired.generation == 1


def test_a_partition_that_lives_is_handed_to_its_standby(tmp_path: Path, expected: dict[str, bytes]) -> None:
    world = world_of(tmp_path)
    world.run(past(25))
    was = world.engine.positions["count.0"]
    at = {**AT, "count.0": "a"}
    wanted = {p: n for p, n in STANDBYS.items() if p != "count.0"}
    world.want(1, world.engine.punctuations.newest, at, standbys=wanted)
    assert was - 8 <= world.engine.positions["count.0"] <= was
    assert "count.0" in world.nodes.hosts["c"].runtimes
    world.run(lambda e: "count.0" not in e.installing)
    assert "count.0" not in world.nodes.hosts["c"].runtimes
    finish(world, expected)


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_a_standby_is_lost_in_the_job_that_promotes_it(
    tmp_path: Path, expected: dict[str, bytes], stage: int
) -> None:
    """The partition is lost once more, and nothing of what its standby had done counts: it comes from its checkpoint."""
    world = world_of(tmp_path)
    world.run(past(25))
    goes_to_its_standby(world)
    tick_losing(world, "a", stage)
    tick(world, 2)
    engine = world.engine
    assert engine.failed["count.0"].kind is FailureKind.NODE_LOST
    newest = engine.punctuations.newest
    assert "count.0" not in recover(world)
    assert engine.positions["count.0"] == newest
    finish(world, expected)


@pytest.mark.parametrize("exchange", ["chained"], indirect=True)  # sends by hand
@pytest.mark.wide
def test_a_partition_that_still_runs_where_it_was_adds_nothing(
    tmp_path: Path, expected: dict[str, bytes]
) -> None:
    """It was given up and lives: it steps on, shows what its standby shows, and what it sends reaches nobody."""
    world = world_of(tmp_path)
    world.run(past(25))
    zombie, deliver = world.nodes.hosts["c"], OperatorRuntime.deliver
    takes_over, given_up = world.nodes.hosts["a"].runtimes["count.0"], zombie.runtimes["count.0"]
    assert isinstance(given_up, OperatorRuntime)
    tick_losing(world, "c", 1)  # it has its orders, and not yet its input
    tick(world, 2)
    was = given_up.position
    assert recover(world) == {"count.0"}

    def delivered(runtime: OperatorRuntime, message: Message) -> None:
        if runtime is takes_over:
            deliver(given_up, message)  # somebody still has the former route
        deliver(runtime, message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OperatorRuntime, "deliver", delivered)
        tick(world, 2)
    shown = world.output()
    assert zombie.command is not None
    zombie.run(1.0)
    assert given_up.position > was
    sent = [one for slot in zombie.sender.outgoing(zombie.command).values() for one in slot]
    assert {message.source for message, _ in sent} == {"count.0"}
    for message, body in sent:
        for host in world.nodes.hosts.values():
            host.deliver(replace(message, table=decode_table(body)))
    assert {name: world.output()[name] for name in shown} == shown
    finish(world, expected)
    assert world.engine.desired.generation == 1


@pytest.mark.wide
def test_what_is_called_ready_could_be_sent_what_follows(tmp_path: Path, expected: dict[str, bytes]) -> None:
    """Buffers are full and the standby is slow, so what only it would need is dropped again and again: it counts as ready
    after no job after which somebody could not send what follows."""
    text = WITH_STANDBYS.replace("bufferMemory: 1Mi", "bufferMemory: 4Ki, bufferDisk: 4Ki")
    late = text.replace("everyBatches: 10", "everyBatches: 1000")
    assert WITH_STANDBYS != text != late
    world = world_of(tmp_path, {"count.0": "d"}, late)
    engine, seen = world.engine, {True: 0, False: 0}

    def able() -> bool:
        """Each batch behind its position is on its node, or where it is made."""
        standby = engine.standbys.there.get("count.0")
        runtime = world.nodes.hosts["d"].runtimes.get("count.0")
        if standby is None or runtime is None:
            return False
        makers = [r for host in world.nodes.hosts.values() for r in host.runtimes.values()]
        return all(
            batch in runtime.inbox[r.partition.id]
            for r in makers
            if r.partition.id.startswith("parse")
            for batch in range(runtime.position + 1, r.buffers["count.0"].floor)
        )

    with pytest.MonkeyPatch.context() as patch:
        stands_still(patch, world, "d", "count.0", 3)
        while min(engine.positions.values()) < 45:
            tick(world)
            ready = "count.0" in engine.progress.standbys
            seen[ready] += 1
            assert able() or not ready
    assert seen[True]
    assert seen[False]
    finish(world, expected)
