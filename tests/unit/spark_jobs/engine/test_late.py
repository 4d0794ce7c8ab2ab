"""What comes late: requests, reports, acknowledgements and messages of what does not count any more change nothing.

Each of these was a mutation that no test noticed; docs/messages.md says what fences which message.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from reprise.algorithms.failure import Failure, FailureKind
from reprise.spark_jobs.contract import Tables
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.errors import CheckpointError, FencedError, LateRequestError
from reprise.spark_jobs.kafka import transactions
from reprise.spark_jobs.kafka.settings import PRODUCER_OWN, parse_settings
from reprise.spark_jobs.kafka.transactions import Marker, Session
from reprise.spark_jobs.node.command import Ack, Command, Order, Report
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.sinks import Owner, Sink
from reprise.spark_jobs.state.checkpoints import CheckpointStore
from reprise.spark_jobs.state.snapshot import StateFile
from reprise.spark_jobs.topology import load_text, override
from tests.support.engine_worlds import begun
from tests.unit.spark_jobs.engine.test_recovery import COIN, DIAMOND
from tools.testbed.local_engine import World, tick


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The diamond on three nodes, three batches at a time, without checkpoints before the end."""
    world = begun(override(load_text(DIAMOND), {"checkpoint.everyBatches": 500}), tmp_path, ahead=3)
    tick(world, 4)
    return world


def finishes(world: World) -> None:
    world.run(lambda e: e.done)
    assert world.engine.positions["top.0"] == 61
    assert len(world.output()) == 4 * 61


# -- requests ----------------------------------------------------------------------------------------------------------


def command(host: Host) -> Command:
    assert host.command is not None
    return host.command


def test_a_command_of_an_earlier_driver_is_refused(world: World) -> None:
    host = world.nodes.hosts["c"]
    old = command(host)
    world.driver()
    world.want(2, 0, world.spread("a", "b", "c"))
    tick(world)
    installed = dict(host.installed)
    later = replace(old, job=old.job + 100)  # its jobs go on counting
    with pytest.raises(LateRequestError, match=r"epoch 1, job .* refused: epoch 2"):
        host.begin(later)
    with pytest.raises(LateRequestError):
        host.stage(later.order, 0, [], False)
    assert host.installed == installed
    assert command(host).epoch == 2


def test_a_command_of_an_earlier_job_is_refused(world: World) -> None:
    host = world.nodes.hosts["c"]
    old = replace(command(host), hosted={})
    tick(world)
    before = dict(host.runtimes)
    with pytest.raises(LateRequestError, match=r"job 4 refused: epoch 1, job 5 has begun"):
        host.begin(old)
    assert host.runtimes == before
    assert before


@pytest.mark.parametrize("job", [-1, 1])
def test_a_stage_of_another_job_is_refused_and_its_messages_are_not_taken(world: World, job: int) -> None:
    host = world.nodes.hosts["c"]
    epoch, now = command(host).order
    positions = {p: r.position for p, r in host.runtimes.items()}
    with pytest.raises(LateRequestError, match="refused: epoch 1, job"):
        host.stage((epoch, now + job), 1, [b"not even read"], False)
    assert {p: r.position for p, r in host.runtimes.items()} == positions


def test_the_same_stage_again_has_the_same_answer_but_not_for_another_job(world: World) -> None:
    host, answers = world.nodes.hosts["c"], []
    first = replace(command(host), job=50)
    host.begin(first)
    answers = [host.stage(first.order, 2, [], True) for _ in range(2)]
    assert answers[0] is answers[1]
    second = replace(first, job=51)
    host.begin(second)
    assert host.stage(second.order, 2, [], True) is not answers[0]


def test_a_late_command_in_the_middle_of_a_later_job_drops_nothing(world: World) -> None:
    """Job 5 was cancelled while its request waited for the host's turn; it gets it in the middle of job 7."""
    late = command(world.nodes.hosts["c"])
    world.nodes.lose("b")
    world.nodes.start("d")
    world.want(2, 0, world.spread("a", "c", "d"))
    tick(world)
    refused = []

    def interrupt(job: int, stage: int, slot: int) -> None:
        if not refused and stage == 1:
            with pytest.raises(LateRequestError) as error:
                world.nodes.hosts["c"].begin(late)
            refused.append(str(error.value))

    world.nodes.interrupt = interrupt
    tick(world)
    assert refused
    assert not world.engine.failures
    finishes(world)
    assert not world.engine.failed


