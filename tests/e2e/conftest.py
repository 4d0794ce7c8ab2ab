"""One cluster for all scenarios: starting nodes is dearer than replacing those that a scenario kills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import scenario
from tests.support.told_cluster import ToldCluster

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with a cluster of their own come before the others, so that two never run beside each other."""

    def shares(item: pytest.Item) -> bool:
        return item.path.is_relative_to(HERE) and not hasattr(getattr(item, "module", None), "cluster")

    items.sort(key=shares)


@pytest.fixture(scope="package")
def cluster() -> Iterator[ToldCluster]:
    with scenario.cluster(4) as started:
        yield started


@pytest.fixture(scope="module")
def large_nodes(cluster: ToldCluster) -> Iterator[ToldCluster]:
    """Nodes on each of which there is room for what another one had."""
    with cluster.announcing(600) as large:
        yield large


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output of Topology 2 without faults; it does not depend on nodes or strategy."""
    return scenario.write_expected(scenario.topology2(), tmp_path_factory.mktemp("expected"))
