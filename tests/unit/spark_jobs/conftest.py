"""Of tests of the engine and of operators that have several parameters, `make test` runs the first of each function:
seeds and settings are more of the same kind there, and cost seconds each."""

from __future__ import annotations

from pathlib import Path

import pytest

MANY = [Path(__file__).parent / room for room in ("engine", "operators")]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all but the first as `wide`."""
    seen = set[str]()
    for item in items:
        if any(item.path.is_relative_to(room) for room in MANY) and not item.get_closest_marker("slow"):
            function = item.nodeid.partition("[")[0]
            if function in seen:
                item.add_marker(pytest.mark.wide)
            seen.add(function)
