"""Operators with standbys and with upstream backup whose output goes to Kafka: whatever was committed and not reported,
whoever still runs, and whatever brokers answer, each row is there once and in order."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine.chain import ChainError
from reprise.spark_jobs.errors import FencedError, SinkError
from reprise.spark_jobs.kafka import transactions
from reprise.spark_jobs.kafka.transactions import Marker, Session, Written
from reprise.spark_jobs.node.host import Host
from reprise.spark_jobs.node.runtime import OperatorRuntime
from reprise.spark_jobs.node.settling import settle
from reprise.spark_jobs.node.standbys import KeptOutput
from reprise.spark_jobs.node.wire import Message
from reprise.spark_jobs.topology import load_text
from tests.support.engine_worlds import placed, to_its_end
from tests.support.fake_kafka import Broker
from tests.support.hashtags import SKIPPED, WITH_STANDBYS
from tests.support.losses import lose_nodes_at_any_moment
from tests.support.seeds import seeds
from tests.unit.spark_jobs.engine import test_standbys as standbys
from tests.unit.spark_jobs.engine import test_upstream_backup as upstream
from tools.testbed.local_engine import World, past, tick

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("exchange", "few_batches_ahead")]

PASSIVE = WITH_STANDBYS.replace(
    "availability: active-standby", "availability: passive-standby\n      standby: {every: 4}"
)
Rows = dict[str, list[tuple[int, str]]]
"""Output partition -> batch and row of each of its messages, in the order in which they were committed."""


@dataclass(frozen=True)
class Way:
    """How a lost partition comes back: the topology, where its partitions are, and `partition`, whose output goes to Kafka
    and which is alone on node c."""

    text: str
    outputs: tuple[str, ...]
    partition: str
    at: Mapping[str, str]
    standbys: Mapping[str, str]
    changes: Mapping[str, Any]
    name: str

    def begin(self, folder: Path, **parameters: object) -> World:
        """A world in which it begins; `parameters`: of its sinks, beside those that it needs."""
        sink = {
            "class": "reprise.kafka:KafkaSink",
            "with": {"brokers": "127.0.0.1:1", "topic": "t", "headers": True, **parameters},
        }
        changes = {f"operators[{name}].output.sink": sink for name in self.outputs}
        return placed(
            load_text(self.text, changes={**self.changes, **changes}), folder, self.at, self.standbys
        )

    def recover(self, world: World) -> None:
        """What a coordinator decides."""
        if self.standbys:
            standbys.recover(world)
        else:
            upstream.restore(world, *sorted(world.nodes.living()))

    def back(self, world: World) -> None:
        """Everything goes back."""
        (standbys.back if self.standbys else upstream.back)(world)

    @property
    def group(self) -> str:
        """The name of the marker of `partition`."""
        return f"reprise.default.{self.name}.{self.partition}"


ACTIVE_WAY = Way(WITH_STANDBYS, ("count", "best"), "count.0", standbys.AT, standbys.STANDBYS, {}, "standby")
PASSIVE_WAY = Way(PASSIVE, ("count", "best"), "count.0", standbys.AT, standbys.STANDBYS, {}, "standby")
BACKED_WAY = Way(
    SKIPPED,
    ("window", "best", "all"),
    "window.0",
    {**upstream.AT, "window.0": "c", "parse.0": "d"},
    {},
    upstream.MODE,
    "skipped",
)
WAYS = {"active": ACTIVE_WAY, "passive": PASSIVE_WAY, "upstream": BACKED_WAY}
EACH_WAY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def rows(broker: Broker) -> Rows:
    found: Rows = defaultdict(list)
    with broker.lock:
        told = list(zip(broker.messages, broker.headers, strict=True))
    for (_, _, _, value), headers in told:
        batch = int(headers["reprise-batch"])
        found[headers["reprise-partition"]].append((batch, (value or b"").decode()))
    return dict(found)


_EXPECTED: dict[str, Rows] = {}


@pytest.fixture
def expected(way: Way, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """Without a failure, and from checkpoints alone."""
    if way.name not in _EXPECTED:
        with pytest.MonkeyPatch.context() as patch:
            made = Broker()
            made.patch(patch, transactions)
            plain = Way(SKIPPED if way is BACKED_WAY else WITH_STANDBYS, way.outputs, "", way.at, {}, {}, "")
            world = plain.begin(tmp_path_factory.mktemp("fault-free"))
            world.run(lambda e: e.done)
            _EXPECTED[way.name] = rows(made)
    found = _EXPECTED[way.name]
    assert {partition.rpartition(".")[0] for partition in found} == set(way.outputs)
    return found


def ready(world: World, way: Way) -> None:
    """In the middle of the stream; whoever is to have a standby has one that could go on."""
    world.run(lambda e: past(25)(e) and standbys.all_ready(e))
    assert bool(world.engine.progress.standbys) is bool(way.standbys)


def finish(world: World, way: Way, broker: Broker, expected: Rows) -> None:
    to_its_end(world, way.back)
    assert rows(broker) == expected


def lose_at(world: World, way: Way, *at: int) -> Host:
    """Node c is given up when a stage of a job has come to a slot, and nobody hears of that job; it lives."""
    host = world.nodes.hosts["c"]

    def cut(_job: int, stage: int, slot: int) -> None:
        if (stage, slot) == at and "c" in world.nodes.hosts:
            world.nodes.lose("c")
            raise ChainError("power cut")

    world.nodes.interrupt = cut
    tick(world)
    world.nodes.interrupt = lambda *_: None
    tick(world, 2)
    assert world.engine.failed[way.partition].kind is FailureKind.NODE_LOST
    return host


@pytest.mark.parametrize("exchange", ["chained"], indirect=True)  # nodes have their turns in order
@pytest.mark.wide
@EACH_WAY
def test_what_was_committed_and_not_reported_is_not_written_again(
    broker: Broker, tmp_path: Path, way: Way, expected: Rows
) -> None:
    world = way.begin(tmp_path)
    ready(world, way)
    known = world.engine.positions[way.partition]
    lose_at(world, way, 2, 3)  # when it has ended the last stage
    committed = broker.committed[way.group][0]
    assert committed > known
    way.recover(world)
    assert world.engine.positions[way.partition] < committed, "nothing of it comes again"
    finish(world, way, broker, expected)
    assert world.engine.desired.generation == 1, "everything went back"
    assert world.engine.figures.states_there == 0, "a state was read"


@pytest.mark.wide
@EACH_WAY
def test_a_producer_that_is_still_there_is_fenced_when_its_successor_opens(
    broker: Broker, tmp_path: Path, way: Way, expected: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node was given up and lives, and is sent what its successor is sent.  Until that opens its sink it commits, which
    its successor finds; after that it commits nothing."""
    world = way.begin(tmp_path)
    ready(world, way)
    given_up, deliver, opens = (
        world.nodes.hosts["c"].runtimes[way.partition],
        OperatorRuntime.deliver,
        Session.open,
    )
    assert isinstance(given_up, OperatorRuntime)
    was, may_open = broker.committed[way.group], threading.Event()
    before = Marker.decode(*was).owner

    def delivered(runtime: OperatorRuntime, message: Message) -> None:
        if runtime.partition.id == way.partition and runtime is not given_up:
            deliver(given_up, message)
        deliver(runtime, message)

    def opened(session: Session) -> Marker:
        if session._name == way.group and session._owner > before:
            assert may_open.wait(300)
        return opens(session)

    monkeypatch.setattr(OperatorRuntime, "deliver", delivered)
    monkeypatch.setattr(Session, "open", opened)

    def goes_on() -> None:
        while given_up.advance(lambda _: False):
            pass
        assert given_up.sink is not None
        settle(given_up, given_up.sink, 0.2)

    lose_at(world, way, 1, 2)  # it has its orders, and not yet its input
    way.recover(world)
    for _ in range(20):
        tick(world)
        goes_on()
        if broker.committed[way.group][0] > was[0]:
            break
    found = broker.committed[way.group]
    assert found[0] > was[0], "it has not gone on"
    assert Marker.decode(*found).owner == before
    may_open.set()
    world.run(lambda e: e.positions.get(way.partition, 0) > found[0])
    ends = time.monotonic() + 60.0
    with pytest.raises(FencedError, match="later installation"):
        while time.monotonic() < ends:
            tick(world)
            goes_on()
    finish(world, way, broker, expected)
    assert world.engine.desired.generation == 1, "everything went back"


