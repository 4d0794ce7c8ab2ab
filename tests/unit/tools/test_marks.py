"""What `make test-fast` leaves out has company: each file with tests that are marked `long` has others that it runs."""

from __future__ import annotations

import ast
from pathlib import Path

TESTS = Path(__file__).parents[2]
LEFT_OUT = ("long", "wide", "slow", "soak")


def marks(function: ast.FunctionDef) -> set[str]:
    """Those of the marks above that stand at a test itself, and not at some of its cases."""
    found = (ast.unparse(one) for one in function.decorator_list)
    return {mark for text in found for mark in LEFT_OUT if text == f"pytest.mark.{mark}"}


def test_a_file_with_long_tests_has_one_that_is_run_fast() -> None:
    with_long, alone = 0, []
    for file in sorted(TESTS.rglob("test_*.py")):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        found = [marks(f) for f in body if isinstance(f, ast.FunctionDef) and f.name.startswith("test_")]
        if any("long" in one for one in found):
            with_long += 1
            if all(found):
                alone.append(str(file.relative_to(TESTS)))
    assert with_long > 20, "the marks are not found"
    assert alone == []
