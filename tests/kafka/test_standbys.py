"""Standbys and upstream backup with outputs on a real broker: a partition is lost after it has committed and before it has
reported, and still runs when its successor opens; each row is in the topic once, and in order."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from reprise.controller.local.run.config import Outcome
from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.engine.engine import Engine
from reprise.spark_jobs.errors import FencedError
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.node.settling import settle
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.operators.local import run_local
from reprise.spark_jobs.topology import load_text, override
from tests.e2e import scenario
from tests.kafka import pipes
from tests.kafka.broker import Broker
from tests.support.hashtags import WITH_STANDBYS, at_pace
from tests.support.losses import tick_losing
from tests.unit.spark_jobs.engine.test_arbitrary_standbys import Readers, ends, recover, world_of
from tools.testbed.local_engine import World, tick

pytestmark = [pytest.mark.slow, pytest.mark.wide]
ROWS = 400
AT = {"in.0": "c", "out.0": "b"}
PATIENCE_S = 120.0
WAYS: dict[str, dict[str, Any]] = {
    "active": {"operators[out].availability": "active-standby"},
    "passive": {"operators[out].availability": "passive-standby", "operators[out].standby": {"every": 3}},
    "upstream": {"operators[out].availability": "upstream-backup"},
}
PASSIVE = WITH_STANDBYS.replace(
    "availability: active-standby", "availability: passive-standby\n      standby: {every: 3}"
)


def begin(broker: Broker, folder: Path, way: str) -> tuple[World, str]:
    """Rows of one log to one, in batches of ten; `out.0` is alone on node b, and its standby on a."""
    origin, target = broker.topic("in"), broker.topic("out")
    broker.send(origin, pipes.rows(ROWS))
    source = pipes.source(broker, origin, until=broker.ends(origin), batch_rows=10)
    plain = pipes.pipe(source, pipes.sink(broker, target, headers=True))
    world = World(override(plain, {**WAYS[way], "nodes.count": 3}), folder, "run", brokers=True)
    world.engine.begin(0)
    world.nodes.start("a", "b", "c")
    world.want(1, 0, AT, standbys={} if way == "upstream" else {"out.0": "a"})
    return world, target


def ready(engine: Engine) -> bool:
    """In the middle of the stream, and who is to have a standby has one that could go on."""
    placed = engine.progress.standbys.keys() == engine.desired.standbys.keys()
    return placed and min(engine.positions.values(), default=0) >= 5


@pytest.mark.parametrize("way", WAYS)
def test_each_row_is_there_once_though_the_partition_still_runs_when_its_successor_opens(
    broker: Broker, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_module, "WINDOW", 4)
    world, target = begin(broker, tmp_path, way)
    world.run(ready)
    known, zombie = world.engine.positions["out.0"], world.nodes.hosts["b"]
    given_up, deliver = zombie.runtimes["out.0"], OperatorRuntime.deliver
    assert isinstance(given_up, OperatorRuntime)
    sink = given_up.sink
    assert sink is not None

    def delivered(runtime: OperatorRuntime, message: Message) -> None:
        if runtime.partition.id == "out.0" and runtime is not given_up:
            deliver(given_up, message)
        deliver(runtime, message)

    monkeypatch.setattr(OperatorRuntime, "deliver", delivered)

    last = 1 if way == "upstream" else 2  # the slot of node c, as nothing is on a

    def cut(_job: int, stage: int, slot: int) -> None:
        if (stage, slot) == (2, last) and "b" in world.nodes.hosts:
            world.nodes.lose("b")  # it has ended its job, and its report is lost with it
            raise ChainError("power cut")

    world.nodes.interrupt = cut
    tick(world)
    world.nodes.interrupt = lambda *_: None
    until(lambda: settle(given_up, sink, 0.2) == "" and sink.visible > known)
    tick(world, 2)
    assert "out.0" in world.engine.failed

    world.want(1, world.engine.punctuations.newest, {"in.0": "c", "out.0": "a"}, retain=True)
    assert world.engine.positions["out.0"] <= known + 4 or way == "upstream"
    fenced = False
    ends = time.monotonic() + PATIENCE_S
    while not (fenced and world.engine.done) and time.monotonic() < ends:
        tick(world)
        try:
            while not fenced and given_up.advance(lambda _: False):
                pass
            settle(given_up, sink, 0.05)
        except FencedError:
            fenced = True
    assert world.engine.done, (world.engine.positions, world.engine.failed, world.engine.problems[-3:])
    assert fenced, "it was not fenced"
    assert [row["id"] for row in broker.rows(target)] == list(range(ROWS))
    assert world.engine.desired.generation == 1, "everything went back"
    for host in (zombie, *world.nodes.hosts.values()):
        host.close()


def until(true: Any) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < ends


@pytest.mark.parametrize(
    ("waiting", "stage", "besides"),
    [(1, 0, ()), (2, 1, ()), (3, 2, ()), (3, 0, ("a",)), (2, 2, ("a",))],
    ids=lambda it: None if isinstance(it, int) else "with a reader" if it else "alone",
)
def test_what_is_drawn_is_committed_once_and_is_what_its_readers_have(
    broker: Broker,
    tmp_path: Path,
    waiting: int,
    stage: int,
    besides: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replay would be another story, so what `told` gives waits until its standby has it, and is committed when a
    checkpoint covers it.  Its node is lost while some batches wait for the standby, and others for the checkpoint."""
    readers, topics = Readers(monkeypatch), {name: broker.topic(name) for name in ("told", "left")}
    kafka = {
        name: {"class": "reprise.kafka:KafkaSink", "with": pipes.sink(broker, topic, headers=True)}
        for name, topic in topics.items()
    }
    world = world_of(tmp_path, changes={f"operators[{name}].output.sink": it for name, it in kafka.items()})
    engine = world.engine
    monkeypatch.setattr(engine.release, "due", lambda *_: engine.jobs)  # one batch more with each job

    def waits(_: Engine) -> bool:
        standby = engine.progress.standbys.get("told.0", -1)
        return engine.positions["told.0"] - waiting == standby > max(engine.punctuations.newest, 20)

    world.run(waits, limit=100)
    world.nodes.lose(*besides)
    tick_losing(world, "c", stage, in_turn=True)
    tick(world)
    assert recover(world, standby="b"), "its standby could not go on"
    ends(world, readers)
    assert engine.desired.generation == 1, "everything went back"
    drawn = {batch: given[0]["toss"] for batch, given in readers.rows.items()}  # type: ignore[index]
    assert drawn.keys() == set(range(1, 62))
    for topic in topics.values():
        numbers = [dict(message.headers() or [])["reprise-batch"] for message in broker.messages(topic)]
        found = zip(map(int, numbers), (row["toss"] for row in broker.rows(topic)), strict=True)
        assert list(found) == sorted(drawn.items())
    runtimes = [runtime for host in world.nodes.hosts.values() for runtime in host.runtimes.values()]
    states = {r.partition.id: r.state for r in runtimes if isinstance(r, OperatorRuntime)}
    assert states == dict.fromkeys(("told.0", "left.0", "right.0"), sum(drawn.values()))


