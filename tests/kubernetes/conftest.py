"""One control plane for all tests of this folder without an operator, and one for all with one: starting costs more than
most tests.  Topologies bring their machines along (`streaming.py`), and take them away."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kubernetes import rbac, scenario
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import install
from tools.testbed.build import BuildError


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these start processes."""
    for item in items:
        if "tests/kubernetes" in str(item.path):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(1800))


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """A control plane and ZooKeeper; tests add their nodes and take them away."""
    # ZooKeeper is its only JVM: no archive has to be made for that
    cluster = KubeCluster(tmp_path_factory.mktemp("kubernetes"), class_archive=False)
    try:
        cluster.start()
    except BuildError as error:  # says what is missing on this machine: a failure, not a skip
        pytest.fail(str(error), pytrace=False)
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """A cluster with the operator and a machine for it and for drivers."""
    with KubeCluster(tmp_path_factory.mktemp("kubernetes")) as started:
        started.add_node("infra", cpu="8", labels={"role": "infra"})
        install(started)
        started.wait_ready(started.nodes)
        yield started
        assert scenario.defects(started) == []
        assert started.audit.refused() <= rbac.REFUSED, "an account has asked for what it has no right to"
