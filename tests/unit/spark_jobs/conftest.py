"""Of tests of the engine and of operators that have several parameters, `make test` runs the first of each function:
seeds and settings are more of the same kind there, and cost seconds each.  In the engine it is the first of each `kind`."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.kafka import transactions
from tests.support.fake_kafka import Broker

ROOM = Path(__file__).parent
MANY = [ROOM / "engine", ROOM / "operators"]


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Brokers that the transactions of this process meet."""
    made = Broker()
    made.patch(monkeypatch, transactions)
    return made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but the first as `wide`."""
    seen = set[tuple[str, str]]()
    for item in items:
        if any(item.path.is_relative_to(room) for room in MANY) and not item.get_closest_marker("slow"):
            parameters = getattr(getattr(item, "callspec", None), "params", {})
            kind = str(parameters.get("kind")) if item.path.is_relative_to(MANY[0]) else ""
            one = item.nodeid.partition("[")[0], kind
            if one in seen:
                item.add_marker(pytest.mark.wide)
            seen.add(one)
