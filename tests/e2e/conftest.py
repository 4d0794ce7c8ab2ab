"""One cluster for all scenarios of a module: starting ten nodes is dearer than replacing those that a scenario kills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.controller.local.cluster import EmbeddedCluster
from tests.e2e import scenario


@pytest.fixture(scope="session")
def cluster() -> Iterator[EmbeddedCluster]:
    with scenario.cluster(4) as started:
        yield started


@pytest.fixture(scope="module")
def large_nodes() -> Iterator[EmbeddedCluster]:
    """Four nodes on each of which there is room for what another one had."""
    with scenario.cluster(4, cpu_milli=600) as started:
        yield started


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Output of Topology 2 without faults; it does not depend on nodes or strategy."""
    return scenario.write_expected(scenario.topology2(), tmp_path_factory.mktemp("expected"))
