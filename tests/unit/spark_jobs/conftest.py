"""Of tests of the engine that have several parameters, `make test` runs the first of each function and `kind`: seeds and
settings are more of the same kind there, and cost seconds each.  Of operators it runs all but further seeds, and
`make test-fast` the first of each function."""

from __future__ import annotations

from pathlib import Path

import pytest

from reprise.spark_jobs.kafka import transactions
from tests.support.fake_kafka import Broker

ROOM = Path(__file__).parent
ENGINE, OPERATORS = ROOM / "engine", ROOM / "operators"


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    """Brokers that the transactions of this process meet."""
    made = Broker()
    made.patch(monkeypatch, transactions)
    return made


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark cases of functions that are behind the first."""
    seen = set[tuple[str, str]]()
    for item in items:
        function, _, _ = item.nodeid.partition("[")
        parameters = dict(getattr(getattr(item, "callspec", None), "params", {}))
        if item.path.is_relative_to(ENGINE) and not item.get_closest_marker("slow"):
            kind, seeds = str(parameters.get("kind")), True
        elif item.path.is_relative_to(OPERATORS):
            seeds = parameters.pop("seed", None) is not None
            kind = str(parameters)
        else:
            continue
        if seeds and (function, kind) in seen:
            item.add_marker(pytest.mark.wide)
        elif item.path.is_relative_to(OPERATORS) and (function, "") in seen:
            item.add_marker(pytest.mark.long)
        seen |= {(function, kind), (function, "")}
