"""Brokers that break while a topology runs: what the user sees, and that nothing is missing or twice afterwards.

These tests start brokers of their own, as they break them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from reprise.algorithms.failure import Failure, FailureKind
from reprise.spark_jobs.kafka.settings import Settings
from reprise.spark_jobs.kafka.transactions import Marker, Session
from reprise.spark_jobs.sinks import Owner
from reprise.spark_jobs.topology.resource import StreamTopology
from tests.kafka import pipes
from tests.kafka.broker import Broker, wait_for
from tools.kafka.server import KafkaCluster, with_passwords
from tools.testbed.local_engine import BETWEEN_JOBS_S, World

pytestmark = [pytest.mark.slow, pytest.mark.wide]
ROWS = 200
PATIENCE_S = 240.0
"""For what is waited for: how fast it comes is a matter of the machine, whether it comes is what is tested."""
JOBS = 10
"""So many one after the other while a broker is frozen: at its own timeouts each would take a minute."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[KafkaCluster]:
    # A broker that is frozen for seconds must not be taken for lost by its own controller, which was frozen with it.
    # a killed broker registers anew when its old session has ended: 20 s, within the time that it tries for
    slow = {"broker.session.timeout.ms": "20000", "initial.broker.registration.timeout.ms": "180000"}
    with KafkaCluster(properties=slow) as started:
        yield started


