"""What tests of the engine leave behind: no threads of hosts that they have lost.  And the two small streams that losses,
moves and new drivers are tried on, with their output as it is without any of these."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tests.unit.spark_jobs.engine.test_scope import FEEDBACK, begun, resource_of
from tools.testbed.local_engine import close_hosts


@pytest.fixture(autouse=True)
def hosts_are_closed() -> Iterator[None]:
    """A run of all seeds starts some ten thousand hosts in one process."""
    yield
    close_hosts()


@pytest.fixture(scope="module", params=["diamond", "feedback"])
def text(request: pytest.FixtureRequest) -> str:
    return DIAMOND if request.param == "diamond" else FEEDBACK.read_text()


@pytest.fixture(scope="module")
def expected(text: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    world = begun(resource_of(text), tmp_path_factory.mktemp("fault-free"))
    world.run(lambda e: e.done)
    return world.output()
