"""The demo's topology on hosts in this process: flights in, nodes lost, and the demo's own verdict on the topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo import kafka_data as data
from examples.demo.flights_kafka import EXAMPLES
from reprise.algorithms.failure import Failure, FailureKind
from reprise.controller.local.run.config import load
from tools.kafka.server import KafkaCluster
from tools.testbed.local_engine import World

pytestmark = [pytest.mark.slow, pytest.mark.wide]
ROWS = 6000


def test_no_key_and_window_is_missing_or_twice(tmp_path: Path) -> None:
    frame = data.flights(ROWS)
    with KafkaCluster() as kafka:
        address = kafka.bootstrap
        data.make_topics(address)
        changes = {
            "sources[flights].with.brokers": address,
            "sources[flights].with.until": data.until(ROWS),
            "sources[flights].with.batch_rows": 200,
            "checkpoint.everyBatches": 4,
            **{f"operators[{o.topic}].output.sink.with.brokers": address for o in data.OUTPUTS},
        }
        world = World(load(EXAMPLES / "flights-kafka.yaml", overrides=changes), tmp_path, "run", brokers=True)
        world.nodes.start("a", "b", "c")
        world.want(0, 0, world.spread("a", "b", "c"))
        feeder = data.Feeder(address, frame, 2.0)
        feeder.start()
        world.run(lambda e: e.punctuations.newest >= 4)
        world.nodes.lose("a", "b")
        feeder.second_half.set()
        world.run(lambda e: Failure(FailureKind.NODE_LOST) in e.failed.values())
        world.nodes.start("d")
        world.want(1, world.engine.punctuations.newest, world.spread("c", "d"))
        world.run(lambda e: e.done)
        feeder.join(300)
        assert feeder.failed is None
        found = data.check(address, frame)
    assert all(topic.good for topic in found), found
    assert sum(topic.wanted for topic in found) > 500
