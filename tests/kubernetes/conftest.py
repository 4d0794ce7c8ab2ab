"""One control plane for all tests of this folder: starting it costs more than most tests.  Tests that need it without an
operator run first.  Topologies bring their machines along (`streaming.py`), and take them away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import rbac, scenario
from tests.kubernetes.cluster import KubeCluster
from tests.kubernetes.install import install
from tools.testbed.build import BuildError

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these start processes."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.slow)
    items.sort(
        key=lambda item: item.path.is_relative_to(HERE) and "cluster" in getattr(item, "fixturenames", ())
    )


@pytest.fixture(scope="package")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeCluster]:
    """A control plane and ZooKeeper; tests add their nodes and take them away."""
    cluster = KubeCluster(tmp_path_factory.mktemp("kubernetes"))
    try:
        cluster.start()
    except BuildError as error:  # says what is missing on this machine: a failure, not a skip
        pytest.fail(str(error), pytrace=False)
    try:
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="package")
def cluster(bare: KubeCluster) -> Iterator[KubeCluster]:
    """The same with the operator, and a machine for it and for drivers."""
    others, refused = scenario.defects(bare), bare.audit.refused()
    bare.add_node("infra", cpu="8", labels={"role": "infra"})
    install(bare)
    bare.wait_ready(bare.nodes)
    yield bare
    found = scenario.defects(bare) - others
    assert not found, "\n".join(sorted(found))
    assert bare.audit.refused() - refused <= rbac.REFUSED, "an account has asked for what it has no right to"
