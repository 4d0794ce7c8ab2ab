"""Benchmarks and tools stand without the tests; what both need is in `tools.testbed`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


def imported(path: Path) -> set[str]:
    """The top packages that a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize(
    ("folder", "refused"),
    [
        ("benchmarks", {"tests"}),
        ("tools", {"tests", "benchmarks"}),
        ("examples", {"tests", "benchmarks"}),
    ],
)
def test_what_stands_below_knows_nothing_of_what_stands_on_it(folder: str, refused: set[str]) -> None:
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    assert {str(path.relative_to(ROOT)): names for path in paths if (names := imported(path) & refused)} == {}
