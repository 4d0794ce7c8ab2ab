"""From Kafka to Kafka on a real broker: nothing missing and nothing twice for readers of committed messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.algorithms.failure import FailureKind
from reprise.spark_jobs.engine.chain import ChainError
from tests.kafka import pipes
from tests.kafka.broker import Broker, wait_for
from tools.testbed.local_engine import World

pytestmark = pytest.mark.slow
ROWS = 120
HALF = ROWS // 6
"""Rows in the first half of each of three logs."""


def ids(broker: Broker, topic: str) -> list[int]:
    return sorted(row["id"] for row in broker.rows(topic))


def begin(broker: Broker, folder: Path, *nodes: str) -> tuple[World, str, str]:
    """World, source topic and sink topic: three logs with half of their rows, two readers and two writers, in batches of
    at most ten rows a reader."""
    origin, target = broker.topic("in", 3), broker.topic("out", 2)
    send(broker, origin, 0)
    until = {f"{origin}/{log}": 2 * HALF for log in range(3)}
    parameters = pipes.source(broker, origin, until=until, batch_rows=10)
    resource = pipes.pipe(parameters, pipes.sink(broker, target, key=["id"]), readers=2, writers=2)
    return pipes.world(resource, folder, *nodes), origin, target


def send(broker: Broker, origin: str, half: int) -> None:
    for log in range(3):
        broker.send(origin, pipes.rows(HALF, first=HALF * (2 * log + half)), log)


def half_way(broker: Broker, folder: Path) -> tuple[World, str]:
    """A world on nodes a and b with a checkpoint of at least three batches, and at least as many batches to come."""
    world, origin, target = begin(broker, folder, "a", "b")
    world.run(lambda e: e.punctuations.newest >= 3)
    send(broker, origin, 1)
    return world, target


def test_every_row_once_without_faults(broker: Broker, tmp_path: Path) -> None:
    world, origin, target = begin(broker, tmp_path, "a", "b")
    send(broker, origin, 1)
    world.run(lambda e: e.done)
    assert ids(broker, target) == list(range(ROWS))
    assert len(world.engine.outputs) >= world.engine.positions["out.0"]


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_every_row_once_when_all_nodes_are_lost_half_way(broker: Broker, tmp_path: Path, stage: int) -> None:
    world, target = half_way(broker, tmp_path)
    zombies = dict(world.nodes.hosts)
    job = world.engine.jobs + 1

    def lose(number: int, at: int, slot: int) -> None:
        if number == job and at == stage and slot == 1:
            world.nodes.lose("a", "b")
            raise ChainError("both nodes are gone")

    world.nodes.interrupt = lose
    world.run(lambda e: e.failures > 0)
    world.nodes.start("c", "d")
    world.run(lambda e: not e.positions)
    world.want(1, world.engine.punctuations.newest, world.spread("c", "d"))
    world.run(lambda e: e.done)
    assert ids(broker, target) == list(range(ROWS))
    for host in zombies.values():
        host.close()


def test_every_row_once_when_the_driver_is_replaced(broker: Broker, tmp_path: Path) -> None:
    """Output was written after the newest checkpoint."""
    world, target = half_way(broker, tmp_path)
    reached = max(world.engine.positions.values())
    world.run(lambda e: min(e.positions.values()) > reached)
    newest = world.engine.punctuations.newest
    assert 3 <= newest <= reached
    world.driver()
    world.want(2, newest, world.spread("b", "a"))
    world.run(lambda e: e.done)
    assert ids(broker, target) == list(range(ROWS))


def test_a_zombie_node_that_wakes_up_writes_nothing_more(broker: Broker, tmp_path: Path) -> None:
    world, target = half_way(broker, tmp_path)
    zombies = {node: world.nodes.hosts[node] for node in ("a", "b")}
    world.nodes.lose("a", "b")
    world.nodes.start("c")
    world.run(lambda e: not e.positions)
    world.want(1, world.engine.punctuations.newest, world.spread("c"))
    world.run(lambda e: min(e.positions.values(), default=0) > e.desired.checkpoint)

    def asleep_until_now() -> bool:
        for node, host in zombies.items():
            if host.command is not None:
                host._settle(host.command)
                for partition, runtime in list(host.runtimes.items()):
                    if partition.startswith("out"):
                        runtime.sink.write(runtime.position + 1, pipes.table(pipes.rows(1, first=10_000)))  # type: ignore[attr-defined]
                del node
        return all(p in h.failed for h in zombies.values() for p in h.installed if p.startswith("out"))

    wait_for(asleep_until_now)
    failed = {p: why for host in zombies.values() for p, why in host.failed.items()}
    assert all(
        why.kind is FailureKind.FENCED and "later installation" in why.reason for why in failed.values()
    )
    world.run(lambda e: e.done)
    assert ids(broker, target) == list(range(ROWS))


def test_another_stream_of_the_same_name_begins_anew(broker: Broker, tmp_path: Path) -> None:
    world, origin, target = begin(broker, tmp_path / "first", "a")
    send(broker, origin, 1)
    world.run(lambda e: e.done)
    again = pipes.world(world.resource, tmp_path / "second", "a")
    again.run(lambda e: e.done)
    assert ids(broker, target) == sorted([*range(ROWS), *range(ROWS)])
