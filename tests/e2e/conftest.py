"""One cluster for all scenarios: starting nodes is dearer than replacing those that a scenario kills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e import scenario
from tests.support.told_cluster import ToldCluster

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules whose fixture `cluster` is their own come before that of the package is started."""

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
