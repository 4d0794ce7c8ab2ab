"""What ends a driver and what does not: the real loop, channel and engine, with trouble from each side."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms.failure import Failure
from reprise.controller.driver import loop as module
from reprise.controller.driver.channel import Channel
from reprise.controller.driver.node_starts import NodeStarts
from reprise.controller.driver.publish_rate import PublishRate
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer, MemorySession
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node
from reprise.controller.zookeeper.records import parse_stats
from reprise.controller.zookeeper.session import SessionState
from reprise.scheduler.model import PartitionStats, Progress
from reprise.scheduler.node_start import StartPhase
from reprise.spark_jobs.engine import chain
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.engine.restore_point import RestorePoint
from reprise.spark_jobs.errors import CheckpointError, StoreError, SupersededError
from reprise.spark_jobs.node import shim
from reprise.spark_jobs.node.command import Usage
from reprise.spark_jobs.platform import Platform
from reprise.spark_jobs.state.epochs import Fence
from reprise.spark_jobs.topology import load_text
from tests.support.local_driver import ROOT, LocalDriver, world_of
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tools.testbed.local_engine import PATIENCE_S


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalDriver:
    """At work since the first batch; nobody waits for a clock."""
    world = world_of(load_text(DIAMOND), tmp_path)
    driver = LocalDriver(world, MemoryServer(), tmp_path / "events.jsonl")
    monkeypatch.setattr(driver.channel.changed, "wait", lambda _=None: True)
    monkeypatch.setattr(driver.stop, "wait", lambda _=None: driver.stop.is_set())
    driver.want(1, 0, world.spread("a", "b"))
    return driver


def turns(driver: LocalDriver, until: Callable[[], bool], limit: int = 300) -> None:
    """Fails after `limit` turns, but not before the threads that read and store, which turns without a wait may outrun,
    have had `PATIENCE_S`."""
    ends = time.monotonic() + PATIENCE_S
    for number in count():
        if until():
            return
        if number >= limit and time.monotonic() > ends:
            break
        driver.turn()
    raise AssertionError(f"not reached: {driver.engine.progress} {driver.loop.progress().problems}")


def failing(times: int, error: BaseException, work: Callable[..., Any]) -> Callable[..., Any]:
    """`work`, which raises the first so many times."""
    left = [times]

    def call(*arguments: Any, **named: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise error
        return work(*arguments, **named)

    return call


def problems(driver: LocalDriver) -> list[str]:
    return list(driver.loop.progress().problems)


@pytest.mark.parametrize("error", [OSError("gone"), CheckpointError("away"), KeyError("a client's own")])
def test_a_checkpoint_that_cannot_be_announced_is_announced_later(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(RestorePoint, "manifest", failing(3, error, RestorePoint.manifest))
    turns(driver, lambda: any(name.startswith(f"{ROOT}/checkpoints/") for name in driver.tree.records))
    assert len([p for p in problems(driver) if "not announced" in p]) == 1
    assert driver.engine.jobs > 3


def test_a_checkpoint_that_zookeeper_did_not_take_is_announced_when_it_is_back(driver: LocalDriver) -> None:
    turns(driver, lambda: bool(driver.engine.positions))
    driver.zk.client.state = SessionState.SUSPENDED
    turns(driver, lambda: driver.engine.punctuations.newest > 0)
    assert not [name for name in driver.tree.records if "checkpoints" in name]
    newest = driver.engine.punctuations.newest
    driver.zk.client.state = SessionState.CONNECTED
    driver.turn()
    assert driver.record(f"checkpoints/{max(newest, driver.engine.punctuations.newest):08d}")


@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device"),
        pytest.param(KeyError("a client's own"), marks=pytest.mark.wide),
    ],
)
@pytest.mark.parametrize(
    ("part", "method"),
    [
        ("ledger", "stored"),
        ("store", "prune"),
        ("store", "complete"),
        ("release", "start"),
        ("ledger", "reach"),
    ],
)
def test_trouble_with_the_store_is_a_problem_and_no_end(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch, part: str, method: str, error: Exception
) -> None:
    owner: Any = getattr(driver.engine, part)
    monkeypatch.setattr(type(owner), method, failing(2, error, getattr(type(owner), method)))
    turns(driver, lambda: driver.engine.done)
    told = [p for p in problems(driver) if str(error) in p]
    assert len(told) == 1, "said once"
    assert driver.world.output()


def test_a_full_disk_delays_the_events_of_a_run_and_nothing_else(driver: LocalDriver, tmp_path: Path) -> None:
    driver.events.path = Path("/dev/full")
    turns(driver, lambda: len(driver.world.output()) > 20)
    assert [p for p in problems(driver) if "events wait" in p]
    driver.events.close()
    driver.events.path = tmp_path / "events.jsonl"
    turns(driver, lambda: driver.engine.done)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert len(lines) == len(set(lines)) == len(driver.world.output()), "none is lost, none is there twice"


def test_the_load_of_each_partition_is_published(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns(driver, lambda: driver.engine.horizon > 3)
    driver.engine.usage = {"in.0": Usage(2.0), "out.0": Usage(4.0)}
    looks, seconds = iter([False, False, True]), iter([100.0, 102.0, 102.0, 104.0, 104.0])
    published: list[dict[str, PartitionStats]] = []
    monkeypatch.setattr(module, "STATS_S", 2.0)
    driver.loop._platform = Platform(elapsed=lambda: next(seconds))
    monkeypatch.setattr(driver.stop, "wait", lambda _=None: next(looks))
    monkeypatch.setattr(driver.loop, "publish", lambda: True)
    monkeypatch.setattr(
        driver.channel, "publish", lambda name, raw: published.append(parse_stats(raw)) or name == "stats"
    )
    driver.loop._publish_forever()
    assert [{p: s.cpu_milli for p, s in stats.items()} for stats in published] == [
        {"in.0": 1000.0, "out.0": 2000.0},
        {"in.0": 0.0, "out.0": 0.0},
    ]


def test_what_nobody_foresaw_is_reported_and_tried_again(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Engine, "_take", failing(2, TypeError("odd"), Engine._take))
    turns(driver, lambda: driver.engine.done)
    assert "the driver's turn failed: TypeError: odd" in problems(driver)


def test_a_driver_ends_when_turn_after_turn_raises_what_nobody_foresaw(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reports meanwhile, so nobody takes it for hung; a successor begins from the records."""
    monkeypatch.setattr(Engine, "tick", failing(10**6, KeyError("best.0"), Engine.tick))
    for _ in range(module.FAILED_TURNS - 1):
        driver.turn()
    assert "the driver's turn failed: KeyError: 'best.0'" in problems(driver)
    with pytest.raises(KeyError, match=r"best\.0"):
        driver.turn()


