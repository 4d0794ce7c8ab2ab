"""What tests of the engine leave behind: no threads of hosts that they have lost.  And the two small streams that losses,
moves and new drivers are tried on, with their output as it is without any of these."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from reprise.spark_jobs.engine import engine as engine_module
from reprise.spark_jobs.engine import local_lines
from reprise.spark_jobs.node import pump
from tests.support.engine_worlds import begun, fault_free
from tests.support.pumped_engine import PumpedNodes
from tests.unit.spark_jobs.engine.test_recovery import DIAMOND
from tests.unit.spark_jobs.engine.test_scope import FEEDBACK, resource_of
from tools.testbed import local_engine
from tools.testbed.local_engine import World, close_hosts, past


@pytest.fixture(autouse=True)
def hosts_are_closed() -> Iterator[None]:
    """A run of all seeds starts some ten thousand hosts in one process."""
    yield
    close_hosts()


@pytest.fixture
def few_batches_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream has not been released as a whole when something is lost."""
    monkeypatch.setattr(engine_module, "WINDOW", 8)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is far ahead, and much is under way between partitions at any time."""
    monkeypatch.setattr(engine_module, "WINDOW", 3)


@pytest.fixture(scope="module")
def little_is_released() -> Iterator[None]:
    """As with small windows; a savepoint covers all that is released, which would be the whole of a short stream."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "WINDOW", 3)
        yield


@pytest.fixture
def lines_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are recorded with each job, and nobody is far ahead."""
    monkeypatch.setattr(local_lines, "RECORD_S", 0.0)
    monkeypatch.setattr(local_lines, "SHARE", 0)
    monkeypatch.setattr(engine_module, "WINDOW", 3)


@pytest.fixture
def by_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many a bundle comes in pieces."""
    monkeypatch.setattr(local_engine, "LocalNodes", PumpedNodes)
    monkeypatch.setattr(pump, "PIECE", 300)


@pytest.fixture(params=["exchange", pytest.param("chained", marks=pytest.mark.wide)])
def exchange(request: pytest.FixtureRequest) -> None:
    """Messages travel by an exchange, or with the stages of jobs."""
    if request.param == "exchange":
        request.getfixturevalue("by_an_exchange")


@pytest.fixture
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """The world of the module in the middle of the stream."""
    made: World = request.module.world_of(tmp_path)
    made.run(past(25))
    return made


@pytest.fixture(scope="module", params=["diamond", "feedback"])
def text(request: pytest.FixtureRequest) -> str:
    return DIAMOND if request.param == "diamond" else FEEDBACK.read_text()


@pytest.fixture(scope="module")
def expected(text: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return fault_free(begun(resource_of(text), tmp_path_factory.mktemp("fault-free")))
