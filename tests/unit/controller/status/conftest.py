"""What all documents are of: the topology of the module."""

from __future__ import annotations

import pytest

from reprise.spark_jobs.topology import Topology, expand, load_text


@pytest.fixture(scope="module")
def topology(request: pytest.FixtureRequest) -> Topology:
    return expand(load_text(request.module.TOPOLOGY))