def test_a_turn_that_ends_well_is_the_end_of_a_row(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(Engine, "tick", failing(module.FAILED_TURNS - 1, KeyError("best.0"), Engine.tick))
            for _ in range(module.FAILED_TURNS):
                driver.turn()
    turns(driver, lambda: driver.engine.done)


@pytest.mark.parametrize("error", [StoreError("the store does not answer"), OSError(28, "no space left")])
def test_a_driver_does_not_end_by_what_passes(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(Engine, "tick", failing(3 * module.FAILED_TURNS, error, Engine.tick))
    turns(driver, lambda: driver.engine.done)
    assert any(str(error) in problem for problem in problems(driver))


def test_what_passes_does_not_count_towards_what_does_not(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = failing(3 * module.FAILED_TURNS, StoreError("the store does not answer"), Engine.tick)
    with monkeypatch.context() as patch:
        patch.setattr(Engine, "tick", away)
        for _ in range(3 * module.FAILED_TURNS):
            driver.turn()
    monkeypatch.setattr(Engine, "tick", failing(module.FAILED_TURNS - 1, KeyError("best.0"), Engine.tick))
    turns(driver, lambda: driver.engine.done)


def test_acknowledgements_of_a_report_that_was_not_taken_are_said_again(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, lost = Engine._take, []

    def once(engine: Engine, node: str, ordered: Any, report: Any) -> None:
        if report.acks and not lost:
            lost.append(report.acks)
            raise TypeError("odd")
        take(engine, node, ordered, report)

    monkeypatch.setattr(Engine, "_take", once)
    turns(driver, lambda: bool(lost))
    turns(driver, lambda: driver.engine.punctuations.newest >= lost[0][0].position)


def test_a_report_says_how_far_the_loop_is_itself(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher goes on while the loop hangs, so what it says of the loop must come from the loop."""
    driver.turn()
    before, during, tick = driver.loop.progress().turns, list[int](), Engine.tick

    def hangs(engine: Engine, *given: Any) -> bool:
        during.extend(driver.loop.progress().turns for _ in range(3))
        return tick(engine, *given)

    monkeypatch.setattr(Engine, "tick", hangs)
    driver.turn()
    assert during == [before + 1] * 3
    driver.turn()
    assert driver.loop.progress().turns == before + 2


def test_no_job_and_no_step_of_user_code_takes_as_long_as_a_loop_that_is_hung(driver: LocalDriver) -> None:
    longest_job_s = driver.engine.patience_s + chain.CANCEL_S
    assert shim.ANSWER_S < longest_job_s < driver.loop.progress().turn_limit_s


def test_a_driver_whose_spark_is_gone_ends(driver: LocalDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    driver.cluster.there = False
    monkeypatch.setattr(driver.cluster, "usable", failing(1, RuntimeError("no JVM"), driver.cluster.usable))
    with pytest.raises(RuntimeError, match="no JVM"):
        driver.turn()


def test_a_driver_that_the_store_calls_superseded_ends_and_is_silent(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns(driver, lambda: bool(driver.engine.positions))
    assert driver.loop.publish()
    error = SupersededError("epoch 2 has begun")
    monkeypatch.setattr(type(driver.engine.ledger), "reach", failing(9, error, lambda *_: 0))
    driver.turn()
    assert driver.stop.is_set()
    assert driver.loop.superseded == "epoch 2 has begun"
    assert not driver.channel.publish("stats", b"{}")


def test_a_superseded_driver_is_stopped_and_does_not_publish(driver: LocalDriver) -> None:
    turns(driver, lambda: driver.engine.horizon > 3)
    later = LocalDriver(driver.world, driver.tree)
    assert later.loop.publish()
    jobs = driver.engine.jobs
    assert not driver.loop.publish()
    driver.turn()
    assert driver.stop.is_set() and driver.loop.superseded
    assert driver.engine.jobs == jobs
    assert driver.record()["driver"] == str(later.engine.epoch)
    assert later.loop.publish(), "the later one is not touched by it"


def test_a_driver_that_was_frozen_in_the_middle_of_a_job_says_nothing_when_it_wakes(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It wakes with a session that is still valid and has not heard of its successor; then it hears of it, from ZooKeeper:
    this is about a store that cannot tell (`engine/test_two_drivers.py` is about those that can)."""
    monkeypatch.setattr(Fence, "check", lambda self: None)
    turns(driver, lambda: driver.engine.punctuations.newest > 0)
    driver.loop.publish()
    records = sorted(driver.tree.records)
    later: list[LocalDriver] = []

    def frozen(job: int, stage: int, slot: int) -> None:
        if not later:
            watches, driver.tree.watches = driver.tree.watches, {}  # what comes meanwhile is heard later
            later.append(LocalDriver(driver.world, driver.tree))
            later[0].loop.publish()
            driver.tree.watches = watches

    driver.world.nodes.interrupt = frozen
    driver.turn()
    assert later
    assert not driver.stop.is_set(), "it has not heard yet"
    assert not driver.loop.publish()
    for _ in range(5):  # a checkpoint may become complete, and is not announced
        driver.turn()
    assert driver.record()["driver"] == str(later[0].engine.epoch)
    assert sorted(driver.tree.records) == records
    assert driver.stop.is_set(), "a refused write has told it"


def test_a_driver_that_was_frozen_just_before_a_write_does_not_write(driver: LocalDriver) -> None:
    later: list[LocalDriver] = []

    def frozen(request: str) -> None:
        if request == "commit" and not later:
            later.append(LocalDriver(driver.world, driver.tree))
            later[0].loop.publish()

    driver.zk.client.before = frozen
    assert not driver.loop.publish()
    assert driver.record()["driver"] == str(later[0].engine.epoch)


def test_a_driver_whose_records_were_removed_ends_and_makes_none_anew(driver: LocalDriver) -> None:
    turns(driver, lambda: bool(driver.engine.positions))
    driver.tree.remove(f"{ROOT}/driver")
    assert not driver.loop.publish()
    assert f"{ROOT}/progress" not in driver.tree.records
    driver.turn()
    assert driver.stop.is_set()


def test_a_report_never_mixes_two_desired_states(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The publisher may speak at any moment: here at each installation that a new desired state brings."""
    turns(driver, lambda: driver.engine.horizon > 3)
    engine = driver.engine
    driver.world.nodes.lose("b")
    driver.turn()
    assert set(driver.loop.progress().failed.values()) == {Failure.parse("node lost")}
    reports: list[Progress] = []
    install = Engine._install

    def watched(engine: Engine, partition: str) -> None:
        reports.append(driver.loop.progress())
        install(engine, partition)
        reports.append(driver.loop.progress())

    monkeypatch.setattr(Engine, "_install", watched)
    driver.world.nodes.start("c")
    driver.want(1, 0, {p: "c" if n == "b#1" else n for p, n in engine.desired.assignment.items()}, seq=2)
    driver.turn()
    reports.append(driver.loop.progress())
    assert len(reports) > 2
    for report in reports:
        assert (report.seq == 2) is not bool(report.failed), report


def test_what_is_due_is_never_less_than_what_was_released(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine's horizon goes back with a rollback, and what is due with it, before the engine says how it stands."""
    turns(driver, lambda: driver.engine.horizon > 3)
    engine, reports, install = driver.engine, list[Progress](), Engine._install

    def watched(engine: Engine, partition: str) -> None:
        install(engine, partition)
        reports.append(driver.loop.progress())

    monkeypatch.setattr(Engine, "_install", watched)
    driver.want(2, 0, engine.desired.assignment, seq=2)
    driver.turn()
    assert reports and reports[0].horizon > engine.desired.checkpoint, "it speaks of before the rollback"
    for report in [*reports, driver.loop.progress()]:
        assert report.due >= report.horizon


def test_two_threads_that_report_at_once_write_no_older_report_after_a_later_one(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread has its report in hand when the engine goes on and the other one reports."""
    turns(driver, lambda: driver.engine.horizon > 3)
    driver.loop.publish()
    held, other = list[Progress](), threading.Thread(target=driver.loop.publish)
    write = Channel.publish_progress

    def slowly(channel: Channel, report: Progress) -> bool:
        if not held:
            held.append(report)
            driver.engine.progress = replace(driver.engine.progress, seq=report.seq + 1)
            other.start()
            other.join(0.3)  # without a lock it has written by then; with one it waits for us
        return write(channel, report)

    monkeypatch.setattr(Channel, "publish_progress", slowly)
    driver.channel._publish_rate = PublishRate()  # both are due
    driver.loop.publish()
    other.join()
    assert driver.record()["seq"] == held[0].seq + 1


def test_nodes_read_by_two_threads_at_once_are_those_that_are_there(driver: LocalDriver) -> None:
    """One thread has the old list in hand when a node comes and the other thread reads: the old list must not stay."""
    path = f"{ROOT}/nodes/n1"
    record = b'{"node": "n1", "host": "h", "incarnation": %d, "pid": 1, "cpu_milli": 1000, "started": 0.0}'
    driver.tree.put(path, record % 1)
    other = threading.Thread(target=driver.channel.read_nodes)

    def meanwhile(request: str) -> None:
        if request == "get_children" and not other.ident:
            driver.tree.put(f"{ROOT}/nodes/n2", record.replace(b"n1", b"n2") % 1)
            other.start()
            other.join(0.3)  # without a lock it is done by then; with one it waits for us

    driver.zk.client.after = meanwhile
    driver.channel.read_nodes()
    other.join()
    assert sorted(driver.channel.read_nodes()) == ["n1#1", "n2#1"]


def test_records_of_checkpoints_go_in_the_order_of_numbers(driver: LocalDriver) -> None:
    """The name of batch 100,000,000 comes before that of 99,999,999 where text is sorted."""
    for position in (99_999_998, 99_999_999, 100_000_000):
        driver.tree.put(f"{ROOT}/checkpoints/{position:08d}", b"{}")
    driver.channel.forget_checkpoints(2)
    left = [path.rpartition("/")[2] for path in driver.tree.records if "/checkpoints/" in path]
    assert sorted(left) == ["100000000", "99999999"]


def test_records_of_checkpoints_stay_where_a_successor_has_begun(driver: LocalDriver) -> None:
    """It begins after the old driver has seen that it is the newest, and before it removes the first record."""
    for position in (10, 20, 30):
        driver.tree.put(f"{ROOT}/checkpoints/{position:08d}", b"{}")
    later = Channel("", ROOT, session=MemorySession(driver.tree))

    def begins(request: str) -> None:
        if request == "get_children":
            later.next_epoch()

    driver.zk.client.after = begins
    driver.channel.forget_checkpoints(1)
    assert len([path for path in driver.tree.records if "/checkpoints/" in path]) == 3
    assert driver.channel.superseded


def test_a_node_that_becomes_ready_while_a_job_runs_is_told_before_it_ends(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan for it is made meanwhile, and not after a job that takes long."""
    turns(driver, lambda: bool(driver.engine.positions))
    usable, told = dict(driver.cluster.usable()), threading.Event()
    tick = driver.engine.tick

    def job(living: Any, cancelled: threading.Event) -> bool:
        assert "late#1" not in driver.loop.progress().nodes
        monkeypatch.setattr(driver.cluster, "usable", lambda: {**usable, "late#1": "late"})
        looked = iter([False, True])
        monkeypatch.setattr(driver.stop, "wait", lambda _=None: next(looked))
        driver.loop._look_forever()
        if "late#1" in driver.loop.progress().nodes:
            told.set()
        assert "late#1" not in driver.loop.progress(frozenset({"late#1"})).nodes, (
            "gone again, by its heartbeat"
        )
        return tick(living, cancelled)

    monkeypatch.setattr(Engine, "tick", lambda _self, *given: job(*given))
    driver.loop.turn()
    assert told.is_set()


def test_a_look_for_nodes_that_fails_is_tried_again(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    usable = driver.cluster.usable
    monkeypatch.setattr(driver.cluster, "usable", failing(1, RuntimeError("no JVM"), usable))
    beat(driver, "a")
    looked = iter([False, False, True])
    monkeypatch.setattr(driver.stop, "wait", lambda _=None: next(looked))
    driver.loop._look_forever()
    assert driver.loop._ready == frozenset(usable())


def beat(driver: LocalDriver, *nodes: str) -> None:
    """These have a heartbeat."""
    for node in nodes:
        record = encode_node(NodeRecord(node, f"host-{node}", 1, 17, 1000, 0.0))
        driver.tree.put(f"{ROOT}/nodes/{node}", record)


def test_spark_is_not_asked_for_nodes_while_none_is_missing_and_no_job_runs(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(driver, "a", "b")
    usable, asked = driver.cluster.usable, []
    monkeypatch.setattr(driver.cluster, "usable", lambda: asked.append(True) or usable())
    looked = iter([False, False, False, True])
    monkeypatch.setattr(driver.stop, "wait", lambda _=None: next(looked))
    driver.loop._look_forever()
    assert asked == [True], "until it is known that both can be used"
    beat(driver, "late")
    looked = iter([False, False, True])
    driver.loop._look_forever()
    assert asked == [True] * 3, "as the third has come, and cannot be used yet"


def test_a_node_that_has_become_ready_is_told_at_once(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver.cluster, "usable", lambda: {"late#1": "late"})
    driver.cluster.starts = NodeStarts(lambda: 12.0)
    driver.cluster.tell()
    assert driver.record()["nodes"] == ["late#1"]
    assert driver.record()["starts"] == {"late#1": {"ready": 12.0}}


def test_a_node_is_usable_once_an_exchange_reaches_it_and_that_is_told_at_once(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns(driver, lambda: bool(driver.engine.positions))
    usable = {**driver.cluster.usable(), "late#1": "late"}
    monkeypatch.setattr(driver.cluster, "usable", lambda: usable)
    connection, jobs = driver.engine.connection, driver.engine.connection._used.jobs  # type: ignore[union-attr]
    monkeypatch.setattr(type(jobs), "link", 7)
    connection.link = 7
    driver.cluster.tell()
    assert driver.record()["nodes"] == ["a#1", "b#1"]
    driver.turn()
    assert connection._next is not None, "an exchange with it begins, and stands"
    assert driver.record()["nodes"] == ["a#1", "b#1"]
    driver.turn()
    assert driver.record()["nodes"] == ["a#1", "b#1", "late#1"]


def cancelled_while(driver: LocalDriver, monkeypatch: pytest.MonkeyPatch, reached: str) -> bool:
    """Whether a job over these nodes is cancelled by whoever publishes.  `a` to `c` have heartbeats; `c` has no executor."""
    beat(driver, "a", "b", "c")
    monkeypatch.setattr(driver.cluster, "registered", lambda host: host != "host-c")
    usable = {f"{node}#1": f"host-{node}" for node in "abcd"}
    monkeypatch.setattr(driver.cluster, "usable", lambda: usable)
    cancelled: list[bool] = []

    def job(_living: Any, stop: threading.Event) -> bool:
        driver.engine.connection.nodes = tuple(f"{node}#1" for node in reached)
        driver.loop.publish()
        cancelled.append(stop.is_set())
        return True

    monkeypatch.setattr(Engine, "tick", lambda _self, *given: job(*given))
    driver.loop.turn()
    return cancelled[0]


def test_a_job_is_cancelled_where_a_node_that_it_reaches_is_gone_by_its_heartbeat_or_by_spark(
    driver: LocalDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not cancelled_while(driver, monkeypatch, "ab"), "nobody waits for the others"
    assert cancelled_while(driver, monkeypatch, "abd"), "it has no heartbeat"
    assert cancelled_while(driver, monkeypatch, "abc"), "Spark has no executor there"


def test_a_node_works_once_a_partition_is_at_work_on_it_and_not_when_that_is_ordered(
    driver: LocalDriver,
) -> None:
    starts = driver.cluster.starts
    for node in ("a#1", "b#1", "other#1"):
        starts.saw(node, StartPhase.READY)
    driver.loop._note_work()
    assert not any(StartPhase.WORK in start.at for start in starts.told().values())
    turns(driver, lambda: bool(driver.engine.positions))
    assert {node for node, start in starts.told().items() if StartPhase.WORK in start.at} == {"a#1", "b#1"}