@pytest.mark.parametrize("text", [WITH_STANDBYS, PASSIVE], ids=["active", "passive"])
def test_on_spark_a_partition_goes_on_where_its_standby_is(broker: Broker, tmp_path: Path, text: str) -> None:
    """SIGKILL of the node of a partition whose output goes to Kafka."""
    target = broker.topic("counts")
    sink = {"class": "reprise.kafka:KafkaSink", "with": pipes.sink(broker, target, headers=True)}
    changes = at_pace("200ms", 400, 120, 15) | {"operators[count].output.sink": sink}
    resource = load_text(text, changes=changes)
    faults = [{"on": "checkpoint", "kill": ["@count.0"]}]
    with scenario.cluster(4, cpu_milli=600) as cluster:
        result = scenario.run(resource, cluster, tmp_path / "out", faults)
    assert result.outcome is Outcome.DONE, f"{result.outcome}: {result.reason}"
    assert result.record["unfired"] == []
    promoted = [line for line in result.incident["timeline"] if line["what"] == "promoted"]
    assert "count.0 to " in str(promoted), "it was restored from the checkpoint"
    assert not any(plan["rollback"] for plan in result.incident["incidents"][0]["plans"]), (
        "everything went back"
    )
    found: dict[str, list[tuple[int, Any]]] = defaultdict(list)
    for message, row in zip(broker.messages(target), broker.rows(target), strict=True):
        about = {key: value.decode() for key, value in message.headers() or []}
        found[about["reprise-partition"]].append((int(about["reprise-batch"]), row))
    wanted: dict[str, list[tuple[int, Any]]] = {"count.0": [], "count.1": []}
    for batch, outputs in enumerate(run_local(resource), start=1):
        for partition, rows in wanted.items():
            if (table := outputs[partition]) is not None:
                rows += [(batch, row) for row in table.to_pylist()]
    assert found == wanted
