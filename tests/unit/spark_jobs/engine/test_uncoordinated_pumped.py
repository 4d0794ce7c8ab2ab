"""Own clocks where messages travel by an exchange, and under the random losses that coordinated checkpoints go through."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pumped_engine import PumpedNodes
from tests.support.seeds import soak_seeds
from tests.unit.spark_jobs.engine import test_recovery, test_uncoordinated
from tests.unit.spark_jobs.engine.test_uncoordinated import (  # noqa: F401  (fixtures)
    at_once,
    expected,
    log,
    no_waiting,
    text,
)
from tools.testbed import local_engine

pytestmark = pytest.mark.wide
SEEDS = [0, 1, *soak_seeds(10)]


@pytest.fixture
def exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_engine, "LocalNodes", PumpedNodes)


@pytest.mark.usefixtures("exchange")
@pytest.mark.parametrize("seed", SEEDS)
def test_random_losses_by_an_exchange(
    text: str,  # noqa: F811
    log: str,  # noqa: F811
    expected: dict[str, bytes],  # noqa: F811
    tmp_path: Path,
    seed: int,
) -> None:
    test_uncoordinated.test_random_losses_at_any_stage_change_no_byte(text, log, expected, tmp_path, seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_losses_failed_jobs_partial_plans_and_new_drivers_change_no_byte(
    text: str,  # noqa: F811
    log: str,  # noqa: F811
    expected: dict[str, bytes],  # noqa: F811
    tmp_path: Path,
    seed: int,
) -> None:
    """With rollbacks of everything, as a coordinator decides them that goes by rounds."""
    resource = test_uncoordinated.resource_of(text, log)
    test_recovery.test_random_losses(resource, expected, tmp_path, seed)