def test_a_late_stage_of_a_cancelled_job_does_not_answer_for_the_next(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stage that waited gets the host's turn first: what the next job brings must not be answered from its reply."""
    stage, waiting = Host.stage, list[tuple[Order, list[bytes]]]()
    refused = []

    def hanging(host: Host, order: Order, number: int, bundles: Sequence[bytes], last: bool) -> Any:
        bundles = list(bundles)
        if number == 1 and host.name.startswith("host-c"):
            if order[1] == 5:
                waiting.append((order, bundles))
                raise ChainError("cancelled: a node was lost")
            if order[1] == 6 and not refused:
                with pytest.raises(LateRequestError):
                    stage(host, waiting[0][0], 1, waiting[0][1], False)
                refused.append(True)
        return stage(host, order, number, bundles, last)

    monkeypatch.setattr(Host, "stage", hanging)
    tick(world)
    world.engine.release.ahead = 6
    tick(world)
    assert refused
    finishes(world)


# -- reports -----------------------------------------------------------------------------------------------------------


def report_of(world: World, node: str, **changes: Any) -> Report:
    host = world.nodes.hosts[node]
    found = host.report()
    return replace(found, **changes)


def test_a_report_of_another_installation_moves_no_position(world: World) -> None:
    engine = world.engine
    mine = [p for p, n in engine.desired.assignment.items() if n == "c"]
    other = report_of(world, "c", installed=dict.fromkeys(mine, "1.0.1"), positions=dict.fromkeys(mine, 99))
    engine._take("c", mine, other)
    assert mine
    assert not set(mine) & engine.positions.keys()
    assert {engine.failed[p] for p in mine} == {Failure(FailureKind.STATE_LOST)}


def test_a_failure_of_another_installation_is_not_this_one_s(world: World) -> None:
    engine = world.engine
    (name, *_) = [p for p, n in engine.desired.assignment.items() if n == "c"]
    installed = {**world.nodes.hosts["c"].installed, name: "1.0.1"}
    engine._take(
        "c",
        installed,
        report_of(
            world, "c", installed=installed, failed={name: Failure(FailureKind.POISON, "of another life")}
        ),
    )
    assert engine.failed[name].kind is FailureKind.STATE_LOST


def test_acks_of_a_lost_report_come_with_the_next(tmp_path: Path) -> None:
    """Nothing stores a snapshot twice, so an acknowledgement that is lost would leave its checkpoint open for ever."""
    world = begun(override(load_text(DIAMOND), {"sources[tweets].with.batches": 15}), tmp_path, "ab", ahead=3)
    lost = list[Ack]()
    reporting = Host.report

    def report(host: Host) -> Report:
        found = reporting(host)
        fresh = [a for a in found.acks if a not in lost]
        lost.extend(fresh)
        if fresh:
            raise ChainError("the job ended before its report arrived")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Host, "report", report)
        for _ in range(400):
            tick(world)
            if world.engine.done:
                break
    assert lost
    assert world.engine.done
    assert world.engine.punctuations.newest == world.engine.final


# -- acknowledgements --------------------------------------------------------------------------------------------------


def test_an_ack_of_an_installation_that_was_rolled_back_counts_for_nothing(world: World) -> None:
    engine = world.engine
    engine.punctuations._acks[20] = {}
    old = dict(engine.installation)
    world.want(2, 0, world.spread("a", "b", "c"))
    engine.punctuations._acks[20] = {}
    tick(world)
    file = {"path": "x", "size": 1, "sha256": "x"}
    report = report_of(world, "c")
    engine._take("c", report.installed, replace(report, acks=(Ack("count.1", old["count.1"], 20, file),)))
    assert not engine.punctuations._acks[20]
    engine._take(
        "c",
        report.installed,
        replace(report, acks=(Ack("count.1", engine.installation["count.1"], 20, file),)),
    )
    assert set(engine.punctuations._acks[20]) == {"count.1"}


