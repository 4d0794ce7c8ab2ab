"""NexMark's Q3 from two topics: the pairs that DuckDB finds among the same persons and auctions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reprise.spark_jobs.topology import load_topology, override
from tests.kafka import pipes
from tests.kafka.broker import Broker
from tests.support.nexmark import counted, example, played

pytestmark = [pytest.mark.slow, pytest.mark.wide]
PAIRS = """
    SELECT seller, name, city, state, a.time, a.id AS auction, category
    FROM persons p JOIN auctions a ON seller = p.id WHERE state IN ('OR', 'ID', 'CA')"""


def test_a_join_of_two_topics_gives_every_pair_once(broker: Broker, tmp_path: Path) -> None:
    generated = played(example("q3", batches=10, hot=0.2))
    changes: dict[str, object] = {"checkpoint.interval": "1s"}
    for name, events in generated.events.items():
        topic = broker.topic(name, 2)
        for log in (0, 1):
            rows = events.drop_columns(["batch", "part", "pos"]).to_pylist()[log::2]
            broker.send(topic, rows, log)
        more = {"brokers": broker.address, "topics": [topic], "until": broker.ends(topic), "batch_rows": 100}
        changes |= {f"sources[{name}].with.{key}": value for key, value in more.items()}
    world = pipes.world(
        override(load_topology("examples/nexmark-q3-kafka.yaml"), changes), tmp_path, "a", "b"
    )
    world.run(lambda e: e.done)
    found = [json.loads(line) for data in world.output().values() for line in data.splitlines()]
    assert len(found) > 100
    assert counted(found) == counted(generated.sql(PAIRS))