def begin(broker: Broker, folder: Path, **spec: object) -> tuple[World, str]:
    """Rows in two logs, in batches of ten; the last half of each log is sent when some output is written."""
    origin, target = broker.topic("in", 2), broker.topic("out")

    def send(half: int) -> None:
        for log in range(2):
            broker.send(origin, pipes.rows(ROWS // 4, first=ROWS // 2 * log + ROWS // 4 * half), log)

    send(0)
    quick = {"config": {"socket.timeout.ms": 2000, "topic.metadata.refresh.interval.ms": 500}}
    source = pipes.source(
        broker, origin, until={f"{origin}/{log}": ROWS // 2 for log in range(2)}, batch_rows=10, **quick
    )
    world = pipes.world(pipes.pipe(source, pipes.sink(broker, target, **quick), **spec), folder, "a", "b")
    world.run(lambda e: min(e.positions.values()) >= 3)
    send(1)
    return world, target


def run(world: World, seconds: float, enough: Callable[[], bool] = lambda: False) -> None:
    """Go on for a while, or until it is enough."""
    until = time.monotonic() + seconds
    world.run(lambda _: enough() or time.monotonic() > until, limit=int(2 * seconds / BETWEEN_JOBS_S) + 1)


def finish(world: World, broker: Broker, target: str) -> None:
    """To the end, and every row once."""
    run(world, PATIENCE_S, lambda: world.engine.done)
    assert world.engine.done, (world.engine.positions, world.engine.failed, world.engine.problems[-3:])
    assert sorted(row["id"] for row in broker.rows(target)) == list(range(ROWS))


@contextmanager
def markers_seen(broker: Broker, target: str) -> Iterator[list[Marker | None]]:
    """What a sink partition that is opened anew would take for its marker, asked without pause."""
    session = Session(
        broker.address, Settings({}), name="reprise.default.pipe.out.0", topic=target, letters=None,
        owner=Owner(float("inf"), ()), position=0, go_on_without_marker=False, compacted=False,
    )  # fmt: skip
    found: list[Marker | None] = []
    over = threading.Event()

    def ask() -> None:
        while not over.wait(0.01):
            try:
                found.append(session._look(stable=True))
            except KafkaException:
                continue

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield found
    finally:
        over.set()
        asking.join()


@pytest.mark.parametrize("down_s", [8.0, 60.0])
def test_a_broker_that_is_down_during_a_recovery(
    cluster: KafkaCluster, tmp_path: Path, down_s: float
) -> None:
    """The user sees that source and sink wait, and for whom; partitions are not failed; it goes on by itself.

    While the broker loads its groups' offsets again a marker is unknown; it is never taken for one that is gone.
    """
    broker = Broker(cluster.bootstrap)
    world, target = begin(broker, tmp_path)
    with markers_seen(broker, target) as seen:
        cluster.brokers[0].kill()
        recover_without_a_broker(cluster, world, down_s)
        cluster.brokers[0].start(240.0)
        before = len(seen)
        finish(world, broker, target)
        wait_for(lambda: len(seen) > before)
    assert None not in seen


def recover_without_a_broker(cluster: KafkaCluster, world: World, down_s: float) -> None:
    world.nodes.lose("a")
    world.run(lambda e: Failure(FailureKind.NODE_LOST) in e.failed.values())
    world.nodes.start("c")
    world.want(1, world.engine.punctuations.newest, world.spread("b", "c"))
    run(world, down_s)

    def told() -> bool:
        said = " ".join(world.engine.problems)
        return ("in.0: batch" in said or "sources wait" in said) and cluster.bootstrap in said

    run(world, PATIENCE_S, told)
    assert told(), world.engine.problems[-3:]
    assert not world.engine.failed


def test_a_broker_that_does_not_answer(cluster: KafkaCluster, tmp_path: Path) -> None:
    """Frozen: connections stay, nothing comes.  Jobs go on all the same, and the user is told that something waits."""
    broker = Broker(cluster.bootstrap)
    world, target = begin(broker, tmp_path)
    cluster.brokers[0].freeze()
    jobs = world.engine.jobs

    def told() -> bool:
        return any("wait" in problem for problem in world.engine.problems)

    # a job that waited for the broker would not end before the broker goes on, and that is after all of this
    run(world, PATIENCE_S, lambda: told() and world.engine.jobs >= jobs + JOBS)
    cluster.brokers[0].thaw()
    assert told(), world.engine.problems[-3:]
    assert world.engine.jobs >= jobs + JOBS
    assert not world.engine.failed
    finish(world, broker, target)


def test_a_sink_topic_that_is_deleted(cluster: KafkaCluster, tmp_path: Path) -> None:
    """The user sees that output waits and that the marker is gone; nothing is written as if nothing had been there."""
    broker = Broker(cluster.bootstrap)
    world, target = begin(broker, tmp_path)
    broker.delete(target)
    run(world, PATIENCE_S, lambda: any(target in p for p in world.engine.problems))
    broker.create(target)
    run(world, PATIENCE_S, lambda: any("is gone though batch" in p for p in world.engine.problems))
    assert any("on_marker_lost: continue" in p for p in world.engine.problems), world.engine.problems[-3:]
    assert broker.rows(target) == []
    for host in world.nodes.hosts.values():
        host.close()


@pytest.fixture
def guarded() -> Iterator[KafkaCluster]:
    with KafkaCluster(properties=with_passwords({"admin": "a-secret", "app": "hunter2"}, "admin")) as started:
        yield started


def test_without_the_right_to_write_the_user_sees_which_and_no_password(
    guarded: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not failed but waiting: the right can be given while the topology runs, and then it goes on."""
    plain = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
    broker = Broker(guarded.bootstrap, {**plain, "sasl.username": "admin", "sasl.password": "a-secret"})
    (tmp_path / "password").write_text("hunter2\n")
    monkeypatch.setenv("KAFKA_USER", "app")
    config = {
        **plain,
        "sasl.username": {"env": "KAFKA_USER"},
        "sasl.password": {"file": str(tmp_path / "password")},
    }
    origin, target = broker.topic("in"), broker.topic("out")
    broker.send(origin, pipes.rows(20))
    allow(broker, ResourceType.TOPIC, origin, AclOperation.READ)
    allow(broker, ResourceType.TOPIC, origin, AclOperation.DESCRIBE)
    source = pipes.source(broker, origin, until=broker.ends(origin), batch_rows=5, config=config)
    resource = pipes.pipe(source, pipes.sink(broker, target, config=config))
    world = pipes.world(resource, tmp_path, "a")
    run(world, PATIENCE_S, lambda: any("AUTHORIZATION" in p for p in world.engine.problems))
    assert any(f"topic {target}" in p and "AUTHORIZATION_FAILED" in p for p in world.engine.problems)
    assert "hunter2" not in " ".join(world.engine.problems) + resource.document
    for kind, name in (
        (ResourceType.TOPIC, target),
        (ResourceType.GROUP, "reprise."),
        (ResourceType.TRANSACTIONAL_ID, "reprise."),
    ):
        allow(broker, kind, name, AclOperation.ALL)
    run(world, PATIENCE_S, lambda: world.engine.done)
    assert sorted(row["id"] for row in broker.rows(target)) == list(range(20))


def allow(broker: Broker, kind: ResourceType, name: str, what: AclOperation) -> None:
    """A right of user `app` on everything that begins with `name`."""
    right = AclBinding(
        kind, name, ResourcePatternType.PREFIXED, "User:app", "*", what, AclPermissionType.ALLOW
    )
    broker.admin.create_acls([right])[right].result(60)


def test_three_brokers_one_killed_while_nodes_are_lost(tmp_path: Path) -> None:
    """With replicas the loss of a broker is no more than a pause, also together with the loss of a node."""
    with KafkaCluster(3) as three:
        broker = Broker(three.bootstrap, copies=3)
        world, target = begin(broker, tmp_path)
        three.brokers[0].kill()
        world.nodes.lose("a")
        world.run(lambda e: Failure(FailureKind.NODE_LOST) in e.failed.values())
        world.nodes.start("c")
        world.want(1, world.engine.punctuations.newest, world.spread("b", "c"))
        finish(world, broker, target)


def standby_of(resource: StreamTopology) -> tuple[str, ...]:
    """Clusters that the source of a pipe may read from."""
    return tuple(resource.sources[0].parameters["brokers"])


def test_reading_falls_over_to_a_standby_cluster(cluster: KafkaCluster, tmp_path: Path) -> None:
    """The mirror has the same offsets; the user sees from where it reads."""
    mirror = Broker(cluster.bootstrap)
    with KafkaCluster() as primary:
        broker = Broker(primary.bootstrap)
        origin = broker.topic("mirrored")
        mirror.create(origin)
        for each in (broker, mirror):
            each.send(origin, pipes.rows(ROWS // 2))
        target = mirror.topic("fell-over")
        source = pipes.source(
            broker, origin, until={f"{origin}/0": ROWS}, batch_rows=10, standby_after="1s",
            brokers=[primary.bootstrap, cluster.bootstrap], config={"socket.timeout.ms": 1000},
        )  # fmt: skip
        resource = pipes.pipe(source, pipes.sink(mirror, target))
        assert standby_of(resource) == (primary.bootstrap, cluster.bootstrap)
        world = pipes.world(resource, tmp_path, "a")
        world.run(lambda _: len(mirror.rows(target)) == ROWS // 2)
        scratch, process = primary.brokers[0].folder, primary.brokers[0]._running
    assert not scratch.exists(), "nothing is left of brokers that are stopped"
    assert process is not None
    wait_for(lambda: process[0].poll() is not None)
    mirror.send(origin, pipes.rows(ROWS // 2, first=ROWS // 2))
    finish(world, mirror, target)
    assert any(f"reading goes on from {cluster.bootstrap}" in p for p in world.engine.problems)
