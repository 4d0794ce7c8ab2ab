"""Which pods have a heartbeat, by what the coordinator has just read and by the folder itself, on a ZooKeeper in memory."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from reprise.controller.operator.records import Records
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.topology_view import view_of
from reprise.controller.zookeeper import membership
from reprise.controller.zookeeper.node_record import NodeRecord, encode_node
from reprise.controller.zookeeper.session import ZooKeeperSession
from reprise.spark_jobs.topology import from_json

EXAMPLE = Path(__file__).parents[4] / "examples" / "minimal.yaml"
SETTINGS = OperatorSettings(namespace="ops", identity="op-1", zk="-", image="i", session_s=0.1)


@pytest.fixture
def client() -> ZooKeeperSession:
    return ZooKeeperSession(MemoryServer().session())  # type: ignore[arg-type]


@pytest.fixture
def records(client: ZooKeeperSession) -> Records:
    resource = from_json(json.dumps(yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))))
    found = Records(client, resource, view_of(resource), "uid-1", SETTINGS, lambda _: True, lambda: None)
    found.open()
    return found


@pytest.mark.parametrize("decided", [True, False], ids=["after a decision", "without one"])
def test_a_heartbeat_whose_record_cannot_be_read_is_a_heartbeat(
    client: ZooKeeperSession, records: Records, decided: bool
) -> None:
    """A pod of another version, maybe: it gets no work, but its process lives, and nobody may end it as dead."""
    beat = encode_node(NodeRecord("here", "127.0.0.1", 1, 1, 100, time.time()))
    for pod, raw in (("here", beat), ("other", b"no record"), ("gone", None)):
        client.create(membership.path_of(records.root, pod), membership.joined())
        if raw is not None:
            client.create(f"{records.root}/nodes/{pod}", raw, ephemeral=True)
    if decided:
        records.coordinator.turn()
        assert records.coordinator.seen is not None
        assert [node.name for node in records.coordinator.seen.nodes.values()] == ["here"]
    beats = records.heartbeats()
    assert beats is not None
    assert {pod: beat.there for pod, beat in beats.items()} == {"here": True, "other": True, "gone": False}