def test_a_snapshot_that_is_stored_after_a_rollback_is_in_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that is slow over a rollback, beneath an operator whose second history is another one."""
    gates, entered, states = [threading.Event(), threading.Event()], threading.Event(), list[int]()
    real = CheckpointStore.write_state

    def slow(
        store: CheckpointStore, position: int, partition: str, incarnation: str, tables: Tables
    ) -> StateFile:
        if partition == "total.0" and position == 20:
            states.append(tables["total"]["total"][0].as_py())
            entered.set()
            assert gates[len(states) - 1].wait(300)
        return real(store, position, partition, incarnation, tables)

    monkeypatch.setattr(CheckpointStore, "write_state", slow)
    world = World(override(load_text(COIN), {"sources[tweets].with.batches": 60}), tmp_path, "w")
    world.engine.release.ahead = 3
    world.nodes.patient = False
    world.nodes.start("a", "b")
    world.want(1, 0, {"tweets.0": "b", "toss.0": "b", "total.0": "a"})
    world.run(lambda e: entered.is_set() and e.punctuations.newest == 10)
    world.nodes.lose("b")
    world.nodes.start("c")
    world.want(2, 10, {"tweets.0": "c", "toss.0": "c", "total.0": "a"})
    world.run(lambda e: 20 in e.punctuations.open and min(e.positions.values()) >= 22)
    gates[0].set()  # what generation 1 froze is stored now
    world.run(lambda e: len(states) == 2)
    tick(world, 3)
    assert world.engine.punctuations.newest == 10
    gates[1].set()
    world.run(lambda e: e.punctuations.newest >= 20)
    manifest = world.engine.store.verify(20)
    stored = world.engine.store.read_state(manifest.files["total.0"])["total"]["total"][0].as_py()
    assert states[0] != states[1]
    assert stored == states[1]
    world.nodes.hosts["a"].close()


# -- what is shown and what is stored ----------------------------------------------------------------------------------


class Patient(Sink):
    """Takes every batch, and shows none beyond `allowed`."""

    allowed = 0
    taken: list[int]

    def write(self, batch: int, table: pa.Table | None) -> None:
        if batch not in self.taken:
            self.taken.append(batch)
        self.settle(0.0)

    def settle(self, patience_s: float) -> str | None:
        self.visible = max([self.visible, *(b for b in self.taken if b <= self.allowed)])
        return None

    def shown(self) -> list[tuple[int, float]]:
        return []


@pytest.fixture
def patient() -> type[Patient]:
    Patient.allowed, Patient.taken = 0, []
    return Patient


LATE_SINK = 'output: {sink: {class: "tests.unit.spark_jobs.engine.test_late:Patient"}}'


def test_no_state_is_stored_before_the_sink_shows_what_led_to_it(
    tmp_path: Path, patient: type[Patient]
) -> None:
    world = begun(DIAMOND.replace("output: {priority: 9}", LATE_SINK), tmp_path, "a")
    patient.allowed = 9
    tick(world, 20)
    host = world.nodes.hosts["a"]
    assert world.engine.positions["count.0"] > 10
    assert world.engine.positions["top.0"] == 9
    assert host.runtimes["top.0"].position == 10
    assert world.engine.punctuations.newest == 0
    assert not list(world.checkpoints.glob("cp-*/top.0.*"))
    patient.allowed = 10**6
    world.run(lambda e: e.done)
    assert world.engine.punctuations.newest == 61
    assert patient.taken == list(range(1, 62))


def test_staged_output_that_was_restored_stays_until_its_sink_shows_it(
    tmp_path: Path, patient: type[Patient]
) -> None:
    """Else a checkpoint after the restoration would not hold what was handed over and is not shown."""
    world = World(load_text(COIN.replace("output: {}", LATE_SINK)), tmp_path, "w")
    world.nodes.start("a", "b")
    world.want(1, 0, {"tweets.0": "a", "toss.0": "a", "total.0": "b"})
    world.run(lambda e: e.punctuations.newest >= 10)
    k = world.engine.punctuations.newest
    world.nodes.lose("b")
    world.nodes.start("c")
    patient.taken.clear()
    world.want(2, k, {"tweets.0": "a", "toss.0": "a", "total.0": "c"})
    world.run(lambda e: k in patient.taken)  # k may be the last batch: snapshots are stored in their own time
    total = world.nodes.hosts["c"].runtimes["total.0"]
    assert isinstance(total, OperatorRuntime)
    assert total.staged is not None
    assert set(range(1, k + 1)) <= total.staged.keys()
    patient.allowed = 10**6
    world.run(lambda e: e.done)
    assert set(patient.taken) == set(range(1, 47))


def test_a_rollback_behind_what_the_ledger_gave_up_is_refused(tmp_path: Path) -> None:
    world = begun(DIAMOND, tmp_path, "ab")
    world.run(lambda e: e.punctuations.newest >= 10)
    world.engine.ledger.trimmed = 30
    positions = dict(world.engine.positions)
    for checkpoint in (0, 10):
        with pytest.raises(CheckpointError, match="cannot begin again behind batch"):
            world.want(2, checkpoint, world.spread("a", "b"))
    assert world.engine.positions == positions
    assert world.engine.desired.generation == 1
    assert world.engine.bad_checkpoints == {
        0,
        10,
    }  # else a coordinator with an old report would wait for ever


def test_what_a_lost_partition_had_stored_completes_no_checkpoint(world: World) -> None:
    """It is restored without a rollback, from a checkpoint before the one that it had stored: it has to pass that again."""
    engine = world.engine
    engine.punctuations.demand(9)
    everyone = list(world.topology.partitions)
    (lost, *_) = [p for p, n in engine.desired.assignment.items() if n == "c"]
    for name in everyone:
        engine.punctuations.acknowledge(Ack(name, engine.installation[name], 9, None))
    assert [k for k, _ in engine.punctuations.acknowledged(everyone)] == [9]
    world.nodes.lose("c")
    world.nodes.start("d")
    tick(world)
    assert engine.punctuations.newest == 0
    engine.punctuations.demand(9)
    for name in everyone:
        if engine.desired.assignment[name] != "c":
            engine.punctuations.acknowledge(Ack(name, engine.installation[name], 9, None))
    assert list(engine.punctuations.acknowledged(everyone)) == []
    assert lost in engine.failed


# -- messages ----------------------------------------------------------------------------------------------------------


def test_messages_that_were_applied_are_skipped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed job sends everything again that was not confirmed; none of it stays in an inbox or is applied twice."""
    fail = [True]

    def interrupt(job: int, stage: int, slot: int) -> None:
        if stage == 2 and slot == 2 and fail:
            fail.clear()
            raise ChainError("cut")

    again: list[Message] = []
    deliver = OperatorRuntime.deliver

    def delivered(runtime: OperatorRuntime, message: Message) -> None:
        if message.batch <= runtime.position:
            again.append(message)
        deliver(runtime, message)

    monkeypatch.setattr(OperatorRuntime, "deliver", delivered)
    world.nodes.interrupt = interrupt
    tick(world)
    tick(world)
    operators = [
        r for h in world.nodes.hosts.values() for r in h.runtimes.values() if isinstance(r, OperatorRuntime)
    ]
    assert again
    for runtime in operators:
        for upstream, delay in runtime.needs:
            assert all(batch + delay > runtime.position for batch in runtime.inbox[upstream])