@pytest.mark.wide
@EACH_WAY
def test_what_waits_for_its_brokers_is_not_lost_with_its_node(
    broker: Broker, tmp_path: Path, way: Way, expected: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink has taken it, and it was never there: it does not count as shown.  An active standby has kept more of it than
    the sink takes at once."""
    down, writes = threading.Event(), Session.write

    def write(session: Session, batches: Sequence[Written]) -> None:
        if down.is_set() and session._name == way.group:
            raise SinkError("no answer")
        writes(session, batches)

    monkeypatch.setattr(Session, "write", write)
    world = way.begin(tmp_path, buffer="64" if way is ACTIVE_WAY else "1Mi")
    ready(world, way)
    down.set()
    tick(world, 12)
    host, committed = world.nodes.hosts["c"], broker.committed[way.group][0]
    lost = host.runtimes[way.partition]
    assert isinstance(lost, OperatorRuntime)
    assert lost.handed > committed
    assert world.engine.positions[way.partition] <= committed
    if way is ACTIVE_WAY:
        standby = world.nodes.hosts["a"].runtimes[way.partition]
        assert isinstance(standby, OperatorRuntime)
        assert isinstance(kept := standby.sink, KeptOutput)
        assert kept._bytes > 4 * 64
    world.nodes.lose("c")
    host.close()
    tick(world, 2)
    way.recover(world)
    down.clear()
    world.run(lambda e: way.partition in e.at_work, limit=20)
    finish(world, way, broker, expected)
    assert world.engine.desired.generation == 1, "everything went back"


@EACH_WAY
@seeds(range(2), range(2, 6), 54)
def test_nodes_and_brokers_fail_at_any_moment(
    broker: Broker, tmp_path: Path, way: Way, expected: Rows, seed: int
) -> None:
    dice = random.Random(seed)
    world = way.begin(tmp_path)
    tick(world, 3)

    def planned(living: Sequence[str]) -> None:
        if way.standbys:
            wanted = {p: dice.choice(living) for p in way.standbys} if dice.random() < 0.6 else None
            standbys.recover(world, wanted)
        else:
            way.recover(world)
        broker.faults.extend(dice.choices(["unheard", "done", "prepared"], k=dice.randint(0, 2)))

    lose_nodes_at_any_moment(world, dice, way.back, planned)
    broker.faults.clear()
    way.recover(world)
    finish(world, way, broker, expected)
