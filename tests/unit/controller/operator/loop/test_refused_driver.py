"""A topology whose driver the API server refuses, with its records in a ZooKeeper in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from reprise.controller.kubernetes.errors import ForbiddenError
from reprise.controller.kubernetes.pods import PodView
from reprise.controller.operator.loop.topology import TopologyController
from reprise.controller.operator.pods.cluster_view import ClusterView
from reprise.controller.operator.settings import OperatorSettings
from reprise.controller.simulated_world.memory_zookeeper import MemoryServer
from reprise.controller.zookeeper.session import ZooKeeperSession
from tests.support.fake_api import FakeApi

EXAMPLE = Path(__file__).parents[5] / "examples" / "minimal.yaml"
SETTINGS = OperatorSettings(namespace="ops", identity="op-1", zk="-", image="i", session_s=0.1)


class Refusing(FakeApi):
    """Whoever creates pods needs a right that the operator does not have."""

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        if path.endswith("/pods"):
            raise ForbiddenError(403, "pods is forbidden")
        return super().create(path, body)

    def list(self, path: str, **query: str) -> list[dict[str, Any]]:
        """No Events."""
        return []


def test_it_is_shown_whether_nodes_are_expected_although_no_driver_can_be_made() -> None:
    body: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    body["metadata"] |= {"namespace": "ns", "uid": "uid-1", "generation": 1}
    client = ZooKeeperSession(MemoryServer().session())  # type: ignore[arg-type]
    controller = TopologyController(Refusing(), client, SETTINGS, body, lambda: None)  # type: ignore[arg-type]
    waits = PodView("e-1", "ns", "minimal", "executor", "uid-e-1", "", "Pending")
    cluster = ClusterView({"e-1": waits}, None)
    controller.decide(body, cluster)
    controller.reconcile(cluster)
    assert "ForbiddenError" in controller.state.problem
    assert [expected.pod for expected in controller.state.forecast.expected] == ["e-1"]