def test_a_message_for_a_partition_that_is_not_here_is_dropped(world: World) -> None:
    host = world.nodes.hosts["c"]
    missing = next(p for p in world.topology.order if p not in host.runtimes)
    host.deliver(Message("parse.0", missing, 1, None, None))
    assert missing not in host.runtimes


# -- Kafka's marker ----------------------------------------------------------------------------------------------------


class Committed:
    """In the place of a consumer: the marker that the brokers have."""

    def __init__(self, marker: Marker) -> None:
        self.marker = marker

    def committed(self, asked: list[Any], timeout: float) -> list[Any]:
        (at,) = asked
        found = transactions.TopicPartition(at.topic, at.partition, self.marker.batch, self.marker.encode())
        return [found]

    def consumer_group_metadata(self) -> object:
        return object()

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("owner", "fenced"),
    [
        (Owner(1.0, (1, 1, 3)), False),
        (Owner(1.0, (2, 1, 3)), False),
        (Owner(1.0, (2, 1, 4)), True),
        (Owner(1.0, (2, 2, 1)), True),
        (Owner(1.0, (3, 0, 1)), True),
        (Owner(2.0, (1, 1, 1)), True),
    ],
)
def test_a_session_gives_up_before_the_marker_of_a_later_owner(
    monkeypatch: pytest.MonkeyPatch, owner: Owner, fenced: bool
) -> None:
    monkeypatch.setattr(transactions, "Consumer", lambda _: Committed(Marker(5, owner)))
    settings = parse_settings(None, "config", PRODUCER_OWN, transactions.DEFAULTS, producer=True)
    session = Session(
        "127.0.0.1:1", settings, name="reprise.ns.t.count.0", topic="t", letters=None, owner=Owner(1.0, (2, 1, 3)),
        position=4, go_on_without_marker=False, compacted=False,
    )  # fmt: skip
    if fenced:
        with pytest.raises(FencedError, match="later installation"):
            session._look(stable=True)
    else:
        found = session._look(stable=True)
        assert found is not None
        assert found.batch == 5
